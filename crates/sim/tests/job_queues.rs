// SPDX-License-Identifier: GPL-2.0-only
//! `mrsf` and the task schedulers it is compared with, against worked examples and closed forms (specification of
//! M-RSF, sections 6, 7 and 10; of task schedulers, sections 9 and 10). Times are in ms.
use berth_scenario::{Input, read};
use berth_sim::run::{Options, run_one};
use std::collections::BTreeMap;

#[path = "support/shipped.rs"]
mod shipped;

fn metrics(policy: &str, params: &[(&str, &str)], text: &str, seed: u64) -> BTreeMap<String, f64> {
    let input = Input {
        name: "jobs".into(),
        shown: "jobs".into(),
        text: format!(
            "title = \"jobs\"\n[run]\nwarmup = \"0s\"\nmeasure = \"28s\"\n[compare]\npolicies = [\"{policy}\"]\n{text}"
        ),
        folder: None,
    };
    let scenario = read(&input, &[])
        .unwrap_or_else(|e| panic!("{e}\n{}", input.text))
        .scenario;
    // As the textbooks have it; `rr` has slices only.
    let textbook = [("most_ms", "0")];
    let textbook = textbook.iter().filter(|_| policy != "rr");
    let params = textbook
        .chain(params)
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    let options = Options::default();
    run_one(
        &scenario,
        policy,
        &shipped::policy(policy),
        &params,
        seed,
        &options,
    )
    .unwrap_or_else(|e| panic!("{policy}: {e}"))
    .metrics
}

/// Threads, in this order: name, when it begins, how long it computes.
fn cast(cpus: u32, threads: &[(&str, u32, u32)]) -> String {
    let mut text = format!("[host]\ncores = {cpus}\nhz = \"exact\"\ncost = \"none\"\n");
    for (name, at, ms) in threads {
        text += &format!(
            "[vm.{name}]\nguest = \"none\"\nstart = \"{at}ms\"\ntasks = [\"{name}\"]\n[task.{name}]\nthreads = 1\n\
             loop = [\"compute {ms}ms\", \"exit\"]\nestimate = \"oracle\"\n"
        );
    }
    text
}

/// When each of these is done.
fn done<const N: usize>(
    policy: &str,
    params: &[(&str, &str)],
    cpus: u32,
    threads: &[(&str, u32, u32); N],
) -> [f64; N] {
    let m = metrics(policy, params, &cast(cpus, threads), 1);
    threads.map(|(name, at, _)| m[&format!("{name}.completion")] / 1e6 + f64::from(at))
}

/// Section 10: A=7, B=2, C=11, D=4, E=1, F=5, all there at 0. When each is done.
fn six(policy: &str, params: &[(&str, &str)], cpus: u32) -> [f64; 6] {
    let cast_of_six = [
        ("a", 0, 7),
        ("b", 0, 2),
        ("c", 0, 11),
        ("d", 0, 4),
        ("e", 0, 1),
        ("f", 0, 5),
    ];
    done(policy, params, cpus, &cast_of_six)
}

const LAMBDA: (&str, &str) = ("lambda_us", "5000");
/// M-RSF as the paper has it, with all CPUs for all queues.
const PLAIN: [(&str, &str); 5] = [
    ("unit", "task"),
    ("estimate", "label"),
    LAMBDA,
    ("q3_slice", "0"),
    ("aging", "0"),
];

fn plain(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    PLAIN.iter().chain(more).copied().collect()
}

const PER_QUEUE: (&str, &str) = ("cpus", "per_queue");

/// A policy, its parameters, CPUs, when the six are done, and how long they wait on average, all in ms.
type Row<'p> = (&'p str, Vec<(&'p str, &'p str)>, u32, [f64; 6], f64);

