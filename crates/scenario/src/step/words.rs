// SPDX-License-Identifier: GPL-2.0-only
//! Kinds of steps, as files write them.

/// Makes the kinds and the list of them all, in the order of the help.
macro_rules! kinds {
    ($($kind:ident $word:literal $like:literal $help:literal;)*) => {
        /// What a step is, without what belongs to it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $(#[doc = $help] $kind,)*
        }

        impl Kind {
            pub const ALL: [Kind; [$($word),*].len()] = [$(Kind::$kind),*];

            /// The word that begins such a step.
            pub fn word(self) -> &'static str {
                match self {
                    $(Kind::$kind => $word,)*
                }
            }
        }

        /// Word, example and help of each kind.
        pub const STEPS: [(&str, &str, &str); Kind::ALL.len()] = [$(($word, $like, $help)),*];
    };
}

kinds! {
    Compute "compute" "compute exp(300us)" "burn CPU time";
    Busy "busy" "busy" "burn CPU time without end";
    Sleep "sleep" "sleep 5ms" "wait that long";
    Timer "timer" "timer every 5ms" "wait for the next point of a grid, its phase random, or `... from start`";
    Receive "receive" "receive NAME" "wait for a request of client NAME, or for a `send NAME`";
    Reply "reply" "reply" "answer the request in hand";
    Send "send" "send NAME 1KiB" "put a message into the queue of task NAME, or into queue NAME";
    Yield "yield" "yield" "let others run";
    SetNice "nice" "nice 5" "change one's nice value";
    SetAffinity "affinity" "affinity 0-3,8" "change one's CPUs; `affinity all` for all";
    Stall "stall" "stall 20% ipc 0.8" "from here on, as `task.stall`; behind it may stand `ipc` and `working_set 8MiB`";
    Fork "fork" "fork NAME" "start one more thread of task NAME";
    Exit "exit" "exit" "end";
    Lock "lock" "lock NAME" "take the VM's lock NAME, asleep while another thread has it";
    Spin "spin" "spin NAME" "take the VM's lock NAME, burning CPU time while another thread has it";
    Unlock "unlock" "unlock NAME" "give it back";
    Barrier "barrier" "barrier NAME" "wait until all threads of the VM that have this step are here";
    Wait "wait" "wait NAME" "sleep until the next `signal NAME` or `broadcast NAME` in the VM";
    Signal "signal" "signal NAME" "wake the thread that waits longest; without one, nothing";
    Broadcast "broadcast" "broadcast NAME" "wake all that wait";
    Chunks "chunks" "chunks NAME 64 exp(1ms)" "take chunks of work from a pool that all threads share, and from each \
     other";
    Read "read" "read NAME 4KiB" "from the disk NAME";
    Write "write" "write NAME 4KiB" "to the disk NAME";
}

impl Kind {
    /// The kind of which this is the word.
    pub fn of(word: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|k| k.word() == word)
    }
}
