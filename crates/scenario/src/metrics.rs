// SPDX-License-Identifier: GPL-2.0-only
//! Names of metrics, as expectations use them: `OBJECT.QUANTITY[.STAT]`.

/// Quantities with their statistics (none: it is one number) and unit.
pub const QUANTITIES: [(&str, &[&str], &str, &str); 42] = [
    (
        "response",
        &[
            "mean", "p50", "p90", "p99", "p999", "max", "count", "offered", "lost",
        ],
        "ns",
        "arrival to reply; count: answered, offered: due, lost: part",
    ),
    (
        "waiting",
        &["mean", "p50", "p90", "p99", "p999", "max", "count"],
        "ns",
        "response less computing; threads per request",
    ),
    (
        "begin",
        &["mean", "p50", "p90", "p99", "p999", "max", "count"],
        "ns",
        "from arrival to a CPU; threads per request",
    ),
    (
        "wakeup",
        &["mean", "p50", "p90", "p99", "p999", "max", "count"],
        "ns",
        "from runnable after sleep to running",
    ),
    (
        "run_delay",
        &["mean", "p50", "p99", "max", "share", "count"],
        "ns",
        "each stay in a run queue; share: of waiting and running",
    ),
    ("cpu", &[], "CPU", "mean CPUs used"),
    (
        "least",
        &[],
        "CPU",
        "CPUs used by the VM of a group with the least",
    ),
    (
        "jain",
        &[],
        "1",
        "Jain's index of a group's VMs' CPU time (host: of all)",
    ),
    (
        "fast",
        &[],
        "CPU",
        "of them, on cores of the fastest kind (simulator, lab)",
    ),
    ("work", &[], "ns", "CPU time of useful work"),
    (
        "completion",
        &[],
        "ns",
        "from its start until its last thread has ended (simulator)",
    ),
    (
        "spread",
        &[],
        "1",
        "most work of a vCPU by the least of another (lab, host)",
    ),
    (
        "run",
        &[],
        "1",
        "share of time its vCPUs had a CPU (with a guest)",
    ),
    (
        "steal",
        &[],
        "1",
        "share of time its vCPUs waited for a CPU (with a guest)",
    ),
    (
        "halt",
        &[],
        "1",
        "share of time its vCPUs had nothing to do (with a guest)",
    ),
    (
        "guest",
        &["switches", "migrations", "moved"],
        "1/s",
        "switches, changes of CPU, tasks moved by an agent, inside",
    ),
    (
        "on_kind",
        &["KIND"],
        "1",
        "share of its run time on cores of this kind (simulator, lab)",
    ),
    (
        "missed_fast",
        &[],
        "1",
        "share on slower cores while a fast one was idle or ran batch",
    ),
    (
        "score",
        &[],
        "1",
        "times as fast on a fast core, as the policy reckons",
    ),
    (
        "scored_by",
        &["given", "counters", "utilisation", "left_out"],
        "1",
        "vCPUs by where their score comes from (simulator)",
    ),
    ("migrations", &[], "1/s", "changes of CPU"),
    (
        "moves",
        &[
            "same_core",
            "same_llc",
            "other_llc",
            "same_package",
            "other_package",
            "other_node",
            "other_package_share",
        ],
        "1/s",
        "changes of CPU by distance (host)",
    ),
    (
        "throughput",
        &[],
        "bit/s",
        "bits that answered requests carried (streams: one way)",
    ),
    ("requests", &[], "1/s", "requests answered"),
    (
        "packets",
        &[],
        "1/s",
        "packets that the network card took in for it or sent from it",
    ),
    (
        "disk",
        &["mean", "p50", "p90", "p99", "p999", "max", "count"],
        "ns",
        "of a step read or write, from its start to its end (simulator)",
    ),
    ("read", &[], "bit/s", "what steps have read (simulator)"),
    (
        "written",
        &[],
        "bit/s",
        "what steps have written (simulator)",
    ),
    (
        "cached",
        &[],
        "1",
        "part of what steps have read that was in the page cache",
    ),
    (
        "blocks",
        &[],
        "1/s",
        "requests that disks have done for it (simulator)",
    ),
    (
        "disk_busy",
        &[],
        "1",
        "share of time that the busiest disk works (host)",
    ),
    (
        "disk_queue",
        &[],
        "1",
        "requests at disks, waiting or in work, mean (host)",
    ),
    (
        "samples",
        &[
            "driver", "bridge", "filter", "tap", "copy", "inject", "guest", "wake", "all",
        ],
        "ns",
        "CPU time of a stage per packet, as samplers count (net.stages)",
    ),
    (
        "calls",
        &[
            "driver", "bridge", "filter", "tap", "copy", "inject", "guest", "wake",
        ],
        "1",
        "visits of a stage per packet (net.stages)",
    ),
    (
        "path_cpu",
        &["all", "max"],
        "CPU",
        "CPUs that stages take; max: of it on one CPU (net.stages)",
    ),
    (
        "path",
        &["lines", "crossings", "cold", "batch"],
        "1",
        "of a packet, from other CPUs; batch: mean size (net.stages)",
    ),
    (
        "dropped",
        &[],
        "1/s",
        "packets that found a queue full (net.stages)",
    ),
    (
        "switches",
        &[],
        "1/s",
        "threads switched in (a VM), switches of all CPUs (host)",
    ),
    ("switches_per_cpu", &[], "1/s", "the same per CPU (host)"),
    (
        "changes",
        &[],
        "1/s",
        "changes of VMs by the optimiser (host; simulator, lab)",
    ),
    ("idle", &[], "1", "idle share of all CPUs (host)"),
    (
        "unused",
        &[],
        "1",
        "share of all CPUs that idles while unbound threads wait (host)",
    ),
];

