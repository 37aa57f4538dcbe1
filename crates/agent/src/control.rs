// SPDX-License-Identifier: GPL-2.0-only
//! How `berth start`, `stop` and `status` talk to the agent: a socket, one line of JSON each way; behind a request to
//! start come the bytes of the policy's object. Anybody may ask what it does; only root, or its own user, may change it.
use crate::agent::{Policy, Started, Status};
use crate::rules::Rules;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// Where the agent listens.
pub const SOCKET: &str = "/run/berth/control.sock";
/// An object that a request may bring, at most.
const MAX_OBJECT: u64 = 64 << 20;
/// A line, at most.
const MAX_LINE: u64 = 4 << 20;
/// How long either side waits for the other; loading a policy takes the verifier some seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// The agent does not wait long for who has connected and says nothing.
const READ_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Status,
    Stop,
    Start {
        policy: Box<Policy>,
        /// None: as they are.
        rules: Option<Rules>,
        object_bytes: u64,
    },
}

/// Why a request was not done; the words are in `error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// This host, or who asks, does not allow it.
    Refused,
    /// The kernel or the policy failed.
    Failed,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    pub error: Option<(Kind, String)>,
    pub started: Option<Started>,
    /// The policy that was unloaded.
    pub stopped: Option<String>,
    pub status: Option<Status>,
}

impl Answer {
    /// It was not done.
    pub fn failed(kind: Kind, why: impl Into<String>) -> Answer {
        Answer {
            error: Some((kind, why.into())),
            ..Answer::default()
        }
    }
}

/// Asks the agent.
///
/// # Errors
/// Nobody listens (`NotFound`, `ConnectionRefused`), or it went away.
pub fn ask(socket: &Path, request: &Request, object: &[u8]) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    stream.write_all(object)?;
    let mut answer = String::new();
    BufReader::new(stream)
        .take(MAX_LINE)
        .read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// Where requests arrive; removed when dropped.
#[derive(Debug)]
pub struct Door {
    listener: UnixListener,
    socket: std::path::PathBuf,
}

impl Door {
    /// Listens. What an agent that was killed left behind is removed.
    ///
    /// # Errors
    /// Another agent listens there (`AddrInUse`), or the socket cannot be made.
    pub fn open(socket: &Path) -> io::Result<Door> {
        if let Some(folder) = socket.parent() {
            std::fs::create_dir_all(folder)?;
        }
        if UnixStream::connect(socket).is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another agent is running",
            ));
        }
        match std::fs::remove_file(socket) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let listener = UnixListener::bind(socket)?;
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
        listener.set_nonblocking(true)?;
        Ok(Door {
            listener,
            socket: socket.into(),
        })
    }

    /// Answers everybody who waits; if nobody does, waits for that long at most, or until there is something to read from
    /// the other file. Gives true if there is.
    ///
    /// # Errors
    /// The socket cannot be used any more.
    pub fn serve(
        &self,
        wait: Duration,
        other: Option<BorrowedFd<'_>>,
        answer: &mut dyn FnMut(Request) -> Answer,
    ) -> io::Result<bool> {
        let entry = |fd: i32| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        // A negative number is no file.
        let other = other.map_or(-1, |fd| fd.as_raw_fd());
        let mut waits = [entry(self.listener.as_raw_fd()), entry(other)];
        // Rounded up: less than a millisecond is not nothing.
        let ms = i32::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        // SAFETY: two structures that outlive the call. A signal ends the wait early, which is well.
        unsafe { libc::poll(waits.as_mut_ptr(), 2, ms) };
        let told = waits[1].revents != 0;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // Who goes away has no use for an answer.
                    let _ = one(stream, answer);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(told),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn one(stream: UnixStream, answer: &mut dyn FnMut(Request) -> Answer) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(READ_PATIENCE))?;
    stream.set_write_timeout(Some(READ_PATIENCE))?;
    let allowed = may_change(&stream);
    let mut reader = BufReader::new(stream.try_clone()?);
    let said = match request(&mut reader) {
        Ok(Request::Status) => answer(Request::Status),
        Ok(_) if !allowed => Answer::failed(Kind::Refused, "only root may start and stop policies"),
        Ok(request) => answer(request),
        Err(e) => Answer::failed(Kind::Refused, format!("the request cannot be read: {e}")),
    };
    let mut line = serde_json::to_vec(&said)?;
    line.push(b'\n');
    (&stream).write_all(&line)
}

fn request(reader: &mut impl BufRead) -> io::Result<Request> {
    let mut line = String::new();
    reader.take(MAX_LINE).read_line(&mut line)?;
    let mut request: Request = serde_json::from_str(&line)?;
    if let Request::Start {
        policy,
        object_bytes,
        ..
    } = &mut request
    {
        if *object_bytes > MAX_OBJECT {
            return Err(io::Error::other("its object is too large"));
        }
        reader.take(*object_bytes).read_to_end(&mut policy.object)?;
        if policy.object.len() as u64 != *object_bytes {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
    }
    Ok(request)
}

/// Whether the other side is root or this process's own user.
fn may_change(stream: &UnixStream) -> bool {
    // SAFETY: plain values; the kernel fills the structure, whose length is given.
    unsafe {
        let mut peer: libc::ucred = std::mem::zeroed();
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let done = libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &mut length,
        );
        done == 0 && (peer.uid == 0 || peer.uid == libc::geteuid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_scx::LoadOptions;

    fn policy() -> Policy {
        Policy {
            name: "vmfair".into(),
            hash: "ab".into(),
            parameters: [("slice_us".to_string(), "2000".to_string())].into(),
            options: LoadOptions {
                variables: [("slice_us".to_string(), berth_scx::Value::Number(2000))].into(),
                ..LoadOptions::default()
            },
            object: Vec::new(),
        }
    }

    #[test]
    fn requests_arrive_whole_and_are_answered() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("below/control.sock");
        let door = Door::open(&socket).unwrap();
        assert!(Door::open(&socket).is_err(), "one agent only");
        let object = vec![7u8; 100_000];
        std::thread::scope(|s| {
            let asked = s.spawn(|| {
                let start = Request::Start {
                    policy: Box::new(policy()),
                    rules: None,
                    object_bytes: object.len() as u64,
                };
                ask(&socket, &start, &object).unwrap()
            });
            let mut seen = None;
            while seen.is_none() {
                door.serve(Duration::from_millis(100), None, &mut |r| {
                    seen = Some(r);
                    Answer {
                        stopped: Some("x".into()),
                        ..Answer::default()
                    }
                })
                .unwrap();
            }
            assert_eq!(asked.join().unwrap().stopped.as_deref(), Some("x"));
            let Some(Request::Start { policy, .. }) = seen else {
                panic!()
            };
            assert_eq!(policy.object, vec![7u8; 100_000]);
        });
        drop(door);
        assert!(!socket.exists());
    }

    #[test]
    fn nonsense_is_refused_and_a_dead_agent_leaves_no_trouble() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control.sock");
        // As a killed agent leaves it.
        drop(UnixListener::bind(&socket).unwrap());
        let door = Door::open(&socket).unwrap();
        for text in ["", "{}\n", "nonsense\n", "\"fly\"\n"] {
            let mut stream = UnixStream::connect(&socket).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            door.serve(Duration::from_millis(100), None, &mut |_| panic!())
                .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.contains("cannot be read"), "{text}: {answer}");
        }
    }
}
