// SPDX-License-Identifier: GPL-2.0-only
//! Compiled sources on disk, by content: an object is used again if source, options, compiler and every file that it
//! included are the same.
//!
//! `objects/KEY.o` with `objects/KEY.files` beside it: a line per included file, its hash and its path. KEY is of the
//! source's name and text, the options, the compiler, and the names of the headers that lie around the source, since a
//! new one may take another one's place; of the folder, too, if the source includes files of its own.
use crate::cache;
use crate::cc;
use crate::compile::{self, CompileOptions};
use crate::error::{LoadError, Result};
use crate::headers;
use std::path::{Path, PathBuf};

/// Where the object of a source is kept.
pub struct Compiled {
    folder: PathBuf,
    /// Wherever the source lies.
    anywhere: String,
    /// Only in this folder.
    here: String,
    /// What lies below is part of Berth, and its hash is in the folder's name.
    packed: PathBuf,
}

/// Around a source are at most so many files; from then on nothing is kept.
const MOST_FILES: usize = 4096;

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// Names of headers in a folder and in those below it.
fn names(folder: &Path, depth: usize, found: &mut Vec<String>) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if found.len() >= MOST_FILES {
            return;
        }
        if depth > 0 && entry.file_type().is_ok_and(|t| t.is_dir()) {
            names(&path, depth - 1, found);
        } else if path.extension().is_some_and(|e| e == "h") {
            found.push(path.display().to_string());
        }
    }
}

impl Compiled {
    /// # Errors
    /// The source cannot be read; there is no compiler, or no cache folder.
    pub fn of(source: &Path, options: &CompileOptions) -> Result<Compiled> {
        let folder = cache::folder()?.join("objects");
        cache::create(&folder)?;
        let packed = match &options.headers {
            Some(dir) => dir.clone(),
            None => headers::folder()?,
        };
        let text = std::fs::read(source).map_err(|error| LoadError::Read {
            path: source.to_path_buf(),
            source: error,
        })?;
        let parent = source.parent().map(Path::to_path_buf).unwrap_or_default();
        let parent = match parent.as_os_str().is_empty() {
            true => PathBuf::from("."),
            false => parent,
        };
        let parent = parent.canonicalize().unwrap_or(parent);
        let mut around = Vec::new();
        names(&parent, 1, &mut around);
        let prefix = parent.display().to_string();
        let around = around
            .iter()
            .map(|name| name.trim_start_matches(&prefix).to_string());
        let mut around: Vec<String> = around.collect();
        for folder in &options.include {
            names(folder, 4, &mut around);
        }
        around.sort_unstable();
        let about = format!(
            "{:?} {} {} {options:?} {} {} {around:?}",
            source.file_name(),
            compile::identity(),
            hash(&text),
            cc::identity(&compile::clang()?),
            packed.display()
        );
        let anywhere = hash(about.as_bytes());
        let here = hash(format!("{anywhere} {prefix}").as_bytes());
        Ok(Compiled {
            folder,
            anywhere,
            here,
            packed,
        })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// For files beside what is kept.
    pub fn name(&self) -> &str {
        &self.here
    }

    /// The object, if it is there and all that it was made of is as it was.
    pub fn get(&self) -> Option<Vec<u8>> {
        [&self.anywhere, &self.here].into_iter().find_map(|key| {
            let files = std::fs::read_to_string(self.folder.join(format!("{key}.files"))).ok()?;
            let same = |line: &str| {
                let (then, path) = line.split_once(' ')?;
                let now = hash(&std::fs::read(path).ok()?);
                (now == then).then_some(())
            };
            let mut lines = files.lines();
            let object = lines.next()?;
            lines.all(|line| same(line).is_some()).then_some(())?;
            let bytes = std::fs::read(self.folder.join(format!("{key}.o"))).ok()?;
            // Another process may be writing it.
            (hash(&bytes) == object).then_some(bytes)
        })
    }

    /// Keeps an object; `noted` are the files that it was made of, as `make` reads them. A full disk is no reason to
    /// fail: it is compiled again the next time.
    pub fn put(&self, object: &[u8], noted: &str) {
        let all: Vec<PathBuf> = files(noted).into_iter().map(PathBuf::from).collect();
        let (Some(_source), included) = (all.first(), all.get(1..).unwrap_or_default()) else {
            return;
        };
        let own: Vec<&PathBuf> = included
            .iter()
            .filter(|f| !f.starts_with(&self.packed))
            .collect();
        let system = |file: &&PathBuf| file.starts_with("/usr");
        let key = match own.iter().all(system) {
            true => &self.anywhere,
            false => &self.here,
        };
        let mut text = format!("{}\n", hash(object));
        for file in own {
            let Ok(path) = file.canonicalize() else {
                return;
            };
            let (Ok(bytes), Some(path)) = (std::fs::read(&path), path.to_str()) else {
                return;
            };
            if path.contains('\n') {
                return;
            }
            text.push_str(&format!("{} {path}\n", hash(&bytes)));
        }
        let write = |end: &str, bytes: &[u8]| {
            let path = self.folder.join(format!("{key}.{end}"));
            let beside = path.with_extension(format!("{end}.{}", std::process::id()));
            std::fs::write(&beside, bytes).and_then(|()| std::fs::rename(&beside, &path))
        };
        let _ = write("o", object).and_then(|()| write("files", text.as_bytes()));
    }
}

/// The files of a rule for `make`: the source, then what it includes.
fn files(rule: &str) -> Vec<String> {
    let Some((_, list)) = rule.split_once(": ") else {
        return Vec::new();
    };
    let mut files = Vec::new();
    let mut file = String::new();
    let mut chars = list.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('\n') | None => (),
                Some(c) => file.push(c),
            },
            '$' if chars.peek() == Some(&'$') => {
                chars.next();
                file.push('$');
            }
            c if c.is_whitespace() => {
                if !file.is_empty() {
                    files.push(std::mem::take(&mut file));
                }
            }
            c => file.push(c),
        }
    }
    if !file.is_empty() {
        files.push(file);
    }
    files
}

#[cfg(test)]
mod tests {
    #[test]
    fn rules_for_make() {
        let rule = "/tmp/x.o: a\\ b.c /usr/include/x.h \\\n  c$$d.h \\\n  e.h\n";
        let wanted = ["a b.c", "/usr/include/x.h", "c$d.h", "e.h"];
        assert_eq!(super::files(rule), wanted);
        assert!(super::files("").is_empty());
    }
}
