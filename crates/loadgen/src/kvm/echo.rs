// SPDX-License-Identifier: GPL-2.0-only
//! A VM on a network: one vCPU whose guest sends each UDP frame back to who sent it. Its back end is the kernel's
//! vhost-net on a tap, as a VMM sets it up, but both sides know by themselves where the rings are: the guest has no
//! virtio device, and finds none.
use super::layout::{self, echo, port};
use super::machine::{failed, give_memory, local_interrupts, processor, route, start, tables};
use super::memory::Memory;
use super::{KvmError, device};
use kvm_ioctls::{IoEventAddress, NoDatamatch, VcpuExit, VcpuFd, VmFd};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

const SET_FEATURES: libc::c_ulong = 0x4008_af00;
const SET_OWNER: libc::c_ulong = 0xaf01;
const SET_MEM_TABLE: libc::c_ulong = 0x4008_af03;
const SET_VRING_NUM: libc::c_ulong = 0x4008_af10;
const SET_VRING_ADDR: libc::c_ulong = 0x4028_af11;
const SET_VRING_BASE: libc::c_ulong = 0x4008_af12;
const SET_VRING_KICK: libc::c_ulong = 0x4008_af20;
const SET_VRING_CALL: libc::c_ulong = 0x4008_af21;
const SET_BACKEND: libc::c_ulong = 0x4008_af30;
/// `VIRTIO_F_VERSION_1`: headers of twelve bytes, which the tap is told of too.
const FEATURES: u64 = 1 << 32;
/// A descriptor that the host writes.
const WRITE: u64 = 2;

/// The VM.
pub struct Echo {
    // Dropped in this order: users of the memory before it.
    _vhost: File,
    cpu: VcpuFd,
    _vm: VmFd,
    memory: Memory,
    _events: Vec<EventFd>,
}

/// As `struct vhost_memory` with one region.
#[repr(C)]
struct Regions {
    count: u32,
    padding: u32,
    at: u64,
    bytes: u64,
    here: u64,
    flags: u64,
}

/// As `struct vhost_vring_state` and `struct vhost_vring_file`.
#[repr(C)]
struct OfRing {
    index: u32,
    value: u32,
}

/// As `struct vhost_vring_addr`.
#[repr(C)]
struct Addresses {
    index: u32,
    flags: u32,
    descriptors: u64,
    used: u64,
    available: u64,
    log: u64,
}

fn call<T>(fd: &File, request: libc::c_ulong, argument: &T) -> Result<(), KvmError> {
    // SAFETY: each request's argument has the layout that the kernel reads, and outlives the call.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, argument) };
    match done {
        0.. => Ok(()),
        _ => Err(failed("vhost-net refuses the rings")(
            io::Error::last_os_error(),
        )),
    }
}

/// Descriptors, available and used ring: of frames that come (0), of those that go (1).
fn rings(direction: u64) -> [u64; 3] {
    [0, 1, 2].map(|i| echo::RINGS + (3 * direction + i) * layout::PAGE)
}

/// Fills the guest's memory: rings, and a buffer for each slot; all of them are the host's to fill with frames.
fn lay_out(memory: &Memory) {
    tables(memory);
    for (word, value) in [(echo::SLOTS, echo::LENGTH), (echo::BUFFERS, echo::FRAMES)] {
        memory.set(echo::HERE + word, value);
    }
    for (direction, words, flags) in [(0, echo::RX, WRITE), (1, echo::TX, 0)] {
        let [descriptors, available, used] = rings(direction);
        for (at, value) in (0..).zip([descriptors, available, used]) {
            memory.set(echo::HERE + words + 8 * at, value);
        }
        for slot in 0..echo::LENGTH {
            let at = descriptors + 16 * slot;
            memory.set(at, echo::FRAMES + slot * echo::BUFFER_BYTES);
            memory.set(at + 8, echo::BUFFER_BYTES | flags << 32);
        }
        // Of those that go the guest asks for no interrupts: it looks when one has come.
        let mut ring = vec![u16::from(direction == 1), 0];
        if direction == 0 {
            ring[1] = echo::LENGTH as u16;
            ring.extend(0..echo::LENGTH as u16);
        }
        let bytes: Vec<u8> = ring.iter().flat_map(|half| half.to_le_bytes()).collect();
        memory.copy(available, &bytes);
    }
}

impl Echo {
    /// Bytes of the header before each frame: the tap's `TUNSETVNETHDRSZ`.
    pub const HEADER_BYTES: i32 = 12;

