// SPDX-License-Identifier: GPL-2.0-only
//! bpf_timer: lives in a map element, fires as an interrupt on the CPU that armed it, never inside the call
//! that arms it.
use super::consts::*;
use super::kernel::{Handle, Source};
use crate::engine::queue::{NEVER, Slot};
use crate::machine::task::NONE;
use crate::words::{CpuId, Nanos};
use berth_policy::abi::Op;
use berth_policy::ir::MapId;
use std::collections::BTreeMap;

const F_ABS: u64 = 1;
const F_CPU_PIN: u64 = 2;

#[derive(Debug)]
struct Timer {
    address: u64,
    map: MapId,
    element: u64,
    callback: u64,
    slot: Slot,
    cpu: CpuId,
    running: bool,
    /// Fires this long before the run.
    before: Option<Nanos>,
}

/// The timers of a policy, by address.
#[derive(Debug, Default)]
pub struct Timers {
    list: Vec<Timer>,
    by_address: BTreeMap<u64, u32>,
    /// Firings so far.
    pub fired: u64,
}

impl Handle {
    /// bpf_timer_init: 0, -EBUSY if it has been initialised, -EINVAL if the address is in no map element.
    pub fn timer_init(mut self, address: u64) -> i64 {
        let Some((map, place)) = self.policy.instance().and_then(|i| i.locate(address)) else {
            return -EINVAL;
        };
        if let Some(t) = self.timers.by_address.get(&address).copied() {
            let t = &mut self.timers.list[t as usize];
            if t.map == map && t.element == place.element {
                return -EBUSY;
            }
            // The element was deleted, and its memory has been given to another one.
            (t.map, t.element, t.callback) = (map, place.element, 0);
            return 0;
        }
        let index = self.timers.list.len() as u32;
        self.timers.list.push(Timer {
            address,
            map,
            element: place.element,
            callback: 0,
            slot: NONE,
            cpu: 0,
            running: false,
            before: None,
        });
        self.timers.by_address.insert(address, index);
        0
    }

    fn timer(&self, address: u64) -> Option<usize> {
        self.timers.by_address.get(&address).map(|t| *t as usize)
    }

    /// bpf_timer_set_callback
    pub fn timer_set_callback(mut self, address: u64, callback: u64) -> i64 {
        match self.timer(address) {
            Some(t) => {
                self.timers.list[t].callback = callback;
                0
            }
            None => -EINVAL,
        }
    }

    /// bpf_timer_start
    pub fn timer_start(mut self, address: u64, ns: u64, flags: u64) -> i64 {
        let Some(t) = self.timer(address) else {
            return -EINVAL;
        };
        if flags & !(F_ABS | F_CPU_PIN) != 0 || self.timers.list[t].callback == 0 {
            return -EINVAL;
        }
        let wait = if flags & F_ABS != 0 {
            ns.saturating_sub(self.clock(self.now))
        } else {
            ns
        };
        self.timers.list[t].before = self
            .start
            .before_ns
            .checked_sub(wait)
            .filter(|left| *left > 0);
        let at = match self.timers.list[t].before {
            Some(_) => NEVER,
            None => self.now.saturating_add(wait - self.start.before_ns),
        };
        if self.timers.list[t].slot == NONE {
            let slot = self.queue.alloc();
            self.source(slot, Source::Timer(t as u32));
            self.timers.list[t].slot = slot;
        }
        self.timers.list[t].cpu = self.exec;
        let slot = self.timers.list[t].slot;
        self.queue.set(slot, at);
        0
    }

    /// bpf_timer_cancel: 1 if it was armed.
    pub fn timer_cancel(mut self, address: u64) -> i64 {
        let Some(t) = self.timer(address) else {
            return -EINVAL;
        };
        let timer = &self.timers.list[t];
        if timer.running {
            return -EDEADLK;
        }
        let slot = timer.slot;
        if self.timers.list[t].before.take().is_some() {
            return 1;
        }
        if slot == NONE || self.queue.time(slot) == NEVER {
            return 0;
        }
        self.queue.set(slot, NEVER);
        1
    }

    /// The time between the policy's start and the run's: its timers fire, and nothing else happens.
    pub fn pass_the_lead(mut self) {
        loop {
            let waiting = self.timers.list.iter().enumerate();
            let due = waiting.filter_map(|(i, t)| Some((t.before?, std::cmp::Reverse(i))));
            let Some((before, std::cmp::Reverse(index))) = due.max() else {
                break;
            };
            self.start.before_ns = before;
            self.begin(self.now, self.timer_cpu(index as u32));
            self.timers.list[index].before = None;
            self.timer_fire(index as u32);
        }
        self.start.before_ns = 0;
        self.begin(self.now, 0);
    }

    /// CPU a due timer runs on.
    pub fn timer_cpu(self, index: u32) -> CpuId {
        let cpu = self.timers.list[index as usize].cpu;
        if self.cpus[cpu as usize].online {
            cpu
        } else {
            self.online.first().unwrap_or(0)
        }
    }

    /// The interrupt of a due timer.
    pub fn timer_fire(mut self, index: u32) {
        let t = &mut self.timers.list[index as usize];
        let (address, map, element, callback) = (t.address, t.map, t.element, t.callback);
        if self.exit.claimed() {
            return;
        }
        let Some(instance) = self.policy.instance() else {
            return;
        };
        let instance: *const berth_policy::instance::Instance = instance;
        // SAFETY: the instance lives as long as the machine.
        let instance = unsafe { &*instance };
        // A deleted element takes its timer along.
        let place = match instance.locate(address) {
            Some((m, p)) if m == map && p.element == element => p,
            _ => return,
        };
        self.timers.fired += 1;
        self.timers.list[index as usize].running = true;
        let args = [
            instance.map_address(map) as u64,
            place.key as u64,
            place.value as u64,
        ];
        // SAFETY: map, key and value are the element's own.
        if let Err(trap) = unsafe { instance.call_func(callback, Op::Timer, &args) } {
            self.trapped(Op::Timer, Box::new(trap));
        }
        self.timers.list[index as usize].running = false;
        self.irq_work();
    }
}
