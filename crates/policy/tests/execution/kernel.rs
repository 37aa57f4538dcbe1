// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own execution: SEC("syscall") programs under BPF_PROG_TEST_RUN through the bpf system call. Needs
//! the right to load programs (root); without it the comparison is skipped with a printed reason.
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const MAP_CREATE: u32 = 0;
const MAP_LOOKUP: u32 = 1;
const MAP_UPDATE: u32 = 2;
const MAP_DELETE: u32 = 3;
const PROG_LOAD: u32 = 5;
const PROG_TEST_RUN: u32 = 10;
const MAP_LOOKUP_AND_DELETE: u32 = 21;
const TYPE_SYSCALL: u32 = 31;
const TYPE_ARRAY: u32 = 2;
const SLEEPABLE: u32 = 1 << 4;

/// `union bpf_attr`, as words of 4 bytes.
struct Attr([u32; 36]);

impl Attr {
    fn new() -> Attr {
        Attr([0; 36])
    }

    fn copy(&self) -> Attr {
        Attr(self.0)
    }

    fn word(mut self, offset: usize, value: u32) -> Attr {
        self.0[offset / 4] = value;
        self
    }

    fn pointer<T: ?Sized>(self, offset: usize, to: *const T) -> Attr {
        let address = to.cast::<u8>() as u64;
        self.word(offset, address as u32)
            .word(offset + 4, (address >> 32) as u32)
    }

    /// # Safety
    /// Pointers in the attributes are what the command expects.
    unsafe fn call(&mut self, command: u32) -> io::Result<i64> {
        // SAFETY: the caller's promise; the size is that of the array.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                self.0.as_mut_ptr(),
                size_of_val(&self.0),
            )
        };
        if rc < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(rc)
        }
    }

    /// # Safety
    /// As [`Attr::call`], of a command that gives a file descriptor.
    unsafe fn open(&mut self, command: u32) -> io::Result<OwnedFd> {
        // SAFETY: the caller's promise.
        unsafe { self.call(command).map(|fd| OwnedFd::from_raw_fd(fd as i32)) }
    }
}

/// An array map with one value: a data section.
pub struct Section {
    fd: OwnedFd,
    size: usize,
}

impl Section {
    pub fn new(size: usize) -> io::Result<Section> {
        let mut attr = Attr::new()
            .word(0, TYPE_ARRAY)
            .word(4, 4)
            .word(8, size as u32)
            .word(12, 1);
        // SAFETY: no pointers.
        let fd = unsafe { attr.open(MAP_CREATE) }?;
        Ok(Section { fd, size })
    }

    pub fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    pub fn set(&self, data: &[u8]) -> io::Result<()> {
        assert_eq!(data.len(), self.size);
        let key = 0u32;
        let mut attr = Attr::new()
            .word(0, self.fd() as u32)
            .pointer(8, &key)
            .pointer(16, data);
        // SAFETY: a key and a value.
        unsafe { attr.call(MAP_UPDATE) }.map(|_| ())
    }

    pub fn get(&self) -> io::Result<Vec<u8>> {
        let key = 0u32;
        let mut value = vec![0u8; self.size.next_multiple_of(8)];
        let mut attr = Attr::new()
            .word(0, self.fd() as u32)
            .pointer(8, &key)
            .pointer(16, value.as_mut_ptr());
        // SAFETY: a key and room for a value.
        unsafe { attr.call(MAP_LOOKUP) }?;
        value.truncate(self.size);
        Ok(value)
    }
}

/// A map of any type, through the system call; errors are negative error numbers.
pub struct Map(OwnedFd);

impl Map {
    pub fn new(kind: u32, key_size: u32, value_size: u32, entries: u32) -> io::Result<Map> {
        let mut attr = Attr::new()
            .word(0, kind)
            .word(4, key_size)
            .word(8, value_size)
            .word(12, entries);
        // SAFETY: no pointers.
        unsafe { attr.open(MAP_CREATE) }.map(Map)
    }

    fn element(&self, key: Option<&u32>, value: Option<&mut u64>, flags: u64) -> Attr {
        let attr = Attr::new()
            .word(0, self.0.as_raw_fd() as u32)
            .word(24, flags as u32);
        let attr = key.map_or(attr.copy(), |k| attr.copy().pointer(8, k));
        value.map_or(attr.copy(), |v| attr.copy().pointer(16, v))
    }

    fn command(&self, command: u32, mut attr: Attr) -> i64 {
        // SAFETY: keys of four bytes and values of eight, as the tests make their maps.
        unsafe { attr.call(command) }
            .map_or_else(|e| -i64::from(e.raw_os_error().unwrap_or(0)), |_| 0)
    }

    pub fn update(&self, key: Option<u32>, mut value: u64, flags: u64) -> i64 {
        self.command(
            MAP_UPDATE,
            self.element(key.as_ref(), Some(&mut value), flags),
        )
    }

    pub fn lookup(&self, key: Option<u32>) -> Result<u64, i64> {
        let mut value = 0;
        match self.command(MAP_LOOKUP, self.element(key.as_ref(), Some(&mut value), 0)) {
            0 => Ok(value),
            e => Err(e),
        }
    }

    pub fn pop(&self) -> Result<u64, i64> {
        let mut value = 0;
        match self.command(
            MAP_LOOKUP_AND_DELETE,
            self.element(None, Some(&mut value), 0),
        ) {
            0 => Ok(value),
            e => Err(e),
        }
    }

    pub fn delete(&self, key: u32) -> i64 {
        self.command(MAP_DELETE, self.element(Some(&key), None, 0))
    }
}

/// A loaded program.
pub struct Program(OwnedFd);

impl Program {
    /// # Errors
    /// The verifier's message, or why programs cannot be loaded.
    pub fn load(bytes: &[u8]) -> Result<Program, String> {
        let mut log = vec![0u8; 1 << 20];
        let mut attr = Attr::new()
            .word(0, TYPE_SYSCALL)
            .word(4, (bytes.len() / 8) as u32)
            .pointer(8, bytes)
            .pointer(16, c"GPL".as_ptr())
            .word(24, 1)
            .word(28, log.len() as u32)
            .pointer(32, log.as_mut_ptr())
            .word(44, SLEEPABLE);
        // SAFETY: instructions, a licence and room for the log.
        unsafe { attr.open(PROG_LOAD) }.map(Program).map_err(|e| {
            let text = String::from_utf8_lossy(&log);
            format!("{e}\n{}", text.trim_end_matches('\0'))
        })
    }

    /// Runs the program on `context`, which it may change; gives its result.
    pub fn run(&self, context: &mut [u64]) -> io::Result<u32> {
        let mut attr = Attr::new()
            .word(0, self.0.as_raw_fd() as u32)
            .word(40, size_of_val(context) as u32)
            .pointer(48, context.as_mut_ptr());
        // SAFETY: the context is readable and writable.
        unsafe { attr.call(PROG_TEST_RUN) }?;
        Ok(attr.0[1])
    }
}

/// Why this host cannot run programs in the kernel, if so.
pub fn refusal() -> Option<String> {
    // r0 = 0; exit
    let nothing = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
    match Program::load(&nothing) {
        Ok(p) => p.run(&mut [0]).err().map(|e| e.to_string()),
        Err(e) => Some(e.lines().next().unwrap_or_default().to_string()),
    }
}
