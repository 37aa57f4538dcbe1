// SPDX-License-Identifier: GPL-2.0-only
//! Every `policies/*.bpf.c` and `policies/study/*.bpf.c`: compiled to a BPF object, translated to C, compiled
//! to native code, and listed in the generated `builtin.rs`. What serves one policy is in the folder of its name.
use berth_policy::build_script::{self, Kept};
use berth_policy::cc::{self as native, Compiler, FLAGS, reachable_missing};
use berth_policy::compile::{self, CompileOptions};
use berth_policy::emit::{self, Translation};
use berth_policy::error::LoadError;
use berth_policy::profile::KernelProfile;
use berth_policy::{headers, object};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::error::Error;
use std::fmt::{Display, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

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
    let sources = sources(&root)?;
    let options = CompileOptions::default();
    let compiler = Compiler::find()?;
    let maker = Maker {
        made_of: [
            build_script::hash_of(&root)?,
            headers::identity(),
            // What the packed headers include of the system's.
            build_script::hash_of(Path::new("/usr/include/asm-generic")).unwrap_or_default(),
            compile::identity(),
            build_script::version(&compile::clang()?)?,
            format!("{options:?}"),
        ]
        .join(" "),
        version: build_script::version(&compiler.path)?,
        options: CompileOptions {
            headers: Some(build_script::headers()?),
            ..options
        },
        compiler,
        kept: Kept::beside(&out),
        out: out.clone(),
    };
    maker.make(&sources)?;
    let mut archive = cc::Build::new();
    let mut declarations = String::new();
    let mut list = String::new();
    for source in &sources {
        let name = &source.name;
        archive.object(maker.native(name));
        writeln!(declarations, "    static berth_native_{name}: NativeTable;")?;
        writeln!(
            list,
            "    Builtin {{ name: {name:?}, study: {}, packed: include_bytes!(concat!(env!(\"OUT_DIR\"), \
             \"/{name}.bpf.o.zst\")), object: OnceLock::new(), \
             source: include_str!({:?}), native: Native(&raw const berth_native_{name}) }},",
            source.study,
            source.path.canonicalize()?
        )?;
    }
    archive.compile("berth_builtin");
    std::fs::write(
        out.join("builtin.rs"),
        format!(
            "unsafe extern \"C\" {{\n{declarations}}}\n\npub(crate) static ALL: [Builtin; {}] = [\n{list}];\n",
            sources.len()
        ),
    )?;
    Ok(())
}

/// Makes what a policy's source is compiled to. That is the same in debug and release builds, and in those of other
/// workspaces.
struct Maker {
    options: CompileOptions,
    /// All that a BPF object depends on but its source's name and the place of clang.
    made_of: String,
    compiler: Compiler,
    /// Its version.
    version: String,
    kept: Kept,
    out: PathBuf,
}

impl Maker {
    /// All of them, some at a time.
    fn make(&self, sources: &[Source]) -> Result<(), String> {
        let jobs = std::env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok());
        let jobs = jobs.unwrap_or(1).clamp(1, sources.len().max(1));
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(e) = self.one(source) {
                    // The others begin no more.
                    next.store(sources.len(), Ordering::Relaxed);
                    return Err(e);
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
            workers.into_iter().try_for_each(|worker| {
                let done = worker.join();
                done.unwrap_or_else(|_| Err("a thread of the build script panicked".into()))
            })
        })
    }

    fn bpf(&self, name: &str) -> PathBuf {
        self.out.join(format!("{name}.bpf.o"))
    }

    fn native(&self, name: &str) -> PathBuf {
        self.out.join(format!("{name}.native.o"))
    }

    fn one(&self, source: &Source) -> Result<(), String> {
        let (name, bpf) = (&source.name, self.bpf(&source.name));
        let of = |e: &dyn Display| format!("{}: {e}", source.path.display());
        let clang = compile::clang().map_err(|e| e.to_string())?;
        let made_of = format!("{name} {} {}", native::identity(&clang), self.made_of);
        let compile = || compile::compile_to(&source.path, &bpf, &self.options);
        let compiled = self
            .kept
            .or_make(&format!("{name}.bpf.o"), &made_of, &bpf, compile);
        compiled.map_err(|e| e.to_string())?;
        let bytes = std::fs::read(&bpf).map_err(|e| of(&e))?;
        // Four fifths of it are types and lines, alike in all policies.
        let packed = self.out.join(format!("{name}.bpf.o.zst"));
        let pack = || {
            let bytes = compress_to_vec(bytes.as_slice(), CompressionLevel::Fastest);
            std::fs::write(&packed, bytes)
        };
        self.kept
            .or_make(&format!("{name}.bpf.o.zst"), &made_of, &packed, pack)
            .map_err(|e| of(&e))?;
        let program = object::load(&bytes, &KernelProfile::default()).map_err(|e| of(&e))?;
        let translation = emit::translate(&program, name, emit::Guarding::Trusted);
        self.compile(&translation, name).map_err(|e| of(&e))
    }

    /// The machine code of a translation.
    fn compile(&self, translation: &Translation, name: &str) -> Result<(), LoadError> {
        let own = self.native(name);
        let made_of = format!(
            "{} {} {FLAGS:?} {}",
            self.compiler.identity(),
            self.version,
            translation.text
        );
        let compile = || {
            let text = self.out.join(format!("{name}.c"));
            self.compiler.object(translation, &text, &own)
        };
        self.kept
            .or_make(&format!("{name}.native.o"), &made_of, &own, compile)?;
        reachable_missing(&own, translation)
    }
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
