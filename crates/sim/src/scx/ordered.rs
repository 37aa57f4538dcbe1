// SPDX-License-Identifier: GPL-2.0-only
//! A queue ordered by virtual time: the signed difference of 64-bit keys, ties first come first served.
//!
//! A sorted list cut into chunks of less than `CHUNK` entries, with a directory of the chunks' first
//! entries: insert and remove touch one chunk (a few cache lines) whatever the length, walking is in
//! order both ways, and a position is an entry's own key, so it survives every change of the queue.
//! Keys lie apart from what they belong to.
//! Nothing is allocated once the queue has had its largest size.

/// A chunk that has grown to this many entries is cut in two.
const CHUNK: usize = 64;
/// Places in a chunk: the front moves on as entries are taken, and returns to the beginning now and then.
const ROOM: usize = 2 * CHUNK;
/// Places the first chunk begins with: most queues of most guests never hold more.
const SMALL: usize = 16;

/// As many keys are counted, not searched.
const COUNTED: usize = 16;

/// Entries in order, in `start..end`.
#[derive(Debug)]
struct Chunk {
    keys: Box<[u64]>,
    /// `seq << 32 | task` of each key.
    tags: Box<[u64]>,
    start: usize,
    end: usize,
}

/// 1 if key `a` comes before key `b`: the sign of their difference.
#[inline(always)]
fn earlier(a: u64, b: u64) -> u64 {
    a.wrapping_sub(b) >> 63
}

impl Chunk {
    fn with_room(room: usize) -> Self {
        Chunk {
            keys: vec![0; room].into(),
            tags: vec![0; room].into(),
            start: 0,
            end: 0,
        }
    }

    /// The back is reached: entries move to the front, of larger arrays if these are not full-sized.
    #[cold]
    fn make_room(&mut self) {
        let live = self.start..self.end;
        let room = self.keys.len();
        if room < ROOM && self.len() > room / 2 {
            let mut larger = Chunk::with_room(2 * room);
            larger.keys[..live.len()].copy_from_slice(&self.keys[live.clone()]);
            larger.tags[..live.len()].copy_from_slice(&self.tags[live.clone()]);
            (self.keys, self.tags) = (larger.keys, larger.tags);
        } else {
            self.keys.copy_within(live.clone(), 0);
            self.tags.copy_within(live.clone(), 0);
        }
        (self.start, self.end) = (0, live.len());
    }

    #[inline]
    fn len(&self) -> usize {
        self.end - self.start
    }

    /// The entry at this place of the arrays.
    #[inline]
    fn entry(&self, place: usize) -> Entry {
        Entry::new(self.keys[place], self.tags[place])
    }

    /// Place after all keys that come before `vtime`: they are halved without a jump until they are few, and then
    /// counted, which takes no jump a processor could mispredict either, and compiles to vector instructions.
    #[inline]
    fn after_all_before(&self, vtime: u64) -> usize {
        let mut live = &self.keys[self.start..self.end];
        let mut place = self.start;
        while live.len() > COUNTED {
            let half = live.len() / 2;
            let skip = half * earlier(live[half - 1], vtime) as usize;
            place += skip;
            live = &live[skip..skip + live.len() - half];
        }
        place + live.iter().map(|k| earlier(*k, vtime)).sum::<u64>() as usize
    }

    /// Place of the first entry that is not before this one (equal keys: by sequence number).
    fn place_of(&self, e: &Entry) -> usize {
        let mut place = self.after_all_before(e.vtime);
        while place < self.end && self.entry(place).before(e) {
            place += 1;
        }
        place
    }

    /// Puts in an entry younger than all others.
    #[inline]
    fn insert(&mut self, e: Entry) {
        if self.end == self.keys.len() {
            self.make_room();
        }
        // After its equals.
        let place = self.after_all_before(e.vtime.wrapping_add(1));
        self.keys.copy_within(place..self.end, place + 1);
        self.tags.copy_within(place..self.end, place + 1);
        self.keys[place] = e.vtime;
        self.tags[place] = e.tag();
        self.end += 1;
    }

    #[inline]
    fn remove(&mut self, place: usize) {
        if place == self.start {
            self.start += 1;
        } else {
            self.keys.copy_within(place + 1..self.end, place);
            self.tags.copy_within(place + 1..self.end, place);
            self.end -= 1;
        }
    }

