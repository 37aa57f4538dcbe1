// SPDX-License-Identifier: GPL-2.0-only
//! One host thread of the scenario: sets itself up, waits for the start, does its steps.
use crate::births::{ahead, numbers};
use crate::burn::Burner;
use crate::mailbox::{Mailbox, Message, Taken};
use crate::procfs;
use crate::shared::{Shared, Slot};
use crate::sync::{End, Home, Parker, Waited};
use crate::sys::{self, Woken};
use crate::{LoadError, metrics::Latencies};
use berth_identity::JobRecord;
use berth_scenario::chunks::Share;
use berth_scenario::dist::{Rng, Stream};
use berth_scenario::model::{Grid, Nanos, Step, Task};
use berth_scenario::placement::{self, HostThread, Work};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What a step leads to.
enum Next {
    Step,
    /// The thread ends: `exit`, its VM stops, or the run is over.
    End,
}

pub struct Worker {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
    me: HostThread,
    rng: Rng,
    phase_rng: Rng,
    /// Phase of each timer step met so far: (period, phase).
    phases: Vec<(Nanos, Nanos)>,
    /// Where timers that count from the thread's start do so, and the last point of each.
    begun_ns: Nanos,
    from_start: Vec<(Nanos, Grid, Nanos)>,
    burner: Burner,
    /// Times the loop began: the `nth` of value lists.
    round: u64,
    in_hand: Option<Taken>,
    /// It is there for one request.
    of_request: bool,
    parker: Arc<Parker>,
    end_ns: Nanos,
    latencies: Latencies,
}

/// Joins cgroup and scheduler, takes affinity and nice.
pub fn set_up(shared: &Shared, me: &HostThread) -> Result<(), LoadError> {
    let failed = |what: &'static str| {
        let thread = me.name.clone();
        move |source: io::Error| LoadError::Thread {
            thread,
            what,
            source,
        }
    };
    sys::exact_timers();
    if let (Some(groups), false) = (&shared.groups, me.cgroup.is_empty()) {
        groups.join(&me.cgroup)?;
    }
    if !me.affinity.is_empty() {
        sys::set_affinity(&me.affinity).map_err(failed("cannot have its CPU affinity"))?;
    }
    if me.nice != 0 {
        sys::set_nice(me.nice).map_err(failed("cannot have its nice value"))?;
    }
    let vm = me.vm.as_ref().map(|vm| &shared.scenario.vms[vm.group]);
    if let Some(ns) = vm.and_then(|vm| vm.slice_ns) {
        sys::set_slice(ns, me.nice).map_err(failed("cannot have its slice"))?;
    }
    if shared.sched_ext {
        sys::join_sched_ext().map_err(failed("cannot join the sched_ext scheduler"))?;
    }
    Ok(())
}

impl Worker {
    pub fn new(shared: Arc<Shared>, slot: Arc<Slot>, me: HostThread) -> Worker {
        Worker {
            rng: Rng::new(shared.seed, Stream::Thread(slot.ordinal)),
            phase_rng: Rng::new(shared.seed, Stream::Phase(slot.ordinal)),
            burner: Burner::new(shared.speed),
            shared,
            slot,
            me,
            phases: Vec::new(),
            begun_ns: 0,
            from_start: Vec::new(),
            round: 0,
            in_hand: None,
            of_request: false,
            parker: Arc::default(),
            end_ns: Nanos::MAX,
            latencies: Latencies::default(),
        }
    }

    /// When the VM stops; call when the start time is known.
    fn set_end(&mut self) {
        let start = self.shared.start_ns();
        let stop = self.me.stop_ns;
        self.end_ns = stop.map_or(Nanos::MAX, |ns| start.saturating_add(ns));
    }

