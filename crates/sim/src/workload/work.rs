// SPDX-License-Identifier: GPL-2.0-only
//! What the machine asks the work of a scenario for: who answers.
use super::api::{Action, Ctx, Nanos, TaskId, Who, Workload};
use super::device::Device;
use super::events::Event;
use super::scenario::ScenarioWorkload;
use super::sender::SENDER;
use berth_results::detail::Distribution;
use std::collections::BTreeMap;

impl Workload for ScenarioWorkload {
    fn start(&mut self, ctx: &mut Ctx) {
        self.masks.start_host(ctx);
        self.start_homes(ctx);
        self.start_clients(ctx);
    }

    fn born(&mut self, thread: u32, task: TaskId) {
        match &mut self.requests.sender {
            Some(sender) if thread == SENDER => sender.task = task,
            _ => self.threads[thread].task = task,
        }
    }

    fn died(&mut self, thread: u32, _task: TaskId) {
        if thread == SENDER {
            self.requests.sender = None;
            return;
        }
        self.requests.mail.leave(thread);
        self.threads.remove(thread);
    }

    fn next(&mut self, who: Who, now: Nanos, ctx: &mut Ctx) -> Action {
        if who.token == SENDER {
            return self.send_due(now, ctx);
        }
        let t = &mut self.threads[who.token];
        t.cpu = who.cpu;
        match t.post {
            None => self.step(who, now, ctx),
            Some(post) => {
                let (devices, board) = self.plugged(ctx);
                devices.serve(post, board)
            }
        }
    }

    fn event(&mut self, token: u64, now: Nanos, ctx: &mut Ctx) {
        match Event::read(token) {
            Event::Request(asker) => self.request(asker, false, now, ctx),
            Event::RequestHere(asker) => self.request(asker, true, now, ctx),
            Event::StartVm(vm) => self.start_vm(vm, ctx),
            Event::StopVm(vm) => self.stop_vm(vm, now, ctx),
            Event::Boot(vm) => self.boot(vm, ctx),
            Event::Look(vm) => self.look_inside(vm, ctx),
            Event::Wake(thread, task) => self.threads.wake_inside(thread, task, ctx),
            Event::Begin(home, queue) => self.begin_queued(home, queue, ctx),
            Event::Net(event) => {
                let (devices, mut board) = self.plugged(ctx);
                if let Some(net) = &mut devices.net {
                    net.event(event, &mut board);
                }
            }
            Event::Disk(event) => {
                let (devices, mut board) = self.plugged(ctx);
                if let Some(disk) = &mut devices.disk {
                    disk.event(event, &mut board);
                }
            }
        }
    }

    fn measure_from(&mut self, now: Nanos) {
        self.requests.measured.measure_from(now);
        if let Some(net) = &mut self.devices.net {
            net.measure_from(now);
        }
        if let Some(disk) = &mut self.devices.disk {
            disk.measure_from(now);
        }
    }

    fn metrics(&self, now: Nanos, out: &mut BTreeMap<String, f64>) {
        let measured = &self.requests.measured;
        measured.metrics(&self.homes, now, out);
        if let Some(net) = &self.devices.net {
            net.metrics(measured.seconds(now), out);
        }
        if let Some(disk) = &self.devices.disk {
            disk.metrics(measured.seconds(now), out);
        }
        let groups: Vec<String> = self
            .homes
            .scenario
            .vms
            .iter()
            .map(|vm| vm.name.clone())
            .collect();
        self.completion.metrics(&self.homes.vms, &groups, out);
    }

    fn times(&self, out: &mut BTreeMap<String, Distribution>) {
        self.requests.measured.times(&self.homes, out);
    }

    fn violated(&self, now: Nanos) -> Option<String> {
        let net = self.devices.net.as_ref();
        let in_hand = self.threads.all.iter().filter_map(|t| t.in_hand.as_ref());
        let messages = in_hand.chain(self.requests.mail.messages());
        let requests = messages.filter(|m| m.from.is_some()).map(|m| m.sent);
        let outside = net.iter().flat_map(|net| net.inside()).map(|c| c.sent);
        let whole = &self.requests.measured.flow;
        let whole = whole.violated(now, requests.chain(outside));
        let disk = self.devices.disk.as_ref();
        whole
            .or_else(|| net?.violated(now))
            .or_else(|| disk?.violated(now))
    }
}
