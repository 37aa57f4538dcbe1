// SPDX-License-Identifier: GPL-2.0-only
//! What each stage of a packet's way costs, on which CPU it was done, and what is counted of it; see `docs/network.md`.
//! Kept apart from who moves parcels ([`super::staged`]).
use super::parcel::Parcel;
use crate::words::{CpuId, Nanos};
use berth_scenario::model::{CoreKind, Host, Stages};
use std::collections::{BTreeMap, VecDeque};

/// A stage, as a profiler would tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Driver,
    Bridge,
    Filter,
    Tap,
    Copy,
    Inject,
    Guest,
    /// Waking the thread of the next stage: the scheduler's part.
    Wake,
}

/// The words of metrics, by [`Part`].
const PARTS: [&str; 8] = [
    "driver", "bridge", "filter", "tap", "copy", "inject", "guest", "wake",
];

const NOWHERE: CpuId = CpuId::MAX;

/// What is taken together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Batch {
    /// The part of a cost that is spent once is this batch's.
    pub opens: bool,
    pub packets: u64,
    pub bytes: u64,
    /// Lines of 64 bytes.
    pub lines: u64,
}

impl Batch {
    pub fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
        self.lines += bytes.div_ceil(64);
    }
}

/// Counted since the warm-up, of a group of VMs.
#[derive(Clone, Debug, Default)]
struct Counts {
    /// CPU time and visits, by stage.
    ns: [Nanos; PARTS.len()],
    visits: [u64; PARTS.len()],
    /// CPU time of all stages, by CPU.
    on_cpu: Vec<Nanos>,
    /// Lines from another CPU's cache, changes of CPU, working sets that were elsewhere.
    lines: u64,
    crossings: u64,
    cold: u64,
    batches: u64,
    batched: u64,
    dropped: u64,
}

/// A task that takes packets.
#[derive(Clone, Copy, Debug)]
struct Seat {
    /// Where it ran last.
    cpu: CpuId,
    /// Packets taken since its batch began.
    taken: u64,
}

const EMPTY_SEAT: Seat = Seat {
    cpu: NOWHERE,
    taken: 0,
};

/// A back end's thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mover {
    /// Where it ran last.
    cpu: CpuId,
    /// The CPU that has woken it, until it has paid for that.
    pub woken_by: Option<CpuId>,
    /// What it took last came from the guest.
    pub sent: bool,
}

/// A stream whose replies acknowledge: one stands for all that its guest takes together.
#[derive(Clone, Debug, Default)]
pub(super) struct Acknowledged {
    /// Requests that wait for the guest.
    pub waits: u32,
    /// Acknowledgements that have been paid for and are not given yet.
    paid: u32,
    /// Those that the next one stands for.
    pub held: VecDeque<Parcel>,
}

/// Costs by stage.
#[derive(Debug)]
pub struct Detail {
    pub(super) of: Stages,
    /// Last-level cache of each CPU.
    llc: Vec<u32>,
    /// By VM and stage: the CPU that did it last.
    last: Vec<[CpuId; PARTS.len()]>,
    /// By VM: the CPU that brought the guest its last request.
    pub(super) delivered: Vec<CpuId>,
    /// By thread.
    seats: Vec<Seat>,
    /// By VM: taken from the card by an interrupt that is not over; waiting for another CPU's softirq; taken by it.
    pub(super) polled: Vec<VecDeque<Parcel>>,
    pub(super) backlog: Vec<VecDeque<Parcel>>,
    pub(super) soft: Vec<VecDeque<Parcel>>,
    /// By VM: that softirq is on its way, or works.
    pub(super) soft_pending: Vec<bool>,
    /// By back end: what the guest has given it; what its thread has in hand.
    pub(super) sends: Vec<VecDeque<Parcel>>,
    pub(super) taken: Vec<VecDeque<Parcel>>,
    pub(super) movers: Vec<Mover>,
    /// Dropped parcels, in the order in which they are sent again.
    pub(super) resends: VecDeque<Parcel>,
    /// By stream.
    pub(super) streams: Vec<Acknowledged>,
    /// When the last reply on the wire arrives.
    pub(super) last_out: Nanos,
    /// When counting begins, until it has begun.
    begins_at: Option<Nanos>,
    /// By group.
    counts: Vec<Counts>,
}

