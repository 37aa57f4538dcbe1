// SPDX-License-Identifier: GPL-2.0-only
//! The wire between clients and host.
use crate::words::Nanos;

/// A full-duplex link: serialisation, first come first served each way, then the latency.
#[derive(Clone, Debug)]
pub(super) struct Link {
    bit_s: u64,
    latency: Nanos,
    /// When each direction has sent what it was given: in, out.
    free: [Nanos; 2],
}

impl Link {
    pub fn new(bit_s: u64, latency: Nanos) -> Link {
        Link {
            bit_s: bit_s.max(1),
            latency,
            free: [0; 2],
        }
    }

    /// Time that so many bytes (at least one) take on the wire, ns, rounded up.
    pub fn serialise(&self, bytes: u64) -> Nanos {
        let bits = u128::from(bytes.max(1)) * 8_000_000_000;
        bits.div_ceil(u128::from(self.bit_s)).min(1 << 62) as Nanos
    }

    /// Sends now; tells when the last bit arrives. Later than every earlier parcel of the same direction.
    pub fn send(&mut self, out: bool, bytes: u64, now: Nanos) -> Nanos {
        let ns = self.serialise(bytes);
        let free = &mut self.free[usize::from(out)];
        *free = (*free).max(now).saturating_add(ns);
        free.saturating_add(self.latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_serialises_each_way_by_itself() {
        // 1 Gbit/s: 8 ns a byte.
        let mut link = Link::new(1_000_000_000, 30_000);
        assert_eq!(link.send(false, 1500, 0), 12_000 + 30_000);
        assert_eq!(link.send(false, 1500, 5_000), 24_000 + 30_000);
        assert_eq!(link.send(true, 64, 5_000), 5_512 + 30_000);
        assert_eq!(link.send(false, 1, 100_000), 100_008 + 30_000);
        // Even nothing takes a while: parcels do not overtake or coincide.
        let mut fast = Link::new(400_000_000_000, 0);
        assert_eq!((fast.send(true, 0, 7), fast.send(true, 0, 7)), (8, 9));
        assert_eq!(Link::new(1, 0).serialise(u64::MAX), 1 << 62);
    }
}
