// SPDX-License-Identifier: GPL-2.0-only
//! `berth top` on a terminal: a pseudo-terminal, and as much of a terminal's own work as it takes to know what is on
//! the screen.
use berth_host::fixture::Fixture;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Ends a test that hangs; nothing is judged by it.
const HUNG: Duration = Duration::from_secs(300);

/// What is on a screen after what was written to it.
#[derive(Default)]
struct Picture {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    width: usize,
    /// The other screen, which leaves what was there before as it was.
    alternate: bool,
    hidden_cursor: bool,
    /// Characters that did not fit on their line.
    lost: usize,
}

impl Picture {
    fn resize(&mut self, width: usize, height: usize) {
        self.width = width;
        self.cells = vec![vec![' '; width]; height];
        self.lost = 0;
    }

    /// Takes what was written; gives what is left of a sequence that has not ended.
    fn take(&mut self, text: &str) -> String {
        let mut rest = text.chars();
        loop {
            let before = rest.as_str();
            let Some(c) = rest.next() else {
                return String::new();
            };
            match c {
                '\x1b' => match rest.next() {
                    Some('[') => {
                        let body = rest.as_str();
                        let Some(end) = body.find(|c: char| c.is_ascii_alphabetic()) else {
                            return before.into();
                        };
                        let (arguments, letter) = body.split_at(end);
                        self.sequence(arguments, &letter[..1]);
                        rest = letter[1..].chars();
                    }
                    None => return before.into(),
                    Some(other) => panic!("not a sequence that top writes: ESC {other}"),
                },
                '\r' => self.at.1 = 0,
                '\n' => self.at.0 += 1,
                c => {
                    let (row, column) = self.at;
                    match self.cells.get_mut(row).and_then(|r| r.get_mut(column)) {
                        Some(cell) => *cell = c,
                        None => self.lost += 1,
                    }
                    self.at.1 += 1;
                }
            }
        }
    }

    fn sequence(&mut self, arguments: &str, letter: &str) {
        let number = |i: usize| {
            let word = arguments.split(';').nth(i).unwrap_or("");
            word.parse::<usize>().unwrap_or(1)
        };
        match (arguments, letter) {
            (_, "H") => self.at = (number(0) - 1, number(1) - 1),
            (_, "K") => {
                let (row, column) = self.at;
                if let Some(row) = self.cells.get_mut(row) {
                    row.iter_mut().skip(column).for_each(|c| *c = ' ');
                }
            }
            ("" | "0", "J") => {
                let rows = self.cells.iter_mut().skip(self.at.0);
                rows.for_each(|r| r.fill(' '));
            }
            ("?1049", "h") => self.alternate = true,
            ("?1049", "l") => self.alternate = false,
            ("?25", "l") => self.hidden_cursor = true,
            ("?25", "h") => self.hidden_cursor = false,
            (_, "m") => {}
            other => panic!("not a sequence that top writes: {other:?}"),
        }
    }

    fn lines(&self) -> Vec<String> {
        let line = |r: &Vec<char>| r.iter().collect::<String>().trim_end().to_string();
        self.cells.iter().map(line).collect()
    }
}

struct Terminal {
    terminal: File,
    child: Child,
    picture: Picture,
    pending: Vec<u8>,
}

