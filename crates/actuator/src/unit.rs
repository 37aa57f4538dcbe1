// SPDX-License-Identifier: GPL-2.0-only
//! What systemd may be asked to set of a unit, and its values as text.
//!
//! A value is `unset`, a number, or a list of CPUs. The word `runtime` after it: somebody has set it while the unit ran
//! (`SetUnitProperties`, `systemctl set-property --runtime`), and systemd has written that down below `/run/systemd`;
//! without, it is what the unit's own files say.
use crate::cpus;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use zbus::{OwnedVariant, Variant};

/// What of a unit is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Property {
    /// 1 to 10000, as `cpu.weight`.
    #[serde(rename = "CPUWeight")]
    Weight,
    /// The cap, µs of CPU time in each second.
    #[serde(rename = "CPUQuotaPerSecUSec")]
    Quota,
    /// The CPU set.
    #[serde(rename = "AllowedCPUs")]
    Cpus,
}

/// The value of a property that nobody has set.
pub const UNSET: &str = "unset";
const RUNTIME: &str = "runtime";
/// As much as a CPU mask may hold, bytes.
const MASK: usize = 1 << 13;

impl Property {
    /// As D-Bus has it.
    pub fn name(self) -> &'static str {
        match self {
            Property::Weight => "CPUWeight",
            Property::Quota => "CPUQuotaPerSecUSec",
            Property::Cpus => "AllowedCPUs",
        }
    }

    /// The file below `/run/systemd` in which systemd writes down what was set while the unit ran.
    pub fn drop_in(self) -> &'static str {
        match self {
            Property::Weight => "50-CPUWeight.conf",
            Property::Quota => "50-CPUQuota.conf",
            Property::Cpus => "50-AllowedCPUs.conf",
        }
    }

    /// The file of the cgroup in which the kernel has it, of version 2 and of version 1.
    pub fn files(self) -> [&'static str; 2] {
        match self {
            Property::Weight => ["cpu.weight", "cpu.shares"],
            Property::Quota => ["cpu.max", "cpu.cfs_quota_us"],
            Property::Cpus => ["cpuset.cpus", "cpuset.cpus"],
        }
    }

    /// What systemd says, as text; `None`: it is of no type that this has.
    pub fn text(self, value: OwnedVariant) -> Option<String> {
        match self {
            Property::Weight | Property::Quota => {
                let number = u64::try_from(value).ok()?;
                Some(match number {
                    u64::MAX => UNSET.into(),
                    number => number.to_string(),
                })
            }
            Property::Cpus => {
                let mask = Vec::<u8>::try_from(value).ok()?;
                if mask.len() > MASK {
                    return None;
                }
                let bits = (0u32..).zip(&mask).flat_map(|(byte, bits)| {
                    (0..8)
                        .filter(move |bit| bits >> bit & 1 == 1)
                        .map(move |bit| byte * 8 + bit)
                });
                Some(match cpus::list(&bits.collect()) {
                    list if list.is_empty() => UNSET.into(),
                    list => list,
                })
            }
        }
    }

    /// The other way; `None`: the text is none.
    pub fn variant(self, text: &str) -> Option<Variant<'static>> {
        let text = plain(text);
        match self {
            Property::Weight | Property::Quota => Some(Variant::from(match text {
                UNSET => u64::MAX,
                text => text.parse::<u64>().ok().filter(|n| *n < u64::MAX)?,
            })),
            Property::Cpus => {
                let mut mask = Vec::new();
                if text != UNSET {
                    for cpu in cpus::read(text).filter(|cpus| !cpus.is_empty())? {
                        let byte = cpu as usize / 8;
                        if mask.len() <= byte {
                            mask.resize(byte + 1, 0u8);
                        }
                        mask[byte] |= 1 << (cpu % 8);
                    }
                }
                Some(Variant::from(mask))
            }
        }
    }

    /// What the kernel's file has once systemd has set this: `there` is what is in it, of version 2 or 1.
    pub fn has_arrived(self, text: &str, version: usize, there: &str) -> bool {
        let text = plain(text);
        let there = there.trim();
        let number = text.parse::<u64>().ok();
        match (self, number) {
            (Property::Weight, _) if text == UNSET => there == ["100", "1024"][version.min(1)],
            (Property::Quota, _) if text == UNSET => {
                there.starts_with(["max", "-1"][version.min(1)])
            }
            (Property::Cpus, _) if text == UNSET => there.is_empty(),
            (Property::Weight, Some(n)) if version == 0 => there.parse() == Ok(n),
            (Property::Weight, Some(n)) => {
                there.parse() == Ok((n.saturating_mul(1024) / 100).max(2))
            }
            (Property::Quota, Some(n)) if version == 0 => {
                let words = there.split_once(' ');
                let words =
                    words.and_then(|(q, p)| Some((q.parse::<u64>().ok()?, p.parse::<u64>().ok()?)));
                words.is_some_and(|(quota, period)| is_quota(quota, period, n))
            }
            // Its period is another file, 100 ms unless somebody has changed that.
            (Property::Quota, Some(_)) => there.parse::<u64>().is_ok_and(|quota| quota > 0),
            (Property::Cpus, _) => cpus::same(text, there),
            (_, None) => false,
        }
    }
}

/// Whether a quota of a period is so many µs of a second; systemd rounds.
fn is_quota(quota: u64, period: u64, per_second: u64) -> bool {
    let quota = quota as f64 / period.max(1) as f64 * 1e6;
    (quota - per_second as f64).abs() <= 0.01 * per_second as f64 + 1e6 / period.max(1) as f64
}

/// A value that is written down because it was set while the unit ran.
pub fn at_runtime(value: &str) -> String {
    let mut text = plain(value).to_string();
    let _ = write!(text, " {RUNTIME}");
    text
}

