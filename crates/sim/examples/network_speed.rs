// SPDX-License-Identifier: GPL-2.0-only
//! What a request costs the simulator on each path of the network.
//!
//! `cargo run --release -p berth-sim --example network_speed`
//!
//! Eight VMs of one vCPU on eight CPUs, each asked 20,000 times a second at random moments, 10 us of work for
//! each, under the kernel model's own queue: events a request takes, and requests per CPU second.
use berth_scenario::{Input, read};
use berth_sim::machine::Shape;
use berth_sim::run::vm_specs;
use berth_sim::workload::api::Workload;
use berth_sim::workload::scenario::ScenarioWorkload;
use berth_sim::{MachineSpec, Simulation};
use std::collections::BTreeMap;

fn cpu_seconds() -> f64 {
    let mut ts = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a valid place for the answer; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut ts) };
    ts.tv_sec as f64 + ts.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("| path | events per request | requests per CPU second |");
    println!("|---|---|---|");
    for path in ["none", "direct", "vhost", "emulator", "driver-domain"] {
        let text = format!(
            "[host]\ncores = 8\n[vm.v]\ncount = 8\ntasks = [\"echo\"]\nguest = \"none\"\n\
             [vm.dom0]\nrole = \"driver\"\nvcpus = 2\nguest = \"none\"\n\
             [task.echo]\nloop = [\"receive c\", \"compute 10us\", \"reply\"]\n\
             [client.c]\nto = \"v\"\nsends = \"poisson(20000/s)\"\n[net]\npath = \"{path}\"\n"
        );
        let input = Input {
            name: "speed".into(),
            shown: "speed.toml".into(),
            text,
            folder: None,
        };
        let scenario = read(&input, &[])?.scenario;
        let work = ScenarioWorkload::new(&scenario, 1)?;
        let spec = MachineSpec::new(Shape::flat(scenario.host.nr_cpus()));
        let mut machine = Simulation::new(&spec, &vm_specs(&scenario), work);
        machine.load(Default::default());
        let begin = cpu_seconds();
        machine.start();
        let end = 5_000_000_000;
        machine.run_until(end)?;
        let took = cpu_seconds() - begin;
        machine.check()?;
        let mut metrics = BTreeMap::new();
        machine.workload.metrics(end, &mut metrics);
        let requests = metrics["v.requests"] * end as f64 / 1e9;
        let events = machine.world().events as f64;
        println!(
            "| {path} | {:.1} | {:.0} |",
            events / requests,
            requests / took
        );
    }
    Ok(())
}
