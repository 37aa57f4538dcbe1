// SPDX-License-Identifier: GPL-2.0-only
//! What the optimiser costs as it watches and decides: `cargo run --release -p berth-agent --example optimiser_cost`.
//!
//! Synthetic hosts of 100 and 2,000 VMs with 8 threads each are unpacked into memory (`/dev/shm` where there is one)
//! and looked at as the daemon does, for 20 s each; nothing is set. Files in memory are cheaper than those of `/proc`:
//! `cargo run --release -p berth-host --example cost` measures by how much.
use berth_actuator::live::Live;
use berth_agent::backend::cgroup::manager::Manager;
use berth_agent::backend::cgroup::parameters::settings;
use berth_agent::daemon::pause;
use berth_agent::keeper::Keeper;
use berth_agent::rules::Rules;
use berth_host::fixture::Fixture;
use berth_host::pace::cpu_time;
use berth_host::root::Root;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

const OVER: Duration = Duration::from_secs(20);
/// Besides the main thread and four vCPUs.
const HELPERS: [&str; 3] = ["IO iothread1", "call_rcu", "worker"];

fn host(vms: u32) -> String {
    let mut text = String::from(
        "file proc/1/mountinfo \"30 24 0:26 / /sys/fs/cgroup rw - cgroup2 n rw\\n\"\n",
    );
    for vm in 0..vms {
        let (pid, group) = (10_000 + vm * 10, format!("machine/vm{vm}"));
        let _ = write!(
            text,
            "process {pid} qemu-system-x86 start=5 sched=1,0,1\n\
             args /usr/bin/qemu-system-x86_64 -name guest=vm{vm},debug-threads=on\ncgroup 0::/{group}\n\
             fd 9 anon_inode:kvm-vm\n"
        );
        for vcpu in 0..4 {
            let tid = pid + 1 + vcpu;
            let _ = write!(
                text,
                "fd {} anon_inode:kvm-vcpu:{vcpu}\n\
                 thread {tid} \"CPU {vcpu}/KVM\" start=6 run={} sched=1000000,20000,50\n",
                20 + vcpu,
                20 + vcpu
            );
        }
        for (i, name) in (5..).zip(HELPERS) {
            let _ = writeln!(
                text,
                "thread {} \"{name}\" start=6 sched=1000,0,50",
                pid + i
            );
        }
        for file in ["cgroup.procs", "cpu.weight", "cpu.max", "cpuset.cpus"] {
            let value = match file {
                "cgroup.procs" => pid.to_string(),
                "cpu.weight" => "100".into(),
                "cpu.max" => "max 100000".into(),
                _ => String::new(),
            };
            let _ = writeln!(text, "file sys/fs/cgroup/{group}/{file} \"{value}\\n\"");
        }
    }
    for cpu in 0..64 {
        let _ = writeln!(
            text,
            "file sys/devices/system/cpu/cpu{cpu}/topology/core_id {cpu}"
        );
    }
    text + "file sys/devices/system/cpu/online 0-63\n"
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for vms in [100, 2000] {
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory)?,
            false => tempfile::tempdir()?,
        };
        Fixture::parse(&host(vms))?.unpack(folder.path())?;
        let root = Root::at(folder.path());
        let mut keeper = Keeper::new(root.clone(), Rules::default());
        keeper.watch_classes(root.clone());
        let mut manager = Manager::<Live>::dry(root.clone(), settings(&BTreeMap::new())?, None)?;
        // The first look knows nothing yet.
        keeper.look()?;
        manager.look(&keeper);
        let (begun, before, mut looks) = (Instant::now(), cpu_time(), 0);
        let mut spent = Duration::ZERO;
        while begun.elapsed() < OVER {
            let start = Instant::now();
            keeper.look()?;
            let looked = cpu_time();
            manager.look(&keeper);
            spent += cpu_time() - looked;
            looks += 1;
            let took = start.elapsed();
            std::thread::sleep(pause(took).saturating_sub(took));
        }
        let part = |time: Duration| time.as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0;
        let decisions = manager.counters()["decisions"];
        println!(
            "{vms} VMs: {:.2} % of a CPU, {:.2} of it to decide; {looks} looks, {decisions} decisions in {:.0} s",
            part(cpu_time() - before),
            part(spent),
            begun.elapsed().as_secs_f64()
        );
    }
    Ok(())
}
