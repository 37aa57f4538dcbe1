// SPDX-License-Identifier: GPL-2.0-only
//! Hosts written down: a compact text that unpacks into a /proc and a /sys, with what should be found in it.
//!
//! ```text
//! # A comment. Words are parted by blanks; "quotes" hold a word together, with \n, \\, \" and \xNN in them.
//! process 2201 qemu-system-x86 ppid=1 start=5000 as=emulator
//! args /usr/bin/qemu-system-x86_64 -name guest=web,debug-threads=on
//! cgroup 0::/machine.slice/machine-qemu\x2d1\x2dweb.scope/libvirt/emulator
//! fd 9 /dev/kvm
//! fd 20 anon_inode:kvm-vcpu:0
//! thread 2210 "CPU 0/KVM" start=5010 run=20 as=vcpu0
//! kthread 2230 vhost-2201 as=vhost
//! file sys/kernel/debug/kvm/2201-12/vcpu0/pid "2210\n"
//! expect web pid=2201 vcpus=1 manager=libvirt vmm=qemu from=command_line proof=kvm
//! ```
//! Attributes of a process and its threads: `ppid`, `start`, `flags` (hexadecimal), `guest` (clock ticks), `run=FD` (is in
//! `KVM_RUN` on it), `cgroup`, `sched=RUN,WAIT,STAYS`, `as=ROLE` (expected). `hidden` as the only word behind `fd` hides
//! the files of the process, as from a user without rights.
use crate::procfile::{PF_KTHREAD, printable};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// A host that was written down.
#[derive(Clone, Debug, Default)]
pub struct Fixture {
    /// Contents by path, relative to the folder that holds `proc` and `sys`.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Targets of symbolic links by path.
    pub links: BTreeMap<String, String>,
    /// Attributes of each VM that should be found, by name.
    pub vms: BTreeMap<String, BTreeMap<String, String>>,
    /// The role each thread should have.
    pub roles: BTreeMap<i32, String>,
}

/// One thread as the kernel would show it.
#[derive(Clone, Debug, Default)]
pub struct TaskText {
    pub tid: i32,
    pub comm: Vec<u8>,
    pub ppid: i32,
    pub start: u64,
    pub flags: u64,
    pub guest: u64,
    /// File it is in `KVM_RUN` on.
    pub run: Option<i32>,
    /// Contents of its `cgroup` file.
    pub cgroup: String,
    /// Time on a CPU, time in a queue (nanoseconds), stays.
    pub sched: (u64, u64, u64),
}

impl Fixture {
    /// Reads the text.
    ///
    /// # Errors
    /// A sentence with the line's number.
    pub fn parse(text: &str) -> Result<Fixture, String> {
        let mut fixture = Fixture::default();
        fixture.link("proc/self", "1");
        let mut process = TaskText::default();
        for (i, line) in text.lines().enumerate() {
            fixture
                .line(line, &mut process)
                .map_err(|e| format!("line {}: {e}: {line}", i + 1))?;
        }
        Ok(fixture)
    }

    fn line(&mut self, line: &str, process: &mut TaskText) -> Result<(), String> {
        let words = words(line)?;
        let Some((kind, words)) = words.split_first() else {
            return Ok(());
        };
        let text = |i: usize| {
            let word = words.get(i).ok_or("a word is missing")?;
            String::from_utf8(word.clone()).map_err(|_| "not UTF-8")
        };
        match kind.as_slice() {
            b"process" | b"kthread" => {
                let kernel = kind == b"kthread";
                *process = task(words)?;
                if kernel {
                    process.ppid = 2;
                    process.flags |= PF_KTHREAD;
                }
                self.expect_role(process.tid, words);
                self.process(process);
            }
            b"thread" => {
                let mut thread = task(words)?;
                thread.ppid = process.ppid;
                if thread.cgroup.is_empty() {
                    thread.cgroup.clone_from(&process.cgroup);
                }
                self.expect_role(thread.tid, words);
                self.thread(process.tid, &thread);
            }
            b"args" => {
                let path = format!("proc/{}/cmdline", process.tid);
                let mut line = words.join(&0);
                line.push(0);
                self.files.insert(path, line);
            }
            b"cgroup" => {
                let path = format!("proc/{}/cgroup", process.tid);
                let bytes = line.trim_start().strip_prefix("cgroup ").unwrap_or("");
                let file = self.files.entry(path).or_default();
                file.extend(format!("{bytes}\n").bytes());
                process.cgroup = String::from_utf8_lossy(file).into_owned();
                let own = format!("proc/{0}/task/{0}/cgroup", process.tid);
                self.files.insert(own, process.cgroup.clone().into_bytes());
            }
            b"fd" if text(0)? == "hidden" => {
                let folder = format!("proc/{}/fd/", process.tid);
                self.links.retain(|path, _| !path.starts_with(&folder));
                self.files.remove(&folder);
            }
            b"fd" => {
                let path = format!("proc/{}/fd/{}", process.tid, text(0)?);
                self.links.insert(path, text(1)?);
            }
            b"file" => {
                let bytes = words.get(1).cloned().unwrap_or_default();
                self.files.insert(text(0)?, bytes);
            }
            b"link" => self.link(&text(0)?, &text(1)?),
            b"expect" => {
                let attributes = words[1..].iter().filter_map(|w| pair(w));
                let attributes = attributes.map(|(k, v)| (k.to_string(), v.to_string()));
                self.vms.insert(text(0)?, attributes.collect());
            }
            other => return Err(format!("unknown word `{}`", printable(other))),
        }
        Ok(())
    }