fn size(columns: usize, rows: usize) -> libc::winsize {
    libc::winsize {
        ws_row: rows as u16,
        ws_col: columns as u16,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Held while a terminal is open and not yet closed on exec, and while programs are started: whoever inherits a
/// terminal keeps it open.
static STARTING: Mutex<()> = Mutex::new(());

fn spawn(command: &mut Command) -> Child {
    let _alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    command.spawn().unwrap()
}

impl Terminal {
    /// Starts a command on a terminal of its own.
    fn start(mut command: Command, columns: usize, rows: usize) -> Terminal {
        let alone = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut ours, mut its) = (-1, -1);
        let room = size(columns, rows);
        // SAFETY: the kernel fills both numbers; no name and no attributes are asked for.
        let done = unsafe {
            libc::openpty(
                &raw mut ours,
                &raw mut its,
                std::ptr::null_mut(),
                std::ptr::null(),
                &raw const room,
            )
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: just opened, owned by nobody else.
        let (terminal, its) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(its)) };
        // SAFETY: as above, for a number.
        unsafe {
            libc::fcntl(ours, libc::F_SETFL, libc::O_NONBLOCK);
            libc::fcntl(ours, libc::F_SETFD, libc::FD_CLOEXEC);
            libc::fcntl(its.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC);
        }
        drop(alone);
        command.stdin(its.try_clone().unwrap());
        command.stdout(its.try_clone().unwrap());
        command.stderr(its);
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                match libc::ioctl(0, libc::TIOCSCTTY, 0) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            })
        };
        let mut picture = Picture::default();
        picture.resize(columns, rows);
        Terminal {
            terminal,
            child: spawn(&mut command),
            picture,
            pending: Vec::new(),
        }
    }

    fn resize(&mut self, columns: usize, rows: usize) {
        let room = size(columns, rows);
        self.picture.resize(columns, rows);
        // SAFETY: the kernel reads the structure; it tells the program by a signal.
        let done =
            unsafe { libc::ioctl(self.terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const room) };
        assert_eq!(done, 0);
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn read(&mut self) {
        let mut piece = [0; 65536];
        // An error: there is nothing to read yet, or the other end is closed.
        while let Ok(n @ 1..) = self.terminal.read(&mut piece) {
            self.pending.extend_from_slice(&piece[..n]);
            // A character may be cut in two.
            let whole = match std::str::from_utf8(&self.pending) {
                Ok(_) => self.pending.len(),
                Err(e) => e.valid_up_to(),
            };
            let text = String::from_utf8(self.pending.drain(..whole).collect()).unwrap();
            let rest = self.picture.take(&text);
            self.pending.splice(0..0, rest.into_bytes());
        }
    }

    /// Reads until the screen is as it should be.
    fn until(&mut self, what: &str, holds: impl Fn(&[String]) -> bool) -> Vec<String> {
        let end = Instant::now() + HUNG;
        loop {
            self.read();
            let lines = self.picture.lines();
            if holds(&lines) {
                return lines;
            }
            let left = self.child.try_wait().unwrap();
            assert!(
                left.is_none() && Instant::now() < end,
                "never came: {what}; {left:?}\n{}",
                lines.join("\n")
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn end(mut self) -> (ExitStatus, Picture) {
        let until = Instant::now() + HUNG;
        let status = loop {
            self.read();
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "it goes on");
            std::thread::sleep(Duration::from_millis(10));
        };
        self.read();
        (status, std::mem::take(&mut self.picture))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Six VMs of two vCPUs, one of them with a name that wants the screen for itself.
fn host() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::from(
        "file proc/sys/kernel/hostname kvm07\nfile sys/devices/system/cpu/online 0-3\n\
         file proc/stat \"cpu  1 2 3 4 5 6 7 8 9 10\\n\"\n",
    );
    for i in 0..6 {
        let pid = 100 + 10 * i;
        let name = if i == 5 {
            r#""v5 \x1b[2J ä""#.into()
        } else {
            format!("v{i}")
        };
        text.push_str(&format!(
            "process {pid} lkvm\nargs lkvm run --name {name}\nfd 3 anon_inode:kvm-vm\n\
             fd 4 anon_inode:kvm-vcpu:0\nfd 5 anon_inode:kvm-vcpu:1\n\
             thread {} kvm-vcpu-0 run=4 sched=1000,0,1\nthread {} kvm-vcpu-1 run=5 sched=1000,0,1\n",
            pid + 1,
            pid + 2
        ));
    }
    let fixture = Fixture::parse(&text).unwrap();
    fixture.unpack(folder.path()).unwrap();
    folder
}

fn berth(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
    command
        .arg("top")
        .args(["--interval", "0.2"])
        .args(arguments);
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
    command
}

fn any(lines: &[String], word: &str) -> bool {
    lines.iter().any(|l| l.contains(word))
}

#[test]
fn keys_sizes_and_the_end() {
    let folder = host();
    let root = folder.path().to_str().unwrap();
    let mut t = Terminal::start(berth(&["--root", root]), 100, 30);
    let lines = t.until("the VMs", |l| any(l, "v5") && any(l, "q quit"));
    assert!(
        lines[0].contains("kvm07") && lines[0].contains("6 VMs"),
        "{lines:#?}"
    );
    assert!(lines[2].contains("RUN DELAY"), "{lines:#?}");
    assert!(any(&lines, r"v5 \u{1b}[2J ä"), "{lines:#?}");
    assert!(t.picture.alternate && t.picture.hidden_cursor);
    // Order, threads of the second VM, away again.
    t.press("sss");
    t.until("the order", |l| any(l, "s sort (name)") && any(l, "> v0"));
    t.press("\x1b[B");
    t.until("the next", |l| any(l, "> v1"));
    t.press("\r");
    let lines = t.until("its threads", |l| any(l, "vcpu1"));
    let at = |word: &str| lines.iter().position(|l| l.contains(word));
    assert!(
        at("> v1") < at("vcpu0 kvm-vcpu-0") && at("vcpu1 kvm-vcpu-1") < at(" v2"),
        "{lines:#?}"
    );
    t.press(" ");
    t.until("the pause", |l| any(l, "space go on"));
    t.press(" \r");
    t.until("no threads", |l| any(l, "space pause") && !any(l, "vcpu1"));
    // Help and away again, which any key does; columns to the side, and back.
    t.press("?");
    t.until("the help", |l| any(l, "follows it") && !any(l, "> v1"));
    t.press("?");
    t.until("the VMs again", |l| any(l, "> v1"));
    t.press("\x1b[C\x1b[C\x1b[C");
    t.until("columns aside", |l| {
        l[2].contains("RUN DELAY") && !l[2].contains("CPUS USED") && any(l, "> v1")
    });
    t.press("\x1b[D\x1b[D\x1b[D");
    t.until("all columns", |l| l[2].contains("CPUS USED"));
    // The last one stays in sight on a low screen, and no line is too long for a narrow one.
    t.press("\x1b[F");
    for (columns, rows) in [(100, 7), (40, 10), (20, 5), (7, 3), (120, 40)] {
        t.resize(columns, rows);
        // What was written for the size before may still come.
        for _ in 0..3 {
            t.picture.resize(columns, rows);
            t.until(&format!("{columns} x {rows}"), |l| {
                let head = l[0].chars().next();
                head == Some('k') && (rows < 7 || any(l, "> v5"))
            });
        }
        let lines = t.picture.lines();
        assert_eq!(t.picture.lost, 0, "{columns} x {rows}: {lines:#?}");
    }
    t.press("q");
    let (status, picture) = t.end();
    assert!(status.success(), "{status}");
    assert!(
        !picture.alternate && !picture.hidden_cursor,
        "the terminal is left as it was"
    );
}

/// Its terminal is closed, and no signal tells it (as after `nohup` or in a session whose leader has ended).
#[test]
fn it_ends_with_its_terminal() {
    let folder = host();
    let mut command = berth(&["--root", folder.path().to_str().unwrap()]);
    // SAFETY: a system call between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            Ok(())
        })
    };
    let mut t = Terminal::start(command, 100, 30);
    t.until("the VMs", |l| any(l, "q quit"));
    t.terminal = File::open("/dev/null").unwrap();
    let until = Instant::now() + HUNG;
    while t.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whoever reads its lines has had enough.
#[test]
fn it_ends_with_its_reader() {
    let folder = host();
    let mut command = berth(&["--json", "--root", folder.path().to_str().unwrap()]);
    let mut child = spawn(command.stdout(std::process::Stdio::piped()));
    let mut first = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let until = Instant::now() + HUNG;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < until, "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{status}");
}

#[test]
fn no_refresh_at_all_is_refused() {
    let out = berth(&["--count", "0"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("--count"));
}

/// On this machine, by a user without rights, whatever runs here.
#[test]
fn without_rights_it_works_and_control_c_ends_it() {
    const NOBODY: u32 = 65534;
    let mut command = berth(&[]);
    // As somebody without rights, if that can be, and if he can reach the program.
    let mut probe = Command::new(env!("CARGO_BIN_EXE_berth"));
    let reached = probe.arg("--version").uid(NOBODY).gid(NOBODY).output();
    match reached {
        Ok(_) => {
            command.uid(NOBODY).gid(NOBODY);
        }
        Err(e) => println!("as who runs this test, not as somebody without rights: {e}"),
    }
    let mut t = Terminal::start(command, 80, 24);
    t.until("a screen", |l| any(l, "q quit"));
    t.press("\x03");
    let (status, picture) = t.end();
    assert!(status.success(), "{status}");
    assert!(!picture.alternate && !picture.hidden_cursor);
    assert_eq!(picture.lost, 0);
}
