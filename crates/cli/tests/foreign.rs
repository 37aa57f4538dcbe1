// SPDX-License-Identifier: GPL-2.0-only
//! Schedulers of others as their users meet them: what their loaders set, how they are compiled, what a check runs.
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Weights of nice 0 and -5 in Linux's table, per cent of nice 0.
const NICE: (f64, f64) = (100.0, 305.0);

/// Four hogs on one CPU, of two weights.
const HOGS: &str = r#"
[host]
cores = 1
[run]
warmup = "0s"
measure = "20s"
seeds = 1
[vm.light]
count = 2
tasks = ["hog"]
[vm.heavy]
count = 2
nice = -5
tasks = ["hog"]
[task.hog]
model = "busy"
[compare]
policies = []
"#;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        place.write("hogs.toml", HOGS);
        place
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn berth(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        command
            .current_dir(self.0.path())
            .args(arguments)
            .stdin(Stdio::null());
        command.output().unwrap()
    }

    /// Standard output and standard error of what should work.
    fn works(&self, arguments: &[&str]) -> (String, String) {
        let out = self.berth(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out_text, said) = (text(&out.stdout), text(&out.stderr));
        assert_eq!(
            out.status.code(),
            Some(0),
            "berth {arguments:?} said: {said}"
        );
        (out_text, said)
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let out = self.berth(arguments);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(
            out.status.code(),
            Some(2),
            "berth {arguments:?} said: {said}"
        );
        said
    }
}

fn policy(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/policies");
    folder.join(name).display().to_string()
}

/// CPU time that the heavy VMs had of all, and the arm's name.
fn share(json: &str) -> (f64, String) {
    let results: serde_json::Value = serde_json::from_str(json).unwrap();
    let run = &results["experiments"][0]["runs"][0];
    let cpu = |vm: &str| run["metrics"][format!("{vm}.cpu")].as_f64().unwrap();
    let share = cpu("heavy") / (cpu("heavy") + cpu("light"));
    (share, run["arm"].as_str().unwrap().to_string())
}

#[test]
fn what_a_loader_sets_decides_the_shares() {
    let place = Place::new();
    let main = policy("main.bpf.c");
    let run = ["sim", "hogs.toml", "-q", "--json", "--policy", &main];
    let (json, said) = place.works(&run);
    let (even, arm) = share(&json);
    assert_eq!(arm, "loaded", "the file's name says nothing");
    // As compiled nothing is charged: turns.
    assert!((even - 0.5).abs() < 0.01, "{even}");
    assert!(
        said.contains("slice_ns = 0") && said.contains("strict = false"),
        "{said}"
    );

    let with = |more: &[&str]| {
        let (json, said) = place.works(&[&run[..], more].concat());
        (share(&json).0, said)
    };
    let wanted = NICE.1 / (NICE.0 + NICE.1);
    let (set, said) = with(&["--rodata", "slice_ns=20ms"]);
    assert!((set - wanted).abs() < 0.01, "{set} instead of {wanted}");
    assert!(
        said.contains("strict = false") && !said.contains("slice_ns = "),
        "{said}"
    );

    // The same in the scenario's file, beside one as compiled.
    let arms = format!(
        "{}\n[arm.set]\npolicy = \"{main}\"\nrodata = {{ slice_ns = \"20ms\" }}\nops_flags = [\"ENQ_LAST\"]\n",
        HOGS.replace("policies = []", "policies = [\"set\"]")
    );
    place.write("arms.toml", &arms);
    let (json, _) = place.works(&["sim", "arms.toml", "-q", "--json", "--arm", "set"]);
    let (kept, _) = share(&json);
    assert!((kept - wanted).abs() < 0.01, "{kept}");

    // The object, which has its scheduler's name, too; and a job that somebody else does.
    place.write("main.bpf.c", &std::fs::read_to_string(&main).unwrap());
    let runner = format!("{} job", env!("CARGO_BIN_EXE_berth"));
    let (elsewhere, _) = with(&["--rodata", "slice_ns=20000000", "--runner", &runner]);
    assert_eq!(elsewhere, set, "the same object, the same run");
}

