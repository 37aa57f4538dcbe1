// SPDX-License-Identifier: GPL-2.0-only
//! A loaded policy: program, native code, parameters. Cheap to clone, shared by all its instances.
use crate::error::{LoadError, Result};
use crate::interp::Prepared;
use crate::ir::{OpsVar, Program};
use crate::native::NativeTable;
use crate::params::Param;
use crate::profile::KernelProfile;
use std::sync::{Arc, OnceLock};

/// How to load a policy.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    pub kernel: KernelProfile,
}

/// A policy ready to be instantiated on any number of machines.
#[derive(Clone)]
pub struct Policy {
    inner: Arc<Inner>,
}

struct Inner {
    program: Program,
    native: NativeTable,
    kernel: KernelProfile,
    hash: String,
    params: Vec<Param>,
    /// Made for the first instance in checked mode.
    prepared: OnceLock<Prepared>,
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Policy({})", self.inner.hash)
    }
}

impl Policy {
    /// A policy from its parts, as the loader puts it together.
    pub fn from_parts(
        program: Program,
        native: NativeTable,
        kernel: KernelProfile,
        hash: String,
        params: Vec<Param>,
    ) -> Policy {
        Policy {
            inner: Arc::new(Inner {
                program,
                native,
                kernel,
                hash,
                params,
                prepared: OnceLock::new(),
            }),
        }
    }

    pub fn program(&self) -> &Program {
        &self.inner.program
    }

    pub fn native(&self) -> &NativeTable {
        &self.inner.native
    }

    /// What the interpreter needs to run the program.
    pub(crate) fn prepared(&self) -> &Prepared {
        self.inner
            .prepared
            .get_or_init(|| Prepared::new(self.program()))
    }

    /// The kernel line this policy was resolved against.
    pub fn kernel(&self) -> &KernelProfile {
        &self.inner.kernel
    }

    /// BLAKE3 of the object, hexadecimal: the same bytes that a kernel would load.
    pub fn hash(&self) -> &str {
        &self.inner.hash
    }

    /// Declared parameters, in the object's order.
    pub fn params(&self) -> &[Param] {
        &self.inner.params
    }

    /// The scheduler variable called `name` (of the C variable or of the scheduler), or the only one.
    pub fn ops_var(&self, name: Option<&str>) -> Result<&OpsVar> {
        let all = &self.inner.program.structs;
        let list = || {
            all.iter()
                .map(|s| s.var.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        match name {
            Some(n) => all
                .iter()
                .find(|s| s.var == n)
                .or_else(|| all.iter().find(|s| s.name == n))
                .ok_or_else(|| {
                    LoadError::Setting(format!(
                        "no scheduler `{n}` in this object (it has: {})",
                        list()
                    ))
                }),
            None => match all.as_slice() {
                [one] => Ok(one),
                [] => Err(LoadError::NotAPolicy(
                    "it defines no struct sched_ext_ops".into(),
                )),
                _ => Err(LoadError::Setting(format!(
                    "the object defines several schedulers, name one: {}",
                    list()
                ))),
            },
        }
    }
}
