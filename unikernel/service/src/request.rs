// SPDX-License-Identifier: GPL-2.0-only
//! A request: a datagram that comes back as it is. One that begins with [`MAGIC`] asks for work first.

/// UDP port of requests.
pub const PORT: u16 = 7777;
/// UDP port at which counters are asked for.
pub const COUNTERS_PORT: u16 = 7778;
/// First bytes of a request for work; then CPU time in us (little endian, 4 bytes), then its class (1 byte).
pub const MAGIC: [u8; 4] = *b"work";
/// Bytes of that.
pub const HEADER: usize = MAGIC.len() + 5;

/// What a datagram asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// CPU time, us.
    pub work_us: u32,
    /// Requests of a class are thought to be alike.
    pub class: u8,
}

impl Request {
    /// Of a datagram; any that does not ask for work asks for none.
    pub fn read(datagram: &[u8]) -> Request {
        match datagram.strip_prefix(&MAGIC) {
            Some([a, b, c, d, class, ..]) => Request {
                work_us: u32::from_le_bytes([*a, *b, *c, *d]),
                class: *class,
            },
            _ => Request::default(),
        }
    }

    /// Into the first [`HEADER`] bytes of a datagram that has so many.
    pub fn write(&self, datagram: &mut [u8]) {
        datagram[..MAGIC.len()].copy_from_slice(&MAGIC);
        datagram[MAGIC.len()..HEADER - 1].copy_from_slice(&self.work_us.to_le_bytes());
        datagram[HEADER - 1] = self.class;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let request = Request {
            work_us: 0x0102_0304,
            class: 7,
        };
        let mut datagram = [0; 16];
        request.write(&mut datagram);
        assert_eq!(Request::read(&datagram), request);
        for cut in 0..HEADER {
            assert_eq!(Request::read(&datagram[..cut]), Request::default());
        }
    }
}
