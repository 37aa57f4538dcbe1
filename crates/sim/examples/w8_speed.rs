// SPDX-License-Identifier: GPL-2.0-only
//! Speed of one machine under a shipped policy, statistics on, trace off:
//! `cargo run --release -p berth-sim --example w8_speed -- POLICY CPUS SECONDS HZ [TIMES]`. Eight tasks per CPU
//! compute 1 ms and sleep 4 ms, two only compute. HZ 0: slices end exactly. Times are CPU time, the best of TIMES
//! runs: on a busy machine the one that was disturbed least.
use berth_policy::policy::LoadOptions;
use berth_scenario::model::Hz;
use berth_sim::machine::Shape;
use berth_sim::run::{Options, load_policy};
use berth_sim::workload::api::{Action, Ctx, Nanos, TaskId, TaskSpec, Who, Workload};
use berth_sim::{Machine, MachineSpec};
use std::collections::BTreeMap;

struct W8 {
    workers: u32,
    hogs: u32,
    computed: Vec<bool>,
    cycles: u64,
}

impl Workload for W8 {
    fn start(&mut self, ctx: &mut Ctx) {
        for i in 0..(self.workers + self.hogs) as u64 {
            ctx.at_on(0, i % 80 * 61_000, i);
        }
    }
    fn born(&mut self, _: u32, _: TaskId) {}
    fn died(&mut self, _: u32, _: TaskId) {}
    fn next(&mut self, who: Who, now: Nanos, _: &mut Ctx) -> Action {
        if who.token >= self.workers {
            return Action::ComputeForever;
        }
        let computed = &mut self.computed[who.token as usize];
        *computed = !*computed;
        if *computed {
            Action::Compute { ns: 1_000_000 }
        } else {
            self.cycles += 1;
            Action::SleepUntil {
                at: now + 4_000_000,
            }
        }
    }
    fn event(&mut self, token: u64, _: Nanos, ctx: &mut Ctx) {
        ctx.spawn(&TaskSpec {
            token: token as u32,
            ..TaskSpec::default()
        });
    }
    fn measure_from(&mut self, _: Nanos) {}
    fn metrics(&self, _: Nanos, _: &mut BTreeMap<String, f64>) {}
}

/// CPU time of the calling thread, s.
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
    let args: Vec<String> = std::env::args().collect();
    let get = |i: usize, dfl: &str| args.get(i).cloned().unwrap_or(dfl.into());
    let name = get(1, "vtime");
    let cpus: u32 = get(2, "8").parse()?;
    let seconds: u64 = get(3, "60").parse()?;
    let hz: u32 = get(4, "1000").parse()?;
    let policy = berth_builtin::find(&name)
        .ok_or("no such shipped policy")?
        .load(&LoadOptions::default())?;
    let mut best = f64::INFINITY;
    let times: u32 = get(5, "1").parse()?;
    let mut line = String::new();
    for _ in 0..times.max(1) {
        let mut spec = MachineSpec::new(Shape::flat(cpus));
        spec.tasks = cpus as usize * 10;
        spec.hz = match hz {
            0 => Hz::Exact,
            hz => Hz::Ticks(hz),
        };
        let work = W8 {
            workers: cpus * 8,
            hogs: cpus * 2,
            computed: vec![false; cpus as usize * 8],
            cycles: 0,
        };
        let mut m = Machine::new(&spec, &[], work);
        load_policy(&mut m, &policy, &BTreeMap::new(), &[], &Options::default())?;
        m.start();
        let begin = cpu_seconds();
        m.run_until(seconds * 1_000_000_000)?;
        best = best.min(cpu_seconds() - begin);
        m.check()?;
        let k = m.kernel();
        let switches: u64 = k.cpus.iter().map(|c| c.switches).sum();
        line = format!(
            "{name}: {cpus} CPUs, {seconds} s at {hz} Hz: {best:.3} s, {:.0} sim-s/s, {:.2} M switches/s, {} cycles, \
             {:.1} insns/switch, hash {:016x}",
            seconds as f64 / best,
            switches as f64 / best / 1e6,
            m.workload.cycles,
            k.policy.insns() as f64 / switches as f64,
            k.hash.finish()
        );
    }
    println!("{line}");
    Ok(())
}
