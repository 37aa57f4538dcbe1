// SPDX-License-Identifier: GPL-2.0-only
//! How `berth start`, `stop` and `status` talk to the agent: a socket, one line of JSON each way; with a request to
//! start comes the policy's object, as an open file. Who may connect may ask what it does; only root, or its own user,
//! may change it. The agent's side of it is `door`.
use crate::agent::{Started, Status};
use crate::backend::Policy;
use crate::pins::would::Plan;
use crate::pins::{Pinned, Pinning};
use crate::register::VmKey;
use crate::rules::Rules;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Where the agent listens.
pub const SOCKET: &str = "/run/berth/control.sock";
/// Sees to the folder that a socket is to be in: that of [`SOCKET`] is made, any other has to be there, since a name
/// that was mistyped would be made too.
///
/// # Errors
/// There is no such folder, or it cannot be made.
pub fn folder(socket: &Path) -> io::Result<()> {
    let Some(folder) = socket.parent().filter(|f| !f.as_os_str().is_empty()) else {
        return Ok(());
    };
    if socket == Path::new(SOCKET) {
        return std::fs::create_dir_all(folder);
    }
    match folder.is_dir() {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("{}: there is no such folder", folder.display()),
        )),
    }
}

/// A line of the answer, at most: what would become of thousands of VMs is long.
const MAX_LINE: u64 = 64 << 20;
/// How long who asks waits for the agent; loading a policy takes the verifier some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Status,
    Stop,
    Start {
        /// Its object comes beside it.
        policy: Box<Policy>,
        /// None: as they are.
        rules: Option<Rules>,
    },
    /// Binds the network path of a VM.
    Pin {
        vm: VmKey,
        pinning: Pinning,
    },
    /// What that would do to these VMs; nothing is set.
    Plan {
        vms: Vec<VmKey>,
        pinning: Pinning,
    },
    /// Undoes that; none: of all VMs.
    Unpin {
        vm: Option<VmKey>,
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
    /// What has become of a pin.
    #[serde(default)]
    pub pinned: Option<Pinned>,
    /// What would become of VMs.
    #[serde(default)]
    pub plan: Option<Plan>,
    /// Pins that were undone: how many, and what of them could not be, a sentence each.
    #[serde(default)]
    pub unpinned: Option<(usize, Vec<String>)>,
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

/// Asks the agent. `object`: of the policy that is to be started, else empty.
///
/// # Errors
/// Nobody listens (`NotFound`, `ConnectionRefused`), one may not ask (`PermissionDenied`), or the agent went away.
pub fn ask(socket: &Path, request: &Request, object: &[u8]) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    let sent = match request {
        Request::Start { .. } => send_with_file(&stream, &line, &in_memory(object)?)?,
        _ => 0,
    };
    stream.write_all(&line[sent..])?;
    let mut answer = String::new();
    BufReader::new(stream)
        .take(MAX_LINE)
        .read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// A file without a name that has this content.
fn in_memory(content: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("berth-policy", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    Ok(file)
}

/// Sends the beginning of the text together with the file; how much of it.
fn send_with_file(stream: &UnixStream, text: &[u8], file: &File) -> io::Result<usize> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !beside.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::Error::other("no room for a file beside the request"));
    }
    let text = [IoSlice::new(text)];
    Ok(sendmsg(stream, &text, &mut beside, SendFlags::NOSIGNAL)?)
}
