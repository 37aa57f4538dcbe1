// SPDX-License-Identifier: GPL-2.0-only
//! `berth ls`: a line per VM.
use super::{columns, left, notes, right, share, shortened};
use crate::{Style, text};
use berth_host::view::{View, VmView};

/// A VM waits too long from here on, as a part of the time it wanted to run. A proposal, not a law.
pub const TOO_LONG: f64 = 0.05;

/// The table, what its columns mean, what could not be seen, and what to look at next.
pub fn list(view: &View, style: &Style) -> String {
    let mut out = format!("{}\n\n", headline(view));
    if view.vms.is_empty() {
        out.push_str("  No virtual machine is running.\n\n");
        out.push_str(&notes(&view.notes, style.width));
        return out;
    }
    let worst = worst(view);
    let heads = [
        "VM",
        "MANAGER",
        "CLASS",
        "vCPUs",
        "CPUS USED",
        "RUN DELAY",
        "MEAN WAIT",
        "THREADS",
    ];
    let head = |(i, h): (usize, &&str)| if i < 3 { left(*h) } else { right(*h) };
    let mut rows = vec![(' ', heads.iter().enumerate().map(head).collect())];
    for vm in &view.vms {
        let waits = vm.run_delay.is_some_and(|d| d > TOO_LONG);
        rows.push((if waits { '!' } else { ' ' }, row(vm)));
    }
    rows.push((
        ' ',
        vec![
            left("host"),
            left("-"),
            left("-"),
            right("-"),
            right(view.host.cpus.map_or("-".into(), |c| format!("{c:.2}"))),
            right("-"),
            right("-"),
            right(format!("{} proc.", view.host.processes)),
        ],
    ));
    for (i, line) in columns(&rows).into_iter().enumerate() {
        out.push_str(&if i == 0 { style.bold(&line) } else { line });
        out.push('\n');
    }
    let mut words = vec![
        format!(
            "Over {:.1} s. Run delay: of the time a VM's threads wanted to run, the part they stood in a queue (the \
             guest sees that of its vCPUs as steal). Mean wait: in a queue, each time.",
            view.seconds
        ),
        "Class: what it seems to be for, by its bursts and wake-ups so far. Why: berth explain VM.".into(),
        "Threads: vCPUs + the rest (vhost, iothread, emulator). All of them count.".into(),
        "Percentiles of wake-up latency, and who waited for whom, take BPF: berth top, berth explain.".into(),
    ];
    words.extend(view.notes.iter().cloned());
    out.push('\n');
    out.push_str(&notes(&words, style.width));
    if let Some(vm) = worst {
        out.push_str(&format!(
            "\n  {} waits more than {} of its time.   berth explain {}\n",
            vm.vm.name,
            share(Some(TOO_LONG)),
            quoted(&vm.vm.name)
        ));
    }
    out
}

/// `kvm07 · 16 CPUs (8 P + 8 E) · 7 VMs, 40 vCPUs (2.5 per CPU) · scheduler linux · this changes nothing`
pub fn headline(view: &View) -> String {
    let vcpus: u32 = view.vms.iter().map(|v| v.vm.vcpus).sum();
    let per_cpu = match view.machine.cpus.len() {
        0 => String::new(),
        cpus => format!(" ({:.1} per CPU)", f64::from(vcpus) / cpus as f64),
    };
    let s = |n: usize| if n == 1 { "" } else { "s" };
    format!(
        "{} · {} · {} VM{}, {vcpus} vCPU{}{per_cpu} · scheduler {} · this changes nothing",
        view.machine.name,
        view.machine.cpus_in_words(),
        view.vms.len(),
        s(view.vms.len()),
        s(vcpus as usize),
        view.machine.scheduler.name(),
    )
}

/// The VM that waits most, if it waits too long.
fn worst(view: &View) -> Option<&VmView> {
    let delay = |v: &&VmView| v.run_delay.unwrap_or(0.0);
    let worst = view
        .vms
        .iter()
        .max_by(|a, b| delay(a).total_cmp(&delay(b)))?;
    (delay(&worst) > TOO_LONG).then_some(worst)
}

