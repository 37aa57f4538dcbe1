// SPDX-License-Identifier: GPL-2.0-only
//! Asks QEMU itself which thread is which vCPU: `query-cpus-fast` over a monitor (QMP) whose socket stands on its
//! command line.
//!
//! Only reads, only of a monitor that nobody else is connected to (it serves one at a time: libvirt's is left alone),
//! only of a socket that the VM's own process listens on, and never for longer than [`LIMIT`]. A thread of its own
//! asks, so that no scan waits. An answer that does not fit the process's threads is no answer.
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// For one monitor, from connecting to the answer.
pub const LIMIT: Duration = Duration::from_millis(500);
/// Of what a monitor says, at most, in bytes. A vCPU takes some 200.
const SAYS: usize = 1 << 20;

/// The vCPU of each thread.
pub type Vcpus = BTreeMap<i32, u32>;

/// The sockets of QMP monitors that QEMU's command line names, as it names them.
pub fn monitors(args: &[String]) -> Vec<String> {
    let mut chardevs: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    let mut wanted = Vec::new();
    for pair in args.windows(2) {
        let [option, value] = pair else { continue };
        let option = option.strip_prefix("--").or(option.strip_prefix('-'));
        let parts = split(value);
        let of = |key: &str| {
            let value = parts.iter().find_map(|p| p.strip_prefix(key));
            value.and_then(|v| v.strip_prefix('=')).map(String::from)
        };
        let first = parts.first().map_or("", String::as_str);
        match option {
            Some("qmp" | "qmp-pretty") => {
                if let Some(path) = first.strip_prefix("unix:") {
                    found.push(path.to_string());
                } else if let Some(id) = first.strip_prefix("chardev:") {
                    wanted.push(id.to_string());
                }
            }
            Some("chardev") if first == "socket" => {
                if let (Some(id), Some(path)) = (of("id"), of("path")) {
                    chardevs.insert(id, path);
                }
            }
            Some("mon") if of("mode").as_deref() == Some("control") => {
                let named = (!first.contains('=')).then(|| first.to_string());
                wanted.extend(of("chardev").or(named));
            }
            _ => {}
        }
    }
    found.extend(wanted.iter().filter_map(|id| chardevs.get(id).cloned()));
    found
}

