// SPDX-License-Identifier: GPL-2.0-only
//! Calling the policy: which operations it has, its flags, and the calls themselves.
use super::consts::*;
use super::kernel::Handle;
use super::lifecycle::ExitKind;
use crate::error::SimError;
use crate::words::{CpuId, Nanos, TaskId};
use berth_policy::abi::{Op, Trap, TrapKind};
use berth_policy::instance::Instance;
use berth_policy::interp;

/// Answers calls in the model's own unit tests.
#[cfg(test)]
pub type Double = Box<dyn FnMut(Handle, Op, &[u64]) -> u64>;

/// Who answers the calls.
#[derive(Default)]
pub enum Port {
    /// Nobody: every operation has its default (a global FIFO).
    #[default]
    None,
    Instance(Box<Instance>),
    /// A policy written in Rust, for the model's own unit tests.
    #[cfg(test)]
    Double(Double),
}

/// The loaded policy. Its default is "no policy operations at all".
pub struct Policy {
    port: Port,
    /// Bit per [`Op`].
    has: u64,
    pub name: String,
    pub flags: u64,
    pub timeout_ns: Nanos,
    pub max_batch: u32,
    /// Operation in progress on behalf of this run queue; `None` = no run queue is locked.
    pub locked_rq: Option<CpuId>,
    /// Task that the last operation about one was about: most likely the one that the policy's next words are about.
    pub about: TaskId,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            port: Port::None,
            has: 0,
            name: String::from("none"),
            flags: 0,
            timeout_ns: WATCHDOG_MAX_NS,
            max_batch: DSP_DFL_MAX_BATCH,
            locked_rq: None,
            about: 0,
        }
    }
}

impl Policy {
    /// A policy answered by `port` with these operations and flags. `timeout_ms` and `max_batch`: 0 = default.
    pub fn new(
        port: Port,
        name: &str,
        ops: &[Op],
        flags: u64,
        timeout_ms: u32,
        max_batch: u32,
    ) -> Self {
        let timeout_ns = match timeout_ms {
            0 => WATCHDOG_MAX_NS,
            ms => ms as u64 * 1_000_000,
        };
        Policy {
            port,
            has: ops.iter().fold(0, |h, o| h | 1 << *o as u32),
            name: name.to_string(),
            flags,
            timeout_ns,
            max_batch: if max_batch == 0 {
                DSP_DFL_MAX_BATCH
            } else {
                max_batch
            },
            ..Policy::default()
        }
    }

    #[inline(always)]
    pub fn has(&self, op: Op) -> bool {
        self.has >> op as u32 & 1 != 0
    }

    /// The policy never gets called again.
    pub fn silence(&mut self) {
        self.has = 0;
    }

    pub fn has_flag(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    pub fn instance(&self) -> Option<&Instance> {
        match &self.port {
            Port::Instance(i) => Some(i),
            _ => None,
        }
    }

    /// BPF instructions executed so far.
    pub fn insns(&self) -> u64 {
        self.instance().map_or(0, Instance::insns)
    }

    #[inline]
    pub fn set_clock(&mut self, now: Nanos, cpu: CpuId) {
        if let Port::Instance(i) = &self.port {
            let raw = i.raw();
            // SAFETY: the instance's own structure; nobody holds a reference into it.
            unsafe {
                (*raw).now = now;
                (*raw).ktime = now;
                (*raw).cpu = cpu;
            }
        }
    }
}

impl Handle {
    /// Call an operation the policy has. 0 if it trapped (which ends the run).
    #[inline(always)]
    pub fn call<const N: usize>(self, op: Op, args: [u64; N]) -> u64 {
        debug_assert!(self.policy.has(op));
        let mut context = [0; 6];
        context[..N].copy_from_slice(&args);
        match &self.policy.port {
            Port::Instance(i) => {
                let i: *const Instance = &raw const **i;
                // SAFETY: the instance lives as long as the machine; arguments are the operation's own.
                match unsafe { (*i).call_with(op, &context) } {
                    Ok(v) => v,
                    Err(trap) => self.trapped(op, trap),
                }
            }
            #[cfg(test)]
            Port::Double(_) => self.call_double(op, &args),
            Port::None => 0,
        }
    }

