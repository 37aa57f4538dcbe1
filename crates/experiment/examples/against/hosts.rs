// SPDX-License-Identifier: GPL-2.0-only
//! Random hosts as an operator might have them: web servers, databases, builds, hogs and VMs that nap, some with more
//! weight, on hosts from half to five times full.
use berth_scenario::dist::{Rng, Stream};
use std::fmt::Write;

/// One of them, as the text of a scenario file. Equal seeds give equal hosts.
pub fn random(seed: u64) -> String {
    let mut draw = Draw(Rng::new(seed, Stream::Phase(u32::MAX)));
    let cores = draw.of(&[1, 2, 4, 8]);
    let threads = if cores > 1 { draw.of(&[1, 2]) } else { 1 };
    let hz = draw.of(&[250, 1000]);
    let full = draw.of(&[0.5, 1.0, 1.5, 2.0, 3.0, 5.0]) * f64::from(cores * threads);
    let mut text = format!(
        "title = \"Random host {seed}\"\n[run]\nwarmup = \"300ms\"\nmeasure = \"2s\"\n\
         [host]\ncores = {cores}\nthreads = {threads}\nhz = {hz}\n"
    );
    let mut demand = 0.0;
    for group in 0..8 {
        // The first is asked by clients, the second computes, so that there is something to decide.
        let kind = match group {
            0 => draw.of(&ASKED),
            1 => draw.of(&COMPUTING),
            _ if demand >= full => break,
            _ if draw.0.below(2) == 0 => draw.of(&ASKED),
            _ => draw.of(&COMPUTING),
        };
        demand += draw.group(group, kind, &mut text);
    }
    text
}

#[derive(Clone, Copy)]
enum Kind {
    Web,
    Database,
    Hog,
    Build,
    Duty,
    Naps,
}

const ASKED: [Kind; 2] = [Kind::Web, Kind::Database];
const COMPUTING: [Kind; 4] = [Kind::Hog, Kind::Build, Kind::Duty, Kind::Naps];

struct Draw(Rng);

impl Draw {
    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.0.below(list.len() as u64) as usize]
    }

    /// Adds a group of VMs with what runs in them; the CPUs that they want.
    fn group(&mut self, i: usize, kind: Kind, text: &mut String) -> f64 {
        let count = self.of(&[1, 1, 2, 3]);
        let vcpus = self.of(&[1, 2, 4]);
        let weight = self.of(&[100, 100, 100, 50, 200, 400]);
        let asked = matches!(kind, Kind::Web | Kind::Database);
        let class = if asked { "latency" } else { "batch" };
        let (looped, busy) = match kind {
            Kind::Web => {
                let us = self.of(&[50, 100, 300, 1000]);
                (
                    format!("\"receive c{i}\", \"compute exp({us}us)\", \"reply\""),
                    f64::from(us),
                )
            }
            // Mean 5/3 of the smallest.
            Kind::Database => (
                format!("\"receive c{i}\", \"compute pareto(200us, 2.5)\", \"reply\""),
                333.0,
            ),
            Kind::Hog => ("\"compute 10ms\"".into(), 1.0),
            Kind::Build => {
                let sleep = self.of(&[1, 3, 10]);
                (
                    format!("\"compute uniform(5ms, 50ms)\", \"sleep exp({sleep}ms)\""),
                    27.5 / (27.5 + f64::from(sleep)),
                )
            }
            // Spells of one length would be kept in step by whoever shares evenly.
            Kind::Duty => {
                let (ms, part) = (self.of(&[10, 100]), self.of(&[20, 50, 80]));
                let run = ms * part / 100;
                let text = format!("\"compute exp({run}ms)\", \"sleep exp({}ms)\"", ms - run);
                (text, f64::from(part) / 100.0)
            }
            Kind::Naps => {
                let (run, sleep) = (self.of(&[50, 200, 1000]), self.of(&[300, 1000, 5000]));
                (
                    format!("\"compute {run}us\", \"sleep exp({sleep}us)\""),
                    f64::from(run) / f64::from(run + sleep),
                )
            }
        };
        let cpus = f64::from(count * vcpus);
        let _ = write!(
            text,
            "[vm.g{i}]\ncount = {count}\nvcpus = {vcpus}\nweight = {weight}\nclass = \"{class}\"\ntasks = [\"t{i}\"]\n\
             [task.t{i}]\nthreads = {vcpus}\nloop = [{looped}]\n"
        );
        if !asked {
            return cpus * busy;
        }
        let load = self.of(&[0.02, 0.05, 0.15, 0.3]);
        let rate = (load * f64::from(vcpus) * 1e6 / busy).ceil();
        let _ = write!(
            text,
            "[client.c{i}]\nto = \"g{i}\"\nsends = \"poisson({rate}/s)\"\n"
        );
        cpus * load
    }
}
