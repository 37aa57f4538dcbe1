// SPDX-License-Identifier: GPL-2.0-only
//! Roles, classes and records are those of `policies/include/berth/identity.bpf.h`, by what the compiler says of it.
use berth_identity::record::{
    self, GENERATION, MAX_THREADS, MAX_VMS, MEMORY, MEMORY_NODES, SCORED, SCORES, THREADS, VERSION,
    VMS,
};
use berth_identity::{Class, MemoryRecord, Role, Scored, ThreadRecord, VmId, VmRecord};
use berth_policy::btf::{Btf, Type};
use berth_policy::compile::{CompileOptions, compile};
use berth_policy::policy::{LoadOptions, Policy};
use std::collections::BTreeMap;
use std::path::Path;

struct Header {
    btf: Btf,
    policy: Policy,
}

impl Header {
    fn read() -> Header {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/header.bpf.c");
        let object = compile(&source, &CompileOptions::default()).unwrap();
        Header {
            btf: Btf::of_object(&object).unwrap(),
            policy: Policy::from_object(&object, &LoadOptions::default()).unwrap(),
        }
    }

    /// The enumerators of an enum, by name.
    fn values(&self, wanted: &str) -> BTreeMap<String, u64> {
        let found = self.btf.types.iter().find_map(|t| match t {
            Type::Enum { name, values, .. } if name == wanted => Some(values),
            _ => None,
        });
        found.expect(wanted).iter().cloned().collect()
    }

    /// The fields of a record, by name, each read where the header's structure has it.
    fn fields(&self, wanted: &str, record: &[u8]) -> BTreeMap<String, i64> {
        let found = self.btf.types.iter().find_map(|t| match t {
            Type::Composite {
                name,
                size,
                members,
                ..
            } if name == wanted => Some((*size, members)),
            _ => None,
        });
        let (size, members) = found.expect(wanted);
        assert_eq!(size as usize, record.len(), "size of {wanted}");
        let field = |m: &berth_policy::btf::Member| {
            assert_eq!(self.btf.size(m.ty), 4, "size of {wanted}.{}", m.name);
            let at = m.bit_offset as usize / 8;
            let word: [u8; 4] = record[at..at + 4].try_into().unwrap();
            let signed = matches!(self.btf.resolved(m.ty), Type::Int { signed: true, .. });
            let value = match signed {
                true => i64::from(i32::from_ne_bytes(word)),
                false => i64::from(u32::from_ne_bytes(word)),
            };
            (m.name.clone(), value)
        };
        members.iter().map(field).collect()
    }

    /// A constant of the header, which the test's object keeps in a variable.
    fn number(&self, name: &str) -> u64 {
        let sections = &self.policy.program().sections;
        let found = sections
            .iter()
            .find_map(|s| Some((s, s.vars.iter().find(|v| v.name == name)?)));
        let (section, variable) = found.expect(name);
        let bytes = &section.data[variable.offset as usize..][..variable.size as usize];
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(wide)
    }
}

fn named<const N: usize>(fields: [(&str, i64); N]) -> BTreeMap<String, i64> {
    fields.map(|(name, value)| (name.to_string(), value)).into()
}

#[test]
fn classes_and_roles_have_the_headers_numbers() {
    let header = Header::read();
    let classes = Class::ALL.map(|c| {
        let name = format!("BERTH_CLASS_{}", c.word().to_uppercase());
        (name, u64::from(c.number()))
    });
    assert_eq!(header.values("berth_class"), classes.into());
    let roles = [
        Role::Other,
        Role::Vcpu(7),
        Role::Vhost,
        Role::Iothread,
        Role::Emulator,
    ];
    let roles = roles.map(|r| {
        let name = format!("BERTH_ROLE_{}", r.word().to_uppercase());
        (name, u64::from(r.number()))
    });
    assert_eq!(header.values("berth_role"), roles.into());
}

