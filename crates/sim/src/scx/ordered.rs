// SPDX-License-Identifier: GPL-2.0-only
//! A queue ordered by virtual time: the signed difference of 64-bit keys, ties first come first served.
//!
//! A sorted list cut into chunks of at most [`CHUNK`] entries, with a directory of the chunks' first
//! entries: insert and remove touch one chunk (a few cache lines) whatever the length, walking is in
//! order both ways, and a position is an entry's own key, so it survives every change of the queue.
//! Nothing is allocated once the queue has had its largest size.

/// Entries per chunk at most.
const CHUNK: usize = 64;

/// Entries in order. Most are taken from the front and come in near the back: the front moves instead of
/// everybody behind it.
#[derive(Debug)]
struct Chunk {
    entries: Vec<Entry>,
    /// Entries before this are gone.
    start: usize,
}

impl Chunk {
    fn with_room() -> Self {
        Chunk {
            entries: Vec::with_capacity(2 * CHUNK),
            start: 0,
        }
    }

    #[inline]
    fn live(&self) -> &[Entry] {
        &self.entries[self.start..]
    }

    #[inline]
    fn insert(&mut self, at: usize, e: Entry) {
        if self.start > 0 && at < self.live().len() / 2 {
            let start = self.start;
            self.entries.copy_within(start..start + at, start - 1);
            self.start -= 1;
            self.entries[self.start + at] = e;
            return;
        }
        if self.entries.len() == 2 * CHUNK {
            self.entries.drain(..self.start);
            self.start = 0;
        }
        self.entries.insert(self.start + at, e);
    }

    #[inline]
    fn remove(&mut self, at: usize) {
        if at == 0 {
            self.start += 1;
        } else {
            self.entries.remove(self.start + at);
        }
        if self.start == self.entries.len() {
            self.entries.clear();
            self.start = 0;
        }
    }

    /// Moves the upper half into an empty chunk.
    fn split(&mut self, upper: &mut Chunk) {
        let middle = self.start + self.live().len() / 2;
        upper.entries.extend(self.entries.drain(middle..));
    }
}

/// One queued task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub vtime: u64,
    /// Sequence number of the insert in its queue: order of equal keys.
    pub seq: u32,
    pub task: u32,
}

impl Entry {
    /// Does `self` come before `other`? (Signed difference, as the kernel's time_before64; no branches.)
    #[inline(always)]
    fn before(&self, other: &Entry) -> bool {
        let d = self.vtime.wrapping_sub(other.vtime) as i64;
        let s = self.seq.wrapping_sub(other.seq) as i32;
        (d < 0) | ((d == 0) & (s < 0))
    }
}

/// See the module's comment.
#[derive(Debug, Default)]
pub struct Ordered {
    /// In order; no chunk is empty.
    chunks: Vec<Chunk>,
    /// First entry of each chunk.
    firsts: Vec<Entry>,
    spare: Vec<Chunk>,
    len: usize,
}

impl Ordered {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Index of the chunk an entry belongs to (the last whose first entry is not after it).
    #[inline]
    fn chunk_of(&self, e: &Entry) -> usize {
        if self.firsts.len() <= 1 {
            return 0;
        }
        self.firsts
            .partition_point(|f| !e.before(f))
            .saturating_sub(1)
    }

    pub fn insert(&mut self, e: Entry) {
        if self.chunks.is_empty() {
            self.chunks
                .push(self.spare.pop().unwrap_or_else(Chunk::with_room));
            self.firsts.push(e);
        }
        let c = self.chunk_of(&e);
        let chunk = &mut self.chunks[c];
        let at = match chunk.live().last() {
            Some(last) if last.before(&e) => chunk.live().len(),
            _ => chunk.live().partition_point(|x| x.before(&e)),
        };
        chunk.insert(at, e);
        if at == 0 {
            self.firsts[c] = e;
        }
        self.len += 1;
        if chunk.live().len() == CHUNK {
            let mut upper = self.spare.pop().unwrap_or_else(Chunk::with_room);
            chunk.split(&mut upper);
            self.firsts.insert(c + 1, upper.live()[0]);
            self.chunks.insert(c + 1, upper);
        }
    }

