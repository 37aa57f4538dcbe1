// SPDX-License-Identifier: GPL-2.0-only
//! A loaded policy: program, native code, parameters. Cheap to clone, shared by all its instances.
use crate::abi::Op;
use crate::compile::CompileOptions;
use crate::emit::{self, Guarding};
use crate::error::{LoadError, Result};
use crate::interp::Prepared;
use crate::ir::{OpsVar, Program};
use crate::native::NativeTable;
use crate::needs::Needs;
use crate::params::Param;
use crate::presets::Preset;
use crate::profile::KernelProfile;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// How to load a policy.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    pub kernel: KernelProfile,
    pub compile: CompileOptions,
    /// Its code is trusted with this process's memory: no access is checked. For policies that kernels' verifiers have
    /// passed.
    pub trusted: bool,
}

/// A policy ready to be instantiated on any number of machines.
#[derive(Clone)]
pub struct Policy {
    inner: Arc<Inner>,
}

struct Inner {
    program: Program,
    native: NativeTable,
    guarding: Guarding,
    kernel: KernelProfile,
    hash: String,
    params: Vec<Param>,
    presets: Vec<Preset>,
    /// Made for the first instance in checked mode.
    prepared: OnceLock<Prepared>,
    for_exit: OnceLock<Vec<bool>>,
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
        guarding: Guarding,
        kernel: KernelProfile,
        hash: String,
        params: Vec<Param>,
        presets: Vec<Preset>,
    ) -> Policy {
        Policy {
            inner: Arc::new(Inner {
                program,
                native,
                guarding,
                kernel,
                hash,
                params,
                presets,
                prepared: OnceLock::new(),
                for_exit: OnceLock::new(),
            }),
        }
    }

    /// The hypervisor whose rules the policy says go with it (`BERTH_HYPERVISOR` in `param.bpf.h`): `xen`, or nothing,
    /// which is KVM.
    pub fn hypervisor(&self) -> Option<&str> {
        let vars = self.inner.program.sections.iter().flat_map(|s| &s.vars);
        let mut tags = vars.flat_map(|v| &v.tags);
        tags.find_map(|tag| tag.strip_prefix("berth:hypervisor name="))
    }

    /// Load a compiled object and make it executable (translated, compiled, cached). Its code is guarded unless the
    /// options trust it.
    ///
    /// # Errors
    /// Not a policy, broken, or it uses what the simulator does not have, by name.
    pub fn from_object(bytes: &[u8], options: &LoadOptions) -> Result<Policy> {
        let program = crate::object::load(bytes, &options.kernel)?;
        let guarding = match options.trusted && program.verified() {
            true => Guarding::Trusted,
            false => Guarding::Guarded,
        };
        let translation = emit::translate(&program, crate::cache::TABLE_NAME, guarding);
        let native = crate::cache::native(&translation)?;
        Self::finish(program, native, guarding, bytes, options)
    }

    /// As [`Policy::from_object`] with native code that was linked into this program, and is trusted; used if it was
    /// made from the same translation, else the object is compiled like any other.
    pub fn from_linked(
        bytes: &[u8],
        linked: &NativeTable,
        options: &LoadOptions,
    ) -> Result<Policy> {
        let program = crate::object::load(bytes, &options.kernel)?;
        if !program.verified() {
            return Self::from_object(bytes, options);
        }
        let guarding = Guarding::Trusted;
        let translation = emit::translate(&program, crate::cache::TABLE_NAME, guarding);
        let native = if linked.key_text() == translation.key {
            crate::native::register(linked);
            *linked
        } else {
            crate::cache::native(&translation)?
        };
        Self::finish(program, native, guarding, bytes, options)
    }

    /// Compile `source` with clang and load the object.
    ///
    /// # Errors
    /// The compiler's message with file and line; then as [`Policy::from_object`].
    pub fn from_source(source: &Path, options: &LoadOptions) -> Result<Policy> {
        Self::from_object(&crate::compile::compile(source, &options.compile)?, options)
    }

    /// Load `path`: an object if its name ends in `.o`, else C source.
    ///
    /// # Errors
    /// As [`Policy::from_source`] and [`Policy::from_object`].
    pub fn from_path(path: &Path, options: &LoadOptions) -> Result<Policy> {
        if path.extension().is_some_and(|e| e == "o") {
            let bytes = std::fs::read(path).map_err(|source| LoadError::Read {
                path: path.to_path_buf(),
                source,
            })?;
            return Self::from_object(&bytes, options);
        }
        Self::from_source(path, options)
    }

    fn finish(
        program: Program,
        native: NativeTable,
        guarding: Guarding,
        bytes: &[u8],
        options: &LoadOptions,
    ) -> Result<Policy> {
        let params = crate::params::declared(&program)?;
        let presets = crate::presets::declared(&program, &params)?;
        let hash = crate::identity::hash(bytes);
        Ok(Policy::from_parts(
            program,
            native,
            guarding,
            options.kernel.clone(),
            hash,
            params,
            presets,
        ))
    }

    pub fn program(&self) -> &Program {
        &self.inner.program
    }

    /// What it can reach of the kernel's objects.
    pub fn needs(&self) -> Needs {
        self.inner.program.needs
    }

    /// Whether its native code checks what it touches.
    pub fn guarding(&self) -> Guarding {
        self.inner.guarding
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

    /// Sections that no code but `ops.exit` reaches.
    pub(crate) fn for_exit(&self) -> &[bool] {
        self.inner.for_exit.get_or_init(|| {
            let mut alone = crate::sections::reached(self.program(), |op| op != Op::Exit);
            alone.iter_mut().for_each(|reached| *reached = !*reached);
            alone
        })
    }

    /// The kernel line this policy was resolved against.
    pub fn kernel(&self) -> &KernelProfile {
        &self.inner.kernel
    }

    /// See [`crate::identity`].
    pub fn hash(&self) -> &str {
        &self.inner.hash
    }

    /// Declared parameters, in the object's order.
    pub fn params(&self) -> &[Param] {
        &self.inner.params
    }

    /// Refuses a machine with more possible CPUs than the policy has tables for (`BERTH_MOST_CPUS`).
    ///
    /// # Errors
    /// Both numbers.
    pub fn fits(&self, cpus: u32) -> Result<()> {
        let sections = &self.program().sections;
        let mut tags = sections.iter().flat_map(|s| &s.vars).flat_map(|v| &v.tags);
        let most = tags.find_map(|t| t.strip_prefix("berth:limit cpus="));
        match most.map(str::parse::<u32>) {
            Some(Ok(most)) if cpus > most => Err(LoadError::Setting(format!(
                "the policy's tables end at {most} CPUs, and this machine has {cpus}: give it fewer, or take another \
                 policy"
            ))),
            Some(Err(_)) => Err(LoadError::Broken(format!(
                "`{most:?}` is no number of CPUs"
            ))),
            _ => Ok(()),
        }
    }

    /// Declared presets, in the object's order.
    pub fn presets(&self) -> &[Preset] {
        &self.inner.presets
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
