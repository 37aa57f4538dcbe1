// SPDX-License-Identifier: GPL-2.0-only
//! Linux's own scheduler where there is no kernel: which model stands for it, by the kernel's line.
use crate::error::Failure;
use berth_scenario::model::Arm;

/// First line with sched_ext: before it there is no policy but the kernel's own.
const SCHED_EXT: (u32, u32, u32) = (6, 12, 0);
/// First lines with EEVDF, with CFS as 6.1 has it, with CFS as 2.6.33 has it.
const EEVDF: (u32, u32, u32) = (6, 6, 0);
const CFS: (u32, u32, u32) = (3, 0, 0);
const EARLY_CFS: (u32, u32, u32) = (2, 6, 23);

/// A kernel's line, `6.1`; of no kernel (none is named) there is none.
fn line(kernel: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = kernel.split('.').map(|n| n.parse().ok());
    Some((
        numbers.next()??,
        numbers.next().flatten()?,
        numbers.next().flatten().unwrap_or(0),
    ))
}

/// Whether policies can be loaded there.
pub fn has_sched_ext(kernel: &str) -> bool {
    line(kernel).is_none_or(|line| line >= SCHED_EXT)
}

/// What is run for an arm on a host with that kernel. The kernel's own scheduler is a model: of EEVDF since 6.6, of CFS
/// with groups (a VM's weight counts) from 3.0 on, of CFS without groups since 2.6.23, of O(1) before.
///
/// # Errors
/// A policy on a kernel that cannot load any.
pub fn arm_on(arm: &Arm, kernel: &str) -> Result<Arm, Failure> {
    let mut arm = arm.clone();
    if arm.policy != "linux" {
        return match has_sched_ext(kernel) {
            true => Ok(arm),
            false => Err(Failure::Input(format!(
                "arm {}: Linux {kernel} has no sched_ext (that came with 6.12): on it there is only policy = \"linux\"",
                arm.name
            ))),
        };
    }
    match line(kernel) {
        Some(line) if line < EARLY_CFS => arm.policy = "o1".into(),
        Some(line) if line < CFS => {
            arm.policy = "cfs".into();
            arm.preset = Some("linux-2.6.33".into());
        }
        Some(line) if line < EEVDF => {
            arm.policy = "cfs".into();
            arm.preset = Some("linux-6.1".into());
            arm.params.insert("groups".into(), "1".into());
        }
        _ => (),
    }
    Ok(arm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn on(policy: &str, kernel: &str) -> Result<(String, Option<String>), String> {
        let arm = Arm {
            name: "a".into(),
            policy: policy.into(),
            preset: None,
            params: BTreeMap::new(),
            loader: Default::default(),
            set: BTreeMap::new(),
            scenario: None,
        };
        let arm = arm_on(&arm, kernel).map_err(|e| format!("{e:?}"))?;
        Ok((arm.policy, arm.preset))
    }

    #[test]
    fn each_line_has_its_model() {
        let preset = |p: &str| Some(p.to_string());
        for (kernel, policy, with) in [
            ("", "linux", None),
            ("7.2", "linux", None),
            ("6.6", "linux", None),
            ("6.1", "cfs", preset("linux-6.1")),
            ("5.10.3", "cfs", preset("linux-6.1")),
            ("2.6.33", "cfs", preset("linux-2.6.33")),
            ("2.6.21", "o1", None),
        ] {
            assert_eq!(
                on("linux", kernel),
                Ok((policy.to_string(), with)),
                "{kernel}"
            );
        }
        assert_eq!(on("vmfair", "6.18"), Ok(("vmfair".into(), None)));
        assert!(on("vmfair", "6.1").unwrap_err().contains("no sched_ext"));
    }
}
