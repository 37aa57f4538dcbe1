// SPDX-License-Identifier: GPL-2.0-only
//! Every helper and kfunc that policies may call in the simulator, in one table. The documentation page
//! "what the simulator supports" is generated from it; a call to anything else is refused by name.
//!
//! To add one: add a row in `table_rows.rs` (its position is its id), then its code: [`Home::Runtime`] and
//! [`Home::Inline`] in `runtime/`, [`Home::Kernel`] in the simulator's list given to
//! [`crate::instance::KernelVtable::new`], which names what is missing.
use crate::abi::Op;
use crate::table_rows::ROWS;
use std::sync::LazyLock;

/// Where the function's code is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// In `rt.h`, inlined into translated code, and in the interpreter.
    Inline,
    /// In this crate (maps, masks, strings, memory): needs no machine.
    Runtime,
    /// In the simulator's kernel model.
    Kernel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// BPF helper with its number.
    Helper(u32),
    /// Kernel function found by name (after the last `___suffix` is cut off).
    Kfunc,
}

/// Contexts in which a call is legal; elsewhere the kernel ejects the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contexts {
    Any,
    Only(&'static [Op]),
    Except(&'static [Op]),
}

impl Contexts {
    pub fn allows(self, op: Op) -> bool {
        match self {
            Contexts::Any => true,
            Contexts::Only(ops) => ops.contains(&op),
            Contexts::Except(ops) => !ops.contains(&op),
        }
    }

    /// The same, as bits by the operations' numbers.
    pub const fn bits(self) -> u64 {
        const fn of(ops: &[Op]) -> u64 {
            let mut bits = 0;
            let mut i = 0;
            while i < ops.len() {
                bits |= 1 << ops[i] as u32;
                i += 1;
            }
            bits
        }
        match self {
            Contexts::Any => u64::MAX,
            Contexts::Only(ops) => of(ops),
            Contexts::Except(ops) => !of(ops),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct KernelFunc {
    /// Index into the function table of [`crate::abi::Inst::fns`].
    pub id: u16,
    pub name: &'static str,
    pub kind: Kind,
    pub home: Home,
    pub contexts: Contexts,
    /// Kernel lines that have it: first (inclusive) and last (exclusive) version, `(0, 0)` = always / still.
    pub since: (u16, u16),
    pub until: (u16, u16),
    /// C prototype, kernel's names, for the docs page and the comparison of flavours.
    pub proto: &'static str,
}

impl KernelFunc {
    /// Number of parameters in the prototype.
    pub fn parameters(&self) -> usize {
        let list = self.proto.split_once('(').map_or("", |(_, l)| l);
        if list.starts_with("void)") {
            0
        } else {
            list.matches(',').count() + 1
        }
    }

    /// Does it return anything?
    pub fn returns(&self) -> bool {
        !self.proto.starts_with("void ") || self.proto.starts_with("void *")
    }

    /// Does a kernel of this version have it?
    pub fn in_kernel(&self, version: (u16, u16)) -> bool {
        version >= self.since && (self.until == (0, 0) || version < self.until)
    }
}

/// All functions, [`KernelFunc::id`] being the position.
pub static FUNCS: LazyLock<Vec<KernelFunc>> = LazyLock::new(|| {
    ROWS.iter()
        .enumerate()
        .map(|(i, r)| KernelFunc {
            id: i as u16,
            name: name_in(r.5),
            kind: r.0,
            home: r.1,
            contexts: r.2,
            since: r.3,
            until: r.4,
            proto: r.5,
        })
        .collect()
});

/// The function's name in a C prototype: the identifier before the first parenthesis.
fn name_in(proto: &'static str) -> &'static str {
    let head = &proto[..proto.find('(').unwrap_or(proto.len())];
    let start = head
        .rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .map_or(0, |i| i + 1);
    &head[start..]
}

/// The operations from which the kernel function of this name may be called, as bits by their number; all for `Any`.
/// For constants: a name without a row does not compile.
///
/// # Panics
/// There is no row of this name.
pub const fn contexts(name: &str) -> u64 {
    let mut i = 0;
    while i < ROWS.len() {
        if is_of(ROWS[i].5, name) {
            return ROWS[i].2.bits();
        }
        i += 1;
    }
    panic!("no row of this name in table_rows.rs")
}

/// Is it this function's prototype? The name stands before the first parenthesis.
const fn is_of(proto: &str, name: &str) -> bool {
    let (proto, name) = (proto.as_bytes(), name.as_bytes());
    let mut end = 0;
    while end < proto.len() && proto[end] != b'(' {
        end += 1;
    }
    if end <= name.len() {
        return false;
    }
    let start = end - name.len();
    let mut i = 0;
    while i < name.len() {
        if proto[start + i] != name[i] {
            return false;
        }
        i += 1;
    }
    matches!(proto[start - 1], b' ' | b'*')
}

/// The BPF helper with this number.
pub fn helper_by_number(number: u32) -> Option<&'static KernelFunc> {
    FUNCS.iter().find(|f| f.kind == Kind::Helper(number))
}

/// The row of a helper or kfunc by its exact kernel name.
pub fn by_name(name: &str) -> Option<&'static KernelFunc> {
    FUNCS.iter().skip(1).find(|f| f.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_unique() {
        let mut names: Vec<_> = FUNCS.iter().map(|f| f.name).collect();
        names.sort_unstable();
        names.windows(2).for_each(|w| assert_ne!(w[0], w[1]));
        let mut numbers: Vec<_> = FUNCS
            .iter()
            .filter_map(|f| match f.kind {
                Kind::Helper(n) => Some(n),
                Kind::Kfunc => None,
            })
            .collect();
        numbers.sort_unstable();
        numbers.windows(2).for_each(|w| assert_ne!(w[0], w[1]));
        assert_eq!(by_name("scx_bpf_dsq_insert___v2").unwrap().since, (6, 19));
        assert_eq!(helper_by_number(1).unwrap().name, "bpf_map_lookup_elem");
    }

    #[test]
    fn contexts_by_name_are_the_rows() {
        for f in FUNCS.iter() {
            let bits = contexts(f.name);
            for op in Op::ALL {
                assert_eq!(
                    f.contexts.allows(*op),
                    bits >> *op as u32 & 1 != 0,
                    "{} in {}",
                    f.name,
                    op.name()
                );
            }
        }
    }
}
