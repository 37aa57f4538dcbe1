// SPDX-License-Identifier: GPL-2.0-only
//! One micro-VM: its memory filled, its vCPUs ready to run, and the ways in from the host: messages, start, stop.
use super::layout::{self, queue, vcpu, vm};
use super::memory::{Counter, Memory};
use super::plan::Placed;
use super::program::{PoolStep, Programs, Receiver, Ticks};
use super::speed::Speed;
use super::{KvmError, device};
use crate::mailbox::{Asker, Message};
use crate::sys;
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::{Nanos, Scenario};
use kvm_bindings::{
    KVM_IRQ_ROUTING_MSI, KVM_MP_STATE_RUNNABLE, KvmIrqRouting, Msrs, kvm_irq_routing_msi,
    kvm_lapic_state, kvm_mp_state, kvm_msr_entry, kvm_segment, kvm_userspace_memory_region,
};
use kvm_ioctls::{Kvm, VcpuFd, VmFd};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

/// A guest task's turn while others of its vCPU can run.
const SLICE_NS: u64 = 4_000_000;
const FIRST_GSI: u32 = 24;
const CPUID_ENTRIES: usize = 80;
/// Random streams of tasks that share a vCPU begin here; below are those of host threads.
const SHARED_STREAMS: u32 = 1 << 20;

/// A queue of the guest, seen from the host.
#[derive(Debug)]
struct Inbox {
    at: u64,
    slots: u64,
    /// vCPUs that take from it.
    servers: Vec<u32>,
}

pub struct Machine {
    name: String,
    /// Numbers of its vCPUs.
    numbers: Vec<u32>,
    // Filled in the process that runs the VM. Before the memory they use: fields are dropped in this order.
    vcpus: Mutex<BTreeMap<u32, VcpuFd>>,
    made: OnceLock<VmFd>,
    pub memory: Arc<Memory>,
    interrupts: BTreeMap<u32, EventFd>,
    inboxes: BTreeMap<String, Inbox>,
    pub receivers: Vec<Receiver>,
    pub pools: Vec<PoolStep>,
    pub ticks: Ticks,
    stop_ns: Option<Nanos>,
    /// vCPU to be woken next.
    turn: AtomicU32,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// This machine's clock, in ticks.
fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

pub(super) fn failed(what: &'static str) -> impl Fn(io::Error) -> KvmError {
    move |source| KvmError::Device { what, source }
}

impl Machine {
    /// A VM with these vCPUs, each with its number among the run's threads: its memory, ready for
    /// [`Machine::bring_up`].
    ///
    /// # Errors
    /// The scenario does not fit.
    pub fn new(
        speed: Speed,
        scenario: &Scenario,
        seed: u64,
        placed: &[(u32, &Placed)],
    ) -> Result<(Machine, Vec<String>), KvmError> {
        let Some(instance) = placed.first().and_then(|(_, p)| p.thread.vm.clone()) else {
            return Err(KvmError::Unfit("a VM without vCPUs".into()));
        };
        let spec = &scenario.vms[instance.group];
        let memory = Arc::new(Memory::new().map_err(failed("no memory for a VM"))?);
        tables(&memory);
        let ticks = Ticks {
            khz: speed.khz.into(),
        };
        let mut programs = Programs::new(scenario, &instance, &memory, ticks);
        for (ordinal, p) in placed {
            let number = p.thread.role.vcpu().unwrap_or(0);
            let page = layout::VCPUS + u64::from(number) * layout::PAGE;
            let stream = |i: usize| match p.tasks.len() {
                1 => *ordinal,
                _ => SHARED_STREAMS + ordinal * 256 + i as u32,
            };
            let rngs = (0..p.tasks.len()).map(|i| {
                (
                    Rng::new(seed, Stream::Thread(stream(i))),
                    Rng::new(seed, Stream::Phase(stream(i))),
                )
            });
            let tasks = programs.tasks(number, &p.tasks, rngs.collect())?;
            let wakeups = programs.room.take(8 * layout::BUCKETS)?;
            for (word, value) in [
                (vcpu::APIC_ID, number.into()),
                (vcpu::NUMBER, number.into()),
                (vcpu::NR_TASKS, p.tasks.len() as u64),
                (vcpu::TASKS, tasks),
                (vcpu::VM, layout::VM),
                (vcpu::WAKEUPS, wakeups),
            ] {
                memory.set(page + word, value);
            }
        }
        for (word, value) in [
            (vm::START_TSC, u64::MAX),
            (vm::MEASURE_BEGIN, u64::MAX),
            (vm::MEASURE_END, u64::MAX),
            (vm::END_TSC, u64::MAX),
            (vm::VCPUS, spec.vcpus.into()),
            (vm::VCPU0, layout::VCPUS),
            (vm::CHUNK_LOOPS, speed.chunk().1),
            (vm::CHUNK_NS, speed.chunk().0),
            (vm::SLICE_NS, SLICE_NS),
        ] {
            memory.set(layout::VM + word, value);
        }
        let numbers: Vec<u32> = placed
            .iter()
            .map(|(_, p)| p.thread.role.vcpu().unwrap_or(0))
            .collect();
        let mut interrupts = BTreeMap::new();
        for number in &numbers {
            let fd = EventFd::new(EFD_NONBLOCK).map_err(failed("no eventfd"))?;
            interrupts.insert(*number, fd);
        }
        let inboxes = programs
            .queues
            .iter()
            .map(|(name, at)| {
                let servers = programs.servers.get(name).into_iter().flatten();
                let inbox = Inbox {
                    at: *at,
                    slots: memory.get(at + queue::SLOTS),
                    servers: servers.copied().collect(),
                };
                (name.clone(), inbox)
            })
            .collect();
        let (receivers, pools, notes) = (programs.receivers, programs.pools, programs.notes);
        let machine = Machine {
            name: instance.name.clone(),
            numbers,
            vcpus: Mutex::default(),
            made: OnceLock::new(),
            memory,
            interrupts,
            inboxes,
            receivers,
            pools,
            ticks,
            stop_ns: spec.stop_ns,
            turn: AtomicU32::new(0),
        };
        Ok((machine, notes))
    }