#[test]
fn six_tasks_end_when_they_do_on_paper() {
    let mean_wait = |ends: [f64; 6]| (ends.iter().sum::<f64>() - 30.0) / 6.0;
    let rr: [(&str, &str); 2] = [("queues", "2"), LAMBDA];
    let rows: [Row; 15] = [
        ("fcfs", vec![], 1, [7., 9., 20., 24., 25., 30.], 14.1667),
        ("sjf", vec![], 1, [19., 3., 30., 7., 1., 12.], 7.0),
        ("srtf", vec![], 1, [19., 3., 30., 7., 1., 12.], 7.0),
        (
            "rr",
            vec![("slice_us", "5000")],
            1,
            [24., 7., 30., 16., 17., 22.],
            14.3333,
        ),
        (
            "mlfq",
            vec![LAMBDA],
            1,
            [24., 7., 30., 16., 17., 22.],
            14.3333,
        ),
        (
            "las",
            vec![("turn_us", "1000")],
            1,
            [25., 8., 30., 18., 5., 22.],
            13.0,
        ),
        ("mrsf", plain(&[]), 1, [24., 3., 30., 7., 1., 12.], 7.8333),
        (
            "mrsf",
            plain(&[PER_QUEUE]),
            5,
            [9., 2., 15., 4., 1., 6.],
            1.1667,
        ),
        ("mrsf", plain(&[]), 3, [9., 2., 15., 4., 1., 6.], 1.1667),
        (
            "mrsf",
            plain(&[PER_QUEUE, ("barrier", "1")]),
            5,
            [11., 2., 17., 4., 1., 6.],
            1.8333,
        ),
        ("fcfs", vec![], 3, [7., 2., 11., 6., 7., 12.], 2.5),
        ("sjf", vec![], 3, [9., 2., 15., 4., 1., 6.], 1.1667),
        // Without sizes, M-RSF's levels are in order of arrival: MLFQ with slices of lambda and lambda.
        (
            "mrsf",
            plain(&[("estimate", "none"), ("subqueues", "1")]),
            1,
            [24., 7., 30., 16., 17., 22.],
            14.3333,
        ),
        // Queue 0, A C E: 7, 18, 19. Queue 1 in turns of 5, B D F: 2, 6, 11.
        ("mqms", rr.to_vec(), 2, [7., 2., 18., 6., 19., 11.], 5.5),
        // All five queues on one CPU: the same as shared.
        (
            "mrsf",
            plain(&[PER_QUEUE]),
            1,
            [24., 3., 30., 7., 1., 12.],
            7.8333,
        ),
    ];
    for (policy, params, cpus, told, wait) in rows {
        let ends = six(policy, &params, cpus);
        assert_eq!(ends, told, "{policy} {params:?} on {cpus}");
        assert!(
            (mean_wait(ends) - wait).abs() < 1e-4,
            "{policy} {params:?}: {}",
            mean_wait(ends)
        );
    }
}

/// Queues without a CPU of their own are dealt around: two CPUs have 1-1, 1-3, 3 and 1-2, 2.
#[test]
fn five_queues_on_two_cpus_are_dealt_around() {
    // CPU 0: E0-1 (1-1), D1-5 (1-3, 4 before F's 5), F5-10, C10-15; C's last piece. CPU 1: B0-2, A2-7, A7-9 (2).
    let ends = six("mrsf", &plain(&[PER_QUEUE]), 2);
    // C: level 1 ends at 15 on CPU 0, level 2 from 15 to 20 on CPU 1, level 3 from 20 on CPU 0.
    assert_eq!(ends, [9., 2., 21., 5., 1., 10.]);
}

#[test]
fn nobody_is_interrupted() {
    let late = [("x", 0, 12), ("y", 11, 1)];
    assert_eq!(done("mrsf", &plain(&[]), 1, &late), [12., 13.]);
    // Of the rivals that preempt, srtf does not if both need the same.
    assert_eq!(done("srtf", &[], 1, &late), [12., 13.]);
    assert_eq!(done("las", &[("turn_us", "1000")], 1, &late), [13., 12.]);
    assert_eq!(done("mlfq", &[LAMBDA], 1, &late), [13., 12.]);
    assert_eq!(
        done("mlfq", &[LAMBDA, ("preempt", "0")], 1, &late),
        [12., 13.]
    );
}

/// W2 of the task schedulers: (arrival, size) A(0,7) B(2,4) C(3,1) D(5,9) E(6,2).
#[test]
fn arrivals_one_after_the_other_end_as_on_paper() {
    let w2 = [
        ("a", 0, 7),
        ("b", 2, 4),
        ("c", 3, 1),
        ("d", 5, 9),
        ("e", 6, 2),
    ];
    for (policy, told) in [
        ("fcfs", [7., 11., 12., 21., 23.]),
        ("sjf", [7., 14., 8., 23., 10.]),
        ("srtf", [14., 7., 4., 23., 9.]),
    ] {
        assert_eq!(done(policy, &[], 1, &w2), told, "{policy}");
    }
}

/// So many tasks at once, exponential with a mean of 10 ms.
fn batch(n: u32, cpus: u32, estimate: &str) -> String {
    format!(
        "[host]\ncores = {cpus}\nhz = \"exact\"\ncost = \"none\"\n[vm.jobs]\nguest = \"none\"\n\
         start = \"1ms\"\ntasks = [\"job\"]\n\
         [task.job]\nper_request = true\nloop = [\"receive users\", \"compute exp(10ms)\", \"reply\"]\n{estimate}\n\
         [client.users]\nto = \"jobs\"\nsends = \"batch({n})\"\n"
    )
}

/// Mean waiting time over seeds, in mean service times and by n.
fn wait_per_task(policy: &str, params: &[(&str, &str)], cpus: u32, estimate: &str) -> f64 {
    let (n, seeds) = (500, 20);
    let of = |seed| {
        let m = metrics(policy, params, &batch(n, cpus, estimate), seed);
        assert_eq!(m["jobs.response.count"], f64::from(n), "all are done");
        let stay = m["jobs.response.mean"] - m["jobs.waiting.mean"];
        assert!(
            (stay / 1e7 - 1.0).abs() < 0.2,
            "the rest is the work: {stay}"
        );
        m["jobs.waiting.mean"]
    };
    (1..=seeds).map(of).sum::<f64>() / seeds as f64 / 1e7 / f64::from(n)
}

