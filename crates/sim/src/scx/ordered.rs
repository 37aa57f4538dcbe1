// SPDX-License-Identifier: GPL-2.0-only
//! A queue ordered by virtual time: the signed difference of 64-bit keys, ties first come first served.
//!
//! A sorted list cut into chunks of less than `CHUNK` entries, with a directory of the chunks' first
//! entries: insert and remove touch one chunk (a few cache lines) whatever the length, walking is in
//! order both ways, and a position is an entry's own key, so it survives every change of the queue.
//! Keys lie apart from what they belong to. A few entries lie in the queue itself, which is all that most queues of
//! most guests ever hold; the first time there are more, all move into chunks, for good.
//! Nothing is allocated once the queue has had its largest size.

/// A chunk that has grown to this many entries is cut in two.
const CHUNK: usize = 64;
/// Places in a chunk: the front moves on as entries are taken, and returns to the beginning now and then.
const ROOM: usize = 2 * CHUNK;
/// Places the first chunk begins with.
const SMALL: usize = 16;
/// Places in the queue itself: a cache line of keys, another one of tags.
const FEW: usize = 8;

/// As many keys are counted, not searched.
const COUNTED: usize = 16;

/// Entries in order, in `start..end`.
#[derive(Debug)]
#[repr(C)]
struct Chunk<W = Box<[u64]>> {
    start: usize,
    end: usize,
    keys: W,
    /// `seq << 32 | task` of each key.
    tags: W,
}

/// 1 if key `a` comes before key `b`: the sign of their difference.
#[inline(always)]
fn earlier(a: u64, b: u64) -> u64 {
    a.wrapping_sub(b) >> 63
}

impl<W: AsRef<[u64]> + AsMut<[u64]>> Chunk<W> {
    #[inline]
    fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline]
    fn room(&self) -> usize {
        self.keys.as_ref().len()
    }

    /// The entry at this place of the arrays.
    #[inline]
    fn entry(&self, place: usize) -> Entry {
        Entry::new(self.keys.as_ref()[place], self.tags.as_ref()[place])
    }

    /// Entries in order.
    fn entries(&self) -> impl DoubleEndedIterator<Item = Entry> + '_ {
        (self.start..self.end).map(|place| self.entry(place))
    }

    /// The entry this many places after the first one.
    #[inline]
    fn nth(&self, n: usize) -> Option<Entry> {
        let place = self.start + n;
        (place < self.end).then(|| self.entry(place))
    }

    #[inline]
    fn last(&self) -> Option<Entry> {
        (self.start < self.end).then(|| self.entry(self.end - 1))
    }

    /// Place of an entry by its tag, wherever it is.
    #[inline]
    fn search(&self, e: &Entry) -> Option<usize> {
        let tags = self.tags.as_ref();
        (self.start..self.end).find(|place| tags[*place] == e.tag())
    }

    /// Place after all keys that come before `vtime`: they are halved without a jump until they are few, and then
    /// counted, which takes no jump a processor could mispredict either, and compiles to vector instructions.
    #[inline]
    fn after_all_before(&self, vtime: u64) -> usize {
        let mut live = &self.keys.as_ref()[self.start..self.end];
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

    /// The entry after this one, and the one before it, as far as they are here.
    fn after(&self, e: &Entry) -> Option<Entry> {
        let place = self.place_of(e);
        let here = place < self.end && self.entry(place) == *e;
        self.nth(place + usize::from(here) - self.start)
    }

    fn before(&self, e: &Entry) -> Option<Entry> {
        let place = self.place_of(e);
        (place > self.start).then(|| self.entry(place - 1))
    }

    /// Entries move to the front of the arrays.
    fn move_up(&mut self) {
        let live = self.start..self.end;
        (self.start, self.end) = (0, live.len());
        self.keys.as_mut().copy_within(live.clone(), 0);
        self.tags.as_mut().copy_within(live, 0);
    }

    /// Where an entry younger than all others goes: after its equals.
    #[inline]
    fn place_for(&self, e: &Entry) -> usize {
        self.after_all_before(e.vtime.wrapping_add(1))
    }

    #[inline(always)]
    fn remove(&mut self, place: usize) {
        if place == self.start {
            self.start += 1;
        } else {
            self.keys.as_mut().copy_within(place + 1..self.end, place);
            self.tags.as_mut().copy_within(place + 1..self.end, place);
            self.end -= 1;
        }
    }
}

