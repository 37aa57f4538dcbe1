// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use crate::backend::{Policy, Value, Way};
use crate::control::ask;
use crate::pins::{Method, Pinning};
use crate::register::VmKey;
use berth_affinity::Ask;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};
use proptest::sample::Index;
use rustix::fs::{MemfdFlags, memfd_create};
use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;

fn policy() -> Policy {
    Policy {
        name: "vmfair".into(),
        hash: "ab".into(),
        parameters: [("slice_us".to_string(), "2000".to_string())].into(),
        values: [("slice_us".to_string(), Value::Number(2000))].into(),
        partial: false,
        backend: Way::Scx,
        object: Vec::new(),
    }
}

fn start() -> Request {
    Request::Start {
        policy: Box::new(policy()),
        rules: None,
    }
}

/// What is tested is what is answered, not how soon.
const HOUR: Duration = Duration::from_secs(3600);

fn open(folder: &tempfile::TempDir, access: &Access) -> (Door, PathBuf) {
    let socket = folder.path().join("control.sock");
    let mut door = Door::open(&socket, access).unwrap();
    door.patience = HOUR;
    (door, socket)
}

const ALL: Access = Access {
    mode: 0o666,
    group: None,
    group_if_possible: false,
};

fn empty() -> Answer {
    Answer::default()
}

/// Asks while the door is served, in rounds that never wait: the answer, and how many requests the agent was given
/// meanwhile.
fn asked(
    door: &mut Door,
    question: impl FnOnce() -> io::Result<Answer> + Send,
) -> (io::Result<Answer>, Vec<Request>) {
    let mut seen = Vec::new();
    let answer = std::thread::scope(|s| {
        let thread = s.spawn(question);
        while !thread.is_finished() {
            door.serve(Duration::from_millis(1), None, &mut |r| {
                seen.push(r);
                empty()
            })
            .unwrap();
        }
        thread.join().unwrap()
    });
    (answer, seen)
}

/// Runs something as a user who may change nothing; `None`: this process may not become one.
fn as_nobody<R: Send>(what: impl FnOnce() -> R + Send) -> Option<R> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become somebody else");
        return None;
    }
    std::thread::scope(|s| {
        let thread = s.spawn(|| {
            // SAFETY: changes this thread's user and groups only, which end with it.
            let done = unsafe {
                libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<u32>())
                    | libc::syscall(libc::SYS_setresgid, 65534, 65534, 65534)
                    | libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534)
            };
            assert_eq!(done, 0);
            what()
        });
        Some(thread.join().unwrap())
    })
}

#[test]
fn requests_arrive_whole_and_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let (mut door, socket) = open(&folder, &Access::default());
    assert!(
        Door::open(&socket, &Access::default()).is_err(),
        "one agent only"
    );
    let object = vec![7u8; 3_000_000];
    let (answer, seen) = asked(&mut door, || ask(&socket, &start(), &object));
    assert_eq!(answer.unwrap(), empty());
    let [Request::Start { policy, .. }] = &seen[..] else {
        panic!("{} requests", seen.len())
    };
    assert_eq!(policy.object, object);
    drop(door);
    assert!(!socket.exists());
}

/// Between its first look and its socket, an agent has nothing to connect to: another that starts then keeps away, too.
#[test]
fn of_several_that_start_at_once_one_listens() {
    let _one = crate::place::tests::one_at_a_time();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    let open = || Door::open(&socket, &Access::default());
    // As a killed agent leaves it.
    drop(UnixListener::bind(&socket).unwrap());
    let about_to = lock(&socket).unwrap();
    assert_eq!(open().unwrap_err().kind(), io::ErrorKind::AddrInUse);
    assert!(socket.exists(), "it took nothing away");
    drop(about_to);
    let door = open().unwrap();
    assert_eq!(open().unwrap_err().kind(), io::ErrorKind::AddrInUse);
    UnixStream::connect(&socket).unwrap();
    drop(door);
    open().unwrap();
}

