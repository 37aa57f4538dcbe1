// SPDX-License-Identifier: GPL-2.0-only
//! CPU masks of a machine: as many words as it has CPUs, interned where tasks share them.
pub use crate::words::MaskId;
use berth_policy::kview::Cpumask;

/// A set of CPUs. Policies may hold pointers to its words, so one that they can reach is not moved any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuMask {
    words: Words,
}

/// One word, which is enough for most machines, lies in the mask itself.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Words {
    One(u64),
    Many(Box<[u64]>),
}

impl CpuMask {
    /// The empty set on a machine of this many CPUs.
    pub fn new(nr_cpus: u32) -> Self {
        CpuMask {
            words: match nr_cpus.div_ceil(64) {
                0 | 1 => Words::One(0),
                n => Words::Many(vec![0; n as usize].into()),
            },
        }
    }

    #[inline]
    pub fn words(&self) -> &[u64] {
        match &self.words {
            Words::One(word) => std::slice::from_ref(word),
            Words::Many(words) => words,
        }
    }

    #[inline]
    pub fn words_mut(&mut self) -> &mut [u64] {
        match &mut self.words {
            Words::One(word) => std::slice::from_mut(word),
            Words::Many(words) => words,
        }
    }

    #[inline]
    pub fn has(&self, cpu: u32) -> bool {
        self.words()[cpu as usize / 64] >> (cpu % 64) & 1 != 0
    }

    #[inline]
    pub fn set(&mut self, cpu: u32) {
        self.words_mut()[cpu as usize / 64] |= 1 << (cpu % 64);
    }

    #[inline]
    pub fn clear(&mut self, cpu: u32) {
        self.words_mut()[cpu as usize / 64] &= !(1 << (cpu % 64));
    }

    pub fn clear_all(&mut self) {
        self.words_mut().fill(0);
    }

    pub fn is_empty(&self) -> bool {
        self.words().iter().all(|w| *w == 0)
    }

    pub fn count(&self) -> u32 {
        self.words().iter().map(|w| w.count_ones()).sum()
    }

    pub fn first(&self) -> Option<u32> {
        let i = self.words().iter().position(|w| *w != 0)?;
        Some(i as u32 * 64 + self.words()[i].trailing_zeros())
    }

    /// CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.words().iter().enumerate().flat_map(|(i, w)| {
            let mut rest = *w;
            std::iter::from_fn(move || {
                let bit = rest.checked_ilog2().map(|_| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(i as u32 * 64 + bit)
            })
        })
    }

    pub fn is_subset_of(&self, other: &[u64]) -> bool {
        self.words().iter().zip(other).all(|(a, b)| a & !b == 0)
    }

    pub fn intersects(&self, other: &[u64]) -> bool {
        self.words().iter().zip(other).any(|(a, b)| a & b != 0)
    }

    pub fn insert_all(&mut self, other: &CpuMask) {
        for (a, b) in self.words_mut().iter_mut().zip(other.words()) {
            *a |= b;
        }
    }

    pub fn remove_all(&mut self, other: &CpuMask) {
        for (a, b) in self.words_mut().iter_mut().zip(other.words()) {
            *a &= !b;
        }
    }

    /// As the kernel's type. Only the machine's own number of bits exists.
    pub fn as_kernel(&self) -> *const Cpumask {
        self.words().as_ptr().cast()
    }
}

/// First CPU in both sets at or after `from`, then from the beginning.
#[inline]
pub fn next_and_wrap(a: &[u64], b: &[u64], from: u32) -> Option<u32> {
    let words = a.len().min(b.len());
    let start = from as usize / 64;
    if start < words {
        let bits = a[start] & b[start] & (!0 << (from % 64));
        if bits != 0 {
            return Some(start as u32 * 64 + bits.trailing_zeros());
        }
        for w in start + 1..words {
            let bits = a[w] & b[w];
            if bits != 0 {
                return Some(w as u32 * 64 + bits.trailing_zeros());
            }
        }
    }
    for w in 0..words.min(start + 1) {
        let bits = a[w] & b[w];
        if bits != 0 {
            return Some(w as u32 * 64 + bits.trailing_zeros());
        }
    }
    None
}

