// SPDX-License-Identifier: GPL-2.0-only
//! VMs that mean the others no good, beside a latency VM, a batch VM that sleeps and wakes, and two that always run.
//! Whatever the attack and the class it claims: nobody has more than its share, and who is within its own waits for no
//! more than `shield_us` for each latency VM that is before it.
use super::{HOG, MS, assert_near, run, run_for, run_with, vm, vmfair};
use berth_sim::oracle::enemies;

#[test]
fn no_attack_gains_a_share_or_costs_a_latency_vm_its_latency() {
    let policy = ("vmfair", vmfair());
    for cores in [1, 2, 4, 8] {
        let calm_us = enemies::calm_p99_us(policy.0, policy.1, cores, 1).unwrap();
        for attack in &enemies::ATTACKS {
            for class in ["latency", "batch"] {
                let what = format!("{} as {class} on {cores} CPUs", attack.name);
                let o = enemies::run(policy, cores, attack, class, 1)
                    .unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(o.gain <= 0.02, "{what}: {o:?}");
                assert!(o.lack <= 0.02, "{what}: {o:?}");
                assert!(o.quiet > 0.8, "{what}: {o:?}");
                let most_us = (1.2 * calm_us).max(100.0);
                assert!(o.victim_p99_us <= most_us, "{what}, calm {calm_us}: {o:?}");
            }
        }
    }
}

/// A VM of weight 1 is due a hundredth, with 64 vCPUs or 256 as with one. `patience_ms`, counted for each of its
/// threads, gave it four times that with 64, 0.086 CPUs. With 256 it has half of it in 20 s: less than a turn for each.
#[test]
fn patience_is_no_share() {
    for vcpus in [64, 256] {
        let text = format!(
            "[host]\ncores = 2\n{HOG}{}{}",
            vm("many", vcpus, 1, "batch", "hog"),
            vm("one", 2, 100, "batch", "hog")
        );
        let m = run_for("20s", &text, 1);
        let (had, due) = (m["many.cpu"], 2.0 / 101.0);
        let least = if vcpus == 64 { 0.5 } else { 0.4 };
        assert!(
            least * due < had && had < 1.02 * due,
            "{vcpus} vCPUs: {had} CPUs, due {due}"
        );
        let longest = m["many.run_delay.max"];
        assert!(longest <= 5_000.0 * MS, "one waits {} ms", longest / MS);
    }
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
