// SPDX-License-Identifier: GPL-2.0-only
//! How many CPUs a VM would use if it had them: an average of run time and run delay that follows steps at once.
use crate::settings::Settings;

/// What a VM may seem to want beyond its vCPUs, CPUs: its I/O threads.
pub const BEYOND_VCPUS: f64 = 0.2;

/// A step is at least this large, CPUs: what a nearly idle VM does is noise.
pub const LEAST_STEP: f64 = 0.05;

/// A VM at its cap that still waits is taken to want so much more than it uses.
pub const PROBE: f64 = 1.1;

/// Part of its cap from which a VM counts as running at it.
const AT_CAP: f64 = 0.95;

/// The demand of one VM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    cpus: f64,
    /// The last sample was a step downwards.
    low: bool,
}

/// One look at a VM, CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Run time.
    pub used: f64,
    /// Run time and run delay.
    pub wanted: f64,
    /// Part of the time in which it was not frozen, above 0.
    pub run_fraction: f64,
    /// Its cap.
    pub cap: Option<f64>,
    pub vcpus: u32,
}

impl Sample {
    /// CPUs wanted. What a frozen VM did counts for the time in which it could; one that runs at its cap and waits has
    /// not shown all it wants.
    pub fn cpus(&self) -> f64 {
        let mut cpus = self.wanted / self.run_fraction;
        if let Some(cap) = self.cap
            && self.used >= AT_CAP * cap
            && self.wanted > self.used
        {
            cpus = cpus.max(self.used / self.run_fraction * PROBE);
        }
        cpus.min(f64::from(self.vcpus) + BEYOND_VCPUS)
    }
}

impl Sample {
    /// CPUs that it would use, when it is not frozen, where nobody is in its way: at least what it used, at most that
    /// and what it waited for. What was known `before` stays where both allow it, so that who is held back at times
    /// does not seem to want less.
    pub fn running(&self, before: f64) -> f64 {
        let used = self.used / self.run_fraction;
        let wanted = self.wanted / self.run_fraction;
        before.clamp(used, wanted.max(used))
    }
}

impl Demand {
    pub fn first(sample: f64) -> Demand {
        Demand {
            cpus: sample,
            low: false,
        }
    }

    /// CPUs.
    pub fn cpus(&self) -> f64 {
        self.cpus
    }

    /// A new sample, CPUs. `true`: the demand made a step. Upwards it is followed at once, downwards at the second
    /// sample; all else is averaged.
    pub fn update(&mut self, sample: f64, settings: &Settings) -> bool {
        let threshold = (settings.step * self.cpus).max(LEAST_STEP);
        let (up, down) = (
            sample > self.cpus + threshold,
            sample < self.cpus - threshold,
        );
        let follow = up || down && self.low;
        self.low = down && !self.low;
        if follow {
            self.cpus = sample;
        } else if !down {
            self.cpus += settings.alpha * (sample - self.cpus);
        }
        follow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::default()
    }

    #[test]
    fn steps_are_followed_and_noise_is_averaged() {
        let mut d = Demand::first(1.0);
        assert!(!d.update(0.9, &settings()));
        assert!((d.cpus() - 0.97).abs() < 1e-12);
        // Downwards at the second sample only.
        assert!(!d.update(0.1, &settings()));
        assert!((d.cpus() - 0.97).abs() < 1e-12);
        assert!(d.update(0.12, &settings()));
        assert_eq!(d.cpus(), 0.12);
        // A gap of one sample is forgotten.
        let mut d = Demand::first(1.0);
        d.update(0.1, &settings());
        d.update(1.0, &settings());
        assert!(!d.update(0.1, &settings()));
        assert_eq!(d.cpus(), 1.0);
        // Upwards at once.
        let mut d = Demand::first(0.02);
        assert!(!d.update(0.06, &settings()));
        assert!(d.update(1.0, &settings()));
        assert_eq!(d.cpus(), 1.0);
    }

    #[test]
    fn samples_of_frozen_and_capped_vms() {
        let s = Sample {
            used: 0.3,
            wanted: 0.3,
            run_fraction: 1.0,
            cap: None,
            vcpus: 1,
        };
        assert_eq!(s.cpus(), 0.3);
        let frozen = Sample {
            run_fraction: 0.5,
            ..s
        };
        assert_eq!((frozen.cpus(), frozen.running(0.0)), (0.6, 0.6));
        let waits = Sample {
            wanted: 0.45,
            ..frozen
        };
        let running = [0.1, 0.7, 2.0].map(|before| waits.running(before));
        assert_eq!(running, [0.6, 0.7, 0.9]);
        let capped = Sample {
            cap: Some(0.3),
            ..s
        };
        assert_eq!(capped.cpus(), 0.3);
        let waits = Sample {
            wanted: 0.301,
            ..capped
        };
        assert!((waits.cpus() - 0.33).abs() < 1e-12);
        let eight = Sample {
            wanted: 9.0,
            vcpus: 8,
            ..s
        };
        assert_eq!(eight.cpus(), 8.2);
    }
}