/// Numbers of one version are not another one's: only what the machine decides is set there.
#[test]
fn another_version_of_a_known_scheduler_keeps_its_numbers() {
    let place = Place::new();
    let text = std::fs::read_to_string(policy("main.bpf.c")).unwrap();
    let called = |name: &str, more: &str| {
        let text = text.replace("\"loaded\"", &format!("\"{name}\""));
        text.replace("#define SHARED 0", &format!("{more}\n#define SHARED 0"))
    };
    let older = "const volatile u64 slice_max = 20000000;\nconst volatile bool numa_disabled;";
    place.write("older.bpf.c", &called("bpfland", older));
    let (out, _) = place.works(&["policy", "check", "older.bpf.c", "--rodata", "slice_ns=5ms"]);
    assert!(
        out.contains("of another version than scx_bpfland 1.1.4"),
        "{out}"
    );
    assert!(
        out.contains("slice_max = 20000000") && !out.contains("numa_disabled"),
        "{out}"
    );
    assert!(
        !out.contains("uei_"),
        "how a scheduler ended is nobody's to set: {out}"
    );
    // All of its variables are those of the table, and it has the programs: its slice is what its loader sets.
    let same = "const volatile u64 tick_freq;\nconst volatile u64 preferred_cpus[1024];";
    let program = |name: &str| {
        format!("\nSEC(\"syscall\") int {name}(s32 *cpu)\n{{\n\treturn *cpu > 1 ? -EINVAL : 0;\n}}")
    };
    let one = format!("{same}{}", program("enable_primary_cpu"));
    let both = format!("{one}{}", program("start_timer"));
    for (more, version) in [
        (&one, "of another version than"),
        (&both, "as scx_tickless 1.1.4 sets"),
    ] {
        let text = called("tickless", more).replace("strict", "smt_enabled");
        place.write("same.bpf.c", &text);
        let (out, _) = place.works(&["policy", "check", "same.bpf.c"]);
        assert!(out.contains(version), "{out}");
    }
    let run = ["sim", "hogs.toml", "-q", "--json", "--policy", "same.bpf.c"];
    let (json, said) = place.works(&run);
    assert!(
        said.contains("programs run, as its loader would: enable_primary_cpu, start_timer"),
        "{said}"
    );
    assert!(said.contains("as scx_tickless 1.1.4 sets them"), "{said}");
    let wanted = NICE.1 / (NICE.0 + NICE.1);
    assert!((share(&json).0 - wanted).abs() < 0.01, "{}", share(&json).0);
}

/// It compiles, loads and runs; what the compiler thinks of it is said all the same, with file and line.
#[test]
fn what_the_compiler_warns_of_is_said() {
    let place = Place::new();
    let text = std::fs::read_to_string(policy("main.bpf.c")).unwrap();
    place.write("clean.bpf.c", &text);
    let clean = place.works(&["policy", "check", "clean.bpf.c"]).0;
    assert!(!clean.contains("the compiler warns"), "{clean}");
    let careless = text.clone() + "\nint careless(int a)\n{\n\tint b;\n\n\treturn a + b;\n}\n";
    place.write("careless.bpf.c", &careless);
    let said = place.works(&["policy", "check", "careless.bpf.c"]).0;
    let line = format!("careless.bpf.c:{}:", text.lines().count() + 6);
    assert!(
        said.contains(&line) && said.contains("variable 'b' is uninitialized"),
        "{said}"
    );
    // Long lists are cut.
    let many: String = (0..100)
        .map(|i| format!("static int many{i}(void)\n{{\n\tint b;\n}}\n"))
        .collect();
    place.write("many.bpf.c", &(text + "\n" + &many));
    let said = place.works(&["policy", "check", "many.bpf.c"]).0;
    assert!(
        said.contains("unused variable 'b'") && said.lines().count() < 60,
        "{said}"
    );
    assert!(said.contains("more lines"), "{said}");
}

/// The package around a source says which headers it was written for.
#[test]
fn the_headers_that_a_source_needs_are_named() {
    let place = Place::new();
    let text = std::fs::read_to_string(policy("main.bpf.c")).unwrap();
    let text = text.replace("move_to_local(SHARED, 0)", "move_to_local(SHARED)");
    place.write("scx_old/src/bpf/main.bpf.c", &text);
    let check = ["policy", "check", "scx_old/src/bpf/main.bpf.c"];
    assert!(!place.fails(&check).contains("--headers"));
    let manifest =
        "[package]\nname = \"scx_old\"\n[dependencies]\nscx_utils = { version = \"1.0.17\" }\n";
    place.write("scx_old/Cargo.toml", manifest);
    let said = place.fails(&check);
    assert!(
        said.contains("scx_utils 1.0.17: try --headers 1.0.17"),
        "{said}"
    );
}

