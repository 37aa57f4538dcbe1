// SPDX-License-Identifier: GPL-2.0-only
//! The worst waits of a run, kept with what ran around them.
use super::kernel::Handle;
use crate::machine::task::Waits;
use crate::stats::recent::{Strip, Worst};
use crate::words::TaskId;

impl Handle {
    /// A wait has just ended: is it the longest of its VM, are strips due?
    #[cold]
    pub fn look_back(self, task: TaskId, longest: bool) {
        if longest && self.recent.is_on() {
            self.long_wait(task, false);
        }
        if self.now >= self.recent.due {
            self.cut_strips(false);
        }
    }

    /// A task waited longer than its VM ever did; it runs now (or, `unfinished`, still waits).
    #[cold]
    fn long_wait(mut self, task: TaskId, unfinished: bool) {
        let hot = &self.tasks.hot[task as usize];
        let group = self.stats.group_of(hot.stats);
        if !self.recent.beats(group, self.now - hot.queued_at) {
            return;
        }
        let worst = Worst {
            group,
            task,
            name: self.tasks.name(task),
            cpu: hot.cpu,
            from: hot.queued_at,
            to: self.now,
            unfinished,
            strip: Strip::default(),
        };
        self.recent.keep(worst);
    }

    /// Cut the strips of the worst waits out of what is remembered.
    #[cold]
    fn cut_strips(self, end: bool) {
        let (now, cpus) = (self.now, self.cpus.len() as u32);
        // The names are read from the tasks while the ring is read: two parts of the machine.
        let names = |task: TaskId| {
            let group = self.stats.group_of(self.tasks.hot[task as usize].stats);
            (self.tasks.name(task), group)
        };
        let mut k = self;
        let mut recent = std::mem::take(&mut k.recent);
        recent.cut(now, end, cpus, &names);
        k.recent = recent;
    }

    /// The measured window is over: threads that still wait count, too.
    pub fn end_of_waits(self) {
        for task in self.cpus.len() as u32..self.tasks.len() as u32 {
            if self.tasks.hot[task as usize].waits != Waits::No {
                self.long_wait(task, true);
            }
        }
        self.cut_strips(true);
    }
}