    /// Does what one request asks for, with these random numbers; `number`: how many came before it.
    pub fn answer(
        mut self,
        rng: Rng,
        number: u32,
        message: Message,
    ) -> Result<Latencies, LoadError> {
        self.set_end();
        self.begun_ns = sys::now_ns();
        (self.rng, self.of_request) = (rng, true);
        self.round = u64::from(number);
        let now = sys::now_ns();
        if self.shared.measures(now) {
            self.latencies.begin(now.saturating_sub(message.arrival_ns));
        }
        self.in_hand = Some(Taken {
            message,
            queue: 0,
            slept: false,
        });
        let shared = Arc::clone(&self.shared);
        if let Some(task) = shared.scenario.tasks.get(&self.me.name) {
            self.steps(&task.steps[1..])
                .map_err(|source| LoadError::Thread {
                    thread: self.me.name.clone(),
                    what: "stopped working",
                    source,
                })?;
        }
        Ok(self.latencies)
    }

    /// Tells the policy how long the next job of this thread will be, if the scenario says so.
    fn tell(&self, task: &Task, from: usize) {
        let (Some(estimate), true) = (task.estimate, self.shared.tells()) else {
            return;
        };
        let home = self.me.vm.as_ref().map(|vm| vm.ordinal);
        let (number, home) = numbers(&self.shared.scenario, home, &task.name);
        let stream = Stream::Estimate {
            task: number,
            home,
            number: self.shared.next_told(number, home),
        };
        let size = ahead(task, from, &self.rng, self.round);
        let job = JobRecord {
            size_ns: Rng::new(self.shared.seed, stream).estimate(estimate, size),
            each: from > 0,
        };
        self.shared.tell_job(sys::gettid(), &job);
    }

    /// Does the work until the run or the VM ends; call when the start time is known.
    pub fn run(mut self) -> Result<Latencies, LoadError> {
        self.set_end();
        let start = self.shared.start_ns();
        let begin = start.saturating_add(self.me.start_ns);
        let done = self.sleep_until(begin, false).and_then(|next| match next {
            Next::End => Ok(()),
            Next::Step => self.work(),
        });
        // The counters vanish with the thread.
        *self
            .slot
            .last_counters
            .lock()
            .unwrap_or_else(|e| e.into_inner()) = procfs::thread(sys::gettid());
        done.map_err(|source| LoadError::Thread {
            thread: self.me.name.clone(),
            what: "stopped working",
            source,
        })?;
        Ok(self.latencies)
    }

