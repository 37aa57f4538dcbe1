// SPDX-License-Identifier: GPL-2.0-only
//! The clients: one real-time thread puts every request into its VM's queue when it is due.
use crate::mailbox::{Asker, Message};
use crate::shared::{Said, Shared};
use crate::{births, sys};
use berth_scenario::dist::{Arrivals, LONGEST_NS, Rng, Stream};
use berth_scenario::model::{Dist, Nanos, Scenario, Sends};
use berth_scenario::placement;
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;

/// The requests of one client to one VM.
#[derive(Debug)]
pub struct RequestStream {
    vm: u32,
    queue: String,
    first_ns: Nanos,
    stop_ns: Nanos,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Open(Arrivals),
    Closed { think: Dist, users: Vec<(Rng, u64)> },
}

/// One stream per client and VM of its group, in file order.
pub fn streams(scenario: &Scenario, seed: u64) -> Vec<RequestStream> {
    let mut streams = Vec::new();
    for (c, client) in scenario.clients.iter().enumerate() {
        for vm in placement::instances(scenario) {
            let spec = &scenario.vms[vm.group];
            if spec.name != client.to {
                continue;
            }
            let source = match (
                &client.sends,
                Arrivals::new(&client.sends, seed, c as u16, vm.ordinal),
            ) {
                (_, Some(arrivals)) => Source::Open(arrivals),
                (Sends::Closed { users, think }, None) => {
                    let rng = |user| {
                        Rng::new(
                            seed,
                            Stream::User {
                                client: c as u16,
                                vm: vm.ordinal as u16,
                                user,
                            },
                        )
                    };
                    Source::Closed {
                        think: think.clone(),
                        users: (0..*users).map(|u| (rng(u), 0)).collect(),
                    }
                }
                // Arrivals exist for every other kind.
                (_, None) => continue,
            };
            streams.push(RequestStream {
                vm: vm.ordinal,
                queue: client.name.clone(),
                first_ns: spec.start_ns,
                stop_ns: spec.stop_ns.unwrap_or(LONGEST_NS),
                source,
            });
        }
    }
    streams
}

/// Positions of the closed-loop streams.
pub fn closed(streams: &[RequestStream]) -> BTreeSet<usize> {
    let is_closed = |s: &&RequestStream| matches!(s.source, Source::Closed { .. });
    streams
        .iter()
        .enumerate()
        .filter(|(_, s)| is_closed(s))
        .map(|(i, _)| i)
        .collect()
}

impl RequestStream {
    /// When this user's next request is due, in nanoseconds after the start of the run; a closed-loop
    /// user began to think at `from_ns`. `None` when the VM has stopped by then.
    fn next(&mut self, user: u32, from_ns: Nanos) -> Option<Nanos> {
        let at = match &mut self.source {
            Source::Open(arrivals) => arrivals.next()?.saturating_add(self.first_ns),
            Source::Closed { think, users } => {
                let (rng, drawn) = users.get_mut(user as usize)?;
                *drawn += 1;
                from_ns.saturating_add(think.sample(rng, *drawn - 1))
            }
        };
        (at < self.stop_ns).then_some(at)
    }

    fn users(&self) -> u32 {
        match &self.source {
            Source::Open(_) => 1,
            Source::Closed { users, .. } => users.len() as u32,
        }
    }
}

/// Sends all requests until the run stops.
pub fn generate(
    shared: &Arc<Shared>,
    mut streams: Vec<RequestStream>,
    said: &Receiver<Said>,
) -> io::Result<()> {
    let start = shared.start_ns();
    // (due, stream, user), earliest first.
    let mut due = BinaryHeap::new();
    for (i, stream) in streams.iter_mut().enumerate() {
        for user in 0..stream.users() {
            if let Some(at) = stream.next(user, stream.first_ns) {
                due.push(Reverse((at, i, user)));
            }
        }
    }
    let queues: Vec<_> = streams.iter().map(|s| (s.vm, s.queue.clone())).collect();
    let boxes: Vec<_> = queues
        .iter()
        .map(|(vm, queue)| shared.door(Some(*vm), queue))
        .collect();
    loop {
        let seen = shared.answered.load(Ordering::Acquire);
        while let Ok(said) = said.try_recv() {
            match said {
                Said::Answered(asker, at_ns) => {
                    let think_from = at_ns.saturating_sub(start);
                    if let Some(at) = streams[asker.stream].next(asker.user, think_from) {
                        due.push(Reverse((at, asker.stream, asker.user)));
                    }
                }
                Said::Starts(birth, message) => births::begin(shared, birth, message),
            }
        }
        if shared.stop().load(Ordering::Acquire) != 0 {
            return Ok(());
        }
        let next = due
            .peek()
            .map(|Reverse((at, _, _))| start.saturating_add(*at));
        if let Some(at) = next.filter(|at| *at <= sys::now_ns()) {
            let Some(Reverse((since, i, user))) = due.pop() else {
                continue;
            };
            shared.offer(streams[i].vm, since);
            let client = Some(Asker { stream: i, user });
            let message = Message {
                arrival_ns: at,
                sent_ns: at,
                client,
            };
            if let Some(birth) = shared.put_at(&boxes[i], message) {
                births::begin(shared, birth, message);
            }
            if let Source::Open(_) = streams[i].source
                && let Some(at) = streams[i].next(user, 0)
            {
                due.push(Reverse((at, i, user)));
            }
            continue;
        }
        sys::wait(&[(&shared.answered, seen), (shared.stop(), 0)], next)?;
    }
}