#[test]
fn nonsense_is_refused_and_a_dead_agent_leaves_no_trouble() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control.sock");
    // As a killed agent leaves it.
    drop(UnixListener::bind(&socket).unwrap());
    let mut door = Door::open(&socket, &Access::default()).unwrap();
    door.patience = HOUR;
    let long = format!("\"{}\"\n", "x".repeat(MAX_LINE));
    for text in [
        "",
        "{}\n",
        "nonsense\n",
        "\"fly\"\n",
        "\"stop\"",
        &long,
        "\u{0}\n",
    ] {
        let (answer, seen) = asked(&mut door, || {
            let mut stream = UnixStream::connect(&socket)?;
            // It may be left before it has said all.
            let _ = stream.write_all(text.as_bytes());
            let _ = stream.shutdown(Shutdown::Write);
            let mut answer = String::new();
            let _ = stream.read_to_string(&mut answer);
            Ok(Answer::failed(Kind::Refused, answer))
        });
        let said = answer.unwrap().error.unwrap().1;
        let left = said.is_empty() && text.len() > MAX_LINE;
        assert!(left || said.contains("cannot be read"), "{said}");
        assert!(seen.is_empty());
    }
    assert!(door.clients.is_empty());
}

#[test]
fn silent_clients_delay_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let (mut door, socket) = open(&folder, &ALL);
    let mut silent = Vec::new();
    for i in 0..200u32 {
        let connected = match i % 2 {
            0 => as_nobody(|| UnixStream::connect(&socket).unwrap()),
            _ => Some(UnixStream::connect(&socket).unwrap()),
        };
        silent.extend(connected);
        door.serve(Duration::ZERO, None, &mut |_| panic!()).unwrap();
        assert!(door.clients.len() <= MAX_CLIENTS);
    }
    // However long they are there, a question needs three rounds: it comes, it is answered, it has gone.
    let stream = UnixStream::connect(&socket).unwrap();
    (&stream).write_all(b"\"status\"\n").unwrap();
    let mut seen = 0;
    for _ in 0..3 {
        door.serve(Duration::ZERO, None, &mut |_| {
            seen += 1;
            empty()
        })
        .unwrap();
    }
    assert_eq!(seen, 1);
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut answer = [0; 1];
    assert_eq!((&stream).read(&mut answer).unwrap(), 1);
}

#[test]
fn a_byte_at_a_time_is_a_request_that_took_too_long() {
    let folder = tempfile::tempdir().unwrap();
    let (mut door, socket) = open(&folder, &Access::default());
    door.patience = Duration::from_millis(50);
    let (answer, seen) = asked(&mut door, || {
        let mut stream = UnixStream::connect(&socket)?;
        for byte in b"\"stop\"".iter().cycle() {
            if stream.write_all(&[*byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // It was told so before it was left; what it wrote in vain does not take that away.
        let mut answer = vec![0; 4096];
        let got = stream.read(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer[..got]);
        Ok(Answer::failed(Kind::Refused, answer))
    });
    let said = answer.unwrap().error.unwrap().1;
    assert!(said.contains("took too long"), "{said}");
    assert!(seen.is_empty() && door.clients.is_empty());
    // Who does not take its answer is left, too.
    let stream = UnixStream::connect(&socket).unwrap();
    (&stream).write_all(b"\"status\"\n").unwrap();
    let much = || Answer {
        stopped: Some("x".repeat(8 << 20)),
        ..empty()
    };
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(20) || !door.clients.is_empty() {
        door.serve(Duration::from_millis(1), None, &mut |_| much())
            .unwrap();
    }
}

/// Who asks an agent to end has its whole answer, however long that is; who says nothing does not delay the end.
#[test]
fn the_last_answer_is_told_whole() {
    const LONG: usize = 8 << 20;
    let folder = tempfile::tempdir().unwrap();
    let (mut door, socket) = open(&folder, &Access::default());
    let _silent = UnixStream::connect(&socket).unwrap();
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"\"stop\"\n").unwrap();
    let mut answered = false;
    while !answered {
        door.serve(Duration::from_millis(1), None, &mut |_| {
            answered = true;
            Answer {
                stopped: Some("x".repeat(LONG)),
                ..empty()
            }
        })
        .unwrap();
    }
    let reads = std::thread::spawn(move || {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).map(|_| all.len())
    });
    door.finish();
    assert!(reads.join().unwrap().unwrap() > LONG);
}

/// A connection whose last user, when it closes it, waits for an hour: there is much to be sent, and nobody reads.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let trap = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    rustix::net::sockopt::set_socket_linger(&trap, Some(HOUR)).unwrap();
    trap.set_nonblocking(true).unwrap();
    let much = [0; 64 << 10];
    while (&trap).write(&much).is_ok() {}
    (trap, peer)
}

