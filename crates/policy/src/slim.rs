// SPDX-License-Identifier: GPL-2.0-only
//! Objects without DWARF: debuggers read it, and nothing else. Types and lines are in `.BTF` and `.BTF.ext`.
use object::build::elf::{Builder, SectionData};
use object::elf::SHT_STRTAB;

/// The same object without its `.debug_` sections, which are two thirds of it; none where it is no ELF file that can be
/// written anew.
pub(crate) fn without_dwarf(object: &[u8]) -> Option<Vec<u8>> {
    let mut elf = Builder::read(object).ok()?;
    let about = [".debug_", ".rel.debug_", ".rela.debug_"];
    for section in elf.sections.iter_mut() {
        let name = section.name.to_string();
        section.delete |= about.iter().any(|prefix| name.starts_with(prefix));
    }
    // clang has one table for names of sections and symbols; written anew they are two.
    let mut data = elf.sections.iter().map(|s| &s.data);
    if !data.any(|data| matches!(data, SectionData::SectionString)) {
        let names = elf.sections.add();
        (names.name, names.data) = (".shstrtab".into(), SectionData::SectionString);
        (names.sh_type, names.sh_addralign) = (SHT_STRTAB, 1);
    }
    let mut out = Vec::new();
    elf.write(&mut out).ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{CompileOptions, compile_to, with_dwarf};
    use crate::identity;
    use crate::policy::{LoadOptions, Policy};

    #[test]
    fn what_a_policy_does_is_the_same_without() {
        let folder = tempfile::tempdir().unwrap();
        let (source, out) = (folder.path().join("p.bpf.c"), folder.path().join("p.o"));
        let text = "#include <scx/common.bpf.h>\nchar _license[] SEC(\"license\") = \"GPL\";\n\
                    const volatile u64 slice_ns = 5000000;\nstatic u64 seen[4];\n\
                    void BPF_STRUCT_OPS(p_enqueue, struct task_struct *p, u64 flags)\n{\n\tseen[p->pid & 3]++;\n\
                    \tscx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, flags);\n}\n\
                    SCX_OPS_DEFINE(p_ops, .enqueue = (void *)p_enqueue, .name = \"p\");\n";
        std::fs::write(&source, text).unwrap();
        with_dwarf(&source, &out, &CompileOptions::default(), None).unwrap();
        let whole = std::fs::read(&out).unwrap();
        compile_to(&source, &out, &CompileOptions::default()).unwrap();
        let slim = std::fs::read(&out).unwrap();
        assert!(whole.windows(7).any(|w| w == b".debug_"));
        assert!(!slim.windows(7).any(|w| w == b".debug_"));
        assert!(
            slim.len() * 2 < whole.len(),
            "{} of {}",
            slim.len(),
            whole.len()
        );
        assert_eq!(identity::hash(&slim), identity::hash(&whole));
        let options = LoadOptions::default();
        let [slim, whole] = [slim, whole].map(|o| Policy::from_object(&o, &options).unwrap());
        assert_eq!(
            slim.program().sections.len(),
            whole.program().sections.len()
        );
    }

    #[test]
    fn what_is_no_object_is_left() {
        assert_eq!(without_dwarf(b"no object"), None);
        assert_eq!(without_dwarf(b""), None);
    }
}
