// SPDX-License-Identifier: GPL-2.0-only
//! The kernel: by rule, never by a pinned version. A candidate counts only if the probe finds its BTF sound.
use super::apt::Suite;
use super::cache::Cache;
use super::probe::{self, Verdict};
use crate::{LabError, Listener, Progress};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Suites in the order in which they are asked: for the newest kernel, and for an older line.
const SUITES: [&str; 3] = ["forky", "sid", "trixie-backports"];
pub(super) const SUITES_OF_LINES: [&str; 4] = ["forky", "trixie-backports", "sid", "bookworm"];
/// The same for lines before sched_ext.
const SUITES_OF_OLD_LINES: [&str; 1] = ["bookworm"];
const FLAVOUR: &str = "-cloud-amd64";
/// Candidates tried per suite before giving up on it.
const TRIES: usize = 4;
/// Oldest line with everything that policies call.
const OLDEST: [u64; 2] = [6, 18];
/// First line that may have sched_ext.
const SCHED_EXT: [u64; 2] = [6, 12];

/// Which kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelRule {
    /// The newest one that passes the probe, of the first suite that has one.
    Newest,
    /// The newest of this line, e.g. `6.18`.
    Line(String),
    /// One's own: image, and its build configuration if it does not lie beside it.
    File {
        image: PathBuf,
        config: Option<PathBuf>,
    },
}

impl KernelRule {
    /// From `--kernel`: `default`, `6.18`, or `VMLINUZ[,CONFIG]`.
    ///
    /// # Errors
    /// Neither a version line nor a file that exists.
    pub fn parse(text: &str) -> Result<KernelRule, LabError> {
        if text.is_empty() || text == "default" || text == "newest" {
            return Ok(KernelRule::Newest);
        }
        if text.split('.').count() >= 2
            && text
                .split('.')
                .all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
        {
            return Ok(KernelRule::Line(text.to_string()));
        }
        let (image, config) = match text.split_once(',') {
            Some((i, c)) => (PathBuf::from(i), Some(PathBuf::from(c))),
            None => (PathBuf::from(text), None),
        };
        if image.is_file() {
            return Ok(KernelRule::File { image, config });
        }
        Err(LabError::NoKernel {
            rule: format!("`{text}`"),
            tried: " (it is neither a line such as 6.18 nor a file)".to_string(),
        })
    }

    /// Where to look, in this order.
    fn suites(&self) -> &'static [&'static str] {
        match self {
            KernelRule::Line(line) if version(line).as_slice() < SCHED_EXT.as_slice() => {
                &SUITES_OF_OLD_LINES
            }
            KernelRule::Line(_) => &SUITES_OF_LINES,
            _ => &SUITES,
        }
    }

    fn key(&self) -> String {
        match self {
            KernelRule::Newest => "newest".to_string(),
            KernelRule::Line(l) => l.clone(),
            KernelRule::File { image, .. } => image.display().to_string(),
        }
    }
}

/// A kernel fit for the lab.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// As `uname -r` shows it.
    pub release: String,
    pub image: PathBuf,
    /// Its build configuration; libbpf reads it in the VM.
    pub config: PathBuf,
    /// Release whose configuration stands in, where the archive no longer has the kernel's own.
    pub config_of: Option<String>,
    /// Policies can load; without it there is the kernel's own scheduler.
    pub sched_ext: bool,
}

impl Kernel {
    /// Ticks a second it was built for.
    pub fn hz(&self) -> Option<u32> {
        let config = fs::read_to_string(&self.config).ok()?;
        config
            .lines()
            .find_map(|l| l.strip_prefix("CONFIG_HZ=")?.parse().ok())
    }
}

/// What the cache knows: the release chosen per rule, and the verdict per release.
#[derive(Default, serde::Serialize, serde::Deserialize)]
#[serde(default)]
struct Known {
    chosen: BTreeMap<String, String>,
    verdicts: BTreeMap<String, Verdict>,
}

const KNOWN: &str = "kernels.json";
/// File beside a configuration that is another release's.
const CONFIG_OF: &str = "config.of";

