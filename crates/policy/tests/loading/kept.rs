// SPDX-License-Identifier: GPL-2.0-only
//! Sources are compiled once, and again when anything of what they are made of has changed.
use berth_policy::compile::{CompileOptions, compile};
use std::path::Path;
use std::time::SystemTime;

/// Is the object that of a kept file that was there before?
fn objects(cache: &Path) -> Vec<(String, SystemTime)> {
    let Ok(entries) = std::fs::read_dir(cache.join("objects")) else {
        return Vec::new();
    };
    let kept = entries
        .flatten()
        .filter(|e| e.path().extension().is_some_and(|x| x == "o"));
    let mut kept: Vec<_> = kept
        .map(|e| {
            let name = e.file_name().to_string_lossy().into_owned();
            (name, e.metadata().unwrap().modified().unwrap())
        })
        .collect();
    kept.sort();
    kept
}

/// In a process of its own, since the cache's folder is the environment's.
#[test]
fn sources_are_compiled_once() {
    if let Some(folder) = std::env::var_os("BERTH_TEST_KEPT") {
        return inside(Path::new(&folder));
    }
    let dir = tempfile::tempdir().unwrap();
    let out = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kept::sources_are_compiled_once", "--nocapture"])
        .env("BERTH_TEST_KEPT", dir.path())
        .env("BERTH_CACHE", dir.path().join("cache"))
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

fn inside(folder: &Path) {
    let cache = folder.join("cache");
    let (a, b) = (folder.join("a b"), folder.join("b"));
    let write = |folder: &Path, name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    // No policies: they compile in no time.
    let plain = "#include <bpf/bpf_endian.h>\nint f(void) { return 0; }\n";
    let own = "#include \"own.h\"\nint f(void) { return STEP; }\n";
    let options = CompileOptions::default();
    let made = |folder: &Path| compile(&folder.join("x.bpf.c"), &options).unwrap();

    // The same text elsewhere is the same object: compiled once.
    write(&a, "x.bpf.c", plain);
    let first = made(&a);
    let kept = objects(&cache);
    assert_eq!(kept.len(), 1);
    assert_eq!(made(&a), first);
    write(&b, "x.bpf.c", plain);
    assert_eq!(made(&b), first);
    assert_eq!(objects(&cache), kept, "not compiled again");

    // Headers of its own belong to it, wherever they lie.
    for (folder, step) in [(&a, "1"), (&b, "2")] {
        write(folder, "x.bpf.c", own);
        write(folder, "own.h", &format!("#define STEP {step}\n"));
    }
    let (one, two) = (made(&a), made(&b));
    assert_ne!(one, two, "each folder has another header");
    assert_eq!((made(&a), made(&b)), (one.clone(), two.clone()));
    write(&a, "own.h", "#define STEP 2\n");
    assert_eq!(made(&a).len(), two.len());
    assert_ne!(made(&a), one, "the header has changed");

    // A header that comes to stand before another one.
    write(&b, "x.bpf.c", plain);
    write(&b, "bpf/bpf_endian.h", "#error another one\n");
    let said = compile(&b.join("x.bpf.c"), &options);
    assert!(said.is_ok(), "<> does not look beside the source");
    let include = CompileOptions {
        include: vec![b.clone()],
        ..CompileOptions::default()
    };
    let said = compile(&b.join("x.bpf.c"), &include)
        .unwrap_err()
        .to_string();
    assert!(said.contains("another one"), "{said}");

    // What somebody has damaged is not taken.
    write(&a, "x.bpf.c", plain);
    std::fs::remove_file(a.join("own.h")).unwrap();
    let whole = made(&a);
    for (name, _) in objects(&cache) {
        std::fs::write(cache.join("objects").join(name), b"junk").unwrap();
    }
    assert_eq!(made(&a), whole);
}
