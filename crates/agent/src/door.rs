// SPDX-License-Identifier: GPL-2.0-only
//! The agent's side of `control`: who has connected, what they have said so far, what they are answered.
//!
//! The agent never waits for one of them: it takes what has come, and goes on. Who is not done in time is left. Who
//! asks is known before a byte is read. Who may not change anything may say little, at once; what it said is looked at
//! and not taken, so that nothing that it sent along is opened or closed here (`closer`). Of too many, those who may
//! not are let go first, so that nobody keeps root out.
mod closer;

use crate::control::{self, Answer, Kind, Request};
use closer::{Careful, Closer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, fcntl_get_seals, flock};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketFlags, SocketType, bind, listen, recv, recvmsg, socket_with,
};
use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// An object that a request may bring, at most, in bytes.
const MAX_OBJECT: u64 = 64 << 20;
/// Bytes of a request, at most: of who may change something, and of others.
const MAX_LINE: usize = 256 << 10;
const MAX_QUESTION: usize = 256;
/// A request must be there so long after its client has come, and its answer be taken so long after it is given.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one that was killed may take to let go of its files.
const ENDING: Duration = Duration::from_secs(1);
/// Clients at a time.
const MAX_CLIENTS: usize = 64;
/// Answers before the agent looks after its host again.
const ANSWERS: usize = 8;
/// When there is no room for one more client in this process, the next is waited for so much later.
const PAUSE: Duration = Duration::from_millis(100);
/// So many who were let go and are not closed yet, and nobody more is let in.
const MAX_CLOSING: usize = 128;
/// Clients that may wait to be let in.
const BACKLOG: i32 = 128;
/// Bytes taken from a client at a time.
const PIECE: usize = 64 << 10;

/// Of `accept`: too many files, or too little memory, here or on the machine.
const NO_ROOM: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];

/// Who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Permissions of the socket.
    pub mode: u32,
    /// Its group, by number; none: the agent's own.
    pub group: Option<u32>,
    /// Nobody has named that group: the agent's own if it cannot be given to it.
    pub group_if_possible: bool,
}

impl Default for Access {
    /// The agent's user and group.
    fn default() -> Access {
        Access {
            mode: 0o660,
            group: None,
            group_if_possible: false,
        }
    }
}

/// Where requests arrive; removed when dropped.
#[derive(Debug)]
pub struct Door {
    listener: Careful<UnixListener>,
    closer: Closer,
    socket: PathBuf,
    /// Held as long as it is open; the kernel lets go of it if this process is killed.
    _lock: File,
    /// The oldest first.
    clients: Vec<Client>,
    /// [`PATIENCE`]
    patience: Duration,
    /// Nobody is let in before that.
    closed_until: Option<Instant>,
}

impl Door {
    /// Listens. What an agent that was killed left behind is removed.
    ///
    /// # Errors
    /// Another agent listens there (`AddrInUse`), or the socket cannot be made.
    pub fn open(socket: &Path, access: &Access) -> io::Result<Door> {
        control::folder(socket)?;
        let lock = lock(socket)?;
        match std::fs::remove_file(socket) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        bind(&listener, &SocketAddrUnix::new(socket)?)?;
        let closer = Closer::new()?;
        let door = Door {
            listener: closer.keep(UnixListener::from(listener)),
            closer,
            socket: socket.into(),
            _lock: lock,
            clients: Vec::new(),
            patience: PATIENCE,
            closed_until: None,
        };
        // Nobody can connect before it listens, so nobody comes in before it is said who may.
        door.admit(access)?;
        listen(&door.listener, BACKLOG)?;
        Ok(door)
    }

    /// Lets others connect from now on.
    ///
    /// # Errors
    /// The socket's permissions or group cannot be changed.
    pub fn admit(&self, access: &Access) -> io::Result<()> {
        let own = rustix::process::getegid().as_raw();
        let give = |group| std::os::unix::fs::chown(&self.socket, None, Some(group));
        match access.group {
            Some(group) if access.group_if_possible => give(group).or_else(|_| give(own))?,
            group => give(group.unwrap_or(own))?,
        }
        std::fs::set_permissions(&self.socket, std::fs::Permissions::from_mode(access.mode))
    }

