// SPDX-License-Identifier: GPL-2.0-only
//! The small phrases inside strings: distributions, when a client sends, steps of a task.
use crate::diag::{At, Error, Result};
use crate::model::{Dist, Nanos, Sends};
use crate::quantity;

use std::path::Path;

/// A string value being taken apart; errors point at the part that is wrong.
pub struct Phrase<'a> {
    pub whole: &'a str,
    pub at: &'a At,
    /// Folder of the scenario file, where `file("x.csv")` is looked for.
    pub folder: Option<&'a Path>,
}

/// What `sends` says; a window needs the size of requests to become a loop.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    Sends(Sends),
    /// Bytes.
    Window(u64),
}

/// Largest file of values.
const FILE_BYTES: u64 = 16 << 20;

/// Distributions with their arguments, for errors and help.
pub const DISTRIBUTIONS: [(&str, &str, &str); 8] = [
    ("", "300us", "always the same"),
    ("exp", "exp(300us)", "exponential: mean"),
    ("uniform", "uniform(1ms, 2ms)", "from, to"),
    (
        "lognormal",
        "lognormal(1ms, 0.8)",
        "median, sigma of the logarithm",
    ),
    ("pareto", "pareto(1ms, 1.5)", "minimum, shape (above 1)"),
    (
        "hyperexp",
        "hyperexp(1ms, 4)",
        "two balanced exponential phases: mean, squared variation (from 1)",
    ),
    (
        "values",
        "values(1ms, 300us)",
        "these, in order, over and over",
    ),
    (
        "file",
        "file(\"x.csv\")",
        "one duration per line, in order, over and over",
    ),
];

/// Ways a client sends.
pub const SENDS: [(&str, &str, &str); 6] = [
    (
        "poisson",
        "poisson(400/s)",
        "at random moments, whatever the answers do",
    ),
    (
        "every",
        "every 100ms +- 50%",
        "at even distances, each moved by up to half; `+-` is optional",
    ),
    (
        "gap",
        "gap uniform(1ms, 2ms)",
        "any distribution of the time from one request to the next",
    ),
    (
        "closed",
        "closed(10 users, think exp(1s))",
        "each user thinks, asks, waits for the answer",
    ),
    (
        "window",
        "window 256KiB",
        "a stream: without pause, with no more than so many bytes unanswered",
    ),
    ("batch", "batch(500)", "so many at the start, and no more"),
];

