// SPDX-License-Identifier: GPL-2.0-only
//! The shipped policies, compiled and translated at build time.
use berth_policy::error::Result;
use berth_policy::native::NativeTable;
use berth_policy::policy::{LoadOptions, Policy};
use std::io::Read;
use std::sync::OnceLock;

/// A policy of this distribution.
#[derive(Debug)]
pub struct Builtin {
    /// The file's name without `.bpf.c`.
    pub name: &'static str,
    /// A model of the literature (`policies/study`), not for production hosts.
    pub study: bool,
    /// The compiled BPF object, packed by zstd,
    packed: &'static [u8],
    /// and unpacked, once somebody has asked for it.
    object: OnceLock<Vec<u8>>,
    /// The C source it was compiled from.
    pub source: &'static str,
    native: Native,
}

/// Address of a table linked into this program.
#[derive(Debug)]
struct Native(*const NativeTable);

// SAFETY: immutable data with static lifetime.
unsafe impl Sync for Native {}

include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

/// All shipped policies: supported ones first, then studies, each by name.
pub fn all() -> &'static [Builtin] {
    &ALL
}

/// The shipped policy called `name`.
pub fn find(name: &str) -> Option<&'static Builtin> {
    ALL.iter().find(|b| b.name == name)
}

/// Stands in for the kernel's own scheduler where there is no kernel: arms and guests called `linux`.
///
/// # Panics
/// Never: a test holds that it is shipped.
pub fn linux_model() -> &'static Builtin {
    find(LINUX_MODEL).expect("the model of Linux is shipped")
}

/// Name of [`linux_model`].
pub const LINUX_MODEL: &str = "eevdf";

impl Builtin {
    /// Load it. For the default kernel profile nothing is compiled; another profile may fold other
    /// branches away and is compiled once, then cached.
    ///
    /// # Errors
    /// As [`Policy::from_object`].
    pub fn load(&self, options: &LoadOptions) -> Result<Policy> {
        Policy::from_linked(self.object(), self.native(), options)
    }

    /// The compiled BPF object: the bytes a kernel loads. Unpacked at the first call, in some milliseconds.
    ///
    /// # Panics
    /// Never: a test unpacks all.
    pub fn object(&self) -> &[u8] {
        self.object.get_or_init(|| {
            let mut object = Vec::new();
            let mut packed = self.packed;
            ruzstd::decoding::StreamingDecoder::new(&mut packed)
                .map_err(std::io::Error::other)
                .and_then(|mut decoder| decoder.read_to_end(&mut object))
                .expect("what the build has packed");
            object
        })
    }

    /// Its native code for the default kernel profile.
    pub fn native(&self) -> &'static NativeTable {
        // SAFETY: a table of the static archive, written by the emitter.
        unsafe { &*self.native.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_policy::abi::Op;
    use berth_policy::cache;
    use berth_policy::{emit, object, profile::KernelProfile};

    #[test]
    fn shipped_policies_load_from_their_linked_code() {
        assert!(find("vmfair").is_some(), "the default policy is shipped");
        assert!(find("nothing").is_none());
        assert_eq!(linux_model().name, LINUX_MODEL);
        for builtin in all() {
            let policy = builtin.load(&LoadOptions::default()).unwrap();
            let made = format!("{}/{}.bpf.o", env!("OUT_DIR"), builtin.name);
            assert!(
                builtin.object() == std::fs::read(made).unwrap(),
                "{}",
                builtin.name
            );
            let program = object::load(builtin.object(), &KernelProfile::default()).unwrap();
            let translation = emit::translate(&program, cache::TABLE_NAME, emit::Guarding::Trusted);
            assert_eq!(
                policy.native().key_text(),
                translation.key,
                "{}",
                builtin.name
            );
            assert_eq!(policy.native().functions().len(), program.funcs.len());
            let ops = &policy.ops_var(None).unwrap().ops;
            assert!(
                ops.iter().any(|(op, _)| *op == Op::Enqueue),
                "{}",
                builtin.name
            );
        }
    }
}
