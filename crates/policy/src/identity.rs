// SPDX-License-Identifier: GPL-2.0-only
//! What makes two objects the same policy: code, data, maps, parameters, and the names they refer to, but neither what
//! they tell people nor where and in what order the compiler put types and debug information. (clang orders some types
//! by their addresses in its own memory, so the same source gives other bytes in a folder of another name.) Presets are
//! names for values; the values that a run had are in its record.
use crate::btf::Btf;
use crate::elf::Elf;
use crate::error::Result;
use crate::map_defs;
use crate::presets;

/// Sections that say how code came to be, or name values for it, not what it does.
fn about_the_source(name: &str) -> bool {
    name == presets::SECTION
        || [
            ".BTF",
            ".debug_",
            ".rel",
            ".strtab",
            ".symtab",
            ".llvm_addrsig",
            ".shstrtab",
        ]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// A declaration (policies/include/berth/param.bpf.h) up to its words for people, which come last.
fn without_help(tag: &str) -> &str {
    tag.split_once(" help=").map_or(tag, |(told, _)| told)
}

/// Of a variable's name, its part and a declaration on it: whether that is of a preset.
fn of_preset(tag: &str) -> bool {
    tag.splitn(3, ' ').nth(2).is_some_and(presets::is_one)
}

/// BLAKE3, hexadecimal, of what a kernel would run of this object; of all its bytes if they cannot be read as a policy.
pub fn hash(bytes: &[u8]) -> String {
    read(bytes).unwrap_or_else(|_| blake3::hash(bytes).to_hex().to_string())
}

fn read(bytes: &[u8]) -> Result<String> {
    let elf = Elf::parse(bytes)?;
    let mut hasher = blake3::Hasher::new();
    let mut text = |part: &str| {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    };
    if let Some((_, section)) = elf.section(".BTF") {
        let btf = Btf::parse(&section.data)?;
        for map in map_defs::read(&elf, &btf)? {
            // What most maps do not have is not said: hashes of before it could be said hold.
            let said = format!("{:?}", map.def);
            text(&said.replace(", inner: [], extra: 0 }", " }"));
        }
        // Parameters are strings; their order is the compiler's, and what is told people runs nowhere.
        let tags = btf.tags();
        let tags = tags.iter().filter(|tag| !of_preset(tag));
        let mut tags: Vec<&str> = tags.map(|tag| without_help(tag)).collect();
        tags.sort_unstable();
        tags.iter().for_each(|tag| text(tag));
    }
    for section in elf.sections.iter().filter(|s| !about_the_source(&s.name)) {
        text(&section.name);
        for (offset, relocation) in &section.relocations {
            let symbol = &elf.symbols[relocation.symbol];
            let home = symbol.section.map_or("", |i| elf.sections[i].name.as_str());
            text(&format!(
                "{offset} {} {home} {} {}",
                symbol.name, symbol.value, relocation.addend
            ));
        }
        text(&blake3::hash(&section.data).to_hex());
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use crate::compile::{CompileOptions, compile_to};
    use std::path::Path;

    /// The hash of a policy compiled in a folder of this name.
    fn compiled(folder: &Path, source: &str) -> (Vec<u8>, String) {
        std::fs::create_dir_all(folder).unwrap();
        let file = folder.join("same.bpf.c");
        std::fs::write(&file, source).unwrap();
        let out = folder.join("same.bpf.o");
        let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/include");
        let options = CompileOptions {
            include: vec![shared],
            ..CompileOptions::default()
        };
        compile_to(&file, &out, &options).unwrap();
        let bytes = std::fs::read(out).unwrap();
        let hash = super::hash(&bytes);
        (bytes, hash)
    }

    const SOURCE: &str = r#"
#include <scx/common.bpf.h>
#include "berth/param.bpf.h"
char _license[] SEC("license") = "GPL";
BERTH_PARAM(u64, step, "count", 1, 1, 9, "What is added");
BERTH_PRESET(far, "far", "step=9", "As far as it goes");
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, u32);
	__type(value, u64);
} counts SEC(".maps");
void BPF_STRUCT_OPS(same_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 slot = 0;
	u64 *count = bpf_map_lookup_elem(&counts, &slot);

	if (count)
		*count += step;
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
}
SCX_OPS_DEFINE(same_ops, .enqueue = (void *)same_enqueue, .name = "same");
"#;

    #[test]
    fn the_hash_is_that_of_what_runs() {
        let folder = std::env::temp_dir().join(format!("berth-identity-{}", std::process::id()));
        let (_, here) = compiled(&folder.join("a"), SOURCE);
        let (_, there) = compiled(&folder.join("another/and/much/deeper/folder"), SOURCE);
        assert_eq!(here, there, "where it is compiled does not matter");
        for (from, to) in [
            ("u32 slot = 0;", "u32 slot = 0; /* the first */"),
            ("What is added", "What is added to each"),
            (
                "(far, \"far\", \"step=9\", \"As far as it goes\")",
                "(wide, \"wide\", \"step=8\", \"Eight at once\")",
            ),
            (
                "struct {\n",
                "BERTH_PRESET(near, \"near\", \"step=2\", \"Not far\");\nstruct {\n",
            ),
            (
                "BERTH_PRESET(far, \"far\", \"step=9\", \"As far as it goes\");\n",
                "",
            ),
        ] {
            let told = SOURCE.replace(from, to);
            assert_ne!(told, SOURCE);
            assert_eq!(here, compiled(&folder.join("a"), &told).1, "{to}");
        }
        for (from, to) in [
            ("*count += step", "*count += 2 * step"),
            ("\"count\", 1, 1, 9", "\"count\", 1, 1, 8"),
            ("max_entries, 4", "max_entries, 5"),
            (
                "scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL",
                "scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL",
            ),
            (".name = \"same\"", ".name = \"other\""),
            ("struct {\n", "const volatile u8 more = 1;\nstruct {\n"),
        ] {
            let changed = SOURCE.replace(from, to);
            assert_ne!(changed, SOURCE);
            assert_ne!(here, compiled(&folder.join("a"), &changed).1, "{to}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
