// SPDX-License-Identifier: GPL-2.0-only
//! Requests from outside: one stream per client and VM of its group.
use super::api::Nanos;
use super::mail::Asker;
use super::program::Programs;
use berth_scenario::dist::{Arrivals, LONGEST_NS, Rng, Stream};
use berth_scenario::model::{Dist, Scenario, Sends};
use berth_scenario::placement;

/// The requests of one client to one VM.
#[derive(Clone, Debug)]
pub(super) struct RequestStream {
    /// VM ordinal.
    pub vm: u32,
    /// Number of the queue.
    pub queue: u16,
    first: Nanos,
    stop: Nanos,
    source: Source,
    /// Of a request and of a reply.
    pub bytes: [u64; 2],
    /// What counts as carried by both; of a stream, whose replies only acknowledge, the request.
    pub carried: u64,
    /// Unanswered requests, and how many there may be.
    pub unanswered: u32,
    pub at_most: u32,
    /// Its replies only acknowledge, so that one stands for all before it.
    pub acknowledges: bool,
    /// Number of its first user among all users of the scenario.
    first_user: u32,
}

#[derive(Clone, Debug)]
enum Source {
    Open(Arrivals),
    /// Random numbers and number of draws, per user.
    Closed {
        think: Dist,
        users: Vec<(Rng, u64)>,
    },
}

/// All streams, and for every user its stream (open streams have one user).
#[derive(Clone, Debug, Default)]
pub(super) struct Clients {
    pub streams: Vec<RequestStream>,
    pub askers: Vec<Asker>,
}

impl Clients {
    /// In file order of the clients, then of the VMs.
    pub fn new(scenario: &Scenario, programs: &Programs, seed: u64) -> Clients {
        let mut clients = Clients::default();
        for (c, client) in (0..).zip(&scenario.clients) {
            for vm in placement::instances(scenario) {
                let spec = &scenario.vms[vm.group];
                if spec.name != client.to {
                    continue;
                }
                let source = match &client.sends {
                    Sends::Closed { users, think } => Source::Closed {
                        think: think.clone(),
                        users: (0..*users)
                            .map(|user| {
                                let vm = vm.ordinal as u16;
                                let stream = Stream::User {
                                    client: c,
                                    vm,
                                    user,
                                };
                                (Rng::new(seed, stream), 0)
                            })
                            .collect(),
                    },
                    open => match Arrivals::new(open, seed, c, vm.ordinal) {
                        Some(arrivals) => Source::Open(arrivals),
                        None => continue,
                    },
                };
                let stream = RequestStream {
                    vm: vm.ordinal,
                    // Every client is heard, says the placement.
                    queue: programs.queue(&client.name).unwrap_or(0),
                    first: spec.start_ns,
                    stop: spec.stop_ns.unwrap_or(LONGEST_NS),
                    source,
                    bytes: [client.request_bytes, client.reply_bytes],
                    carried: match client.window_bytes {
                        Some(_) => client.request_bytes,
                        None => client.request_bytes + client.reply_bytes,
                    },
                    unanswered: 0,
                    at_most: client.at_most.unwrap_or(u32::MAX),
                    acknowledges: client.window_bytes.is_some(),
                    first_user: clients.askers.len() as u32,
                };
                for user in 0..stream.users() {
                    clients.askers.push(Asker {
                        stream: clients.streams.len() as u32,
                        user,
                    });
                }
                clients.streams.push(stream);
            }
        }
        clients
    }

    /// When this user asks again after a request sent at `sent`, if it does not wait for the answer.
    pub fn next_open(&mut self, asker: u32, sent: Nanos) -> Option<Nanos> {
        let Asker { stream, user } = self.askers[asker as usize];
        let stream = &mut self.streams[stream as usize];
        if stream.is_open() {
            stream.next(user, sent)
        } else {
            None
        }
    }

    /// The VM that this user asks has stopped.
    pub fn is_over(&self, asker: u32, now: Nanos) -> bool {
        let Asker { stream, .. } = self.askers[asker as usize];
        now >= self.streams[stream as usize].stop
    }
}

impl RequestStream {
    /// When this user's first request is due.
    pub fn first(&mut self, user: u32) -> Option<Nanos> {
        self.next(user, self.first)
    }

    /// When this user's next request is due; a closed-loop user begins to think at `from`. `None` when the VM
    /// has stopped by then.
    pub fn next(&mut self, user: u32, from: Nanos) -> Option<Nanos> {
        let at = match &mut self.source {
            Source::Open(arrivals) => arrivals.next()?.saturating_add(self.first),
            Source::Closed { think, users } => {
                let (rng, drawn) = users.get_mut(user as usize)?;
                *drawn += 1;
                from.saturating_add(think.sample(rng, *drawn - 1))
            }
        };
        (at < self.stop).then_some(at)
    }

    /// The next request does not wait for the answer to this one.
    pub fn is_open(&self) -> bool {
        matches!(self.source, Source::Open(_))
    }

    pub fn users(&self) -> u32 {
        match &self.source {
            Source::Open(_) => 1,
            Source::Closed { users, .. } => users.len() as u32,
        }
    }

    /// Position of a user in [`Clients::askers`].
    pub fn asker(&self, user: u32) -> u32 {
        self.first_user + user
    }
}
