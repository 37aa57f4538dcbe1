// SPDX-License-Identifier: GPL-2.0-only
//! The shipped policies load for every kernel line, and say about themselves what the loaders rely on.
use berth_builtin::Builtin;
use berth_policy::compile::{self, CompileOptions};
use berth_policy::ir::Program;
use berth_policy::policy::LoadOptions;
use berth_policy::profile::KernelProfile;
use std::path::Path;

/// BPF_MAP_TYPE_ARRAY.
const ARRAY: u32 = 2;

/// Those that are no models of the literature.
fn shipped() -> Vec<&'static Builtin> {
    let all = berth_builtin::all().iter();
    let found: Vec<_> = all.filter(|policy| !policy.study).collect();
    assert!(!found.is_empty());
    found
}

fn tags(program: &Program) -> Vec<(String, String)> {
    let vars = program.sections.iter().flat_map(|s| &s.vars);
    vars.flat_map(|v| v.tags.iter().map(|t| (v.name.clone(), t.clone())))
        .collect()
}

/// The value a variable is compiled with.
fn initial(program: &Program, name: &str) -> i64 {
    for s in &program.sections {
        if let Some(v) = s.vars.iter().find(|v| v.name == name) {
            let bytes = &s.data[v.offset as usize..(v.offset + v.size) as usize];
            let mut wide = [0u8; 8];
            wide[..bytes.len()].copy_from_slice(bytes);
            return i64::from_le_bytes(wide);
        }
    }
    panic!("no variable {name}");
}

#[test]
fn shipped_policies_load_for_every_kernel_line() {
    for builtin in shipped() {
        for kernel in KernelProfile::NAMES {
            let options = LoadOptions {
                kernel: KernelProfile::named(kernel).unwrap(),
                ..Default::default()
            };
            let policy = builtin
                .load(&options)
                .unwrap_or_else(|e| panic!("{} for {kernel}: {e}", builtin.name));
            let ops = policy.ops_var(None).unwrap();
            assert_eq!(
                ops.name, builtin.name,
                "the scheduler is called like its file"
            );
            assert!(ops.timeout_ms > 0, "{}: no watchdog timeout", ops.name);
        }
    }
}

#[test]
fn shipped_policies_compile_without_warnings() {
    let policies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
    let options = CompileOptions {
        include: vec![policies.join("include")],
        ..CompileOptions::default()
    };
    for builtin in berth_builtin::all() {
        let folder = if builtin.study { "study/" } else { "" };
        let source = policies.join(format!("{folder}{}.bpf.c", builtin.name));
        assert_eq!(compile::warnings(&source, &options).unwrap(), "");
    }
}

#[test]
fn shipped_policies_describe_themselves() {
    for builtin in shipped() {
        let policy = builtin.load(&LoadOptions::default()).unwrap();
        let (program, name) = (policy.program(), builtin.name);

        let about: Vec<_> = tags(program)
            .into_iter()
            .filter_map(|(_, t)| t.strip_prefix("berth:policy charges=").map(str::to_string))
            .collect();
        assert_eq!(about.len(), 1, "{name}: exactly one BERTH_POLICY");
        let (charges, help) = about[0].split_once(" help=").expect("help comes last");
        assert!(
            ["task", "wall", "slice", "none"].contains(&charges),
            "{name} charges {charges}"
        );
        assert!(help.len() > 20, "{name}: {help}");

        assert!(!policy.params().is_empty(), "{name} has no parameter");
        for p in policy.params() {
            assert!(!p.help.is_empty(), "{name}: {} has no help", p.name);
            let units = ["ns", "us", "ms", "percent", "%", "weight", "count", "bool"];
            assert!(
                units.contains(&p.unit.as_str()) || p.words.len() > 1,
                "{name}: {} is in {}",
                p.name,
                p.unit
            );
            assert!(
                p.min <= p.default && p.default <= p.max,
                "{name}: {}",
                p.name
            );
            assert_eq!(initial(program, &p.name), p.default, "{name}: {}", p.name);
        }
    }
}

/// The maps and records every loader fills (policies/include/berth); who a thread is: tests of crates/identity.
#[test]
fn records_have_the_documented_sizes() {
    let vmfair = berth_builtin::find("vmfair").unwrap();
    let policy = vmfair.load(&LoadOptions::default()).unwrap();
    let program = policy.program();
    let map = |name: &str| {
        let found = program.maps.iter().find(|m| m.name == name);
        found.unwrap_or_else(|| panic!("no map {name}"))
    };
    assert_eq!(map("berth_identity").value_size, 48);
    assert_eq!(map("berth_topology_by_cpu").value_size, 24);
    for m in &program.maps {
        if ["_by_cpu", "_by_llc", "_by_node", "_by_vm"]
            .iter()
            .any(|s| m.name.ends_with(s))
        {
            assert_eq!(
                (m.kind, m.key_size),
                (ARRAY, 4),
                "{} is not an array",
                m.name
            );
        }
    }
    for name in [
        "berth_nr_cpus",
        "berth_nr_llcs",
        "berth_nr_nodes",
        "berth_generation",
    ] {
        assert_eq!(initial(program, name), 1, "{name}");
    }
    let generation = program
        .sections
        .iter()
        .find(|s| s.vars.iter().any(|v| v.name == "berth_generation"));
    assert_eq!(generation.unwrap().name, ".data.berth");
}