/// QEMU's options: parted by commas, a doubled comma is one.
fn split(value: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut rest = value.chars().peekable();
    while let Some(c) = rest.next() {
        if c == ',' && rest.next_if_eq(&',').is_none() {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}

/// Which VM, and where its monitors are.
#[derive(Clone, Debug)]
pub struct Question {
    pub pid: i32,
    /// Start of the process, in clock ticks since boot.
    pub start: u64,
    pub monitors: Vec<String>,
}

/// What a VM's monitor said; `None`: nothing that can be used.
#[derive(Clone, Debug)]
pub struct Answer {
    pub pid: i32,
    pub start: u64,
    pub vcpus: Option<Vcpus>,
}

/// Asks monitors, one after the other, in a thread of its own that ends with it.
#[derive(Debug)]
pub struct Asker {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
}

impl Asker {
    /// # Errors
    /// No thread can be started.
    pub fn start() -> io::Result<Asker> {
        let (questions, asked) = channel::<Question>();
        let (answered, answers) = channel();
        std::thread::Builder::new()
            .name("berth-qmp".into())
            .spawn(move || {
                while let Ok(q) = asked.recv() {
                    let vcpus = q.monitors.iter().find_map(|m| ask(q.pid, m).ok());
                    let answer = Answer {
                        pid: q.pid,
                        start: q.start,
                        vcpus,
                    };
                    if answered.send(answer).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Asker { questions, answers })
    }

    /// Will be asked when it is its turn; never waits.
    pub fn ask(&self, question: Question) {
        // Without the thread there are no answers, and everything else works.
        let _ = self.questions.send(question);
    }

    /// What was answered since the last call; never waits.
    pub fn answers(&self) -> impl Iterator<Item = Answer> {
        self.answers.try_iter()
    }
}

fn no_answer(why: &str) -> io::Error {
    io::Error::other(why.to_string())
}

/// Asks one monitor of a process of this machine.
///
/// # Errors
/// It cannot be reached, is busy, belongs to another process, says nothing in time or nothing that fits.
pub fn ask(pid: i32, monitor: &str) -> io::Result<Vcpus> {
    ask_within(pid, monitor, LIMIT)
}

fn ask_within(pid: i32, monitor: &str, limit: Duration) -> io::Result<Vcpus> {
    let end = Instant::now() + limit;
    // As the process sees it: it may have a root of its own.
    let from = if monitor.starts_with('/') {
        "root"
    } else {
        "cwd"
    };
    let path = PathBuf::from(format!("/proc/{pid}/{from}")).join(monitor.trim_start_matches('/'));
    let sockets = std::fs::read(format!("/proc/{pid}/net/unix"))?;
    if connected(&sockets, monitor.as_bytes()) {
        return Err(no_answer("somebody is connected to it"));
    }
    let stream = connect(&path)?;
    if peer(&stream)? != pid {
        return Err(no_answer("another process listens"));
    }
    let mut monitor = Monitor {
        stream,
        end,
        said: Vec::new(),
        used: 0,
    };
    // The greeting says `QMP`; commands before the capabilities are negotiated are refused.
    monitor.until(|v| v.get("QMP").is_some())?;
    monitor.command("qmp_capabilities")?;
    let answer = monitor.command("query-cpus-fast")?;
    parse(pid, &answer).ok_or_else(|| no_answer("it does not fit the threads"))
}

/// True if somebody is connected to a socket of this name, or waits to be, by the text of `/proc/PID/net/unix`.
fn connected(sockets: &[u8], path: &[u8]) -> bool {
    // Num RefCount Protocol Flags Type St Inode Path; state 2 is connecting, 3 connected.
    sockets.split(|b| *b == b'\n').any(|line| {
        let mut words = line.split(|b| *b == b' ').filter(|w| !w.is_empty());
        let state = words.nth(5);
        let name = line.strip_suffix(path);
        matches!(state, Some(b"02" | b"03")) && name.is_some_and(|rest| rest.ends_with(b" "))
    })
}

/// Connects without waiting, even where the queue of the listener is full.
fn connect(path: &Path) -> io::Result<UnixStream> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: all-zero is a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(no_answer("the path is too long"));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, owned by nobody else.
    let stream = unsafe { UnixStream::from_raw_fd(fd) };
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is valid for its length, and its path ends in a zero byte.
    let done = unsafe { libc::connect(fd, (&raw const address).cast(), length) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// The process at the other end: the one that listens.
fn peer(stream: &UnixStream) -> io::Result<i32> {
    let mut who = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel fills the structure, of which it knows the length.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut length,
        )
    };
    match done {
        0 => Ok(who.pid),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A conversation: lines of JSON both ways.
struct Monitor {
    stream: UnixStream,
    end: Instant,
    said: Vec<u8>,
    /// Of `said`, read.
    used: usize,
}

impl Monitor {
    /// Gives a command and waits for what it returns; events in between are skipped.
    fn command(&mut self, name: &str) -> io::Result<Value> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        let line = format!("{{\"execute\":\"{name}\"}}\r\n");
        self.stream.write_all(line.as_bytes())?;
        let answer = self.until(|v| v.get("return").is_some() || v.get("error").is_some())?;
        match answer.get("return") {
            Some(value) => Ok(value.clone()),
            None => Err(no_answer("it refuses")),
        }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        match left.is_zero() {
            true => Err(io::Error::from(io::ErrorKind::TimedOut)),
            false => Ok(left),
        }
    }

    /// Reads until a message is what is waited for. `-qmp-pretty` spreads a message over several lines: a message is
    /// whatever parses, line after line.
    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> io::Result<Value> {
        loop {
            let mut values =
                serde_json::Deserializer::from_slice(&self.said[self.used..]).into_iter::<Value>();
            match values.next() {
                Some(Ok(value)) => {
                    self.used += values.byte_offset();
                    if wanted(&value) {
                        return Ok(value);
                    }
                    continue;
                }
                Some(Err(e)) if !e.is_eof() => return Err(no_answer("it is no JSON")),
                _ => {}
            }
            if self.said.len() >= SAYS {
                return Err(no_answer("it says too much"));
            }
            self.stream.set_read_timeout(Some(self.left()?))?;
            let mut piece = [0; 4096];
            let n = self.stream.read(&mut piece)?;
            if n == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            self.said.extend_from_slice(&piece[..n]);
        }
    }
}

/// What `query-cpus-fast` returned. None if two vCPUs have one thread (one thread emulates them all) or one index, or
/// if a thread is none of the process's.
fn parse(pid: i32, answer: &Value) -> Option<Vcpus> {
    let mut vcpus = Vcpus::new();
    let mut indexes = BTreeSet::new();
    for cpu in answer.as_array()? {
        let number = |key: &str| cpu.get(key)?.as_u64();
        let tid = i32::try_from(number("thread-id")?).ok()?;
        let index = u32::try_from(number("cpu-index")?).ok()?;
        let own = Path::new(&format!("/proc/{pid}/task/{tid}")).exists();
        if !own || !indexes.insert(index) || vcpus.insert(tid, index).is_some() {
            return None;
        }
    }
    (!vcpus.is_empty()).then_some(vcpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::Index;
    use std::os::unix::net::UnixListener;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(String::from).collect()
    }

    #[test]
    fn monitors_on_the_command_line() {
        let of = |line: &str| monitors(&words(line));
        assert_eq!(
            of("qemu -qmp unix:/run/a,,b.sock,server=on,wait=off -m 1"),
            ["/run/a,b.sock"]
        );
        assert_eq!(
            of("q -mon chardev=m,mode=control -chardev socket,id=m,path=/x.qmp,server=on"),
            ["/x.qmp"]
        );
        assert_eq!(of("q --qmp chardev:c -chardev socket,path=y,id=c"), ["y"]);
        assert_eq!(
            of("q -chardev socket,id=c,path=/x -mon c,mode=control"),
            ["/x"]
        );
        // A monitor for people, one whose socket libvirt has opened, one that is no socket.
        for line in [
            "q -chardev socket,id=c,path=/x -mon chardev=c,mode=readline",
            "q -chardev socket,id=c,fd=24,server=on -mon chardev=c,mode=control",
            "q -qmp stdio",
            "q -qmp",
            "-qmp tcp:localhost:1,server",
        ] {
            assert!(of(line).is_empty(), "{line}");
        }
    }

    /// A monitor that says these things to whoever connects, one after each line it hears, and ends.
    fn monitor(says: Vec<Vec<u8>>) -> (tempfile::TempDir, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut heard = [0; 256];
            for line in says {
                if stream.write_all(&line).is_err() {
                    return;
                }
                let _ = stream.read(&mut heard);
            }
        });
        let path = path.to_str().unwrap().to_string();
        (folder, path)
    }

    fn own() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    fn asked(says: &[&str]) -> io::Result<Vcpus> {
        let (_folder, path) = monitor(says.iter().map(|s| s.as_bytes().to_vec()).collect());
        // What is tested is what it says, not how soon.
        ask_within(own(), &path, Duration::from_secs(3600))
    }

    #[test]
    fn an_answer_is_taken_only_if_it_fits() {
        let greeting = "{\"QMP\": {\"version\": 1}}\r\n";
        let pid = own();
        let cpus = |list: &[(i32, u32)]| {
            let cpu = |(tid, index): &(i32, u32)| {
                format!("{{\"cpu-index\":{index},\n\"thread-id\":{tid},\"qom-path\":\"/x\"}}")
            };
            let all: Vec<_> = list.iter().map(cpu).collect();
            format!(
                "{{\"event\":\"RESUME\"}}\r\n{{\"return\": [{}]}}\r\n",
                all.join(",")
            )
        };
        let done = "{\"return\": {}}\r\n";
        let good = asked(&[greeting, done, &cpus(&[(pid, 3)])]).unwrap();
        assert_eq!(good, [(pid, 3)].into());
        for bad in [
            // One thread for all; a stranger's; two of one index; nobody.
            cpus(&[(pid, 0), (pid, 1)]),
            cpus(&[(1, 0)]),
            cpus(&[]),
            "{\"error\": {\"class\": \"CommandNotFound\"}}\r\n".to_string(),
            "{\"return\": 7}".to_string(),
            "no JSON\r\n".to_string(),
            "x".repeat(100),
        ] {
            assert!(asked(&[greeting, done, &bad]).is_err(), "{bad}");
        }
        assert!(asked(&["[".repeat(2000).as_str()]).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..Default::default() })]

        /// Damaged words, some left out: no answer, or one that names threads of the process. One that then says
        /// nothing more is not waited for.
        #[test]
        fn whatever_a_monitor_says(
            hits in vec((0..3usize, any::<Index>(), any::<u8>()), 0..6),
            without in 0..9usize,
            more in vec(any::<u8>(), 0..20),
        ) {
            let cpu = format!("[{{\"cpu-index\":3,\"thread-id\":{}}}]", own());
            let mut says = [
                b"{\"QMP\": {}}\r\n".to_vec(),
                b"{\"return\": {}}\r\n".to_vec(),
                format!("{{\"return\": {cpu}}}\r\n").into_bytes(),
            ];
            for (line, at, by) in &hits {
                let at = at.index(says[*line].len());
                says[*line][at] ^= by;
            }
            says[2].extend(&more);
            let said = says.into_iter().enumerate().filter(|(i, _)| *i != without);
            let (_folder, path) = monitor(said.map(|(_, line)| line).collect());
            for tid in ask_within(own(), &path, Duration::from_millis(20)).unwrap_or_default().keys() {
                let own = Path::new("/proc/self/task").join(tid.to_string());
                prop_assert!(own.exists());
            }
        }

        #[test]
        fn any_command_line_has_monitors_or_none(
            args in vec(prop_oneof!["-qmp|--chardev|-mon|unix:|socket", "[a-z=,:/]{0,30}", any::<String>()], 0..12),
        ) {
            for monitor in monitors(&args) {
                prop_assert!(args.iter().any(|a| a.len() >= monitor.len()));
            }
        }
    }

    #[test]
    fn one_that_is_busy_silent_or_gone_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        let name = path.to_str().unwrap();
        assert!(ask(own(), name).is_err(), "not there");
        let listener = UnixListener::bind(&path).unwrap();
        assert!(ask(1, name).is_err(), "not the VM's");
        // Never accepts: the kernel connects, nobody speaks.
        // Which of them hangs on when this thread has a CPU.
        assert!(matches!(
            ask(own(), name).unwrap_err().kind(),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
        ));
        let _client = UnixStream::connect(&path).unwrap();
        let _server = listener.accept().unwrap();
        let error = ask(own(), name).unwrap_err().to_string();
        assert!(error.contains("somebody"), "{error}");
        let asker = Asker::start().unwrap();
        asker.ask(Question {
            pid: own(),
            start: 5,
            monitors: vec![name.to_string()],
        });
        let answer = loop {
            if let Some(answer) = asker.answers().next() {
                break answer;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert_eq!((answer.start, answer.vcpus), (5, None));
    }
}
