// SPDX-License-Identifier: GPL-2.0-only
//! Which parts of a scenario a real guest and its competitors can play, found out before anything boots.
use crate::LabError;
use berth_scenario::model::{Client, Scenario, Sends, Step, Task, Vm};

/// Most CPUs of the VM around the guest: each has a thread of this machine.
const MOST_CPUS: u32 = 4;

/// The scenario's guest that is watched, and whom it shares its CPUs with.
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    pub client: &'a Client,
    pub vm: &'a Vm,
    /// The task that answers the client's requests.
    pub echo: &'a Task,
}

impl<'a> Watched<'a> {
    /// # Errors
    /// [`LabError::Scenario`]: what it cannot play, and what to do about it.
    pub fn of(scenario: &'a Scenario) -> Result<Watched<'a>, LabError> {
        let refuse = |why: String| Err(LabError::Scenario(why));
        let cpus = scenario.host.nr_cpus();
        if !(2..=MOST_CPUS).contains(&cpus) {
            return refuse(format!(
                "a real guest needs a host of 2 to {MOST_CPUS} CPUs, of which CPU 0 is the emulator's; this has \
                 {cpus}: \
                 set host.cores"
            ));
        }
        let [client] = &scenario.clients[..] else {
            return refuse(format!(
                "a real guest has one client, this scenario {}",
                scenario.clients.len()
            ));
        };
        if matches!(client.sends, Sends::Closed { .. }) {
            return refuse(format!(
                "client.{} waits for answers; a real guest's requests are due at times of their own (`every 100ms +- \
                 50%`)",
                client.name
            ));
        }
        let Some(vm) = scenario.vms.iter().find(|vm| vm.name == client.to) else {
            return refuse(format!("client.{} sends to no VM", client.name));
        };
        if vm.count != 1 {
            return refuse(format!(
                "vm.{} is to be watched, so its count is 1",
                vm.name
            ));
        }
        let task = |name: &String| scenario.tasks.get(name);
        let hears =
            |t: &&Task| matches!(t.steps.first(), Some(Step::Receive(q)) if *q == client.name);
        let Some(echo) = vm.tasks.iter().filter_map(task).find(hears) else {
            return refuse(format!(
                "no task of vm.{} begins with `receive {}`",
                vm.name, client.name
            ));
        };
        if echo.threads.unwrap_or(vm.vcpus) != 1 {
            return refuse(format!(
                "task.{} answers in one thread: set task.{}.threads = 1",
                echo.name, echo.name
            ));
        }
        for task in vm.tasks.iter().filter_map(task) {
            for (i, step) in task.first.iter().chain(&task.steps).enumerate() {
                let known = match step {
                    Step::Busy
                    | Step::Compute(_)
                    | Step::Sleep(_)
                    | Step::Yield
                    | Step::Reply
                    | Step::Lock { .. }
                    | Step::Unlock { .. } => true,
                    Step::Receive(_) => task.name == echo.name && i == 0,
                    _ => false,
                };
                if !known {
                    return refuse(format!(
                        "task.{} has the step `{}`, which a real guest of the lab does not do",
                        task.name,
                        step.word()
                    ));
                }
            }
        }
        for other in scenario.vms.iter().filter(|v| v.name != vm.name) {
            let busy = |t: &Task| t.first.is_empty() && matches!(t.steps[..], [Step::Busy]);
            if !other.tasks.iter().filter_map(task).all(busy) {
                return refuse(format!(
                    "vm.{} competes with the guest, so its tasks compute and do nothing else (model = \"busy\")",
                    other.name
                ));
            }
        }
        for vm in &scenario.vms {
            if vm.affinity.is_empty() || vm.affinity.iter().any(|c| *c == 0 || *c >= cpus) {
                return refuse(format!(
                    "CPU 0 is the emulator's: vm.{}.affinity names some of CPUs 1 to {}",
                    vm.name,
                    cpus - 1
                ));
            }
        }
        Ok(Watched { client, vm, echo })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_scenario::{Edit, Input, read};

    const CASE: &str = "[host]\ncores = 2\n[vm.a]\naffinity = [1]\ntasks = [\"hog\", \"echo\"]\n[vm.b]\ncount = 2\n\
        affinity = [1]\ntasks = [\"hog\"]\n[task.hog]\nmodel = \"busy\"\n[task.echo]\nthreads = 1\n\
        loop = [\"receive pinger\", \"compute 75us\", \"reply\"]\n[client.pinger]\nto = \"a\"\n\
        sends = \"every 100ms +- 50%\"\n";

    fn case(edits: &[&str]) -> Scenario {
        let input = Input {
            name: "case".into(),
            shown: "case.toml".into(),
            text: CASE.into(),
            folder: None,
        };
        let edits: Vec<Edit> = edits.iter().map(|e| Edit::Set(e.to_string())).collect();
        read(&input, &edits).unwrap().scenario
    }

    #[test]
    fn what_a_real_guest_cannot_play_is_refused_by_name() {
        let good = case(&[]);
        let w = Watched::of(&good).unwrap();
        assert_eq!((w.vm.name.as_str(), w.echo.name.as_str()), ("a", "echo"));
        for (edit, word) in [
            ("host.cores=5", "host.cores"),
            ("vm.a.count=2", "count is 1"),
            ("vm.b.affinity=[0]", "vm.b.affinity"),
            ("task.echo.threads=2", "task.echo.threads"),
            ("vm.b.tasks=[\"echo\"]", "vm.b competes"),
            (
                "client.pinger.sends=closed(2 users, think 10ms)",
                "client.pinger",
            ),
        ] {
            let scenario = case(&[edit]);
            let said = Watched::of(&scenario).unwrap_err().to_string();
            assert!(said.contains(word), "{edit}: {said}");
        }
    }

    #[test]
    fn every_case_of_the_folder_can_be_played() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../compare/guests");
        let mut played = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if !name.starts_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            let scenario = read(&Input::from_file(&path).unwrap(), &[])
                .unwrap()
                .scenario;
            Watched::of(&scenario).unwrap_or_else(|e| panic!("{name}: {e}"));
            played += 1;
        }
        assert!(played >= 12, "{played}");
    }
}
