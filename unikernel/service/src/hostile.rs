// SPDX-License-Identifier: GPL-2.0-only
//! Frames of somebody who means harm: noise, good frames with wrong bytes, and frames whose outer layers are right so
//! that the inner ones are read. What the receive path is tried with, on a host and in the guest.
use crate::frames::{self, End};
use crate::request::{COUNTERS_PORT, PORT};
use crate::workload::Stream;
use alloc::vec;
use alloc::vec::Vec;

/// Frames to `server`, the same for the same seed.
pub struct Hostile {
    stream: Stream,
    me: End,
    server: End,
}

const ETHERNET: usize = 14;
/// What a card's buffers of 2048 bytes hold besides its own header.
const LONGEST: usize = 2036;

impl Hostile {
    /// The frames of `seed`, as from `me`.
    pub fn new(seed: u64, me: End, server: End) -> Hostile {
        Hostile {
            stream: Stream::new(seed),
            me,
            server,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.stream.bits() % bound as u64) as usize
    }

    fn noise(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| self.stream.bits() as u8).collect()
    }

    fn port(&mut self) -> u16 {
        match self.below(4) {
            0 => PORT,
            1 => COUNTERS_PORT,
            2 => [0, 7, 53, 1023, 1024, 65535][self.below(6)],
            _ => self.stream.bits() as u16,
        }
    }

    /// Right in all, but for its length at times: a card hands over what its buffers hold.
    fn good(&mut self) -> Vec<u8> {
        let most = if self.below(4) == 0 { LONGEST } else { 1514 };
        let bytes = self.below(most - frames::datagram_bytes(0) + 1);
        let payload = self.noise(bytes);
        frames::datagram((self.me, self.port()), (self.server, self.port()), &payload)
    }

    /// Any protocol, flags, fragment, options and inner bytes; lengths and sums of the outer header are right.
    fn packet(&mut self) -> Vec<u8> {
        let words = 5 + self.below(11);
        let inner = self.below(200);
        let mut frame = vec![0; ETHERNET];
        frame[..6].copy_from_slice(self.server.mac.as_bytes());
        frame[6..12].copy_from_slice(self.me.mac.as_bytes());
        frame[12] = 8;
        let mut header = self.noise(words * 4);
        header[0] = 0x40 | words as u8;
        header[2..4].copy_from_slice(&((words * 4 + inner) as u16).to_be_bytes());
        if self.below(2) == 0 {
            header[6..8].fill(0);
        }
        header[9] = [1, 2, 6, 17, 17, 17, 58, self.stream.bits() as u8][self.below(8)];
        header[10..12].fill(0);
        if self.below(8) > 0 {
            header[12..16].copy_from_slice(&self.me.ip.octets());
        }
        match self.below(8) {
            0 => {}
            1 => header[16..20].fill(255),
            2 => header[16..20].copy_from_slice(&[224, 0, 0, 1]),
            _ => header[16..20].copy_from_slice(&self.server.ip.octets()),
        }
        let sum: u32 = header
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
            .sum();
        let sum = (sum & 0xffff) + (sum >> 16);
        header[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        frame.extend(header);
        let mut rest = self.noise(inner);
        if inner >= 8 && self.below(2) == 0 {
            // A UDP header without a sum, to a port that listens.
            rest[2..4].copy_from_slice(&self.port().to_be_bytes());
            rest[4..6].copy_from_slice(&(inner as u16).to_be_bytes());
            rest[6..8].fill(0);
        }
        frame.extend(rest);
        frame
    }

    fn spoilt(&mut self, mut frame: Vec<u8>) -> Vec<u8> {
        for _ in 0..=self.below(6) {
            match self.below(4) {
                0 => frame.truncate(self.below(frame.len() + 1)),
                1 => {
                    let more = self.below(64);
                    frame.extend(self.noise(more));
                    frame.truncate(1514);
                }
                _ if frame.is_empty() => {}
                _ => {
                    let at = self.below(frame.len());
                    frame[at] = self.stream.bits() as u8;
                }
            }
        }
        frame
    }
}

impl Iterator for Hostile {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        Some(match self.below(8) {
            0 => {
                let bytes = self.below(LONGEST + 1);
                self.noise(bytes)
            }
            1 => self.good(),
            2 => {
                let good = self.good();
                self.spoilt(good)
            }
            3 => {
                let ask = frames::who_has(self.me, self.server.ip);
                self.spoilt(ask)
            }
            4 => {
                let packet = self.packet();
                self.spoilt(packet)
            }
            _ => self.packet(),
        })
    }
}
