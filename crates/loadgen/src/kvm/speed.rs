// SPDX-License-Identifier: GPL-2.0-only
//! How fast guests compute on this machine, measured before a run.
use super::layout;
use super::machine::{failed, give_memory, processor, start, tables};
use super::memory::Memory;
use super::{KvmError, device};
use crate::sys::{self, Clock};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::Instant;

/// Least CPU time of a try: several turns of an emulator that runs its CPUs one after the other.
const TRY_NS: u64 = 4_000_000;
const TRIES: u64 = 25;
/// Work between two looks at whether the run is over, in nanoseconds; more where so few turns of the work loop fit in
/// that looking would take longer than working.
const CHUNK_NS: (u64, u64) = (20_000, 1_000_000);
const CHUNK_TURNS: u64 = 1_000;

/// How fast a guest computes here.
#[derive(Clone, Copy, Debug)]
pub struct Speed {
    /// Turns of the work loop in a millisecond of CPU time while all CPUs are busy, at least 1.
    turns_per_ms: u64,
    /// The same of the slowest and of the fastest CPU.
    extremes: (u64, u64),
    /// Frequency of a guest's clock.
    pub khz: u32,
}

/// A vCPU that only computes.
struct Guest {
    cpu: VcpuFd,
    // Dropped after the vCPU, in this order.
    _vm: VmFd,
    _memory: Memory,
}

impl Guest {
    fn new(kvm: &Kvm) -> Result<Guest, KvmError> {
        let memory = Memory::new().map_err(failed("no memory"))?;
        let vm = kvm.create_vm().map_err(device("it makes no VM"))?;
        give_memory(&vm, &memory)?;
        tables(&memory);
        let cpu = vm.create_vcpu(0).map_err(device("it makes no vCPU"))?;
        processor(kvm, &cpu, 0)?;
        Ok(Guest {
            cpu,
            _vm: vm,
            _memory: memory,
        })
    }

    /// So many turns of the work loop; the CPU time they took, in nanoseconds.
    fn compute(&mut self, turns: u64) -> Result<u64, KvmError> {
        start(&self.cpu, 0, layout::entry::MEASURE, turns)?;
        let start = sys::cpu_ns();
        loop {
            match self.cpu.run() {
                Ok(VcpuExit::IoOut(..)) => break,
                Err(e) if [libc::EINTR, libc::EAGAIN].contains(&e.errno()) => (),
                Ok(other) => {
                    return Err(KvmError::Guest {
                        thread: "measuring".into(),
                        what: format!("unexpected exit {other:?}"),
                    });
                }
                Err(e) => return Err(device("it runs no vCPU")(e)),
            }
        }
        Ok(sys::cpu_ns().saturating_sub(start).max(1))
    }

    /// Turns that take as long as a try is to take, at least. A guest's first run takes as long by itself, before the
    /// first turn: its memory and the processor's tables for it are made then. So each number has two tries.
    fn turns_of_a_try(&mut self) -> Result<u64, KvmError> {
        let mut turns = 200;
        while self.compute(turns)?.min(self.compute(turns)?) < TRY_NS && turns < 1 << 40 {
            turns *= 2;
        }
        Ok(turns)
    }
}

/// CPUs that have something still before them.
struct Left {
    /// Their guest is not ready. (A machine may take long to make a VM, and is half idle meanwhile.)
    coming: AtomicUsize,
    /// Their tries are not done.
    trying: AtomicUsize,
}

/// One of a count of CPUs, until it is dropped: even by a panic.
struct One<'a>(&'a AtomicUsize);

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What one CPU did: turns, and the time they took in nanoseconds.
struct Sample {
    turns: u64,
    ns: u64,
    khz: u32,
}