impl Phrase<'_> {
    pub(crate) fn error(&self, part: &str, message: impl Into<String>) -> Error {
        Error::at(&self.at.narrow(self.whole, part), message)
    }

    pub(crate) fn quantity<T>(
        &self,
        part: &str,
        parse: impl Fn(&str) -> std::result::Result<T, String>,
    ) -> Result<T> {
        parse(part).map_err(|message| self.error(part, message))
    }

    /// A duration: fixed, or drawn from a distribution.
    ///
    /// # Errors
    /// Not one of [`DISTRIBUTIONS`], or impossible parameters.
    pub fn dist(&self, text: &str) -> Result<Dist> {
        let text = text.trim();
        let Some((name, inside)) = call(text) else {
            if text.contains(['(', ')']) {
                return Err(self.error(text, format!("`{text}` has unbalanced brackets")));
            }
            if text.is_empty() {
                return Err(self
                    .error(text, "a duration is missing")
                    .note(one_of(&DISTRIBUTIONS)));
            }
            return Ok(Dist::Const(self.quantity(text, quantity::duration)?));
        };
        let args = arguments(inside);
        let needs = |n: usize| -> Result<()> {
            if args.len() == n {
                return Ok(());
            }
            let (_, like, what) = DISTRIBUTIONS
                .iter()
                .find(|d| d.0 == name)
                .unwrap_or(&DISTRIBUTIONS[0]);
            Err(self
                .error(text, format!("`{name}` takes {n}, found {}", args.len()))
                .label(format!("{like}: {what}")))
        };
        match name {
            "exp" => {
                needs(1)?;
                Ok(Dist::Exp {
                    mean_ns: self.positive(args[0])?,
                })
            }
            "uniform" => {
                needs(2)?;
                let (lo_ns, hi_ns) = (
                    self.quantity(args[0], quantity::duration)?,
                    self.quantity(args[1], quantity::duration)?,
                );
                if lo_ns > hi_ns {
                    return Err(self.error(
                        text,
                        format!("`{text}` goes from the longer to the shorter"),
                    ));
                }
                Ok(Dist::Uniform { lo_ns, hi_ns })
            }
            "lognormal" => {
                needs(2)?;
                let sigma = self.quantity(args[1], quantity::plain)?;
                if sigma > 10.0 {
                    return Err(self.error(args[1], "a sigma above 10 has no useful values"));
                }
                Ok(Dist::Lognormal {
                    median_ns: self.positive(args[0])?,
                    sigma,
                })
            }
            "pareto" => {
                needs(2)?;
                let alpha = self.quantity(args[1], quantity::plain)?;
                if alpha <= 1.0 {
                    return Err(self.error(
                        args[1],
                        "with a shape of 1 or less the mean would be infinite",
                    ));
                }
                Ok(Dist::Pareto {
                    min_ns: self.positive(args[0])?,
                    alpha,
                })
            }
            "hyperexp" => {
                needs(2)?;
                let cv2 = self.quantity(args[1], quantity::plain)?;
                if cv2 < 1.0 {
                    return Err(self.error(
                        args[1],
                        "hyperexponential times vary more than exponential ones: 1 or more",
                    ));
                }
                Ok(Dist::Hyperexp {
                    mean_ns: self.positive(args[0])?,
                    cv2,
                })
            }
            "values" if args.is_empty() => Err(self
                .error(text, "`values` takes at least one duration")
                .label("values(1ms, 300us)")),
            "values" => {
                let each = args
                    .iter()
                    .map(|arg| self.quantity(arg, quantity::duration));
                Ok(Dist::Values(each.collect::<Result<_>>()?))
            }
            "file" => {
                needs(1)?;
                self.file(args[0])
            }
            _ => Err(self
                .error(name, format!("there is no distribution `{name}`"))
                .nearest(
                    name,
                    DISTRIBUTIONS.iter().map(|d| d.0).filter(|n| !n.is_empty()),
                )
                .note(one_of(&DISTRIBUTIONS))),
        }
    }

    pub(crate) fn positive(&self, part: &str) -> Result<f64> {
        match self.quantity(part, quantity::duration)? {
            0 => Err(self.error(part, "this has to be longer than zero")),
            ns => Ok(ns as f64),
        }
    }

    /// `file("x.csv")`: one duration with its unit per line; empty lines and lines with `#` are skipped.
    fn file(&self, arg: &str) -> Result<Dist> {
        let name = arg.trim().trim_matches('"').trim_matches('\'');
        if name.is_empty() {
            return Err(self.error(arg, "the name of a file is missing"));
        }
        let Some(folder) = self.folder else {
            return Err(self.error(
                arg,
                "this scenario is not a file on disk, so it cannot name other files",
            ));
        };
        let path = folder.join(name);
        let refuse =
            |why: String| self.error(arg, format!("cannot read {}: {why}", path.display()));
        let meta = std::fs::metadata(&path).map_err(|e| refuse(e.to_string()))?;
        if !meta.is_file() || meta.len() > FILE_BYTES {
            return Err(refuse("it should be a file of at most 16 MiB".into()));
        }
        let text = std::fs::read_to_string(&path).map_err(|e| refuse(e.to_string()))?;
        let mut values = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let ns = quantity::duration(line)
                .map_err(|m| self.error(arg, format!("{} line {}: {m}", path.display(), i + 1)))?;
            values.push(ns);
        }
        if values.is_empty() {
            return Err(refuse("it has no values".into()));
        }
        Ok(Dist::Values(values))
    }

    /// When a client sends.
    ///
    /// # Errors
    /// Not one of [`SENDS`], or impossible parameters.
    pub fn sends(&self) -> Result<Asked> {
        let text = self.whole.trim();
        if let Some(rest) = word(text, "every") {
            let (period, jitter) = match rest.split_once("+-").or_else(|| rest.split_once('±')) {
                Some((period, jitter)) => (period.trim(), Some(jitter.trim())),
                None => (rest, None),
            };
            let period_ns = self.positive(period)? as Nanos;
            let jitter_ppm = match jitter {
                Some(part) => self.quantity(part, quantity::percent_ppm)?,
                None => 0,
            };
            if jitter_ppm > 1_000_000 {
                return Err(self
                    .error(
                        rest,
                        "moved by more than a whole period, requests would overtake each other",
                    )
                    .label("at most +- 100%"));
            }
            return Ok(Asked::Sends(Sends::Every {
                period_ns,
                jitter_ppm,
            }));
        }
        if let Some(rest) = word(text, "gap") {
            let gap = self.dist(rest)?;
            if never_positive(&gap) {
                return Err(self.error(
                    rest,
                    "gaps of zero would send without end at the first moment",
                ));
            }
            return Ok(Asked::Sends(Sends::Open { gap }));
        }
        if let Some(rest) = word(text, "window") {
            return Ok(Asked::Window(self.quantity(rest, quantity::bytes)?));
        }
        match call(text) {
            Some(("poisson", inside)) => {
                let rate = self.quantity(inside, quantity::per_second)?;
                Ok(Asked::Sends(Sends::Open {
                    gap: Dist::Exp {
                        mean_ns: 1e9 / rate,
                    },
                }))
            }
            Some(("closed", inside)) => Ok(Asked::Sends(self.closed(inside)?)),
            Some(("batch", inside)) => match inside.trim().parse::<u32>() {
                Ok(count @ 1..=1_000_000) => Ok(Asked::Sends(Sends::Batch { count })),
                _ => Err(self
                    .error(inside, format!("`{inside}` is not a number of requests"))
                    .label("1 to 1000000")),
            },
            other => {
                let name = other.map_or_else(
                    || text.split_whitespace().next().unwrap_or(""),
                    |(name, _)| name,
                );
                Err(self
                    .error(
                        if name.is_empty() { text } else { name },
                        format!("`{text}` does not say when to send"),
                    )
                    .nearest(name, SENDS.iter().map(|s| s.0))
                    .note(one_of(&SENDS)))
            }
        }
    }

    /// The inside of `closed(10 users, think exp(1s))`.
    fn closed(&self, inside: &str) -> Result<Sends> {
        let like = || format!("write for instance {}", SENDS[3].1);
        let args = arguments(inside);
        let [users, think] = args[..] else {
            return Err(self
                .error(
                    inside,
                    "`closed` takes the number of users and what they think",
                )
                .label(like()));
        };
        let count = users
            .strip_suffix("users")
            .or_else(|| users.strip_suffix("user"))
            .map(str::trim);
        let Some(Ok(count)) = count.map(str::parse::<u32>) else {
            return Err(self
                .error(users, format!("`{users}` is not a number of users"))
                .label(like()));
        };
        if count == 0 || count > 1_000_000 {
            return Err(self.error(users, "there should be 1 to 1000000 users"));
        }
        let Some(think) = word(think, "think") else {
            return Err(self
                .error(
                    think,
                    format!("`{think}` does not say how long users think"),
                )
                .label(like()));
        };
        Ok(Sends::Closed {
            users: count,
            think: self.dist(think)?,
        })
    }
}

