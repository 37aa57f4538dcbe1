// SPDX-License-Identifier: GPL-2.0-only
//! Remarks on many VMs in few lines: who has the same reason is named together, and of many reasons some are told. A
//! host of 2,000 VMs that nobody has put into cgroups has 2,000 remarks, and they all say the same.

/// VMs that are named of those that have one reason, and reasons that are told.
const NAMES: usize = 3;
const REASONS: usize = 20;

/// What is said of one VM or of several.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// `VM web`, or `VMs web, db, build and 12 more`.
    who: String,
    several: bool,
    why: String,
}

impl Line {
    /// Known by its process only.
    pub fn known_by_process(&self) -> String {
        self.say("is known by its process", "are known by their processes")
    }

    /// No policy can be told of it.
    pub fn left_alone(&self) -> String {
        self.say("is left alone", "are left alone")
    }

    fn say(&self, one: &str, several: &str) -> String {
        let is = if self.several { several } else { one };
        format!("{} {is}: {}", self.who, self.why)
    }
}

/// Remarks `(VM, why)` in lines, in the order of the first of each; in how many more each VM has a reason of its own is
/// the last one.
pub fn in_few_lines<'a>(remarks: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Line> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut place = std::collections::HashMap::new();
    for (vm, why) in remarks {
        let at = *place.entry(why).or_insert(reasons.len());
        match reasons.get_mut(at) {
            Some((_, vms)) => vms.push(vm),
            None => reasons.push((why, vec![vm])),
        }
    }
    // One that is left out takes a line, too.
    let told = match reasons.len() > REASONS + 1 {
        true => REASONS,
        false => reasons.len(),
    };
    let more: usize = reasons.drain(told..).map(|(_, vms)| vms.len()).sum();
    let mut lines: Vec<Line> = reasons.iter().map(|(why, vms)| line(why, vms)).collect();
    if more > 0 {
        lines.push(Line {
            who: format!("{more} more VMs"),
            several: true,
            why: "`berth status --json` has all reasons".into(),
        });
    }
    lines
}

fn line(why: &str, vms: &[&str]) -> Line {
    let named = vms.len().min(NAMES);
    let several = vms.len() > 1;
    let mut who = if several { "VMs " } else { "VM " }.to_string();
    who += &vms[..named].join(", ");
    if vms.len() > named {
        who += &format!(" and {} more", vms.len() - named);
    }
    Line {
        who,
        several,
        why: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_same_reason_is_named_together() {
        let line = |who: &str, why: &str| Line {
            who: who.into(),
            several: who.starts_with("VMs"),
            why: why.into(),
        };
        assert_eq!(in_few_lines([]), []);
        let some = [("a", "x"), ("b", "y"), ("c", "x")];
        assert_eq!(
            in_few_lines(some),
            [line("VMs a, c", "x"), line("VM b", "y")]
        );
        let names: Vec<String> = (0..2000).map(|i| format!("vm{i}")).collect();
        let all = names.iter().map(|name| (&**name, "x"));
        assert_eq!(
            in_few_lines(all),
            [line("VMs vm0, vm1, vm2 and 1997 more", "x")]
        );
        // Nobody's is another's.
        let own = names.iter().map(|name| (&**name, &**name));
        let lines = in_few_lines(own);
        assert_eq!(lines.len(), REASONS + 1);
        assert_eq!(lines[0], line("VM vm0", "vm0"));
        assert_eq!(lines[REASONS].who, "1980 more VMs");
        let few = names.iter().take(REASONS + 1);
        let few = in_few_lines(few.map(|name| (&**name, &**name)));
        assert_eq!(few.last().unwrap().who, format!("VM vm{REASONS}"));
        assert_eq!(line("VM a", "x").left_alone(), "VM a is left alone: x");
        assert_eq!(
            line("VMs a, b", "x").known_by_process(),
            "VMs a, b are known by their processes: x"
        );
    }
}