    fn link(&mut self, path: &str, target: &str) {
        self.links.insert(path.into(), target.into());
    }

    fn expect_role(&mut self, tid: i32, words: &[Vec<u8>]) {
        if let Some((_, role)) = words
            .iter()
            .filter_map(|w| pair(w))
            .find(|(k, _)| *k == "as")
        {
            self.roles.insert(tid, role.to_string());
        }
    }

    /// Adds a process and its first thread.
    pub fn process(&mut self, t: &TaskText) {
        let folder = format!("proc/{}", t.tid);
        self.files.insert(format!("{folder}/stat"), stat_line(t));
        self.files.entry(format!("{folder}/cmdline")).or_default();
        self.files
            .insert(format!("{folder}/cgroup"), t.cgroup.clone().into_bytes());
        // A folder: made even if nothing is in it.
        self.files.insert(format!("{folder}/fd/"), Vec::new());
        // The process's guest time is the sum of its threads'; its first thread is no vCPU.
        let first = TaskText {
            guest: 0,
            ..t.clone()
        };
        self.thread(t.tid, &first);
        let status = format!("Name:\tx\nTgid:\t{}\n", t.tid);
        self.files.insert(format!("{folder}/status"), status.into());
    }

    /// Adds a thread to a process.
    pub fn thread(&mut self, pid: i32, t: &TaskText) {
        let folder = format!("proc/{pid}/task/{}", t.tid);
        let (run, wait, stays) = t.sched;
        let call = match t.run {
            Some(fd) => format!("16 0x{fd:x} 0xae80 0x0 0x0 0x0 0x0 0x7ffc 0x7f1a\n"),
            None => "271 0x55 0x5 0x7ffc 0x0 0x8 0x0 0x7ffc 0x7f1a\n".into(),
        };
        let mut file = |name: &str, bytes: Vec<u8>| {
            self.files.insert(format!("{folder}/{name}"), bytes);
        };
        file("stat", stat_line(t));
        file("comm", [&t.comm[..], b"\n"].concat());
        file("schedstat", format!("{run} {wait} {stays}\n").into());
        file("syscall", call.into());
        file("cgroup", t.cgroup.clone().into_bytes());
    }

    /// Writes the tree into a folder.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn unpack(&self, folder: &Path) -> io::Result<()> {
        let mut made = std::collections::BTreeSet::new();
        let mut place = |path: &str| {
            let path = folder.join(path);
            if let Some(parent) = path.parent()
                && made.insert(parent.to_path_buf())
            {
                std::fs::create_dir_all(parent)?;
            }
            Ok::<_, io::Error>(path)
        };
        for (path, bytes) in &self.files {
            match path.strip_suffix('/') {
                Some(path) => std::fs::create_dir_all(folder.join(path))?,
                None => std::fs::write(place(path)?, bytes)?,
            }
        }
        for (path, target) in &self.links {
            std::os::unix::fs::symlink(target, place(path)?)?;
        }
        Ok(())
    }
}

/// A `stat` line with the fields that are read filled in.
fn stat_line(t: &TaskText) -> Vec<u8> {
    let mut line = format!("{} (", t.tid).into_bytes();
    line.extend(&t.comm);
    let (ppid, flags, start, guest) = (t.ppid, t.flags, t.start, t.guest);
    let between = "0 ".repeat(20);
    line.extend(
        format!(
            ") S {ppid} 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {start} {between}{guest} 0 0\n"
        )
        .bytes(),
    );
    line
}

