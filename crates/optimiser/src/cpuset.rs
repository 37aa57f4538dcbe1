// SPDX-License-Identifier: GPL-2.0-only
//! Sets of CPUs, as the kernel writes them: `0-3,8`.
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Largest number of a CPU that a list may name.
const MAX_CPU: u32 = 1 << 20;

/// At least one CPU. Copies are cheap: VMs that share CPUs share the set.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CpuSet {
    /// First and last of each run, ascending, with gaps between them; never empty.
    runs: Arc<[(u32, u32)]>,
}

impl CpuSet {
    /// These CPUs in any order; `None` if there are none.
    pub fn of(cpus: impl IntoIterator<Item = u32>) -> Option<CpuSet> {
        let mut all: Vec<u32> = cpus.into_iter().collect();
        all.sort_unstable();
        CpuSet::of_runs(all.into_iter().map(|c| (c, c)))
    }

    /// Runs in ascending order of their first CPU.
    fn of_runs(all: impl Iterator<Item = (u32, u32)>) -> Option<CpuSet> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (first, last) in all {
            match runs.last_mut() {
                Some(run) if first <= run.1.saturating_add(1) => run.1 = run.1.max(last),
                _ => runs.push((first, last)),
            }
        }
        (!runs.is_empty()).then(|| CpuSet { runs: runs.into() })
    }

    /// First and last of each run of CPUs, ascending.
    pub fn runs(&self) -> &[(u32, u32)] {
        &self.runs
    }

    /// Ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Number of CPUs; at least 1.
    pub fn count(&self) -> usize {
        let len = |(first, last): &(u32, u32)| (last - first) as usize + 1;
        self.runs.iter().map(len).sum()
    }

    pub fn has(&self, cpu: u32) -> bool {
        let after = self.runs.partition_point(|(first, _)| *first <= cpu);
        after > 0 && self.runs[after - 1].1 >= cpu
    }

    /// Have both a CPU in common?
    pub fn meets(&self, other: &CpuSet) -> bool {
        let meets = |a: &(u32, u32)| other.runs.iter().any(|b| a.0 <= b.1 && b.0 <= a.1);
        self.runs.iter().any(meets)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.runs.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromStr for CpuSet {
    type Err = Error;

    fn from_str(text: &str) -> Result<CpuSet, Error> {
        let bad = || Error::CpuList(text.to_string());
        let number = |word: &str| match word.trim().parse::<u32>() {
            Ok(cpu) if cpu <= MAX_CPU => Ok(cpu),
            _ => Err(bad()),
        };
        let mut runs = Vec::new();
        for part in text.trim().split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let run = (number(first)?, number(last)?);
            if run.0 > run.1 {
                return Err(bad());
            }
            runs.push(run);
        }
        runs.sort_unstable();
        CpuSet::of_runs(runs.into_iter()).ok_or_else(bad)
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> String {
        set.to_string()
    }
}

impl TryFrom<String> for CpuSet {
    type Error = Error;

    fn try_from(text: String) -> Result<CpuSet, Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn written_as_the_kernel_writes_them() {
        let set = CpuSet::of([8, 1, 0, 3, 2, 2]).unwrap();
        assert_eq!(set.to_string(), "0-3,8");
        assert_eq!((set.count(), set.has(3), set.has(4)), (5, true, false));
        assert_eq!("8, 0-3,2\n".parse::<CpuSet>().unwrap(), set);
        assert_eq!(CpuSet::of([]), None);
        for bad in ["", "3-1", "0-", "x", "0,,1", "4000000000", "-1"] {
            let error = bad.parse::<CpuSet>().unwrap_err();
            assert_eq!(error, Error::CpuList(bad.into()));
        }
    }

    proptest! {
        #[test]
        fn a_set_is_read_as_it_was_written(cpus in prop::collection::btree_set(0..200u32, 1..60), b in 0..200u32) {
            let set = CpuSet::of(cpus.iter().rev().copied()).unwrap();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), cpus.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set.clone());
            prop_assert_eq!(set.count(), cpus.len());
            prop_assert_eq!(set.has(b), cpus.contains(&b));
            prop_assert_eq!(set.meets(&CpuSet::of([b]).unwrap()), cpus.contains(&b));
        }
    }
}
