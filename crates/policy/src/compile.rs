// SPDX-License-Identifier: GPL-2.0-only
//! Compiling a policy's `.bpf.c` with clang against the packed headers.
use crate::cc::find_program;
use crate::compiled::Compiled;
use crate::error::{LoadError, Result};
use crate::headers;
use crate::slim;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Environment variable that names clang.
const ENV: &str = "BERTH_CLANG";
const CANDIDATES: &[&str] = &[
    "clang-19", "clang-20", "clang-21", "clang-18", "clang-17", "clang-16", "clang",
];

/// How to compile.
#[derive(Clone, Debug)]
pub struct CompileOptions {
    /// BPF instruction set: `v3` (default) or `v4`.
    pub cpu: &'static str,
    /// Searched before the packed headers.
    pub include: Vec<PathBuf>,
    /// A version of the scx project's headers instead of the packed one ([`crate::scx_headers`]).
    pub scx: Option<PathBuf>,
    /// Folder with the unpacked headers, if they are not to be in the cache folder.
    pub headers: Option<PathBuf>,
    /// `NAME` or `NAME=VALUE`.
    pub define: Vec<String>,
}

impl Default for CompileOptions {
    fn default() -> Self {
        CompileOptions {
            cpu: "v3",
            include: Vec::new(),
            scx: None,
            headers: None,
            define: Vec::new(),
        }
    }
}

/// The clang named by BERTH_CLANG, or the first usual one in PATH.
///
/// # Errors
/// None found: what was tried, what to install.
pub fn clang() -> Result<PathBuf> {
    let tried: Vec<String> = match std::env::var(ENV) {
        Ok(name) if !name.is_empty() => vec![name],
        _ => CANDIDATES.iter().map(|s| s.to_string()).collect(),
    };
    tried
        .iter()
        .find_map(|name| find_program(name))
        .ok_or_else(|| LoadError::NoClang {
            tried: tried.join(", "),
        })
}

/// Compile `source` to the object file `out`.
///
/// # Errors
/// No clang, not a file called `.c`, or the compiler's message with file and line.
pub fn compile_to(source: &Path, out: &Path, options: &CompileOptions) -> Result<()> {
    compile_noting(source, out, options, None)
}

/// The same, with all files that were read written to `noted`, as `make` reads it.
fn compile_noting(
    source: &Path,
    out: &Path,
    options: &CompileOptions,
    noted: Option<&Path>,
) -> Result<()> {
    with_dwarf(source, out, options, noted)?;
    let Some(slim) = std::fs::read(out)
        .ok()
        .and_then(|o| slim::without_dwarf(&o))
    else {
        return Ok(());
    };
    std::fs::write(out, slim).map_err(|e| LoadError::Compile {
        path: source.to_path_buf(),
        message: format!("{}: {e}", out.display()),
    })
}

/// What the compiler warns of in `source`, as it says it; empty: of nothing.
///
/// # Errors
/// As [`compile_to`].
pub fn warnings(source: &Path, options: &CompileOptions) -> Result<String> {
    run(
        command(source, options)?.arg("-fsyntax-only").arg(source),
        source,
    )
}

/// As the compiler leaves it.
pub(crate) fn with_dwarf(
    source: &Path,
    out: &Path,
    options: &CompileOptions,
    noted: Option<&Path>,
) -> Result<()> {
    let mut command = command(source, options)?;
    if let Some(noted) = noted {
        command.arg("-MD").arg("-MF").arg(noted);
    }
    command.arg("-c").arg(source).arg("-o").arg(out);
    run(&mut command, source).map(drop)
}

