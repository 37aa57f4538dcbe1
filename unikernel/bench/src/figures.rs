// SPDX-License-Identifier: GPL-2.0-only
//! Figures of several runs.

/// Mean and half of its 95 % interval (Student's t) over seeds.
#[derive(Clone, Copy, Debug)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// Half of the interval; infinite for one value.
    pub half: f64,
}

impl Mean {
    /// Of `values`.
    pub fn of(values: &[f64]) -> Mean {
        // 0.975 quantiles of Student's t by degrees of freedom, from 1.
        const T: [f64; 10] = [
            12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
        ];
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / (n - 1.0);
        let half = match values.len() {
            0 | 1 => f64::INFINITY,
            len => {
                T.get(len - 2).copied().unwrap_or(1.96 + 2.5 / (n - 1.0)) * (variance / n).sqrt()
            }
        };
        Mean { mean, half }
    }
}

impl std::fmt::Display for Mean {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digits = f.precision().unwrap_or(1);
        match self.half.is_finite() {
            true => write!(f, "{:.digits$} ± {:.digits$}", self.mean, self.half),
            false => write!(f, "{:.digits$}", self.mean),
        }
    }
}

/// The median; not a number for none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1, 2, 3, 4, 5: deviation 1.5811, t of 4 degrees 2.776: 2.776 * 1.5811 / sqrt 5 = 1.963.
    #[test]
    fn an_interval_by_hand() {
        let mean = Mean::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((mean.mean - 3.0).abs() < 1e-12 && (mean.half - 1.963).abs() < 1e-3);
        assert_eq!(format!("{mean:.2}"), "3.00 ± 1.96");
        assert_eq!(Mean::of(&[7.0]).to_string(), "7.0");
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }
}
