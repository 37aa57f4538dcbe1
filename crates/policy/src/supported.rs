// SPDX-License-Identifier: GPL-2.0-only
//! The page "what the simulator supports", from the same tables the loader uses.
use crate::abi::{KSYMS, Op};
use crate::kview::{STRUCTS, Ty};
use crate::maps::kind;
use crate::profile::KernelProfile;
use crate::table::{Contexts, FUNCS, Kind};
use std::fmt::Write;

/// Map types and what is worth knowing about them.
const MAPS: &[(&str, u32, &str)] = &[
    ("HASH", kind::HASH, "walked in the order of insertion slots"),
    ("ARRAY", kind::ARRAY, "lookups inline"),
    ("PERCPU_HASH", kind::PERCPU_HASH, ""),
    (
        "PERCPU_ARRAY",
        kind::PERCPU_ARRAY,
        "lookups inline; sized to the machine's CPUs",
    ),
    ("LRU_HASH", kind::LRU_HASH, ""),
    ("LRU_PERCPU_HASH", kind::LRU_PERCPU_HASH, ""),
    (
        "ARRAY_OF_MAPS",
        kind::ARRAY_OF_MAPS,
        "with the maps of its `.values`; without any, one of its template for each element",
    ),
    (
        "HASH_OF_MAPS",
        kind::HASH_OF_MAPS,
        "with the maps of its `.values`",
    ),
    ("QUEUE", kind::QUEUE, ""),
    ("STACK", kind::STACK, ""),
    (
        "RINGBUF",
        kind::RINGBUF,
        "records are counted, kept only if asked for",
    ),
    (
        "PERF_EVENT_ARRAY",
        kind::PERF_EVENT_ARRAY,
        "no counters: reads give -ENOENT",
    ),
    ("TASK_STORAGE", kind::TASK_STORAGE, "lookups inline"),
    ("CGRP_STORAGE", kind::CGRP_STORAGE, "lookups inline"),
    (
        "ARENA",
        kind::ARENA,
        "memory of the instance; a page that was not asked for is a bad access (kernels read zeros and write nothing)",
    ),
];

/// What is refused by name, and why.
const REFUSED: &[(&str, &str)] = &[
    ("other map types (see below)", "not modelled"),
    (
        "bpf_wq, lists and trees in map values, counted references (bpf_refcount), user ring buffers",
        "not modelled",
    ),
    ("tail calls, callx, exceptions", "no scheduler needs them"),
    (
        "pointers in initialised data",
        "an object has no place for them that instances could share",
    ),
    (
        "struct sched_ext_ops_cid",
        "CPUs are numbered as in struct sched_ext_ops",
    ),
    (
        "fentry, kprobe, tracepoint programs",
        "skipped: there is no kernel to attach them to",
    ),
];

/// The page in Markdown.
pub fn page() -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out);
    out
}

fn write(out: &mut String) -> std::fmt::Result {
    writeln!(out, "# What the simulator supports of sched_ext\n")?;
    writeln!(
        out,
        "Generated from the tables the loader uses (`make docs`). A policy that needs anything else is refused at\n\
         load, naming the function, field, map type or operation; code that cannot be reached does not count.\n"
    )?;
    writeln!(
        out,
        "Kernel profiles: {}; by default {}. What 7.3 added (schedulers below a scheduler and what they may do, tasks\n\
         rescued from them) is not there.\n",
        KernelProfile::NAMES.join(", "),
        KernelProfile::default().name()
    )?;
    writeln!(out, "## Operations\n")?;
    let ops: Vec<_> = Op::ALL
        .iter()
        .filter(|o| !o.name().starts_with('('))
        .map(|o| format!("`{}`", o.name()))
        .collect();
    writeln!(out, "{}.\n", ops.join(", "))?;
    writeln!(
        out,
        "## Map types\n\n| type | number | notes |\n|---|---|---|"
    )?;
    for (name, number, note) in MAPS {
        writeln!(out, "| {name} | {number} | {note} |")?;
    }
    writeln!(
        out,
        "\n## Functions\n\nA call from an operation that is not listed ejects the policy, as in the kernel.\n"
    )?;
    for (title, wanted) in [("Helpers", true), ("Kernel functions", false)] {
        writeln!(
            out,
            "### {title}\n\n| prototype | kernels | may be called from |\n|---|---|---|"
        )?;
        let mut rows: Vec<_> = FUNCS
            .iter()
            .skip(1)
            .filter(|f| matches!(f.kind, Kind::Helper(_)) == wanted)
            .collect();
        rows.sort_by_key(|f| f.name);
        for f in rows {
            let kernels = match (f.since, f.until) {
                ((0, 0), (0, 0)) => "all".to_string(),
                ((a, b), (0, 0)) => format!("{a}.{b} and newer"),
                ((0, 0), (c, d)) => format!("before {c}.{d}"),
                ((a, b), (c, d)) => format!("{a}.{b} to before {c}.{d}"),
            };
            writeln!(
                out,
                "| `{}` | {kernels} | {} |",
                f.proto,
                contexts(f.contexts)
            )?;
        }
        writeln!(out)?;
    }
    writeln!(out, "## Kernel variables\n\n{}.\n", KSYMS.join(", "))?;
    writeln!(
        out,
        "## Kernel structures\n\nFields a policy may read; CO-RE relocations are resolved against them by name.\n\n\
         | structure | fields |\n|---|---|"
    )?;
    for s in STRUCTS {
        let fields: Vec<_> = s
            .fields
            .iter()
            .filter(|f| !f.name.starts_with("berth_"))
            .map(|f| format!("{}{}", f.name, array(f.ty)))
            .collect();
        writeln!(out, "| `{}` | {} |", s.name, fields.join(", "))?;
    }
    writeln!(out, "\n## Refused\n\n| what | why |\n|---|---|")?;
    for (what, why) in REFUSED {
        writeln!(out, "| {what} | {why} |")?;
    }
    let lacking: Vec<String> = lacking_maps()
        .iter()
        .map(|(n, name)| format!("{name} ({n})"))
        .collect();
    writeln!(
        out,
        "\nMap types that kernels have and Berth lacks: {}.\n",
        lacking.join(", ")
    )?;
    writeln!(
        out,
        "Kernel functions that a scheduler might call and Berth lacks: {}.",
        lacking_functions().join(", ")
    )
}

