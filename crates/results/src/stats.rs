// SPDX-License-Identifier: GPL-2.0-only
//! Statistics over seeds: means with 95 % intervals, and comparisons paired by seed.
//!
//! Runs with different seeds are independent; runs of two arms with the same seed see the same arrivals, so that
//! their difference varies less than either, and is what is tested.
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A mean over seeds and the half width of its 95 % confidence interval (Student's t).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub n: usize,
    pub mean: f64,
    /// None with a single value.
    pub half: Option<f64>,
}

impl Estimate {
    /// The interval does not contain `value`. Without an interval nothing is excluded.
    pub fn excludes(&self, value: f64) -> bool {
        self.half
            .is_some_and(|half| (self.mean - value).abs() > half)
    }
}

/// Mean and interval of independent values; none if there are none, or one is not finite.
pub fn estimate(values: &[f64]) -> Option<Estimate> {
    let n = values.len();
    if n == 0 || values.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n as f64;
    if n == 1 {
        return Some(Estimate {
            n,
            mean,
            half: None,
        });
    }
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let deviation = (squares / (n - 1) as f64).sqrt();
    let half = t_975(n - 1) * deviation / (n as f64).sqrt();
    Some(Estimate {
        n,
        mean,
        half: Some(half),
    })
}

/// A ratio of two arms, paired by seed: the geometric mean of the seeds' ratios and its 95 % interval.
///
/// The geometric mean makes "a is 2 x b" and "b is 0.5 x a" the same statement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub n: usize,
    pub ratio: f64,
    /// None with a single pair.
    pub interval: Option<(f64, f64)>,
}

impl Ratio {
    /// The interval excludes "no difference".
    pub fn differs(&self) -> bool {
        self.interval
            .is_some_and(|(low, high)| low > 1.0 || high < 1.0)
    }

    /// The ratio the other way round.
    pub fn inverse(&self) -> Ratio {
        Ratio {
            n: self.n,
            ratio: 1.0 / self.ratio,
            interval: self.interval.map(|(low, high)| (1.0 / high, 1.0 / low)),
        }
    }
}

/// Values of one arm and metric, by seed.
pub type BySeed = BTreeMap<u64, f64>;

fn pairs<'a>(a: &'a BySeed, b: &'a BySeed) -> impl Iterator<Item = (f64, f64)> + 'a {
    a.iter().filter_map(|(seed, x)| Some((*x, *b.get(seed)?)))
}

/// `a / b` over common seeds; none if there are none, or a value is not greater than zero.
pub fn paired_ratio(a: &BySeed, b: &BySeed) -> Option<Ratio> {
    let logs: Option<Vec<f64>> = pairs(a, b)
        .map(|(x, y)| (x > 0.0 && y > 0.0).then(|| (x / y).ln()))
        .collect();
    let Estimate { n, mean, half } = estimate(&logs?)?;
    let interval = half.map(|half| ((mean - half).exp(), (mean + half).exp()));
    Some(Ratio {
        n,
        ratio: mean.exp(),
        interval,
    })
}

/// `a - b` over common seeds; none if there are none.
pub fn paired_difference(a: &BySeed, b: &BySeed) -> Option<Estimate> {
    estimate(&pairs(a, b).map(|(x, y)| x - y).collect::<Vec<_>>())
}

/// Which is less, if the paired 95 % interval excludes "no difference": that of the ratio, where all values are above
/// zero, else that of the difference. None: not told apart.
pub fn told_apart(a: &BySeed, b: &BySeed) -> Option<Ordering> {
    let (sure, by) = match paired_ratio(a, b) {
        Some(ratio) => (ratio.differs(), ratio.ratio - 1.0),
        None => {
            let difference = paired_difference(a, b)?;
            (difference.excludes(0.0), difference.mean)
        }
    };
    by.partial_cmp(&0.0).filter(|_| sure)
}

