// SPDX-License-Identifier: GPL-2.0-only
//! `berth explain`: one VM, what it waits for, and how it is known.
use super::list::TOO_LONG;
use super::{columns, left, notes, right, share, shortened};
use crate::{Style, text};
use berth_host::class::{Rules, SETTLED_S, Verdict};
use berth_host::explain::{Bound, Explanation};
use berth_host::model::{NameFrom, Proof, Role, Thread};
use berth_host::places;
use std::collections::BTreeMap;

/// Threads that are listed one by one; the rest are counted.
const THREADS: usize = 64;

pub fn explain(e: &Explanation, over_seconds: f64, blind: &[String], style: &Style) -> String {
    let vm = &e.vm.vm;
    let mut out = format!(
        "{} · {} · {}, process {} · {} vCPU{} · over {over_seconds:.1} s\n\n",
        style.bold(&vm.name),
        match &vm.manager_id {
            Some(id) => format!("{} {id}", vm.manager.word()),
            None => vm.manager.word().to_string(),
        },
        vm.vmm.word(),
        vm.pid,
        vm.vcpus,
        if vm.vcpus == 1 { "" } else { "s" },
    );
    let mut line = |head: &str, text: &str| {
        let folded = notes(&[text.to_string()], style.width.saturating_sub(10));
        for (i, part) in folded.lines().enumerate() {
            let head = if i == 0 { head } else { "" };
            out.push_str(&format!(
                "  {}{}\n",
                text::left(head, 10),
                part.trim_start()
            ));
        }
    };
    line("Waits", &waits(e));
    line("Behind", &stands_behind(e));
    line("Because", &because(e));
    line("Class", &class(e.vm.class.as_ref()));
    line("Runs on", &runs_on(e));
    if !e.vm.kinds.is_empty() {
        line(
            "Cores",
            &format!("{} of its vCPUs' time", places::words(&e.vm.kinds)),
        );
    }
    line("Share", &entitlement(e));
    line("Found", &found(e));
    for what in &e.network {
        line("Network", what);
    }
    out.push('\n');
    let head = [
        "THREAD",
        "ROLE",
        "CPUS USED",
        "RUN DELAY",
        "NAME",
        "KNOWN BY",
    ];
    let head = head.iter().enumerate().map(|(i, h)| match i {
        2 | 3 => right(*h),
        _ => left(*h),
    });
    let mut rows = vec![(' ', head.collect())];
    for (thread, rates) in e.vm.threads().take(THREADS) {
        let delay = rates.and_then(|r| r.run_delay());
        let mark = if delay.is_some_and(|d| d > TOO_LONG) {
            '!'
        } else {
            ' '
        };
        let cells = vec![
            left(thread.id.tid.to_string()),
            left(thread.role.to_string()),
            right(rates.map_or("-".into(), |r| format!("{:.2}", r.cpus))),
            right(share(delay)),
            left(shortened(&thread.name, 20)),
            left(thread.evidence.words()),
        ];
        rows.push((mark, cells));
    }
    for row in columns(&rows) {
        out.push_str(&row);
        out.push('\n');
    }
    if vm.threads.len() > THREADS {
        out.push_str(&format!(
            "  and {} more: --json\n",
            vm.threads.len() - THREADS
        ));
    }
    if !blind.is_empty() {
        out.push('\n');
        out.push_str(&notes(blind, style.width));
    }
    out
}

fn waits(e: &Explanation) -> String {
    let Some(rates) = e.vm.rates else {
        return "not known yet: it was seen only once.".into();
    };
    let Some(delay) = rates.run_delay() else {
        return "it did not run, and did not want to.".into();
    };
    let mut text = format!("{} of the time it wanted to run", share(Some(delay)));
    if let Some(each) = rates.mean_wait_ns() {
        text.push_str(&format!(", {} each time", text::duration(each)));
    }
    let worst =
        e.vm.threads()
            .filter_map(|(t, r)| Some((t, r?.run_delay()?, r?.waiting)))
            .max_by(|a, b| a.2.total_cmp(&b.2));
    if let Some((thread, delay, _)) = worst.filter(|w| w.1 > 0.0) {
        text.push_str(&format!(
            ". Most of it {} ({} of its time)",
            thread.role,
            share(Some(delay))
        ));
    }
    text + "."
}

