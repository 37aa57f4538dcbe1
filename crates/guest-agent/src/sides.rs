// SPDX-License-Identifier: GPL-2.0-only
//! Which CPUs of a VM are reserved for I/O, and which compute.
use berth_actuator::{cpus, list};
use berth_mixed::Side;
use std::collections::BTreeSet;
use std::str::FromStr;

/// What is asked to be reserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// So many, the last ones.
    Last(usize),
    These(BTreeSet<u32>),
}

impl Default for Reserved {
    fn default() -> Reserved {
        Reserved::Last(1)
    }
}

/// Why CPUs cannot be reserved so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    #[error("{0:?} is neither a number of CPUs, such as 1, nor a list of them, such as 2-3 or 3,")]
    NoList(String),
    #[error("no CPU would be reserved: give at least 1")]
    None,
    #[error("all of the {0} CPUs would be reserved: leave at least one that computes")]
    All(usize),
    #[error("CPU {cpu} is not there: processes may run on {there}")]
    NotThere { cpu: u32, there: String },
}

impl FromStr for Reserved {
    type Err = Wrong;

    /// A number is a number of CPUs; a list has a comma or a dash in it: `3,` is CPU 3.
    fn from_str(text: &str) -> Result<Reserved, Wrong> {
        let text = text.trim();
        let wrong = || Wrong::NoList(text.into());
        let reserved = match text.contains(['-', ',']) {
            true => Reserved::These(cpus(text).ok_or_else(wrong)?),
            false => Reserved::Last(text.parse().map_err(|_| wrong())?),
        };
        match &reserved {
            Reserved::Last(0) => Err(Wrong::None),
            Reserved::These(these) if these.is_empty() => Err(Wrong::None),
            _ => Ok(reserved),
        }
    }
}

/// The two sides of a VM; neither is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    /// Where processes run that nobody has pinned.
    pub whole: BTreeSet<u32>,
    pub compute: BTreeSet<u32>,
    pub reserved: BTreeSet<u32>,
}

impl Sides {
    /// Of the CPUs that are `there`.
    ///
    /// # Errors
    /// One side would be empty, or a CPU is not there.
    pub fn new(there: &BTreeSet<u32>, reserved: &Reserved) -> Result<Sides, Wrong> {
        let reserved: BTreeSet<u32> = match reserved {
            Reserved::Last(n) => there.iter().rev().take(*n).copied().collect(),
            Reserved::These(these) => these.clone(),
        };
        if let Some(cpu) = reserved.difference(there).next() {
            return Err(Wrong::NotThere {
                cpu: *cpu,
                there: list(there),
            });
        }
        let compute: BTreeSet<u32> = there.difference(&reserved).copied().collect();
        match (reserved.is_empty(), compute.is_empty()) {
            (true, _) => Err(Wrong::None),
            (_, true) => Err(Wrong::All(there.len())),
            _ => Ok(Sides {
                whole: there.clone(),
                compute,
                reserved,
            }),
        }
    }

    pub fn of(&self, side: Side) -> &BTreeSet<u32> {
        match side {
            Side::Compute => &self.compute,
            Side::Reserved => &self.reserved,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sides(there: &str, reserved: &str) -> Result<(String, String), Wrong> {
        let sides = Sides::new(&cpus(there).unwrap(), &reserved.parse()?)?;
        Ok((list(&sides.compute), list(&sides.reserved)))
    }

    #[test]
    fn a_number_or_a_list() {
        let is = |compute: &str, reserved: &str| Ok((compute.into(), reserved.into()));
        assert_eq!(sides("0-3", "1"), is("0-2", "3"));
        assert_eq!(sides("0-3", "3"), is("0", "1-3"));
        assert_eq!(sides("0-3", "0,2"), is("1,3", "0,2"));
        assert_eq!(sides("0-3", "3,"), is("0-2", "3"));
        assert_eq!(sides("1,4,8", "2"), is("1", "4,8"));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        let said = |there, reserved| sides(there, reserved).unwrap_err().to_string();
        assert_eq!(
            said("0-3", "4"),
            "all of the 4 CPUs would be reserved: leave at least one that computes"
        );
        assert_eq!(sides("0-3", "5"), Err(Wrong::All(4)));
        assert_eq!(sides("0-3", "0-3"), Err(Wrong::All(4)));
        assert_eq!(sides("0", "1"), Err(Wrong::All(1)));
        assert_eq!(
            said("0-3", "3-4"),
            "CPU 4 is not there: processes may run on 0-3"
        );
        for none in ["0", ",", "0000"] {
            assert_eq!(sides("0-3", none), Err(Wrong::None), "{none}");
        }
        for bad in ["", "x", "-1", "3-1", "1.5", "1,a", "99999999999999999999"] {
            assert_eq!(sides("0-3", bad), Err(Wrong::NoList(bad.into())), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn the_sides_are_the_whole(
            there in prop::collection::btree_set(0..64u32, 0..20),
            reserved in prop_oneof![
                (0..24usize).prop_map(Reserved::Last),
                prop::collection::btree_set(0..64u32, 0..6).prop_map(Reserved::These),
            ],
        ) {
            match Sides::new(&there, &reserved) {
                Ok(s) => {
                    prop_assert!(!s.compute.is_empty() && !s.reserved.is_empty());
                    prop_assert!(s.compute.is_disjoint(&s.reserved));
                    prop_assert_eq!(&s.compute | &s.reserved, there);
                }
                Err(Wrong::All(n)) => prop_assert_eq!(n, there.len()),
                Err(Wrong::NotThere { cpu, .. }) => prop_assert!(!there.contains(&cpu)),
                Err(_) => prop_assert!(
                    there.is_empty() || reserved == Reserved::Last(0) || reserved == Reserved::These(BTreeSet::new())
                ),
            }
        }
    }
}
