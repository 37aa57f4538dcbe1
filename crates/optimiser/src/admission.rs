// SPDX-License-Identifier: GPL-2.0-only
//! Whose guarantee does not fit, and what would. First come, first served.
use serde::{Deserialize, Serialize};

/// A guarantee for which there is no room.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Misfit {
    pub vm: String,
    /// CPUs asked for.
    pub guarantee: f64,
    /// The largest guarantee that would fit, CPUs.
    pub fits: f64,
    /// CPUs that the host is short of.
    pub short_by: f64,
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "VM {}: a guarantee of {} CPUs does not fit, {:.3} too much: {:.3} would, or {:.3} more CPUs beyond the \
             reserve",
            self.vm, self.guarantee, self.short_by, self.fits, self.short_by
        )
    }
}

/// Rounding of sums of guarantees, CPUs.
const EXACT: f64 = 1e-9;

/// Those of these VMs, in the order in which they came, whose guarantees (CPUs) do not fit into the capacity beside
/// the ones that came before and did.
pub fn misfits<'a>(
    capacity: f64,
    guarantees: impl IntoIterator<Item = (&'a str, f64)>,
) -> Vec<Misfit> {
    let mut free = capacity;
    let mut out = Vec::new();
    for (vm, guarantee) in guarantees {
        if guarantee <= free + EXACT {
            free -= guarantee;
        } else {
            let fits = free.max(0.0);
            out.push(Misfit {
                vm: vm.to_string(),
                guarantee,
                fits,
                short_by: guarantee - fits,
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_fit_and_what_would() {
        let all = [("a", 0.95), ("b", 0.9), ("c", 0.0), ("d", 0.05)];
        let list = misfits(1.9, all);
        assert_eq!(list, []);
        let all = [("a", 1.5), ("b", 0.9), ("c", 0.4)];
        let list = misfits(1.9, all);
        assert_eq!(list.len(), 1);
        assert_eq!((list[0].vm.as_str(), list[0].guarantee), ("b", 0.9));
        assert!((list[0].fits - 0.4).abs() < 1e-12 && (list[0].short_by - 0.5).abs() < 1e-12);
        assert_eq!(
            list[0].to_string(),
            "VM b: a guarantee of 0.9 CPUs does not fit, 0.500 too much: 0.400 would, or 0.500 more CPUs beyond the \
             reserve"
        );
    }
}
