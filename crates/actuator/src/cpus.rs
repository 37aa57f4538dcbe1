// SPDX-License-Identifier: GPL-2.0-only
//! Lists of CPUs as the kernel writes them: `0-3,8`.
use std::collections::BTreeSet;
use std::fmt::Write;

/// Largest CPU number that is believed.
const LARGEST: u32 = 1 << 16;

/// The CPUs of a list, ascending; `None`: it is no list. An empty text is an empty list.
pub fn read(list: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for part in list.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        if first > last || last > LARGEST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

/// The list of these CPUs, as the kernel writes it.
pub fn write(cpus: &BTreeSet<u32>) -> String {
    let mut text = String::new();
    let mut left = cpus.iter().copied().peekable();
    while let Some(first) = left.next() {
        let mut last = first;
        while left.next_if_eq(&(last + 1)).is_some() {
            last += 1;
        }
        let comma = if text.is_empty() { "" } else { "," };
        let _ = match first == last {
            true => write!(text, "{comma}{first}"),
            false => write!(text, "{comma}{first}-{last}"),
        };
    }
    text
}

/// Whether two values mean the same: words by word, lists of CPUs by CPU.
pub fn same(a: &str, b: &str) -> bool {
    let words = |text: &str| {
        text.split_whitespace()
            .map(String::from)
            .collect::<Vec<_>>()
    };
    words(a) == words(b)
        || (a.contains(['-', ',']) || b.contains(['-', ',']))
            && read(a).is_some()
            && read(a) == read(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_that_mean_the_same() {
        assert!(
            same("0,1,2", "0-2") && same("0-1", " 0-1\n") && same("50000 100000", "50000  100000")
        );
        assert!(same("", "") && same("100", "100"));
        assert!(
            !same("0-1", "0-2")
                && !same("100", "1")
                && !same("", "0-1")
                && !same("max 100000", "50000 100000")
        );
        assert!(read("3-1").is_none() && read("0-99999999").is_none() && read("a").is_none());
    }

    proptest! {
        #[test]
        fn lists_are_read_as_they_are_written(cpus in proptest::collection::btree_set(0u32..2000, 0..80)) {
            prop_assert_eq!(read(&write(&cpus)), Some(cpus.clone()));
        }

        #[test]
        fn any_text_is_a_list_or_none(text in ".{0,40}") {
            let _ = read(&text);
        }
    }
}
