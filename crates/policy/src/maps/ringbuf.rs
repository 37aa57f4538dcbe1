// SPDX-License-Identifier: GPL-2.0-only
//! RINGBUF: variable-sized records from the policy to the host. Space accounting is that of Linux, so a full
//! ring refuses the same record.
use super::memory::Block;
use super::{EAGAIN, EINVAL, MapRuntime, Place};
use crate::error::{LoadError, Result};
use crate::ir::MapDef;

const HEADER: u64 = 8;
const BUSY: u32 = 1 << 31;
const DISCARD: u32 = 1 << 30;
/// Largest record the kernel takes, bytes.
const MAX_RECORD: u64 = u32::MAX as u64 / 4;
/// The kernel's rings are whole pages.
const MIN_SIZE: u64 = 4096;
const NO_WAKEUP: u64 = 1;
const FORCE_WAKEUP: u64 = 2;

#[derive(Debug)]
pub struct RingBuf {
    size: u64,
    /// Twice `size`: a record that would wrap continues into the second half, which nothing else uses.
    data: Block,
    /// Next byte to hand out, and first byte not yet read. They only grow.
    producer: u64,
    consumer: u64,
    /// A reader that is always quick enough: finished records are counted and dropped at once.
    counting: bool,
    records: u64,
    bytes: u64,
    refused: u64,
}

impl RingBuf {
    /// An empty ring of `size` bytes whose records are counted and dropped.
    ///
    /// # Errors
    /// A definition the kernel would refuse.
    pub fn new(def: &MapDef, size: u32) -> Result<RingBuf> {
        let size = u64::from(size);
        let wrong = |what: String| LoadError::Setting(format!("map {}: {what}", def.name));
        if def.key_size != 0 || def.value_size != 0 {
            return Err(wrong("a ring buffer has neither key nor value".into()));
        }
        if !size.is_power_of_two() || size < MIN_SIZE {
            return Err(wrong(format!(
                "max_entries of a ring buffer is its size, a power of two of at least {MIN_SIZE} bytes, not {size}"
            )));
        }
        Ok(RingBuf {
            size,
            data: Block::zeroed(2 * size as usize)
                .ok_or_else(|| wrong(format!("{size} bytes do not fit in memory")))?,
            producer: 0,
            consumer: 0,
            counting: true,
            records: 0,
            bytes: 0,
            refused: 0,
        })
    }

    /// Whether records are kept until the host takes them with [`MapRuntime::drain`]; a full ring then refuses
    /// records, as it does when a policy's reader is slow.
    pub fn keep_records(&mut self, keep: bool) {
        self.counting = !keep;
        self.count_only();
    }

    /// Records submitted so far, and their payload bytes.
    pub fn counts(&self) -> (u64, u64) {
        (self.records, self.bytes)
    }

    /// Reservations refused because the ring was full.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    fn header(&self, position: u64) -> *mut u32 {
        // SAFETY: the masked position lies in the first half; positions are multiples of 8.
        unsafe {
            self.data
                .base()
                .add((position & (self.size - 1)) as usize)
                .cast()
        }
    }

    /// Header word of the record at a position, and the position after it; `None` at the end (and if wild stores
    /// of the policy have ruined the ring).
    fn record(&self, position: u64) -> Option<(u32, u64)> {
        if position >= self.producer {
            return None;
        }
        // SAFETY: positions between consumer and producer are headers.
        let word = unsafe { self.header(position).read() };
        let next = position + record_len((word & !(BUSY | DISCARD)).into());
        (next <= self.producer).then_some((word, next))
    }

    /// Header of a record that was reserved and is not finished yet.
    fn open_header(&self, record: *const u8) -> Option<*mut u32> {
        let mut position = self.consumer;
        while let Some((word, next)) = self.record(position) {
            let header = self.header(position);
            if header as u64 + HEADER == record as u64 {
                return (word & BUSY != 0).then_some(header);
            }
            position = next;
        }
        None
    }

    fn count_only(&mut self) {
        if self.counting {
            self.drain(&mut |_| ());
        }
    }
}

impl MapRuntime for RingBuf {
    fn reserve(&mut self, size: u64, flags: u64) -> *mut u8 {
        if flags != 0 || size > MAX_RECORD {
            return std::ptr::null_mut();
        }
        let len = record_len(size);
        if len > self.size || self.producer + len - self.consumer > self.size - 1 {
            self.refused += 1;
            return std::ptr::null_mut();
        }
        let header = self.header(self.producer);
        self.producer += len;
        // SAFETY: the record lies in the block, see `data`.
        unsafe {
            header.write(size as u32 | BUSY);
            header.cast::<u8>().add(HEADER as usize)
        }
    }

    fn commit(&mut self, record: *mut u8, discard: bool) -> bool {
        let Some(header) = self.open_header(record) else {
            return false;
        };
        // SAFETY: the header of a record.
        let size = unsafe { header.read() } & !BUSY;
        // SAFETY: as above.
        unsafe { header.write(size | if discard { DISCARD } else { 0 }) };
        if !discard {
            self.records += 1;
            self.bytes += u64::from(size);
        }
        self.count_only();
        true
    }

    unsafe fn output(&mut self, data: *const u8, size: u64, flags: u64) -> i64 {
        if flags & !(NO_WAKEUP | FORCE_WAKEUP) != 0 {
            return EINVAL;
        }
        let record = self.reserve(size, 0);
        if record.is_null() {
            return EAGAIN;
        }
        // SAFETY: the caller's data into a record of that size.
        unsafe { std::ptr::copy(data, record, size as usize) };
        self.commit(record, false);
        0
    }

    /// Bytes available, ring size, consumer position, producer position; 0 for other numbers.
    fn query(&self, flags: u64) -> u64 {
        match flags {
            0 => self.producer - self.consumer,
            1 => self.size,
            2 => self.consumer,
            3 => self.producer,
            _ => 0,
        }
    }

    /// Records submitted so far.
    fn len(&self) -> u64 {
        self.records
    }

    /// Stops at the first record that is still open, as a reader of the kernel's ring does.
    fn drain(&mut self, take: &mut dyn FnMut(&[u8])) {
        while let Some((word, next)) = self.record(self.consumer) {
            if word & BUSY != 0 {
                break;
            }
            if word & DISCARD == 0 {
                // SAFETY: a finished record of that size; nobody writes to it during the visit.
                take(unsafe {
                    std::slice::from_raw_parts(
                        self.header(self.consumer).cast::<u8>().add(HEADER as usize),
                        word as usize,
                    )
                });
            }
            self.consumer = next;
        }
    }

    fn contains(&self, address: u64, size: u32) -> bool {
        self.data.contains(address, size)
    }

    fn locate(&mut self, _address: u64) -> Option<Place> {
        None
    }
}

/// Bytes a record of `size` bytes takes in the ring.
fn record_len(size: u64) -> u64 {
    (size + HEADER).next_multiple_of(8)
}
