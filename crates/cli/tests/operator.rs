// SPDX-License-Identifier: GPL-2.0-only
//! The host's verbs as an operator and a monitor meet them: exit statuses, and what is said when something is wrong.
//! Hosts are recorded trees; nothing is loaded on this machine.
use berth_host::fixture::Fixture;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs it in a folder, expects this status; gives standard output and standard error.
fn berth(folder: &Path, status: i32, arguments: &[&str]) -> (String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_berth"))
        .current_dir(folder)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (shown, said) = (text(out.stdout), text(out.stderr));
    assert_eq!(
        out.status.code(),
        Some(status),
        "berth {arguments:?}: {shown}{said}"
    );
    (shown, said)
}

fn vm(pid: i32, name: &str) -> String {
    format!(
        "process {pid} lkvm\nargs lkvm run --name {name}\nfd 3 anon_inode:kvm-vm\nfd 4 anon_inode:kvm-vcpu:0\n\
         thread {} kvm-vcpu-0 run=4\n",
        pid + 1
    )
}

/// A recorded host in a folder of its own.
fn host(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    Fixture::parse(text).unwrap().unpack(folder.path()).unwrap();
    folder
}

/// Type information of a kernel: `int`, and `struct sched_ext_ops` with one in it.
fn type_information() -> Vec<u8> {
    let words: [u32; 16] = [
        0x0001_eb9f,
        24,
        0,
        40,
        40,
        15,
        0,
        1 << 24,
        4,
        32,
        1,
        4 << 24 | 1,
        4,
        0,
        1,
        0,
    ];
    let names = b"\0sched_ext_ops\0";
    words
        .iter()
        .flat_map(|w| w.to_ne_bytes())
        .chain(*names)
        .collect()
}

#[test]
fn doctor_says_no_by_its_status_too() {
    let able = "file proc/sys/kernel/osrelease 7.2.12\nfile sys/kernel/sched_ext/state disabled\n";
    let folder = host(&format!("{able}{}", vm(100, "web")));
    let doctor = |status, more: &[&str]| {
        berth(
            folder.path(),
            status,
            &[&["doctor", "--root", "."], more].concat(),
        )
    };
    let (shown, _) = doctor(1, &[]);
    assert!(
        shown.contains("No policy can be loaded with sched_ext (BTF)"),
        "{shown}"
    );
    let (json, said) = doctor(1, &["--json"]);
    assert!(
        json.starts_with('[') && json.ends_with("]\n") && said.is_empty(),
        "{json}{said}"
    );
    std::fs::create_dir_all(folder.path().join("sys/kernel/btf")).unwrap();
    std::fs::write(
        folder.path().join("sys/kernel/btf/vmlinux"),
        type_information(),
    )
    .unwrap();
    let (shown, _) = doctor(0, &[]);
    assert!(shown.contains("Policies can be loaded"), "{shown}");
}

#[cfg(feature = "kernel")]
#[test]
fn a_status_without_an_agent_is_status_1() {
    let folder = tempfile::tempdir().unwrap();
    let (shown, _) = berth(folder.path(), 1, &["status", "--socket", "none.sock"]);
    assert!(shown.contains("no agent of Berth is running"), "{shown}");
    let (json, _) = berth(
        folder.path(),
        1,
        &["status", "--json", "--socket", "none.sock"],
    );
    assert_eq!(json, "null\n");
    berth(folder.path(), 0, &["stop", "--socket", "none.sock"]);
}

/// An agent that answers every request with this status.
#[cfg(feature = "kernel")]
fn agent(socket: &Path, trouble: &str) {
    use std::io::{BufRead, BufReader, Write};
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    let answer = format!(
        "{{\"error\":null,\"started\":null,\"stopped\":null,\"status\":{{\"policy\":null,\"vms\":[],\
         \"by_process\":[],\"left_out\":[],\"only\":[],\"trouble\":{trouble}}}}}\n"
    );
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            // Who only looks whether somebody listens says nothing.
            if stream.read_line(&mut String::new()).is_ok_and(|n| n > 0) {
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        }
    });
}

