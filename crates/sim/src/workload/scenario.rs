// SPDX-License-Identifier: GPL-2.0-only
//! The work of a scenario: its parts, each with a subject and a file of its own.
use super::agents::Agents;
use super::api::Ctx;
use super::api::{HOST, Nanos, Role};
use super::blocks::Blocks;
use super::clients::Clients;
use super::completion::Completion;
use super::device::Device;
use super::device::disk::Disks;
use super::device::net::{Net, NetStream};
use super::devices::{Board, Devices};
use super::homes::Homes;
use super::masks::Masks;
use super::program::Programs;
use super::requests::Requests;
use super::sync::Sync;
use super::threads::Threads;
use crate::guest::machine_of;
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::Scenario;
use berth_scenario::placement::{self, HostThread, PlacementError};
use std::collections::BTreeSet;

/// The work of one run of a scenario.
pub struct ScenarioWorkload {
    /// Where threads live.
    pub(super) homes: Homes,
    /// What tasks do.
    pub(super) programs: Programs,
    pub(super) masks: Masks,
    /// Who does it.
    pub(super) threads: Threads,
    /// What they wait for each other with.
    pub(super) sync: Sync,
    /// What they are asked and say to each other.
    pub(super) requests: Requests,
    pub(super) devices: Devices,
    /// Where threads are in steps that read or write.
    pub(super) blocks: Blocks,
    pub(super) completion: Completion,
    /// Who moves tasks inside mixed VMs.
    pub(super) agents: Agents,
}

impl ScenarioWorkload {
    /// Errors: what cannot be folded onto vCPU threads.
    pub fn new(scenario: &Scenario, seed: u64) -> Result<ScenarioWorkload, PlacementError> {
        ScenarioWorkload::with_guests(scenario, seed, &|_| false)
    }

    /// As [`ScenarioWorkload::new`]; `guest` tells which VM groups have the guest level: the tasks of their VMs are
    /// tasks of the machine inside, which the [`crate::Simulation`] must have been given.
    ///
    /// # Errors
    /// What does not fit together.
    pub fn with_guests(
        scenario: &Scenario,
        seed: u64,
        guest: &dyn Fn(usize) -> bool,
    ) -> Result<ScenarioWorkload, PlacementError> {
        let specs = placement::threads_where(scenario, guest)?;
        let mut programs = Programs::new(scenario)?;
        let homes = Homes::new(scenario, seed, guest);
        let clients = Clients::new(scenario, &programs, seed);
        let of = |t: &HostThread| Some((t.vm.as_ref()?.ordinal, t.role.vcpu()?));
        let with_work: BTreeSet<(u32, u32)> = specs.iter().filter_map(of).collect();
        let has_work = |vm: u32, vcpu: u32| with_work.contains(&(vm, vcpu));
        let streams = clients.streams.iter().map(|s| NetStream {
            vm: s.vm,
            bytes: s.bytes,
            acknowledges: s.acknowledges,
        });
        let net = Net::new(scenario, streams, has_work)?;
        let moves = |vm: u32, vcpu: u32| {
            let mut of = net.iter().flat_map(|net| net.workers());
            has_work(vm, vcpu) || of.any(|w| (w.vm, w.role) == (vm, Role::Vcpu(vcpu)))
        };
        let disk = Disks::new(scenario, seed, programs.all.len(), moves)?;
        let devices = Devices { net, disk };
        let mut threads = Threads::default();
        threads.ordinals = specs.len() as u32;
        for (root, spec) in (0..).zip(specs) {
            threads.describe(spec, root, &programs);
        }
        for (post, worker) in devices.workers() {
            threads.describe_worker(worker, post, &homes);
        }
        threads.initial = threads.hosts.len() as u32;
        let mut requests = Requests::new(&homes, &programs, clients);
        // After those of the start: requests start them.
        for spec in placement::per_request(scenario, guest) {
            let home = spec.vm.as_ref().map_or(homes.host(), |vm| vm.ordinal);
            let machine = match homes.is_inside(home) {
                true => machine_of(home),
                false => HOST,
            };
            let host = threads.describe(spec, threads.hosts.len() as u32, &programs);
            let program = threads.hosts[host as usize].program;
            if let Some(queue) = programs.all[program as usize].queue {
                requests.starts_with(home, queue, host, machine);
            }
        }
        let counts = programs.names.counts();
        Ok(ScenarioWorkload {
            masks: Masks::new(std::mem::take(&mut programs.masks), homes.vms.len()),
            threads,
            sync: Sync::new(homes.count() as u32, counts, |home, pool| {
                Rng::new(seed, Stream::Pool { home, pool })
            }),
            requests,
            devices,
            blocks: Blocks::default(),
            completion: Completion::new(homes.count()),
            agents: Agents::new(homes.vms.len()),
            programs,
            homes,
        })
    }

    /// The devices, and what they reach.
    pub(super) fn plugged<'a>(&'a mut self, ctx: &'a mut Ctx) -> (&'a mut Devices, Board<'a>) {
        let board = Board {
            homes: &self.homes,
            threads: &self.threads,
            requests: &mut self.requests,
            ctx,
        };
        (&mut self.devices, board)
    }

    /// Keeps all response times, in the order of the replies (warm-up included).
    pub fn record_responses(&mut self) {
        self.requests.measured.record = Some(Vec::new());
    }

    /// Response times kept, in ns.
    pub fn responses(&self) -> &[Nanos] {
        self.requests.measured.record.as_deref().unwrap_or(&[])
    }

    /// Number of host threads at the start, vCPUs of guests included.
    pub fn host_threads(&self) -> usize {
        let inside = |host: &u32| self.threads.lives_inside(*host, &self.homes);
        let own = (0..self.threads.initial).filter(|h| !inside(h)).count();
        own + self.homes.guest_vcpus()
    }

    /// Number of tasks inside each VM at the start, by the VM's ordinal.
    pub fn guest_tasks(&self) -> Vec<usize> {
        let (threads, homes) = (&self.threads, &self.homes);
        let mut tasks = vec![0; homes.vms.len()];
        for host in (0..threads.initial).filter(|h| threads.lives_inside(*h, homes)) {
            tasks[threads.home_of(host, homes) as usize] += 1;
        }
        tasks
    }
}
