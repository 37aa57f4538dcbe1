// SPDX-License-Identifier: GPL-2.0-only
//! A client on this machine: over UDP on the loopback, or by frames that go to the guest's card as they are.
use anyhow::{Context, Result, ensure};
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};
use unikernel_service::clients::Clients;
use unikernel_service::frames::{self, End, Found};
use unikernel_service::request::PORT;

/// A way to the guest, for one datagram at a time.
pub trait Line {
    /// Sends a request.
    ///
    /// # Errors
    /// It cannot be sent.
    fn send(&mut self, request: &[u8]) -> Result<()>;
    /// The next reply; `None`: none came for a while.
    ///
    /// # Errors
    /// None can come any more.
    fn receive(&mut self, reply: &mut [u8]) -> Result<Option<usize>>;
}

/// A reply that is not there after this long is lost.
const LOST: Duration = Duration::from_millis(500);

fn came(result: std::io::Result<usize>) -> Result<Option<usize>> {
    match result {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Ok(None)
        }
        // While QEMU begins.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// UDP on the loopback.
pub struct Loopback(UdpSocket);

impl Loopback {
    /// To a port that is forwarded to the guest.
    ///
    /// # Errors
    /// No socket can be had.
    pub fn new(port: u16) -> Result<Loopback> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(LOST))?;
        Ok(Loopback(socket))
    }
}

