// SPDX-License-Identifier: GPL-2.0-only
//! VMs that mean the others no good, beside a latency VM, a batch VM that sleeps and wakes, and two that always run.
//! Whatever the attack and the class it claims: nobody has more than its share, and who is within its own waits for no
//! more than `shield_us` for each latency VM that is before it.
use super::{HOG, MS, assert_near, run, run_for, run_with, vm};
use berth_sim::oracle::share::{Claim, max_min};

/// What a thread of the attacker does: microseconds of work, then of sleep; 0: it never sleeps.
struct Attack {
    name: &'static str,
    threads: u32,
    work_us: u32,
    sleep_us: u32,
}

const fn attack(name: &'static str, threads: u32, work_us: u32, sleep_us: u32) -> Attack {
    Attack {
        name,
        threads,
        work_us,
        sleep_us,
    }
}

const ATTACKS: [Attack; 11] = [
    attack("always runs", 4, 0, 0),
    attack("many vCPUs", 32, 0, 0),
    attack("sleeps before the tick", 4, 3_900, 100),
    attack("sleeps four times a tick", 4, 900, 100),
    attack("sleeps for an instant", 4, 2_900, 5),
    attack("storm of 2 us", 2, 2, 10),
    attack("storm of 10 us", 2, 10, 10),
    attack("bursts of 1 ms", 4, 1_000, 3_000),
    attack("bursts of 3 ms", 4, 3_000, 9_000),
    attack("bursts of 40 ms", 4, 40_000, 120_000),
    attack("a herd", 32, 4_000, 500_000),
];

/// The victims of a host with so many CPUs, and what they wait for.
fn victims(cores: u32) -> String {
    format!(
        "[host]\ncores = {cores}\n{HOG}[task.serve]\nloop = [\"sleep exp(5ms)\", \"compute exp(200us)\"]\n{}{}{}{}",
        vm("victim", 1, 100, "latency", "serve"),
        vm("quiet", 2, 100, "batch", "serve"),
        vm("hog-a", 2 * cores, 100, "batch", "hog"),
        vm("hog-b", 2 * cores, 100, "batch", "hog"),
    )
}

/// The attacker: its tables, and the CPUs it would use if it were alone. Of short work the switches are a part that
/// counts.
fn mallory(a: &Attack, class: &str) -> (String, f64) {
    let vm = vm("mallory", a.threads, 100, class, "attack");
    let task = format!("{vm}[task.attack]\nthreads = {}\n", a.threads);
    let threads = f64::from(a.threads);
    if a.sleep_us == 0 {
        return (task + "model = \"busy\"\n", threads);
    }
    let (work, sleep) = (a.work_us, a.sleep_us);
    let part = match work {
        ..100 => 1.0,
        _ => f64::from(work) / f64::from(work + sleep),
    };
    (
        format!("{task}loop = [\"compute {work}us\", \"sleep {sleep}us\"]\n"),
        threads * part,
    )
}

#[test]
fn no_attack_gains_a_share_or_costs_a_latency_vm_its_latency() {
    let claim = |limit| Claim { weight: 1.0, limit };
    for cores in [1, 2, 4] {
        for attack in &ATTACKS {
            for class in ["latency", "batch"] {
                let (tables, wants) = mallory(attack, class);
                let m = run_for("1500ms", &(victims(cores) + &tables), 1);
                let what = format!("{} as {class} on {cores} CPUs", attack.name);
                let hog = f64::from(2 * cores);
                let others = m["victim.cpu"] + m["quiet.cpu"];
                let left = f64::from(cores) - others;
                let spare = 0.02 * f64::from(cores);
                let had = m["mallory.cpu"];
                let due = max_min(left, &[claim(hog), claim(hog), claim(wants)])[2];
                assert!(had <= due + spare, "{what}: {had} CPUs, due {due}");
                let due = max_min(left, &[claim(hog), claim(hog), claim(had)])[0];
                for name in ["hog-a.cpu", "hog-b.cpu"] {
                    assert!(
                        m[name] >= due - spare,
                        "{what}: {name} {}, due {due}",
                        m[name]
                    );
                }
                let quiet = m["quiet.cpu"] * 5.2 / 0.4;
                assert!(quiet > 0.8, "{what}: quiet has {quiet} of what it wants");
                let p99_us = m["victim.wakeup.p99"] / 1e3;
                assert!(p99_us <= 100.0, "{what}: the victim waits {p99_us} us");
            }
        }
    }
}