    /// Goes on with everybody who is there; if nothing comes, waits for that long at most, or until there is something
    /// to read from the other file. Gives true if there is.
    ///
    /// # Errors
    /// The socket cannot be used any more.
    pub fn serve(
        &mut self,
        wait: Duration,
        other: Option<BorrowedFd<'_>>,
        answer: &mut dyn FnMut(Request) -> Answer,
    ) -> io::Result<bool> {
        let now = Instant::now();
        if self.closed_until.is_some_and(|t| now >= t) {
            self.closed_until = None;
        }
        let first = self.clients.iter().map(|c| c.until);
        let first = first.chain(self.closed_until).min();
        let wait = first.map_or(wait, |t| wait.min(t.saturating_duration_since(now)));
        let told = self.wait(wait, other)?;
        if self.closed_until.is_none() {
            self.accept()?;
        }
        let (now, patience) = (Instant::now(), self.patience);
        // The agent's own time is nobody's delay.
        let (mut left, mut spent) = (ANSWERS, Duration::ZERO);
        let mut answer = |request| {
            let begun = Instant::now();
            let answer = answer(request);
            (left, spent) = (left - 1, spent + begun.elapsed());
            (answer, left > 0)
        };
        let mut more = true;
        self.clients
            .retain_mut(|client| !more || client.go_on(now, patience, &mut more, &mut answer));
        for client in &mut self.clients {
            client.until += spent;
        }
        Ok(told)
    }

    /// Takes no more requests, and tells root or the own user, if answered, the rest of it, for as long as it has at
    /// most; others hold up no end. On a host of thousands of VMs an answer is longer than what a socket holds.
    pub fn finish(mut self) {
        let end = Instant::now() + self.patience;
        loop {
            self.clients
                .retain_mut(|c| c.privileged && c.answer.is_some() && c.tell());
            let left = end.saturating_duration_since(Instant::now());
            let streams = self.clients.iter().map(|c| &*c.stream);
            let mut all: Vec<PollFd<'_>> =
                streams.map(|s| PollFd::new(s, PollFlags::OUT)).collect();
            if all.is_empty() || left.is_zero() {
                return;
            }
            let Ok(left) = Timespec::try_from(left) else {
                return;
            };
            // A signal ends the wait early, which is well.
            let _ = poll(&mut all, Some(&left));
        }
    }

    /// Until somebody has something to say, or can be told something.
    fn wait(&self, wait: Duration, other: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        let arrives = match self.closed_until {
            None => PollFlags::IN,
            Some(_) => PollFlags::empty(),
        };
        let mut all = vec![PollFd::new(&*self.listener, arrives)];
        for client in &self.clients {
            let wants = match client.answer {
                Some(_) => PollFlags::OUT,
                None => PollFlags::IN,
            };
            all.push(PollFd::new(&*client.stream, wants));
        }
        if let Some(other) = &other {
            all.push(PollFd::new(other, PollFlags::IN));
        }
        let wait = Timespec::try_from(wait).map_err(io::Error::other)?;
        match poll(&mut all, Some(&wait)) {
            // A signal ends the wait early, which is well.
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(other.is_some() && all.last().is_some_and(|fd| !fd.revents().is_empty()))
    }

    fn accept(&mut self) -> io::Result<()> {
        // Not more than there is room for: the others are next.
        for _ in 0..MAX_CLIENTS {
            if self.closer.pending() >= MAX_CLOSING {
                self.closed_until = Some(Instant::now() + PAUSE);
                return Ok(());
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => self.closer.keep(stream),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.raw_os_error() == Some(libc::ECONNABORTED) => continue,
                // No room for one more now: those who are there end in time.
                Err(e) if NO_ROOM.iter().any(|no| e.raw_os_error() == Some(*no)) => {
                    self.closed_until = Some(Instant::now() + PAUSE);
                    return Ok(());
                }
                Err(e) => return Err(e),
            };
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let privileged = may_change(&stream);
            if self.clients.len() >= MAX_CLIENTS {
                match self.clients.iter().position(|c| !c.privileged) {
                    Some(oldest) => drop(self.clients.remove(oldest)),
                    None if privileged => drop(self.clients.remove(0)),
                    None => continue,
                }
            }
            self.clients.push(Client {
                stream,
                privileged,
                until: Instant::now() + self.patience,
                said: Vec::new(),
                file: None,
                answer: None,
            });
        }
        Ok(())
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// The right to listen there, which one agent has at a time: of several that start at once, too. Its file stays: who
/// removed it could remove that of the next. One that was just killed has it for a moment still.
fn lock(socket: &Path) -> io::Result<File> {
    let mut beside = socket.as_os_str().to_owned();
    beside.push(".lock");
    let mut how = File::options();
    how.create(true).truncate(false).write(true).mode(0o600);
    let file = how.open(beside)?;
    let end = Instant::now() + ENDING;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another agent is running",
                ));
            }
            Err(e) => return Err(e.into()),
        }
    }
}