impl Detail {
    /// `sizes`: VMs, groups, back ends, streams.
    pub fn new(of: &Stages, host: &Host, sizes: [usize; 4]) -> Detail {
        let [vms, groups, backs, streams] = sizes;
        let cpus = host.nr_cpus().max(1);
        let per_llc = (cpus / (host.packages * host.llcs).max(1)).max(1);
        let of_core = CoreKind::llc_of_core(&host.cost.kinds, host.packages, host.cores);
        let queues = |n: usize| vec![VecDeque::new(); n];
        let counts = Counts {
            on_cpu: vec![0; cpus as usize],
            ..Counts::default()
        };
        Detail {
            of: of.clone(),
            llc: (0..cpus)
                .map(|cpu| match &of_core {
                    Some(llc) => llc[(cpu / host.threads.max(1)) as usize],
                    None => cpu / per_llc,
                })
                .collect(),
            last: vec![[NOWHERE; PARTS.len()]; vms],
            delivered: vec![NOWHERE; vms],
            seats: Vec::new(),
            polled: queues(vms),
            backlog: queues(vms),
            soft: queues(vms),
            soft_pending: vec![false; vms],
            sends: queues(backs),
            taken: queues(backs),
            movers: vec![
                Mover {
                    cpu: NOWHERE,
                    woken_by: None,
                    sent: false,
                };
                backs
            ],
            resends: VecDeque::new(),
            streams: vec![Acknowledged::default(); streams],
            last_out: 0,
            begins_at: None,
            counts: vec![counts; groups],
        }
    }

    fn base(&self, part: Part) -> Nanos {
        match part {
            Part::Driver => self.of.driver_ns,
            Part::Bridge => self.of.bridge_ns,
            Part::Filter => self.of.filter_ns,
            Part::Tap => self.of.tap_ns,
            Part::Copy => self.of.copy_ns,
            Part::Inject => self.of.inject_ns,
            Part::Guest => self.of.guest_ns,
            Part::Wake => 0,
        }
    }

    fn account(&mut self, group: usize, cpu: CpuId, part: Part, ns: Nanos) {
        let counts = &mut self.counts[group];
        counts.ns[part as usize] += ns;
        if let Some(on) = counts.on_cpu.get_mut(cpu as usize) {
            *on += ns;
        }
    }

    /// What a line from that CPU's cache takes, ns.
    fn line_ns(&self, cpu: CpuId, from: CpuId) -> Nanos {
        let llc = |cpu: CpuId| self.llc.get(cpu as usize);
        match (from, llc(cpu) == llc(from)) {
            _ if from == cpu || from == NOWHERE => 0,
            (_, true) => self.of.near_line_ns,
            (_, false) => self.of.far_line_ns,
        }
    }

    fn fetch(&mut self, group: usize, cpu: CpuId, from: CpuId, lines: u64) -> Nanos {
        let each = self.line_ns(cpu, from);
        if from != cpu && from != NOWHERE {
            self.counts[group].lines += lines;
        }
        each.saturating_mul(lines)
    }

    /// A stage does a batch of a VM's packets there: its CPU time, ns.
    pub fn visit(&mut self, of: (u32, usize), part: Part, cpu: CpuId, batch: &Batch) -> Nanos {
        let (vm, group) = of;
        let base = self.base(part);
        let once = (u128::from(base) * u128::from(self.of.batch_ppm) / 1_000_000) as Nanos;
        let mut ns = (base - once).saturating_mul(batch.packets);
        if batch.opens {
            ns = ns.saturating_add(once);
        }
        if part == Part::Copy {
            ns = ns.saturating_add(self.of.copy_byte_ns.saturating_mul(batch.bytes));
        }
        let last = std::mem::replace(&mut self.last[vm as usize][part as usize], cpu);
        let own = u64::from(self.of.own_lines);
        ns = ns.saturating_add(self.fetch(group, cpu, last, own));
        self.counts[group].visits[part as usize] += batch.packets;
        self.account(group, cpu, part, ns);
        ns
    }