impl Chunk<[u64; FEW]> {
    /// [`Chunk::put`] without a jump: every place takes what was before it, or stays as it is.
    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn put_among_few(&mut self, e: Entry) {
        let place = self.place_for(&e);
        for i in (1..FEW).rev() {
            let from = i - usize::from(i > place);
            self.keys[i] = self.keys[from];
            self.tags[i] = self.tags[from];
        }
        self.keys[place] = e.vtime;
        self.tags[place] = e.tag();
        self.end += 1;
    }
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
        let room = self.room();
        if room < ROOM && self.len() > room / 2 {
            let mut larger = Chunk::with_room(2 * room);
            larger.keys[..live.len()].copy_from_slice(&self.keys[live.clone()]);
            larger.tags[..live.len()].copy_from_slice(&self.tags[live.clone()]);
            (larger.start, larger.end) = (0, live.len());
            *self = larger;
        } else {
            self.move_up();
        }
    }

    /// Puts in an entry younger than all others; there is a place at the end.
    #[inline]
    #[cfg_attr(target_os = "linux", unsafe(link_section = ".text.sim"))]
    fn put(&mut self, e: Entry) {
        let place = self.place_for(&e);
        let live = place..self.end;
        self.keys.copy_within(live.clone(), place + 1);
        self.tags.copy_within(live, place + 1);
        self.keys[place] = e.vtime;
        self.tags[place] = e.tag();
        self.end += 1;
    }

    /// Puts in an entry younger than all others.
    #[inline(always)]
    fn insert(&mut self, e: Entry) {
        if self.end == self.room() {
            self.make_room();
        }
        self.put(e);
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
#[derive(Debug)]
#[repr(C)]
pub struct Ordered {
    /// All entries, once there have been more than a few.
    many: Option<Box<Chunks>>,
    few: Chunk<[u64; FEW]>,
}

impl Default for Ordered {
    fn default() -> Self {
        Ordered::empty()
    }
}

impl Ordered {
    pub const fn empty() -> Ordered {
        Ordered {
            many: None,
            few: Chunk {
                start: 0,
                end: 0,
                keys: [0; FEW],
                tags: [0; FEW],
            },
        }
    }

    pub fn len(&self) -> usize {
        self.many.as_ref().map_or(self.few.len(), |many| many.len)
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Task that comes `n` places after the first one, if it is in the first chunk.
    #[inline]
    pub fn near_front(&self, n: usize) -> Option<u32> {
        let entry = match &self.many {
            None => self.few.nth(n),
            Some(many) => many.chunks[0].nth(n),
        };
        entry.map(|e| e.task)
    }

    /// Tells `to` where the first entries are (address and length in bytes), unless they are in the queue itself.
    #[inline]
    pub fn ask_front(&self, to: impl Fn(*const u64, usize)) {
        if let Some(chunk) = self.many.as_ref().map(|many| &many.chunks[0]) {
            to(chunk.keys.as_ptr().wrapping_add(chunk.start), 64);
            to(chunk.tags.as_ptr().wrapping_add(chunk.start), 64);
        }
    }

    /// Puts in an entry whose sequence number follows all others'.
    #[inline(always)]
    pub fn insert(&mut self, e: Entry) {
        if let Some(many) = &mut self.many {
            return many.insert(e);
        }
        if self.few.end == FEW {
            if self.few.len() == FEW {
                return self.grow(e);
            }
            self.few.move_up();
        }
        self.few.put_among_few(e);
    }

    /// The first entry that has no place here.
    #[cold]
    fn grow(&mut self, e: Entry) {
        let mut many = Box::new(Chunks::new());
        self.few.entries().for_each(|e| many.insert(e));
        many.insert(e);
        self.many = Some(many);
    }

    /// Take an entry out; `false` if it is not here.
    #[inline(always)]
    pub fn remove(&mut self, e: &Entry) -> bool {
        if let Some(many) = &mut self.many {
            return many.remove(e);
        }
        let Some(place) = self.few.search(e) else {
            return false;
        };
        self.few.remove(place);
        if self.few.len() == 0 {
            (self.few.start, self.few.end) = (0, 0);
        }
        true
    }

    #[inline]
    pub fn first(&self) -> Option<Entry> {
        match &self.many {
            None => self.few.nth(0),
            Some(many) => many.chunks[0].nth(0),
        }
    }

    pub fn last(&self) -> Option<Entry> {
        match &self.many {
            None => self.few.last(),
            Some(many) => many.chunks.last()?.last(),
        }
    }

    /// The entry after this one (which need not be in the queue any more).
    pub fn after(&self, e: &Entry) -> Option<Entry> {
        match &self.many {
            None => self.few.after(e),
            Some(many) => many.after(e),
        }
    }

    /// The entry before this one (which need not be in the queue any more).
    pub fn before(&self, e: &Entry) -> Option<Entry> {
        match &self.many {
            None => self.few.before(e),
            Some(many) => many.before(e),
        }
    }
}

/// Many entries: chunks and their directory.
#[derive(Debug)]
struct Chunks {
    /// In order; there is at least one. Only the first one may be empty, and only if it is alone.
    chunks: Vec<Chunk>,
    /// First entry of each chunk; of the first chunk nobody asks, and it is not kept up to date.
    firsts: Vec<Entry>,
    spare: Vec<Chunk>,
    len: usize,
}

impl Chunks {
    fn new() -> Chunks {
        Chunks {
            chunks: vec![Chunk::with_room(SMALL)],
            firsts: vec![Entry::new(0, 0)],
            spare: Vec::new(),
            len: 0,
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

    #[inline(always)]
    fn insert(&mut self, e: Entry) {
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

    #[inline(always)]
    fn remove(&mut self, e: &Entry) -> bool {
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
        self.chunks
            .iter()
            .enumerate()
            .find_map(|(c, chunk)| Some((c, chunk.search(e)?)))
    }

    fn after(&self, e: &Entry) -> Option<Entry> {
        let c = self.chunk_of(e);
        let here = self.chunks[c].after(e);
        here.or_else(|| self.chunks.get(c + 1)?.nth(0))
    }

    fn before(&self, e: &Entry) -> Option<Entry> {
        let c = self.chunk_of(e);
        let here = self.chunks[c].before(e);
        here.or_else(|| self.chunks.get(c.checked_sub(1)?)?.last())
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
