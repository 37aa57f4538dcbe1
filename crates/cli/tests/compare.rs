// SPDX-License-Identifier: GPL-2.0-only
//! `berth compare` for folders, as a user meets it: what is no set, and what is not recorded yet.
use std::path::Path;
use std::process::Command;

const HOGS: &str = "title = \"Hogs\"\n[run]\nwarmup = \"10ms\"\nmeasure = \"100ms\"\n[host]\ncores = 1\n\
    [vm.hog]\ncount = 2\ntasks = [\"burn\"]\n[task.burn]\nmodel = \"busy\"\n[compare]\npolicies = [\"gfifo\", \
    \"vtime\"]\n";

/// Files in a folder of their own.
fn place(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

/// Exit status, and what was said on standard error.
fn compare(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
    let out = command
        .current_dir(dir)
        .arg("compare")
        .args(arguments)
        .output()
        .unwrap();
    (
        out.status.code(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    )
}

#[test]
fn a_scenario_in_both_sets_is_refused() {
    // The same machine with the same VMs, whatever it is called, how long it runs, under whom.
    let other = HOGS
        .replace("\"Hogs\"", "\"Other\"")
        .replace("100ms", "200ms")
        .replace("\"gfifo\", ", "");
    let three = HOGS.replace("count = 2", "count = 3");
    let dir = place(&[
        ("open/a.toml", HOGS),
        ("same/b.toml", &other),
        ("named/a.toml", &three),
        ("apart/b.toml", &three),
    ]);
    let arguments = |sealed| ["open", "--sealed", sealed, "-q"];
    let (status, said) = compare(dir.path(), &arguments("same"));
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains("same/b.toml") && said.contains("the same scenario as open/a.toml"),
        "{said}"
    );
    let (status, said) = compare(dir.path(), &arguments("named"));
    assert_eq!(status, Some(2), "{said}");
    assert!(
        said.contains("a scenario of the same name as open/a.toml"),
        "{said}"
    );
    let (status, said) = compare(dir.path(), &arguments("apart"));
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn what_is_not_recorded_is_said_and_the_page_copes() {
    let dir = place(&[
        ("open/a.toml", HOGS),
        ("open/set.toml", "seeds = 3\n"),
        (
            "page.md",
            "# Page\n<!-- begin fidelity (x) -->\n<!-- end fidelity -->\nend\n",
        ),
    ]);
    let pages = [
        "open",
        "-q",
        "--check",
        "--markdown",
        "table.md",
        "--summary",
        "page.md",
    ];
    let (status, said) = compare(dir.path(), &pages);
    assert_eq!(status, Some(0), "{said}");
    let missing = "not recorded yet, of 3 starts of each: gfifo 3, vtime 3";
    assert!(said.contains(&format!("a: {missing}")), "{said}");
    for page in ["table.md", "page.md"] {
        let text = std::fs::read_to_string(dir.path().join(page)).unwrap();
        assert!(
            text.contains(&format!("- {missing}: `a`\n")),
            "{page}: {text}"
        );
    }
}

#[test]
fn what_is_no_set_is_refused() {
    let dir = place(&[
        ("open/a.toml", HOGS),
        ("wrong/a.toml", HOGS),
        ("wrong/set.toml", "seeds = 0\n"),
        ("empty/set.toml", "seeds = 3\n"),
        ("page.md", "# Page\n"),
    ]);
    for (arguments, word) in [
        (&["wrong", "-q"][..], "needs a start"),
        (&["empty", "-q"], "no scenario files"),
        (&["open", "--sealed", "nowhere", "-q"], "nowhere"),
        (
            &["open/a.toml", "--sealed", "wrong"],
            "--sealed is for a folder",
        ),
        (
            &["open/a.toml", "--renew-known"],
            "--renew-known is for a folder",
        ),
        (&["open", "-q", "--summary", "page.md"], "begin fidelity"),
    ] {
        let (status, said) = compare(dir.path(), arguments);
        assert_eq!(status, Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
    }
}

/// The policy `cfs` beside Linux 6.1 under its own scheduler, as it was recorded in the lab's VM.
#[test]
fn the_model_of_cfs_is_as_near_to_linux_as_is_known() {
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../compare/cfs");
    let dir = tempfile::tempdir().unwrap();
    let (status, said) = compare(dir.path(), &[set.to_str().unwrap(), "--check", "-q"]);
    assert_eq!(status, Some(0), "{said}");
    // Of another scheduler that cannot be said: the check can fail.
    for entry in std::fs::read_dir(&set).unwrap() {
        let path = entry.unwrap().path();
        let to = dir.path().join("other").join(path.file_name().unwrap());
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        if path.extension().is_some_and(|e| e == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(to, text.replace("kernel = \"6.1\"\n", "")).unwrap();
        }
    }
    let records = dir.path().join("other/kernel");
    std::fs::create_dir_all(&records).unwrap();
    for entry in std::fs::read_dir(set.join("kernel")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, records.join(path.file_name().unwrap())).unwrap();
    }
    let (status, said) = compare(dir.path(), &["other", "--check", "-q"]);
    assert_eq!(status, Some(1), "EEVDF is not CFS: {said}");
}
