// SPDX-License-Identifier: GPL-2.0-only
//! Was the warm-up long enough? The first part of the measured window is held against its second half, as Geweke's
//! diagnostic does (Bayesian Statistics 4, 1992): in a steady state their difference is zero on average. Its variance
//! comes from the seeds, which are independent, so that what is correlated within a run does not matter.
use crate::experiment::Experiment;
use crate::stats::{estimate, t_975};

/// The first part: a fifth of the window.
const FIRST: usize = 5;
/// Smaller differences are of no consequence: a part of the second half's mean.
const MATTERS: f64 = 0.05;
/// Chance of a false word over all series of an experiment.
const FALSE_WORDS: f64 = 0.05;

/// Notes, one per arm and series that has not settled; none with fewer than three seeds, which cannot tell.
pub fn notes(e: &Experiment) -> Vec<String> {
    let mut suspects = Vec::new();
    let mut looked_at = 0;
    for arm in &e.arms {
        let runs: Vec<_> = e.runs.iter().filter(|r| r.arm == arm.name).collect();
        let Some(first) = runs.first().filter(|_| runs.len() >= 3) else {
            continue;
        };
        for name in first.series.keys() {
            let parts = runs.iter().filter_map(|r| halves(r.series.get(name)?));
            let (begin, end): (Vec<f64>, Vec<f64>) = parts.unzip();
            let differences: Vec<f64> = begin.iter().zip(&end).map(|(a, b)| a - b).collect();
            let (Some(d), Some(level)) = (estimate(&differences), estimate(&end)) else {
                continue;
            };
            looked_at += 1;
            // In standard errors; `half` is t_975 of them.
            let error = d.half.unwrap_or(0.0) / t_975(differences.len() - 1);
            if d.mean.abs() > MATTERS * level.mean.abs() {
                let distance = if error > 0.0 {
                    d.mean.abs() / error
                } else {
                    f64::INFINITY
                };
                suspects.push((
                    arm.name.clone(),
                    name.clone(),
                    d.mean / level.mean,
                    distance,
                    differences.len(),
                ));
            }
        }
    }
    suspects
        .into_iter()
        .filter(|(_, _, _, distance, n)| tail(*distance, n - 1) * (looked_at as f64) < FALSE_WORDS)
        .map(|(arm, name, part, ..)| {
            let word = if part > 0.0 { "above" } else { "below" };
            format!(
                "the warm-up may be too short: {name} of {arm} begins {:.0} % {word} where it ends (run.warmup)",
                part.abs() * 100.0
            )
        })
        .collect()
}

/// P(|T| > x) of Student's t: T = sqrt(df) tan(a), whose density in a is cos(a)^(df - 1), by Simpson's rule.
fn tail(x: f64, df: usize) -> f64 {
    let integral = |to: f64| {
        let n = 400;
        let h = to / f64::from(n);
        let at = |i: i32| (h * f64::from(i)).cos().max(0.0).powi(df as i32 - 1);
        let inner: f64 = (1..n)
            .map(|i| at(i) * if i % 2 == 1 { 4.0 } else { 2.0 })
            .sum();
        (at(0) + at(n) + inner) * h / 3.0
    };
    let part = (x / (df as f64).sqrt()).atan();
    1.0 - integral(part) / integral(std::f64::consts::FRAC_PI_2)
}

/// Means of the first part and of the second half.
fn halves(series: &[f64]) -> Option<(f64, f64)> {
    let mean = |s: &[f64]| s.iter().sum::<f64>() / s.len() as f64;
    let n = series.len();
    (n >= 2 * FIRST).then(|| (mean(&series[..n / FIRST]), mean(&series[n / 2..])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::tests::experiment;

    /// Noise that is the same everywhere: a hash of its place.
    fn noise(seed: u64, i: u64) -> f64 {
        let mut x = (seed << 32 | i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x ^= x >> 29;
        x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x >> 40) as f64 / (1u64 << 24) as f64 - 0.5
    }

    fn with(shape: impl Fn(u64, u64) -> f64) -> Vec<String> {
        let mut e = experiment(&[("a", &[1.0; 10])]);
        for run in &mut e.runs {
            let values = (0..40).map(|i| shape(run.seed, i)).collect();
            run.series.insert("web.cpu".into(), values);
        }
        notes(&e)
    }

    #[test]
    fn a_decaying_start_is_seen_and_a_steady_state_is_not() {
        let said = with(|s, i| 2.0 + (-(i as f64) / 4.0).exp() + 0.2 * noise(s, i));
        assert_eq!(said.len(), 1);
        assert!(
            said[0].contains("web.cpu of a begins") && said[0].contains("above"),
            "{said:?}"
        );
        let falsely = (0..200)
            .filter(|k| !with(|s, i| 2.0 + 2.0 * noise(s * 1000 + k, i)).is_empty())
            .count();
        assert!(falsely <= 20, "{falsely} of 200");
        // Certain, but too small to matter.
        assert!(with(|_, i| 2.0 + if i < 8 { 0.01 } else { 0.0 }).is_empty());
    }

    #[test]
    fn the_tail_is_students() {
        for df in [2, 5, 9, 30] {
            assert!((tail(t_975(df), df) - 0.05).abs() < 1e-6, "{df}");
        }
        // Tabulated: P(|T| > 4.781) = 0.001 with 9 degrees of freedom.
        assert!((tail(4.780_913, 9) - 0.001).abs() < 1e-6);
    }

    #[test]
    fn two_seeds_say_nothing() {
        let mut e = experiment(&[("a", &[1.0, 2.0])]);
        for run in &mut e.runs {
            run.series
                .insert("web.cpu".into(), (0..40).map(f64::from).collect());
        }
        assert!(notes(&e).is_empty());
    }
}
