// SPDX-License-Identifier: GPL-2.0-only
//! A policy's data is made for a machine, and the policy takes over.
use super::options::Options;
use crate::error::SimError;
use crate::scx::identity::{self, VmSpec};
use crate::scx::kernel::Handle;
use crate::scx::kfunc;
use crate::scx::ops::{Policy as Loaded, Port};
use crate::sim::Simulation;
use crate::words::VmId;
use crate::workload::api::Workload;
use berth_identity::MemoryRecord;
use berth_policy::instance::{Instance, InstanceConfig, Mode};
use berth_policy::ir::{Operation, Program, Size, Src};
use berth_policy::kview::{SchedExtEntity, TaskStruct};
use berth_policy::policy::Policy;
use berth_policy::profile::Kconfig;
use berth_scenario::model::Hz;
use std::collections::BTreeMap;
use std::mem::offset_of;

/// Does the policy store to `p->scx.slice` itself? Then ticks cannot be skipped: the store is noticed at the
/// next tick. (An equal offset into something else costs time only.)
fn writes_slices(program: &Program) -> bool {
    let slice = offset_of!(TaskStruct, scx) + offset_of!(SchedExtEntity, slice);
    let stores = |op: &Operation| {
        matches!(op, Operation::Store { size: Size::B8, off, src, .. }
            if *off as usize == slice && !matches!(src, Src::Imm(i) if *i < 0))
    };
    program
        .funcs
        .iter()
        .any(|f| f.insns.iter().any(|i| stores(&i.op)))
}

/// Do the machine's tasks have what the policy can reach?
fn reaches(k: Handle, policy: &Policy) -> Result<(), SimError> {
    if k.tasks.needs().cover(policy.needs()) {
        return Ok(());
    }
    let what = "the policy reaches more of the kernel's tasks than this machine has of them: \
                give `MachineSpec::needs` what `Policy::needs` says";
    Err(SimError::Setting(what.into()))
}

/// Make the policy's data for the host and let it take over.
///
/// # Errors
/// A parameter, map or constant that does not fit.
pub fn load_policy<W: Workload>(
    machine: &mut Simulation<W>,
    policy: &Policy,
    params: &BTreeMap<String, String>,
    vms: &[VmSpec],
    opts: &Options,
) -> Result<(), SimError> {
    let loaded = instance(machine.kernel(), policy, params, vms, opts)?;
    machine.load(loaded);
    Ok(())
}

/// As [`load_policy`], for the machine inside a VM (which has been given one).
///
/// # Errors
/// As [`load_policy`].
pub fn load_guest_policy<W: Workload>(
    machine: &mut Simulation<W>,
    vm: VmId,
    policy: &Policy,
    params: &BTreeMap<String, String>,
    opts: &Options,
) -> Result<(), SimError> {
    if let Some(k) = machine.guest(vm) {
        let loaded = instance(k, policy, params, &[], opts)?;
        machine.load_guest(vm, loaded);
    }
    Ok(())
}

/// A policy's data for one machine.
fn instance(
    mut k: Handle,
    policy: &Policy,
    params: &BTreeMap<String, String>,
    vms: &[VmSpec],
    opts: &Options,
) -> Result<Loaded, SimError> {
    reaches(k, policy)?;
    policy.fits(k.topo.nr_cpus())?;
    let mut config = InstanceConfig::new(k.topo.nr_cpus());
    config.seed = k.seed;
    config.params = params.clone();
    config.mode = if opts.checked {
        Mode::Checked
    } else {
        Mode::Native
    };
    let hz = match k.hz {
        Hz::Ticks(hz) => hz,
        Hz::Exact => 1000,
    };
    config
        .kconfig
        .insert("CONFIG_HZ".into(), Kconfig::Int(hz as i64));
    let machine = identity::Facts {
        vms: vms.len() as u32,
        cgroups: k.cgroups.groups.len() as u32,
        hz: match k.hz {
            Hz::Ticks(hz) => hz,
            Hz::Exact => 0,
        },
        slice_timer: k.flags.slice_timer,
        tick_phase_ns: k.tick_phase(),
    };
    identity::prepare(&mut config, policy, &k.topo, &machine);
    let ops_var = opts.ops_var.as_deref();
    let instance = Instance::new(policy, ops_var, &config, kfunc::vtable()?)?;
    instance.call_into(kfunc::unloaded()?);
    identity::fill(
        &instance,
        &k.topo,
        |cpu| k.capacity(cpu),
        vms,
        |vm| (!k.cgroups.shares(vm)).then(|| k.cgroups.of_vm(vm) as u64 + 1),
        |vm| {
            let parts = k.hardware.as_ref()?.memory_of(vm)?;
            Some(MemoryRecord::new(parts))
        },
    )
    .map_err(SimError::Setting)?;
    let var = policy.ops_var(ops_var)?;
    let ops: Vec<_> = var.ops.iter().map(|(op, _)| *op).collect();
    k.flags.real_ticks =
        ops.contains(&berth_policy::abi::Op::Tick) || writes_slices(policy.program());
    Ok(Loaded::new(
        Port::Instance(instance),
        &var.name,
        &ops,
        var.flags,
        var.timeout_ms,
        var.dispatch_max_batch,
    ))
}
