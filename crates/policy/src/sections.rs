// SPDX-License-Identifier: GPL-2.0-only
//! Data sections of an instance: initial bytes, parameters, constants, kernel configuration put in.
use crate::abi::Op;
use crate::arena::Arena;
use crate::error::{LoadError, Result};
use crate::instance::{Const, InstanceConfig};
use crate::ir::{Operation, Program, Section, Var};
use crate::policy::Policy;
use crate::profile::Kconfig;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock, Mutex, Weak};

/// A section's memory. Read-only ones with equal content are one block for all instances, others lie in the
/// instance's arena.
pub enum SectionData {
    Own(*mut u8, usize),
    Shared(Arc<[u64]>, usize),
    /// What only `ops.exit` reaches (its message is 1 KiB and more): made when that is called, or asked for, from the
    /// content, which is one block for all instances.
    Late(OnceCell<NonNull<u64>>, Arc<[u64]>, u32),
}

impl Drop for SectionData {
    fn drop(&mut self) {
        if let SectionData::Late(words, content, _) = self
            && let Some(words) = words.take()
        {
            let words = std::ptr::slice_from_raw_parts_mut(words.as_ptr(), content.len());
            // SAFETY: made from a box of this length in `base`, dropped once.
            drop(unsafe { Box::from_raw(words) });
        }
    }
}

impl SectionData {
    /// Where it is, made if need be.
    pub fn base(&self) -> *mut u8 {
        match self {
            SectionData::Own(base, _) => *base,
            SectionData::Shared(words, _) => words.as_ptr().cast_mut().cast(),
            SectionData::Late(words, content, _) => {
                let copy = || Box::leak(Box::<[u64]>::from(&content[..]));
                let words = words.get_or_init(|| NonNull::from(copy()).cast());
                words.as_ptr().cast()
            }
        }
    }

    /// Where it is, if it is there.
    pub fn place(&self) -> Option<*mut u8> {
        match self {
            SectionData::Late(words, ..) => words.get().map(|words| words.as_ptr().cast()),
            _ => Some(self.base()),
        }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            SectionData::Own(_, len) | SectionData::Shared(_, len) => *len,
            SectionData::Late(_, _, len) => *len as usize,
        }
    }
}

/// Which sections code reaches that begins at operations of `from` (or at programs of other kinds), by their number.
pub fn reached(program: &Program, from: impl Fn(Op) -> bool) -> Vec<bool> {
    let mut sections = vec![false; program.sections.len()];
    let mut funcs = vec![false; program.funcs.len()];
    let ops = program.structs.iter().flat_map(|s| &s.ops);
    let ops = ops.filter(|(op, _)| from(*op)).map(|(_, func)| *func);
    let others = program.syscalls.iter().map(|(_, func)| *func);
    let mut left: Vec<usize> = ops.chain(others).collect();
    while let Some(func) = left.pop() {
        if std::mem::replace(&mut funcs[func], true) {
            continue;
        }
        for insn in &program.funcs[func].insns {
            match insn.op {
                Operation::LoadSection { section, .. } => sections[section] = true,
                Operation::LoadFunc { func, .. } | Operation::CallFunc { func } => {
                    left.push(func);
                }
                _ => (),
            }
        }
    }
    sections
}

/// Is this section's memory made late?
pub fn is_late(section: &Section, content: &[u8], for_exit: bool) -> bool {
    for_exit && !section.readonly && !section.in_arena() && u32::try_from(content.len()).is_ok()
}

/// The initial content of all sections of `policy` for an instance.
pub fn content(policy: &Policy, config: &InstanceConfig) -> Result<Vec<Vec<u8>>> {
    let program = policy.program();
    let mut bytes: Vec<Vec<u8>> = program.sections.iter().map(|s| s.data.clone()).collect();
    let find = |name: &str| -> Option<(usize, &Var)> {
        program
            .sections
            .iter()
            .enumerate()
            .find_map(|(i, s)| s.vars.iter().find(|v| v.name == name).map(|v| (i, v)))
    };
    for param in policy.params() {
        if let Some((i, var)) = find(&param.name) {
            let value = match config.params.get(&param.name) {
                Some(text) => param.value(text)?,
                None => param.default,
            };
            put_int(&mut bytes[i], var, i128::from(value))?;
        }
    }
    for name in config.params.keys() {
        if !policy.params().iter().any(|p| p.name == *name) {
            let known: Vec<_> = policy.params().iter().map(|p| p.name.as_str()).collect();
            return Err(LoadError::Setting(format!(
                "the policy has no parameter `{name}` (it has: {})",
                known.join(", ")
            )));
        }
    }
    // What the user-space half of most sched_ext schedulers sets.
    if let Some((i, var)) = find("nr_cpu_ids") {
        put_int(&mut bytes[i], var, i128::from(config.nr_cpus))?;
    }
    for (name, value) in &config.consts {
        let (i, var) = find(name)
            .ok_or_else(|| LoadError::Setting(format!("the policy has no variable `{name}`")))?;
        match value {
            Const::Int(v) => put_int(&mut bytes[i], var, *v)?,
            Const::Bytes(b) => put_bytes(&mut bytes[i], var, b)?,
        }
    }
    for (i, section) in program.sections.iter().enumerate() {
        if section.name == ".kconfig" {
            for var in &section.vars {
                fill_kconfig(&mut bytes[i], var, policy, config)?;
            }
        }
    }
    Ok(bytes)
}