/// First CPU in `a` and in all of `sets` at or after `from`, then from the beginning.
#[inline]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
pub fn next_in_all(a: &[u64], sets: [&[u64]; 3], from: u32) -> Option<u32> {
    let [b, c, d] = sets;
    let words = a.len().min(b.len()).min(c.len()).min(d.len());
    let start = from as usize / 64;
    let at = |w: usize| a[w] & b[w] & c[w] & d[w];
    let found = |w: usize, bits: u64| Some(w as u32 * 64 + bits.trailing_zeros());
    if start < words {
        let bits = at(start) & (!0 << (from % 64));
        if bits != 0 {
            return found(start, bits);
        }
    }
    for w in (start + 1..words).chain(0..words.min(start + 1)) {
        let bits = at(w);
        if bits != 0 {
            return found(w, bits);
        }
    }
    None
}

/// The masks of one machine, by number. Entry 0 is every CPU.
#[derive(Debug)]
pub struct MaskTable {
    /// Boxed: they never move.
    #[allow(clippy::vec_box)]
    masks: Vec<Box<CpuMask>>,
    counts: Vec<u32>,
}

impl MaskTable {
    pub fn new(nr_cpus: u32) -> Self {
        let mut all = CpuMask::new(nr_cpus);
        (0..nr_cpus).for_each(|c| all.set(c));
        MaskTable {
            masks: vec![Box::new(all)],
            counts: vec![nr_cpus],
        }
    }

    /// The number of this set, made new if need be; empty = all.
    pub fn intern(&mut self, cpus: &[u32]) -> MaskId {
        let nr_cpus = self.counts[0];
        let mut mask = CpuMask::new(nr_cpus);
        for cpu in cpus.iter().filter(|c| **c < nr_cpus) {
            mask.set(*cpu);
        }
        if mask.is_empty() {
            return MaskId::ALL;
        }
        if let Some(i) = self.masks.iter().position(|m| **m == mask) {
            return MaskId(i as u32);
        }
        self.counts.push(mask.count());
        self.masks.push(Box::new(mask));
        MaskId(self.masks.len() as u32 - 1)
    }

    #[inline]
    pub fn get(&self, id: MaskId) -> &CpuMask {
        &self.masks[id.0 as usize]
    }

    /// Is the CPU in the mask?
    #[inline(always)]
    pub fn allows(&self, id: MaskId, cpu: u32) -> bool {
        id == MaskId::ALL || self.get(id).has(cpu)
    }

    #[inline]
    pub fn count(&self, id: MaskId) -> u32 {
        self.counts[id.0 as usize]
    }

    /// Every mask's address and length in bytes.
    pub fn regions(&self) -> impl Iterator<Item = (*const u8, usize)> + '_ {
        self.masks
            .iter()
            .map(|m| (m.words().as_ptr().cast(), m.words().len() * 8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrap_search() {
        let mut a = CpuMask::new(130);
        let mut b = CpuMask::new(130);
        for c in [3, 70, 129] {
            a.set(c);
            b.set(c);
        }
        b.set(5);
        let find = |from| next_and_wrap(a.words(), b.words(), from);
        assert_eq!(find(0), Some(3));
        assert_eq!(find(4), Some(70));
        assert_eq!(find(71), Some(129));
        assert_eq!(find(130), Some(3));
        assert_eq!(find(500), Some(3));
        assert_eq!(next_and_wrap(&[0, 0, 0], b.words(), 9), None);
        let all = [a.words(), b.words(), b.words()];
        for from in [0, 3, 4, 70, 71, 129, 130, 500] {
            assert_eq!(next_in_all(b.words(), all, from), find(from));
        }
        assert_eq!(a.iter().collect::<Vec<_>>(), [3, 70, 129]);
        assert_eq!(a.first(), Some(3));
        assert_eq!(a.count(), 3);
    }

    #[test]
    fn interning() {
        let mut t = MaskTable::new(8);
        assert_eq!(t.intern(&[]), MaskId::ALL);
        let a = t.intern(&[1, 2]);
        assert_eq!(a, t.intern(&[2, 1, 2]));
        assert_ne!(a, MaskId::ALL);
        assert_eq!(t.intern(&(0..8).collect::<Vec<_>>()), MaskId::ALL);
        assert_eq!(t.count(a), 2);
        assert_eq!(t.intern(&[99]), MaskId::ALL);
    }
}
