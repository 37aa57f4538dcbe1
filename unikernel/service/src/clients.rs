// SPDX-License-Identifier: GPL-2.0-only
//! Clients inside the guest (a closed loop): each sends a request, waits for the reply, and sends the next one a
//! round-trip time later. For the network they are a card: their frames pass all of it but the driver.
use crate::card::Card;
use crate::frames::{self, End, Found};
use crate::request::{HEADER, PORT, Request};
use crate::workload::Sizes;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use smoltcp::wire::{EthernetAddress, Ipv4Address};

/// First port of a client.
const FIRST: u16 = 20_000;
/// Bytes of a request.
const BYTES: usize = 64;

/// A request that is on its way, since it was due: that the network takes it later is part of its response time.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    since_us: u64,
    number: u64,
}

/// The clients.
pub struct Clients {
    me: End,
    server: End,
    sizes: Sizes,
    asked: Vec<Option<Asked>>,
    /// Who sends next, and when.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    /// Answers to those who asked for an address.
    told: VecDeque<Vec<u8>>,
    rtt_us: u64,
    now_us: u64,
    sent: u64,
    wanted: u64,
    responses_us: Vec<u32>,
    refused: u64,
    wrong: u64,
}

impl Clients {
    /// `count` clients at `me` that send `wanted` requests in all to `server`, the first ones at `start_us`.
    pub fn new(
        me: End,
        server: End,
        start_us: u64,
        count: usize,
        rtt_us: u64,
        wanted: u64,
        sizes: Sizes,
    ) -> Clients {
        Clients {
            me,
            server,
            sizes,
            asked: vec![None; count],
            due: (0..count)
                .map(|client| Reverse((start_us, client)))
                .collect(),
            told: VecDeque::new(),
            rtt_us,
            now_us: 0,
            sent: 0,
            wanted,
            responses_us: Vec::with_capacity(wanted as usize),
            refused: 0,
            wrong: 0,
        }
    }

    /// At 10.0.2.2, or wherever the gateway is, of a server with these addresses.
    pub fn ends(mac: [u8; 6], ip: [u8; 4], gateway: [u8; 4]) -> (End, End) {
        let end = |mac, ip| End {
            mac: EthernetAddress(mac),
            ip: Ipv4Address::from(ip),
        };
        (end([0x02, 0, 0, 0, 0, 0x02], gateway), end(mac, ip))
    }

    /// When the next request is due, us; `None`: all wait, or all is asked.
    pub fn due_us(&self) -> Option<u64> {
        let next = self
            .due
            .peek()
            .filter(|_| self.sent < self.wanted)
            .map(|Reverse((due_us, _))| *due_us);
        if self.told.is_empty() { next } else { Some(0) }
    }

    /// All is asked, and answered.
    pub fn is_done(&self) -> bool {
        self.sent == self.wanted && self.asked.iter().all(Option::is_none)
    }

    /// Response times of what was answered, us, which are kept no longer.
    pub fn take_responses_us(&mut self) -> Vec<u32> {
        core::mem::take(&mut self.responses_us)
    }

    /// Requests that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The service does not answer the request that came from this port: the client gives it up, and goes on as after a
    /// reply.
    pub fn give_up(&mut self, port: u16) {
        let client = usize::from(port.wrapping_sub(FIRST));
        if self.asked.get_mut(client).and_then(Option::take).is_some() {
            self.refused += 1;
            self.due.push(Reverse((self.now_us + self.rtt_us, client)));
        }
    }

    /// Replies that were not what was asked.
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    fn next_frame(&mut self) -> Option<Vec<u8>> {
        if let Some(frame) = self.told.pop_front() {
            return Some(frame);
        }
        if self.due_us()? > self.now_us {
            return None;
        }
        let Reverse((due_us, client)) = self.due.pop()?;
        let work_us = self.sizes.next()?.work_us;
        let mut payload = [0; BYTES];
        Request {
            work_us: work_us as u32,
            class: 0,
        }
        .write(&mut payload);
        payload[HEADER..HEADER + 8].copy_from_slice(&self.sent.to_le_bytes());
        self.asked[client] = Some(Asked {
            since_us: due_us,
            number: self.sent,
        });
        self.sent += 1;
        Some(frames::datagram(
            (self.me, FIRST + client as u16),
            (self.server, PORT),
            &payload,
        ))
    }

    fn take(&mut self, frame: &[u8]) {
        match frames::read(self.me, frame) {
            Some(Found::Asked(answer)) => self.told.push_back(answer),
            Some(Found::Datagram {
                from: PORT,
                to,
                payload,
            }) => {
                let client = usize::from(to.wrapping_sub(FIRST));
                let number = payload
                    .get(HEADER..HEADER + 8)
                    .and_then(|bytes| bytes.try_into().ok());
                match self.asked.get_mut(client).and_then(Option::take) {
                    Some(asked) if number.map(u64::from_le_bytes) == Some(asked.number) => {
                        let response_us = self.now_us - asked.since_us;
                        self.responses_us
                            .push(u32::try_from(response_us).unwrap_or(u32::MAX));
                        self.due.push(Reverse((self.now_us + self.rtt_us, client)));
                    }
                    _ => self.wrong += 1,
                }
            }
            _ => self.wrong += 1,
        }
    }
}

impl Card for Clients {
    fn receive(&mut self, now_us: u64) -> Option<Vec<u8>> {
        self.now_us = now_us;
        self.next_frame()
    }

    fn has_room(&mut self) -> bool {
        true
    }

    fn send<R>(&mut self, now_us: u64, bytes: usize, fill: impl FnOnce(&mut [u8]) -> R) -> R {
        self.now_us = now_us;
        let mut frame = vec![0; bytes];
        let result = fill(&mut frame);
        self.take(&frame);
        result
    }
}