/// All values are zero.
pub fn never_positive(dist: &Dist) -> bool {
    match dist {
        Dist::Const(ns) => *ns == 0,
        Dist::Uniform { hi_ns, .. } => *hi_ns == 0,
        Dist::Values(values) => values.iter().all(|v| *v == 0),
        _ => false,
    }
}

/// `name(inside)`.
fn call(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.trim().split_once('(')?;
    Some((name.trim(), rest.trim().strip_suffix(')')?))
}

/// The rest of `text` behind a leading word.
pub(crate) fn word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let rest = text.trim().strip_prefix(word)?;
    if rest.is_empty() || rest.starts_with(char::is_whitespace) {
        Some(rest.trim())
    } else {
        None
    }
}

/// Arguments of a call: commas outside quotes and inner brackets.
fn arguments(inside: &str) -> Vec<&str> {
    let (mut list, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0_i32, false);
    for (i, c) in inside.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                list.push(inside[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    let last = inside[start..].trim();
    if !last.is_empty() || !list.is_empty() {
        list.push(last);
    }
    list
}

pub(crate) fn one_of(list: &[(&str, &str, &str)]) -> String {
    format!(
        "There are: {}",
        list.iter()
            .map(|(_, like, _)| *like)
            .filter(|l| !l.is_empty())
            .collect::<Vec<_>>()
            .join(" · ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diag::Source;
    use crate::model::Step;
    use crate::step::Grid;
    use std::sync::Arc;

    fn with<T>(text: &str, f: impl Fn(&Phrase<'_>) -> Result<T>) -> std::result::Result<T, String> {
        let source = Arc::new(Source {
            name: "t.toml".into(),
            text: format!("\"{text}\""),
            numbered: true,
        });
        let at = At {
            source,
            span: 0..text.len() + 2,
        };
        f(&Phrase {
            whole: text,
            at: &at,
            folder: None,
        })
        .map_err(|e| e.to_string())
    }

    fn dist(text: &str) -> std::result::Result<Dist, String> {
        with(text, |p| p.dist(p.whole))
    }

    #[test]
    fn distributions() {
        assert_eq!(dist("300us"), Ok(Dist::Const(300_000)));
        assert_eq!(dist("exp(300us)"), Ok(Dist::Exp { mean_ns: 3e5 }));
        assert_eq!(
            dist("uniform(1ms, 2ms)"),
            Ok(Dist::Uniform {
                lo_ns: 1_000_000,
                hi_ns: 2_000_000
            })
        );
        assert_eq!(
            dist("lognormal(1ms, 0.8)"),
            Ok(Dist::Lognormal {
                median_ns: 1e6,
                sigma: 0.8
            })
        );
        assert_eq!(
            dist("pareto(1ms,1.5)"),
            Ok(Dist::Pareto {
                min_ns: 1e6,
                alpha: 1.5
            })
        );
        assert_eq!(
            dist("hyperexp(1ms, 4)"),
            Ok(Dist::Hyperexp {
                mean_ns: 1e6,
                cv2: 4.0
            })
        );
        assert_eq!(
            dist("values(1ms, 0us,300us)"),
            Ok(Dist::Values(vec![1_000_000, 0, 300_000]))
        );
        assert!(dist("values()").unwrap_err().contains("at least one"));
        assert!(dist("values(1ms, 2)").unwrap_err().contains("no unit"));
        assert!(dist("exp(300)").unwrap_err().contains("no unit"));
        assert!(
            dist("expo(300us)")
                .unwrap_err()
                .contains("did you mean `exp`?")
        );
        assert!(dist("exp(0us)").unwrap_err().contains("longer than zero"));
        assert!(
            dist("uniform(2ms, 1ms)")
                .unwrap_err()
                .contains("longer to the shorter")
        );
        assert!(
            dist("uniform(2ms)")
                .unwrap_err()
                .contains("takes 2, found 1")
        );
        assert!(dist("pareto(1ms, 0.5)").unwrap_err().contains("infinite"));
        assert!(dist("exp(1ms").unwrap_err().contains("brackets"));
        assert!(dist("file(x)").unwrap_err().contains("not a file on disk"));
    }

    #[test]
    fn sends() {
        let sends = |text: &str| {
            with(text, |p| p.sends()).map(|asked| match asked {
                Asked::Sends(sends) => sends,
                Asked::Window(bytes) => panic!("a window of {bytes}"),
            })
        };
        assert_eq!(
            with("window 256KiB", |p| p.sends()),
            Ok(Asked::Window(256 << 10))
        );
        assert_eq!(
            sends("poisson(400/s)"),
            Ok(Sends::Open {
                gap: Dist::Exp { mean_ns: 2.5e6 }
            })
        );
        assert_eq!(
            sends("every 100ms +- 50%"),
            Ok(Sends::Every {
                period_ns: 100_000_000,
                jitter_ppm: 500_000
            })
        );
        assert_eq!(
            sends("every 1s"),
            Ok(Sends::Every {
                period_ns: 1_000_000_000,
                jitter_ppm: 0
            })
        );
        assert_eq!(
            sends("closed(10 users, think exp(1s))"),
            Ok(Sends::Closed {
                users: 10,
                think: Dist::Exp { mean_ns: 1e9 }
            })
        );
        assert_eq!(
            sends("gap 2ms"),
            Ok(Sends::Open {
                gap: Dist::Const(2_000_000)
            })
        );
        assert!(
            sends("poison(400/s)")
                .unwrap_err()
                .contains("did you mean `poisson`?")
        );
        assert!(sends("gap 0ms").is_err());
        assert!(
            sends("closed(ten users, think 1s)")
                .unwrap_err()
                .contains("not a number of users")
        );
        assert!(sends("every 10ms +- 200%").is_err());
        assert!(sends("").is_err());
    }

    #[test]
    fn steps() {
        let step = |text: &str| with(text, |p| p.step(8));
        assert_eq!(
            step("compute exp(300us)"),
            Ok(Step::Compute(Dist::Exp { mean_ns: 3e5 }))
        );
        assert_eq!(
            step("timer every 5ms"),
            Ok(Step::Timer {
                period_ns: 5_000_000,
                grid: Grid::Random,
            })
        );
        assert_eq!(
            step("timer every 5ms from start"),
            Ok(Step::Timer {
                period_ns: 5_000_000,
                grid: Grid::Start,
            })
        );
        assert_eq!(
            step("timer every 5ms from start catching up"),
            Ok(Step::Timer {
                period_ns: 5_000_000,
                grid: Grid::StartCatchUp,
            })
        );
        assert!(
            step("timer every 5ms from now")
                .unwrap_err()
                .contains("`from start`")
        );
        assert_eq!(
            step("send backend 1KiB"),
            Ok(Step::Send {
                to: "backend".into(),
                bytes: 1024
            })
        );
        assert_eq!(
            step("affinity [0-1, 7]"),
            Ok(Step::SetAffinity(vec![0, 1, 7]))
        );
        assert_eq!(step("affinity all"), Ok(Step::SetAffinity(vec![])));
        assert_eq!(step("nice -5"), Ok(Step::SetNice(-5)));
        assert!(step("nice 20").is_err());
        assert!(step("affinity 8").unwrap_err().contains("no CPU 8"));
        assert!(step("affinity []").unwrap_err().contains("empty"));
        assert_eq!(step("lock big"), Ok(Step::Lock { name: "big".into() }));
        assert_eq!(
            step("chunks rows 64 1ms"),
            Ok(Step::Chunks {
                name: "rows".into(),
                chunks: 64,
                each: Dist::Const(1_000_000)
            })
        );
        assert!(step("chunks rows 1ms").unwrap_err().contains("how many"));
        assert!(step("chunks rows 0 1ms").unwrap_err().contains("1 to"));
        assert!(step("lock").unwrap_err().contains("takes one name"));
        assert_eq!(
            step("read disk 4KiB"),
            Ok(Step::Read {
                name: "disk".into(),
                bytes: 4096
            })
        );
        assert!(
            step("compite 1ms")
                .unwrap_err()
                .contains("did you mean `compute`?")
        );
        assert!(step("reply now").unwrap_err().contains("takes nothing"));
        assert!(step("compute").unwrap_err().contains("missing"));
        assert!(step("receive").is_err());
        assert!(step("").is_err());
    }
}