/// Of program types that no scheduler is: what functions are for that Berth need not name.
const OTHERS: [&str; 22] = [
    "crypto",
    "ct_",
    "_ct",
    "cubictcp",
    "dmabuf",
    "fentry",
    "hid_",
    "icmp",
    "io_uring",
    "key",
    "kfunc_call",
    "kmem_cache",
    "ksock",
    "modify_return",
    "pkcs7",
    "session",
    "_sk_",
    "skb",
    "sock",
    "tcp",
    "wakeup_sources",
    "xdp",
];

/// Kernel functions of the headers (`vmlinux.h`: a kernel's own list) that a scheduler might call and Berth lacks, by
/// name; none if the headers cannot be unpacked.
pub fn lacking_functions() -> Vec<String> {
    let text = crate::headers::folder().ok();
    let text = text.and_then(|dir| std::fs::read_to_string(dir.join("vmlinux/vmlinux.h")).ok());
    let text = text.unwrap_or_default();
    let declared = text.lines().filter(|line| line.ends_with("__ksym;"));
    let names = declared.filter_map(|line| {
        let head = line.split('(').next()?;
        let start = head.rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
        Some(&head[start + 1..])
    });
    let ours = |name: &str| name.starts_with("scx_") || name.starts_with("bpf_");
    let other = |name: &str| OTHERS.iter().any(|word| name.contains(word));
    let names = names.filter(|name| ours(name) && !other(name));
    let mut names: Vec<String> = names
        .filter(|name| crate::table::by_name(name).is_none())
        .map(str::to_string)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Map types that kernels have and Berth lacks, by number.
pub fn lacking_maps() -> Vec<(usize, &'static str)> {
    let all = kind::NAMES.iter().copied().enumerate().skip(1);
    // Not one that a scheduler makes itself.
    let all = all.filter(|(_, name)| *name != "STRUCT_OPS");
    all.filter(|(n, _)| !MAPS.iter().any(|(_, have, _)| *have as usize == *n))
        .collect()
}

fn array(ty: Ty) -> String {
    match ty {
        Ty::Array(_, count) => format!("[{count}]"),
        _ => String::new(),
    }
}

fn contexts(contexts: Contexts) -> String {
    let names = |ops: &[Op]| ops.iter().map(|o| o.name()).collect::<Vec<_>>().join(", ");
    match contexts {
        Contexts::Any => "anywhere".into(),
        Contexts::Only(ops) => names(ops),
        Contexts::Except(ops) => format!("anywhere but {}", names(ops)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_row_is_on_the_page() {
        let page = super::page();
        for f in crate::table::FUNCS.iter().skip(1) {
            assert!(page.contains(f.proto), "{}", f.name);
        }
        let lacking = super::lacking_functions();
        assert!(
            lacking.iter().any(|name| name == "bpf_wq_init"),
            "{lacking:?}"
        );
        assert!(
            !lacking.iter().any(|name| name.contains("xdp")),
            "{lacking:?}"
        );
        assert!(page.contains("bpf_wq_init") && page.contains("LPM_TRIE (11)"));
        assert!(page.contains("| `task_struct` |") && !page.contains("berth_index"));
    }
}
