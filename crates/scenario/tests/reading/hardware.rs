// SPDX-License-Identifier: GPL-2.0-only
//! What a scenario says of hardware: CPUs, kinds of cores, caches, memory, and what tasks do with them.
use super::{load, refusal};
use berth_scenario::model::*;
use berth_scenario::{Edit, Input, read, show, support};

#[test]
fn hardware_keys() {
    let host = |text: &str| {
        let task = "[vm.a]\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\"\n";
        Input {
            name: "t".into(),
            shown: "t.toml".into(),
            text: format!("{text}\n{task}"),
            folder: None,
        }
    };
    let cost = |text: &str| read(&host(text), &[]).unwrap().scenario.host.cost;
    assert_eq!(cost(""), berth_scenario::cost::assumed());
    assert_eq!(cost("[host]\ncost = \"none\""), Default::default());
    let flat = cost("[host.cost]\nmigrate = { same_llc = \"9us\" }");
    assert_eq!((flat.migrate_same_llc_ns, flat.cache), (9000, None));
    let both = cost(
        "[host]\ncores = 3\nthreads = 2\nspeed = [\"1 x 100%\", \"2 x 55%\"]\nsmt_speed = \"70%\"\n\
         cache = { core = \"2MiB\", from_llc = \"10GB/s\" }\n[host.cost]\nvm_exit = \"2us\"",
    );
    let speeds: Vec<_> = both
        .kinds
        .iter()
        .map(|k| (&k.cores[..], k.speed_ppm))
        .collect();
    assert_eq!(speeds, [(&[0][..], 1_000_000), (&[1, 2], 550_000)]);
    assert_eq!(
        (both.smt_ppm, both.vm_exit_ns, both.vm_entry_ns),
        (700_000, 2000, 500)
    );
    let cache = both.cache.unwrap();
    assert_eq!(
        (cache.core_bytes, cache.from_llc, cache.llc_bytes),
        (2 << 20, 10_000, 32 << 20)
    );
    for (text, words) in [
        (
            "[host]\nspeed = [\"3 x 50%\"]",
            "about 3 cores, but the host has 4",
        ),
        ("[host]\nspeed = \"0%\"", "1% to 1000%"),
        (
            "[host]\nspeed = [\"2 x 1000%\", \"2 x 9%\"]",
            "the fastest core is 111 times as fast as the slowest",
        ),
        ("[host]\nspeed = [\"x\"]", "COUNT x PERCENT"),
        ("[host]\nsmt_speed = \"120%\"", "10% to 100%"),
        ("[host]\ncache = \"big\"", "\"none\" or a table"),
        ("[host.cache]\nfrom_llc = \"1kB/s\"", "at least 1MB/s"),
        ("[host.cost]\nprofile = \"fast\"", "default, lab, this-host"),
    ] {
        let error = read(&host(text), &[]).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    // Printed in full and read again, nothing changes.
    let input = host("[host]\ncache = \"none\"\nspeed = \"50%\"");
    let first = read(&input, &[]).unwrap();
    let text = berth_scenario::show::full(&first.facts);
    let again = read(&Input { text, ..input }, &[]).unwrap();
    assert_eq!(first.scenario, again.scenario);
}

#[test]
fn scores_of_vms() {
    let vm = |keys: &str| Input {
        name: "scores".into(),
        shown: "scores.toml".into(),
        text: format!("[vm.a]\nvcpus = 3\n{keys}\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\""),
        folder: None,
    };
    let of = |keys: &str| {
        let read = read(&vm(keys), &[]).unwrap();
        let text = berth_scenario::show::full(&read.facts);
        let shown = Input {
            text,
            ..vm(keys).clone()
        };
        let again = berth_scenario::read(&shown, &[]).unwrap();
        assert_eq!(read.scenario, again.scenario);
        [0, 1, 2].map(|vcpu| read.scenario.vms[0].score_milli(vcpu))
    };
    assert_eq!(of(""), [None; 3]);
    assert_eq!(of("score = \"175%\""), [Some(1750); 3]);
    assert_eq!(
        of("score = [\"2 x 187.5%\", \"100%\"]"),
        [Some(1875), Some(1875), Some(1000)]
    );
    for (keys, words) in [
        ("score = 2", "takes percentage, or a list"),
        ("score = \"175\"", "write for instance 50%"),
        ("score = \"99%\"", "100% to 10000%, not 99%"),
        ("score = \"0%\"", "100% to 10000%"),
        ("score = \"10001%\"", "100% to 10000%"),
        ("score = [\"0 x 110%\"]", "COUNT x PERCENT"),
        ("score = [\"2 x 110%\"]", "about 2 vCPUs, but the VM has 3"),
        ("score = []", "about 0 vCPUs, but the VM has 3"),
        ("score = [1]", "score"),
    ] {
        let error = read(&vm(keys), &[]).unwrap_err().to_string();
        assert!(
            error.contains(words) && error.contains("scores.toml:"),
            "{keys}: {error}"
        );
    }
}

#[test]
fn memory_of_vms() {
    let text = |host: &str, keys: &str| Input {
        name: "memory".into(),
        shown: "memory.toml".into(),
        text: format!(
            "[host]\n{host}\n[vm.a]\n{keys}\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\""
        ),
        folder: None,
    };
    let two = "packages = 2";
    let of = |host: &str, keys: &str, edits: &[Edit]| {
        let read = read(&text(host, keys), edits).unwrap_or_else(|e| panic!("{e}"));
        let shown = Input {
            text: berth_scenario::show::full(&read.facts),
            ..text(host, keys)
        };
        let again =
            berth_scenario::read(&shown, &[]).unwrap_or_else(|e| panic!("{e}\n{}", shown.text));
        assert_eq!(read.scenario, again.scenario);
        let scenario = read.scenario;
        (
            scenario.vms[0].memory_ppm.clone(),
            scenario.host.cost.remote_ppm,
        )
    };
    assert_eq!(of(two, "", &[]), (vec![], 0));
    assert_eq!(of(two, "memory = 1", &[]), (vec![0, 1_000_000], 0));
    let parts = "memory = [\"30%\", \"70%\"]";
    assert_eq!(of(two, parts, &[]).0, [300_000, 700_000]);
    // Of a node that is left out, none.
    assert_eq!(of(two, "memory = [\"100%\"]", &[]).0, [1_000_000, 0]);
    assert_eq!(of("", "memory = 0", &[]).0, [1_000_000]);
    let remote = |times: &str| of(&format!("{two}\nremote_memory = {times}"), parts, &[]).1;
    assert_eq!(
        [remote("1"), remote("1.0"), remote("1.5"), remote("100")],
        [0, 0, 1_500_000, 100_000_000]
    );
    // Without effect where no node is another one.
    assert_eq!(of("remote_memory = 2", "", &[]).1, 2_000_000);
    let set = |edit: &str| of(two, parts, &[Edit::Set(edit.into())]);
    assert_eq!(set("vm.a.memory=0").0, [1_000_000, 0]);
    assert_eq!(set("vm.a.memory=[\"10%\", \"90%\"]").0, [100_000, 900_000]);
    assert_eq!(set("host.remote_memory=1.25").1, 1_250_000);
    let times = "`host.remote_memory` is";
    for (host, keys, words) in [
        (
            two,
            "memory = 2",
            "there is no node 2|the host has nodes 0 to 1",
        ),
        (two, "memory = -1", "there is no node -1"),
        (
            "",
            "memory = 1",
            "there is no node 1|the host has one node, 0",
        ),
        (two, "memory = \"1\"", "`vm.a.memory` takes node, or list"),
        (two, "memory = 0.5", "`vm.a.memory` takes node, or list"),
        (
            two,
            "memory = [\"50%\", \"40%\"]",
            "are 90% together, but should be 100%",
        ),
        (two, "memory = [\"50%\", \"60%\"]", "are 110% together"),
        (two, "memory = []", "are 0% together"),
        (two, "memory = [\"150%\", \"-50%\"]", "-50"),
        (two, "memory = [0.5, 0.5]", "is a list of strings"),
        (two, "memory = [\"50\", \"50\"]", "write for instance 50%"),
        (
            two,
            "memory = [\"50%\", \"40%\", \"10%\"]",
            "there is no node 2",
        ),
        (
            "packages = 2\nremote_memory = 0.9",
            "",
            &format!("{times} 0.9, but should be 1 to 100"),
        ),
        (
            "packages = 2\nremote_memory = 0",
            "",
            &format!("{times} 0, "),
        ),
        (
            "packages = 2\nremote_memory = -2",
            "",
            &format!("{times} -2, "),
        ),
        (
            "packages = 2\nremote_memory = nan",
            "",
            &format!("{times} NaN, "),
        ),
        (
            "packages = 2\nremote_memory = inf",
            "",
            &format!("{times} inf, "),
        ),
        (
            "packages = 2\nremote_memory = \"150%\"",
            "",
            "takes number, 1 to 100, not",
        ),
    ] {
        let error = read(&text(host, keys), &[]).unwrap_err().to_string();
        let said = words.split('|').all(|words| error.contains(words));
        assert!(
            said && error.contains("memory.toml:"),
            "{host} {keys}: {error}"
        );
    }
}

#[test]
fn kinds_of_cores() {
    let task = "[vm.a]\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\"";
    let host = |text: &str| Input {
        name: "kinds".into(),
        shown: "kinds.toml".into(),
        text: format!("{text}\n{task}"),
        folder: None,
    };
    // Two last-level caches with two fast and four slow cores each; the rest by count.
    let input = host(
        "[host]\ncores = 12\nllcs = 2\nthreads = 2\n[host.kind.slow]\ncores = 8\nspeed = \"50%\"\nfrequency = \"80%\"\n\
         [host.kind.fast]\ncores = \"0-1,6-7\"\nsmt_speed = \"60%\"",
    );
    let first = read(&input, &[]).unwrap();
    let kinds = &first.scenario.host.cost.kinds;
    assert_eq!(kinds[0].cores, [2, 3, 4, 5, 8, 9, 10, 11]);
    assert_eq!(kinds[1].cores, [0, 1, 6, 7]);
    let said: Vec<_> = kinds
        .iter()
        .map(|k| (&k.name[..], k.speed_ppm, k.frequency_ppm, k.smt_ppm))
        .collect();
    assert_eq!(
        said,
        [
            ("slow", 500_000, 800_000, 0),
            ("fast", 1_000_000, 1_000_000, 600_000)
        ]
    );
    let text = berth_scenario::show::full(&first.facts);
    assert!(text.contains("[host.kind.fast]"), "{text}");
    let again = read(
        &Input {
            text,
            ..input.clone()
        },
        &[],
    )
    .unwrap();
    assert_eq!(first.scenario, again.scenario);
    let edits = [Edit::Set("host.kind.slow.speed=40%".into())];
    assert_eq!(
        read(&input, &edits).unwrap().scenario.host.cost.kinds[0].speed_ppm,
        400_000
    );
    // The lab brakes slow cores; a host has its own kinds, and the refusal says which line asks for others.
    support::check(&first.scenario, support::Place::Lab, &|_| None).unwrap();
    let refused = support::check(&first.scenario, support::Place::Host, &|address| {
        first.at(address)
    });
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("host.kind.slow, line 6"), "{said}");
    let fast = "[host.kind.fast]\ncores = 2";
    for (text, words) in [
        (format!("{fast}\nsped = \"50%\""), "did you mean `speed`"),
        (format!("{fast}\nspeed = \"0%\""), "1% to 1000%"),
        (format!("{fast}\nspeed = \"1001%\""), "1% to 1000%"),
        (
            format!("{fast}\n[host.kind.slow]\ncores = 2\nspeed = \"2%\"\nfrequency = \"40%\""),
            "the fastest core is 125 times as fast as the slowest",
        ),
        (format!("{fast}\nspeed = \"100001%\""), "more than 100000%"),
        (format!("{fast}\nspeed = 2"), "takes percent"),
        (format!("{fast}\nfrequency = \"120%\""), "1% to 100%"),
        (
            format!("{fast}\nsmt_speed = \"120%\""),
            "`host.kind.fast.smt_speed`",
        ),
        (
            fast.into(),
            "2 of the host's 4 cores are of no kind, the first is core 2",
        ),
        (
            format!("{fast}\n[host.kind.slow]\ncores = 3"),
            "the host has 4 cores, 1 too few",
        ),
        ("[host.kind.fast]\ncores = 0".into(), "a count of 1 to 4"),
        ("[host.kind.fast]\ncores = \"3-4\"".into(), "from 0 to 3"),
        (
            "[host.kind.a]\ncores = \"0-2\"\n[host.kind.b]\ncores = \"2-3\"".into(),
            "core 2 is of kind `a` and of kind `b`",
        ),
        ("[host.kind.fast]\nspeed = \"50%\"".into(), "needs `cores`"),
        (
            format!("[host]\nspeed = \"50%\"\n{fast}"),
            "both `host.speed` and kinds",
        ),
        ("[host]\nkind = 3".into(), "write [host.kind.NAME]"),
    ] {
        let error = read(&host(&text), &[]).unwrap_err().to_string();
        assert!(
            error.contains(words) && error.contains("kinds.toml:"),
            "{text}: {error}"
        );
    }
}