/// `NUMBER NAME key=value ...`
fn task(words: &[Vec<u8>]) -> Result<TaskText, String> {
    let tid = words.first().and_then(|w| crate::procfile::number(w));
    let tid = tid.and_then(|n| i32::try_from(n).ok());
    let mut t = TaskText {
        tid: tid.ok_or("a number is missing")?,
        comm: words.get(1).cloned().ok_or("a name is missing")?,
        ppid: 1,
        ..TaskText::default()
    };
    t.start = u64::from(t.tid.unsigned_abs());
    for (key, value) in words[2..].iter().filter_map(|w| pair(w)) {
        let wrong = || format!("{key}={value} is no number");
        let number = || value.parse::<u64>().map_err(|_| wrong());
        match key {
            "ppid" => t.ppid = value.parse().map_err(|_| wrong())?,
            "start" => t.start = number()?,
            "guest" => t.guest = number()?,
            "flags" => t.flags = u64::from_str_radix(value, 16).map_err(|_| wrong())?,
            "run" => t.run = Some(value.parse().map_err(|_| wrong())?),
            "cgroup" => t.cgroup = format!("{value}\n"),
            "sched" => {
                let mut parts = value.split(',').map(str::parse::<u64>);
                let mut next = || parts.next().and_then(Result::ok).ok_or_else(wrong);
                t.sched = (next()?, next()?, next()?);
            }
            "as" => {}
            _ => return Err(format!("unknown attribute `{key}`")),
        }
    }
    Ok(t)
}

fn pair(word: &[u8]) -> Option<(&str, &str)> {
    std::str::from_utf8(word).ok()?.split_once('=')
}

/// The words of a line.
fn words(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut bytes = line.trim().bytes().peekable();
    if bytes.peek() == Some(&b'#') {
        return Ok(words);
    }
    let (mut open, mut quoted) = (false, false);
    while let Some(b) = bytes.next() {
        if b == b'"' {
            quoted = !quoted;
            if quoted && !open {
                words.push(Vec::new());
                open = true;
            }
            continue;
        }
        if b == b' ' && !quoted {
            open = false;
            continue;
        }
        if !open {
            words.push(Vec::new());
            open = true;
        }
        let byte = match b {
            b'\\' if quoted => match bytes.next() {
                Some(b'n') => b'\n',
                Some(b'x') => {
                    let hex = [bytes.next(), bytes.next()].map(|b| b.unwrap_or(b' '));
                    let hex = std::str::from_utf8(&hex).ok();
                    let byte = hex.and_then(|h| u8::from_str_radix(h, 16).ok());
                    byte.ok_or("\\x needs two hexadecimal digits")?
                }
                Some(other) => other,
                None => return Err("a \\ at the end".into()),
            },
            b => b,
        };
        if let Some(word) = words.last_mut() {
            word.push(byte);
        }
    }
    match quoted {
        true => Err("a quote is not closed".into()),
        false => Ok(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_quotes() {
        assert_eq!(
            words(r#"a "b c" d="e f" "\n\x41\"" "#).unwrap(),
            [&b"a"[..], b"b c", b"d=e f", b"\nA\""]
        );
        assert!(words("# no \" matter").unwrap().is_empty());
        assert!(words(r#"a "b"#).is_err());
        assert!(Fixture::parse("thread x y").unwrap_err().contains("line 1"));
        assert!(Fixture::parse("nonsense 1").is_err());
    }

    #[test]
    fn the_text_becomes_a_tree() {
        let folder = tempfile::tempdir().unwrap();
        let text =
            "process 7 \"a b\" start=3\nargs x y\nfd 3 /dev/kvm\nthread 8 t run=20 as=vcpu0\n";
        let fixture = Fixture::parse(text).unwrap();
        fixture.unpack(folder.path()).unwrap();
        let read = |p: &str| std::fs::read(folder.path().join("proc/7").join(p)).unwrap();
        assert_eq!(read("cmdline"), b"x\0y\0");
        let stat = read("stat");
        let stat = crate::procfile::stat(&stat).unwrap();
        assert_eq!((stat.comm, stat.start, stat.ppid), (&b"a b"[..], 3, 1));
        assert_eq!(
            crate::procfile::kvm_run_fd(&read("task/8/syscall")),
            Some(20)
        );
        let link = std::fs::read_link(folder.path().join("proc/7/fd/3")).unwrap();
        assert_eq!(link, Path::new("/dev/kvm"));
        assert_eq!(fixture.roles[&8], "vcpu0");
    }
}