/// The 97.5 % point of Student's t with `df` degrees of freedom, so that +- this many standard errors hold 95 %.
///
/// Tabulated to 30, then Cornish and Fisher's expansion around the normal distribution (error below 1e-5).
pub fn t_975(df: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004,
        2.262_157, 2.228_139, 2.200_985, 2.178_813, 2.160_369, 2.144_787, 2.131_450, 2.119_905,
        2.109_816, 2.100_922, 2.093_024, 2.085_963, 2.079_614, 2.073_873, 2.068_658, 2.063_899,
        2.059_539, 2.055_529, 2.051_831, 2.048_407, 2.045_230, 2.042_272,
    ];
    if let Some(t) = df.checked_sub(1).and_then(|i| TABLE.get(i)) {
        return *t;
    }
    let z: f64 = 1.959_963_984_540_054;
    let n = df.max(1) as f64;
    let z2 = z * z;
    let g1 = (z2 + 1.0) / 4.0;
    let g2 = ((5.0 * z2 + 16.0) * z2 + 3.0) / 96.0;
    let g3 = (((3.0 * z2 + 19.0) * z2 + 17.0) * z2 - 15.0) / 384.0;
    z + z * (g1 / n + g2 / (n * n) + g3 / (n * n * n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_seed(values: &[f64]) -> BySeed {
        values
            .iter()
            .enumerate()
            .map(|(i, v)| (i as u64 + 1, *v))
            .collect()
    }

    /// P(T <= t) by Simpson's rule over the density, normalised numerically: an independent way to the same number.
    fn cdf(t: f64, df: f64) -> f64 {
        let density = |u: f64| {
            // x = tan(u) turns the infinite range into a finite one: (1 + x^2/df)^(-(df+1)/2) dx.
            let x = u.tan();
            (1.0 + x * x / df).powf(-(df + 1.0) / 2.0) * (1.0 + x * x)
        };
        let integral = |a: f64, b: f64| {
            let n = 20_000;
            let h = (b - a) / f64::from(n);
            let inner: f64 = (1..n)
                .map(|i| density(a + h * f64::from(i)) * if i % 2 == 1 { 4.0 } else { 2.0 })
                .sum();
            (density(a) + density(b) + inner) * h / 3.0
        };
        let end = std::f64::consts::FRAC_PI_2 - 1e-9;
        0.5 + integral(0.0, t.atan()) / (2.0 * integral(0.0, end))
    }

    #[test]
    fn quantiles_of_t() {
        for df in [2, 3, 5, 9, 10, 20, 29, 30, 31, 40, 99, 1000] {
            let p = cdf(t_975(df), df as f64);
            assert!((p - 0.975).abs() < 2e-6, "df {df}: {p}");
        }
        assert!((t_975(1) - 12.7062).abs() < 1e-4);
        assert!((t_975(1_000_000) - 1.959966).abs() < 1e-5);
    }

    #[test]
    fn known_interval() {
        // Mean 5, deviation sqrt(2.5), n 5: half = 2.776445 * 0.707107.
        let e = estimate(&[3.0, 4.0, 5.0, 6.0, 7.0]).unwrap();
        assert!((e.mean - 5.0).abs() < 1e-12 && (e.half.unwrap() - 1.963_243).abs() < 1e-5);
        assert!(e.excludes(2.9) && !e.excludes(3.1));
        assert_eq!(
            estimate(&[2.0]),
            Some(Estimate {
                n: 1,
                mean: 2.0,
                half: None
            })
        );
        assert_eq!(estimate(&[]), None);
        assert_eq!(estimate(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn pairing_removes_what_is_common() {
        let base = by_seed(&[10.0, 20.0, 40.0, 80.0, 160.0]);
        let twice: BySeed = base.iter().map(|(s, v)| (*s, v * 2.0)).collect();
        let r = paired_ratio(&twice, &base).unwrap();
        assert!((r.ratio - 2.0).abs() < 1e-12 && r.differs());
        assert!((r.inverse().ratio - 0.5).abs() < 1e-12);
        let more: BySeed = base.iter().map(|(s, v)| (*s, v + 1.0)).collect();
        let d = paired_difference(&more, &base).unwrap();
        assert!((d.mean - 1.0).abs() < 1e-12 && d.excludes(0.0));
        // Only common seeds count.
        let other: BySeed = [(1, 20.0), (99, 1.0)].into();
        assert_eq!(
            paired_ratio(&other, &base).unwrap(),
            Ratio {
                n: 1,
                ratio: 2.0,
                interval: None
            }
        );
        assert_eq!(paired_ratio(&[(99, 1.0)].into(), &base), None);
        assert_eq!(paired_ratio(&[(1, 0.0)].into(), &base), None);
    }

    proptest! {
        #[test]
        fn ratio_is_symmetric(
            a in prop::collection::vec(0.001..1e9_f64, 2..20),
            b in prop::collection::vec(0.001..1e9_f64, 2..20),
        ) {
            let (a, b) = (by_seed(&a), by_seed(&b));
            let (x, y) = (paired_ratio(&a, &b).unwrap(), paired_ratio(&b, &a).unwrap().inverse());
            prop_assert!((x.ratio / y.ratio - 1.0).abs() < 1e-9);
            let ((l, h), (l2, h2)) = (x.interval.unwrap(), y.interval.unwrap());
            prop_assert!((l / l2 - 1.0).abs() < 1e-6 && (h / h2 - 1.0).abs() < 1e-6 && l <= x.ratio && x.ratio <= h);
        }

        #[test]
        fn shift_moves_the_mean_only(v in prop::collection::vec(-1e6..1e6_f64, 2..30), shift in -1e6..1e6_f64) {
            let e = estimate(&v).unwrap();
            let f = estimate(&v.iter().map(|x| x + shift).collect::<Vec<_>>()).unwrap();
            prop_assert!((f.mean - e.mean - shift).abs() < 1e-6);
            prop_assert!((f.half.unwrap() - e.half.unwrap()).abs() < 1e-5);
        }
    }
}