impl Sample {
    /// Tries on `cpu`, from when the guests of all CPUs are ready until the slowest has had its number of them.
    fn take(kvm: &Kvm, cpu: u32, clock: Clock, left: &Left) -> Result<Sample, KvmError> {
        let mut trying = Some(One(&left.trying));
        let coming = One(&left.coming);
        sys::set_affinity(&[cpu]).map_err(failed("a thread could not be placed"))?;
        let mut guest = Guest::new(kvm)?;
        let khz = guest
            .cpu
            .get_tsc_khz()
            .map_err(device("it does not tell its clock's frequency"))?;
        let turns = guest.turns_of_a_try()?;
        drop(coming);
        while left.coming.load(Ordering::Relaxed) > 0 {
            guest.compute(turns)?;
        }
        // All CPUs count for the same time: one that is faster than another, or has longer tries, must not weigh more.
        let begin = Instant::now();
        let (mut tries, mut ns) = (0, 0);
        while tries < TRIES || left.trying.load(Ordering::Relaxed) > 0 {
            ns += guest.compute(turns)?;
            tries += 1;
            if tries == TRIES {
                trying.take();
            }
        }
        if clock == Clock::Wall {
            ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        Ok(Sample {
            turns: turns * tries,
            ns,
            khz,
        })
    }
}

impl Speed {
    /// This machine's, measured when it is first asked for, by this clock: all runs of a process have the same.
    ///
    /// # Errors
    /// KVM does not work here.
    pub fn here(kvm: &Kvm, clock: Clock) -> Result<Speed, KvmError> {
        static HERE: Mutex<Option<Speed>> = Mutex::new(None);
        let mut here = HERE.lock().unwrap_or_else(|e| e.into_inner());
        match *here {
            Some(speed) => Ok(speed),
            None => Ok(*here.insert(Speed::measure(kvm, clock)?)),
        }
    }

    /// Lets a guest compute on every CPU that this process may use, for 0.1 to 0.3 s and all at the same time, as they
    /// are busy once the load runs: SMT, clock frequency and, in the lab, the emulator (whose CPUs share one stream of
    /// instructions) make a CPU slower the more of the others work.
    ///
    /// # Errors
    /// KVM does not work here.
    fn measure(kvm: &Kvm, clock: Clock) -> Result<Speed, KvmError> {
        let cpus = sys::affinity().map_err(failed("where threads may run is not known"))?;
        let left = Left {
            coming: AtomicUsize::new(cpus.len()),
            trying: AtomicUsize::new(cpus.len()),
        };
        let samples = std::thread::scope(|scope| {
            let left = &left;
            let spawn = |&cpu| {
                let thread =
                    Builder::new().spawn_scoped(scope, move || Sample::take(kvm, cpu, clock, left));
                thread.map_err(|e| {
                    drop((One(&left.coming), One(&left.trying)));
                    failed("no thread can be made")(e)
                })
            };
            let threads: Vec<_> = cpus.iter().map(spawn).collect();
            let join = |thread: Result<std::thread::ScopedJoinHandle<'_, _>, KvmError>| {
                thread?.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            // All are waited for, whatever became of the first.
            threads.into_iter().map(join).collect::<Vec<_>>()
        });
        let (mut turns, mut ns, mut khz) = (0, 0, 0);
        let mut extremes = (u64::MAX, 0);
        for sample in samples {
            let sample: Sample = sample?;
            let own = sample.turns * 1_000_000 / sample.ns.max(1);
            extremes = (own.min(extremes.0), own.max(extremes.1));
            turns += u128::from(sample.turns);
            ns += u128::from(sample.ns);
            khz = sample.khz;
        }
        let turns_per_ms = u64::try_from(turns * 1_000_000 / ns.max(1)).unwrap_or(u64::MAX);
        Ok(Speed {
            turns_per_ms: turns_per_ms.max(1),
            extremes,
            khz,
        })
    }

    /// Turns of the work loop in a second of CPU time while all CPUs are busy: of all CPUs, and of the slowest and the
    /// fastest of them.
    pub fn turns_per_second(self) -> (u64, u64, u64) {
        let (least, most) = self.extremes;
        (self.turns_per_ms * 1_000, least * 1_000, most * 1_000)
    }

    /// A chunk of work: nanoseconds, and turns of the loop.
    pub fn chunk(self) -> (u64, u64) {
        let ns = (CHUNK_TURNS * 1_000_000 / self.turns_per_ms).clamp(CHUNK_NS.0, CHUNK_NS.1);
        (ns, (self.turns_per_ms * ns / 1_000_000).max(1))
    }
}
