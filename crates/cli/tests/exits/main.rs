// SPDX-License-Identifier: GPL-2.0-only
//! The command as a user meets it: what wrong input gets, and with which status (`statuses`); what becomes of results,
//! traces and what cannot be written (`files`).
mod files;
mod statuses;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A run that is over in no time.
const SHORT: &str = r#"
[run]
warmup = "10ms"
measure = "200ms"
seeds = 2
[vm.web]
class = "latency"
vcpus = 2
tasks = ["worker"]
[vm.hog]
count = 3
vcpus = 2
tasks = ["burn"]
[task.worker]
loop = ["receive users", "compute exp(300us)", "reply"]
[task.burn]
model = "busy"
[client.users]
to = "web"
sends = "poisson(400/s)"
[compare]
policies = ["gfifo", "vmfair"]
"#;

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new(scenario: &str) -> Place {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("short.toml"), scenario).unwrap();
        Place { dir }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        command
            .current_dir(self.dir.path())
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    fn berth(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs it, expects this status, gives what it said on standard error.
    fn fails(&self, status: i32, arguments: &[&str]) -> String {
        let out = self.berth(arguments);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(
            out.status.code(),
            Some(status),
            "berth {arguments:?} said: {said}"
        );
        assert!(said.contains("error: ") || status == 1, "{said}");
        said
    }

    /// Runs it, expects success, gives standard output.
    fn works(&self, arguments: &[&str]) -> String {
        let out = self.berth(arguments);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(
            out.status.code(),
            Some(0),
            "berth {arguments:?} said: {said}"
        );
        String::from_utf8(out.stdout).unwrap()
    }

    fn results(&self) -> serde_json::Value {
        let path = self.dir.path().join("berth-out/short/sim.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn has_results(&self) -> bool {
        self.dir.path().join("berth-out").exists()
    }
}

fn policy(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("tests/policies/{name}.bpf.c"))
        .display()
        .to_string()
}