#[test]
fn a_vm_is_written_as_the_header_reads_it() {
    let header = Header::read();
    let mut vm = VmRecord {
        slot: 11,
        generation: 12,
        class: Class::Mixed,
        weight: 13,
        cap_milli: Some(14),
        node: Some(15),
        vcpus: 16,
    };
    let mut expected = named([
        ("version", 1),
        ("slot", 11),
        ("generation", 12),
        ("class", 3),
        ("weight", 13),
        ("cap_mcpu", 14),
        ("node", 15),
        ("vcpus", 16),
    ]);
    assert_eq!(header.fields("berth_vm", &vm.bytes()), expected);
    (vm.cap_milli, vm.node) = (None, None);
    expected.extend(named([("cap_mcpu", 0), ("node", -1)]));
    assert_eq!(header.fields("berth_vm", &vm.bytes()), expected);
}

#[test]
fn a_thread_is_written_as_the_header_reads_it() {
    let header = Header::read();
    let fields = |role, io| {
        let thread = ThreadRecord {
            role,
            io,
            score_milli: Some(1750),
        };
        header.fields("berth_thread", &thread.bytes())
    };
    let io = header.number("thread_io") as i64;
    assert_eq!(
        fields(Role::Vcpu(5), true),
        named([("version", 1), ("role", 1), ("vcpu", 5), ("flags", io)])
    );
    assert_eq!(
        fields(Role::Emulator, false),
        named([("version", 1), ("role", 4), ("vcpu", -1), ("flags", 0)])
    );
}

#[test]
fn maps_keys_and_version_are_the_headers() {
    let header = Header::read();
    let program = header.policy.program();
    let map = |name: &str| {
        let found = program.maps.iter().find(|m| m.name == name).expect(name);
        (found.key_size, found.value_size, found.max_entries)
    };
    let record_size = |size: usize| size as u32;
    assert_eq!(
        map(VMS),
        (8, record_size(VmRecord::SIZE), record_size(MAX_VMS))
    );
    assert_eq!(
        map(THREADS),
        (4, record_size(ThreadRecord::SIZE), record_size(MAX_THREADS))
    );
    assert_eq!(map(SCORES), (4, 4, record_size(MAX_THREADS)));
    // The host's slot, too.
    let slots = record_size(MAX_VMS) + 1;
    assert_eq!(map(SCORED), (4, record_size(Scored::SIZE), slots));
    assert_eq!(map(MEMORY), (4, record_size(MemoryRecord::SIZE), slots));
    assert_eq!(header.number("memory_nodes"), MEMORY_NODES as u64);
    assert_eq!(header.number(GENERATION), 1);
    assert_eq!(header.number("version"), u64::from(VERSION));
    let key = |pid, start| record::VmId::Process { pid, start }.key();
    assert_eq!(key(0, 0), header.number("process"));
    assert_eq!(
        key(9, 3),
        header.number("process") | (3 * header.number("process_numbers") + 9)
    );
    assert_eq!(VmId::Cgroup(77).key() & header.number("process"), 0);
}

#[test]
fn what_a_policy_has_scored_is_read_as_the_header_writes_it() {
    let header = Header::read();
    let bytes: Vec<u8> = (1..=6u32).flat_map(u32::to_ne_bytes).collect();
    let fields = header.fields("berth_scored", &bytes);
    let scored = Scored::parse(&bytes).unwrap();
    let read = named([
        ("window", 1),
        ("score_milli", scored.score_milli.into()),
        ("given", scored.given.into()),
        ("pmu", scored.pmu.into()),
        ("utilisation", scored.utilisation.into()),
        ("left_out", scored.left_out.into()),
    ]);
    assert_eq!(fields, read);
}

#[test]
fn where_memory_is_goes_by_node() {
    let record = MemoryRecord::new(&[250_000, 750_000]);
    let bytes = record.bytes();
    let (words, []) = bytes.as_chunks::<4>() else {
        panic!("whole words");
    };
    let ppm: Vec<u32> = words.iter().map(|w| u32::from_ne_bytes(*w)).collect();
    assert_eq!(ppm[..3], [250_000, 750_000, 0]);
    assert_eq!(record.only_node(), None);
    assert_eq!(MemoryRecord::new(&[0, 1_000_000]).only_node(), Some(1));
    // Of more than fit, nothing is said.
    assert_eq!(
        MemoryRecord::new(&[50_000; 20]).bytes().len(),
        MemoryRecord::SIZE
    );
}
