// SPDX-License-Identifier: GPL-2.0-only
//! What is measured of the clients' requests: response times, counts, Little's law over their whole way.
use super::api::Nanos;
use super::device::flow::Flow;
use super::homes::Homes;
use berth_results::detail::Distribution;
use berth_scenario::model::Client;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// Response times of one VM or VM group.
#[derive(Clone, Debug)]
struct Responses {
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

    /// `NAME.QUANTITY.*`; the mean is exact.
    pub fn metrics(&self, name: &str, quantity: &str, out: &mut BTreeMap<String, f64>) {
        let h = &self.histogram;
        let mut put = |stat: &str, value: f64| {
            out.insert(format!("{name}.{quantity}.{stat}"), value);
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

/// What clients and a VM group have exchanged since the warm-up.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    /// Requests that were due.
    offered: u64,
    /// Requests for which there was no room.
    lost: u64,
    /// Requests answered, and the bytes they carried.
    answered: u64,
    bytes: u64,
}

/// All requests of a run.
pub(super) struct Measured {
    pub flow: Flow,
    /// By VM group.
    by_group: Vec<Responses>,
    /// The same, of what is served by a thread per request: how long it waited, and until it had a CPU first.
    waiting: Vec<Option<Responses>>,
    begin: Vec<Option<Responses>>,
    traffic: Vec<Traffic>,
    /// By VM, in groups of several.
    by_vm: Vec<Option<Responses>>,
    /// By VM: its group, and whether it is the only one of it.
    group: Vec<(u32, bool)>,
    from: Nanos,
    /// Response times in the order of replies, if asked for.
    pub record: Option<Vec<Nanos>>,
}

impl Measured {
    pub fn new(homes: &Homes) -> Measured {
        let groups = &homes.scenario.vms;
        let group = |vm: &berth_scenario::placement::VmInstance| {
            (vm.group as u32, groups[vm.group].count <= 1)
        };
        Measured {
            flow: Flow::default(),
            by_group: vec![Responses::new(3); groups.len()],
            waiting: vec![None; groups.len()],
            begin: vec![None; groups.len()],
            traffic: vec![Traffic::default(); groups.len()],
            by_vm: vec![None; homes.vms.len()],
            group: homes.vms.iter().map(group).collect(),
            from: 0,
            record: None,
        }
    }

    /// A request to a VM that was due at `sent` comes.
    pub fn comes(&mut self, vm: u32, sent: Nanos, now: Nanos) {
        self.flow.enter_late(sent, now);
        if sent >= self.from {
            let (group, _) = self.group[vm as usize];
            self.traffic[group as usize].offered += 1;
        }
    }

    /// A request to a VM that was due at `sent` finds no room.
    pub fn lost(&mut self, vm: u32, sent: Nanos) {
        if sent >= self.from {
            let traffic = &mut self.traffic[self.group[vm as usize].0 as usize];
            traffic.offered += 1;
            traffic.lost += 1;
        }
    }

    /// It has been answered; `bytes`: what counts as carried.
    pub fn answered(&mut self, vm: u32, sent: Nanos, bytes: u64, now: Nanos) {
        self.flow.leave(sent, now, true);
        let response = now - sent;
        if let Some(record) = &mut self.record {
            record.push(response);
        }
        if now < self.from {
            return;
        }
        let (group, alone) = self.group[vm as usize];
        self.by_group[group as usize].record(response);
        let traffic = &mut self.traffic[group as usize];
        traffic.answered += 1;
        traffic.bytes += bytes;
        if !alone {
            let vm = &mut self.by_vm[vm as usize];
            vm.get_or_insert_with(|| Responses::new(2)).record(response);
        }
    }

    /// It is being answered by a thread of its own, after so much waiting.
    pub fn waited(&mut self, vm: u32, ns: Nanos, now: Nanos) {
        if now >= self.from {
            let of = &mut self.waiting[self.group[vm as usize].0 as usize];
            of.get_or_insert_with(|| Responses::new(3)).record(ns);
        }
    }

    /// A thread of its own begins with it, so long after it was sent.
    pub fn begun(&mut self, vm: u32, ns: Nanos, now: Nanos) {
        if now >= self.from {
            let of = &mut self.begin[self.group[vm as usize].0 as usize];
            of.get_or_insert_with(|| Responses::new(3)).record(ns);
        }
    }

    /// It never will be.
    pub fn given_up(&mut self, sent: Nanos, now: Nanos) {
        self.flow.leave(sent, now, false);
    }

    /// The warm-up is over at this instant.
    pub fn measure_from(&mut self, now: Nanos) {
        self.from = now;
        self.traffic.fill(Traffic::default());
    }

    /// Measured time so far, s.
    pub fn seconds(&self, now: Nanos) -> f64 {
        now.saturating_sub(self.from).max(1) as f64 / 1e9
    }

    /// `NAME.response.*`, `.requests`, `.throughput` of what clients ask.
    pub fn metrics(&self, homes: &Homes, now: Nanos, out: &mut BTreeMap<String, f64>) {
        let seconds = self.seconds(now);
        let asked = |vm: &str| homes.scenario.clients.iter().any(|c| c.to == vm);
        let vms = homes.scenario.vms.iter().zip(&self.by_group);
        for ((vm, responses), traffic) in vms.zip(&self.traffic) {
            if !asked(&vm.name) {
                continue;
            }
            responses.metrics(&vm.name, "response", out);
            let mut put = |what: &str, value: f64| {
                out.insert(format!("{}.{what}", vm.name), value);
            };
            put("response.offered", traffic.offered as f64);
            let limited = |c: &Client| c.to == vm.name && c.at_most.is_some();
            if homes.scenario.clients.iter().any(limited) && traffic.offered > 0 {
                put(
                    "response.lost",
                    traffic.lost as f64 / traffic.offered as f64,
                );
            }
            put("requests", traffic.answered as f64 / seconds);
            put("throughput", (traffic.bytes * 8) as f64 / seconds);
        }
        for (vm, responses) in homes.vms.iter().zip(&self.by_vm) {
            if let Some(responses) = responses {
                responses.metrics(&vm.name, "response", out);
            }
        }
        for (quantity, of) in [("waiting", &self.waiting), ("begin", &self.begin)] {
            for (vm, times) in homes.scenario.vms.iter().zip(of) {
                if let Some(times) = times {
                    times.metrics(&vm.name, quantity, out);
                }
            }
        }
    }

    /// `NAME.response` by VM group.
    pub fn times(&self, homes: &Homes, out: &mut BTreeMap<String, Distribution>) {
        for (vm, responses) in homes.scenario.vms.iter().zip(&self.by_group) {
            responses.times(&vm.name, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_an_exact_mean() {
        let mut r = Responses::new(3);
        let mut out = BTreeMap::new();
        r.metrics("web", "response", &mut out);
        assert_eq!(out.len(), 1);
        for ns in [1_000_001, 2_000_002, 6_000_000] {
            r.record(ns);
        }
        r.metrics("web", "response", &mut out);
        assert_eq!(out["web.response.count"], 3.0);
        assert_eq!(out["web.response.mean"], 3_000_001.0);
        assert!((out["web.response.p50"] / 2_000_002.0 - 1.0).abs() < 2e-3);
        assert_eq!(out["web.response.max"], 6_000_000.0);
    }
}
