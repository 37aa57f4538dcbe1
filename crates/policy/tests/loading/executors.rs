// SPDX-License-Identifier: GPL-2.0-only
//! A policy through both executors with the same events: same results, same kernel calls, same data, same instruction
//! counts. For policies of the tests (`side_by_side.rs`) and shipped ones (`crates/builtin/tests`).
use super::kernel::{Call, Machine, NR_CPUS, VTABLE, attach};
use berth_policy::abi::Op;
use berth_policy::instance::{Instance, InstanceConfig, Mode};
use berth_policy::policy::Policy;

#[derive(Debug, PartialEq)]
struct Trace {
    results: Vec<(Op, Result<u64, String>)>,
    log: Vec<Call>,
    insns: u64,
    /// Section contents, addresses hidden.
    data: Vec<(String, Vec<u64>)>,
    maps: Vec<(String, Vec<Vec<u8>>)>,
}

/// What a machine does with six tasks, in an order that visits every operation.
fn run(policy: &Policy, mode: Mode) -> Trace {
    let mut machine = Machine::new();
    let config = InstanceConfig {
        mode,
        seed: 7,
        ..InstanceConfig::new(NR_CPUS as u32)
    };
    let var = policy.program().structs.first().map(|s| s.var.as_str());
    let instance = Instance::new(policy, var, &config, &VTABLE).unwrap();
    attach(&instance, &mut machine);
    let mut results = Vec::new();
    let mut call = |op: Op, cpu: u32, args: &[u64]| {
        // SAFETY: one thread; arguments as the operation's prototype wants them.
        unsafe {
            let raw = instance.raw();
            (*raw).cpu = cpu;
            (*raw).now += 700_000;
            (*raw).ktime = (*raw).now + 3;
            let result = instance.call(op, args).map_err(|t| format!("{:?}", t.kind));
            // What an operation without result leaves in r0 may be an address.
            results.push((op, result.map(hide)));
        }
    };
    call(Op::Init, 0, &[]);
    let [init, exit, cgroup] = machine.arguments();
    for c in 0..2 {
        call(Op::CgroupInit, 0, &[machine.cgroup(c), cgroup]);
    }
    for i in 0..6 {
        call(Op::InitTask, 0, &[machine.task(i), init]);
        call(Op::Enable, 0, &[machine.task(i)]);
    }
    for round in 0..40u64 {
        let i = (round * 5 % 6) as usize;
        let (t, cpu) = (machine.task(i), (round % NR_CPUS as u64) as u32);
        call(Op::Runnable, cpu, &[t, round & 1]);
        call(Op::SelectCpu, cpu, &[t, round % NR_CPUS as u64, 8]);
        call(Op::Enqueue, cpu, &[t, round & 1]);
        call(
            Op::Dispatch,
            cpu,
            &[u64::from(cpu), if round % 3 == 0 { 0 } else { t }],
        );
        call(Op::Running, cpu, &[t]);
        call(Op::Tick, cpu, &[t]);
        call(Op::Stopping, cpu, &[t, round >> 1 & 1]);
        call(Op::Quiescent, cpu, &[t, 1]);
        if round % 7 == 0 {
            call(Op::SetWeight, cpu, &[t, 300]);
            call(Op::SetCpumask, cpu, &[t, machine.mask()]);
            call(Op::CgroupSetWeight, cpu, &[machine.cgroup(1), 50 + round]);
            call(Op::UpdateIdle, cpu, &[u64::from(cpu), 1]);
            call(Op::Dequeue, cpu, &[t, 1]);
        }
    }
    for i in 0..6 {
        call(Op::ExitTask, 0, &[machine.task(i), exit]);
        instance.task_gone(i as u32);
    }
    let trace_data = policy.program().sections.iter().map(|s| {
        let words = s.vars.iter().filter_map(|v| {
            let (address, size) = instance.var(&v.name)?;
            // SAFETY: the variable's bytes.
            let bytes = unsafe { std::slice::from_raw_parts(address, size) };
            Some(
                bytes
                    .chunks(8)
                    .map(|c| {
                        let mut w = [0; 8];
                        w[..c.len()].copy_from_slice(c);
                        hide(u64::from_le_bytes(w))
                    })
                    .collect::<Vec<_>>(),
            )
        });
        (s.name.clone(), words.flatten().collect())
    });
    let data = trace_data.collect();
    let maps = policy
        .program()
        .maps
        .iter()
        .map(|m| (m.name.clone(), instance.map(&m.name).unwrap().keys()))
        .collect();
    let insns = instance.insns();
    drop(instance);
    Trace {
        results,
        log: std::mem::take(&mut machine.log),
        insns,
        data,
        maps,
    }
}

fn hide(word: u64) -> u64 {
    if (0x1000_0000_0000..0x8000_0000_0000).contains(&word) {
        1
    } else {
        word
    }
}

pub fn do_the_same(name: &str, policy: &Policy) {
    let (native, checked) = (run(policy, Mode::Native), run(policy, Mode::Checked));
    for (i, (n, c)) in native.results.iter().zip(&checked.results).enumerate() {
        assert_eq!(n, c, "{name}: callback {i}");
        assert!(n.1.is_ok(), "{name}: callback {i}: {n:?}");
    }
    for (i, (n, c)) in native.log.iter().zip(&checked.log).enumerate() {
        assert_eq!(n, c, "{name}: kernel call {i}");
    }
    assert_eq!(native, checked, "{name}");
    assert!(
        native.log.len() > 40 && native.insns > 1000,
        "{name}: it did something"
    );
}