/// Says something, sends a descriptor along, and keeps the connection, but not the descriptor.
fn send_along(socket: &Path, words: &[u8], trap: TcpStream) -> UnixStream {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let stream = UnixStream::connect(socket).unwrap();
    let files = [rustix::fd::AsFd::as_fd(&trap)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(beside.push(SendAncillaryMessage::ScmRights(&files)));
    let words = [io::IoSlice::new(words)];
    sendmsg(&stream, &words, &mut beside, SendFlags::NOSIGNAL).unwrap();
    stream
}

/// What would wait for an hour in the agent's thread; a minute is for busy machines.
fn not_hung<R: Send + 'static>(what: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(what()));
    wait.recv_timeout(Duration::from_secs(60))
        .expect("the agent hangs")
}

#[test]
fn what_a_stranger_sends_along_is_not_closed_by_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let (mut door, socket) = open(&folder, &ALL);
    let mut peers = Vec::new();
    let mut clients = Vec::new();
    // One is answered, one is refused, many are too many and let go, and some still wait to be let in at the end.
    for words in ["\"status\"\n", "x", "no end in sight, "]
        .into_iter()
        .cycle()
        .take(90)
    {
        let (trap, peer) = lingering();
        let socket = socket.clone();
        let Some(client) = as_nobody(move || send_along(&socket, words.as_bytes(), trap)) else {
            return;
        };
        peers.push(peer);
        clients.push(client);
    }
    let answers = not_hung(move || {
        let mut answers = 0;
        for _ in 0..3 {
            let mut count = |_| {
                answers += 1;
                empty()
            };
            door.serve(Duration::ZERO, None, &mut count).unwrap();
        }
        let (trap, peer) = lingering();
        let late = as_nobody(|| send_along(&socket, b"x", trap));
        drop(door);
        (answers, peer, late)
    });
    assert!(
        answers.0 > 0,
        "who asks what it may is answered, whatever came beside"
    );
    peers.push(answers.1);
    drop((clients, answers.2));
    // They do not pile up: each is closed some time, as its peer sees.
    for mut peer in peers {
        not_hung(move || drop(peer.read_to_end(&mut Vec::new())));
    }
}