/// A VM of weight 1 is due a hundredth, with 64 vCPUs as with one. `patience_ms`, counted for each of its threads, gave
/// it four times that, 0.086 CPUs.
#[test]
fn patience_is_no_share() {
    let text = format!(
        "[host]\ncores = 2\n{HOG}{}{}",
        vm("many", 64, 1, "batch", "hog"),
        vm("one", 2, 100, "batch", "hog")
    );
    let m = run_for("20s", &text, 1);
    let (had, due) = (m["many.cpu"], 2.0 / 101.0);
    assert!(0.5 * due < had && had < 1.5 * due, "{had} CPUs, due {due}");
    let longest = m["many.run_delay.max"];
    assert!(longest <= 5_000.0 * MS, "one waits {} ms", longest / MS);
}

/// Threads that sleep for less than others' slices last: 0.06 CPUs of the 0.5 they are due. The same if those others
/// claim to be latency VMs.
#[test]
fn who_sleeps_shortly_has_its_share() {
    for class in ["batch", "latency"] {
        let text = format!(
            "[host]\ncores = 2\n{HOG}[task.short]\nthreads = 4\nloop = [\"compute 50us\", \"sleep 300us\"]\n{}{}{}{}",
            vm("short", 4, 100, "batch", "short"),
            vm("a", 2, 100, class, "hog"),
            vm("b", 2, 100, class, "hog"),
            vm("c", 2, 100, class, "hog")
        );
        assert_near(run(&text, 1)["short.cpu"], 0.5, 0.02, class);
    }
}

/// vCPUs of one latency VM that work for 1 ms and sleep for 1 ms would all work and then all sleep if they took turns,
/// and had 1.36 CPUs of the 1.6 they are due.
#[test]
fn siblings_do_not_preempt_each_other() {
    let text = format!(
        "[host]\ncores = 2\n{HOG}[task.beat]\nthreads = 4\nloop = [\"compute 1ms\", \"sleep 1ms\"]\n{}{}",
        vm("beats", 4, 400, "latency", "beat"),
        vm("hog", 2, 100, "batch", "hog")
    );
    assert_near(run(&text, 1)["beats.cpu"], 1.6, 0.03, "four vCPUs");
}

/// Who is brought forward for a moment only, and finds nobody else who wants the CPU, goes on.
#[test]
fn a_short_turn_does_not_idle_a_cpu() {
    let text = format!(
        "[host]\ncores = 2\n{HOG}[task.bound]\nthreads = 1\naffinity = [0]\nmodel = \"busy\"\n[task.rest]\nthreads = \
         1\nmodel = \"busy\"\n[task.naps]\nloop = [\"compute 40ms\", \"sleep 1s\"]\n[vm.split]\nvcpus = 2\nweight = \
         1\ntasks = [\"bound\", \"rest\"]\n{}affinity = [0]\n",
        vm("heavy", 1, 10000, "batch", "naps")
    );
    let m = run_with(&[("patience_ms", "10")], "8s", &text, 1);
    assert!(m["host.idle"] < 0.001, "idle {}", m["host.idle"]);
    let longest = m["split.run_delay.max"];
    assert!(longest < 60.0 * MS, "{} ms", longest / MS);
}

/// A latency VM beside 256 vCPUs that begin at once: virtual time stood still until each of them had run, and it waited
/// for half a second.
#[test]
fn a_herd_does_not_stop_the_clock() {
    let text = format!(
        "[host]\ncores = 2\n{HOG}[task.serve]\nloop = [\"sleep exp(2ms)\", \"compute 100us\"]\n{}{}start = \
         \"600ms\"\n",
        vm("victim", 1, 100, "latency", "serve"),
        vm("herd", 256, 100, "batch", "hog")
    );
    let m = run(&text, 1);
    // It may be as far ahead as others are behind who begin.
    let (p99, longest) = (m["victim.wakeup.p99"], m["victim.wakeup.max"]);
    assert!(
        longest <= 16.0 * MS,
        "the victim waited {} ms",
        longest / MS
    );
    assert!(p99 <= 0.1 * MS, "p99 {} ms", p99 / MS);
}
