// SPDX-License-Identifier: GPL-2.0-only
//! What is refused is refused by name; what cannot be reached is not.
use super::{enqueue, load};
use berth_policy::error::LoadError;
use berth_policy::policy::{LoadOptions, Policy};
use berth_policy::profile::KernelProfile;

fn refused(globals: &str, body: &str) -> String {
    load(&enqueue(globals, body))
        .expect_err("must be refused")
        .to_string()
}

#[test]
fn unknown_kernel_functions_by_name() {
    let message = refused(
        "void bpf_no_such_thing(void) __ksym;",
        "bpf_no_such_thing();",
    );
    assert!(message.contains("bpf_no_such_thing"), "{message}");
    let message = refused("", "bpf_override_return((void *)p, 0);");
    assert!(message.contains("bpf_override_return"), "{message}");
    // Tail calls are a helper, too.
    let message = refused(
        "struct { __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 1); __uint(key_size, 4); \
         __uint(value_size, 4); } m SEC(\".maps\");",
        "bpf_tail_call((void *)p, &m, 0);",
    );
    assert!(message.contains("maps of type 3"), "{message}");
}

#[test]
fn unreachable_calls_are_no_reason() {
    load(&enqueue(
        "void bpf_no_such_thing(void) __ksym __weak;",
        "if (bpf_ksym_exists(bpf_no_such_thing)) bpf_no_such_thing();",
    ))
    .unwrap();
}

#[test]
fn unknown_fields_by_name() {
    let message = refused("u64 sum;", "sum += p->acct_rss_mem1;");
    assert!(
        message.contains("field task_struct.acct_rss_mem1"),
        "{message}"
    );
    load(&enqueue(
        "u64 sum;",
        "if (bpf_core_field_exists(p->acct_rss_mem1)) sum += p->acct_rss_mem1;",
    ))
    .unwrap();
}

#[test]
fn kernel_profiles_decide_the_flavour() {
    let source = enqueue(
        "",
        "scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);",
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.bpf.c");
    std::fs::write(&path, source).unwrap();
    for (profile, wanted) in [
        ("6.18", "scx_bpf_dsq_insert"),
        ("7.2", "scx_bpf_dsq_insert___v2"),
    ] {
        let options = LoadOptions {
            kernel: KernelProfile::named(profile).unwrap(),
            ..LoadOptions::default()
        };
        let policy = Policy::from_path(&path, &options).unwrap();
        let machine = &mut *super::kernel::Machine::new();
        let config = berth_policy::instance::InstanceConfig::new(8);
        let instance =
            berth_policy::instance::Instance::new(&policy, None, &config, &super::kernel::VTABLE)
                .unwrap();
        super::kernel::attach(&instance, machine);
        let args = [machine.task(1), 1];
        // SAFETY: a live task of the machine.
        unsafe { instance.call(berth_policy::abi::Op::Enqueue, &args) }.unwrap();
        let (name, args) = machine.log[0];
        assert_eq!(name, wanted);
        assert_eq!(
            &args[1..4],
            &[0x8000_0000_0000_0001, 20_000_000, 1],
            "constants are filled in"
        );
    }
}

#[test]
fn the_compilers_message_has_file_and_line() {
    let Err(LoadError::Compile { message, .. }) = load(&enqueue("", "int x = nonsense;")) else {
        panic!("must not compile");
    };
    assert!(message.contains("test.bpf.c:6:"), "{message}");
    assert!(message.contains("nonsense"), "{message}");
}

#[test]
fn wrong_settings_of_the_scheduler() {
    let source = enqueue("", "").replace(".name = \"t\"", ".name = \"two words\"");
    let message = load(&source).unwrap_err().to_string();
    assert!(message.contains("two words"), "{message}");
    let source = enqueue("", "").replace(".name = \"t\"", ".name = \"t\", .sub_cgroup_id = 7");
    let message = load(&source).unwrap_err().to_string();
    assert!(message.contains("sub_cgroup_id"), "{message}");
}

#[test]
fn what_is_no_policy() {
    for bytes in [&b""[..], b"\x7fELF", b"int main() {}"] {
        assert!(matches!(
            Policy::from_object(bytes, &LoadOptions::default()),
            Err(LoadError::NotAPolicy(_))
        ));
    }
    let message = load("int x;").unwrap_err().to_string();
    assert!(message.contains("neither a scheduler"), "{message}");
}

/// Every prefix and many damaged copies of a good object give an error or a policy, never a panic.
#[test]
fn damaged_objects_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.bpf.c");
    std::fs::write(&path, enqueue("u64 count;", "count++;")).unwrap();
    let good = berth_policy::compile::compile(&path, &Default::default()).unwrap();
    let profile = KernelProfile::default();
    for len in (0..good.len()).step_by(good.len() / 97 + 1) {
        let _ = berth_policy::object::load(&good[..len], &profile);
    }
    let mut random = 0x2545_f491_4f6c_dd1du64;
    for _ in 0..400 {
        let mut bad = good.clone();
        for _ in 0..4 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let at = (random >> 8) as usize % bad.len();
            bad[at] = random as u8;
        }
        let _ = berth_policy::object::load(&bad, &profile);
    }
}
