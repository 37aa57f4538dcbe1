// SPDX-License-Identifier: GPL-2.0-only
//! Which new settings are worth a change: other CPUs always, numbers if they moved far enough.
use crate::act::Setting;

/// Are these numbers further apart than this part of the first?
fn apart(from: f64, to: f64, part: f64) -> bool {
    (to - from).abs() > part * from.abs()
}

fn other(from: Option<f64>, to: Option<f64>, part: f64) -> bool {
    match (from, to) {
        (None, None) => false,
        (Some(from), Some(to)) => apart(from, to, part),
        (None, Some(_)) | (Some(_), None) => true,
    }
}

/// Is `to` worth changing `from` for? Numbers count as equal up to this part of them.
pub fn worth(from: &Setting, to: &Setting, part: f64) -> bool {
    from.cpus != to.cpus
        || apart(f64::from(from.weight), f64::from(to.weight), part)
        || other(from.cap, to.cap, part)
        || other(from.run_fraction, to.run_fraction, part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpuset::CpuSet;

    #[test]
    fn small_differences_are_not_worth_it() {
        let from = Setting {
            cpus: None,
            weight: 100,
            cap: Some(1.0),
            run_fraction: None,
        };
        let to = |change: &dyn Fn(&mut Setting)| {
            let mut to = from.clone();
            change(&mut to);
            worth(&from, &to, 0.05)
        };
        assert!(!to(&|_| ()));
        assert!(!to(&|s| s.weight = 105));
        assert!(to(&|s| s.weight = 94));
        assert!(!to(&|s| s.cap = Some(0.96)));
        assert!(to(&|s| s.cap = Some(1.1)));
        assert!(to(&|s| s.cap = None));
        assert!(to(&|s| s.run_fraction = Some(0.9)));
        assert!(to(&|s| s.cpus = CpuSet::of([0])));
    }
}