/// One that ends when it is asked is none: `berth unpin; berth status` on a host that nothing else of Berth acts on.
#[cfg(feature = "kernel")]
#[test]
fn an_agent_that_ends_while_it_is_asked_is_none() {
    use std::io::{BufRead, BufReader};
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("ends.sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let ends = std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            if stream.read_line(&mut String::new()).is_ok_and(|n| n > 0) {
                break;
            }
        }
        std::fs::remove_file(socket).unwrap();
    });
    let (shown, _) = berth(folder.path(), 1, &["status", "--socket", "ends.sock"]);
    ends.join().unwrap();
    assert!(shown.contains("no agent of Berth is running"), "{shown}");
}

#[cfg(feature = "kernel")]
#[test]
fn a_status_of_an_agent_in_trouble_is_status_1() {
    let folder = tempfile::tempdir().unwrap();
    agent(&folder.path().join("well.sock"), "null");
    agent(
        &folder.path().join("ill.sock"),
        "\"the kernel ended policy vmfair\"",
    );
    for more in [&[][..], &["--json"]] {
        let status = |code, socket| {
            berth(
                folder.path(),
                code,
                &[&["status", "--socket", socket], more].concat(),
            )
        };
        status(0, "well.sock");
        let (shown, _) = status(1, "ill.sock");
        assert!(shown.contains("the kernel ended policy vmfair"), "{shown}");
    }
}

#[cfg(feature = "kernel")]
#[test]
fn a_socket_in_a_folder_that_is_not_there_is_refused_and_no_folder_made() {
    let folder = tempfile::tempdir().unwrap();
    let (_, said) = berth(
        folder.path(),
        2,
        &["daemon", "--socket", "typo/control.sock"],
    );
    assert!(said.contains("typo: there is no such folder"), "{said}");
    assert!(
        said.contains("make it, or name a socket elsewhere (--socket)"),
        "{said}"
    );
    assert!(!folder.path().join("typo").exists());
}

#[test]
fn a_record_onto_a_folder_names_a_file_in_it() {
    let folder = host(&vm(100, "web"));
    std::fs::create_dir(folder.path().join("out")).unwrap();
    for more in [&[][..], &["--force"]] {
        let (_, said) = berth(
            folder.path(),
            2,
            &[&["record", "out", "--root", "."], more].concat(),
        );
        assert!(
            said.contains("out is a folder; name a file in it, such as out/host.toml"),
            "{said}"
        );
        assert!(!said.contains("--force"), "{said}");
    }
    let (_, said) = berth(
        folder.path(),
        2,
        &["record", "nowhere/host.toml", "--root", "."],
    );
    assert!(said.contains("nowhere: there is no such folder"), "{said}");
}

#[test]
fn two_vms_of_one_name_are_both_named() {
    let folder = host(&[vm(100, "web"), vm(200, "web"), vm(300, "job")].concat());
    let explain = |status, vm| {
        berth(
            folder.path(),
            status,
            &["explain", vm, "--root", ".", "--over", "0.01"],
        )
    };
    let (_, said) = explain(2, "web");
    assert!(
        said.contains("2 virtual machines are called `web`: web@100, web@200"),
        "{said}"
    );
    assert!(!said.contains("did you mean"), "{said}");
    for one in ["web@200", "200"] {
        let (shown, _) = explain(0, one);
        assert!(shown.contains("web@200"), "{shown}");
    }
    let (_, said) = explain(2, "jop");
    assert!(said.contains("did you mean `job`?"), "{said}");
}

#[test]
fn an_empty_proc_is_not_mounted() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("proc")).unwrap();
    let (shown, said) = berth(folder.path(), 2, &["ls", "--root", ".", "--over", "0.01"]);
    assert!(
        said.contains("proc cannot be read: it is empty") && said.contains("mount -t proc"),
        "{shown}{said}"
    );
    assert!(
        !format!("{shown}{said}").contains("hidepid"),
        "{shown}{said}"
    );
}

#[cfg(feature = "kernel")]
#[test]
fn a_wrong_parameter_of_a_policy_speaks_of_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let rows: [(&[&str], &str); 3] = [
        (
            &["--set", "slice=1"],
            "policy vmfair has no parameter `slice`; did you mean `slice_us`?",
        ),
        (&["--set", "slice_us=0"], "slice_us"),
        (&["--preset", "fast"], "policy vmfair: no preset `fast`"),
    ];
    for (arguments, words) in rows {
        let start = [&["start", "vmfair", "--socket", "none.sock"], arguments].concat();
        let (_, said) = berth(folder.path(), 2, &start);
        assert!(said.contains(words), "{said}");
        assert!(!said.contains("arm"), "{said}");
    }
}

