// SPDX-License-Identifier: GPL-2.0-only
//! The first and only process of a Linux guest: it sends each UDP datagram back, as the unikernel does with
//! `work=inline`, at the same address and port. It says `ready` and, once it has sent as many replies as the boot
//! option `requests` says, `replies N`, and ends the machine by the same port as the unikernel.
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::exit;
use std::time::Duration;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);
const PORT: u16 = 7777;
const CARD: &str = "eth0";
/// For the card to be found, ms.
const PATIENCE_MS: u64 = 10_000;
/// Port of QEMU's isa-debug-exit.
const EXIT_PORT: u16 = 0xf4;
/// Of the kernel's `module.h`.
const PACKED: libc::c_int = 4;

fn check(result: impl Into<i64>, what: &str) -> io::Result<()> {
    if result.into() >= 0 {
        return Ok(());
    }
    let why = io::Error::last_os_error();
    Err(io::Error::new(why.kind(), format!("{what}: {why}")))
}

/// The options the kernel was started with.
fn options() -> io::Result<String> {
    let (proc, at) = (c"proc", c"/proc");
    fs::create_dir_all("/proc")?;
    // SAFETY: all strings end with a zero, and none is kept.
    let mounted = unsafe {
        libc::mount(
            proc.as_ptr(),
            at.as_ptr(),
            proc.as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    check(mounted, "/proc")?;
    fs::read_to_string("/proc/cmdline")
}

/// Loads what drives the card, in the order of the files' names.
fn load_modules() -> io::Result<()> {
    let mut files: Vec<_> = fs::read_dir("/modules")?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<_>>()?;
    files.sort();
    for path in files {
        let flags = if path.extension().is_some_and(|e| e == "ko") {
            0
        } else {
            PACKED
        };
        let file = File::open(&path)?;
        // SAFETY: the file is open, the string of parameters empty.
        let loaded = unsafe {
            libc::syscall(
                libc::SYS_finit_module,
                file.as_raw_fd(),
                c"".as_ptr(),
                flags,
            )
        };
        check(loaded, &path.display().to_string())?;
    }
    Ok(())
}

fn address(ip: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    for (to, from) in data[2..6].iter_mut().zip(ip.octets()) {
        *to = from.cast_signed();
    }
    libc::sockaddr {
        sa_family: libc::AF_INET as u16,
        sa_data: data,
    }
}

fn request() -> libc::ifreq {
    // SAFETY: a structure of numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(CARD.bytes()) {
        *to = from.cast_signed();
    }
    request
}

/// Gives the card its address and turns it on, as soon as it is there.
fn set_up_card() -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let ask = |what: &str, number: libc::Ioctl, mut request: libc::ifreq| {
        // SAFETY: the structure is of the size that the request asks for.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), number, &raw mut request) };
        check(done, what)
    };
    let mut waited = 0;
    while let Err(why) = ask("the network card", libc::SIOCGIFINDEX as _, request()) {
        if waited >= PATIENCE_MS {
            return Err(why);
        }
        std::thread::sleep(Duration::from_millis(1));
        waited += 1;
    }
    let mut set = request();
    set.ifr_ifru.ifru_addr = address(ADDRESS);
    ask("its address", libc::SIOCSIFADDR as _, set)?;
    set.ifr_ifru.ifru_addr = address(MASK);
    ask("its mask", libc::SIOCSIFNETMASK as _, set)?;
    let mut set = request();
    set.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    ask("turning it on", libc::SIOCSIFFLAGS as _, set)
}

fn run() -> io::Result<()> {
    let options = options()?;
    let wanted = options
        .split_ascii_whitespace()
        .find_map(|word| word.strip_prefix("requests=")?.parse::<u64>().ok());
    load_modules()?;
    set_up_card()?;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    println!("ready");
    let (mut datagram, mut replies) = ([0; 2048], 0);
    while wanted.is_none_or(|wanted| replies < wanted) {
        let (bytes, from) = socket.recv_from(&mut datagram)?;
        socket.send_to(&datagram[..bytes], from)?;
        replies += 1;
    }
    println!("replies {replies}");
    Ok(())
}

fn end(code: u32) -> ! {
    // SAFETY: the port belongs to a device that ends the machine; nothing else of this process is there then.
    unsafe {
        libc::tcdrain(1);
        libc::ioperm(EXIT_PORT.into(), 4, 1);
        std::arch::asm!("out dx, eax", in("dx") EXIT_PORT, in("eax") code);
    }
    exit(1)
}

fn main() {
    let code = match run() {
        Ok(()) => 0,
        Err(why) => {
            println!("peer: {why}");
            1
        }
    };
    end(code)
}
