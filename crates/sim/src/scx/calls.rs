// SPDX-License-Identifier: GPL-2.0-only
//! What a policy's own loader runs in the kernel around the start: its `SEC("syscall")` programs.
use super::kernel::Handle;
use crate::error::SimError;
use crate::words::CpuId;
use berth_policy::abi::Op;
use berth_policy::instance::Instance;
use berth_policy::loader::calls::{Call, When};
use std::sync::atomic::Ordering;

impl Handle {
    /// Before the scheduler begins, whose functions find none until then (`load_policy`); whether it may.
    pub fn calls_before(self) -> bool {
        let good = self.calls(|call| (call.when == When::Before).then_some(0));
        if let Some(instance) = self.policy.instance() {
            instance.call_own();
        }
        good
    }

    /// When it has begun.
    pub fn calls_after(self) {
        self.calls(|call| match call.when {
            When::After { cpu } => Some(cpu),
            When::Before => None,
        });
    }

    /// Runs those that `cpu_of` has a CPU for, up to the first that fails; whether all went well.
    fn calls(self, cpu_of: impl Fn(&Call) -> Option<CpuId>) -> bool {
        let Some(instance) = self.policy.instance() else {
            return true;
        };
        let instance: *const Instance = instance;
        // SAFETY: the instance lives as long as the machine.
        let instance = unsafe { &*instance };
        let calls = instance.policy().program().calls.iter();
        let (now, on) = (self.now, self.exec);
        let good = calls
            .filter_map(|call| Some((call, cpu_of(call)?)))
            .all(|(call, cpu)| self.run_program(instance, call, cpu));
        self.begin(now, on);
        good
    }

    fn run_program(mut self, instance: &Instance, call: &Call, cpu: CpuId) -> bool {
        if self.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            let at_ns = self.now;
            self.fail(SimError::Cancelled { at_ns });
            return false;
        }
        let cpus = self.cpus.len() as CpuId;
        let failed = |said: String| {
            let arguments: Vec<_> = call.arguments.iter().map(i32::to_string).collect();
            let arguments = arguments.join(", ");
            self.scx_error(format!(
                "{}({arguments}), which its loader runs, {said}",
                call.program
            ));
            false
        };
        if cpu >= cpus {
            return failed(format!("is to run on CPU {cpu} of {cpus}"));
        }
        let now = self.now;
        self.begin(now, cpu);
        let mut bytes = call.context();
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let (words, _) = bytes.as_chunks::<8>();
        let mut context: Vec<u64> = words.iter().map(|w| u64::from_le_bytes(*w)).collect();
        // SAFETY: the program is given its context, which outlives the call, and nothing else.
        match unsafe { instance.syscall(&call.program, &mut context) } {
            Ok(Ok(0)) => !self.exit.claimed(),
            Ok(Ok(value)) => failed(format!("gave {}", value as i32)),
            Ok(Err(trap)) => {
                self.trapped(Op::Syscall, Box::new(trap));
                false
            }
            Err(e) => {
                self.fail(SimError::from(e));
                false
            }
        }
    }
}
