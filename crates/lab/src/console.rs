// SPDX-License-Identifier: GPL-2.0-only
//! What of a VM's console an error quotes: its end, or a crash of its kernel from the first line on.

/// Lines quoted of an end.
const TAIL: usize = 20;
/// Lines quoted of a crash: registers, call trace and the panic.
const REPORT: usize = 80;
/// The kernel prints this as its last word.
const PANIC: &str = "Kernel panic";
/// What the first line of a kernel's report has one of.
const FAULTS: [&str; 8] = [
    "BUG: ",
    "kernel BUG at",
    "Oops: ",
    "general protection fault",
    "invalid opcode",
    "divide error",
    "stack segment",
    PANIC,
];

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
    let first = lines
        .iter()
        .position(|l| FAULTS.iter().any(|f| l.contains(f)))?;
    let place = lines[first..panic].iter().find(|l| l.contains("RIP: "));
    let mut why: Vec<&str> = [Some(&lines[first]), place, Some(&lines[panic])]
        .into_iter()
        .flatten()
        .map(|l| without_time(l))
        .collect();
    why.dedup();
    let end = lines.len().min(first + REPORT);
    Some(Crash {
        why: why.join("; "),
        report: quoted(&lines[first..end]),
    })
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

    #[test]
    fn a_crash_is_told_from_its_first_line_on() {
        let mut console = "BERTH-SHIPPED amp\n[    9.5] a driver: no BUG here\n\
            [   12.000001] BUG: kernel NULL pointer dereference, address: 0000000000000008\n\
            [   12.000002] Oops: Oops: 0000 [#1] SMP NOPTI\n\
            [   12.000003] RIP: 0010:dequeue_task+0x10/0x20\n"
            .to_string();
        for i in 0..60 {
            console += &format!("[   12.0001{i:02}] R{i}: 0\n");
        }
        console += "[   12.2] RIP: 0033:0x7f\n[   12.3] Kernel panic - not syncing: Fatal exception in interrupt\n";
        let told = crash(&console).unwrap();
        assert_eq!(
            told.why,
            "BUG: kernel NULL pointer dereference, address: 0000000000000008; RIP: 0010:dequeue_task+0x10/0x20; Kernel \
             panic - not syncing: Fatal exception in interrupt"
        );
        assert!(told.report.starts_with("  [   12.000001] BUG"));
        assert!(told.report.contains("R59") && told.report.contains("Fatal exception"));
    }

    #[test]
    fn a_panic_alone_and_none() {
        let told =
            crash("x\n[ 0.5] Kernel panic - not syncing: No working init found.\ny\n").unwrap();
        assert_eq!(
            told.why,
            "Kernel panic - not syncing: No working init found."
        );
        assert!(told.report.ends_with("y") && !told.report.contains("x\n"));
        // A process that was killed is no crash.
        assert_eq!(
            crash("[ 1.0] Oops: 0000\n[ 1.1] ---[ end trace ]---\n"),
            None
        );
        assert_eq!(crash(""), None);
        assert_eq!(
            crash("[no time] Kernel panic").unwrap().why,
            "[no time] Kernel panic"
        );
    }
}