/// What `policy.` has.
pub const OF_POLICY: [(&str, &str); 2] = [
    (
        "insns_per_switch",
        "BPF instructions executed per context switch",
    ),
    (
        "calls_per_switch",
        "calls that queue threads or choose CPUs, per context switch",
    ),
];

/// Takes a metric apart: the object, and the unit of its values.
///
/// # Errors
/// The wrong part, and the names that would be possible there.
pub fn parse(metric: &str) -> Result<(&str, &'static str), (&str, Vec<&'static str>)> {
    let mut parts = metric.split('.');
    let object = parts.next().unwrap_or("");
    let quantity = parts.next().unwrap_or("");
    let stat = parts.next();
    if object == "policy" {
        return match OF_POLICY.iter().find(|(name, _)| *name == quantity) {
            Some(_) if stat.is_none() => Ok((object, "1")),
            // A counter that the policy declares; only the run knows its names.
            None if stat.is_none() && !quantity.is_empty() => Ok((object, "1/s")),
            _ => Err((quantity, OF_POLICY.iter().map(|p| p.0).collect())),
        };
    }
    let Some((_, stats, unit, _)) = QUANTITIES.iter().find(|(name, ..)| *name == quantity) else {
        return Err((quantity, QUANTITIES.iter().map(|q| q.0).collect()));
    };
    if let Some(extra) = parts.next() {
        return Err((extra, Vec::new()));
    }
    match stat {
        None if stats.is_empty() => Ok((object, unit)),
        Some("count" | "offered" | "lost" | "share" | "other_package_share")
            if stats.contains(&stat.unwrap_or("")) =>
        {
            Ok((object, "1"))
        }
        // Kinds have the names that the scenario gives them.
        Some(kind) if quantity == "on_kind" && !kind.is_empty() => Ok((object, unit)),
        Some(stat) if stats.contains(&stat) => Ok((object, unit)),
        _ => Err((stat.unwrap_or(""), stats.to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses() {
        assert_eq!(parse("web.response.p99"), Ok(("web", "ns")));
        assert_eq!(parse("web-2.run_delay.share"), Ok(("web-2", "1")));
        assert_eq!(parse("web.response.count"), Ok(("web", "1")));
        assert_eq!(parse("build.work"), Ok(("build", "ns")));
        assert_eq!(parse("host.switches_per_cpu"), Ok(("host", "1/s")));
        assert_eq!(parse("policy.insns_per_switch"), Ok(("policy", "1")));
        assert_eq!(parse("web.on_kind.low-power"), Ok(("web", "1")));
        assert!(parse("web.on_kind").is_err());
        assert_eq!(parse("policy.same_core"), Ok(("policy", "1/s")));
        assert_eq!(parse("web.respons.p99").unwrap_err().0, "respons");
        assert_eq!(parse("web.response").unwrap_err().0, "");
        assert_eq!(parse("web.cpu.p99").unwrap_err().0, "p99");
        assert!(parse("").is_err());
        assert!(parse("a.b.c.d").is_err());
    }
}