#[test]
fn who_may_not_change_anything_may_ask_if_let_in() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let (mut door, socket) = open(&folder, &Access::default());
    let Some(refused) = as_nobody(|| UnixStream::connect(&socket).map(|_| ())) else {
        return;
    };
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    door.admit(&ALL).unwrap();
    let nobody = |request: Request| {
        let socket = socket.clone();
        move || as_nobody(|| ask(&socket, &request, b"x")).unwrap()
    };
    let (answer, seen) = asked(&mut door, nobody(Request::Status));
    assert_eq!((answer.unwrap().error, seen.len()), (None, 1));
    let vm = VmKey { pid: 7, start: 1 };
    let pin = Request::Pin {
        vm,
        pinning: Pinning {
            ask: Ask::default(),
            method: Method::Auto,
        },
    };
    let plan = Request::Plan {
        vms: vec![vm],
        pinning: Pinning::default(),
    };
    for request in [Request::Stop, pin, plan, Request::Unpin { vm: Some(vm) }] {
        let shown = format!("{request:?}");
        let (answer, seen) = asked(&mut door, nobody(request));
        let (kind, why) = answer.unwrap().error.unwrap();
        let refused = kind == Kind::Refused;
        assert!(
            refused && (why.contains("only root") || why.contains("longer")),
            "{shown}: {why}"
        );
        assert!(seen.is_empty(), "{shown}");
    }
    // Its request to start is too long to be read, whatever comes beside it.
    let (answer, seen) = asked(&mut door, nobody(start()));
    let why = answer.map(|a| a.error.unwrap().1);
    assert!(
        why.as_ref().is_err()
            || why
                .as_ref()
                .is_ok_and(|w| w.contains("only root") || w.contains("longer")),
        "{why:?}"
    );
    assert!(seen.is_empty());
}

#[test]
fn an_object_is_a_file_that_nobody_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, _writer) = std::io::pipe().unwrap();
    let refused = |file: Option<OwnedFd>| object(file).unwrap_err().to_string();
    assert!(refused(Some(pipe.into())).contains("not in memory"));
    // What a server or another process answers for.
    let elsewhere = File::open("/proc/self/status").unwrap();
    assert!(refused(Some(elsewhere.into())).contains("not in memory"));
    assert!(refused(None).contains("did not come"));
    let in_memory = || File::from(memfd_create("x", MemfdFlags::CLOEXEC).unwrap());
    let large = in_memory();
    large.set_len(MAX_OBJECT + 1).unwrap();
    assert!(refused(Some(large.into())).contains("at most"));
    let small = in_memory();
    small.set_len(1).unwrap();
    let path = format!("/proc/self/fd/{}", small.as_raw_fd());
    let write_only = File::options().write(true).open(path).unwrap();
    refused(Some(write_only.into()));

    let (mut door, socket) = open(&folder, &Access::default());
    let (answer, seen) = asked(&mut door, || {
        let mut stream = UnixStream::connect(&socket)?;
        let mut line = serde_json::to_vec(&start())?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(serde_json::from_str(&answer)?)
    });
    let why = answer.unwrap().error.unwrap().1;
    assert!(
        why.contains("did not come beside it") && seen.is_empty(),
        "{why}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..Default::default() })]

    /// Whatever a client says: it is answered or left, nobody else waits for it, and nothing of it is kept.
    #[test]
    fn whatever_is_said_the_next_is_answered(
        hits in vec((any::<Index>(), any::<u8>()), 0..4),
        which in 0..3usize,
        more in vec(any::<u8>(), 0..20),
        ends in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (mut door, socket) = open(&folder, &Access::default());
        let sound = [start(), Request::Status, Request::Unpin { vm: None }];
        let mut bytes = serde_json::to_vec(&sound[which]).unwrap();
        for (at, by) in &hits {
            let at = at.index(bytes.len());
            bytes[at] ^= by;
        }
        bytes.extend(&more);
        if ends {
            bytes.push(b'\n');
        }
        let mut stream = UnixStream::connect(&socket).unwrap();
        let _ = stream.write_all(&bytes);
        // It is still there, and may have more to say.
        let (answer, seen) = asked(&mut door, || ask(&socket, &Request::Status, &[]));
        prop_assert!(answer.unwrap() == empty() && seen.contains(&Request::Status) && seen.len() <= 2);
        let (said, _) = asked(&mut door, || {
            let _ = stream.shutdown(Shutdown::Write);
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said);
            Ok(Answer::failed(Kind::Refused, String::from_utf8_lossy(&said)))
        });
        let said = said.unwrap().error.unwrap().1;
        let is_answer = |line: &str| serde_json::from_str::<Answer>(line).is_ok();
        prop_assert!(said.lines().count() <= 1 && said.lines().all(is_answer), "{said}");
        prop_assert!(door.clients.is_empty());
    }
}