/// Whether the other side is root or this process's own user.
fn may_change(stream: &UnixStream) -> bool {
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

/// Somebody who has connected.
#[derive(Debug)]
struct Client {
    stream: Careful<UnixStream>,
    privileged: bool,
    /// Left then.
    until: Instant,
    said: Vec<u8>,
    file: Option<OwnedFd>,
    /// What is still to be told.
    answer: Option<Vec<u8>>,
}

/// What has come of a request.
enum Said {
    NotYet,
    All,
    Wrong(String),
}

impl Client {
    /// Takes what has come, answers what is whole, tells what there is room for. False: it is over.
    fn go_on(
        &mut self,
        now: Instant,
        patience: Duration,
        more: &mut bool,
        answer: &mut dyn FnMut(Request) -> (Answer, bool),
    ) -> bool {
        if self.answer.is_none() {
            let said = match self.listen() {
                Ok(said) => said,
                // It has gone away, and has no use for an answer.
                Err(_) => return false,
            };
            let answered = match said {
                Said::NotYet if now >= self.until => {
                    Answer::failed(Kind::Refused, "the request took too long")
                }
                Said::NotYet => return true,
                Said::Wrong(why) => {
                    Answer::failed(Kind::Refused, format!("the request cannot be read: {why}"))
                }
                Said::All => self.answered(more, answer),
            };
            let Ok(mut line) = serde_json::to_vec(&answered) else {
                return false;
            };
            line.push(b'\n');
            self.answer = Some(line);
            self.until = Instant::now() + patience;
        }
        self.tell() && Instant::now() < self.until
    }

    /// Reads what there is.
    fn listen(&mut self) -> io::Result<Said> {
        let most = if self.privileged {
            MAX_LINE
        } else {
            MAX_QUESTION
        };
        let mut piece = [0u8; PIECE];
        let room = piece.len().min(most + 1 - self.said.len());
        let got = match self.take(&mut piece[..room]) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Said::NotYet),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(Said::NotYet),
            got => got?,
        };
        self.said.extend_from_slice(&piece[..got]);
        if let Some(end) = self.said.iter().position(|b| *b == b'\n') {
            self.said.truncate(end);
            return Ok(Said::All);
        }
        Ok(match got {
            0 => Said::Wrong("it has no end".into()),
            _ if self.said.len() > most => Said::Wrong(format!("it is longer than {most} bytes")),
            // It stays where it is, and would be there again at once.
            _ if !self.privileged => Said::Wrong("it did not come in one piece".into()),
            _ => Said::NotYet,
        })
    }

    /// Some bytes, and the file that came beside them if this client may send one. Of others the bytes are only looked
    /// at: taken, a file beside them would be closed here.
    fn take(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.privileged {
            let (got, _) = recv(&*self.stream, into, RecvFlags::DONTWAIT | RecvFlags::PEEK)?;
            return Ok(got);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(into)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(&*self.stream, &mut into, &mut beside, flags)?;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.file = files.last().or(self.file.take());
            }
        }
        Ok(got.bytes)
    }

    /// The answer to what was said; `more`: whether there is time for others.
    fn answered(
        &mut self,
        more: &mut bool,
        answer: &mut dyn FnMut(Request) -> (Answer, bool),
    ) -> Answer {
        let wrong = |e: &dyn std::fmt::Display| {
            Answer::failed(Kind::Refused, format!("the request cannot be read: {e}"))
        };
        let mut request: Request = match serde_json::from_slice(&self.said) {
            Ok(request) => request,
            Err(e) => return wrong(&e),
        };
        if !self.privileged && request != Request::Status {
            return Answer::failed(Kind::Refused, "only root may start and stop policies");
        }
        if let Request::Start { policy, .. } = &mut request {
            match object(self.file.take()) {
                Ok(object) => policy.object = object,
                Err(e) => return wrong(&e),
            }
        }
        let (answer, left) = answer(request);
        *more = left;
        answer
    }

    /// Writes what there is room for. False: all of it is written, or nobody listens.
    fn tell(&mut self) -> bool {
        let Some(line) = &mut self.answer else {
            return true;
        };
        match (&*self.stream).write(line) {
            Ok(written) => {
                line.drain(..written);
                !line.is_empty()
            }
            Err(e) => matches!(
                e.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ),
        }
    }
}

/// The object in a file that came beside a request: one that nobody has to be waited for.
fn object(file: Option<OwnedFd>) -> io::Result<Vec<u8>> {
    let file =
        File::from(file.ok_or_else(|| io::Error::other("its object did not come beside it"))?);
    // Only files in memory have seals; on all others, even to ask for the size may take as long as their server likes.
    if fcntl_get_seals(&file).is_err() {
        return Err(io::Error::other("its object is not in memory"));
    }
    let about = file.metadata()?;
    if about.size() > MAX_OBJECT {
        return Err(io::Error::other(format!(
            "its object has {} bytes, at most {MAX_OBJECT} are taken",
            about.size()
        )));
    }
    // By position: who sent it may have left its own somewhere.
    let mut bytes = vec![0; about.size() as usize];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