/// Finds or fetches the kernel. `refresh` asks the network also if the cache has an answer.
pub(crate) fn ensure(
    cache: &Cache,
    rule: &KernelRule,
    refresh: bool,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<Kernel, LabError> {
    if let KernelRule::File { image, config } = rule {
        return own(image, config.as_deref());
    }
    let mut known: Known = cache.load(KNOWN);
    if !refresh
        && let Some(k) = known
            .chosen
            .get(&rule.key())
            .and_then(|release| cached(cache, release))
    {
        let sched_ext = known.verdicts.get(&k.release) != Some(&Verdict::Plain);
        return Ok(Kernel { sched_ext, ..k });
    }
    let mut tried = Vec::new();
    let suites = rule.suites();
    for suite in suites {
        let suite = Suite::open(cache, suite, refresh, listener, stop)?;
        for candidate in candidates(&suite, rule)?.into_iter().take(TRIES) {
            let kernel = match known.verdicts.get(&candidate.release) {
                Some(Verdict::Unfit(why)) => {
                    tried.push(format!("{}: {why}", candidate.release));
                    continue;
                }
                _ => match cached(cache, &candidate.release) {
                    Some(k) => k,
                    None => fetch(cache, &suite, &candidate, listener, stop)?,
                },
            };
            let mut verdict = probe_file(&kernel.image)?;
            if verdict == Verdict::Plain && !matches!(rule, KernelRule::Line(_)) {
                verdict = Verdict::Unfit("it is built without sched_ext".into());
            }
            // A stand-in may have been looked for meanwhile.
            known = cache.load(KNOWN);
            known
                .verdicts
                .insert(candidate.release.clone(), verdict.clone());
            if let Verdict::Unfit(why) = verdict {
                listener(Progress::Say(format!(
                    "kernel {} is passed over: {why}",
                    candidate.release
                )));
                tried.push(format!("{}: {why}", candidate.release));
                let folder = folder(cache, &candidate.release);
                fs::remove_dir_all(&folder).map_err(|e| LabError::io(&folder, e))?;
                cache.store(KNOWN, &known)?;
                continue;
            }
            known.chosen.insert(rule.key(), candidate.release.clone());
            cache.store(KNOWN, &known)?;
            let sched_ext = verdict != Verdict::Plain;
            return Ok(Kernel {
                sched_ext,
                ..kernel
            });
        }
    }
    Err(LabError::NoKernel {
        rule: match rule {
            KernelRule::Newest => "that passes the probe is".to_string(),
            other => format!("{} is", other.key()),
        },
        tried: if tried.is_empty() {
            format!(" (looked in {})", suites.join(", "))
        } else {
            format!(" ({})", tried.join("; "))
        },
    })
}

/// A release that a suite offers, and the packages that make it up.
#[derive(Debug, PartialEq, Eq)]
struct Candidate {
    release: String,
    packages: Vec<String>,
}

/// Releases of the rule in a suite, newest first.
fn candidates(suite: &Suite<'_>, rule: &KernelRule) -> Result<Vec<Candidate>, LabError> {
    // Since 7.0 image and configuration are packages of their own; before, one package holds both.
    let split = releases(&suite.names("linux-binary-")?, "linux-binary-");
    let whole = releases(&suite.names("linux-image-")?, "linux-image-");
    // An archive keeps an old line's image longer than its configuration.
    let configured = releases(&suite.names("linux-base-")?, "linux-base-");
    let mut all: Vec<Candidate> = split
        .iter()
        .map(|r| Candidate {
            release: r.clone(),
            packages: [format!("linux-binary-{r}")]
                .into_iter()
                .chain(configured.contains(r).then(|| format!("linux-base-{r}")))
                .collect(),
        })
        .chain(
            whole
                .iter()
                .filter(|r| !split.contains(r))
                .map(|r| Candidate {
                    release: r.clone(),
                    packages: vec![format!("linux-image-{r}")],
                }),
        )
        .filter(|c| matches(rule, &c.release))
        .filter(|c| *rule != KernelRule::Newest || configured.contains(&c.release))
        .collect();
    all.sort_by_key(|c| std::cmp::Reverse(version(&c.release)));
    Ok(all)
}

fn releases(names: &[String], prefix: &str) -> Vec<String> {
    names
        .iter()
        .filter_map(|n| n.strip_prefix(prefix))
        .filter(|r| r.ends_with(FLAVOUR) && r.starts_with(|c: char| c.is_ascii_digit()))
        .map(str::to_string)
        .collect()
}

fn matches(rule: &KernelRule, release: &str) -> bool {
    let v = version(release);
    match rule {
        KernelRule::Newest => v.get(..2).is_some_and(|l| l >= OLDEST.as_slice()),
        KernelRule::Line(l) => v.starts_with(&version(l)),
        KernelRule::File { .. } => false,
    }
}

/// `7.2.12+deb14-cloud-amd64` -> 7, 2, 12; `6.1.0-56-cloud-amd64` -> 6, 1, 0, 56.
fn version(release: &str) -> Vec<u64> {
    let number = release.split('+').next().unwrap_or("");
    number
        .split(['.', '-'])
        .map_while(|p| p.parse().ok())
        .collect()
}

fn folder(cache: &Cache, release: &str) -> PathBuf {
    cache.root.join("kernels").join(release)
}

fn cached(cache: &Cache, release: &str) -> Option<Kernel> {
    let folder = folder(cache, release);
    let k = Kernel {
        release: release.to_string(),
        image: folder.join("vmlinuz"),
        config: folder.join("config"),
        config_of: fs::read_to_string(folder.join(CONFIG_OF)).ok(),
        sched_ext: true,
    };
    (k.image.is_file() && k.config.is_file()).then_some(k)
}

fn fetch(
    cache: &Cache,
    suite: &Suite<'_>,
    c: &Candidate,
    listener: &Listener<'_>,
    stop: &AtomicBool,
) -> Result<Kernel, LabError> {
    let dir = tempfile::Builder::new()
        .prefix("kernel-")
        .tempdir_in(&cache.root)
        .map_err(|e| LabError::io(&cache.root, e))?;
    suite.unpack(&format!("Linux {}", c.release), &c.packages, dir.path())?;
    let modules = dir.path().join("usr/lib/modules").join(&c.release);
    let boot = dir.path().join("boot");
    let found = |name: &str| {
        let places = [
            modules.join(name),
            boot.join(format!("{name}-{}", c.release)),
        ];
        places.into_iter().find(|p| p.is_file())
    };
    let image = found("vmlinuz").ok_or_else(|| LabError::UnfitKernel {
        path: c.packages.join(", "),
        reason: "it holds no vmlinuz".to_string(),
    })?;
    let (config, config_of) = match found("config") {
        Some(own) => (own, None),
        None => {
            let other = stand_in(cache, listener, stop)?;
            (other.config, Some(other.release))
        }
    };
    let to = folder(cache, &c.release);
    fs::create_dir_all(&to).map_err(|e| LabError::io(&to, e))?;
    if let Some(release) = &config_of {
        fs::write(to.join(CONFIG_OF), release).map_err(|e| LabError::io(&to, e))?;
    }
    for (from, name) in [(config, "config"), (image, "vmlinuz")] {
        fs::copy(&from, to.join(name)).map_err(|e| LabError::io(&from, e))?;
    }
    Ok(Kernel {
        release: c.release.clone(),
        image: to.join("vmlinuz"),
        config: to.join("config"),
        config_of,
        sched_ext: true,
    })
}

/// The newest kernel that has its own configuration: same distribution, same flavour.
fn stand_in(cache: &Cache, listener: &Listener<'_>, stop: &AtomicBool) -> Result<Kernel, LabError> {
    ensure(cache, &KernelRule::Newest, false, listener, stop)
}

fn probe_file(image: &Path) -> Result<Verdict, LabError> {
    let bytes = fs::read(image).map_err(|e| LabError::io(image, e))?;
    Ok(probe::probe(&bytes))
}

/// The user's own kernel.
fn own(image: &Path, config: Option<&Path>) -> Result<Kernel, LabError> {
    let unfit = |reason: String| LabError::UnfitKernel {
        path: image.display().to_string(),
        reason,
    };
    let bytes = fs::read(image).map_err(|e| LabError::io(image, e))?;
    let verdict = probe::probe(&bytes);
    if let Verdict::Unfit(why) = verdict {
        return Err(unfit(why));
    }
    let release =
        probe::release(&bytes).ok_or_else(|| unfit("it is not an x86 bzImage".to_string()))?;
    let beside = || {
        let name = image.file_name()?.to_str()?;
        let suffix = name
            .strip_prefix("vmlinuz")
            .or(name.strip_prefix("bzImage"))?;
        let folder = image.parent()?;
        [
            folder.join(format!("config{suffix}")),
            folder.join(format!("config-{release}")),
        ]
        .into_iter()
        .find(|p| p.is_file())
    };
    let config = match config {
        Some(c) => c.to_path_buf(),
        None => beside().ok_or_else(|| {
            unfit("its build configuration does not lie beside it; give it with --kernel VMLINUZ,CONFIG".to_string())
        })?,
    };
    if !config.is_file() {
        return Err(unfit(format!("{} is no file", config.display())));
    }
    Ok(Kernel {
        release,
        image: image.to_path_buf(),
        config,
        config_of: None,
        sched_ext: verdict != Verdict::Plain,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        assert_eq!(KernelRule::parse("").unwrap(), KernelRule::Newest);
        assert_eq!(KernelRule::parse("default").unwrap(), KernelRule::Newest);
        assert_eq!(
            KernelRule::parse("6.18").unwrap(),
            KernelRule::Line("6.18".to_string())
        );
        let e = KernelRule::parse("6.x").unwrap_err().to_string();
        assert!(e.contains("6.x") && e.contains("--kernel"), "{e}");
    }

    #[test]
    fn versions_order_and_match_as_numbers() {
        let v = version("7.2.12+deb14-cloud-amd64");
        assert_eq!(v, [7, 2, 12]);
        assert!(version("7.2.12+deb14-cloud-amd64") > version("7.2.9+deb13-cloud-amd64"));
        assert!(version("6.1.0-56-cloud-amd64") > version("6.1.0-9-cloud-amd64"));
        let line = KernelRule::Line("6.1".to_string());
        assert!(!matches(&line, "6.18.15+deb13-cloud-amd64"));
        assert!(matches(&line, "6.1.3+deb13-cloud-amd64"));
        assert!(!matches(&KernelRule::Newest, "6.12.1+deb13-cloud-amd64"));
        assert!(matches(&KernelRule::Newest, "7.0.1+deb13-cloud-amd64"));
    }

    #[test]
    fn only_the_plain_flavour_counts() {
        let names: Vec<String> = [
            "linux-binary-7.2.12+deb14-cloud-amd64",
            "linux-binary-unsigned-7.2.12+deb14-cloud-amd64",
            "linux-binary-7.2.12+deb14-rt-amd64",
        ]
        .map(String::from)
        .to_vec();
        assert_eq!(
            releases(&names, "linux-binary-"),
            ["7.2.12+deb14-cloud-amd64"]
        );
    }
}
