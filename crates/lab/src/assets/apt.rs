// SPDX-License-Identifier: GPL-2.0-only
//! Debian packages by name from a suite that this machine need not have configured: apt with lists of its own in the
//! cache, mirror and signing key as the machine has them. Nothing is installed, no system file is written.
use super::cache::Cache;
use crate::{LabError, Listener, Progress};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";

/// A suite's package lists.
pub(crate) struct Suite<'a> {
    cache: &'a Cache,
    listener: &'a Listener<'a>,
    stop: &'a AtomicBool,
    name: String,
    mirror: String,
}

impl<'a> Suite<'a> {
    /// The suite, its lists downloaded unless they are there (`refresh`: in any case).
    pub fn open(
        cache: &'a Cache,
        name: &str,
        refresh: bool,
        listener: &'a Listener<'a>,
        stop: &'a AtomicBool,
    ) -> Result<Suite<'a>, LabError> {
        for tool in ["apt-get", "apt-cache", "dpkg-deb"] {
            if Command::new(tool)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_err()
            {
                return Err(LabError::NoApt(tool.to_string()));
            }
        }
        let suite = Suite {
            cache,
            listener,
            stop,
            name: name.to_string(),
            mirror: mirror(),
        };
        if refresh || !suite.folder().join("complete").exists() {
            suite.update()?;
        }
        Ok(suite)
    }

    /// Package names that begin with `prefix`, in no particular order.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>, LabError> {
        let out = self.output(self.apt("apt-cache").args(["pkgnames", prefix]))?;
        Ok(text(&out.stdout).lines().map(str::to_string).collect())
    }

    /// Size of the package in bytes; `None` if the suite has no such package.
    pub fn size(&self, package: &str) -> Result<Option<u64>, LabError> {
        let out = self.output(self.apt("apt-cache").args(["show", package]))?;
        Ok(text(&out.stdout)
            .lines()
            .find_map(|l| l.strip_prefix("Size: ")?.trim().parse().ok()))
    }

    /// Downloads the packages and unpacks them into `to`.
    pub fn unpack(&self, what: &str, packages: &[String], to: &Path) -> Result<(), LabError> {
        let mut total = 0;
        for p in packages {
            total += self
                .size(p)?
                .ok_or_else(|| self.failed(what, format!("{p} is no longer in {}", self.name)))?;
        }
        self.cache.need(what, 6 * total + (64 << 20))?;
        (self.listener)(Progress::Say(format!(
            "downloading {what} from Debian {} ({:.1} MB) into {}",
            self.name,
            total as f64 / 1e6,
            self.cache.root.display()
        )));
        let dir = tempfile::Builder::new()
            .prefix("download-")
            .tempdir_in(&self.cache.root)
            .map_err(|e| LabError::io(&self.cache.root, e))?;
        let mut command = self.apt("apt-get");
        command
            .arg("download")
            .args(packages)
            .current_dir(dir.path());
        self.watched(what, &mut command, dir.path(), total)?;
        fs::create_dir_all(to).map_err(|e| LabError::io(to, e))?;
        for deb in files(dir.path())? {
            let out = Command::new("dpkg-deb")
                .arg("-x")
                .arg(&deb)
                .arg(to)
                .output()
                .map_err(|e| LabError::NoApt(format!("dpkg-deb ({e})")))?;
            if !out.status.success() {
                return Err(self.failed(what, last_line(&out)));
            }
        }
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        self.cache.root.join("apt").join(&self.name)
    }

    fn update(&self) -> Result<(), LabError> {
        let folder = self.folder();
        let what = format!("the package list of Debian {}", self.name);
        if !Path::new(KEYRING).exists() {
            return Err(self.failed(
                &what,
                format!("{KEYRING} is missing (package debian-archive-keyring)"),
            ));
        }
        self.cache.need(&what, 128 << 20)?;
        (self.listener)(Progress::Say(format!(
            "downloading {what} (up to 10 MB) from {}",
            self.mirror
        )));
        let make = || -> std::io::Result<()> {
            fs::create_dir_all(folder.join("lists/partial"))?;
            fs::write(
                folder.join("sources.list"),
                format!(
                    "deb [signed-by={KEYRING}] {} {} main\n",
                    self.mirror, self.name
                ),
            )
        };
        make().map_err(|e| LabError::io(&folder, e))?;
        let update = |options: &[&str]| {
            let mut command = self.apt("apt-get");
            command.args(["-o", "APT::Update::Error-Mode=any"]);
            command.args(options).arg("update");
            self.output(&mut command)
        };
        let mut out = update(&[])?;
        if !out.status.success() && expired(&out) {
            // A frozen mirror. The list is signed all the same, and what it leads to runs in a throw-away VM only.
            (self.listener)(Progress::Say(format!(
                "the mirror's copy of {what} is past its date; using it"
            )));
            out = update(&["-o", "Acquire::Check-Valid-Until=false"])?;
        }
        if !out.status.success() {
            return Err(self.failed(&what, last_line(&out)));
        }
        let done = folder.join("complete");
        fs::write(&done, "").map_err(|e| LabError::io(&done, e))
    }

    /// apt with this suite's lists instead of the machine's.
    fn apt(&self, tool: &str) -> Command {
        let folder = self.folder();
        let mut c = Command::new(tool);
        c.arg("-qq").env("LC_ALL", "C");
        for (key, value) in [
            (
                "Dir::Etc::sourcelist",
                folder.join("sources.list").display().to_string(),
            ),
            ("Dir::Etc::sourceparts", "/dev/null".to_string()),
            (
                "Dir::State::Lists",
                folder.join("lists").display().to_string(),
            ),
            ("Dir::Cache::pkgcache", String::new()),
            ("Dir::Cache::srcpkgcache", String::new()),
            ("APT::Sandbox::User", "root".to_string()),
            ("APT::Architecture", "amd64".to_string()),
            ("Acquire::Languages", "none".to_string()),
            (
                "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled",
                "false".to_string(),
            ),
            ("Acquire::Retries", "3".to_string()),
            ("Acquire::http::Timeout", "30".to_string()),
        ] {
            c.arg("-o").arg(format!("{key}={value}"));
        }
        c
    }

    fn output(&self, c: &mut Command) -> Result<Output, LabError> {
        c.stdin(Stdio::null())
            .output()
            .map_err(|e| LabError::NoApt(format!("{} ({e})", c.get_program().to_string_lossy())))
    }

    /// Runs a download and reports how much is there.
    fn watched(&self, what: &str, c: &mut Command, dir: &Path, total: u64) -> Result<(), LabError> {
        let mut child = c
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| LabError::NoApt(format!("apt-get ({e})")))?;
        let report = |done| {
            (self.listener)(Progress::Download {
                what: what.to_string(),
                done,
                total,
            });
        };
        loop {
            let ended = child
                .try_wait()
                .map_err(|e| self.failed(what, e.to_string()))?;
            if ended.is_some() {
                break;
            }
            if self.stop.load(Ordering::Relaxed) {
                // Already gone is as good.
                let _ = child.kill();
                let _ = child.wait();
                return Err(LabError::Interrupted);
            }
            report(present(dir).min(total.saturating_sub(1)));
            std::thread::sleep(Duration::from_millis(100));
        }
        let out = child
            .wait_with_output()
            .map_err(|e| self.failed(what, e.to_string()))?;
        if !out.status.success() {
            return Err(self.failed(what, last_line(&out)));
        }
        report(total);
        Ok(())
    }

    fn failed(&self, what: &str, reason: String) -> LabError {
        LabError::Download {
            what: what.to_string(),
            mirror: self.mirror.clone(),
            reason,
        }
    }
}