    /// Makes the VM of its memory; only the process that does it can run its vCPUs.
    ///
    /// # Errors
    /// KVM refuses.
    pub fn bring_up(&self) -> Result<(), KvmError> {
        let kvm = super::open()?;
        let made = kvm.create_vm().map_err(device("it makes no VM"))?;
        made.create_irq_chip()
            .map_err(device("it makes no interrupt controller"))?;
        give_memory(&made, &self.memory)?;
        let mut cpus = BTreeMap::new();
        for number in &self.numbers {
            let cpu = made
                .create_vcpu((*number).into())
                .map_err(device("it makes no vCPU"))?;
            cpus.insert(*number, cpu);
        }
        let offset = clock_offset(&cpus)?;
        self.memory.set(layout::VM + vm::CLOCK_OFFSET, offset);
        route(&made, &self.interrupts)?;
        for (number, cpu) in &cpus {
            let page = layout::VCPUS + u64::from(*number) * layout::PAGE;
            processor(&kvm, cpu, *number)?;
            start(cpu, *number, layout::entry::GUEST, page)?;
            local_interrupts(cpu)?;
        }
        *self.vcpus.lock().unwrap_or_else(|e| e.into_inner()) = cpus;
        // Once per process.
        let _ = self.made.set(made);
        Ok(())
    }

    /// The guest's clock now; its offset is known once the VM is up.
    fn guest_clock(&self) -> u64 {
        tsc().wrapping_add(self.memory.get(layout::VM + vm::CLOCK_OFFSET))
    }

    /// `web-1`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A vCPU, for the thread that is to run it.
    pub fn take(&self, number: u32) -> Option<VcpuFd> {
        self.vcpus
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .remove(&number)
    }

    /// Where a vCPU's guest counts the work it has done.
    pub fn work(&self, number: u32) -> Counter {
        Counter {
            memory: Arc::clone(&self.memory),
            at: layout::VCPUS + u64::from(number) * layout::PAGE + vcpu::WORK_NS,
        }
    }

    /// Tells the guest when the run begins, and when to measure; times of `CLOCK_MONOTONIC`.
    pub fn start_at(&self, start_ns: Nanos, window_ns: (Nanos, Nanos)) {
        let (now_ns, now) = (sys::now_ns(), self.guest_clock());
        let at = |since: Nanos| {
            let ns = start_ns.saturating_add(since);
            match ns.checked_sub(now_ns) {
                Some(ahead) => now.saturating_add(self.ticks.of_ns(ahead)),
                None => now.saturating_sub(self.ticks.of_ns(now_ns - ns)),
            }
        };
        let set = |word, value| self.memory.set(layout::VM + word, value);
        set(vm::START_TSC, at(0));
        set(vm::MEASURE_BEGIN, at(window_ns.0));
        set(vm::MEASURE_END, at(window_ns.1));
        if let Some(ns) = self.stop_ns {
            set(vm::END_TSC, at(ns));
        }
    }

    /// Ends the guest: every vCPU calls the host soon.
    pub fn stop(&self) {
        self.memory.set(layout::VM + vm::STOP, 1);
        for interrupt in self.interrupts.values() {
            // Refused only if it is already pending often enough.
            let _ = interrupt.write(1);
        }
    }

