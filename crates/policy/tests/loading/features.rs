// SPDX-License-Identifier: GPL-2.0-only
//! The programs of `features.bpf.c`, in both executors, compiled for two instruction sets.
use super::kernel::{Machine, VTABLE, attach};
use berth_policy::abi::{FUNC_TAG, Op};
use berth_policy::compile::{self, CompileOptions};
use berth_policy::instance::{Const, Instance, InstanceConfig, Mode};
use berth_policy::policy::{LoadOptions, Policy};
use berth_policy::profile::Kconfig;
use std::path::Path;

fn policy(cpu: &'static str) -> Policy {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/loading/features.bpf.c");
    let options = CompileOptions {
        cpu,
        ..CompileOptions::default()
    };
    let object = compile::compile(&source, &options).unwrap();
    Policy::from_object(&object, &LoadOptions::default()).unwrap()
}

fn config(mode: Mode) -> InstanceConfig {
    let mut config = InstanceConfig {
        mode,
        seed: 1,
        ..InstanceConfig::new(8)
    };
    config
        .kconfig
        .insert("CONFIG_HZ".into(), Kconfig::Int(1000));
    config.consts.insert("constant".into(), Const::Int(77));
    config
        .consts
        .insert("text".into(), Const::Bytes(b"a\0".to_vec()));
    config
}

fn instance(policy: &Policy, mode: Mode, machine: &mut Machine) -> Box<Instance> {
    let instance = Instance::new(policy, None, &config(mode), &VTABLE).unwrap();
    attach(&instance, machine);
    // SAFETY: one thread, nothing runs.
    unsafe {
        (*instance.raw()).cpu = 2;
        (*instance.raw()).now = 444;
        (*instance.raw()).ktime = 555;
    }
    instance
}

fn run(instance: &Instance, program: &str, context: &mut [u64]) -> u64 {
    // SAFETY: the programs take a context of at most three words, or none.
    let result = unsafe { instance.syscall(program, context) }.unwrap();
    result.unwrap_or_else(|t| panic!("{program}, {:?}: {t:?}", instance.mode()))
}

#[test]
fn every_feature_in_both_executors() {
    for cpu in ["v3", "v4"] {
        let policy = policy(cpu);
        let mut counts = Vec::new();
        for mode in [Mode::Native, Mode::Checked] {
            let mut machine = Machine::new();
            let instance = instance(&policy, mode, &mut machine);
            let mut programs = 0;
            for (name, _) in &policy.program().syscalls {
                let failed = run(&instance, name, &mut [0; 3]);
                assert_eq!(
                    failed, 0,
                    "{name}, {mode:?}, {cpu}: the check in line {failed}"
                );
                programs += 1;
            }
            assert!(programs >= 13, "all programs were found");
            counts.push(instance.insns());
        }
        assert_eq!(counts[0], counts[1], "{cpu}: same instruction counts");
    }
}

#[test]
fn the_host_sees_maps_and_context() {
    let policy = policy("v3");
    for mode in [Mode::Native, Mode::Checked] {
        let mut machine = Machine::new();
        let instance = instance(&policy, mode, &mut machine);
        let mut numbers = [20, 22, 0];
        assert_eq!(run(&instance, "context", &mut numbers), 0);
        assert_eq!(numbers[2], 42);

        assert_eq!(run(&instance, "arrays", &mut [0]), 0);
        let percpu = instance.map("percpu").unwrap();
        let values = percpu.lookup(&1u32.to_le_bytes()).unwrap();
        assert_eq!(values.len(), 8 * 8, "one value per CPU of the machine");
        assert_eq!(values[16..24], 5u64.to_le_bytes());

        assert_eq!(run(&instance, "hashes", &mut [0]), 0);
        let hash = instance.map("hash").unwrap();
        let mut keys = hash.keys();
        keys.sort();
        assert_eq!(
            keys,
            [0u64.to_le_bytes().to_vec(), 2u64.to_le_bytes().to_vec()]
        );
        assert_eq!(hash.delete(&0u64.to_le_bytes()), Ok(()));
        assert_eq!(hash.delete(&0u64.to_le_bytes()), Err(-2));
        assert_eq!(hash.len(), 1);

        assert_eq!(run(&instance, "storages", &mut [0]), 0);
        assert_eq!(instance.map("tasks").unwrap().len(), 1);
        for i in 0..8 {
            instance.task_gone(i);
        }
        assert_eq!(instance.map("tasks").unwrap().len(), 0);
    }
}

