// SPDX-License-Identifier: GPL-2.0-only
//! A disk: requests wait in a queue, and one after the other is served.
use crate::words::Nanos;
use berth_scenario::model::Disk as Spec;
use std::collections::VecDeque;

#[derive(Clone, Debug)]
pub(super) struct Drive {
    bit_s: u64,
    near: Nanos,
    far: Nanos,
    size: u64,
    /// Where the last request ended, bytes from the start of the disk.
    head: u64,
    /// Numbers of the requests that wait.
    pub queue: VecDeque<u32>,
    /// In service, and when that is over.
    pub serving: Option<(u32, Nanos)>,
    /// Time of all services that have begun, ns.
    pub busy: Nanos,
}

impl Drive {
    pub fn new(spec: &Spec) -> Drive {
        Drive {
            bit_s: spec.bit_s.max(1),
            near: spec.seek_near_ns,
            far: spec.seek_far_ns.max(spec.seek_near_ns),
            size: spec.size_bytes.max(1),
            head: 0,
            queue: VecDeque::new(),
            serving: None,
            busy: 0,
        }
    }

    /// Time to move so many bytes, ns, rounded up.
    pub fn transfer(&self, bytes: u64) -> Nanos {
        let bits = u128::from(bytes) * 8_000_000_000;
        bits.div_ceil(u128::from(self.bit_s)).min(1 << 60) as Nanos
    }

    /// Time to come to a place from where the last request ended, ns: none if it is there; else from `near` to `far`
    /// by the square root of the distance (the arm speeds up and slows down: Ruemmler and Wilkes, 1994).
    pub fn seek(&self, at: u64) -> Nanos {
        let distance = self.head.abs_diff(at);
        if distance == 0 {
            return 0;
        }
        let part = (distance as f64 / self.size as f64).min(1.0).sqrt();
        self.near + ((self.far - self.near) as f64 * part) as Nanos
    }

    /// A request begins to be served: when it is done.
    pub fn begin(&mut self, request: u32, at: u64, bytes: u64, now: Nanos) -> Nanos {
        let service = self.seek(at).saturating_add(self.transfer(bytes)).max(1);
        self.head = at + bytes;
        self.busy += service;
        let end = now.saturating_add(service);
        self.serving = Some((request, end));
        end
    }

    /// Time that it has worked until now, ns.
    pub fn worked(&self, now: Nanos) -> Nanos {
        let ahead = self.serving.map_or(0, |(_, end)| end.saturating_sub(now));
        self.busy - ahead.min(self.busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(seek: u64, far: u64) -> Drive {
        Drive::new(&Spec {
            name: "d".into(),
            path: Default::default(),
            size_bytes: 1_000_000,
            file_bytes: 1_000_000,
            access: Default::default(),
            // 8 ns a byte.
            bit_s: 1_000_000_000,
            seek_near_ns: seek,
            seek_far_ns: far,
            request_bytes: 4096,
            cache_bytes: 0,
            block_bytes: 4096,
            read_ahead_bytes: 0,
            write_back_ns: 0,
            dirty_ppm: 0,
            syscall_ns: 0,
            copy_ns: 0,
            submit_ns: 0,
            per_request_host_ns: 0,
            irq_ns: 0,
        })
    }

    #[test]
    fn what_follows_needs_no_seek() {
        let mut d = drive(5_000, 5_000);
        assert_eq!(d.begin(0, 0, 1000, 0), 8_000);
        assert_eq!(d.begin(1, 1000, 1000, 8_000), 16_000);
        assert_eq!(d.begin(2, 0, 1000, 16_000), 16_000 + 5_000 + 8_000);
        assert_eq!(
            (d.worked(16_000), d.worked(20_000), d.worked(29_000)),
            (16_000, 20_000, 29_000)
        );
        assert_eq!(d.worked(99_000), 29_000);
    }

    #[test]
    fn a_seek_grows_with_the_root_of_the_distance() {
        let d = drive(1_000, 9_000);
        assert_eq!(d.seek(0), 0);
        assert_eq!(d.seek(250_000), 1_000 + 4_000);
        assert_eq!(d.seek(1_000_000), 9_000);
        assert_eq!(d.transfer(u64::MAX), 1 << 60);
    }
}
