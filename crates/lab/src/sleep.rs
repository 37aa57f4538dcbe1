// SPDX-License-Identifier: GPL-2.0-only
//! A machine that suspends to memory (ACPI S3) is woken at once, as by its power button: its virtual clock stands still
//! while it sleeps, so no alarm of its own could. By the emulator's monitor, which machines with [`Mode::Fast`] lack:
//! those sleep until their time is over.
//!
//! [`Mode::Fast`]: crate::vm::Mode::Fast
use serde_json::json;

/// Wakes each sleep once.
#[derive(Debug, Default)]
pub struct Waker {
    /// How often the machine fell asleep, by what was said so far.
    pub asleep: usize,
}

impl Waker {
    /// What to tell the monitor, a line each, by all that it has said so far: one for each sleep that is new.
    pub fn commands(&mut self, said: &str) -> Vec<String> {
        let asleep = said.lines().filter(|l| l.contains(r#""event": "SUSPEND""#));
        let new = asleep.count().saturating_sub(self.asleep);
        self.asleep += new;
        vec![format!("{}\n", json!({ "execute": "system_wakeup" })); new]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sleep_is_woken_once() {
        let mut waker = Waker::default();
        let mut said = String::from("{\"QMP\": {}}\n{\"return\": {}}\n{\"event\": \"RESUME\"}\n");
        assert!(waker.commands(&said).is_empty());
        let sleep =
            "{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, \"event\": \"SUSPEND\"}\n";
        said += sleep;
        let wake = "{\"execute\":\"system_wakeup\"}\n";
        // Half of the line has come.
        assert!(waker.commands(&said[..said.len() - 5]).is_empty());
        assert_eq!(waker.commands(&said), [wake]);
        said += "{\"event\": \"WAKEUP\"}\n{\"return\": {}}\n";
        assert!(waker.commands(&said).is_empty());
        said += "{\"event\": \"SUSPEND_DISK\"}\n";
        said += &sleep.repeat(2);
        assert_eq!(waker.commands(&said), [wake, wake]);
        assert_eq!(waker.asleep, 3);
    }
}