    /// With this link address, on a tap that was opened with headers of so many bytes. vhost's worker is a thread of
    /// this process then.
    ///
    /// # Errors
    /// KVM or vhost-net refuses.
    pub fn new(tap: &File, link: [u8; 6]) -> Result<Echo, KvmError> {
        let memory = Memory::new().map_err(failed("no memory for a VM"))?;
        lay_out(&memory);
        let [a, b, c, d, e, f] = link;
        let link = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        memory.set(echo::HERE + echo::LINK, link);
        let kvm = super::open()?;
        let vm = kvm.create_vm().map_err(device("it makes no VM"))?;
        vm.create_irq_chip()
            .map_err(device("it makes no interrupt controller"))?;
        give_memory(&vm, &memory)?;
        let cpu = vm.create_vcpu(0).map_err(device("it makes no vCPU"))?;
        let event = || EventFd::new(EFD_NONBLOCK).map_err(failed("no eventfd"));
        let come = event()?;
        let (rx, tx) = (event()?, event()?);
        route(
            &vm,
            &BTreeMap::from([(0, come.try_clone().map_err(failed("no eventfd"))?)]),
        )?;
        for (kick, port) in [(&rx, port::RX), (&tx, port::TX)] {
            vm.register_ioevent(kick, &IoEventAddress::Pio(port.into()), NoDatamatch)
                .map_err(device("it takes no ioeventfd"))?;
        }
        processor(&kvm, &cpu, 0)?;
        start(&cpu, 0, layout::entry::ECHO, echo::HERE)?;
        local_interrupts(&cpu)?;
        let vhost = File::options()
            .read(true)
            .write(true)
            .open("/dev/vhost-net")
            .map_err(failed("no /dev/vhost-net"))?;
        connect(&vhost, &memory, tap.as_raw_fd(), [&rx, &tx], &come)?;
        Ok(Echo {
            _vhost: vhost,
            cpu,
            _vm: vm,
            memory,
            _events: vec![come, rx, tx],
        })
    }

    /// Runs the guest, which has no end of its own.
    ///
    /// # Errors
    /// The guest stops.
    pub fn run(mut self) -> KvmError {
        loop {
            let what = match self.cpu.run() {
                Ok(VcpuExit::Intr) => continue,
                Ok(other) => format!("the guest ended with {other:?}"),
                Err(e) if [libc::EINTR, libc::EAGAIN].contains(&e.errno()) => continue,
                Err(e) => format!("KVM_RUN: {e}"),
            };
            let echoed = self.memory.get(echo::HERE + echo::ECHOED);
            return KvmError::Guest {
                thread: "0".into(),
                what: format!("{what} after {echoed} frames"),
            };
        }
    }
}

/// Tells vhost where all is, and has it begin.
fn connect(
    vhost: &File,
    memory: &Memory,
    tap: RawFd,
    kicks: [&EventFd; 2],
    come: &EventFd,
) -> Result<(), KvmError> {
    call(vhost, SET_OWNER, &0_u64)?;
    call(vhost, SET_FEATURES, &FEATURES)?;
    let here = memory.host_address();
    let regions = Regions {
        count: 1,
        padding: 0,
        at: 0,
        bytes: layout::BYTES,
        here,
        flags: 0,
    };
    call(vhost, SET_MEM_TABLE, &regions)?;
    for (direction, kick) in (0..).zip(kicks) {
        let of_ring = |value: u32| OfRing {
            index: direction,
            value,
        };
        let fd = |event: &EventFd| of_ring(event.as_raw_fd().cast_unsigned());
        let [descriptors, available, used] = rings(direction.into()).map(|at| here + at);
        call(vhost, SET_VRING_NUM, &of_ring(echo::LENGTH as u32))?;
        call(vhost, SET_VRING_BASE, &of_ring(0))?;
        let addresses = Addresses {
            index: direction,
            flags: 0,
            descriptors,
            used,
            available,
            log: 0,
        };
        call(vhost, SET_VRING_ADDR, &addresses)?;
        call(vhost, SET_VRING_KICK, &fd(kick))?;
        if direction == 0 {
            call(vhost, SET_VRING_CALL, &fd(come))?;
        }
    }
    for index in 0..2 {
        let value = tap.cast_unsigned();
        call(vhost, SET_BACKEND, &OfRing { index, value })?;
    }
    Ok(())
}
