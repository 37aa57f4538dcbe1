// SPDX-License-Identifier: GPL-2.0-only
//! Interrupts that irqbalance leaves alone, by its socket: `setup` tells them, `settings ban irqs` replaces them
//! (irqbalance(1)). It is neither ended nor configured for longer than it runs.
use crate::error::Error;
use crate::knob::Knob;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
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
    let by_file = SocketAddrUnix::new(folder.join(&name)).and_then(|at| reach(&at));
    // Before version 1.7 it had no file.
    let by_name = || SocketAddrUnix::new_abstract_name(name.as_bytes()).and_then(|at| reach(&at));
    let stream = by_file.or_else(|_| by_name());
    let stream = stream.map_err(|e| Error::refused(knob, format!("{name}: {e}")))?;
    let timed = stream
        .set_nonblocking(false)
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

/// Never waits: where too many others wait for an answer, it is an error.
fn reach(at: &SocketAddrUnix) -> rustix::io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, at)?;
    Ok(UnixStream::from(socket))
}

/// All that it says until it closes, in so much time at most, however little it says at once.
fn answer(stream: &mut UnixStream, patience: Duration) -> std::io::Result<Vec<u8>> {
    let end = Instant::now() + patience;
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
    let text = asked.and_then(|()| answer(&mut stream, PATIENCE));
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
    let told = told.and_then(|()| answer(&mut stream, PATIENCE));
    told.map(|_| ()).map_err(|e| Error::refused(knob, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knob() -> Knob {
        Knob::Unbalanced { pid: 7, start: 1 }
    }

    fn listener(folder: &Path) -> std::os::unix::net::UnixListener {
        std::os::unix::net::UnixListener::bind(folder.join("irqbalance7.sock")).unwrap()
    }

    /// A stranger has made a socket of that name: whatever it would answer, it is not asked.
    #[test]
    fn a_strangers_socket_is_not_irqbalances() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_path_buf();
        // Whose a socket is, is whose thread listens.
        let made = std::thread::spawn(move || {
            const NOBODY: libc::c_long = 65_534;
            let listener = listener(&path);
            // SAFETY: by the bare system call, of this thread alone, which ends with that.
            let done = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
            // Listening anew, as whoever it is now.
            // SAFETY: an open socket.
            let listens = unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 8) };
            (done == 0 && listens == 0).then_some(listener)
        });
        let Some(stranger) = made.join().unwrap() else {
            return eprintln!("not tried: only root can be somebody else");
        };
        let why = read(folder.path(), &knob(), 7).unwrap_err().to_string();
        assert!(why.contains("is not root's"), "{why}");
        let why = write(folder.path(), &knob(), 7, "9")
            .unwrap_err()
            .to_string();
        assert!(why.contains("is not root's"), "{why}");
        // Not a byte was said.
        for _ in 0..2 {
            let (mut asked, _) = stranger.accept().unwrap();
            let mut heard = Vec::new();
            asked.read_to_end(&mut heard).unwrap();
            assert!(heard.is_empty(), "{heard:?}");
        }
    }

    #[test]
    fn one_that_never_ends_its_answer_is_left() {
        const SOON: Duration = Duration::from_millis(60);
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        // A byte now and then: each comes in time, the whole never does.
        let drips = std::thread::spawn(move || {
            while theirs.write_all(b"S").is_ok() {
                std::thread::sleep(SOON / 6);
            }
        });
        let error = answer(&mut ours, SOON).unwrap_err();
        assert!(
            matches!(
                error.kind(),
                std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock
            ),
            "{error}"
        );
        drop(ours);
        drips.join().unwrap();
        // Nor is more heard than an answer can have.
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        let floods = std::thread::spawn(move || while theirs.write_all(&[b'S'; 4096]).is_ok() {});
        assert!(answer(&mut ours, Duration::from_secs(3600)).is_err());
        drop(ours);
        floods.join().unwrap();
    }

    /// Nobody takes connections, and as many wait as may: who would wait for his turn would wait for ever.
    #[test]
    fn a_full_queue_is_not_waited_in() {
        let folder = tempfile::tempdir().unwrap();
        let listener = listener(folder.path());
        // SAFETY: an open socket.
        unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&listener), 0) };
        let at = SocketAddrUnix::new(folder.path().join("irqbalance7.sock")).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = reach(&at) {
            waiting.push(stream);
            assert!(waiting.len() < 10_000, "its queue never fills");
        }
        let why = read(folder.path(), &knob(), 7).unwrap_err().to_string();
        assert!(why.contains("irqbalance7.sock"), "{why}");
    }

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

    proptest::proptest! {
        /// Whatever it answers: a list of numbers, or none.
        #[test]
        fn any_answer_is_a_list_or_none(
            words in proptest::collection::vec("SLEEP|IRQ|BANNED|LOAD|[0-9]{0,12}|.{0,6}", 0..20),
        ) {
            for text in [words.join(" "), format!("SLEEP {}", words.join(" "))] {
                if let Some(list) = banned(&text) {
                    let numbers: Vec<u32> = list.split_whitespace().map(|w| w.parse().unwrap()).collect();
                    proptest::prop_assert!(numbers.is_sorted_by(|a, b| a < b), "{list}");
                }
            }
        }
    }
}