/// A UDP port of the loopback that nobody has now.
///
/// # Errors
/// There is none.
pub fn free_port() -> Result<u16> {
    Ok(UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Line for Loopback {
    fn send(&mut self, request: &[u8]) -> Result<()> {
        came(self.0.send(request)).map(drop)
    }

    fn receive(&mut self, reply: &mut [u8]) -> Result<Option<usize>> {
        came(self.0.recv(reply))
    }
}

/// Frames by datagrams.
pub struct Frames {
    socket: UnixDatagram,
    /// This end.
    pub me: End,
    /// The guest's, once it told its address.
    pub server: End,
    port: u16,
    frame: Vec<u8>,
}

impl Frames {
    /// In the folder of the guest's [`crate::guest::Network::Frames`]; made before the guest is started.
    ///
    /// # Errors
    /// No socket can be had there.
    pub fn new(folder: &Path) -> Result<Frames> {
        let socket = UnixDatagram::bind(folder.join("client")).context("a socket for frames")?;
        socket.set_read_timeout(Some(LOST))?;
        socket.set_write_timeout(Some(LOST))?;
        let (me, server) = Clients::ends([0; 6], [10, 0, 2, 15], [10, 0, 2, 2]);
        Ok(Frames {
            socket,
            me,
            server,
            port: 3000,
            frame: vec![0; 2048],
        })
    }

    /// Finds the guest, once it is ready.
    ///
    /// # Errors
    /// It does not answer within `limit`.
    pub fn meet(&mut self, folder: &Path, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        self.socket
            .connect(folder.join("qemu"))
            .context("QEMU's socket for frames")?;
        while Instant::now() < end {
            self.send_frame(&frames::who_has(self.me, self.server.ip))?;
            let Some(bytes) = came(self.socket.recv(&mut self.frame))? else {
                continue;
            };
            if let Some(Found::Told(server)) = frames::read(self.me, &self.frame[..bytes]) {
                self.server = server;
                return Ok(());
            }
        }
        anyhow::bail!("the guest does not tell its address within {limit:?}")
    }

    /// Takes in what came, unread: whoever does not listen is not sent more, and then not listened to.
    ///
    /// # Errors
    /// QEMU has ended.
    pub fn drain(&mut self) -> Result<()> {
        self.socket.set_nonblocking(true)?;
        while came(self.socket.recv(&mut self.frame))?.is_some() {}
        self.socket.set_nonblocking(false)?;
        Ok(())
    }

    /// Sends a frame as it is; whether there was room for it. An empty one is left out: QEMU takes it for the end.
    ///
    /// # Errors
    /// QEMU has ended.
    pub fn send_frame(&mut self, frame: &[u8]) -> Result<bool> {
        Ok(frame.is_empty() || came(self.socket.send(frame))?.is_some())
    }
}

impl Line for Frames {
    fn send(&mut self, request: &[u8]) -> Result<()> {
        let frame = frames::datagram((self.me, self.port), (self.server, PORT), request);
        self.send_frame(&frame).map(drop)
    }

    fn receive(&mut self, reply: &mut [u8]) -> Result<Option<usize>> {
        loop {
            let Some(bytes) = came(self.socket.recv(&mut self.frame))? else {
                return Ok(None);
            };
            match frames::read(self.me, &self.frame[..bytes]) {
                Some(Found::Datagram { to, payload, .. }) if to == self.port => {
                    reply[..payload.len()].copy_from_slice(payload);
                    return Ok(Some(payload.len()));
                }
                Some(Found::Asked(answer)) => {
                    self.send_frame(&answer)?;
                }
                _ => {}
            }
        }
    }
}

/// What a client saw.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Replies in the time that was measured.
    pub replies: usize,
    /// That time, wall, s.
    pub seconds: f64,
    /// From a request to its reply, wall, us, sorted.
    pub responses_us: Vec<f64>,
    /// Requests whose reply did not come.
    pub lost: usize,
}

impl Seen {
    /// Replies per second of wall time.
    pub fn rate(&self) -> f64 {
        self.replies as f64 / self.seconds
    }

    /// A quantile of the response times, us.
    pub fn quantile(&self, part: f64) -> f64 {
        let last = self.responses_us.len().saturating_sub(1);
        self.responses_us
            .get((part * last as f64).round() as usize)
            .copied()
            .unwrap_or(f64::NAN)
    }
}

/// Sends requests of `bytes` bytes, `window` of them at a time, until `wanted` are answered; each reply must be what
/// was asked.
///
/// # Errors
/// A reply is wrong, or none comes any more.
pub fn ask(line: &mut impl Line, bytes: usize, window: usize, wanted: usize) -> Result<Seen> {
    const NUMBER: usize = size_of::<u64>();
    ensure!(
        (NUMBER..=1472).contains(&bytes),
        "requests are of {NUMBER} to 1472 bytes"
    );
    let mut asked: Vec<Option<Instant>> = Vec::with_capacity(wanted + window);
    let mut seen = Seen {
        replies: 0,
        seconds: 0.0,
        responses_us: Vec::with_capacity(wanted),
        lost: 0,
    };
    let request = |number: usize| {
        let mut request: Vec<u8> = (0..bytes).map(|at| (number + at) as u8).collect();
        request[..NUMBER].copy_from_slice(&(number as u64).to_le_bytes());
        request
    };
    let mut reply = vec![0; 2048];
    let (start, mut quiet) = (Instant::now(), 0);
    let send = |line: &mut _, asked: &mut Vec<Option<Instant>>| {
        asked.push(Some(Instant::now()));
        Line::send(line, &request(asked.len() - 1))
    };
    for _ in 0..window {
        send(line, &mut asked)?;
    }
    while seen.replies < wanted {
        let Some(length) = line.receive(&mut reply)? else {
            // Everything that was on its way is lost.
            quiet += 1;
            ensure!(quiet < 60, "no reply for {:?}", LOST * quiet);
            seen.lost += asked.iter_mut().filter_map(Option::take).count();
            for _ in 0..window {
                send(line, &mut asked)?;
            }
            continue;
        };
        quiet = 0;
        let number = reply[..length]
            .first_chunk()
            .map(|number| u64::from_le_bytes(*number) as usize);
        let since = number
            .and_then(|number| asked.get_mut(number))
            .and_then(Option::take);
        // One that was thought lost.
        let Some(since) = since else { continue };
        ensure!(
            Some(&reply[..length]) == number.map(&request).as_deref(),
            "a reply is not what was asked"
        );
        seen.responses_us.push(since.elapsed().as_secs_f64() * 1e6);
        seen.replies += 1;
        send(line, &mut asked)?;
    }
    seen.seconds = start.elapsed().as_secs_f64();
    seen.responses_us.sort_by(f64::total_cmp);
    Ok(seen)
}
