// SPDX-License-Identifier: GPL-2.0-only
//! Threads that each follow a list of actions, over and over, for tests that look into a policy's maps.
use berth_policy::instance::Instance;
use berth_sim::workload::api::{Action, Ctx, Nanos, Role, TaskId, TaskSpec, Who, Workload};
use std::collections::BTreeMap;

#[allow(dead_code, reason = "most tests have one kind of cores")]
mod kinds;
#[allow(unused_imports, reason = "most tests have one kind of cores")]
pub use kinds::{host_of, kind, kinds};
mod shipped;
#[allow(unused_imports, reason = "some tests have policies of their own")]
pub use shipped::policy;

/// One thread: when it starts, what it does; `SleepUntil { at: x }` means: sleep this long.
pub struct Script {
    pub spec: TaskSpec,
    pub start_ns: Nanos,
    pub actions: Vec<Action>,
    /// CPU it is born on.
    pub on: u32,
    at: usize,
}

#[derive(Default)]
pub struct Cast {
    pub scripts: Vec<Script>,
    pub ids: Vec<TaskId>,
    /// CPUs that each thread may use; empty, or not that long: all.
    pub masks: Vec<Vec<u32>>,
    /// Threads that have begun to exit when they take up their second action.
    pub exiting: Vec<usize>,
}

impl Cast {
    /// A vCPU of VM number `vm`.
    pub fn vcpu(&mut self, vm: u32, vcpu: u32, start_ns: Nanos, actions: &[Action]) {
        self.scripts.push(Script {
            spec: TaskSpec {
                token: self.scripts.len() as u32,
                name: format!("v{vm}.{vcpu}"),
                vm: Some(vm),
                role: Role::Vcpu(vcpu),
                ..TaskSpec::default()
            },
            start_ns,
            actions: actions.to_vec(),
            on: 0,
            at: 0,
        });
        self.ids.push(u32::MAX);
    }
}

impl Workload for Cast {
    fn start(&mut self, ctx: &mut Ctx) {
        for (i, s) in self.scripts.iter_mut().enumerate() {
            if let Some(cpus) = self.masks.get(i).filter(|m| !m.is_empty()) {
                s.spec.affinity = ctx.mask(cpus);
            }
            ctx.at_on(s.on, s.start_ns, i as u64);
        }
    }
    fn born(&mut self, token: u32, task: TaskId) {
        self.ids[token as usize] = task;
    }
    fn died(&mut self, _: u32, _: TaskId) {}
    fn next(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action {
        let s = &mut self.scripts[who.token as usize];
        if s.at == 1 && self.exiting.contains(&(who.token as usize)) {
            ctx.exiting();
        }
        let action = s.actions[s.at % s.actions.len()].clone();
        s.at += 1;
        match action {
            Action::SleepUntil { at } => Action::SleepUntil { at: now + at },
            other => other,
        }
    }
    fn event(&mut self, token: u64, _: Nanos, ctx: &mut Ctx) {
        let spec = self.scripts[token as usize].spec.clone();
        ctx.spawn(&spec);
    }
    fn measure_from(&mut self, _: Nanos) {}
    fn metrics(&self, _: Nanos, _: &mut BTreeMap<String, f64>) {}
}

/// Reads and writes the maps and variables of a running policy, members by name.
pub struct Peek<'a>(pub &'a Instance);

impl Peek<'_> {
    fn place(&self, map: &str, field: &str) -> (usize, usize) {
        let map = self.0.map(map).unwrap_or_else(|| panic!("no map {map}"));
        let found = map.def().fields.iter().find(|f| f.name == field);
        let found = found.unwrap_or_else(|| panic!("no member {field}"));
        (found.offset as usize, found.size as usize)
    }

    /// A member of an element, sign extended if it is a `s32`: ask with `as i32`.
    pub fn get(&self, map: &str, key: u32, field: &str) -> u64 {
        let (offset, size) = self.place(map, field);
        let bytes = self.0.map(map).unwrap().lookup(&key.to_ne_bytes()).unwrap();
        let mut wide = [0u8; 8];
        wide[..size].copy_from_slice(&bytes[offset..offset + size]);
        u64::from_le_bytes(wide)
    }

    pub fn set(&self, map: &str, key: u32, field: &str, value: u64) {
        let (offset, size) = self.place(map, field);
        let handle = self.0.map(map).unwrap();
        let mut bytes = handle.lookup(&key.to_ne_bytes()).unwrap();
        bytes[offset..offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
        handle.update(&key.to_ne_bytes(), &bytes, 0).unwrap();
    }

    pub fn var(&self, name: &str) -> u64 {
        let (address, size) = self.0.var(name).unwrap_or_else(|| panic!("no {name}"));
        let mut wide = [0u8; 8];
        // SAFETY: a variable of the instance, of this size.
        unsafe { std::ptr::copy_nonoverlapping(address, wide.as_mut_ptr(), size) };
        u64::from_le_bytes(wide)
    }

    pub fn set_var(&self, name: &str, value: u64) {
        let (address, size) = self.0.var(name).unwrap_or_else(|| panic!("no {name}"));
        // SAFETY: a variable of the instance, of this size, while no callback runs.
        unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), address, size) };
    }

    /// Number of the vCPU that runs on a CPU; 0: none.
    pub fn curr(&self, cpu: u32) -> u32 {
        self.get("pcpus_by_cpu", cpu, "curr") as u32
    }

    pub fn vcpu(&self, index: u32, field: &str) -> u64 {
        self.get("vcpus", index, field)
    }
}