/// `VERSION_CODENAME` of a Debian machine, e.g. `bookworm`.
pub(crate) fn codename() -> Option<String> {
    let release = fs::read_to_string("/etc/os-release").ok()?;
    let value = |key: &str| {
        release
            .lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix('='))
            .map(|v| v.trim_matches('"').to_string())
    };
    (value("ID").as_deref() == Some("debian"))
        .then(|| value("VERSION_CODENAME"))
        .flatten()
}

/// `$BERTH_MIRROR`, or the archive that this machine's own release comes from, or the usual one.
fn mirror() -> String {
    if let Some(m) = std::env::var("BERTH_MIRROR").ok().filter(|m| !m.is_empty()) {
        return m;
    }
    let own = codename().and_then(|codename| {
        let out = Command::new("apt-get")
            .args([
                "indextargets",
                "--format",
                "$(SITE)|$(RELEASE)|$(COMPONENT)",
                "Created-By: Packages",
            ])
            .output()
            .ok()?;
        text(&out.stdout).lines().find_map(|l| {
            let mut parts = l.split('|');
            let (site, release, component) = (parts.next()?, parts.next()?, parts.next()?);
            let main = component == "main" && [codename.as_str(), "stable"].contains(&release);
            main.then(|| site.to_string())
        })
    });
    own.unwrap_or_else(|| DEFAULT_MIRROR.to_string())
}

fn files(dir: &Path) -> Result<Vec<PathBuf>, LabError> {
    let fail = |e| LabError::io(dir, e);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(fail)? {
        found.push(entry.map_err(fail)?.path());
    }
    found.sort();
    Ok(found)
}

fn present(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    entries
        .flatten()
        .filter_map(|e| e.metadata().ok())
        .map(|m| m.len())
        .sum()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Did apt refuse a list only because its date has passed?
fn expired(out: &Output) -> bool {
    text(&out.stderr).contains("is expired")
}

/// apt's reason: its first error line, or the last it printed.
fn last_line(out: &Output) -> String {
    let all = text(&out.stderr);
    let line = all
        .lines()
        .find(|l| l.starts_with("E:"))
        .or(all.lines().last());
    match line {
        Some(l) => l.trim_start_matches("E: ").trim().to_string(),
        None => out.status.to_string(),
    }
}
