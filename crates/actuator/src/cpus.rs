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

/// The list of these CPUs, as the kernel writes it; empty if there are none.
pub fn list(cpus: &BTreeSet<u32>) -> String {
    let mut text = String::new();
    let mut left = cpus.iter().copied().peekable();
    while let Some(first) = left.next() {
        let mut last = first;
        while left.next_if_eq(&(last + 1)).is_some() {
            last += 1;
        }
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        let _ = match first == last {
            true => write!(text, "{comma}{first}"),
            false => write!(text, "{comma}{first}-{last}"),
        };
    }
    text
}

/// The CPUs of a mask as the kernel writes it: groups of 32 bits in hexadecimal, the highest first.
pub fn of_mask(mask: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for (word, group) in mask.trim().rsplit(',').zip(0u32..) {
        if word.len() > 8 || word.starts_with('+') || group > LARGEST / 32 {
            return None;
        }
        let bits = u32::from_str_radix(word, 16).ok()?;
        cpus.extend(
            (0..32)
                .filter(|b| bits >> b & 1 == 1)
                .map(|b| group * 32 + b),
        );
    }
    Some(cpus)
}

/// The mask of these CPUs, as the kernel takes it.
pub fn mask_text(cpus: &BTreeSet<u32>) -> String {
    let groups = cpus.last().map_or(1, |last| last / 32 + 1);
    let word = |group: u32| {
        let inside = cpus.range(group * 32..(group + 1) * 32);
        let bits = inside.fold(0u32, |bits, cpu| bits | 1 << (cpu % 32));
        format!("{bits:08x}")
    };
    let words: Vec<String> = (0..groups).rev().map(word).collect();
    words.join(",")
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

    #[test]
    fn masks_of_the_kernel() {
        let of = |text| of_mask(text).map(|cpus| list(&cpus));
        for (mask, cpus) in [
            ("3", "0-1"),
            ("00000001,80000000", "31-32"),
            ("0", ""),
            ("ff\n", "0-7"),
        ] {
            assert_eq!(of(mask).as_deref(), Some(cpus), "{mask}");
        }
        for bad in ["", "x", "123456789", "1,,1", "-1", "+1"] {
            assert_eq!(of_mask(bad), None, "{bad}");
        }
        assert_eq!(mask_text(&read("0-1").unwrap()), "00000003");
        assert_eq!(mask_text(&read("31-32").unwrap()), "00000001,80000000");
        assert_eq!(mask_text(&BTreeSet::new()), "00000000");
    }

    proptest! {
        #[test]
        fn masks_are_read_as_they_are_written(cpus in proptest::collection::btree_set(0u32..2000, 0..80)) {
            prop_assert_eq!(of_mask(&mask_text(&cpus)), Some(cpus.clone()));
        }

        #[test]
        fn lists_are_read_as_they_are_written(cpus in proptest::collection::btree_set(0u32..2000, 0..80)) {
            prop_assert_eq!(read(&list(&cpus)), Some(cpus.clone()));
        }

        #[test]
        fn any_text_is_a_list_or_none(text in ".{0,40}") {
            let _ = read(&text);
        }
    }
}
