// SPDX-License-Identifier: GPL-2.0-only
//! A scenario whose requests start a thread each, of which policies are told the sizes: on one CPU of a real kernel
//! they wait as the drawn sizes say, in order of size, under `sjf`, and much longer in whichever order they come, under
//! `fcfs`.
use super::{NEVER, batch, check, options, read_scenario};
use berth_lab::assets::Assets;
use berth_lab::run::{LabArm, LabPolicy, run};
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::Dist;
use berth_scx::{LoadOptions, Value as Setting};

const REQUESTS: u32 = 60;
const TEXT: &str = r#"
[vm.jobs]
tasks = ["job"]
[task.job]
per_request = true
loop = ["receive users", "compute exp(10ms)", "reply"]
estimate = "oracle"
[client.users]
to = "jobs"
sends = "batch(60)"
[compare]
policies = ["linux"]
"#;

/// Mean wait of requests that one CPU serves in this order, ns.
fn in_order(sizes: &[u64]) -> f64 {
    let before = sizes.iter().scan(0, |sum, size| {
        let before = *sum;
        *sum += size;
        Some(before)
    });
    before.sum::<u64>() as f64 / sizes.len() as f64
}

pub fn told(assets: &Assets) -> Result<String, String> {
    let mut scenario = read_scenario("cores = 1", TEXT)?;
    (scenario.run.warmup_ns, scenario.run.measure_ns) = (0, 1_200_000_000);
    let size = |number| {
        let (task, home) = (0, 0);
        let mut rng = Rng::new(1, Stream::Request { task, home, number });
        Dist::Exp { mean_ns: 1e7 }.sample(&mut rng, 0)
    };
    let mut sizes: Vec<u64> = (0..REQUESTS).map(size).collect();
    sizes.sort_unstable();
    let due = in_order(&sizes);
    let mut said = Vec::new();
    // Until all threads are there, the first of them wait longer than on paper.
    for (name, range) in [
        ("sjf", 0.9 * due..1.1 * due + 3e7),
        ("fcfs", 1.5 * due..f64::MAX),
    ] {
        let builtin = berth_builtin::find(name).ok_or(format!("no policy {name}"))?;
        let values = batch::variables(name, Some("textbook"), &[])?.into_iter();
        let arm = LabArm {
            name: name.to_string(),
            scenario: scenario.clone(),
            policy: Some(LabPolicy::Object {
                object: builtin.object().to_vec(),
                options: LoadOptions {
                    variables: values
                        .map(|(name, n)| (name, Setting::Number(n.into())))
                        .collect(),
                    ..LoadOptions::default()
                },
            }),
        };
        let records =
            run(&[arm], &[1], &options(), assets, &|_| (), &NEVER).map_err(|e| e.to_string())?;
        let metric = |metric: &str| records[0].metrics.get(metric).copied().unwrap_or(f64::NAN);
        check(
            metric("jobs.waiting.count") == f64::from(REQUESTS),
            format!("{name}: {:?}", records[0]),
        )?;
        let waited = metric("jobs.waiting.mean");
        let shown = format!("{name} {:.1} ms", waited / 1e6);
        check(
            range.contains(&waited),
            format!(
                "{shown}, in order of size {:.1} ms: {:?}",
                due / 1e6,
                records[0].notes
            ),
        )?;
        said.push(shown);
    }
    Ok(format!(
        "mean waits, {:.1} ms in order of size: {}",
        due / 1e6,
        said.join(", ")
    ))
}