/// Last-level caches of a kind's own: which cores share one, and what is refused.
#[test]
fn caches_of_kinds() {
    let task = "[vm.a]\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\"";
    let host = |text: &str| Input {
        name: "caches".into(),
        shown: "caches.toml".into(),
        text: format!("{text}\n{task}"),
        folder: None,
    };
    let of_core = |input: &Input| {
        let host = read(input, &[])
            .unwrap_or_else(|e| panic!("{e}"))
            .scenario
            .host;
        CoreKind::llc_of_core(&host.cost.kinds, host.packages, host.cores)
    };
    // Dense cores share two, the others one.
    let dense = "[host]\ncores = 12\n[host.kind.classic]\ncores = 4\nllcs = 1\n[host.kind.dense]\ncores = 8\nllcs = 2";
    let input = host(dense);
    assert_eq!(
        of_core(&input),
        Some(vec![0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
    );
    // Cores of kinds that say nothing have one together, in each package; numbers go by the lowest core.
    let low = "[host]\npackages = 2\ncores = 4\n[host.kind.fast]\ncores = \"1,5\"\n[host.kind.low]\ncores = \"0,4\"\n\
               llcs = 2\n[host.kind.slow]\ncores = 4";
    assert_eq!(of_core(&host(low)), Some(vec![0, 1, 1, 1, 2, 3, 3, 3]));
    assert_eq!(
        of_core(&host("[host.kind.all]\ncores = 4")),
        None,
        "host.llcs says it"
    );
    // The whole file can be read again.
    let first = read(&input, &[]).unwrap();
    let text = berth_scenario::show::full(&first.facts);
    let again = read(
        &Input {
            text,
            ..input.clone()
        },
        &[],
    );
    assert_eq!(first.scenario, again.unwrap().scenario);
    // A lab VM's caches are all of a size.
    let refused = support::check(&first.scenario, support::Place::Lab, &|address| {
        first.at(address)
    });
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("host.kind.classic.llcs, line 5"), "{said}");
    let fast = "[host.kind.fast]\ncores = 2";
    let slow = "[host.kind.slow]\ncores = 2";
    for (text, words) in [
        (
            format!("[host]\nllcs = 2\n{fast}\nllcs = 1\n{slow}"),
            "the host has both `host.llcs` and kinds with caches of their own\n  caches.toml:5\n",
        ),
        (
            format!("[host]\nllcs = 1\n{fast}\nllcs = 1\n{slow}"),
            "the host has both `host.llcs` and kinds with caches of their own\n  caches.toml:5\n",
        ),
        (
            format!("[host]\ncores = 6\n{fast}\n[host.kind.slow]\ncores = 4\nllcs = 3"),
            "4 cores cannot be spread evenly over 3 last-level caches\n  caches.toml:7\n",
        ),
        (
            format!("{fast}\nllcs = 4\n{slow}"),
            "2 cores cannot be spread evenly over 4 last-level caches\n  caches.toml:3\n",
        ),
        (
            format!("{fast}\nllcs = 0\n{slow}"),
            "`host.kind.fast.llcs` is 0, but should be 1 to 4096\n  caches.toml:3\n",
        ),
        (format!("{fast}\nllcs = \"1\"\n{slow}"), "takes count"),
        (
            "[host]\npackages = 2\ncores = 3\n[host.kind.a]\ncores = \"0-3\"\nllcs = 2\n[host.kind.b]\ncores = 2"
                .into(),
            "a last-level cache would be of two packages: cores 2 and 3\n  caches.toml:6\n",
        ),
    ] {
        let error = read(&host(&text), &[]).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

/// Frequencies among which a policy chooses.
#[test]
fn frequency_steps_of_kinds() {
    let task = "[vm.a]\ntasks = [\"t\"]\n[task.t]\nmodel = \"busy\"";
    let host = |keys: &str| Input {
        name: "steps".into(),
        shown: "steps.toml".into(),
        text: format!("[host.kind.all]\ncores = 4\n{keys}\n{task}"),
        folder: None,
    };
    let input = host("steps = [\"1.9GHz\", \"800MHz\", \"1400000kHz\"]");
    let first = read(&input, &[]).unwrap();
    let kind = &first.scenario.host.cost.kinds[0];
    assert_eq!(kind.steps_khz, [800_000, 1_400_000, 1_900_000]);
    let text = show::full(&first.facts);
    let again = Input {
        text,
        ..input.clone()
    };
    assert_eq!(first.scenario, read(&again, &[]).unwrap().scenario);
    let none = Edit::Set("host.kind.all.steps=[\"2GHz\"]".into());
    let one = read(&input, &[none]).unwrap();
    assert_eq!(one.scenario.host.cost.kinds[0].steps_khz, [2_000_000]);
    let refused = support::check(&first.scenario, support::Place::Lab, &|address| {
        first.at(address)
    });
    let said = refused.unwrap_err().to_string();
    let expected = "the lab has no frequency steps: host.kind.all.steps, line 3";
    assert!(said.contains(expected), "{said}");
    for (keys, words) in [
        (
            "steps = []",
            "should have 1 to 64 frequencies\n  steps.toml:3\n",
        ),
        (
            "steps = [\"1.9\"]",
            "has no unit: write 1.9MHz or 1.9GHz\n  steps.toml:3\n",
        ),
        (
            "steps = [\"1GHz\", \"2%\"]",
            "`%` is not a unit of frequency",
        ),
        ("steps = [\"0GHz\"]", "outside 1MHz to 100GHz"),
        ("steps = [\"-1GHz\"]", "is negative"),
        (
            "steps = [\"1GHz\", \"1000MHz\"]",
            "has this frequency twice\n  steps.toml:3\n",
        ),
        (
            "steps = [\"10MHz\", \"2GHz\"]",
            "below 1% of its highest frequency\n  steps.toml:3\n",
        ),
        ("steps = \"1GHz\"", "takes list of frequencies, not"),
        ("steps = [1]", "is a list of strings\n  steps.toml:3\n"),
        (
            "steps = [\"1GHz\"]\nfrequency = \"50%\"",
            "kind `all` has both `frequency` and `steps`\n  steps.toml:3\n",
        ),
    ] {
        let error = read(&host(keys), &[]).unwrap_err().to_string();
        assert!(error.contains(words), "{keys}: {error}");
    }
}

/// What a phase of a task may say, and in which order.
#[test]
fn phases_of_tasks() {
    let text = |step: &str| {
        format!("[vm.a]\ntasks = [\"t\"]\n[task.t]\nloop = [\"{step}\", \"compute 1ms\"]\n")
    };
    let stall = |step: &str| load(&text(step)).scenario.tasks["t"].steps[0].clone();
    let of = |ppm, ipc_milli, working_set| {
        Step::Stall(berth_scenario::step::Stall {
            ppm,
            ipc_milli,
            working_set,
        })
    };
    assert_eq!(stall("stall 55%"), of(550_000, None, None));
    assert_eq!(stall("stall 0% ipc 0.8"), of(0, Some(800), None));
    let both = of(550_000, Some(800), Some(8 << 20));
    assert_eq!(stall("stall 55% ipc 0.8 working_set 8MiB"), both);
    assert_eq!(stall("stall 55%  working_set 8MiB ipc 0.8"), both);
    assert_eq!(stall("stall 5% working_set 0B"), of(50_000, None, Some(0)));
    for (step, words) in [
        ("stall", "`stall` takes the part of its time for which"),
        ("stall 101%", "`stall` takes 0% to 100%"),
        (
            "stall 5% ipc",
            "behind `stall` may stand `ipc` and a number",
        ),
        (
            "stall 5% ipc 17",
            "behind `stall` may stand `ipc` and a number",
        ),
        (
            "stall 5% ipc 1 ipc 1",
            "behind `stall` may stand `ipc` and a number",
        ),
        ("stall 5% working_set", "and `working_set` and a size"),
        ("stall 5% working_set 5", "`5` has no unit"),
        ("stall 5% working_set 2000GiB", "larger than 1024GiB"),
        ("stall 5% set 5MiB", "behind `stall` may stand `ipc`"),
    ] {
        let said = refusal(&text(step));
        assert!(
            said.contains(words) && said.contains("t.toml:4"),
            "{step}: {said}"
        );
    }
}
