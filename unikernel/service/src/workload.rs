// SPDX-License-Identifier: GPL-2.0-only
//! Tasks and requests of an experiment, the same for every policy: sizes by inverse transform, estimates with an error.

/// A stream of random numbers (splitmix64).
#[derive(Clone, Debug)]
pub struct Stream(u64);

fn mixed(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Stream {
    /// The stream of `seed`; it begins elsewhere than those of the seeds beside it, by no multiple of a step.
    pub fn new(seed: u64) -> Stream {
        Stream(mixed(!seed))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// Uniform in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential of mean 1: -ln(1 - u) (M-RSF paper, eq. 15).
    pub fn exponential(&mut self) -> f64 {
        -libm::log(1.0 - self.uniform())
    }

    /// Normal of mean 0 and variance 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = libm::sqrt(2.0 * self.exponential());
        radius * libm::cos(core::f64::consts::TAU * self.uniform())
    }
}

/// What is thought of run times: the time times exp(sigma * N(0, 1)).
#[derive(Clone, Debug)]
pub struct Errors {
    stream: Stream,
    sigma: f64,
}

impl Errors {
    /// The errors of `seed`; none for a `sigma` of 0.
    pub fn new(seed: u64, sigma: f64) -> Errors {
        Errors {
            stream: Stream::new(!seed.rotate_left(32)),
            sigma,
        }
    }

    /// What is thought of `work_us`.
    pub fn estimate_us(&mut self, work_us: f64) -> u64 {
        let error = if self.sigma == 0.0 {
            1.0
        } else {
            libm::exp(self.sigma * self.stream.normal())
        };
        (work_us * error) as u64
    }
}

/// A task of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// CPU time it takes, us; 1 or more.
    pub work_us: u64,
    /// What it is thought to take, us.
    pub estimate_us: u64,
}

/// Sizes that are exponential of mean `mean_us`, the same for every sigma of their estimates.
#[derive(Clone, Debug)]
pub struct Sizes {
    sizes: Stream,
    errors: Errors,
    mean_us: f64,
}

impl Sizes {
    /// The sizes of `seed`.
    pub fn new(seed: u64, mean_us: u64, sigma: f64) -> Sizes {
        Sizes {
            sizes: Stream::new(seed),
            errors: Errors::new(seed, sigma),
            mean_us: mean_us as f64,
        }
    }
}

impl Iterator for Sizes {
    type Item = Size;

    fn next(&mut self) -> Option<Size> {
        let work = self.mean_us * self.sizes.exponential();
        Some(Size {
            work_us: (work as u64).max(1),
            estimate_us: self.errors.estimate_us(work),
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    /// Streams of seeds beside each other share no number where both begin.
    #[test]
    fn streams_are_different_ones() {
        let numbers = |seed| {
            let mut stream = Stream::new(seed);
            (0..1000).map(move |_| stream.bits())
        };
        let mut all: Vec<u64> = (0..100).flat_map(numbers).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 100_000);
    }

    /// Mean and the fraction above two means (e^-2), within four standard errors; estimates without error are sizes;
    /// logarithms of the errors have mean 0 and deviation sigma.
    #[test]
    fn distributions_are_those_that_are_named() {
        let n = 100_000;
        let sizes: Vec<Size> = Sizes::new(1, 1000, 1.25).take(n).collect();
        let mean = sizes.iter().map(|size| size.work_us as f64).sum::<f64>() / n as f64;
        assert!(
            (mean - 999.5).abs() < 4.0 * 1000.0 / (n as f64).sqrt(),
            "{mean}"
        );
        let above = sizes.iter().filter(|size| size.work_us >= 2000).count() as f64 / n as f64;
        let p = (-2f64).exp();
        assert!(
            (above - p).abs() < 4.0 * (p * (1.0 - p) / n as f64).sqrt(),
            "{above}"
        );
        let large = sizes
            .iter()
            .filter(|size| size.work_us > 1000 && size.estimate_us > 0);
        let logs: Vec<f64> = large
            .map(|size| (size.estimate_us as f64 / size.work_us as f64).ln())
            .collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        let deviation =
            (logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / logs.len() as f64).sqrt();
        assert!(
            mean.abs() < 0.05 && (deviation - 1.25).abs() < 0.05,
            "{mean} {deviation}"
        );
        let exact: Vec<Size> = Sizes::new(1, 1000, 0.0).take(n).collect();
        assert!(
            exact
                .iter()
                .zip(&sizes)
                .all(|(a, b)| a.work_us == b.work_us)
        );
        assert!(
            exact.iter().all(
                |size| size.estimate_us <= size.work_us && size.work_us <= size.estimate_us + 1
            )
        );
    }
}
