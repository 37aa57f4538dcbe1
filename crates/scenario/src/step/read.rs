// SPDX-License-Identifier: GPL-2.0-only
//! The steps of a task's loop, as words.
use crate::diag::Result;
use crate::model::{Nanos, Step};
use crate::phrase::{Phrase, never_positive, one_of, word};
use crate::quantity;
use crate::section::cpu_list;

/// Steps of a task's loop.
pub const STEPS: [(&str, &str, &str); 22] = [
    ("compute", "compute exp(300us)", "burn CPU time"),
    ("busy", "busy", "burn CPU time without end"),
    ("sleep", "sleep 5ms", "wait that long"),
    (
        "timer",
        "timer every 5ms",
        "wait for the next point of a grid, with a random phase per thread",
    ),
    (
        "receive",
        "receive NAME",
        "wait for a request of client NAME, or for a `send NAME`",
    ),
    ("reply", "reply", "answer the request in hand"),
    (
        "send",
        "send NAME 1KiB",
        "put a message into the queue of task NAME, or into queue NAME",
    ),
    ("yield", "yield", "let others run"),
    ("nice", "nice 5", "change one's nice value"),
    (
        "affinity",
        "affinity 0-3,8",
        "change one's CPUs; `affinity all` for all",
    ),
    ("fork", "fork NAME", "start one more thread of task NAME"),
    ("exit", "exit", "end"),
    (
        "lock",
        "lock NAME",
        "take the VM's lock NAME, asleep while another thread has it",
    ),
    (
        "spin",
        "spin NAME",
        "take the VM's lock NAME, burning CPU time while another thread has it",
    ),
    ("unlock", "unlock NAME", "give it back"),
    (
        "barrier",
        "barrier NAME",
        "wait until all threads of the VM that have this step are here",
    ),
    (
        "wait",
        "wait NAME",
        "sleep until the next `signal NAME` or `broadcast NAME` in the VM",
    ),
    (
        "signal",
        "signal NAME",
        "wake the thread that waits longest; without one, nothing",
    ),
    ("broadcast", "broadcast NAME", "wake all that wait"),
    (
        "chunks",
        "chunks NAME 64 exp(1ms)",
        "take chunks of work from a pool that all threads share, and from each other",
    ),
    ("read", "read NAME 4KiB", "from the disk NAME"),
    ("write", "write NAME 4KiB", "to the disk NAME"),
];

/// The most chunks of a pool.
const MOST_CHUNKS: u32 = 1_000_000;

impl Phrase<'_> {
    /// The rest of `chunks NAME COUNT D`.
    fn chunks(&self, rest: &str) -> Result<Step> {
        let wrong = || {
            self.error(
                self.whole,
                "`chunks` takes a name, how many chunks, and the work in each",
            )
            .label("chunks rows 64 exp(1ms)")
        };
        let (name, rest) = rest.split_once(char::is_whitespace).ok_or_else(wrong)?;
        let (count, each) = rest
            .trim()
            .split_once(char::is_whitespace)
            .ok_or_else(wrong)?;
        let chunks = count.parse::<u32>().map_err(|_| wrong())?;
        if !crate::tree::is_name(name) {
            return Err(wrong());
        }
        if !(1..=MOST_CHUNKS).contains(&chunks) {
            return Err(self.error(count, format!("there should be 1 to {MOST_CHUNKS} chunks")));
        }
        let each = self.dist(each)?;
        if never_positive(&each) {
            return Err(self.error(rest, "chunks without any work"));
        }
        Ok(Step::Chunks {
            name: name.to_string(),
            chunks,
            each,
        })
    }

    /// One step of a task's loop.
    ///
    /// # Errors
    /// Not one of [`STEPS`], wrong or missing parameters, or a step that this release does not have.
    pub fn step(&self, nr_cpus: u32) -> Result<Step> {
        let text = self.whole.trim();
        let (name, rest) = match text.split_once(char::is_whitespace) {
            Some((name, rest)) => (name, rest.trim()),
            None => (text, ""),
        };
        let bare = |step: Step| {
            if rest.is_empty() {
                return Ok(step);
            }
            Err(self.error(
                rest,
                format!("`{name}` takes nothing, but here follows `{rest}`"),
            ))
        };
        let queue = || {
            if crate::tree::is_name(rest) {
                return Ok(rest.to_string());
            }
            let part = if rest.is_empty() { text } else { rest };
            Err(self
                .error(part, format!("`{name}` takes one name"))
                .label(format!("write for instance `{name} users`")))
        };
        match name {
            "compute" => Ok(Step::Compute(self.dist(rest)?)),
            "sleep" => Ok(Step::Sleep(self.dist(rest)?)),
            "busy" => bare(Step::Busy),
            "timer" => match word(rest, "every") {
                Some(period) => Ok(Step::Timer {
                    period_ns: self.positive(period)? as Nanos,
                }),
                None => Err(self
                    .error(text, "`timer` takes `every` and a period")
                    .label("timer every 5ms")),
            },
            "receive" => Ok(Step::Receive(queue()?)),
            "reply" => bare(Step::Reply),
            "send" => match rest.split_once(char::is_whitespace) {
                Some((to, size)) if crate::tree::is_name(to) => Ok(Step::Send {
                    to: to.to_string(),
                    bytes: self.quantity(size.trim(), quantity::bytes)?,
                }),
                _ => Err(self
                    .error(text, "`send` takes a name and a size")
                    .label("send backend 1KiB")),
            },
            "yield" => bare(Step::Yield),
            "nice" => match rest.parse::<i32>() {
                Ok(nice) if (-20..=19).contains(&nice) => Ok(Step::SetNice(nice)),
                _ => Err(self.error(text, "`nice` takes a number from -20 to 19")),
            },
            "affinity" => {
                let list = rest
                    .strip_prefix('[')
                    .and_then(|r| r.strip_suffix(']'))
                    .unwrap_or(rest);
                Ok(Step::SetAffinity(
                    self.quantity(list, |s| cpu_list(s, nr_cpus))?
                        .unwrap_or_default(),
                ))
            }
            "fork" => Ok(Step::Fork(queue()?)),
            "lock" => Ok(Step::Lock { name: queue()? }),
            "spin" => Ok(Step::Spin { name: queue()? }),
            "unlock" => Ok(Step::Unlock { name: queue()? }),
            "barrier" => Ok(Step::Barrier { name: queue()? }),
            "wait" => Ok(Step::Wait { name: queue()? }),
            "signal" => Ok(Step::Signal { name: queue()? }),
            "broadcast" => Ok(Step::Broadcast { name: queue()? }),
            "chunks" => self.chunks(rest),
            "read" | "write" => match rest.split_once(char::is_whitespace) {
                Some((disk, size)) if crate::tree::is_name(disk) => {
                    let bytes = self.quantity(size.trim(), quantity::bytes)?;
                    let disk = disk.to_string();
                    Ok(if name == "read" {
                        Step::Read { name: disk, bytes }
                    } else {
                        Step::Write { name: disk, bytes }
                    })
                }
                _ => Err(self
                    .error(text, format!("`{name}` takes a disk and a size"))
                    .label(format!("{name} disk 4KiB"))),
            },
            "exit" => bare(Step::Exit),
            _ => Err(self
                .error(
                    if name.is_empty() { self.whole } else { name },
                    format!("there is no step `{name}`"),
                )
                .nearest(name, STEPS.iter().map(|s| s.0))
                .note(one_of(&STEPS))),
        }
    }
}