#[test]
fn arrays_are_as_long_as_the_machine() {
    let place = Place::new();
    let main = policy("main.bpf.c");
    let run = [
        "sim",
        "hogs.toml",
        "-q",
        "--json",
        "--set",
        "host.cores=4",
        "--set",
        "run.measure=1s",
        "--policy",
    ];
    let (_, said) = place.works(&[&run[..], &[&main, "--rodata", "slice_ns=1ms"]].concat());
    assert!(said.contains("nr_started to 4"), "{said}");
    // Its scheduler says that the machine is larger than the array, and no memory is touched.
    let short = [&run[..], &[&main, "--resize", "nr_started=2"]].concat();
    let out = place.berth(&short);
    assert_eq!(
        out.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
fn wrong_options_are_said_before_anything_runs() {
    let place = Place::new();
    let main = policy("main.bpf.c");
    let rows: &[(&[&str], &str)] = &[
        (
            &["--policy", &main, "--rodata", "slice=1"],
            "there is no variable `slice`",
        ),
        (
            &["--policy", &main, "--rodata", "slice_ns"],
            "--rodata ADDRESS=VALUE",
        ),
        (
            &["--policy", &main, "--rodata", "strict=7"],
            "true or false",
        ),
        (&["--policy", &main, "--ops-flags", "ENQ_LATE"], "ENQ_LAST"),
        (&["--policy", &main, "--resize", "nr_ended=3"], "nr_started"),
        (
            &["--policy", &main, "--resize", "nr_started=0"],
            "at least 1",
        ),
        (&["--policy", &main, "--headers", "1"], "such as 1.0.14"),
        (
            &["--policy", "vmfair", "--rodata", "slice_ns=1"],
            "--policy FILE",
        ),
        (
            &["--policy", "vmfair", "--set", "arm.vmfair.headers=1.0.14"],
            "berth policy show vmfair",
        ),
    ];
    for (arguments, wanted) in rows {
        let said = place.fails(&[&["sim", "hogs.toml", "-q"][..], arguments].concat());
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
    assert!(!place.0.path().join("berth-out").exists());
    // They stand beside the option, or the line of the scenario.
    let option = [
        "sim",
        "hogs.toml",
        "-q",
        "--policy",
        &main,
        "--rodata",
        "slice_ns=-1",
    ];
    let said = place.fails(&option);
    assert!(said.contains("from 0 to 18446744073709551615"), "{said}");
    assert!(said.contains("| --rodata slice_ns=-1"), "{said}");
    let arm = format!("[arm.own]\npolicy = \"{main}\"\nrodata = {{ slice_ns = \"5ms\" }}\n");
    for (key, wanted) in [
        ("resize = { nr_ended = 3 }", "own.toml:20"),
        ("ops_flags = [\"ENQ_LATE\"]", "own.toml:20"),
        ("headers = \"1\"", "own.toml:20"),
    ] {
        let text = HOGS.replace("[compare]\npolicies = []\n", &format!("{arm}{key}\n"));
        place.write("own.toml", &text);
        let said = place.fails(&["scenario", "check", "own.toml"]);
        assert!(said.contains(wanted), "{key}: {said}");
    }
}

/// A scheduler that loads and does not begin is found by a check, with its line.
#[test]
fn a_check_of_a_scenario_begins_its_schedulers() {
    let place = Place::new();
    let main = policy("main.bpf.c");
    let arm = |strict: bool| {
        format!(
            "[arm.own]\npolicy = \"{main}\"\nrodata = {{ slice_ns = \"5ms\", strict = {strict} }}\n"
        )
    };
    place.write(
        "own.toml",
        &HOGS.replace("[compare]\npolicies = []\n", &arm(true)),
    );
    let said = place.fails(&["scenario", "check", "own.toml"]);
    assert!(said.contains("arm own: in its first millisecond"), "{said}");
    assert!(
        said.contains("own.toml:18") && said.contains("init"),
        "{said}"
    );
    place.write(
        "own.toml",
        &HOGS.replace("[compare]\npolicies = []\n", &arm(false)),
    );
    place.works(&["scenario", "check", "own.toml"]);
    // A guest's scheduler does, at the line of its VM.
    let text = HOGS.replace("policies = []", "policies = [\"linux\"]");
    let source = std::fs::read_to_string(&main).unwrap();
    let source = source.replace("bool strict;", "bool strict = true;");
    place.write("strict.bpf.c", &source);
    let guest = "guest = \"strict.bpf.c\"";
    let (before, after) = text.split_once("[vm.light]\n").unwrap();
    place.write("own.toml", &format!("{before}[vm.light]\n{guest}\n{after}"));
    let said = place.fails(&["scenario", "check", "own.toml"]);
    let line = before.lines().count() + 2;
    assert!(
        said.contains("VM light") && said.contains(&format!("own.toml:{line}")),
        "{said}"
    );
}

/// An empty file is no scenario in which nothing happens.
#[test]
fn an_empty_file_is_no_scenario() {
    let place = Place::new();
    for name in ["empty.toml", "empty.json"] {
        place.write(name, " \n");
        let said = place.fails(&["sim", name]);
        assert!(said.contains(&format!("{name} is empty")), "{said}");
    }
}

#[test]
fn a_check_runs_init_and_a_second() {
    let place = Place::new();
    let main = policy("main.bpf.c");
    let (out, _) = place.works(&["policy", "check", &main, "--rodata", "slice_ns=5ms"]);
    assert!(
        out.starts_with("ok ") && out.contains("ran init and a second of 2 CPUs"),
        "{out}"
    );
    assert!(out.contains("strict = false"), "{out}");
    let said = place.fails(&["policy", "check", &main, "--rodata", "strict=true"]);
    assert!(
        said.contains("it loads, but") && said.contains("init") && said.contains("note: "),
        "{said}"
    );
    // The shipped ones live, whatever they are made for.
    let shipped = ["vmfair", "eevdf", "gfifo", "mrsf", "osv"];
    place.works(&[&["policy", "check"][..], &shipped].concat());
}

#[test]
fn two_files_of_one_name_are_two_arms() {
    let place = Place::new();
    let text = std::fs::read_to_string(policy("main.bpf.c")).unwrap();
    place.write("a/same.bpf.c", &text);
    place.write("b/same.bpf.c", &text.replace("used * 100", "used * 200"));
    let run = [
        "sim",
        "hogs.toml",
        "-q",
        "--json",
        "--set",
        "run.measure=1s",
    ];
    let (json, _) = place.works(
        &[
            &run[..],
            &["--policy", "a/same.bpf.c", "--policy", "b/same.bpf.c"],
        ]
        .concat(),
    );
    let results: serde_json::Value = serde_json::from_str(&json).unwrap();
    let arms = results["experiments"][0]["arms"].as_array().unwrap();
    let names: Vec<_> = arms.iter().map(|a| a["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["same", "same-2"]);
}

/// A scheduler in two files, as those of the scx project with `lib/` are.
#[cfg(feature = "kernel")]
#[test]
fn several_files_are_linked() {
    let place = Place::new();
    let text = std::fs::read_to_string(policy("main.bpf.c")).unwrap();
    let text = text.replace(
        "static u64 now_v;",
        "static u64 now_v;\nu64 scaled(u64 used, u32 weight);",
    );
    let text = text.replace("used * 100 / p->scx.weight", "scaled(used, p->scx.weight)");
    place.write("main.bpf.c", &text);
    place.write(
        "lib.bpf.c",
        "#include <scx/common.bpf.h>\nchar _license[] SEC(\"license\") = \"GPL\";\n__weak u64 scaled(u64 used, u32 \
         weight)\n{\n\treturn weight ? used * 100 / weight : used;\n}\n",
    );
    let run = [
        "sim",
        "hogs.toml",
        "-q",
        "--json",
        "--rodata",
        "slice_ns=20ms",
        "--policy",
    ];
    let said = place.fails(&[&run[..], &["main.bpf.c"]].concat());
    assert!(
        said.contains("scaled") && said.contains("berth policy link"),
        "{said}"
    );
    let (out, _) = place.works(&[
        "policy",
        "link",
        "main.bpf.c",
        "lib.bpf.c",
        "-o",
        "whole.bpf.o",
    ]);
    assert_eq!(out, "whole.bpf.o · 2 files · scheduler loaded\n");
    let (json, _) = place.works(&[&run[..], &["whole.bpf.o"]].concat());
    let (share, _) = share(&json);
    assert!((share - NICE.1 / (NICE.0 + NICE.1)).abs() < 0.01, "{share}");
    let said = place.fails(&[
        "policy",
        "link",
        "main.bpf.c",
        "main.bpf.c",
        "-o",
        "twice.bpf.o",
    ]);
    assert!(
        said.contains("do not fit together") && said.contains("main.bpf.c"),
        "{said}"
    );
    let left: Vec<std::path::PathBuf> = std::fs::read_dir(place.0.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    assert!(
        !left.iter().any(|p| p.to_string_lossy().contains(".link")),
        "{left:?}"
    );
    // Nothing but an object of before is written over.
    place.works(&["policy", "link", "whole.bpf.o", "-o", "whole.bpf.o.copy"]);
    place.write("notes.txt", "mine");
    for (out, why) in [
        ("main.bpf.c", "the name of a source"),
        ("whole.bpf.o", "one of the files to link"),
        ("notes.txt", "no object"),
        ("/dev/null", "no file"),
    ] {
        let said = place.fails(&["policy", "link", "whole.bpf.o", "-o", out]);
        assert!(said.contains(why), "{out}: {said}");
    }
    let kept = std::fs::read_to_string(place.0.path().join("main.bpf.c")).unwrap();
    assert_eq!(kept, text);
    place.works(&[
        "policy",
        "link",
        "main.bpf.c",
        "lib.bpf.c",
        "-o",
        "whole.bpf.o",
    ]);
}

/// Options of a loader are for schedulers in files; what is no file is not waited for.
#[test]
fn a_check_takes_files_only() {
    let place = Place::new();
    let said = place.fails(&["policy", "check", "vtime", "--rodata", "slice_us=4"]);
    assert!(said.contains("are for schedulers in files"), "{said}");
    let main = policy("main.bpf.c");
    let said = place.fails(&["policy", "check", &main, "-I", "/nosuch"]);
    assert!(said.contains("`/nosuch`, which is no folder"), "{said}");
    let old = HOGS
        .replace("cores = 1", "cores = 1\nkernel = \"5.4\"")
        .replace("policies = []", "policies = [\"vtime\"]");
    place.write("old.toml", &old);
    let said = place.fails(&["scenario", "check", "old.toml"]);
    assert!(
        said.contains("has no sched_ext") && said.contains("old.toml:4"),
        "{said}"
    );
    let pipe = place.0.path().join("pipe.bpf.o");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("/dev/zero", place.0.path().join("zero.bpf.c")).unwrap();
    for name in ["pipe.bpf.o", "zero.bpf.c"] {
        let said = place.fails(&["policy", "check", name]);
        assert!(said.contains(&format!("{name}: not a file")), "{said}");
    }
}

/// As the scx project's `pmu.h` reads counters.
#[test]
fn counters_are_read_by_the_kernels_own_structure() {
    let place = Place::new();
    let text = std::fs::read_to_string(policy("main.bpf.c")).unwrap();
    let text = text.replace(
        "static u64 now_v;",
        "static u64 now_v, counted;\nstruct {\n\t__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);\n\t__uint(key_size, \
         4);\n\t__uint(value_size, 4);\n} events SEC(\".maps\");",
    );
    let text = text.replace(
        "\tif (started)",
        "\tstruct bpf_perf_event_value v = {};\n\n\tif (!bpf_perf_event_read_value(&events, BPF_F_CURRENT_CPU, &v, \
         sizeof(v)))\n\t\tcounted += v.counter - v.enabled + v.running;\n\tif (started)",
    );
    place.write("pmu.bpf.c", &text);
    place.works(&["policy", "check", "pmu.bpf.c", "--rodata", "slice_ns=5ms"]);
}

/// A scheduler that is compared with is one more arm: the scenario's own stays the baseline.
#[test]
fn the_baseline_stays() {
    let place = Place::new();
    let arms = HOGS.replace("[compare]\npolicies = []", "[arm.vtime]\n[arm.gfifo]");
    place.write("arms.toml", &arms);
    let main = policy("main.bpf.c");
    let (json, _) = place.works(&[
        "sim",
        "arms.toml",
        "-q",
        "--json",
        "--set",
        "run.measure=1s",
        "--policy",
        &main,
    ]);
    let results: serde_json::Value = serde_json::from_str(&json).unwrap();
    let experiment = &results["experiments"][0];
    let arms = experiment["arms"].as_array().unwrap();
    let names: Vec<_> = arms.iter().map(|a| a["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["vtime", "gfifo", "loaded"]);
    assert_eq!(experiment["baseline"], "vtime");
}