    fn work(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        self.begun_ns = sys::now_ns();
        match self.me.work.clone() {
            Work::Task(name) => {
                let task = &shared.scenario.tasks[&name];
                self.tell(task, 0);
                for (i, step) in task.first.iter().enumerate() {
                    let next = match step {
                        Step::Sleep(d) if i == 0 => {
                            let ns = d.sample(&mut self.rng, self.round);
                            self.begun_ns = self.begun_ns.saturating_add(ns);
                            self.sleep_until(self.begun_ns, true)?
                        }
                        step => self.step(step)?,
                    };
                    if let Next::End = next {
                        return Ok(());
                    }
                }
                let steps = &task.steps;
                while let Next::Step = self.steps(steps)? {}
            }
            Work::Pools(names) => {
                let home = self.me.vm.as_ref().map(|vm| vm.ordinal);
                let mailbox = &shared.mailboxes[&home];
                let queue = |name: &String| {
                    let queue = placement::pool_queue(&shared.scenario.tasks[name])?;
                    mailbox.position(queue)
                };
                let serves: Vec<usize> = names.iter().filter_map(queue).collect();
                let tasks = &shared.scenario.tasks;
                loop {
                    // Before it sleeps: then the policy knows when it wakes. Of several queues, once it has the
                    // request.
                    if let [only] = &names[..] {
                        self.tell(&tasks[only], 1);
                    }
                    let Some(task) = self.receive(mailbox, &serves)? else {
                        break;
                    };
                    let task = &tasks[&names[task]];
                    if names.len() > 1 {
                        self.tell(task, 1);
                    }
                    if let Next::End = self.steps(&task.steps[1..])? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits for the next message; gives the position in `serves` of the queue it came from.
    fn receive(&mut self, mailbox: &Mailbox, serves: &[usize]) -> io::Result<Option<usize>> {
        let deadline = Some(self.end_ns).filter(|ns| *ns != Nanos::MAX);
        let taken = mailbox.take(serves, self.shared.stop(), deadline)?;
        self.in_hand = taken;
        let Some(taken) = taken else { return Ok(None) };
        if taken.slept {
            self.woken_at(taken.message.sent_ns);
        }
        Ok(serves.iter().position(|q| *q == taken.queue))
    }

    fn steps(&mut self, steps: &[Step]) -> io::Result<Next> {
        for step in steps {
            if let Next::End = self.step(step)? {
                return Ok(Next::End);
            }
        }
        self.round += 1;
        // A loop without any wait must notice the end too.
        Ok(if self.is_over() {
            Next::End
        } else {
            Next::Step
        })
    }

    fn step(&mut self, step: &Step) -> io::Result<Next> {
        match step {
            Step::Compute(d) => {
                let ns = d.sample(&mut self.rng, self.round);
                return Ok(self.burn(ns));
            }
            Step::Busy => return Ok(self.burn(Nanos::MAX)),
            Step::Sleep(d) => {
                let ns = d.sample(&mut self.rng, self.round);
                return self.sleep_until(sys::now_ns().saturating_add(ns), true);
            }
            Step::Timer { period_ns, grid } => {
                let due = match grid {
                    Grid::Random => Some(self.grid_point(*period_ns)),
                    Grid::Start | Grid::StartCatchUp => self.point_from_start(*period_ns, *grid),
                };
                if let Some(due) = due {
                    return self.sleep_until(due, true);
                }
            }
            // Only the first step of a pool can be `receive` (placement refuses others), and that one
            // was done by the caller.
            Step::Receive(_) => (),
            Step::Reply => self.reply(),
            Step::Send { to, .. } => self.send(to),
            Step::Yield => sys::yield_now(),
            Step::SetNice(nice) => {
                let vm = self
                    .me
                    .vm
                    .as_ref()
                    .map_or(0, |vm| self.shared.scenario.vms[vm.group].nice);
                sys::set_nice((nice + vm).clamp(-20, 19))?;
            }
            Step::SetAffinity(cpus) => sys::set_affinity(cpus)?,
            // Its tasks compute.
            Step::Stall(_) => (),
            Step::Fork(task) => crate::fork(&self.shared, &self.me, task)?,
            Step::Exit => {
                self.home()
                    .leave(&self.shared.scenario, &self.me, self.slot.ordinal);
                return Ok(Next::End);
            }
            Step::Lock { .. }
            | Step::Spin { .. }
            | Step::Unlock { .. }
            | Step::Barrier { .. }
            | Step::Wait { .. }
            | Step::Signal { .. }
            | Step::Broadcast { .. }
            | Step::Chunks { .. } => return self.shared_step(step),
            Step::Read { .. } | Step::Write { .. } => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!("the load generator has no step `{}`", step.word()),
                ));
            }
        }
        Ok(if self.is_over() {
            Next::End
        } else {
            Next::Step
        })
    }

    fn home(&self) -> &Home {
        self.shared.home(&self.me)
    }

    /// A step that involves other threads of the home.
    fn shared_step(&mut self, step: &Step) -> io::Result<Next> {
        if let Step::Chunks { name, chunks, each } = step {
            let mut comes = true;
            loop {
                let ordinal = self.slot.ordinal;
                match self.home().chunk(name, ordinal, comes, *chunks, each) {
                    Share::Done => break,
                    Share::Chunk { ns, .. } => {
                        if let Next::End = self.burn(ns) {
                            return Ok(Next::End);
                        }
                    }
                }
                comes = false;
            }
            return Ok(self.go_on());
        }
        let (me, home) = (&self.parker, self.home());
        let end = End {
            stop: self.shared.stop(),
            at_ns: Some(self.end_ns).filter(|ns| *ns != Nanos::MAX),
        };
        let waited = match step {
            Step::Lock { name } => home.lock(name, me, &end)?,
            Step::Spin { name } => home.spin(name, &end),
            Step::Barrier { name } => home.barrier(name, me, &end)?,
            Step::Wait { name } => home.wait(name, me, &end)?,
            Step::Unlock { name } => {
                home.unlock(name);
                Waited::No
            }
            Step::Signal { name } | Step::Broadcast { name } => {
                home.signal(name, matches!(step, Step::Broadcast { .. }));
                Waited::No
            }
            _ => Waited::No,
        };
        match waited {
            Waited::Over => return Ok(Next::End),
            Waited::Woken(at) => self.woken_at(at),
            Waited::No => (),
        }
        Ok(self.go_on())
    }

    fn go_on(&self) -> Next {
        if self.is_over() {
            Next::End
        } else {
            Next::Step
        }
    }

    fn is_over(&self) -> bool {
        self.shared.stop().load(Ordering::Relaxed) != 0
            || (self.end_ns != Nanos::MAX && sys::now_ns() >= self.end_ns)
    }

    fn burn(&mut self, ns: Nanos) -> Next {
        let (slot, shared, end_ns) = (&self.slot, &self.shared, self.end_ns);
        let mut over = false;
        self.burner.burn(ns, |burnt| {
            slot.work_ns.fetch_add(burnt, Ordering::Relaxed);
            over = shared.stop().load(Ordering::Relaxed) != 0
                || (end_ns != Nanos::MAX && sys::now_ns() >= end_ns);
            !over
        });
        if over { Next::End } else { Next::Step }
    }

    /// The next point of the thread's grid, `start + phase + k period`, after now.
    fn grid_point(&mut self, period_ns: Nanos) -> Nanos {
        let period = period_ns.max(1);
        let phase = match self.phases.iter().find(|(p, _)| *p == period) {
            Some((_, phase)) => *phase,
            None => {
                let phase = self.phase_rng.below(period);
                self.phases.push((period, phase));
                phase
            }
        };
        let first = self.shared.start_ns() + phase;
        match sys::now_ns().checked_sub(first) {
            None => first,
            Some(since) => first + (since / period + 1) * period,
        }
    }

    /// The next point of a timer that counts from the thread's start; none: the thread is late, and goes on.
    fn point_from_start(&mut self, period_ns: Nanos, grid: Grid) -> Option<Nanos> {
        let period = period_ns.max(1);
        let is = |t: &(Nanos, Grid, Nanos)| (t.0, t.1) == (period, grid);
        let at = self.from_start.iter().position(is).unwrap_or_else(|| {
            self.from_start.push((period, grid, self.begun_ns));
            self.from_start.len() - 1
        });
        let last = &mut self.from_start[at].2;
        *last = last.saturating_add(period);
        let now = sys::now_ns();
        if now < *last {
            return Some(*last);
        }
        if grid == Grid::Start {
            *last = now;
        }
        None
    }

    fn sleep_until(&mut self, due_ns: Nanos, counts: bool) -> io::Result<Next> {
        let until = due_ns.min(self.end_ns);
        loop {
            match sys::wait(&[(self.shared.stop(), 0)], Some(until))? {
                Woken::Timeout => break,
                Woken::Changed => return Ok(Next::End),
                // The stop word was woken, or a signal came: look again.
                Woken::Wake => (),
            }
        }
        if until == self.end_ns {
            return Ok(Next::End);
        }
        if counts {
            self.woken_at(due_ns);
        }
        Ok(Next::Step)
    }

    /// The thread runs now; it became runnable at `due_ns`.
    fn woken_at(&mut self, due_ns: Nanos) {
        let now = sys::now_ns();
        if self.shared.measures(now) {
            self.latencies.wakeup(now.saturating_sub(due_ns));
        }
    }

    fn reply(&mut self) {
        let Some(taken) = self.in_hand.take() else {
            return;
        };
        let Some(asker) = taken.message.client else {
            return;
        };
        let now = sys::now_ns();
        if self.shared.measures(now) {
            let response = now.saturating_sub(taken.message.arrival_ns);
            self.latencies.response(response);
            if self.of_request {
                let waited = response.saturating_sub(self.slot.work());
                self.latencies.waiting(waited);
            }
        }
        self.shared.answered(asker, now);
    }

    fn send(&mut self, to: &str) {
        let scenario = &self.shared.scenario;
        let Some(queue) = placement::queue_of(scenario, to) else {
            return;
        };
        let Some(home) = placement::receiver(scenario, self.me.vm.as_ref(), queue) else {
            return;
        };
        let now = sys::now_ns();
        let message = crate::mailbox::Message {
            arrival_ns: now,
            sent_ns: now,
            client: None,
        };
        self.shared.put(home, queue, message);
    }
}