/// Section 7's table (made by another program): within 3 % of what it has at n = 500, its standard error being 2 %.
#[test]
fn batches_wait_as_in_the_independent_check() {
    let oracle = "estimate = \"oracle\"";
    let ten = |more: &[(&'static str, &'static str)]| {
        let mut all = plain(more);
        all[2] = ("lambda_us", "10000");
        all
    };
    let n = 500.0;
    for (policy, params, cpus, estimate, told) in [
        ("fcfs", vec![], 1, oracle, 251.7 / n),
        ("las", vec![], 1, oracle, 250.3 / n),
        ("mlfq", vec![], 1, oracle, 249.9 / n),
        ("sjf", vec![], 1, oracle, 125.3 / n),
        ("mrsf", ten(&[]), 1, oracle, 164.2 / n),
        ("mrsf", ten(&[]), 5, oracle, 32.2 / n),
        ("mrsf", ten(&[PER_QUEUE]), 5, oracle, 42.8 / n),
        (
            "mrsf",
            ten(&[PER_QUEUE]),
            5,
            "estimate = \"lognormal(1.25)\"",
            44.6 / n,
        ),
        (
            "mrsf",
            ten(&[PER_QUEUE, ("estimate", "none")]),
            5,
            "",
            55.1 / n,
        ),
        (
            "mrsf",
            ten(&[PER_QUEUE, ("barrier", "1")]),
            5,
            oracle,
            69.6 / n,
        ),
        ("mlfq", vec![("cpus", "per_level")], 3, "", 156.8 / n),
        ("mqms", vec![], 5, "", 49.8 / n),
    ] {
        let got = wait_per_task(policy, &params, cpus, estimate);
        assert!(
            (got / told - 1.0).abs() < 0.04,
            "{policy} {params:?} on {cpus}: {got} for {told}"
        );
    }
}

/// 63.2 % end at level 1, 23.3 % at level 2, 13.5 % at level 3: +- 3 standard errors; at most three pieces per task.
#[test]
fn so_many_end_at_each_level() {
    let n = 2000.0;
    for params in [plain(&[]), plain(&[PER_QUEUE])] {
        let mut params = params;
        params[2] = ("lambda_us", "10000");
        let m = metrics("mrsf", &params, &batch(2000, 5, "estimate = \"oracle\""), 3);
        let ended =
            ["ended1", "ended2", "ended3"].map(|c| (m[&format!("policy.{c}")] * 28.0).round());
        assert_eq!(ended.iter().sum::<f64>(), n);
        let e = (-1.0_f64).exp();
        for (got, part) in ended.into_iter().zip([1.0 - e, e * (1.0 - e), e * e]) {
            let error = (n * part * (1.0 - part)).sqrt();
            assert!(
                (got - n * part).abs() <= 3.0 * error,
                "{got} for {}",
                n * part
            );
        }
        let pieces = (m["policy.pieces"] * 28.0).round();
        assert_eq!(
            pieces,
            ended[0] + 2.0 * ended[1] + 3.0 * ended[2],
            "one piece at each level"
        );
    }
}

/// Uniform sizes of mean lambda never come to level 3: two slices are the most there is.
#[test]
fn uniform_sizes_end_at_level_two() {
    let text = batch(500, 1, "estimate = \"oracle\"").replace("exp(10ms)", "uniform(0ms, 20ms)");
    let mut params = plain(&[]);
    params[2] = ("lambda_us", "10000");
    let m = metrics("mrsf", &params, &text, 1);
    assert_eq!(m["policy.ended3"], 0.0);
    assert!(m["policy.ended2"] > 0.0);
}

/// A thread that serves for ever: with unit=request each request begins at level 1, with unit=task it sinks for good.
#[test]
fn who_serves_for_ever_begins_anew_with_each_request() {
    let text = "[host]\ncores = 1\nhz = \"exact\"\ncost = \"none\"\n[vm.web]\nguest = \"none\"\ntasks = [\"web\"]\n\
                [task.web]\nthreads = 1\nloop = [\"receive users\", \"compute 3ms\", \"reply\"]\n\
                estimate = \"oracle\"\n[client.users]\nto = \"web\"\nsends = \"every 20ms\"\n\
                [vm.long]\nguest = \"none\"\ntasks = [\"long\"]\n[task.long]\nmodel = \"busy\"\n";
    let worst = |unit: &'static str| {
        let mut params = plain(&[("q3_slice", "400")]);
        (params[0], params[2]) = (("unit", unit), ("lambda_us", "4000"));
        params.remove(3);
        metrics("mrsf", &params, text, 1)["web.response.max"] / 1e6
    };
    // Behind a slice of 16 ms of level 3 at most; as one endless task it waits in line at level 3, too.
    assert!(worst("request") <= 19.0, "{}", worst("request"));
    assert!(worst("task") >= worst("request"));
}
