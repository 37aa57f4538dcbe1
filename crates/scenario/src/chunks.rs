// SPDX-License-Identifier: GPL-2.0-only
//! Work stealing, the same in simulator and load generator: who of a pool's threads does which chunk.
//!
//! A round's chunks are dealt evenly among the threads when the first of them comes; a thread takes its own, and
//! when it has none left one of the thread that has most (ties: the oldest thread). Sizes are drawn in the order
//! of taking, from a stream of the pool: the work is the same whoever does it.
use crate::dist::Rng;
use crate::model::{Dist, Nanos};

/// What a thread gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// So long a chunk, its own or stolen.
    Chunk { ns: Nanos, stolen: bool },
    /// Nothing is left in this round.
    Done,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    thread: u32,
    /// Rounds it has come to.
    round: u64,
    left: u32,
}

/// Threads that share work.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Rounds dealt so far.
    round: u64,
    /// Chunks nobody has taken yet.
    left: u32,
    /// Oldest first.
    members: Vec<Member>,
    rng: Rng,
    drawn: u64,
}

impl Pool {
    /// `rng`: see [`crate::dist::Stream::Pool`].
    pub fn new(rng: Rng) -> Pool {
        Pool {
            round: 0,
            left: 0,
            members: Vec::new(),
            rng,
            drawn: 0,
        }
    }

    /// One more thread, from the next round on.
    pub fn join(&mut self, thread: u32) {
        self.members.push(Member {
            thread,
            round: self.round,
            left: 0,
        });
    }

    /// The thread ends. What it had not begun goes to the oldest of the others.
    pub fn leave(&mut self, thread: u32) {
        let Some(at) = self.members.iter().position(|m| m.thread == thread) else {
            return;
        };
        let gone = self.members.remove(at);
        match self.members.first_mut() {
            Some(heir) => heir.left += gone.left,
            None => self.left = 0,
        }
    }

    /// All threads are gone.
    pub fn clear(&mut self) {
        self.members.clear();
        self.left = 0;
    }

    /// The thread's next chunk. `comes`: it has just reached the step, instead of having done a chunk; the first
    /// to come to a round deals `chunks` of them.
    pub fn take(&mut self, thread: u32, comes: bool, chunks: u32, each: &Dist) -> Share {
        let Some(me) = self.members.iter().position(|m| m.thread == thread) else {
            return Share::Done;
        };
        if comes {
            self.members[me].round += 1;
            if self.members[me].round > self.round {
                self.round = self.members[me].round;
                self.left = chunks;
                let n = self.members.len() as u32;
                for (i, m) in (0..).zip(&mut self.members) {
                    m.left = chunks / n + u32::from(i < chunks % n);
                }
            }
        }
        if self.left == 0 {
            return Share::Done;
        }
        let mut from = me;
        if self.members[me].left == 0 {
            for (i, m) in self.members.iter().enumerate() {
                if m.left > self.members[from].left {
                    from = i;
                }
            }
        }
        self.members[from].left -= 1;
        self.left -= 1;
        let ns = each.sample(&mut self.rng, self.drawn);
        self.drawn += 1;
        Share::Chunk {
            ns,
            stolen: from != me,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dist::{Rng, Stream};
    use proptest::prelude::*;

    fn pool(threads: u32) -> Pool {
        let mut pool = Pool::new(Rng::new(1, Stream::Pool { home: 0, pool: 0 }));
        (0..threads).for_each(|t| pool.join(t));
        pool
    }

    #[test]
    fn who_comes_late_finds_nothing_and_does_not_begin_another_round() {
        let mut p = pool(2);
        let each = Dist::Const(5);
        let own = Share::Chunk {
            ns: 5,
            stolen: false,
        };
        let stolen = Share::Chunk {
            ns: 5,
            stolen: true,
        };
        assert_eq!(p.take(0, true, 3, &each), own);
        assert_eq!(p.take(0, false, 3, &each), own);
        assert_eq!(p.take(0, false, 3, &each), stolen);
        assert_eq!(p.take(0, false, 3, &each), Share::Done);
        assert_eq!(p.take(1, true, 3, &each), Share::Done);
        assert_eq!(p.take(1, true, 3, &each), own);
    }

    #[test]
    fn a_dead_threads_chunks_are_done_by_others() {
        let mut p = pool(3);
        let each = Dist::Const(5);
        assert_eq!(
            p.take(1, true, 6, &each),
            Share::Chunk {
                ns: 5,
                stolen: false
            }
        );
        p.leave(0);
        let mut done = 1;
        while p.take(2, done == 1, 6, &each) != Share::Done {
            done += 1;
        }
        assert_eq!(done, 6);
        p.leave(1);
        p.leave(2);
        assert_eq!(p.take(2, true, 6, &each), Share::Done);
    }

    proptest! {
        /// Whatever the order in which threads ask, a round hands out every chunk once, and steals only from
        /// the one who has most.
        #[test]
        fn a_round_hands_out_every_chunk_once(
            threads in 1u32..6, chunks in 0u32..40, order in proptest::collection::vec(0u32..6, 0..400),
        ) {
            let mut p = pool(threads);
            let each = Dist::Const(7);
            // Rounds end together, as behind a barrier.
            let (mut taken, mut comes, mut done) = (0, vec![true; 6], vec![false; 6]);
            let mut left: Vec<u32> = Vec::new();
            for t in order {
                let me = t as usize;
                if t >= threads || done[me] {
                    continue;
                }
                if left.is_empty() {
                    left = (0..threads).map(|i| chunks / threads + u32::from(i < chunks % threads)).collect();
                }
                match p.take(t, comes[me], chunks, &each) {
                    Share::Chunk { ns, stolen } => {
                        prop_assert_eq!((ns, stolen), (7, left[me] == 0));
                        let most = left.iter().copied().max().unwrap_or(0);
                        let from = if stolen { left.iter().position(|l| *l == most).unwrap_or(0) } else { me };
                        left[from] -= 1;
                        taken += 1;
                        comes[me] = false;
                    }
                    Share::Done => {
                        prop_assert_eq!(taken, chunks);
                        (comes[me], done[me]) = (true, true);
                    }
                }
                if (0..threads as usize).all(|t| done[t]) {
                    (taken, done) = (0, vec![false; 6]);
                    left.clear();
                }
            }
            prop_assert!(taken <= chunks);
        }
    }
}