/// Who had the CPU meanwhile, and how long a wake-up takes.
fn stands_behind(e: &Explanation) -> String {
    let Some(waited) = &e.vm.waited else {
        return "not known: who ran meanwhile is not in /proc, it takes BPF (as root, on a kernel with BTF).".into();
    };
    let mut text = super::top::behind(waited, 6);
    if let (Some(p50), Some(p99)) = (waited.p50_ns, waited.p99_ns) {
        text.push_str(&format!(
            ". From wake-up to running: median {}, p99 {}",
            text::duration(p50),
            text::duration(p99)
        ));
    }
    if waited.worst_ns > 0 {
        text.push_str(&format!(
            ". Worst wait {}",
            text::duration(waited.worst_ns as f64)
        ));
    }
    text + "."
}

fn pinned(bound: &Bound) -> String {
    const NAMED: usize = 4;
    let (cpus, only) = match bound.cpus {
        1 => ("CPU", "it"),
        _ => ("CPUs", "them"),
    };
    let named = bound.with.iter().take(NAMED).cloned().collect::<Vec<_>>();
    let more = match bound.with.len().saturating_sub(NAMED) {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let who = match named.is_empty() {
        true => "no other VM is bound to".to_string(),
        false => format!(
            "with {}{more}, bound to {only} as well, it wanted {:.1} of",
            named.join(", "),
            bound.wanted_cpus
        ),
    };
    let end = match named.is_empty() {
        true => format!(" {only}"),
        false => format!(" {}", bound.cpus),
    };
    format!("Its vCPUs may run on {cpus} {} only; {who}{end}.", bound.to)
}

fn because(e: &Explanation) -> String {
    let free = e.wanted_cpus < e.cpus as f64 * 0.9;
    let delay = e.vm.run_delay.unwrap_or(0.0);
    let base = format!(
        "VMs and host together wanted {:.1} of {} CPUs",
        e.wanted_cpus, e.cpus
    );
    // Of the CPUs that it may run on, first: elsewhere there may be free ones, or none.
    if let Some(bound) = e.bound.as_ref().filter(|_| delay > TOO_LONG) {
        return format!("{} {base}.", pinned(bound));
    }
    match (free, delay > TOO_LONG) {
        (false, true) => base + ": more than there is.",
        (true, true) => {
            base + ": there were free ones. Look at what it may run on, at its cap, and at short bursts of others."
        }
        (_, false) => base + ".",
    }
}

/// What it seems to be for, and the numbers that say so.
fn class(verdict: Option<&Verdict>) -> String {
    let Some(v) = verdict else {
        return "not known yet: it takes 1.5 s of watching (--over).".into();
    };
    let (e, rules) = (&v.evidence, Rules::default());
    let waited = match e.long_wanted_cpus - e.long_cpus {
        little if little < 0.01 => String::new(),
        waited => format!(" ({waited:.2} more waited for)"),
    };
    let mut parts = vec![format!(
        "{:.2} CPUs, {:.2} of them in long bursts{waited}",
        e.cpus, e.long_cpus
    )];
    parts.push(format!("{:.0} wake-ups/s", e.wakeups_per_s));
    match e.burst_ns {
        Some(ns) if ns < 1e9 => parts.push(format!(
            "bursts of {} (long is from {})",
            text::duration(ns),
            text::duration(rules.long_ns)
        )),
        _ => parts.push("it hardly ever sleeps".into()),
    }
    if e.unseen_per_s >= 1.0 {
        parts.push(format!(
            "{:.0} packets/s that woke no vCPU, for they were running",
            e.unseen_per_s
        ));
    }
    if e.polled_per_s >= 1.0 {
        parts.push(format!(
            "{:.0} halts/s that KVM polled away",
            e.polled_per_s
        ));
    }
    let mut text = format!("{}, by what it does: {}.", v.class, parts.join(" · "));
    if let Some(looks) = v.looks {
        text.push_str(&format!(" Looks {looks} now, not for long enough."));
    }
    match v.evidence.watched_s < SETTLED_S {
        true => text.push_str(&format!(
            " Watched for {:.1} s; sure after {SETTLED_S:.0} s (--over {SETTLED_S:.0}).",
            e.watched_s
        )),
        false => text.push_str(&format!(
            " For {:.0} s; {} change{} so far.",
            v.since_s,
            v.flips,
            if v.flips == 1 { "" } else { "s" }
        )),
    }
    text
}

/// `vcpu0-1, vhost: CPUs 0-3`
fn runs_on(e: &Explanation) -> String {
    if e.allowed.is_empty() {
        return "not known.".into();
    }
    let roles: BTreeMap<i32, &Thread> = e.vm.vm.threads.iter().map(|t| (t.id.tid, t)).collect();
    let groups: Vec<String> = e
        .allowed
        .iter()
        .map(|(cpus, tids)| {
            let mut vcpus = Vec::new();
            let mut words: Vec<&str> = Vec::new();
            for thread in tids.iter().filter_map(|t| roles.get(t)) {
                match thread.role {
                    Role::Vcpu(index) => vcpus.push(index),
                    role if !words.contains(&role.word()) => words.push(role.word()),
                    _ => {}
                }
            }
            vcpus.sort_unstable();
            let vcpus = berth_host::procfile::cpu_text(&vcpus);
            let vcpus = (!vcpus.is_empty()).then(|| format!("vcpu{vcpus}"));
            let who: Vec<String> = vcpus
                .into_iter()
                .chain(words.iter().map(|w| w.to_string()))
                .collect();
            format!("{}: CPUs {cpus}", who.join(", "))
        })
        .collect();
    groups.join(" · ")
}

fn entitlement(e: &Explanation) -> String {
    let weight = e
        .share
        .weight
        .map_or("weight not known".into(), |w| format!("weight {w}"));
    let cap = e
        .share
        .cap
        .map_or("no cap".into(), |c| format!("at most {c:.2} CPUs"));
    let used =
        e.vm.rates
            .map_or(String::new(), |r| format!("used {:.2} CPUs · ", r.cpus));
    format!("{used}{weight} · {cap} · cgroup {}", e.vm.vm.cgroup)
}

fn found(e: &Explanation) -> String {
    let proof = match e.vm.vm.proof {
        Proof::Kvm => "it holds files of KVM",
        Proof::GuestTime => "the kernel charged it guest time",
        Proof::Looks => "it looks like one; nothing the kernel says proves it",
    };
    let name = match e.vm.vm.name_from {
        NameFrom::CommandLine => "its command line",
        NameFrom::Socket => "its socket",
        NameFrom::Cgroup => "its cgroup",
        NameFrom::Process => "its process, nothing else names it",
    };
    let missing = e.vm.vm.vcpus.saturating_sub(e.vm.vm.known_vcpus());
    let missing = match missing {
        0 => String::new(),
        n => format!(" The threads of {n} vCPUs are not known."),
    };
    format!("{proof}; the name is from {name}.{missing}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_host::class::{Class, Evidence};
    use berth_host::counters::Rates;
    use berth_host::fixture::Fixture;
    use berth_host::root::Root;
    use berth_host::trace::{Behind, Waited};
    use std::time::Duration;

    const HOST: &str = "process 5 lkvm\nargs lkvm run --name quiet\nfd 3 anon_inode:kvm-vm\nfd 4 \
     anon_inode:kvm-vcpu:0\n\
                        fd 5 anon_inode:kvm-vcpu:1\nthread 6 kvm-vcpu-0 run=4\nthread 7 other\n\
                        file sys/devices/system/cpu/online 0-1\n";

    fn explained() -> Explanation {
        let folder = tempfile::tempdir().unwrap();
        Fixture::parse(HOST).unwrap().unpack(folder.path()).unwrap();
        let root = Root::at(folder.path());
        let view = berth_host::view::look(&root, Duration::from_millis(1)).unwrap();
        let mut e = berth_host::explain::explain(&root, &view, &view.vms[0]);
        let rates = Rates {
            cpus: 0.9,
            waiting: 0.1,
            stays_per_s: 100.0,
        };
        (e.vm.rates, e.vm.run_delay) = (Some(rates), rates.run_delay());
        e.vm.thread_rates.fill(Some(rates));
        e
    }

    fn line<'a>(text: &'a str, head: &str) -> &'a str {
        let found = text.lines().find(|l| l.trim_start().starts_with(head));
        found.unwrap_or_else(|| panic!("no {head}: {text}"))
    }

    const STYLE: Style = Style {
        colour: false,
        width: 100,
    };

    #[test]
    fn every_line_says_what_it_knows() {
        let mut e = explained();
        let text = explain(&e, 2.0, &[], &STYLE);
        assert!(
            text.starts_with("quiet · - · kvmtool, process 5 · 2 vCPUs · over 2.0 s"),
            "{text}"
        );
        assert!(
            line(&text, "Waits").contains("10.0 % of the time it wanted to run, 1.00 ms each time")
        );
        assert!(line(&text, "Behind").contains("it takes BPF"));
        assert!(line(&text, "Class").contains("not known yet"));
        assert!(line(&text, "Found").contains("it holds files of KVM"));
        assert!(!text.contains("Network"));
        e.network = vec!["tap0 is a port of Open vSwitch".into()];
        let text = explain(&e, 2.0, &[], &STYLE);
        assert!(line(&text, "Network").contains("tap0 is a port of Open vSwitch"));
        let row = line(&text, "! 6");
        assert!(row.contains("vcpu0") && row.contains("0.90"), "{text}");
        // Above what there is: more than 2 CPUs are wanted.
        e.wanted_cpus = 3.0;
        let bound = |cpus, to: &str, with: &[&str]| Bound {
            to: to.into(),
            cpus,
            wanted_cpus: 2.75,
            with: with.iter().map(|w| w.to_string()).collect(),
        };
        for (bound, says) in [
            (
                bound(1, "1", &["build-1"]),
                "Its vCPUs may run on CPU 1 only; with build-1, bound to it as well, it wanted 2.8 of 1.",
            ),
            (
                bound(2, "0-1", &["a", "b", "c", "d", "e"]),
                "on CPUs 0-1 only; with a, b, c, d and 1 more, bound to them as well, it wanted 2.8 of 2.",
            ),
            (bound(2, "0-1", &[]), "only; no other VM is bound to them."),
        ] {
            e.bound = Some(bound);
            let text = explain(&e, 2.0, &[], &STYLE);
            let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                plain.contains(says) && plain.contains("together wanted 3.0 of 2 CPUs"),
                "{text}"
            );
        }
        e.bound = None;
        assert!(line(&explain(&e, 2.0, &[], &STYLE), "Because").contains("more than there is"));
        e.vm.rates = None;
        let text = explain(&e, 2.0, &["A footnote.".into()], &STYLE);
        assert!(
            line(&text, "Waits").contains("seen only once") && text.ends_with("  A footnote.\n"),
            "{text}"
        );
        assert!(text.lines().all(|l| text::width(l) <= 100), "{text}");
    }

    #[test]
    fn tracer_and_class_are_told_with_their_numbers() {
        let mut e = explained();
        let part = |who: &str, part| Behind {
            who: who.into(),
            part,
            ns: 1,
        };
        e.vm.waited = Some(Waited {
            wakeups: 10,
            p50_ns: Some(2e5),
            p99_ns: Some(4.1e6),
            worst_ns: 31_000_000,
            behind: vec![part("build02", 0.6), part("the host's threads", 0.4)],
        });
        e.vm.class = Some(Verdict {
            class: Class::Mixed,
            since_s: 60.0,
            looks: Some(Class::Batch),
            flips: 1,
            evidence: Evidence {
                watched_s: 90.0,
                cpus: 1.5,
                long_cpus: 1.0,
                burst_ns: Some(4e6),
                wakeups_per_s: 375.0,
                unseen_per_s: 44.0,
                ..Evidence::default()
            },
        });
        let text = explain(&e, 2.0, &[], &STYLE)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        assert!(text.contains("build02 60 % · the host's threads 40 %. From wake-up to running: median 200 us, p99 \
         4.10 ms. Worst wait 31.0 ms."), "{text}");
        assert!(
            text.contains(
                "mixed, by what it does: 1.50 CPUs, 1.00 of them in long bursts · 375 wake-ups/s"
            ),
            "{text}"
        );
        assert!(
            text.contains("44 packets/s")
                && text.contains("Looks batch now")
                && text.contains("1 change so far"),
            "{text}"
        );
    }
}
