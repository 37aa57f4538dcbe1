// SPDX-License-Identifier: GPL-2.0-only
//! What somebody wants to be run, in the words of the command line.

use crate::error::Failure;
use berth_scenario::edit::{self, LoaderEdit};

/// A scenario and what is changed of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// A ready scenario's name, or a file.
    pub scenario: String,
    /// `ADDRESS=VALUE`, for all runs.
    pub set: Vec<String>,
    /// `ADDRESS=A,B,C`: once for each value; several: all combinations.
    pub vary: Vec<String>,
    /// Only these arms, or shipped policies that the scenario does not name; empty: all that it names.
    pub arms: Vec<String>,
    /// Policies to compare besides: a shipped name or a file.
    pub policies: Vec<String>,
    /// What the loaders of schedulers in files set, and how those are compiled.
    pub loader: Vec<LoaderEdit>,
    /// Seeds 1 to N, instead of the scenario's number.
    pub seeds: Option<u32>,
    /// This one seed.
    pub seed: Option<u64>,
}

impl Request {
    /// Is this address set or varied?
    pub fn says(&self, address: &str) -> bool {
        let mut said = self.set.iter().chain(&self.vary);
        said.any(|text| text.split('=').next().map(str::trim) == Some(address))
    }

    /// Of what is varied only the first combination.
    ///
    /// # Errors
    /// What is varied is not said as it has to be.
    pub fn first(&self) -> Result<Request, Failure> {
        Ok(Request {
            vary: edit::first(&self.vary)?,
            ..self.clone()
        })
    }
}

/// Quotes what a shell would take apart.
pub fn quote(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        argument.to_string()
    } else {
        format!("'{}'", argument.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn quoting() {
        assert_eq!(quote("vm.web.count=4"), "vm.web.count=4");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("it's"), "'it'\\''s'");
        assert_eq!(quote(""), "''");
    }
}
