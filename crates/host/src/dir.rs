// SPDX-License-Identifier: GPL-2.0-only
//! Directories held open. A handle of `/proc/PID` belongs to that process for ever: after its end every read fails,
//! and a new process with the same number is never read by mistake.
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The most that is read of one file, in bytes. The kernel's own limit for the longest of them, a command line, is 2
/// MiB of which the name of a VM is in the first part.
const FILE_MAX: usize = 1 << 20;

/// An open directory.
#[derive(Debug)]
pub struct Dir(OwnedFd);

/// Calls `f` with `name` as a C string, without allocating for the short names of /proc.
fn with_c<T>(name: &[u8], f: impl FnOnce(&CStr) -> io::Result<T>) -> io::Result<T> {
    let mut short = [0u8; 128];
    if let Some(place) = short.get_mut(..=name.len()) {
        place[..name.len()].copy_from_slice(name);
        return f(CStr::from_bytes_with_nul(place).map_err(io::Error::other)?);
    }
    f(&std::ffi::CString::new(name).map_err(io::Error::other)?)
}

fn open_at(at: i32, name: &[u8], flags: i32) -> io::Result<OwnedFd> {
    with_c(name, |name| {
        // SAFETY: `name` ends in a zero byte and lives through the call.
        let fd = unsafe { libc::openat(at, name.as_ptr(), flags | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, owned by nobody else.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    })
}

fn read_once(fd: &OwnedFd, buf: &mut [u8]) -> io::Result<usize> {
    loop {
        // SAFETY: the kernel writes at most `buf.len()` bytes into `buf`.
        let n = unsafe { libc::read(fd.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) };
        match usize::try_from(n) {
            Ok(n) => return Ok(n),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// A short path, written without allocating. What does not fit is cut off: the paths are made of numbers.
#[derive(Clone, Copy, Debug)]
pub struct Short {
    bytes: [u8; 60],
    used: usize,
}

impl Short {
    pub fn of(text: std::fmt::Arguments<'_>) -> Short {
        let mut short = Short {
            bytes: [0; 60],
            used: 0,
        };
        // Only a path that is too long fails, and a path that is cut off names nothing.
        let _ = std::fmt::Write::write_fmt(&mut short, text);
        short
    }
}

impl std::fmt::Write for Short {
    fn write_str(&mut self, s: &str) -> std::fmt::Result {
        let place = self.bytes.get_mut(self.used..self.used + s.len());
        place.ok_or(std::fmt::Error)?.copy_from_slice(s.as_bytes());
        self.used += s.len();
        Ok(())
    }
}

impl std::ops::Deref for Short {
    type Target = str;

    fn deref(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.used]).unwrap_or("")
    }
}

/// A file of one record that is held open and read again and again.
#[derive(Debug)]
pub struct Record(OwnedFd);

impl Record {
    /// What it says now.
    ///
    /// # Errors
    /// Those of `pread`; `ESRCH` when the process has ended.
    pub fn read<'b>(&self, buf: &'b mut [u8]) -> io::Result<&'b [u8]> {
        // SAFETY: the kernel writes at most `buf.len()` bytes into `buf`.
        let n = unsafe { libc::pread(self.0.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len(), 0) };
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        Ok(&buf[..n])
    }
}

impl Dir {
    /// Opens a file of one record, to keep.
    ///
    /// # Errors
    /// Those of `openat`.
    pub fn record(&self, name: &str) -> io::Result<Record> {
        self.file(name).map(Record)
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open(path: &Path) -> io::Result<Dir> {
        open_at(
            libc::AT_FDCWD,
            path.as_os_str().as_bytes(),
            libc::O_RDONLY | libc::O_DIRECTORY,
        )
        .map(Dir)
    }

    /// Opens a directory below this one.
    ///
    /// # Errors
    /// Those of `openat`.
    pub fn dir(&self, name: &str) -> io::Result<Dir> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        open_at(self.0.as_raw_fd(), name.as_bytes(), flags).map(Dir)
    }

    /// Links of a directory below this one: 2 and one for each directory in it, so in /proc one for each thread of a
    /// `task` folder. Some file systems do not count and say 1.
    ///
    /// # Errors
    /// Those of `fstatat`.
    #[allow(clippy::useless_conversion, reason = "32 bits on other architectures")]
    pub fn links(&self, name: &str) -> io::Result<u64> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
        let done = with_c(name.as_bytes(), |name| {
            let (fd, at) = (self.0.as_raw_fd(), stat.as_mut_ptr());
            // SAFETY: `name` is a C string; the kernel fills the structure.
            Ok(unsafe { libc::fstatat(fd, name.as_ptr(), at, 0) })
        })?;
        match done {
            // SAFETY: all-zero is a valid value, and the kernel has filled it.
            0 => Ok(u64::from(unsafe { stat.assume_init() }.st_nlink)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Its inode number: of a cgroup's folder, the cgroup's id.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn inode(&self) -> io::Result<u64> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the kernel fills the structure.
        let done = unsafe { libc::fstat(self.0.as_raw_fd(), stat.as_mut_ptr()) };
        match done {
            // SAFETY: all-zero is a valid value, and the kernel has filled it.
            0 => Ok(unsafe { stat.assume_init() }.st_ino),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Reads a whole file into `buf`, at most 1 MiB of it.
    ///
    /// # Errors
    /// Those of `openat` and `read`.
    pub fn read(&self, name: &str, buf: &mut Vec<u8>) -> io::Result<()> {
        self.read_most(name, FILE_MAX, buf)
    }

    /// A file as text, ends trimmed; `None` if it cannot be read.
    pub fn text(&self, name: &str) -> Option<String> {
        let mut bytes = Vec::new();
        self.read(name, &mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_string())
    }

    /// Reads a file into `buf`, about `most` bytes of it at most.
    ///
    /// # Errors
    /// Those of `openat` and `read`.
    pub fn read_most(&self, name: &str, most: usize, buf: &mut Vec<u8>) -> io::Result<()> {
        buf.clear();
        let file = self.file(name)?;
        loop {
            let used = buf.len();
            if used >= most {
                return Ok(());
            }
            // Larger pieces for large files.
            buf.resize(used + used.clamp(4096, 1 << 20), 0);
            let n = read_once(&file, &mut buf[used..])?;
            buf.truncate(used + n);
            if n == 0 {
                return Ok(());
            }
        }
    }

    /// Reads the first 4 KiB of a file with one call: the files of /proc/PID that hold one record come whole.
    ///
    /// # Errors
    /// Those of `openat` and `read`.
    pub fn read_record<'b>(&self, name: &str, buf: &'b mut [u8; 4096]) -> io::Result<&'b [u8]> {
        let n = read_once(&self.file(name)?, buf)?;
        Ok(&buf[..n])
    }

    /// Opens a file. Never waits, whatever kind of file it is.
    fn file(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
        open_at(self.0.as_raw_fd(), name.as_bytes(), flags)
    }

    /// What a symbolic link says.
    ///
    /// # Errors
    /// Those of `readlinkat`.
    pub fn link<'b>(&self, name: &[u8], buf: &'b mut [u8; 4096]) -> io::Result<&'b [u8]> {
        with_c(name, |name| {
            let (fd, at) = (self.0.as_raw_fd(), buf.as_mut_ptr().cast());
            // SAFETY: `name` is a C string; the kernel writes at most `buf.len()` bytes.
            let n = unsafe { libc::readlinkat(fd, name.as_ptr(), at, buf.len()) };
            usize::try_from(n).map_err(|_| io::Error::last_os_error())
        })
        .map(|n| &buf[..n])
    }

    /// Calls `each` with name and inode number of every entry, `.` and `..` left out.
    ///
    /// In /proc an inode number belongs to one process or thread: a number that is used again gets another inode.
    ///
    /// # Errors
    /// Those of `getdents64`; a directory whose process ends meanwhile gives `ESRCH` or an early end.
    pub fn list(&self, mut each: impl FnMut(&[u8], u64)) -> io::Result<()> {
        // struct linux_dirent64: inode (8 bytes), offset (8), record length (2), type (1), name.
        const NAME: usize = 19;
        let mut words = [0u64; 1024];
        // A second listing of the same handle starts at the front too.
        // SAFETY: no memory is involved.
        unsafe { libc::lseek(self.0.as_raw_fd(), 0, libc::SEEK_SET) };
        loop {
            let (at, len) = (words.as_mut_ptr(), size_of_val(&words));
            // SAFETY: the kernel writes at most `len` bytes into `words`.
            let n = unsafe { libc::syscall(libc::SYS_getdents64, self.0.as_raw_fd(), at, len) };
            let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
            if n == 0 {
                return Ok(());
            }
            // SAFETY: a view of the same memory as bytes; `n` is at most its length.
            let mut rest = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), n) };
            while rest.len() > NAME {
                let inode = rest[..8].try_into().map_or(0, u64::from_ne_bytes);
                let length = usize::from(u16::from_ne_bytes([rest[16], rest[17]]));
                if length <= NAME || length > rest.len() {
                    break;
                }
                let name = &rest[NAME..length];
                let name = name.split(|b| *b == 0).next().unwrap_or(name);
                if name != b"." && name != b".." {
                    each(name, inode);
                }
                rest = &rest[length..];
            }
        }
    }
}