    #[cfg(test)]
    fn call_double(mut self, op: Op, args: &[u64]) -> u64 {
        let Port::Double(f) = &mut self.policy.port else {
            return 0;
        };
        let f: *mut dyn FnMut(Handle, Op, &[u64]) -> u64 = &raw mut **f;
        // SAFETY: tests' doubles are not replaced while they run; nesting calls the same closure, which
        // keeps its state in cells.
        unsafe { (*f)(self, op, args) }
    }

    #[cold]
    pub fn trapped(mut self, op: Op, trap: Box<Trap>) -> u64 {
        let policy = self.policy.name.clone();
        let at_ns = self.now;
        let beyond = match trap.kind {
            TrapKind::BadAccess { address, .. } => {
                self.policy.instance().and_then(|i| i.beyond(address))
            }
            _ => None,
        };
        self.fail(SimError::Trap {
            policy,
            op: op.name(),
            at_ns,
            trap,
            beyond,
        });
        self.policy.silence();
        0
    }

    /// Call an operation about a task with one more argument, if the policy has it.
    #[inline(always)]
    pub fn op_task(mut self, op: Op, task: TaskId, arg: u64) {
        if self.policy.has(op) {
            self.policy.about = task;
            let rq = self.tasks.hot[task as usize].cpu;
            self.call_with(op, Some(rq), self.tasks.ptr(task) as u64, arg, 0);
        }
    }

    /// ops.yield to a given task: does the policy see to it?
    pub fn call_yield(mut self, rq: CpuId, from: u64, to: u64) -> bool {
        let outer = self.policy.locked_rq.replace(rq);
        let done = self.call(Op::Yield, [from, to]) as u8 != 0;
        self.policy.locked_rq = outer;
        done
    }

    /// Call an operation about a CPU with one more argument, if the policy has it.
    #[inline(always)]
    pub fn op_cpu(self, op: Op, cpu: CpuId, arg: u64) {
        if self.policy.has(op) {
            self.call_with(op, Some(cpu), cpu as u64, arg, 0);
        }
    }

    /// Call an operation the policy has, of at most three arguments, with this run queue locked.
    #[inline(always)]
    fn call_with(mut self, op: Op, rq: Option<CpuId>, a: u64, b: u64, c: u64) -> u64 {
        let outer = std::mem::replace(&mut self.policy.locked_rq, rq);
        let result = self.call(op, [a, b, c]);
        self.policy.locked_rq = outer;
        result
    }

    /// Call an operation without a run queue locked, if the policy has it; 0 if not.
    pub fn op_unlocked<const N: usize>(mut self, op: Op, args: [u64; N]) -> u64 {
        if !self.policy.has(op) {
            return 0;
        }
        let outer = self.policy.locked_rq.take();
        let result = self.call(op, args);
        self.policy.locked_rq = outer;
        result
    }

    /// Ask the policy, which has ops.select_cpu, for a CPU.
    #[inline(always)]
    pub fn call_select_cpu(mut self, task: TaskId, prev: CpuId, wake_flags: u64) -> i32 {
        self.policy.about = task;
        let p = self.tasks.ptr(task) as u64;
        self.call_with(Op::SelectCpu, None, p, prev as u64, wake_flags) as i32
    }

    /// Run `f` while the policy may read and write these bytes (an argument structure).
    pub fn with_args<R>(mut self, addr: u64, size: usize, f: impl FnOnce(Handle) -> R) -> R {
        self.args.push((addr, size));
        let result = f(self);
        self.args.pop();
        result
    }

    /// An error of the policy: it will be ejected (the first exit wins). Checked mode adds where the policy is.
    #[cold]
    pub fn scx_error(self, mut message: String) {
        let instance = self.policy.instance();
        if let Some(place) = instance.and_then(|i| interp::position(i.raw())) {
            message += &format!(" ({place})");
        }
        self.scx_exit(ExitKind::Error, 0, message);
    }
}