/// Memory with this content for each of `sections`; `None` if there is none. `in_arena` has room for the one that lies
/// in the policy's own arena.
pub fn build(
    policy: &Policy,
    content: &[Vec<u8>],
    arena: &mut Arena,
    in_arena: Option<*mut u8>,
) -> Option<Vec<SectionData>> {
    let each = policy.program().sections.iter().zip(content);
    let each = each.zip(policy.for_exit());
    each.map(|((section, bytes), for_exit)| {
        if section.readonly {
            return Some(SectionData::Shared(shared(bytes), bytes.len()));
        }
        if is_late(section, bytes, *for_exit) {
            let len = bytes.len() as u32; // as `is_late` has looked
            return Some(SectionData::Late(OnceCell::new(), shared(bytes), len));
        }
        let base = match section.in_arena() {
            true => in_arena?,
            false => arena.take(bytes.len().next_multiple_of(8).max(8), 8)?,
        };
        // SAFETY: the piece has so many bytes.
        unsafe { base.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Some(SectionData::Own(base, bytes.len()))
    })
    .collect()
}

fn put_int(bytes: &mut [u8], var: &Var, value: i128) -> Result<()> {
    let size = var.size as usize;
    let bits = size * 8;
    let fits = match size {
        1 | 2 | 4 | 8 => value >= -(1i128 << (bits - 1)) && value < (1i128 << bits),
        _ => false,
    };
    if !fits {
        return Err(LoadError::Setting(format!(
            "{value} does not fit variable {} of {size} bytes",
            var.name
        )));
    }
    let start = var.offset as usize;
    bytes[start..start + size].copy_from_slice(&value.to_le_bytes()[..size]);
    Ok(())
}

fn put_bytes(bytes: &mut [u8], var: &Var, value: &[u8]) -> Result<()> {
    if value.len() > var.size as usize {
        return Err(LoadError::Setting(format!(
            "{} bytes do not fit variable {} of {} bytes",
            value.len(),
            var.name,
            var.size
        )));
    }
    let start = var.offset as usize;
    bytes[start..start + value.len()].copy_from_slice(value);
    Ok(())
}

fn fill_kconfig(
    bytes: &mut [u8],
    var: &Var,
    policy: &Policy,
    config: &InstanceConfig,
) -> Result<()> {
    if var.name == "LINUX_KERNEL_VERSION" {
        return put_int(bytes, var, i128::from(policy.kernel().version_code()));
    }
    match config
        .kconfig
        .get(&var.name)
        .or_else(|| policy.kernel().config.get(&var.name))
    {
        Some(Kconfig::Bool(b)) => put_int(bytes, var, i128::from(*b)),
        Some(Kconfig::Int(n)) => put_int(bytes, var, i128::from(*n)),
        Some(Kconfig::Text(t)) => put_bytes(bytes, var, t.as_bytes()),
        None if var.tags.iter().any(|t| t == WEAK_TAG) => Ok(()),
        None => Err(LoadError::Setting(format!(
            "the policy needs {} and neither the scenario's machine nor kernel profile {} has it",
            var.name,
            policy.kernel().name()
        ))),
    }
}

/// Marks a `__weak` external in [`Var::tags`]: zero if unknown.
pub const WEAK_TAG: &str = "berth:weak";

/// One block for all who have this content.
fn shared(bytes: &[u8]) -> Arc<[u64]> {
    let mut words = vec![0u64; bytes.len().div_ceil(8).max(1)];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut w = [0u8; 8];
        w[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(w).to_le();
    }
    type Blocks = BTreeMap<[u8; 32], Weak<[u64]>>;
    static SHARED: LazyLock<Mutex<Blocks>> = LazyLock::new(Mutex::default);
    let key = *blake3::hash(bytes).as_bytes();
    let mut shared = SHARED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(block) = shared.get(&key).and_then(Weak::upgrade) {
        return block;
    }
    shared.retain(|_, block| block.strong_count() > 0);
    let block: Arc<[u64]> = words.into();
    shared.insert(key, Arc::downgrade(&block));
    block
}
