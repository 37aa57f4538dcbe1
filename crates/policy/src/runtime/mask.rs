// SPDX-License-Identifier: GPL-2.0-only
//! CPU masks a policy makes itself (`bpf_cpumask_create`): as many words as the machine needs, reference
//! counted, at addresses that do not move.

/// Bits of a mask.
#[derive(Clone, Copy)]
pub struct Bits {
    words: *mut u64,
    nr_cpus: u32,
}

impl Bits {
    /// # Safety
    /// `address` is a mask for a machine of `nr_cpus` CPUs: that many bits, in whole 64-bit words.
    pub unsafe fn at(address: u64, nr_cpus: u32) -> Bits {
        Bits {
            words: address as *mut u64,
            nr_cpus,
        }
    }

    pub fn words(self) -> usize {
        (self.nr_cpus as usize).div_ceil(64)
    }

    pub fn word(self, i: usize) -> u64 {
        // SAFETY: callers stay below `words()`.
        unsafe { self.words.add(i).read_unaligned() }
    }

    pub fn set_word(self, i: usize, value: u64) {
        // SAFETY: as `word`.
        unsafe { self.words.add(i).write_unaligned(value) }
    }

    /// Bits of word `i` that stand for CPUs of the machine.
    pub fn valid(self, i: usize) -> u64 {
        let rest = self.nr_cpus as usize - i * 64;
        if rest >= 64 {
            u64::MAX
        } else {
            (1 << rest) - 1
        }
    }

    /// First CPU at or after `from` for which `f(word index)` has its bit, or the number of CPUs.
    pub fn first_by(self, from: u32, f: impl Fn(usize) -> u64) -> u32 {
        if from >= self.nr_cpus {
            return self.nr_cpus;
        }
        let mut i = from as usize / 64;
        let mut word = f(i) & self.valid(i) & (u64::MAX << (from % 64));
        loop {
            if word != 0 {
                return i as u32 * 64 + word.trailing_zeros();
            }
            i += 1;
            if i == self.words() {
                return self.nr_cpus;
            }
            word = f(i) & self.valid(i);
        }
    }

    pub fn first(self) -> u32 {
        self.first_by(0, |i| self.word(i))
    }
}

/// Masks per slab.
const SLAB: usize = 16;

/// All masks an instance made. A slot is the bits followed by a reference count.
pub struct Masks {
    slot_words: usize,
    slabs: Vec<Box<[u64]>>,
    free: Vec<u64>,
}

impl Masks {
    pub fn new(nr_cpus: u32) -> Self {
        Masks {
            slot_words: (nr_cpus as usize).div_ceil(64) + 1,
            slabs: Vec::new(),
            free: Vec::new(),
        }
    }

    /// A new empty mask with one reference.
    pub fn create(&mut self) -> u64 {
        if self.free.is_empty() {
            let mut slab = vec![0u64; SLAB * self.slot_words].into_boxed_slice();
            let base = slab.as_mut_ptr() as u64;
            let size = self.slot_words as u64 * 8;
            self.free
                .extend((0..SLAB as u64).rev().map(|i| base + i * size));
            self.slabs.push(slab);
        }
        let address = self.free.pop().unwrap_or(0);
        let slot = self.slot(address).expect("a free slot lies in a slab");
        slot.fill(0);
        slot[slot.len() - 1] = 1;
        address
    }

    /// One more reference; 0 if `address` is no mask of this instance.
    pub fn acquire(&mut self, address: u64) -> u64 {
        match self.live(address) {
            Some(count) => {
                *count += 1;
                address
            }
            None => 0,
        }
    }

    /// One reference less; false if `address` is no mask of this instance.
    pub fn release(&mut self, address: u64) -> bool {
        let Some(count) = self.live(address) else {
            return false;
        };
        *count -= 1;
        if *count == 0 {
            self.free.push(address);
        }
        true
    }

    /// Masks with references.
    pub fn alive(&self) -> usize {
        self.slabs.len() * SLAB - self.free.len()
    }

    /// Do these bytes lie in the bits of a live mask?
    pub fn contains(&self, address: u64, size: u32) -> bool {
        let (bits, slot) = ((self.slot_words as u64 - 1) * 8, self.slot_words as u64 * 8);
        self.slabs.iter().any(|slab| {
            let start = slab.as_ptr() as u64;
            if !(start..start + slab.len() as u64 * 8).contains(&address) {
                return false;
            }
            let (i, within) = ((address - start) / slot, (address - start) % slot);
            slab[(i as usize + 1) * self.slot_words - 1] != 0 && within + u64::from(size) <= bits
        })
    }

    fn live(&mut self, address: u64) -> Option<&mut u64> {
        let slot = self.slot(address)?;
        let count = slot.last_mut()?;
        (*count != 0).then_some(count)
    }

    fn slot(&mut self, address: u64) -> Option<&mut [u64]> {
        let (words, size) = (self.slot_words, self.slot_words as u64 * 8);
        self.slabs.iter_mut().find_map(|slab| {
            let start = slab.as_ptr() as u64;
            if !(start..start + slab.len() as u64 * 8).contains(&address)
                || !(address - start).is_multiple_of(size)
            {
                return None;
            }
            let i = ((address - start) / size) as usize;
            Some(&mut slab[i * words..(i + 1) * words])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_live_as_long_as_their_references() {
        let mut masks = Masks::new(70);
        let a = masks.create();
        let b = masks.create();
        assert_ne!(a, b);
        assert!(masks.contains(a, 16) && !masks.contains(a, 17) && !masks.contains(8, 1));
        assert_eq!(masks.acquire(a), a);
        assert!(masks.release(a) && masks.contains(a, 8));
        assert!(masks.release(a) && !masks.contains(a, 8));
        assert!(!masks.release(a), "released too often");
        assert_eq!((masks.acquire(a + 8), masks.alive()), (0, 1));
    }

    #[test]
    fn first_ends_at_the_machine() {
        let mut words = [0u64, 0x80];
        // SAFETY: two words for 70 CPUs.
        let bits = unsafe { Bits::at(words.as_mut_ptr() as u64, 70) };
        assert_eq!(bits.first(), 70, "bit 71 is no CPU");
        bits.set_word(1, 0xa0);
        assert_eq!(bits.first(), 69);
        assert_eq!(bits.first_by(70, |i| bits.word(i)), 70);
    }
}