    /// Moves the upper half into another chunk, whatever was there.
    fn split(&mut self, upper: &mut Chunk) {
        let middle = self.start + self.len() / 2;
        let moved = self.end - middle;
        upper.keys[..moved].copy_from_slice(&self.keys[middle..self.end]);
        upper.tags[..moved].copy_from_slice(&self.tags[middle..self.end]);
        (upper.start, upper.end) = (0, moved);
        self.end = middle;
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
    #[inline(always)]
    fn new(vtime: u64, tag: u64) -> Entry {
        Entry {
            vtime,
            seq: (tag >> 32) as u32,
            task: tag as u32,
        }
    }

    #[inline(always)]
    fn tag(&self) -> u64 {
        u64::from(self.seq) << 32 | u64::from(self.task)
    }

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
    /// In order. Only the first chunk may be empty, and only if it is alone.
    chunks: Vec<Chunk>,
    /// First entry of each chunk; of the first chunk nobody asks, and it is not kept up to date.
    firsts: Vec<Entry>,
    spare: Vec<Chunk>,
    len: usize,
}

impl Ordered {
    pub const fn empty() -> Ordered {
        Ordered {
            chunks: Vec::new(),
            firsts: Vec::new(),
            spare: Vec::new(),
            len: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Task that comes `n` places after the first one, if it is in the first chunk.
    #[inline]
    pub fn near_front(&self, n: usize) -> Option<u32> {
        let chunk = self.chunks.first()?;
        let place = chunk.start + n;
        (place < chunk.end).then(|| chunk.tags[place] as u32)
    }

    /// Tells `to` where the first entries are (address and length in bytes).
    #[inline]
    pub fn ask_front(&self, to: impl Fn(*const u64, usize)) {
        if let Some(chunk) = self.chunks.first() {
            to(chunk.keys.as_ptr().wrapping_add(chunk.start), 64);
            to(chunk.tags.as_ptr().wrapping_add(chunk.start), 64);
        }
    }

    /// Index of the chunk an entry belongs to (the last whose first entry is not after it).
    #[inline]
    fn chunk_of(&self, e: &Entry) -> usize {
        if self.firsts.len() <= 1 {
            return 0;
        }
        self.firsts[1..].partition_point(|f| !e.before(f))
    }

    /// Puts in an entry whose sequence number follows all others'.
    #[inline]
    pub fn insert(&mut self, e: Entry) {
        if self.chunks.is_empty() {
            // Most never have another one.
            self.chunks.reserve_exact(1);
            self.firsts.reserve_exact(1);
            self.chunks.push(Chunk::with_room(SMALL));
            self.firsts.push(e);
        }
        let c = self.chunk_of(&e);
        let chunk = &mut self.chunks[c];
        chunk.insert(e);
        self.len += 1;
        if c > 0 {
            // Its first entry is another one only if keys are more than 2^63 apart.
            self.firsts[c] = chunk.entry(chunk.start);
        }
        if chunk.len() == CHUNK {
            self.divide(c);
        }
    }

    #[cold]
    fn divide(&mut self, c: usize) {
        let mut upper = self.spare.pop().unwrap_or_else(|| Chunk::with_room(ROOM));
        self.chunks[c].split(&mut upper);
        self.firsts.insert(c + 1, upper.entry(0));
        self.chunks.insert(c + 1, upper);
    }

    /// Take an entry out; `false` if it is not here.
    #[inline]
    pub fn remove(&mut self, e: &Entry) -> bool {
        if self.len == 0 {
            return false;
        }
        // Mostly the first one is taken.
        let chunk = &mut self.chunks[0];
        if chunk.tags[chunk.start] == e.tag() {
            chunk.start += 1;
            self.len -= 1;
            if chunk.start == chunk.end {
                self.emptied(0);
            }
            return true;
        }
        self.remove_inside(e)
    }

    fn remove_inside(&mut self, e: &Entry) -> bool {
        let Some((c, place)) = self.find(e) else {
            return false;
        };
        let chunk = &mut self.chunks[c];
        chunk.remove(place);
        self.len -= 1;
        if chunk.len() == 0 {
            self.emptied(c);
        } else {
            self.firsts[c] = chunk.entry(chunk.start);
        }
        true
    }

    /// A chunk has lost its last entry.
    fn emptied(&mut self, c: usize) {
        if self.chunks.len() > 1 {
            let chunk = self.chunks.remove(c);
            self.firsts.remove(c);
            // A chunk that was divided is full-sized, and so is its upper half.
            self.spare.push(chunk);
        } else {
            (self.chunks[0].start, self.chunks[0].end) = (0, 0);
        }
    }

    /// Position of an entry: chunk and place. Keys more than 2^63 apart have no consistent order; then the
    /// whole queue is searched.
    fn find(&self, e: &Entry) -> Option<(usize, usize)> {
        let c = self.chunk_of(e);
        let place = self.chunks[c].place_of(e);
        if place < self.chunks[c].end && self.chunks[c].tags[place] == e.tag() {
            return Some((c, place));
        }
        self.chunks.iter().enumerate().find_map(|(c, chunk)| {
            let place = (chunk.start..chunk.end).find(|i| chunk.tags[*i] == e.tag())?;
            Some((c, place))
        })
    }

    #[inline]
    pub fn first(&self) -> Option<Entry> {
        if self.len == 0 {
            return None;
        }
        let chunk = &self.chunks[0];
        Some(chunk.entry(chunk.start))
    }

    pub fn last(&self) -> Option<Entry> {
        if self.len == 0 {
            return None;
        }
        self.chunks.last().map(|c| c.entry(c.end - 1))
    }

    /// The entry after this one (which need not be in the queue any more).
    pub fn after(&self, e: &Entry) -> Option<Entry> {
        if self.len == 0 {
            return None;
        }
        let c = self.chunk_of(e);
        let chunk = &self.chunks[c];
        let mut place = chunk.place_of(e);
        if place < chunk.end && chunk.entry(place) == *e {
            place += 1;
        }
        if place < chunk.end {
            return Some(chunk.entry(place));
        }
        self.chunks.get(c + 1).map(|n| n.entry(n.start))
    }

    /// The entry before this one (which need not be in the queue any more).
    pub fn before(&self, e: &Entry) -> Option<Entry> {
        if self.len == 0 {
            return None;
        }
        let c = self.chunk_of(e);
        let chunk = &self.chunks[c];
        let place = chunk.place_of(e);
        if place > chunk.start {
            return Some(chunk.entry(place - 1));
        }
        self.chunks
            .get(c.checked_sub(1)?)
            .map(|p| p.entry(p.end - 1))
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
