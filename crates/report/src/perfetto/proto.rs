// SPDX-License-Identifier: GPL-2.0-only
//! The wire format of protocol buffers, as far as a trace needs it: numbers, bytes, messages within messages.

/// Bytes of one message.
#[derive(Clone, Debug, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    fn tag(&mut self, field: u32, wire: u32) {
        self.raw(u64::from(field << 3 | wire));
    }

    /// A number as it stands in a packed list: seven bits a byte, lowest first.
    pub fn raw(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub fn number(&mut self, field: u32, value: u64) {
        self.tag(field, 0);
        self.raw(value);
    }

    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, 2);
        self.raw(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    pub fn message(&mut self, field: u32, value: &Message) {
        self.bytes(field, &value.0);
    }

    pub fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    /// A packed list; an empty one is left out.
    pub fn packed(&mut self, field: u32, list: &Message) {
        if !list.0.is_empty() {
            self.message(field, list);
        }
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}