    /// The stage reads packets that another CPU has written, ns.
    pub fn read(
        &mut self,
        group: usize,
        part: Part,
        cpu: CpuId,
        from: CpuId,
        batch: &Batch,
    ) -> Nanos {
        let ns = self.fetch(group, cpu, from, batch.lines);
        if from != cpu && from != NOWHERE {
            self.counts[group].crossings += batch.packets;
        }
        self.account(group, cpu, part, ns);
        ns
    }

    /// A thread that another stage has woken from there, ns.
    pub fn wake(&mut self, group: usize, cpu: CpuId, by: CpuId) -> Nanos {
        let ns = match by == cpu {
            true => self.of.wake_here_ns,
            false => self.of.wake_other_ns,
        };
        self.counts[group].visits[Part::Wake as usize] += 1;
        self.account(group, cpu, Part::Wake, ns);
        ns
    }

    /// A thread's working set is on another CPU, ns.
    fn warm(&mut self, group: usize, cpu: CpuId, parts: &[(Part, Nanos)]) -> Nanos {
        self.counts[group].cold += 1;
        let mut all: Nanos = 0;
        for (part, ns) in parts {
            self.account(group, cpu, *part, *ns);
            all = all.saturating_add(*ns);
        }
        all
    }

    /// A back end's thread begins a batch there, ns: who woke it, and what it left behind.
    pub fn begins(&mut self, group: usize, back: u32, cpu: CpuId, sends: bool) -> Nanos {
        let mover = &mut self.movers[back as usize];
        let woken_by = mover.woken_by.take();
        let last = std::mem::replace(&mut mover.cpu, cpu);
        mover.sent = sends;
        let mut ns = match woken_by {
            Some(by) => self.wake(group, cpu, by),
            None => 0,
        };
        if last != cpu && last != NOWHERE {
            let (copy, inject) = (self.of.cold_copy_ns, self.of.cold_inject_ns);
            let parts = [(Part::Copy, copy), (Part::Inject, inject)];
            // Only what comes in is injected.
            ns += self.warm(group, cpu, if sends { &parts[..1] } else { &parts });
        }
        ns
    }

    fn seat(&mut self, thread: u32) -> &mut Seat {
        let at = thread as usize;
        if self.seats.len() <= at {
            self.seats.resize(at + 1, EMPTY_SEAT);
        }
        &mut self.seats[at]
    }

    /// A task of the guest is on this CPU, ns: what it left behind on another one.
    pub fn sits(&mut self, group: usize, thread: u32, cpu: CpuId) -> Nanos {
        let last = std::mem::replace(&mut self.seat(thread).cpu, cpu);
        if last == cpu || last == NOWHERE {
            return 0;
        }
        let cold = self.of.cold_guest_ns;
        self.warm(group, cpu, &[(Part::Guest, cold)])
    }

    /// A task of the guest takes so many packets: do they begin a batch?
    pub fn takes(&mut self, thread: u32, packets: u64, woken: bool) -> bool {
        let most = u64::from(self.of.batch);
        let seat = self.seat(thread);
        let opens = woken || seat.taken >= most || seat.taken == 0;
        seat.taken = if opens { packets } else { seat.taken + packets };
        opens
    }

    /// Does the next acknowledgement of a stream stand for this one? If not, it is paid for.
    pub fn holds(&mut self, stream: u32) -> bool {
        let most = self.of.batch as usize;
        let stream = &mut self.streams[stream as usize];
        let holds = stream.waits > 0 && stream.held.len() + 1 < most;
        if !holds {
            stream.paid += 1;
        }
        holds
    }

    /// Has an acknowledgement been paid for that was not given yet? It is now.
    pub fn gives(&mut self, stream: u32) -> bool {
        let paid = &mut self.streams[stream as usize].paid;
        let gives = *paid > 0;
        *paid = paid.saturating_sub(1);
        gives
    }

    pub fn batched(&mut self, group: usize, batch: &Batch) {
        let counts = &mut self.counts[group];
        counts.batches += 1;
        counts.batched += batch.packets;
    }