fn row(vm: &VmView) -> Vec<super::Cell> {
    let known = vm.vm.known_vcpus();
    let vcpus = match known == vm.vm.vcpus {
        true => vm.vm.vcpus.to_string(),
        // Threads of some are not known.
        false => format!("{known} of {}", vm.vm.vcpus),
    };
    let wait = vm.rates.and_then(|r| r.mean_wait_ns());
    vec![
        left(shortened(&vm.vm.name, 28)),
        left(vm.vm.manager.word()),
        left(vm.class.as_ref().map_or("-", |v| v.class.word())),
        right(vcpus),
        right(vm.rates.map_or("-".into(), |r| format!("{:.2}", r.cpus))),
        right(share(vm.run_delay)),
        right(wait.map_or("-".into(), text::duration)),
        right(format!("{known} + {}", vm.others())),
    ]
}

/// A name as a shell takes it.
pub fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./@:".contains(c);
    match !name.is_empty() && name.chars().all(plain) {
        true => name.to_string(),
        false => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_host::counters::Rates;
    use berth_host::fixture::Fixture;
    use berth_host::root::Root;
    use std::time::Duration;

    const HOST: &str = "process 5 lkvm\nargs lkvm run --name quiet\nfd 3 anon_inode:kvm-vm\nfd 4 \
     anon_inode:kvm-vcpu:0\n\
                        thread 6 kvm-vcpu-0 run=4\nprocess 9 lkvm\nargs lkvm run --name \"two words\"\n\
                        fd 3 anon_inode:kvm-vm\nfd 4 anon_inode:kvm-vcpu:0\nthread 10 kvm-vcpu-0 run=4\n\
                        file proc/sys/kernel/hostname kvm07\nfile sys/devices/system/cpu/online 0-1\n";

    fn view() -> View {
        let folder = tempfile::tempdir().unwrap();
        Fixture::parse(HOST).unwrap().unpack(folder.path()).unwrap();
        berth_host::view::look(&Root::at(folder.path()), Duration::from_millis(1)).unwrap()
    }

    #[test]
    fn a_line_per_vm_and_a_mark_for_the_one_that_waits() {
        let mut view = view();
        let rates = Rates {
            cpus: 0.9,
            waiting: 0.1,
            stays_per_s: 100.0,
        };
        let vm = view
            .vms
            .iter_mut()
            .find(|v| v.vm.name == "two words")
            .unwrap();
        vm.rates = Some(rates);
        vm.run_delay = rates.run_delay();
        let style = Style {
            colour: false,
            width: 100,
        };
        let text = list(&view, &style);
        assert!(
            text.starts_with("kvm07 · 2 CPUs · 2 VMs, 2 vCPUs (1.0 per CPU) · scheduler linux"),
            "{text}"
        );
        let row = text.lines().find(|l| l.contains("two words")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            words,
            [
                "!", "two", "words", "-", "-", "1", "0.90", "10.0", "%", "1.00", "ms", "1", "+",
                "1"
            ]
        );
        assert!(text.lines().any(|l| l.starts_with("  quiet ")), "{text}");
        assert!(text.contains("berth explain 'two words'"), "{text}");
        assert!(text.lines().all(|l| crate::text::width(l) <= 100), "{text}");
        // Not only the one that waits most.
        view.vms.iter_mut().for_each(|v| v.run_delay = Some(0.06));
        let text = list(&view, &style);
        let marked = text.lines().filter(|l| l.starts_with('!'));
        assert_eq!(marked.count(), 2, "{text}");
    }

    #[test]
    fn nobody_waits_and_nobody_is_there() {
        let mut view = view();
        let style = Style {
            colour: false,
            width: 80,
        };
        assert!(!list(&view, &style).contains("waits more than"));
        view.vms.clear();
        assert!(list(&view, &style).contains("No virtual machine is running."));
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted("default/vm-1"), "default/vm-1");
    }
}