    /// Puts a message into a queue, and wakes a vCPU that waits; false if the queue is full.
    pub fn put(&self, name: &str, message: &Message) -> bool {
        let Some(inbox) = self.inboxes.get(name) else {
            return true;
        };
        let tail = self.memory.word(inbox.at + queue::TAIL);
        let slot = loop {
            let n = tail.load(Ordering::Acquire);
            let slot = inbox.slots + (n % queue::LENGTH) * queue::SLOT_BYTES;
            let seq = self.memory.get(slot);
            if seq != n {
                if seq < n {
                    return false;
                }
                continue;
            }
            if tail
                .compare_exchange(n, n + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                break slot;
            }
        };
        let n = self.memory.get(slot);
        self.memory.set(slot + 8, self.guest_clock());
        self.memory.set(slot + 16, message.arrival_ns);
        self.memory.set(slot + 24, pack(message.client));
        self.memory.set(slot, n + 1);
        fence(Ordering::SeqCst);
        self.wake(&inbox.servers);
        true
    }

    /// Interrupts one of these vCPUs that has halted and has not been interrupted since.
    fn wake(&self, vcpus: &[u32]) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize;
        for i in 0..vcpus.len() {
            let number = vcpus[(turn + i) % vcpus.len()];
            let page = layout::VCPUS + u64::from(number) * layout::PAGE;
            let idle = self.memory.word(page + vcpu::IDLE);
            if idle
                .compare_exchange(1, 2, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
            {
                let _ = self.interrupts[&number].write(1);
                return;
            }
        }
    }
}

/// Who asked, in a word; 0: nobody.
fn pack(asker: Option<Asker>) -> u64 {
    asker.map_or(0, |a| ((a.stream as u64 + 1) << 32) | u64::from(a.user))
}

pub fn unpack(word: u64) -> Option<Asker> {
    let stream = (word >> 32).checked_sub(1)?;
    Some(Asker {
        stream: stream as usize,
        user: word as u32,
    })
}

pub(super) fn give_memory(vm: &VmFd, memory: &Memory) -> Result<(), KvmError> {
    let region = kvm_userspace_memory_region {
        slot: 0,
        guest_phys_addr: 0,
        memory_size: layout::BYTES,
        userspace_addr: memory.host_address(),
        flags: 0,
    };
    // SAFETY: the memory lives longer than the VM that uses it.
    unsafe { vm.set_user_memory_region(region) }.map_err(device("it takes no memory"))
}

/// Code, descriptors, interrupt table and page tables.
pub(super) fn tables(memory: &Memory) {
    memory.copy(layout::CODE, layout::CODE_BYTES);
    // Null, code (64-bit), data.
    for (i, entry) in (0..).zip([0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff_u64]) {
        memory.set(layout::GDT + 8 * i, entry);
    }
    let handler = layout::CODE + layout::entry::ISR;
    for vector in 0..256 {
        let low =
            (handler & 0xffff) | (8 << 16) | (0x8e00 << 32) | ((handler >> 16 & 0xffff) << 48);
        memory.set(layout::IDT + vector * 16, low);
        memory.set(layout::IDT + vector * 16 + 8, handler >> 32);
    }
    let (top, below) = (layout::PAGE_TABLES, layout::PAGE_TABLES + layout::PAGE);
    memory.set(top, below | 7);
    for i in 0..4 {
        memory.set(below + 8 * i, (below + (1 + i) * layout::PAGE) | 7);
    }
    for i in 0..2048 {
        let at = i << 21;
        // The interrupt controller is not to be cached.
        let uncached = if at >= 0xc000_0000 { 0x18 } else { 0 };
        memory.set(below + layout::PAGE + 8 * i, at | 0x87 | uncached);
    }
}

/// Each vCPU is interrupted by its eventfd.
pub(super) fn route(vm: &VmFd, interrupts: &BTreeMap<u32, EventFd>) -> Result<(), KvmError> {
    let mut routes = KvmIrqRouting::new(interrupts.len())
        .map_err(|_| KvmError::Unfit("so many vCPUs".into()))?;
    for (entry, number) in routes.as_mut_slice().iter_mut().zip(interrupts.keys()) {
        entry.gsi = FIRST_GSI + number;
        entry.type_ = KVM_IRQ_ROUTING_MSI;
        entry.u.msi = kvm_irq_routing_msi {
            address_lo: 0xfee0_0000 | (number << 12),
            address_hi: 0,
            data: layout::VECTOR_MESSAGE,
            ..Default::default()
        };
    }
    vm.set_gsi_routing(&routes)
        .map_err(device("it routes no interrupts"))?;
    for (number, fd) in interrupts {
        vm.register_irqfd(fd, FIRST_GSI + number)
            .map_err(device("it takes no irqfd"))?;
    }
    Ok(())
}

fn segment(selector: u16, code: bool) -> kvm_segment {
    kvm_segment {
        base: 0,
        limit: u32::MAX,
        selector,
        type_: if code { 11 } else { 3 },
        present: 1,
        dpl: 0,
        db: u8::from(!code),
        s: 1,
        l: u8::from(code),
        g: 1,
        ..Default::default()
    }
}

/// What the guest's processor can do; once, before it runs.
pub(super) fn processor(kvm: &Kvm, cpu: &VcpuFd, number: u32) -> Result<(), KvmError> {
    let refused = device("it refuses a vCPU's features");
    let mut cpuid = kvm.get_supported_cpuid(CPUID_ENTRIES).map_err(&refused)?;
    for e in cpuid.as_mut_slice().iter_mut().filter(|e| e.function == 1) {
        e.ebx = (e.ebx & 0x00ff_ffff) | (number << 24);
        e.ecx |= 1 << 24; // the deadline timer
    }
    cpu.set_cpuid2(&cpuid).map_err(&refused)
}

/// 64-bit mode, at this entry with this argument.
pub(super) fn start(cpu: &VcpuFd, number: u32, entry: u64, argument: u64) -> Result<(), KvmError> {
    let refused = device("it refuses a vCPU's segments");
    let mut s = cpu.get_sregs().map_err(&refused)?;
    s.cs = segment(8, true);
    for data in [&mut s.ds, &mut s.es, &mut s.fs, &mut s.gs, &mut s.ss] {
        *data = segment(16, false);
    }
    s.gs.base = layout::VCPUS + u64::from(number) * layout::PAGE;
    s.gdt.base = layout::GDT;
    s.gdt.limit = 23;
    s.idt.base = layout::IDT;
    s.idt.limit = 0xfff;
    s.cr3 = layout::PAGE_TABLES;
    s.cr4 = 0x20; // physical address extension
    s.cr0 = 0x8000_0031; // paging, numeric errors, extension type, protection
    s.efer = 0x500; // long mode, enabled and active
    cpu.set_sregs(&s).map_err(&refused)?;
    let refused = device("it refuses a vCPU's registers");
    let mut r = cpu.get_regs().map_err(&refused)?;
    r.rip = layout::CODE + entry;
    // As after a call: 8 below a multiple of 16.
    r.rsp = layout::STACKS + (u64::from(number) + 1) * layout::PAGE - 8;
    r.rdi = argument;
    r.rflags = 2;
    cpu.set_regs(&r).map_err(&refused)
}

/// The vCPU's own interrupt controller: on, with the deadline timer.
pub(super) fn local_interrupts(cpu: &VcpuFd) -> Result<(), KvmError> {
    let refused = device("it refuses a vCPU's interrupt controller");
    let mut lapic = cpu.get_lapic().map_err(&refused)?;
    let set = |lapic: &mut kvm_lapic_state, at: usize, value: u32| {
        for (reg, byte) in lapic.regs[at..at + 4].iter_mut().zip(value.to_le_bytes()) {
            *reg = byte as i8;
        }
    };
    set(&mut lapic, 0xf0, 0x1ff);
    set(&mut lapic, 0x320, 0x40000 | layout::VECTOR_TIMER);
    cpu.set_lapic(&lapic).map_err(&refused)?;
    let state = kvm_mp_state {
        mp_state: KVM_MP_STATE_RUNNABLE,
    };
    cpu.set_mp_state(state).map_err(&refused)
}

/// The guest's clock minus this machine's, in ticks: made the same where the kernel can, else measured.
fn clock_offset(cpus: &BTreeMap<u32, VcpuFd>) -> Result<u64, KvmError> {
    const SET_DEVICE_ATTR: libc::c_ulong = 0x4018_aee1;
    const IA32_TSC: u32 = 0x10;
    let mut same = true;
    let zero = 0_u64;
    for cpu in cpus.values() {
        // Group and attribute 0: the offset of the clock.
        let offset = kvm_bindings::kvm_device_attr {
            addr: &raw const zero as u64,
            ..Default::default()
        };
        // SAFETY: the attribute and the word it points to outlive the call.
        let done = unsafe { libc::ioctl(cpu.as_raw_fd(), SET_DEVICE_ATTR as _, &offset) };
        same &= done == 0;
    }
    let (true, Some(cpu)) = (!same, cpus.values().next()) else {
        return Ok(0);
    };
    let mut best = (u64::MAX, 0);
    for _ in 0..16 {
        let entry = kvm_msr_entry {
            index: IA32_TSC,
            ..Default::default()
        };
        let Ok(mut msrs) = Msrs::from_entries(&[entry]) else {
            break;
        };
        let before = tsc();
        cpu.get_msrs(&mut msrs)
            .map_err(device("it does not tell a vCPU's clock"))?;
        let after = tsc();
        let guest = msrs.as_slice()[0].data;
        let middle = before + (after - before) / 2;
        best = best.min((after - before, guest.wrapping_sub(middle)));
    }
    Ok(best.1)
}
