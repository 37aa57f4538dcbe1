// SPDX-License-Identifier: GPL-2.0-only
//! The client, in a network namespace of its own: asks at times that do not depend on the answers, and measures how
//! long each takes.
//!
//! It stands for another machine, so nothing here is to delay it: it has real-time priority, on CPU 0. There it also
//! does what a card's interrupt would: without other wishes (RPS) packets go through the bridge where they are sent.
use super::network;
use std::fs::{self, File};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The cable's end there.
const HERE: &str = "eth0";
const HERE_LINK: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];
/// VMs that there may be.
pub const VMS: usize = 4;
const HERE_ADDRESS: [u8; 4] = [10, 0, 0, 1];
const PORT: u16 = 7;
/// Between two packets: any time up to twice this.
const BETWEEN_NS: u64 = 4_000_000;
const BYTES: usize = 64;
/// The last answers are waited for.
const LAST_NS: u64 = 200_000_000;
const PRIORITY: i32 = 50;

/// What came of it.
#[derive(Debug, Default)]
pub struct Measured {
    pub sent: usize,
    /// From sending to the answer.
    pub round_trips_ns: Vec<u64>,
}

/// What is asked of it.
pub struct Ask {
    pub ns: u64,
    /// These are asked in turn: the first so many.
    pub vms: usize,
    pub seed: u64,
}

/// Its thread.
pub struct Client {
    ask: Option<Sender<Ask>>,
    measured: Receiver<Result<Measured, String>>,
    thread: Option<JoinHandle<()>>,
}

impl Client {
    /// In a new network namespace, at the other end of a cable of this name.
    pub fn start(cable: &str) -> Result<Client, String> {
        let (namespace, its) = channel();
        let (plugged, is_plugged) = channel::<()>();
        let (ask, asked) = channel::<Ask>();
        let (tell, measured) = channel();
        let thread = std::thread::spawn(move || {
            let socket = settle_in(&namespace, &is_plugged);
            match socket {
                Err(e) => drop(tell.send(Err(e))),
                Ok(socket) => {
                    let _ = tell.send(Ok(Measured::default()));
                    for ask in asked {
                        let _ = tell.send(measure(&socket, &ask));
                    }
                }
            }
        });
        let lost = |_| "the client's thread has ended".to_string();
        let there: File = its.recv().map_err(lost)??;
        network::add_cable(cable, &there, HERE, HERE_LINK)?;
        plugged.send(()).map_err(|e| e.to_string())?;
        measured.recv().map_err(lost)??;
        Ok(Client {
            ask: Some(ask),
            measured,
            thread: Some(thread),
        })
    }

    /// Asks for so long.
    pub fn ask(&self, ask: Ask) {
        // Where it has ended, there will be no answer.
        let _ = self.ask.as_ref().map(|to| to.send(ask));
    }

    /// What came of it, when it is done.
    pub fn done(&self) -> Option<Result<Measured, String>> {
        self.measured.try_recv().ok()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.ask = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The link address of a VM that answers.
pub fn link(vm: usize) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 1, vm as u8]
}

fn address(vm: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 2 + vm as u8)
}

fn settle_in(
    namespace: &Sender<Result<File, String>>,
    plugged: &Receiver<()>,
) -> Result<UdpSocket, String> {
    // SAFETY: of this thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(std::io::Error::last_os_error().to_string());
    }
    network_is_quiet()?;
    let its = File::open("/proc/thread-self/ns/net").map_err(|e| e.to_string());
    namespace.send(its).map_err(|e| e.to_string())?;
    plugged.recv().map_err(|e| e.to_string())?;
    network::add_address(HERE, HERE_ADDRESS)?;
    network::up(HERE, None)?;
    for vm in 0..VMS {
        network::add_neighbour(HERE, address(vm).octets(), link(vm))?;
    }
    let socket = UdpSocket::bind((Ipv4Addr::from(HERE_ADDRESS), PORT));
    let socket = socket.map_err(|e| format!("a socket: {e}"))?;
    socket.set_nonblocking(true).map_err(|e| e.to_string())?;
    // SAFETY: all zeroes are an empty set; values of this function's own.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        let parameters = libc::sched_param {
            sched_priority: PRIORITY,
        };
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0
            && libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0
    };
    match done {
        true => Ok(socket),
        false => Err(std::io::Error::last_os_error().to_string()),
    }
}

/// Nobody asks for neighbours by himself.
pub fn network_is_quiet() -> Result<(), String> {
    for which in ["all", "default"] {
        let file = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        fs::write(&file, "1").map_err(|e| format!("{file}: {e}"))?;
    }
    Ok(())
}

fn now_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Waits until something comes, or until then.
fn wait(socket: &UdpSocket, until: u64) {
    let ns = until.saturating_sub(now_ns());
    let time = libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    };
    let mut one = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: places of this function's own.
    unsafe { libc::ppoll(&mut one, 1, &time, std::ptr::null()) };
}

fn measure(socket: &UdpSocket, ask: &Ask) -> Result<Measured, String> {
    let failed = |e: std::io::Error| format!("the client's socket: {e}");
    let mut random = ask.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut between = || {
        // Marsaglia's xorshift.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % (2 * BETWEEN_NS)
    };
    let began = now_ns();
    let end = began + ask.ns;
    let mut sent_at: Vec<u64> = Vec::new();
    let mut round_trips_ns = Vec::new();
    let mut due = began + between();
    let mut packet = [0; BYTES];
    loop {
        wait(socket, due);
        loop {
            match socket.recv(&mut packet) {
                Ok(_) => (),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(failed(e)),
            }
            let now = now_ns();
            let [of, number] = [0, 8].map(|at| {
                let mut word = [0; 8];
                word.copy_from_slice(&packet[at..at + 8]);
                u64::from_ne_bytes(word)
            });
            // One of the time before that was late is none of this time's.
            if let (true, Some(at)) = (of == began, sent_at.get(number as usize)) {
                round_trips_ns.push(now - at);
            }
        }
        let now = now_ns();
        if now < due {
            continue;
        }
        if now >= end {
            if round_trips_ns.len() == sent_at.len() || now >= end + LAST_NS {
                break;
            }
            due = now + BETWEEN_NS;
            continue;
        }
        packet[..8].copy_from_slice(&began.to_ne_bytes());
        packet[8..16].copy_from_slice(&(sent_at.len() as u64).to_ne_bytes());
        let vm = sent_at.len() % ask.vms;
        sent_at.push(now_ns());
        socket
            .send_to(&packet, (address(vm), PORT))
            .map_err(failed)?;
        due += between();
    }
    Ok(Measured {
        sent: sent_at.len(),
        round_trips_ns,
    })
}