/// A value without the word.
pub fn plain(value: &str) -> &str {
    value.split_whitespace().next().unwrap_or(UNSET)
}

/// Whether it was set while the unit ran.
pub fn is_runtime(value: &str) -> bool {
    value.split_whitespace().nth(1) == Some(RUNTIME)
}

/// The interface of a unit of this kind; `None`: it is no name of a unit that has a cgroup.
pub fn interface(unit: &str) -> Option<&'static str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    if unit.len() > 255 || unit.starts_with('.') || !unit.chars().all(fits) {
        return None;
    }
    match unit.rsplit_once('.')? {
        ("", _) => None,
        (_, "scope") => Some("org.freedesktop.systemd1.Scope"),
        (_, "service") => Some("org.freedesktop.systemd1.Service"),
        (_, "slice") => Some("org.freedesktop.systemd1.Slice"),
        _ => None,
    }
}

/// The object of a unit: what is neither a letter nor a digit becomes `_xx`, as a digit at the beginning does.
pub fn object(unit: &str) -> String {
    let mut path = String::from("/org/freedesktop/systemd1/unit/");
    for (i, byte) in unit.bytes().enumerate() {
        match byte.is_ascii_alphabetic() || i > 0 && byte.is_ascii_digit() {
            true => path.push(byte.into()),
            false => drop(write!(path, "_{byte:02x}")),
        }
    }
    path
}

/// The unit of a cgroup path's part, where systemd has made it: a name that the kernel could take for one of its files
/// has a `_` before it.
pub fn of_part(part: &str) -> Option<&str> {
    let name = part.strip_prefix('_').unwrap_or(part);
    interface(name).map(|_| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(value: impl Into<Variant<'static>>) -> OwnedVariant {
        value.into().try_into().unwrap()
    }

    #[test]
    fn values_as_text_and_back() {
        for (property, text, value) in [
            (Property::Weight, "300", owned(300u64)),
            (Property::Weight, "unset", owned(u64::MAX)),
            (Property::Quota, "1500000", owned(1_500_000u64)),
            (Property::Cpus, "0-1,9", owned(vec![3u8, 2])),
            (Property::Cpus, "unset", owned(Vec::<u8>::new())),
        ] {
            assert_eq!(
                property.text(value.try_clone().unwrap()).as_deref(),
                Some(text)
            );
            let back = property.variant(&at_runtime(text)).unwrap();
            assert_eq!(OwnedVariant::try_from(back).unwrap(), value, "{text}");
        }
        // Other types, and texts that are none.
        assert_eq!(Property::Weight.text(owned("300")), None);
        assert_eq!(Property::Weight.text(owned(300u32)), None);
        assert_eq!(Property::Cpus.text(owned(300u64)), None);
        assert_eq!(Property::Cpus.text(owned(vec![0u8; MASK + 1])), None);
        for (property, bad) in [
            (Property::Weight, "x"),
            (Property::Weight, "-1"),
            (Property::Quota, "18446744073709551615"),
            (Property::Cpus, "3-1"),
            (Property::Cpus, "99999999"),
        ] {
            assert!(property.variant(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn words_of_values() {
        assert_eq!(at_runtime("300"), "300 runtime");
        assert_eq!(at_runtime("300 runtime"), "300 runtime");
        assert!(is_runtime("unset runtime") && !is_runtime("unset") && !is_runtime(""));
        assert_eq!((plain("0-1 runtime"), plain("")), ("0-1", UNSET));
    }

    #[test]
    fn names_that_are_no_units_are_none() {
        assert_eq!(
            object("machine-qemu\\x2d1\\x2dweb.scope"),
            "/org/freedesktop/systemd1/unit/machine_2dqemu_5cx2d1_5cx2dweb_2escope"
        );
        assert_eq!(
            object("1.scope"),
            "/org/freedesktop/systemd1/unit/_31_2escope"
        );
        assert!(interface("a@1.service").is_some() && interface("a-b.slice").is_some());
        for bad in [
            "",
            ".scope",
            "a.mount",
            "a",
            "../a.scope",
            "a/b.scope",
            "a b.scope",
            "ä.scope",
        ] {
            assert!(interface(bad).is_none(), "{bad}");
        }
        assert_eq!(of_part("_cpu.scope"), Some("cpu.scope"));
        assert_eq!(of_part("vcpu0"), None);
    }

    #[test]
    fn what_the_kernel_has_of_it() {
        for (property, text, version, there, arrived) in [
            (Property::Weight, "300 runtime", 0, "300\n", true),
            (Property::Weight, "300 runtime", 0, "100", false),
            (Property::Weight, "300", 1, "3072", true),
            (Property::Quota, "1500000 runtime", 0, "150000 100000", true),
            (Property::Quota, "1500000 runtime", 0, "max 100000", false),
            (Property::Quota, "10000", 0, "1000 100000", true),
            (Property::Quota, "10000", 0, "2000 100000", false),
            (Property::Quota, "10000", 1, "-1", false),
            (Property::Cpus, "0,1 runtime", 0, "0-1", true),
            (Property::Cpus, "0,1 runtime", 0, "", false),
            (Property::Cpus, "unset", 0, "", true),
            (Property::Cpus, "unset", 0, "0-1", false),
            (Property::Weight, "unset", 0, "100", true),
            (Property::Weight, "unset", 1, "100", false),
            (Property::Quota, "unset runtime", 0, "max 100000", true),
            (Property::Quota, "unset", 1, "-1", true),
        ] {
            assert_eq!(
                property.has_arrived(text, version, there),
                arrived,
                "{text}: {there}"
            );
        }
    }
}