#[cfg(feature = "kernel")]
#[test]
fn parameters_without_a_policy_do_not_pass_the_check() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("c.toml"),
        "mode = \"observe\"\n\n[set]\nslice_us = 2000\n",
    )
    .unwrap();
    let (_, said) = berth(
        folder.path(),
        2,
        &["daemon", "--check", "--config", "c.toml"],
    );
    assert!(said.contains("c.toml:3: set: of which policy?"), "{said}");
}

/// What of a VM's network path is not looked into is named wherever somebody may ask for it.
#[test]
fn a_path_that_is_not_looked_into_is_named_everywhere() {
    let tap = |pid: i32, name: &str, tap: &str| {
        let files =
            format!("fd 20 /dev/net/tun\nfile proc/{pid}/fdinfo/20 \"iff:\\x09{tap}\\n\"\nthread");
        vm(pid, name).replace("thread", &files)
    };
    let folder = host(
        &[
            tap(100, "ovs", "vnet0"),
            tap(200, "pod", "tap9"),
            "file sys/devices/system/cpu/online 0-1\nfile sys/class/net/vnet0/tun_flags 0x1002\n\
             file sys/class/net/vnet0/queues/rx-0/rps_cpus 0\nlink sys/class/net/vnet0/master ../ovs-system\n"
                .into(),
        ]
        .concat(),
    );
    let root = ["--root", ".", "--over", "0.01"];
    let both = [
        ("ovs", "vnet0 is a port of Open vSwitch (ovs-system)"),
        ("pod", "tap9 is in another network namespace"),
    ];
    // As it is folded.
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (doctor, _) = berth(folder.path(), 1, &["doctor", "--root", "."]);
    #[cfg(feature = "kernel")]
    let (plan, _) = berth(
        folder.path(),
        0,
        &[&["plan", "--policy", "full"], &root[..]].concat(),
    );
    for (name, what) in both {
        let (explain, _) = berth(folder.path(), 0, &[&["explain", name], &root[..]].concat());
        assert!(flat(&explain).contains(what), "{explain}");
        let of_doctor = format!("{name}: {what}");
        assert!(flat(&doctor).contains(&of_doctor), "{doctor}");
        #[cfg(feature = "kernel")]
        assert_eq!(flat(&plan).matches(what).count(), 1, "{plan}");
    }
}

/// Files of hosts whose values somebody recorded on such a machine.
#[test]
fn doctor_names_the_cores_of_recorded_hosts() {
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let of = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/tests/fixtures/cores");
        std::fs::read_to_string(folder.join(format!("{name}.host"))).unwrap()
    };
    for (name, cores) in [
        (
            "intel-1370p",
            "fast: CPUs 0-11 (6 cores), slow: CPUs 12-19 at 58 %, by CPPC",
        ),
        (
            "arm-gb10",
            "fast: CPUs 5-9,15-19, slow: CPUs 0-4,10-14 at 71 %, by cpu_capacity",
        ),
        (
            "arm-snapdragon-8-gen-2",
            "fast: CPUs 7, middle: CPUs 3-6 at 83 %, slow: CPUs 0-2 at 27 %, by cpu_capacity",
        ),
    ] {
        let text = of(name);
        assert!(text.contains("recorded"), "{name} was not recorded");
        // With a kernel that has sched_ext, or the answer is no.
        let able =
            "file proc/sys/kernel/osrelease 7.2.12\nfile sys/kernel/sched_ext/state disabled\n";
        let folder = host(&format!("{text}{able}"));
        let btf = folder.path().join("sys/kernel/btf");
        std::fs::create_dir_all(&btf).unwrap();
        std::fs::write(btf.join("vmlinux"), type_information()).unwrap();
        let (shown, _) = berth(folder.path(), 0, &["doctor", "--root", "."]);
        assert!(flat(&shown).contains(cores), "{name}: {shown}");
        let (listed, _) = berth(folder.path(), 0, &["doctor", "--root", ".", "--json"]);
        let checks: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let found = checks
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["name"] == "kinds of cores")
            .unwrap();
        assert_eq!(found["found"], cores, "{name}");
    }
}
