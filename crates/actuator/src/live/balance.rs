// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts that irqbalance leaves alone, by its socket: `setup` tells them, `settings ban irqs` replaces them
//! (irqbalance(1)). It is neither ended nor configured for longer than it runs.
use crate::error::Error;
use crate::knob::Knob;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// It answers at once, or not at all: for a whole answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an answer, at most.
const MOST: usize = 1 << 16;
/// Bytes of a list that all its versions read whole.
const LIST: usize = 240;

fn connect(folder: &Path, knob: &Knob, pid: i32) -> Result<UnixStream, Error> {
    let name = format!("irqbalance{pid}.sock");
    let path = UnixStream::connect(folder.join(&name));
    let stream = path.or_else(|_| {
        // Before version 1.7 it had no file.
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name)?)
    });
    let stream = stream.map_err(|e| Error::refused(knob, format!("{name}: {e}")))?;
    let timed = stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    timed.map_err(|e| Error::refused(knob, e))?;
    // Anybody may have made a socket of that name.
    let peer = rustix::net::sockopt::socket_peercred(&stream);
    let peer = peer.map_err(|e| Error::refused(knob, e))?.uid;
    if !peer.is_root() && peer != rustix::process::geteuid() {
        return Err(Error::refused(knob, format!("{name} is not root's")));
    }
    Ok(stream)
}

/// All that it says until it closes.
fn answer(stream: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let (mut text, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || text.len() > MOST {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut piece)? {
            0 => return Ok(text),
            n => text.extend(&piece[..n]),
        }
    }
}

/// The numbers, ascending, a blank between them.
pub fn read(folder: &Path, knob: &Knob, pid: i32) -> Result<String, Error> {
    let mut stream = connect(folder, knob, pid)?;
    let asked = stream.write_all(b"setup");
    let text = asked.and_then(|()| answer(&mut stream));
    let text = text.map_err(|e| Error::refused(knob, e))?;
    let text = String::from_utf8_lossy(&text);
    banned(&text).ok_or_else(|| {
        let text: String = text.chars().take(80).collect();
        Error::refused(knob, format!("it answers {:?}", text))
    })
}

/// `SLEEP 10 IRQ 24 LOAD 0 DIFF 0 CLASS 0 BANNED 00000000`, with as many `IRQ` as there are.
fn banned(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.first() != Some(&"SLEEP") {
        return None;
    }
    let numbers = words
        .windows(2)
        .filter(|w| w[0] == "IRQ")
        .map(|w| w[1].parse::<u32>().ok());
    let numbers: Option<BTreeSet<u32>> = numbers.collect();
    Some(join(&numbers?))
}

fn join(numbers: &BTreeSet<u32>) -> String {
    let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    words.join(" ")
}

pub fn write(folder: &Path, knob: &Knob, pid: i32, value: &str) -> Result<(), Error> {
    let numbers: Option<BTreeSet<u32>> = value.split_whitespace().map(|w| w.parse().ok()).collect();
    let Some(numbers) = numbers else {
        return Err(Error::refused(
            knob,
            format!("{value:?} is no list of interrupts"),
        ));
    };
    let list = match numbers.is_empty() {
        true => "NONE".to_string(),
        false => join(&numbers),
    };
    if list.len() > LIST {
        let why = format!("it reads {LIST} bytes, and the list has {}", list.len());
        return Err(Error::refused(knob, why));
    }
    let mut stream = connect(folder, knob, pid)?;
    let told = stream.write_all(format!("settings ban irqs {list}").as_bytes());
    // It has taken it when it has closed the connection.
    let told = told.and_then(|()| answer(&mut stream));
    told.map(|_| ()).map_err(|e| Error::refused(knob, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_answers() {
        let text =
            "SLEEP 10 IRQ 25 LOAD 0 DIFF 0 CLASS 5 IRQ 7 LOAD 1 DIFF 2 CLASS 0 BANNED 00000003";
        assert_eq!(banned(text).unwrap(), "7 25");
        assert_eq!(banned("SLEEP 10 BANNED 00000000").unwrap(), "");
        for bad in ["", "TYPE 0", "SLEEP 10 IRQ x", "\u{0}"] {
            assert!(banned(bad).is_none(), "{bad}");
        }
    }
}
