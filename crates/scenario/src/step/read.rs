// SPDX-License-Identifier: GPL-2.0-only
//! From words to a step.
use super::{Grid, Kind, STEPS, Stall, Step};
use crate::diag::Result;
use crate::model::Nanos;
use crate::phrase::{Phrase, never_positive, one_of, word};
use crate::quantity;
use crate::section::cpu_list;

/// Instructions per cycle.
pub(crate) const IPC: std::ops::RangeInclusive<f64> = 0.01..=16.0;

/// The most chunks of a pool.
const MOST_CHUNKS: u32 = 1_000_000;

impl Phrase<'_> {
    /// What follows `timer every D from`.
    fn grid(&self, from: &str) -> Result<Grid> {
        let words: Vec<&str> = from.split_whitespace().collect();
        match words[..] {
            ["start"] => Ok(Grid::Start),
            ["start", "catching", "up"] => Ok(Grid::StartCatchUp),
            _ => Err(self
                .error(
                    from,
                    "a timer's points count `from start`, or with a random phase",
                )
                .label("timer every 5ms from start, or ... from start catching up")),
        }
    }

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

    /// The rest of `stall PART`, behind which `ipc NUMBER` and `working_set SIZE` may stand.
    fn stall(&self, rest: &str) -> Result<Step> {
        let mut words = rest.split_whitespace();
        let Some(part) = words.next() else {
            let why = "`stall` takes the part of its time for which the task waits for memory";
            return Err(self.error(self.whole.trim(), why).label("stall 20%"));
        };
        let ppm = self.quantity(part, quantity::percent_ppm)?;
        if ppm > 1_000_000 {
            return Err(self
                .error(part, "`stall` takes 0% to 100%")
                .label("of its time"));
        }
        let mut stall = Stall {
            ppm,
            ipc_milli: None,
            working_set: None,
        };
        while let Some(key) = words.next() {
            let value = words.next();
            let number = value.and_then(|v| v.parse::<f64>().ok());
            match (key, value, number.filter(|n| IPC.contains(n))) {
                ("ipc", _, Some(ipc)) if stall.ipc_milli.is_none() => {
                    stall.ipc_milli = Some((ipc * 1000.0).round() as u32);
                }
                ("working_set", Some(size), _) if stall.working_set.is_none() => {
                    stall.working_set = Some(self.quantity(size, quantity::bytes)?);
                }
                _ => {
                    let why = "behind `stall` may stand `ipc` and a number from 0.01 to 16, and `working_set` and a \
                               size";
                    return Err(self
                        .error(key, why)
                        .label("stall 20% ipc 0.8 working_set 8MiB"));
                }
            }
        }
        Ok(Step::Stall(stall))
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
        let Some(kind) = Kind::of(name) else {
            return Err(self
                .error(
                    if name.is_empty() { self.whole } else { name },
                    format!("there is no step `{name}`"),
                )
                .nearest(name, STEPS.iter().map(|s| s.0))
                .note(one_of(&STEPS)));
        };
        match kind {
            Kind::Compute => Ok(Step::Compute(self.dist(rest)?)),
            Kind::Sleep => Ok(Step::Sleep(self.dist(rest)?)),
            Kind::Busy => bare(Step::Busy),
            Kind::Timer => match word(rest, "every") {
                Some(rest) => {
                    let (period, grid) = match rest.split_once(" from ") {
                        Some((period, from)) => (period, self.grid(from)?),
                        None => (rest, Grid::Random),
                    };
                    Ok(Step::Timer {
                        period_ns: self.positive(period)? as Nanos,
                        grid,
                    })
                }
                None => Err(self
                    .error(text, "`timer` takes `every` and a period")
                    .label("timer every 5ms")),
            },
            Kind::Receive => Ok(Step::Receive(queue()?)),
            Kind::Reply => bare(Step::Reply),
            Kind::Send => match rest.split_once(char::is_whitespace) {
                Some((to, size)) if crate::tree::is_name(to) => Ok(Step::Send {
                    to: to.to_string(),
                    bytes: self.quantity(size.trim(), quantity::bytes)?,
                }),
                _ => Err(self
                    .error(text, "`send` takes a name and a size")
                    .label("send backend 1KiB")),
            },
            Kind::Yield => bare(Step::Yield),
            Kind::SetNice => match rest.parse::<i32>() {
                Ok(nice) if (-20..=19).contains(&nice) => Ok(Step::SetNice(nice)),
                _ => Err(self.error(text, "`nice` takes a number from -20 to 19")),
            },
            Kind::SetAffinity => {
                let list = rest
                    .strip_prefix('[')
                    .and_then(|r| r.strip_suffix(']'))
                    .unwrap_or(rest);
                Ok(Step::SetAffinity(
                    self.quantity(list, |s| cpu_list(s, nr_cpus))?
                        .unwrap_or_default(),
                ))
            }
            Kind::Stall => self.stall(rest),
            Kind::Fork => Ok(Step::Fork(queue()?)),
            Kind::Lock => Ok(Step::Lock { name: queue()? }),
            Kind::Spin => Ok(Step::Spin { name: queue()? }),
            Kind::Unlock => Ok(Step::Unlock { name: queue()? }),
            Kind::Barrier => Ok(Step::Barrier { name: queue()? }),
            Kind::Wait => Ok(Step::Wait { name: queue()? }),
            Kind::Signal => Ok(Step::Signal { name: queue()? }),
            Kind::Broadcast => Ok(Step::Broadcast { name: queue()? }),
            Kind::Chunks => self.chunks(rest),
            Kind::Read | Kind::Write => match rest.split_once(char::is_whitespace) {
                Some((disk, size)) if crate::tree::is_name(disk) => {
                    let bytes = self.quantity(size.trim(), quantity::bytes)?;
                    if bytes == 0 {
                        let text =
                            format!("a record of 0 bytes: `{name}` would do nothing for ever");
                        return Err(self.error(size, text).label("4KiB, say"));
                    }
                    let disk = disk.to_string();
                    Ok(if kind == Kind::Read {
                        Step::Read { name: disk, bytes }
                    } else {
                        Step::Write { name: disk, bytes }
                    })
                }
                _ => Err(self
                    .error(text, format!("`{name}` takes a disk and a size"))
                    .label(format!("{name} disk 4KiB"))),
            },
            Kind::Exit => bare(Step::Exit),
        }
    }
}