    /// Position of an entry: chunk and index. Keys more than 2^63 apart have no consistent order; then the
    /// whole queue is searched.
    fn find(&self, e: &Entry) -> Option<(usize, usize)> {
        // Mostly the first one is taken.
        if self.firsts.first()? == e {
            return Some((0, 0));
        }
        if self.firsts[0] == *e {
            return Some((0, 0));
        }
        let c = self.chunk_of(e);
        let at = self.chunks[c].live().partition_point(|x| x.before(e));
        if self.chunks[c].live().get(at) == Some(e) {
            return Some((c, at));
        }
        self.chunks.iter().enumerate().find_map(|(c, chunk)| {
            let at = chunk.live().iter().position(|x| x == e)?;
            Some((c, at))
        })
    }

    /// Take an entry out; `false` if it is not here.
    pub fn remove(&mut self, e: &Entry) -> bool {
        let Some((c, at)) = self.find(e) else {
            return false;
        };
        self.chunks[c].remove(at);
        self.len -= 1;
        if self.chunks[c].live().is_empty() {
            let chunk = self.chunks.remove(c);
            self.firsts.remove(c);
            self.spare.push(chunk);
        } else if at == 0 {
            self.firsts[c] = self.chunks[c].live()[0];
        }
        true
    }

    #[inline]
    pub fn first(&self) -> Option<Entry> {
        self.firsts.first().copied()
    }

    pub fn last(&self) -> Option<Entry> {
        self.chunks.last().and_then(|c| c.live().last()).copied()
    }

    /// The entry after this one (which need not be in the queue any more).
    pub fn after(&self, e: &Entry) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        let c = self.chunk_of(e);
        let chunk = self.chunks[c].live();
        let at = chunk.partition_point(|x| x == e || x.before(e));
        chunk
            .get(at)
            .or_else(|| self.chunks.get(c + 1).map(|n| &n.live()[0]))
            .copied()
    }

    /// The entry before this one (which need not be in the queue any more).
    pub fn before(&self, e: &Entry) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        let c = self.chunk_of(e);
        let chunk = self.chunks[c].live();
        let at = chunk.partition_point(|x| x.before(e));
        if at > 0 {
            return Some(chunk[at - 1]);
        }
        self.chunks.get(c.checked_sub(1)?)?.live().last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn e(vtime: u64, seq: u32) -> Entry {
        Entry {
            vtime,
            seq,
            task: seq,
        }
    }

    #[test]
    fn signed_difference_and_ties() {
        let mut q = Ordered::default();
        for x in [e(5, 1), e(u64::MAX - 2, 2), e(5, 3), e(0, 4)] {
            q.insert(x);
        }
        let mut order = Vec::new();
        while let Some(x) = q.first() {
            order.push(x.seq);
            assert!(q.remove(&x));
        }
        assert_eq!(order, [2, 4, 1, 3]);
    }

    #[test]
    fn far_keys_are_still_found() {
        let mut q = Ordered::default();
        let far = [e(0, 1), e(1 << 62, 2), e(1 << 63, 3), e(3 << 62, 4)];
        far.iter().for_each(|x| q.insert(*x));
        for x in &far {
            assert!(q.remove(x));
        }
        assert!(q.is_empty());
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_vector(ops in proptest::collection::vec((any::<bool>(), 0u64..40), 1..600)) {
            let mut q = Ordered::default();
            let mut model: Vec<Entry> = Vec::new();
            for (i, (add, v)) in ops.into_iter().enumerate() {
                if add || model.is_empty() {
                    let x = e(v, i as u32);
                    q.insert(x);
                    model.push(x);
                    model.sort_by_key(|x| (x.vtime, x.seq));
                } else {
                    let x = model.remove(v as usize % model.len());
                    prop_assert!(q.remove(&x));
                    prop_assert!(!q.remove(&x));
                    // Neighbours of an entry that is gone.
                    let at = model.partition_point(|m| (m.vtime, m.seq) < (x.vtime, x.seq));
                    prop_assert_eq!(q.after(&x), model.get(at).copied());
                    prop_assert_eq!(q.before(&x), at.checked_sub(1).map(|i| model[i]));
                }
                prop_assert_eq!(q.len(), model.len());
                prop_assert_eq!(q.first(), model.first().copied());
                prop_assert_eq!(q.last(), model.last().copied());
            }
            let mut walked = Vec::new();
            let mut at = q.first();
            while let Some(x) = at {
                walked.push(x);
                at = q.after(&x);
            }
            prop_assert_eq!(walked, model);
        }
    }
}