    pub fn dropped(&mut self, group: usize, packets: u64) {
        self.counts[group].dropped += packets;
    }

    /// Everything that a back end has, out of its hands.
    pub fn take_back_end(&mut self, back: u32) -> VecDeque<Parcel> {
        let mut all = std::mem::take(&mut self.taken[back as usize]);
        all.append(&mut self.sends[back as usize]);
        self.movers[back as usize].woken_by = None;
        all
    }

    /// Counting begins then.
    pub fn begin_at(&mut self, at: Nanos) {
        self.begins_at = Some(at);
    }

    /// What came before counting is forgotten.
    pub fn look(&mut self, now: Nanos) {
        if self.begins_at.is_some_and(|at| now >= at) {
            self.begins_at = None;
            self.forget();
        }
    }

    fn forget(&mut self) {
        for counts in &mut self.counts {
            counts.on_cpu.fill(0);
            let on_cpu = std::mem::take(&mut counts.on_cpu);
            *counts = Counts {
                on_cpu,
                ..Counts::default()
            };
        }
    }

    /// Metrics of a group; `packets`: through the card, both ways.
    pub fn metrics(
        &self,
        group: usize,
        name: &str,
        packets: u64,
        seconds: f64,
        out: &mut BTreeMap<String, f64>,
    ) {
        let counts = &self.counts[group];
        let per_packet = |n: u64| n as f64 / packets.max(1) as f64;
        let mut put = |what: &str, value: f64| {
            out.insert(format!("{name}.{what}"), value);
        };
        for (part, word) in PARTS.iter().enumerate() {
            put(&format!("samples.{word}"), per_packet(counts.ns[part]));
            put(&format!("calls.{word}"), per_packet(counts.visits[part]));
        }
        let all: Nanos = counts.ns.iter().sum();
        let most = counts.on_cpu.iter().max().copied().unwrap_or(0);
        put("samples.all", per_packet(all));
        put("path_cpu.all", all as f64 / 1e9 / seconds);
        put("path_cpu.max", most as f64 / 1e9 / seconds);
        put("path.lines", per_packet(counts.lines));
        put("path.crossings", per_packet(counts.crossings));
        put("path.cold", per_packet(counts.cold));
        put(
            "path.batch",
            counts.batched as f64 / counts.batches.max(1) as f64,
        );
        put("dropped", counts.dropped as f64 / seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_scenario::{Input, read};

    fn detail() -> Detail {
        on("packages = 2\ncores = 2")
    }

    #[test]
    fn caches_are_as_the_host_has_them() {
        assert_eq!(on("packages = 2\ncores = 2").llc, [0, 0, 1, 1]);
        assert_eq!(
            on("cores = 4\nllcs = 2\nthreads = 2").llc,
            [0, 0, 0, 0, 1, 1, 1, 1]
        );
        let kinds = "cores = 3\nthreads = 2\n[host.kind.a]\ncores = \"1\"\nllcs = 1\n[host.kind.b]\ncores = 2";
        assert_eq!(on(kinds).llc, [0, 0, 1, 1, 0, 0]);
    }

    fn on(host: &str) -> Detail {
        let text = "[vm.v]\nguest = \"none\"\ntasks = [\"e\"]\n[task.e]\nmodel = \
                    \"echo\"\n[client.c]\nto = \"v\"\nsends = \"every 1ms\"\n[net]\npath = \"vhost\"\n[net.stages]\n";
        let input = Input {
            name: "t".into(),
            shown: "t.toml".into(),
            text: format!("[host]\n{host}\n{text}"),
            folder: None,
        };
        let scenario = read(&input, &[]).unwrap_or_else(|e| panic!("{e}")).scenario;
        let stages = scenario.net.stages.as_ref().unwrap();
        Detail::new(stages, &scenario.host, [1, 1, 1, 1])
    }

    fn batch(packets: u64, bytes: u64, opens: bool) -> Batch {
        let mut batch = Batch {
            opens,
            ..Batch::default()
        };
        (0..packets).for_each(|_| batch.add(1, bytes));
        batch
    }

    #[test]
    fn four_fifths_are_spent_once() {
        let mut d = detail();
        // 12 us: 9.6 once, 2.4 each.
        assert_eq!(d.visit((0, 0), Part::Guest, 0, &batch(1, 64, true)), 12_000);
        assert_eq!(
            d.visit((0, 0), Part::Guest, 0, &batch(64, 64, true)),
            9_600 + 64 * 2_400
        );
        assert_eq!(d.visit((0, 0), Part::Guest, 0, &batch(3, 64, false)), 7_200);
        // 6 us and 2 ns a byte.
        assert_eq!(
            d.visit((0, 0), Part::Copy, 0, &batch(1, 1000, true)),
            6_000 + 2_000
        );
    }

    #[test]
    fn what_is_elsewhere_is_fetched() {
        let mut d = detail();
        // CPUs 0 and 1 share a cache, 2 and 3 another one.
        assert_eq!(d.visit((0, 0), Part::Tap, 0, &batch(1, 64, true)), 2_000);
        assert_eq!(
            d.visit((0, 0), Part::Tap, 1, &batch(1, 64, true)),
            2_000 + 4 * 5
        );
        assert_eq!(
            d.visit((0, 0), Part::Tap, 2, &batch(1, 64, true)),
            2_000 + 4 * 110
        );
        assert_eq!(d.visit((0, 0), Part::Tap, 2, &batch(1, 64, true)), 2_000);
        // 1400 bytes: 22 lines of each packet.
        assert_eq!(
            d.read(0, Part::Guest, 3, 0, &batch(2, 1400, true)),
            2 * 22 * 110
        );
        assert_eq!(d.read(0, Part::Guest, 3, 3, &batch(2, 1400, true)), 0);
        assert_eq!(d.counts[0].lines, 4 + 4 + 44);
        assert_eq!(d.counts[0].crossings, 2);
        assert_eq!([d.wake(0, 1, 1), d.wake(0, 1, 0)], [1_000, 3_000]);
    }

    #[test]
    fn a_thread_that_moved_brings_its_working_set() {
        let mut d = detail();
        assert_eq!([d.begins(0, 0, 0, false), d.begins(0, 0, 0, true)], [0, 0]);
        assert_eq!(d.begins(0, 0, 1, false), 4_000 + 2_000);
        assert_eq!(d.begins(0, 0, 2, true), 4_000);
        assert_eq!(
            [d.sits(0, 5, 0), d.sits(0, 5, 0), d.sits(0, 5, 1)],
            [0, 0, 6_000]
        );
        assert_eq!(d.counts[0].cold, 3);
    }

    #[test]
    fn a_batch_of_the_guest_ends_with_its_sleep_or_when_it_is_full() {
        let mut d = detail();
        let opens: Vec<bool> = (0..66).map(|i| d.takes(0, 1, i == 0)).collect();
        let at: Vec<usize> = (0..66).filter(|i| opens[*i]).collect();
        assert_eq!(at, [0, 64]);
        assert!(d.takes(0, 1, true));
    }

    #[test]
    fn an_acknowledgement_stands_for_what_is_taken_together() {
        let mut d = detail();
        // Nothing waits any more: it is paid for, and given once.
        assert!(!d.holds(0) && d.gives(0) && !d.gives(0));
        d.streams[0].waits = 1;
        assert!(d.holds(0) && !d.gives(0));
        // A batch is full.
        let parcel = Parcel {
            cargo: super::super::parcel::Cargo {
                sent: 0,
                stream: 0,
                user: 0,
                out: true,
            },
            since: 0,
            cpu: 0,
            rides: false,
        };
        d.streams[0].held = std::iter::repeat_n(parcel, 63).collect();
        assert!(!d.holds(0));
    }

    #[test]
    fn what_came_before_counting_is_forgotten() {
        let mut d = detail();
        d.begin_at(100);
        d.look(99);
        d.wake(0, 1, 1);
        d.look(100);
        assert_eq!(d.counts[0].visits[Part::Wake as usize], 0);
        d.wake(0, 1, 1);
        d.look(101);
        assert_eq!(d.counts[0].visits[Part::Wake as usize], 1);
    }
}
