// SPDX-License-Identifier: GPL-2.0-only
//! How busy each CPU was over the last five seconds.
use berth_host::root::Root;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Of that long.
const SPAN: Duration = Duration::from_secs(5);
/// Between two readings.
const APART: Duration = Duration::from_millis(500);

/// Busy and all ticks of each CPU.
type Reading = BTreeMap<u32, (u64, u64)>;

#[derive(Clone, Debug, Default)]
pub struct Busy {
    readings: VecDeque<(Instant, Reading)>,
}

impl Busy {
    /// Reads, if that is due.
    pub fn look(&mut self, root: &Root) {
        let now = root.now();
        if self
            .readings
            .back()
            .is_some_and(|(at, _)| now - *at < APART)
        {
            return;
        }
        let Some(text) = root.proc_text("stat") else {
            return;
        };
        self.readings.push_back((now, read(&text)));
        // One that is older than the span is where it begins.
        while self
            .readings
            .get(1)
            .is_some_and(|(at, _)| now - *at >= SPAN)
        {
            self.readings.pop_front();
        }
    }

    /// Waits for the second reading, if there is but one.
    pub fn settle(&mut self, root: &Root) {
        self.look(root);
        if self.readings.len() == 1 {
            root.sleep(APART);
            self.look(root);
        }
    }

    /// 0 to 1 of each CPU; empty before there are two readings.
    pub fn of(&self) -> BTreeMap<u32, f64> {
        let (Some((_, first)), Some((_, last))) = (self.readings.front(), self.readings.back())
        else {
            return BTreeMap::new();
        };
        let part = |(cpu, (busy, all)): (&u32, &(u64, u64))| {
            let (b, a) = first.get(cpu)?;
            let all = all.checked_sub(*a).filter(|d| *d > 0)?;
            let busy = busy.saturating_sub(*b).min(all);
            Some((*cpu, busy as f64 / all as f64))
        };
        last.iter().filter_map(part).collect()
    }
}

/// `cpuN USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ...`, a line for each.
fn read(text: &str) -> Reading {
    let line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let cpu: u32 = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.map_while(|w| w.parse().ok()).take(8).collect();
        let all = ticks.iter().try_fold(0u64, |a, b| a.checked_add(*b))?;
        let idle = ticks
            .get(3)?
            .checked_add(ticks.get(4).copied().unwrap_or(0))?;
        Some((cpu, (all - idle, all)))
    };
    // The first line is of all together, which has no number.
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_busy_when_it_is_not_idle() {
        let before = read("cpu  9 9 9 9\ncpu0 10 0 0 90 0 0 0 0 5 0\ncpu1 0 0 0 100 0\nintr 7\n");
        assert_eq!(before, [(0, (10, 100)), (1, (0, 100))].into());
        let after = read("cpu0 40 0 20 140 0 0 0 0 5 0\ncpu1 0 0 0 150 50\ncpu7 1 1 1 1\n");
        let now = Instant::now();
        let busy = Busy {
            readings: [(now, before), (now, after)].into(),
        };
        assert_eq!(busy.of(), [(0, 0.5), (1, 0.0)].into());
        for bad in [
            "",
            "cpu",
            "cpu0",
            "cpu0 x",
            "cpu0 18446744073709551615 1 1 1",
            "cpu0 1 1 1",
        ] {
            assert!(read(bad).is_empty(), "{bad}");
        }
        assert!(Busy::default().of().is_empty());
    }

    #[test]
    fn the_first_one_who_asks_waits_for_a_second_reading() {
        use berth_host::time::Played;
        let folder = tempfile::tempdir().unwrap();
        let stat = folder.path().join("proc/stat");
        std::fs::create_dir_all(folder.path().join("proc")).unwrap();
        std::fs::write(&stat, "cpu0 0 0 0 100 0\n").unwrap();
        let later = move |_: Duration| std::fs::write(&stat, "cpu0 30 0 0 120 0\n").unwrap();
        let root = Root::at(folder.path()).with_time(std::sync::Arc::new(Played::new(later)));
        let mut busy = Busy::default();
        let begun = root.now();
        busy.settle(&root);
        assert_eq!(busy.of(), [(0, 0.6)].into());
        busy.settle(&root);
        assert_eq!(root.now() - begun, APART, "it waits once");
    }
}