#[test]
fn prints_are_counted_and_kept_on_request() {
    let policy = policy("v3");
    for mode in [Mode::Native, Mode::Checked] {
        let mut machine = Machine::new();
        let instance = instance(&policy, mode, &mut machine);
        assert_eq!(run(&instance, "strings", &mut [0]), 0);
        assert_eq!((instance.prints(), instance.take_prints().len()), (1, 0));
        instance.keep_prints();
        assert_eq!(run(&instance, "strings", &mut [0]), 0);
        assert_eq!(instance.prints(), 2);
        assert_eq!(instance.take_prints(), ["line 1"]);
    }
}

#[test]
fn timers_lead_to_their_element() {
    let policy = policy("v3");
    for mode in [Mode::Native, Mode::Checked] {
        let mut machine = Machine::new();
        let instance = instance(&policy, mode, &mut machine);
        assert_eq!(run(&instance, "timers", &mut [0]), 0);
        let map = policy
            .program()
            .maps
            .iter()
            .position(|m| m.name == "array")
            .unwrap();
        assert_eq!(policy.program().maps[map].timers, [8]);
        let value = instance
            .map("array")
            .unwrap()
            .address(&2u32.to_le_bytes())
            .unwrap();
        let (found, place) = instance.locate(value as u64 + 8).unwrap();
        assert_eq!(
            (found, place.element, place.offset, place.value),
            (map, 2, 8, value)
        );
        // SAFETY: an array's key is its index.
        assert_eq!(unsafe { place.key.cast::<u32>().read() }, 2);
        assert!(instance.locate(8).is_none());
        // What the engine does when the time has come.
        let callback = policy
            .program()
            .funcs
            .iter()
            .position(|f| f.name == "on_timer")
            .unwrap();
        let args = [
            instance.map_address(map) as u64,
            place.key as u64,
            place.value as u64,
        ];
        // SAFETY: the element's own key and value.
        unsafe { instance.call_func(FUNC_TAG | callback as u64, Op::Timer, &args) }.unwrap();
        // SAFETY: `count` is the value's first field.
        assert_eq!(unsafe { value.cast::<u64>().read() }, 1002);
        // SAFETY: no function has this number.
        unsafe { instance.call_func(FUNC_TAG | 9999, Op::Timer, &args) }.expect_err("no function");
    }
}

#[test]
fn settings_are_checked() {
    let policy = policy("v3");
    let fails = |change: &dyn Fn(&mut InstanceConfig)| {
        let mut config = config(Mode::Native);
        change(&mut config);
        match Instance::new(&policy, None, &config, &VTABLE) {
            Ok(_) => panic!("must be refused"),
            Err(e) => e.to_string(),
        }
    };
    let message = fails(&|c| _ = c.consts.insert("nothing".into(), Const::Int(1)));
    assert!(message.contains("no variable `nothing`"), "{message}");
    let message = fails(&|c| _ = c.consts.insert("constant".into(), Const::Int(1 << 40)));
    assert!(message.contains("does not fit"), "{message}");
    let message = fails(&|c| _ = c.params.insert("slice".into(), "1".into()));
    assert!(message.contains("no parameter `slice`"), "{message}");
    let message = fails(&|c| _ = c.map_entries.insert("nothing".into(), 1));
    assert!(message.contains("no map `nothing`"), "{message}");
    let message = fails(&|c| c.nr_cpus = 0);
    assert!(message.contains("0 CPUs"), "{message}");
    let message = fails(&|c| c.nr_cpus = 5000);
    assert!(message.contains("4096"), "{message}");
}

#[test]
fn equal_constants_are_shared_and_data_is_not() {
    let policy = policy("v3");
    let new = |c: &InstanceConfig| Instance::new(&policy, None, c, &VTABLE).unwrap();
    let (a, b) = (new(&config(Mode::Native)), new(&config(Mode::Native)));
    let mut other = config(Mode::Native);
    other.consts.insert("constant".into(), Const::Int(78));
    let c = new(&other);
    let at = |i: &Instance, name: &str| i.var(name).unwrap().0;
    assert_eq!(at(&a, "constant"), at(&b, "constant"));
    assert_ne!(at(&a, "constant"), at(&c, "constant"));
    assert_ne!(at(&a, "zero"), at(&b, "zero"));
}
