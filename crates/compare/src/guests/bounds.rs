// SPDX-License-Identifier: GPL-2.0-only
//! The bounds, as `guests/bounds.toml` has them.
use crate::bounds::BoundsError;
use serde::Deserialize;

/// The bounds this program was built with.
pub const TEXT: &str = include_str!("../../guests/bounds.toml");

/// What counts as agreement of a simulated guest with a real one, and as a good recording of a real one.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestBounds {
    pub response: Response,
    pub hog_ran: HogRan,
    pub steal: Points,
    pub share: Points,
    pub samples: Samples,
    pub recording: Recording,
}

/// Of the task that answers.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Response {
    /// Largest factor between the two places, either way.
    pub ratio: f64,
    /// Percentiles closer than this are equal, in milliseconds.
    pub equal_ms: f64,
}

/// What a busy thread of the guest may run in a wait: so many ticks and slices, together.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HogRan {
    pub ticks: f64,
    pub slices: f64,
}

/// Largest difference of two shares in percentage points.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Points {
    pub points: f64,
}

/// Answers that a verdict needs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    pub least: usize,
}

/// When a recording is good.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// Largest difference between counted and calculated steal.
    pub steal: f64,
    /// Largest p90 without competitors, in milliseconds.
    pub floor_p90_ms: f64,
    /// Most CPUs that others had meanwhile.
    pub others_cpus: f64,
    /// Times that a case is tried.
    pub attempts: u32,
}

impl GuestBounds {
    /// The bounds this program was built with.
    ///
    /// # Errors
    /// None that a test of this crate would not find.
    pub fn built_in() -> Result<GuestBounds, BoundsError> {
        GuestBounds::parse(TEXT)
    }

    /// Reads a bounds file's text.
    ///
    /// # Errors
    /// Not TOML, a key missing or unknown, or a bound that bounds nothing.
    pub fn parse(text: &str) -> Result<GuestBounds, BoundsError> {
        let b: GuestBounds = toml_edit::de::from_str(text).map_err(BoundsError::of)?;
        let positive = [
            ("response.equal_ms", b.response.equal_ms),
            ("hog_ran.ticks", b.hog_ran.ticks),
            ("hog_ran.slices", b.hog_ran.slices),
            ("steal.points", b.steal.points),
            ("share.points", b.share.points),
            ("recording.steal", b.recording.steal),
            ("recording.floor_p90_ms", b.recording.floor_p90_ms),
            ("recording.others_cpus", b.recording.others_cpus),
        ];
        if !(b.response.ratio >= 1.0 && b.response.ratio.is_finite()) {
            return Err(BoundsError::of(format!(
                "response.ratio is {}, and a factor between two places is at least 1",
                b.response.ratio
            )));
        }
        if let Some((name, v)) = positive.iter().find(|(_, v)| !(*v >= 0.0 && v.is_finite())) {
            return Err(BoundsError::of(format!(
                "{name} is {v}, and must not be below 0"
            )));
        }
        if b.recording.attempts == 0 {
            return Err(BoundsError::of(
                "recording.attempts is 0: nothing would be recorded",
            ));
        }
        Ok(b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_bounds_are_the_stated_goals() {
        let b = GuestBounds::built_in().unwrap();
        assert_eq!((b.response.ratio, b.response.equal_ms), (2.0, 0.5));
        assert_eq!((b.hog_ran.ticks, b.hog_ran.slices), (1.0, 1.0));
        assert_eq!((b.steal.points, b.share.points), (3.0, 3.0));
        let r = b.recording;
        assert_eq!((r.steal, r.floor_p90_ms, r.others_cpus), (0.01, 1.5, 0.1));
    }

    #[test]
    fn wrong_bounds_are_refused() {
        for (old, new, word) in [
            ("ratio    = 2.0", "ratio    = 0.5", "response.ratio"),
            ("points = 3.0", "point = 3.0", "point"),
            ("attempts      = 3", "attempts      = 0", "attempts"),
            (
                "others_cpus   = 0.1",
                "others_cpus   = -1.0",
                "recording.others_cpus",
            ),
        ] {
            let text = TEXT.replacen(old, new, 1);
            assert_ne!(text, TEXT, "{old}");
            let error = GuestBounds::parse(&text).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
