// SPDX-License-Identifier: GPL-2.0-only
//! From values to pixels, and the marks at round values.

/// One axis of a picture.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    log: bool,
    min: f64,
    max: f64,
    /// Pixels of `min` and `max`.
    from: f64,
    to: f64,
}

impl Axis {
    /// A linear axis that holds all of `values` with some air, or 0 to 1 if there are none.
    pub fn linear(values: impl IntoIterator<Item = f64>, air: f64, from: f64, to: f64) -> Axis {
        let (mut min, mut max) = range(values).unwrap_or((0.0, 1.0));
        if max - min < 1e-12 * max.abs().max(1e-9) {
            let wide = max.abs().max(1.0) * 0.05;
            (min, max) = (min - wide, max + wide);
        }
        let air = (max - min) * air;
        Axis {
            log: false,
            min: min - air,
            max: max + air,
            from,
            to,
        }
    }

    /// The same with ends of its own.
    pub fn fixed(min: f64, max: f64, from: f64, to: f64) -> Axis {
        Axis {
            log: false,
            min,
            max: if max > min { max } else { min + 1.0 },
            from,
            to,
        }
    }

    /// A logarithmic axis around all positive values; `air` in decades.
    pub fn log(values: impl IntoIterator<Item = f64>, air: f64, from: f64, to: f64) -> Axis {
        let positive = values.into_iter().filter(|v| *v > 0.0);
        let (min, max) = range(positive.map(f64::log10)).unwrap_or((0.0, 1.0));
        let (mut min, mut max) = (min - air, max + air);
        if max - min < 0.3 {
            let middle = (max + min) / 2.0;
            (min, max) = (middle - 0.15, middle + 0.15);
        }
        Axis {
            log: true,
            min,
            max,
            from,
            to,
        }
    }

    pub fn px(&self, value: f64) -> f64 {
        let v = if self.log {
            value.max(1e-300).log10()
        } else {
            value
        };
        let part = ((v - self.min) / (self.max - self.min)).clamp(-0.02, 1.02);
        self.from + part * (self.to - self.from)
    }

    pub fn is_log(&self) -> bool {
        self.log
    }

    /// The values at both ends (for a logarithmic axis: their logarithms).
    pub fn ends(&self) -> (f64, f64) {
        (self.min, self.max)
    }

    /// About `wanted` round values on the axis.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        if !self.log {
            return linear_ticks(self.min, self.max, wanted);
        }
        let mut ticks = Vec::new();
        let decades = self.max - self.min;
        let steps: &[f64] = if decades < 1.2 {
            &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0]
        } else if decades < 2.5 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let stride = ((decades / wanted.max(1) as f64).ceil() as i32).max(1);
        for decade in (self.min.floor() as i32..=self.max.ceil() as i32)
            .filter(|d| steps.len() > 1 || d.rem_euclid(stride) == 0)
        {
            let all = steps.iter().map(|s| s * 10f64.powi(decade));
            ticks.extend(all.filter(|v| {
                let v = v.log10();
                v >= self.min - 1e-9 && v <= self.max + 1e-9
            }));
        }
        ticks
    }
}

fn range(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .into_iter()
        .filter(|v| v.is_finite())
        .fold(None, |range, v| match range {
            None => Some((v, v)),
            Some((min, max)) => Some((f64::min(min, v), f64::max(max, v))),
        })
}

fn linear_ticks(min: f64, max: f64, wanted: usize) -> Vec<f64> {
    let raw = (max - min) / wanted.max(1) as f64;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|s| s * power)
        .find(|s| *s >= raw * 0.999)
        .unwrap_or(power * 10.0);
    let first = (min / step - 1e-9).ceil() as i64;
    let last = (max / step + 1e-9).floor() as i64;
    (first..=last).map(|i| i as f64 * step).collect()
}

/// A time on an axis: `1 ms`, `500 us`.
pub fn time(ns: f64) -> String {
    let (factor, name) = match ns {
        n if n >= 0.9995e9 => (1e9, "s"),
        n if n >= 0.9995e6 => (1e6, "ms"),
        n if n >= 0.9995e3 => (1e3, "µs"),
        _ => (1.0, "ns"),
    };
    let v = ns / factor;
    let text = format!("{v:.1}");
    format!("{} {name}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_marks() {
        let a = Axis::fixed(0.0, 103.0, 0.0, 100.0);
        assert_eq!(a.ticks(5), [0.0, 50.0, 100.0]);
        assert_eq!(Axis::fixed(0.0, 1.0, 0.0, 1.0).ticks(5).len(), 6);
        let a = Axis::log([1e3, 1e8], 0.0, 0.0, 100.0);
        assert_eq!(a.ticks(10), [1e3, 1e4, 1e5, 1e6, 1e7, 1e8]);
        assert!((a.px(1e5) - 40.0).abs() < 1e-9);
        let a = Axis::log([1.0e6, 2.0e6], 0.1, 0.0, 1.0);
        assert!(a.ticks(5).len() >= 2);
        assert_eq!((time(1500.0), time(1e6)), ("1.5 µs".into(), "1 ms".into()));
    }

    #[test]
    fn nothing_to_show_is_no_crash() {
        for values in [vec![], vec![f64::NAN], vec![0.0], vec![5.0, 5.0]] {
            for a in [
                Axis::linear(values.clone(), 0.1, 0.0, 1.0),
                Axis::log(values.clone(), 0.1, 0.0, 1.0),
            ] {
                assert!(a.px(3.0).is_finite() && a.ticks(5).len() < 100);
            }
        }
    }
}
