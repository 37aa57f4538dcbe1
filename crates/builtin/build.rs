// SPDX-License-Identifier: GPL-2.0-only
//! Every `policies/*.bpf.c` and `policies/study/*.bpf.c`: compiled to a BPF object, translated to C, compiled
//! to native code, and listed in the generated `builtin.rs`. What serves one policy is in the folder of its name.
use berth_policy::build_script;
use berth_policy::cc::{Compiler, FLAGS, reachable_missing};
use berth_policy::compile;
use berth_policy::emit::Translation;
use berth_policy::profile::KernelProfile;
use berth_policy::{emit, object};
use std::error::Error;
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    build_script::run(build);
}

struct Source {
    name: String,
    path: PathBuf,
    study: bool,
}

fn build() -> Result<(), Box<dyn Error>> {
    let out = build_script::out()?;
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../policies");
    build_script::depends_on(&root);
    let options = build_script::bpf_options()?;
    let compiler = Compiler::find()?;
    let mut archive = cc::Build::new();
    let mut declarations = String::new();
    let mut list = String::new();
    for source in sources(&root)? {
        let name = &source.name;
        let bpf = out.join(format!("{name}.bpf.o"));
        compile::compile_to(&source.path, &bpf, &options)?;
        let program = object::load(&std::fs::read(&bpf)?, &KernelProfile::default())
            .map_err(|e| format!("{}: {e}", source.path.display()))?;
        let translation = emit::translate(&program, name, emit::Guarding::Trusted);
        let native = native(&compiler, &translation, name, &out)
            .map_err(|e| format!("{}: {e}", source.path.display()))?;
        archive.object(&native);
        writeln!(declarations, "    static berth_native_{name}: NativeTable;")?;
        writeln!(
            list,
            "    Builtin {{ name: {name:?}, study: {}, object: include_bytes!(concat!(env!(\"OUT_DIR\"), \
             \"/{name}.bpf.o\")), \
             source: include_str!({:?}), native: Native(&raw const berth_native_{name}) }},",
            source.study,
            source.path.canonicalize()?
        )?;
    }
    archive.compile("berth_builtin");
    std::fs::write(
        out.join("builtin.rs"),
        format!(
            "unsafe extern \"C\" {{\n{declarations}}}\n\npub(crate) static ALL: &[Builtin] = &[\n{list}];\n"
        ),
    )?;
    Ok(())
}

/// The machine code of a translation. It is the same in debug and release builds, and in those of other workspaces:
/// what one of them has compiled is in the target folder for all, the newest of each name.
fn native(
    compiler: &Compiler,
    translation: &Translation,
    name: &str,
    out: &Path,
) -> Result<PathBuf, Box<dyn Error>> {
    let own = out.join(format!("{name}.native.o"));
    // target/PROFILE/build/PACKAGE/out
    let folder = out.ancestors().nth(4).unwrap_or(out).join("berth-native");
    let made_of = format!("{} {FLAGS:?} {}", compiler.identity(), translation.text);
    let key = blake3::hash(made_of.as_bytes()).to_hex();
    let kept = folder.join(format!("{name}-{key}.o"));
    if std::fs::copy(&kept, &own).is_ok() {
        reachable_missing(&own, translation)?;
        return Ok(own);
    }
    compiler.object(translation, &out.join(format!("{name}.c")), &own)?;
    // Another build may do the same, and a disk may be full: then it is compiled again.
    if std::fs::create_dir_all(&folder).is_ok() {
        let _ = keep(&own, name, &kept, &folder);
    }
    Ok(own)
}

/// Whole, whoever looks, and instead of what was kept by this name.
fn keep(object: &Path, name: &str, kept: &Path, folder: &Path) -> std::io::Result<()> {
    let part = folder.join(format!("{name}.{}.part", std::process::id()));
    std::fs::copy(object, &part)?;
    for older in std::fs::read_dir(folder)?.flatten() {
        let file = older.file_name();
        let rest = file.to_str().and_then(|file| file.strip_prefix(name));
        if rest.is_some_and(|rest| rest.starts_with('-')) {
            std::fs::remove_file(older.path())?;
        }
    }
    std::fs::rename(&part, kept)
}

/// All shipped policies, supported ones first, by name.
fn sources(root: &Path) -> Result<Vec<Source>, Box<dyn Error>> {
    let mut sources = Vec::new();
    for (dir, study) in [(root.to_path_buf(), false), (root.join("study"), true)] {
        if !dir.is_dir() {
            continue;
        }
        let mut here = Vec::new();
        for entry in std::fs::read_dir(&dir)? {
            let path = entry?.path();
            let file = path
                .file_name()
                .and_then(|n| n.to_str())
                .unwrap_or_default();
            let Some(name) = file.strip_suffix(".bpf.c") else {
                continue;
            };
            if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err(format!(
                    "{}: a policy's name has letters, digits and `_` only",
                    path.display()
                )
                .into());
            }
            here.push(Source {
                name: name.to_string(),
                path,
                study,
            });
        }
        here.sort_by(|a, b| a.name.cmp(&b.name));
        sources.extend(here);
    }
    Ok(sources)
}
