// SPDX-License-Identifier: GPL-2.0-only
//! Response times of requests, and Little's law over all of them.
use super::api::Nanos;
use berth_results::detail::Distribution;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Response times of one VM or VM group.
#[derive(Clone, Debug)]
pub(super) struct Responses {
    histogram: Histogram<u64>,
    sum: u128,
    max: Nanos,
}

impl Responses {
    /// `digits`: significant decimal digits of the percentiles, 1 to 5.
    pub fn new(digits: u8) -> Responses {
        Responses {
            // It grows with the largest value; only digits above 5 are refused.
            histogram: Histogram::new(digits).expect("valid number of digits"),
            sum: 0,
            max: 0,
        }
    }

    pub fn record(&mut self, ns: Nanos) {
        // An auto-resizing histogram takes every value.
        let _ = self.histogram.record(ns);
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    /// `NAME.response.*`; the mean is exact.
    pub fn metrics(&self, name: &str, out: &mut BTreeMap<String, f64>) {
        let h = &self.histogram;
        let mut put = |stat: &str, value: f64| {
            out.insert(format!("{name}.response.{stat}"), value);
        };
        put("count", h.len() as f64);
        if h.is_empty() {
            return;
        }
        put("mean", self.sum as f64 / h.len() as f64);
        for (stat, q) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)] {
            put(stat, h.value_at_quantile(q) as f64);
        }
        put("max", self.max as f64);
    }

    /// `NAME.response`, if there are some.
    pub fn times(&self, name: &str, out: &mut BTreeMap<String, Distribution>) {
        if !self.histogram.is_empty() {
            let name = format!("{name}.response");
            out.insert(name, crate::record::distribution(&self.histogram));
        }
    }
}

/// Requests in the system over time. The area under their number must equal the sum of their stays, to the
/// nanosecond: a request lost, answered twice or answered before it came breaks that.
#[derive(Clone, Debug, Default)]
pub(super) struct Flow {
    present: u64,
    since: Nanos,
    area: u128,
    stays: u128,
    entered: u64,
    answered: u64,
    given_up: u64,
}

impl Flow {
    fn advance(&mut self, now: Nanos) {
        self.area += u128::from(self.present) * u128::from(now - self.since);
        self.since = now;
    }

    pub fn enter(&mut self, now: Nanos) {
        self.enter_late(now, now);
    }

    /// A request that was due at `sent`.
    pub fn enter_late(&mut self, sent: Nanos, now: Nanos) {
        self.advance(now);
        self.area += u128::from(now - sent);
        self.present += 1;
        self.entered += 1;
    }

    /// A request leaves, answered or given up (its VM stopped, or the task ended without a reply).
    pub fn leave(&mut self, arrived: Nanos, now: Nanos, answered: bool) {
        self.advance(now);
        self.present = self.present.saturating_sub(1);
        self.stays += u128::from(now - arrived);
        if answered {
            self.answered += 1;
        } else {
            self.given_up += 1;
        }
    }

    /// What is wrong at `now`, if anything. `in_system`: arrival times of the requests found in queues and in
    /// hand.
    pub fn violated(&self, now: Nanos, in_system: impl Iterator<Item = Nanos>) -> Option<String> {
        let mut at_end = self.clone();
        at_end.advance(now);
        let (mut there, mut stays) = (0, at_end.stays);
        for arrived in in_system {
            there += 1;
            stays += u128::from(now - arrived);
        }
        let counted = at_end.entered - at_end.answered - at_end.given_up;
        if counted != there || at_end.present != there {
            return Some(format!(
                "{} requests came, {} were answered, {} given up, but {there} are still there",
                at_end.entered, at_end.answered, at_end.given_up
            ));
        }
        (at_end.area != stays).then(|| {
            format!(
                "Little's law does not hold for the requests: their number over time and their stays differ by \
                 {} ns",
                at_end.area.abs_diff(stays)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn area_equals_stays() {
        let mut flow = Flow::default();
        flow.enter(10);
        flow.enter(20);
        flow.leave(10, 50, true);
        flow.enter(60);
        flow.leave(20, 70, false);
        assert_eq!(flow.violated(100, [60].into_iter()), None);
        assert!(
            flow.violated(100, [].into_iter())
                .unwrap()
                .contains("still there")
        );
    }

    #[test]
    fn an_answer_with_the_wrong_arrival_breaks_littles_law() {
        let mut flow = Flow::default();
        flow.enter(10);
        flow.enter(20);
        flow.leave(10, 50, true);
        flow.leave(11, 60, true);
        assert!(
            flow.violated(60, [].into_iter())
                .unwrap()
                .contains("Little")
        );
    }

    #[test]
    fn metrics_have_an_exact_mean() {
        let mut r = Responses::new(3);
        let mut out = BTreeMap::new();
        r.metrics("web", &mut out);
        assert_eq!(out.len(), 1);
        for ns in [1_000_001, 2_000_002, 6_000_000] {
            r.record(ns);
        }
        r.metrics("web", &mut out);
        assert_eq!(out["web.response.count"], 3.0);
        assert_eq!(out["web.response.mean"], 3_000_001.0);
        assert!((out["web.response.p50"] / 2_000_002.0 - 1.0).abs() < 2e-3);
        assert_eq!(out["web.response.max"], 6_000_000.0);
    }
}
