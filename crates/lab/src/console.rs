// SPDX-License-Identifier: GPL-2.0-only
//! What of a VM's console an error quotes: its end, or a crash of its kernel from the first line on.

/// Lines quoted of an end, and of what went before a panic that nothing announced.
const TAIL: usize = 20;
/// Lines quoted of a crash: registers, call trace and the panic.
const REPORT: usize = 80;
/// The kernel prints this as its last word.
const PANIC: &str = "Kernel panic";
/// What the first lines of a kernel's report have.
const FAULTS: [&str; 10] = [
    "BUG: ",
    "kernel BUG at",
    "Oops: ",
    "general protection fault",
    "invalid opcode",
    "divide error",
    "stack segment",
    "double fault",
    " corruption",
    "kernel tried to execute",
];
/// Lines of a report that have one of these are no further from each other.
const APART: usize = 4;

/// A crash of a VM's kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Crash {
    /// In a line: what was first, where, and the panic that it ended with.
    pub why: String,
    /// The report, as [`tail`] quotes.
    pub report: String,
}

/// Whether the kernel panicked, and why.
pub fn crash(console: &str) -> Option<Crash> {
    let lines = lines(console);
    let panic = lines.iter().position(|l| l.contains(PANIC))?;
    let Some(first) = announced(&lines[..panic]) else {
        return Some(Crash {
            why: without_time(lines[panic]).to_string(),
            report: quoted(&lines[panic.saturating_sub(TAIL)..lines.len().min(panic + TAIL)]),
        });
    };
    let place = lines[first..panic].iter().find(|l| l.contains("RIP: "));
    let told = [Some(&lines[first]), place, Some(&lines[panic])];
    let why: Vec<&str> = told
        .into_iter()
        .flatten()
        .map(|l| without_time(l))
        .collect();
    Some(Crash {
        why: why.join("; "),
        report: quoted(&lines[first..lines.len().min(first + REPORT)]),
    })
}

/// Where the report begins that a panic ends: of several the last, for the kernel may have gone on after others.
fn announced(before: &[&str]) -> Option<usize> {
    let has = |line: &&str| FAULTS.iter().any(|f| line.contains(f));
    let mut first = before.iter().rposition(has)?;
    if before.len() - first >= REPORT {
        return None;
    }
    while let Some(earlier) = before[first.saturating_sub(APART)..first]
        .iter()
        .position(has)
    {
        first = first.saturating_sub(APART) + earlier;
    }
    Some(first)
}

/// The last lines.
pub fn tail(console: &str) -> String {
    let lines = lines(console);
    quoted(&lines[lines.len().saturating_sub(TAIL)..])
}

fn lines(console: &str) -> Vec<&str> {
    console.lines().filter(|l| !l.trim().is_empty()).collect()
}

fn quoted(lines: &[&str]) -> String {
    if lines.is_empty() {
        return "  (nothing was printed)".to_string();
    }
    let indented: Vec<String> = lines.iter().map(|l| format!("  {l}")).collect();
    indented.join("\n")
}

/// Without the kernel's `[  112.298173] `.
fn without_time(line: &str) -> &str {
    match line
        .trim()
        .strip_prefix('[')
        .and_then(|l| l.split_once(']'))
    {
        Some((time, rest)) if time.trim().parse::<f64>().is_ok() => rest.trim(),
        _ => line.trim(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_end() {
        let console: String = (0..50).map(|i| format!("line {i}\n\n")).collect();
        let t = tail(&console);
        assert_eq!(t.lines().count(), TAIL);
        assert!(t.ends_with("  line 49"));
        assert!(tail("").contains("nothing"));
    }

    /// A report as the kernel prints it, without the panic.
    fn report(of: &str, place: &str) -> String {
        let mut said = format!(
            "[   12.000001] BUG: {of}\n[   12.000002] #PF: error\n[   12.000003] Oops: Oops: 0000 [#1] SMP\n\
             [   12.000004] RIP: 0010:{place}\n"
        );
        for i in 0..40 {
            said += &format!("[   12.0001{i:02}] R{i}: 0\n");
        }
        said + "[   12.2] RIP: 0033:0x7f\n"
    }
    const PANICKED: &str =
        "[   12.3] Kernel panic - not syncing: Fatal exception in interrupt\n[   12.4] Offset\n";

    #[test]
    fn a_crash_is_told_from_its_first_line_on() {
        let survived = report("a first one", "other+0x1/0x2");
        let last = report(
            "kernel NULL pointer dereference, address: 08",
            "dequeue_task+0x10/0x20",
        );
        for before in ["BERTH-SHIPPED amp\n[    9.5] no BUG here\n", &survived] {
            let told = crash(&format!("{before}{last}{PANICKED}")).unwrap();
            assert_eq!(
                told.why,
                "BUG: kernel NULL pointer dereference, address: 08; RIP: 0010:dequeue_task+0x10/0x20; Kernel panic - \
                 not syncing: Fatal exception in interrupt"
            );
            assert!(told.report.starts_with("  [   12.000001] BUG: kernel NULL"));
            assert!(told.report.contains("R39") && told.report.ends_with("Offset"));
        }
    }

    #[test]
    fn a_panic_alone_has_what_went_before_it() {
        let noise: String = (0..50).map(|i| format!("line {i}\n")).collect();
        let end = "thread 'main' panicked at x.rs\n[ 0.5] Kernel panic - not syncing: Attempted to kill init!\n";
        for before in [
            String::new(),
            noise.clone(),
            report("long ago", "x") + &noise + &noise,
        ] {
            let told = crash(&format!("{before}{end}")).unwrap();
            assert_eq!(
                told.why,
                "Kernel panic - not syncing: Attempted to kill init!"
            );
            assert!(told.report.contains("panicked at x.rs") && told.report.ends_with("init!"));
            assert!(told.report.lines().count() <= TAIL + 1);
        }
        // A process that was killed is no crash.
        assert_eq!(crash(&report("of a process", "x")), None);
        assert_eq!(crash(""), None);
        assert_eq!(
            crash("[no time] Kernel panic").unwrap().why,
            "[no time] Kernel panic"
        );
    }
}