/// As many files as this process may open, after asking for as many as it may ask for, up to 20,000.
pub fn files_allowed() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills the structure, then reads it.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max.min(20_000).max(limit.rlim_cur);
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn files_links_and_entries_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let long = "x".repeat(300);
        std::fs::write(folder.path().join("a"), "one\n").unwrap();
        std::fs::write(folder.path().join("big"), vec![7u8; 10_000]).unwrap();
        std::os::unix::fs::symlink("anon_inode:kvm-vm", folder.path().join("12")).unwrap();
        for i in 0..500 {
            std::fs::write(folder.path().join(format!("n{i}-{}", &long[..100])), "").unwrap();
        }
        let dir = Dir::open(folder.path()).unwrap();
        let (mut buf, mut bytes) = ([0; 4096], Vec::new());
        assert_eq!(dir.read_record("a", &mut buf).unwrap(), b"one\n");
        dir.read("big", &mut bytes).unwrap();
        assert_eq!(bytes, vec![7u8; 10_000]);
        assert_eq!(dir.link(b"12", &mut buf).unwrap(), b"anon_inode:kvm-vm");
        for _ in 0..2 {
            let mut names = BTreeSet::new();
            dir.list(|name, _| assert!(names.insert(name.to_vec())))
                .unwrap();
            assert_eq!(names.len(), 503);
        }
        assert!(dir.read(&long, &mut bytes).is_err());
        assert!(dir.read("a\0b", &mut bytes).is_err());
        assert!(dir.link(b"a", &mut buf).is_err());
    }

    #[test]
    fn a_handle_never_shows_a_stranger() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let dir = Dir::open(Path::new(&format!("/proc/{}", child.id()))).unwrap();
        let mut buf = [0; 4096];
        assert!(dir.read_record("stat", &mut buf).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        let error = dir.read_record("stat", &mut buf).unwrap_err();
        assert!(matches!(
            error.raw_os_error(),
            Some(libc::ESRCH | libc::ENOENT)
        ));
    }
}
