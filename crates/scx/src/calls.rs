// SPDX-License-Identifier: GPL-2.0-only
//! What a scheduler's own loader runs around its start, as the object carries it: `berth_policy::loader::calls` says in
//! what form, and writes it.
use crate::{Loaded, ScxError};
use object::{Object as _, ObjectSection as _};

const SECTION: &str = ".berth.calls";
/// As `berth_policy::loader::calls` has them.
const CALLS_MAX: usize = 4096;
const ARGUMENTS_MAX: usize = 16;

/// One run of a `SEC("syscall")` program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Call {
    program: String,
    context: Vec<u8>,
    /// When the scheduler has begun, on this CPU; `None`: before that.
    after_on: Option<usize>,
}

fn parse(line: &str) -> Option<Call> {
    let mut words = line.split_ascii_whitespace();
    let after_on = match words.next()? {
        "before" => None,
        "after" => Some(words.next()?.parse().ok()?),
        _ => return None,
    };
    let letter = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    let is_name = |name: &&str| name.len() < 512 && name.bytes().all(letter);
    let program = words.next().filter(is_name)?.to_string();
    let mut context = Vec::new();
    for word in words {
        context.extend_from_slice(&word.parse::<i32>().ok()?.to_ne_bytes());
    }
    if context.len() > ARGUMENTS_MAX * 4 {
        return None;
    }
    Some(Call {
        program,
        context,
        after_on,
    })
}

/// The calls of an object.
///
/// # Errors
/// A line is no call.
pub(crate) fn of(object: &[u8]) -> Result<Vec<Call>, ScxError> {
    // An object that cannot be read is libbpf's to refuse.
    let Ok(file) = object::File::parse(object) else {
        return Ok(Vec::new());
    };
    let section = file.section_by_name(SECTION);
    let bytes = section.and_then(|s| s.data().ok()).unwrap_or_default();
    let text = String::from_utf8_lossy(bytes);
    let wrong = |what: &str| ScxError::Open {
        reason: format!("its section {SECTION} has {what}"),
        log: String::new(),
    };
    if text.lines().count() > CALLS_MAX {
        return Err(wrong("more calls than a loader makes"));
    }
    let call = |line| parse(line).ok_or_else(|| wrong("a line that is no call"));
    text.lines().map(call).collect()
}

/// Runs `f` while this thread stays on a CPU.
fn on_cpu<R>(cpu: usize, f: impl FnOnce() -> R) -> std::io::Result<R> {
    const SIZE: usize = size_of::<libc::cpu_set_t>();
    let done = |result| match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    if cpu >= SIZE * 8 {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: sets of CPUs are bits, and all zero is none; `cpu` is inside.
    unsafe {
        let mut before: libc::cpu_set_t = std::mem::zeroed();
        let mut only: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut only);
        done(libc::sched_getaffinity(0, SIZE, &mut before))?;
        done(libc::sched_setaffinity(0, SIZE, &only))?;
        let result = f();
        done(libc::sched_setaffinity(0, SIZE, &before))?;
        Ok(result)
    }
}

impl Loaded {
    /// Runs them, those from before the start or those from after it.
    ///
    /// # Errors
    /// One cannot be run, or gave something else than 0.
    pub(crate) fn run_calls(&self, calls: &[Call], after: bool) -> Result<(), ScxError> {
        for call in calls.iter().filter(|c| c.after_on.is_some() == after) {
            let failed = |reason: String| ScxError::Run {
                name: call.program.clone(),
                reason,
            };
            let mut context = call.context.clone();
            let gave = match call.after_on {
                None => self.run(&call.program, &mut context)?,
                Some(cpu) => on_cpu(cpu, || self.run(&call.program, &mut context))
                    .map_err(|e| failed(format!("not on CPU {cpu}: {e}")))??,
            };
            if gave != 0 {
                let why = format!("its loader runs it, and it gave {}", gave as i32);
                return Err(failed(why));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_calls() {
        let call = parse("before enable_primary_cpu -1").unwrap();
        assert_eq!(
            (call.program.as_str(), &call.context[..], call.after_on),
            ("enable_primary_cpu", &[255; 4][..], None)
        );
        let call = parse("after 3 start_timer 3 7").unwrap();
        assert_eq!(call.after_on, Some(3));
        assert_eq!(
            call.context,
            [3i32.to_ne_bytes(), 7i32.to_ne_bytes()].concat()
        );
        for line in [
            "",
            "before",
            "after x y",
            "during x",
            "before x y",
            "before \u{1b}[31mred",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
        assert!(of(b"no object").unwrap().is_empty());
    }
}