/// What the compiler says without failing.
fn run(command: &mut Command, source: &Path) -> Result<String> {
    let wrong = |message| LoadError::Compile {
        path: source.to_path_buf(),
        message,
    };
    let output = command.output().map_err(|e| wrong(e.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr)
        .trim_end()
        .to_string();
    match output.status.success() {
        true => Ok(said),
        false => Err(wrong(said)),
    }
}

/// The compiler with all its options, but for what is compiled, and to what.
fn command(source: &Path, options: &CompileOptions) -> Result<Command> {
    if let Err(e) = source.metadata() {
        return Err(LoadError::Read {
            path: source.to_path_buf(),
            source: e,
        });
    }
    // Whatever else clang would take it for (a linker's input, another language).
    if source.extension().is_none_or(|e| e != "c") {
        return Err(LoadError::Setting(format!(
            "{} is neither C source (.bpf.c) nor a compiled object (.bpf.o), by its name",
            source.display()
        )));
    }
    let dir = match &options.headers {
        Some(dir) => dir.clone(),
        None => headers::folder()?,
    };
    let mut command = Command::new(clang()?);
    command.args(["-g", "-O2", "-target", "bpf", "-mlittle-endian"]);
    command.arg(format!("-mcpu={}", options.cpu));
    // Sign-extending loads are not needed, and older kernels cannot run them.
    command.args(["-mllvm", "-disable-ldsx"]);
    command.args(["-D__TARGET_ARCH_x86", "-D__SCX_TARGET_ARCH_x86"]);
    command.args([
        "-Wall",
        "-Wno-unused-function",
        "-Wno-compare-distinct-pointer-types",
    ]);
    command.args(["-fno-color-diagnostics", "-fdebug-compilation-dir=."]);
    // A table for a linker that none of this needs, in a form that [`slim`] does not know.
    command.arg("-fno-addrsig");
    // The same object wherever it is compiled: no machine paths in it.
    if let Some(parent) = source.parent() {
        command.arg(format!("-ffile-prefix-map={}=", prefix(parent)));
    }
    command.arg(format!("-ffile-prefix-map={}/=", dir.display()));
    for d in &options.define {
        command.arg(format!("-D{d}"));
    }
    for include in &options.include {
        command.arg("-I").arg(include);
    }
    let packed = headers::INCLUDE.iter();
    match &options.scx {
        None => packed.for_each(|part| _ = command.arg("-I").arg(dir.join(part))),
        Some(scx) => {
            for part in headers::INCLUDE_OF_VERSION {
                command.arg("-I").arg(scx.join(part));
            }
            let others = packed.filter(|part| !part.starts_with("scx"));
            others.for_each(|part| _ = command.arg("-I").arg(dir.join(part)));
        }
    }
    for system in ["/usr/include/x86_64-linux-gnu", "/usr/include"] {
        command.arg("-idirafter").arg(system);
    }
    Ok(command)
}

fn prefix(parent: &Path) -> String {
    let text = parent.display().to_string();
    if text.is_empty() {
        ".".into()
    } else {
        format!("{text}/")
    }
}

/// Changes whenever this file does, or another that says how objects are made of sources.
pub fn identity() -> String {
    let mut hasher = blake3::Hasher::new();
    for file in [
        include_bytes!("compile.rs").as_slice(),
        include_bytes!("headers.rs"),
        include_bytes!("slim.rs"),
    ] {
        hasher.update(file);
    }
    hasher.finalize().to_hex().to_string()
}

/// Compile `source`; the object's bytes. What was compiled from the same files with the same compiler is not compiled
/// again.
///
/// # Errors
/// As [`compile_to`].
pub fn compile(source: &Path, options: &CompileOptions) -> Result<Vec<u8>> {
    let kept = Compiled::of(source, options)?;
    if let Some(object) = kept.get() {
        return Ok(object);
    }
    let thread = format!("{:?}", std::thread::current().id());
    let thread: String = thread.chars().filter(char::is_ascii_digit).collect();
    let beside = |end: &str| {
        let name = format!("{}.{}.{thread}.{end}", kept.name(), std::process::id());
        kept.folder().join(name)
    };
    let (out, noted) = (beside("o"), beside("d"));
    let result = compile_noting(source, &out, options, Some(&noted)).and_then(|()| {
        std::fs::read(&out).map_err(|source| LoadError::Read {
            path: out.clone(),
            source,
        })
    });
    if let (Ok(object), Ok(text)) = (&result, std::fs::read_to_string(&noted)) {
        kept.put(object, &text);
    }
    for file in [&out, &noted] {
        // Temporary files; what counts are their bytes.
        let _ = std::fs::remove_file(file);
    }
    result
}
