// SPDX-License-Identifier: GPL-2.0-only
//! Programs of a scheduler that its own loader runs when it starts it (`SEC("syscall")`, by `BPF_PROG_TEST_RUN`). The
//! object carries them in a section of its own, a line each, which libbpf passes over: `before NAME ARGUMENT...`, or
//! `after CPU NAME ARGUMENT...`.
use crate::error::{LoadError, Result};
use std::fmt::{Display, Formatter};

/// The section.
pub const SECTION: &str = ".berth.calls";

/// Arguments of one call at most.
const ARGUMENTS_MAX: usize = 16;
/// Calls at most: four for each CPU of the largest machine.
const CALLS_MAX: usize = 4096;

/// One run of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub program: String,
    /// The program's context: a structure of 32-bit numbers.
    pub arguments: Vec<i32>,
    pub when: When,
}

/// When a loader runs a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// When the object is loaded, and the scheduler has not begun.
    Before,
    /// When the scheduler has begun, on this CPU.
    After { cpu: u32 },
}

impl Call {
    /// The context that the program reads, bytes.
    pub fn context(&self) -> Vec<u8> {
        let bytes = self.arguments.iter().flat_map(|a| a.to_le_bytes());
        bytes.collect()
    }

    fn parse(line: &str) -> Option<Call> {
        let mut words = line.split_ascii_whitespace();
        let when = match words.next()? {
            "before" => When::Before,
            "after" => When::After {
                cpu: words.next()?.parse().ok()?,
            },
            _ => return None,
        };
        let program = words.next().filter(|name| is_name(name))?.to_string();
        let arguments: Vec<i32> = words.map(|w| w.parse().ok()).collect::<Option<_>>()?;
        (arguments.len() <= ARGUMENTS_MAX).then_some(Call {
            program,
            arguments,
            when,
        })
    }
}

/// A name of a function as C has it, which the kernel's list of them takes (`KSYM_NAME_LEN`).
fn is_name(name: &str) -> bool {
    let letter = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    name.len() < 512 && name.bytes().all(letter)
}

impl Display for Call {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.when {
            When::Before => write!(f, "before")?,
            When::After { cpu } => write!(f, "after {cpu}")?,
        }
        write!(f, " {}", self.program)?;
        self.arguments.iter().try_for_each(|a| write!(f, " {a}"))
    }
}

/// The section's content for these calls.
pub fn write(calls: &[Call]) -> Vec<u8> {
    calls
        .iter()
        .map(|call| format!("{call}\n"))
        .collect::<String>()
        .into_bytes()
}

/// The calls of a section.
///
/// # Errors
/// It has another form, with its first wrong line, or too many of them.
pub fn read(section: &[u8]) -> Result<Vec<Call>> {
    let text = String::from_utf8_lossy(section);
    let wrong = |line: &str| {
        LoadError::Broken(format!(
            "{SECTION}: `{}` is no call of a program",
            line.chars().take(80).collect::<String>().escape_debug()
        ))
    };
    let calls: Vec<Call> = text
        .lines()
        .map(|line| Call::parse(line).ok_or_else(|| wrong(line)))
        .collect::<Result<_>>()?;
    match calls.len() > CALLS_MAX {
        true => Err(LoadError::Broken(format!(
            "{SECTION}: more than {CALLS_MAX} calls"
        ))),
        false => Ok(calls),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_as_they_were_written() {
        let calls = [
            Call {
                program: "enable_primary_cpu".into(),
                arguments: vec![-1],
                when: When::Before,
            },
            Call {
                program: "start_timer".into(),
                arguments: vec![3, i32::MIN],
                when: When::After { cpu: 3 },
            },
        ];
        assert_eq!(read(&write(&calls)).unwrap(), calls);
        assert_eq!(calls[0].context(), [255; 4]);
        assert!(read(b"").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_call_is_named() {
        let many = "1 ".repeat(ARGUMENTS_MAX + 1);
        for line in [
            "before",
            "after start 1",
            "during x",
            "before x y",
            "before \u{1b}[31mred",
            &format!("before {}", "long".repeat(200)),
            "before x 4294967296",
            "after -1 x",
            "\u{fffd}",
            "",
            &format!("before x {many}"),
        ] {
            let said = read(format!("before ok\n{line}\n").as_bytes()).unwrap_err();
            assert!(said.to_string().contains("no call"), "{line}: {said}");
        }
        let all = "before x\n".repeat(CALLS_MAX + 1);
        assert!(
            read(all.as_bytes())
                .unwrap_err()
                .to_string()
                .contains("more than")
        );
    }
}
