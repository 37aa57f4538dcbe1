// SPDX-License-Identifier: GPL-2.0-only
//! Claims of a paper: `claims.toml` in the folder of its scenarios.
//!
//! ```toml
//! [[claim]]
//! id     = "F-T1-LAT-CREDIT"
//! says   = "mean ping time under Credit"
//! where  = "Table 1"
//! arm    = "credit"
//! value  = "16.853ms"
//! accept = "5.62ms to 50.56ms"
//! verdict = "reproduced"
//! why    = "19.6 ms on the host that is nearest to the paper's"
//! ```
use crate::diag::{At, Error, Result, Source};
use crate::tree::{self, Entry, Node, Value};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// One result that a paper reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub id: String,
    /// In our words.
    pub says: String,
    /// Section, figure or table.
    pub source: String,
    /// As a quantity with its unit (`16.853ms`, `50%`); none where the paper has only words.
    pub value: Option<String>,
    /// The arm it is about.
    pub arm: Option<String>,
    /// The arm that `arm` is compared with.
    pub against: Option<String>,
    /// How it is compared; none without `against`.
    pub comparison: Option<Comparison>,
    /// The metric, where it is another than that of the scenario's `[reproduces]`.
    pub metric: Option<String>,
    /// Lowest and highest value that count as the paper's finding, as quantities with units.
    pub accept: Option<(String, String)>,
    /// Another arm that the claim is judged for, too: a second reading of the rules that `arm` has.
    pub also: Option<String>,
    /// How it goes over the variants of its run, where that is what the paper reports.
    pub trend: Option<Trend>,
    /// What is missing before it can be judged.
    pub needs: Option<String>,
    /// What came out, as it is kept; only with `why`.
    pub verdict: Option<Verdict>,
    /// One sentence why.
    pub why: Option<String>,
    /// The file's line that it begins in, from 1.
    pub line: usize,
}

/// What came of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Within what counts as the paper's finding.
    Reproduced,
    /// The arms differ in the paper's direction with 95 % confidence, but not by as much.
    DirectionOnly,
    NotReproduced,
    /// Nothing that is run could say it.
    NotTestable,
    /// Something is missing before it can be judged.
    NotYet,
}

impl Verdict {
    pub const ALL: [Verdict; 5] = [
        Verdict::Reproduced,
        Verdict::DirectionOnly,
        Verdict::NotReproduced,
        Verdict::NotTestable,
        Verdict::NotYet,
    ];

    /// As it is written in files and pages.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::DirectionOnly => "direction only",
            Verdict::NotReproduced => "not reproduced",
            Verdict::NotTestable => "not testable",
            Verdict::NotYet => "not yet",
        }
    }
}

impl Claim {
    /// The verdict as it is kept; a claim that nobody has judged is one of `not yet`.
    pub fn standing(&self) -> Verdict {
        self.verdict.unwrap_or(Verdict::NotYet)
    }
}

/// How a claim's metric goes over the variants of a run, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trend {
    /// Each variant has more than the one before it.
    Rises,
    /// The last variant's change against the first one is within `accept`.
    Stays,
    /// Spearman's correlation of the means' ranks with the variants' order is within `accept`.
    Ranks,
}

/// How a claim compares two arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// 1 - arm / against.
    Reduction,
    /// arm / against - 1.
    Gain,
}

const FIELDS: [&str; 14] = [
    "id", "says", "where", "value", "arm", "against", "as", "metric", "accept", "also", "trend",
    "needs", "verdict", "why",
];

/// Largest file of claims.
const FILE_BYTES: u64 = 1 << 20;

/// The claims beside a scenario; none if there is no such file.
///
/// # Errors
/// As [`read`].
pub fn beside(folder: Option<&Path>) -> Result<Option<Vec<Claim>>> {
    let path = folder.map(|folder| folder.join("claims.toml"));
    let path = path.filter(|path| path.try_exists().unwrap_or(true));
    path.map(|path| read(&path)).transpose()
}

/// Reads a file of claims.
///
/// # Errors
/// It cannot be read, is not TOML, or has something else than claims, each with what a claim must have.
pub fn read(path: &Path) -> Result<Vec<Claim>> {
    let shown = path.display().to_string();
    let refuse = |why: String| Error::new(format!("cannot read the claims {shown}: {why}"));
    let meta = std::fs::metadata(path).map_err(|e| refuse(e.to_string()))?;
    if !meta.is_file() || meta.len() > FILE_BYTES {
        return Err(refuse("it should be a file of at most 1 MiB".into()));
    }
    let text = std::fs::read_to_string(path).map_err(|e| refuse(e.to_string()))?;
    parse(shown, text)
}

fn parse(name: String, text: String) -> Result<Vec<Claim>> {
    let source = Arc::new(Source {
        name,
        text,
        numbered: true,
    });
    let root = tree::parse(&source)?;
    let Value::Table(table) = &root.value else {
        return Ok(Vec::new());
    };
    let mut claims: Vec<Claim> = Vec::new();
    for entry in &table.entries {
        let items = match (&*entry.key, &entry.node.value) {
            ("claim", Value::Array(items)) => items,
            _ => {
                return Err(Error::at(
                    &entry.key_at,
                    "a file of claims has [[claim]] only",
                ));
            }
        };
        for item in items {
            let claim = claim(item)?;
            if claims.iter().any(|c| c.id == claim.id) {
                return Err(Error::at(
                    &item.at,
                    format!("there are two claims `{}`", claim.id.escape_debug()),
                ));
            }
            claims.push(claim);
        }
    }
    Ok(claims)
}

/// One `[[claim]]`.
fn claim(item: &Node) -> Result<Claim> {
    let Value::Table(fields) = &item.value else {
        return Err(Error::at(&item.at, "a claim is a table [[claim]]"));
    };
    for entry in &fields.entries {
        if !FIELDS.contains(&&*entry.key) {
            return Err(Error::at(
                &entry.key_at,
                format!("unknown key `{}` in a claim", entry.key.escape_debug()),
            )
            .nearest(&entry.key, FIELDS));
        }
    }
    let text = |name: &str| {
        let entry = fields.get(name);
        entry.map(string).transpose()
    };
    let required = |name: &str| match text(name)? {
        Some((text, _)) if !text.is_empty() => Ok(text.to_string()),
        _ => Err(Error::at(&item.at, format!("this claim needs `{name}`"))),
    };
    let optional = |name: &str| Ok(text(name)?.map(|(text, _)| text.to_string()));
    let claim = Claim {
        id: required("id")?,
        says: required("says")?,
        source: required("where")?,
        value: optional("value")?,
        arm: optional("arm")?,
        against: optional("against")?,
        comparison: one_of(
            text("as")?,
            [
                ("reduction", Comparison::Reduction),
                ("gain", Comparison::Gain),
            ],
        )?,
        metric: optional("metric")?,
        accept: text("accept")?.map(range).transpose()?,
        also: optional("also")?,
        trend: one_of(
            text("trend")?,
            [
                ("rises", Trend::Rises),
                ("stays", Trend::Stays),
                ("ranks", Trend::Ranks),
            ],
        )?,
        needs: optional("needs")?,
        verdict: one_of(
            text("verdict")?,
            Verdict::ALL.map(|verdict| (verdict.words(), verdict)),
        )?,
        why: optional("why")?,
        line: item.at.line(),
    };
    whole(&claim, &item.at)?;
    Ok(claim)
}

/// Fields that need, or exclude, one another.
fn whole(claim: &Claim, at: &At) -> Result<()> {
    let wrong = if claim.against.is_some() != claim.comparison.is_some() {
        "`against` and `as` belong together"
    } else if claim.also.is_some() && claim.arm.is_none() {
        "`also` is a second `arm`"
    } else if claim.trend.is_some() && (claim.arm.is_none() || claim.against.is_some()) {
        "`trend` is of one `arm`, and not `against` another"
    } else if matches!(claim.trend, Some(Trend::Stays | Trend::Ranks))
        != (claim.trend.is_some() && claim.accept.is_some())
    {
        "`trend = \"stays\"` needs `accept`, the change that still counts as none, `ranks` the correlation; `rises` \
         takes none"
    } else if claim.verdict.is_some() != claim.why.is_some() {
        "`verdict` and `why` belong together: what came out, and one sentence why"
    } else if claim.needs.is_some() && claim.verdict.is_some() {
        "a claim that `needs` something has no `verdict` yet"
    } else {
        return Ok(());
    };
    Err(Error::at(at, wrong))
}

fn string(entry: &Entry) -> Result<(&str, &At)> {
    match &entry.node.value {
        Value::Str(text) => Ok((text.trim(), &entry.node.at)),
        _ => Err(Error::at(&entry.node.at, "a claim has strings only")),
    }
}

fn one_of<T, const N: usize>(
    text: Option<(&str, &At)>,
    words: [(&str, T); N],
) -> Result<Option<T>> {
    let Some((text, at)) = text else {
        return Ok(None);
    };
    let names = words.each_ref().map(|(word, _)| *word);
    let found = words.into_iter().find(|(word, _)| *word == text);
    match found {
        Some((_, value)) => Ok(Some(value)),
        None => {
            let all = names.join("`, `");
            Err(Error::at(at, format!("here may stand `{all}`")).nearest(text, names))
        }
    }
}

fn range((text, at): (&str, &At)) -> Result<(String, String)> {
    match text.split_once(" to ") {
        Some((low, high)) => Ok((low.trim().into(), high.trim().into())),
        None => Err(Error::at(at, "`accept` is LOW to HIGH").label("for instance \"5ms to 50ms\"")),
    }
}

/// The claims that a name, or the beginning of names with `*` behind it, means.
pub fn matching<'a>(claims: &'a [Claim], pattern: &str) -> Vec<&'a Claim> {
    let fits = |claim: &&Claim| match pattern.strip_suffix('*') {
        Some(start) => claim.id.starts_with(start),
        None => claim.id == pattern,
    };
    claims.iter().filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> std::result::Result<Vec<Claim>, String> {
        parse("claims.toml".into(), text.into()).map_err(|e| e.to_string())
    }

    #[test]
    fn reads_claims() {
        let all = parsed(
            "[[claim]]\nid = \"A-1\"\nsays = \"x\"\nwhere = \"Fig. 1\"\nvalue = \"1ms\"\n[[claim]]\nid = \"A-2\"\nsays \
             = \"y\"\nwhere = \"2\"\n",
        )
        .unwrap();
        assert_eq!(all[0].value.as_deref(), Some("1ms"));
        assert_eq!(all[1].value, None);
        assert_eq!(matching(&all, "A-*").len(), 2);
        assert_eq!(matching(&all, "A-2")[0].says, "y");
        assert!(matching(&all, "B*").is_empty());
    }

    #[test]
    fn refuses_other_things() {
        const REST: &str = "id = \"a\"\nsays = \"x\"\nwhere = \"1\"";
        for (text, words) in [
            ("x = 1", "[[claim]] only"),
            ("claim = 1", "[[claim]] only"),
            ("[[claim]]\nid = 1", "strings only"),
            ("[[claim]]\nidd = \"a\"", "did you mean `id`?"),
            ("[[claim]", "not TOML"),
        ] {
            let said = parsed(text).unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
        }
        for (text, words) in [
            ("against = \"b\"", "belong together"),
            ("as = \"gian\"", "did you mean `gain`?"),
            ("accept = \"5\"", "LOW to HIGH"),
            ("also = \"b\"", "a second `arm`"),
            ("trend = \"rises\"", "of one `arm`"),
            ("arm = \"b\"\ntrend = \"stays\"", "needs `accept`"),
            (
                "arm = \"b\"\ntrend = \"rises\"\naccept = \"1 to 2\"",
                "`rises` takes none",
            ),
            ("verdict = \"reproduced\"", "one sentence why"),
            ("why = \"so\"", "one sentence why"),
            (
                "why = \"so\"\nverdict = \"not testible\"",
                "did you mean `not testable`?",
            ),
            (
                "why = \"so\"\nverdict = \"not yet\"\nneeds = \"x\"",
                "no `verdict` yet",
            ),
        ] {
            let said = parsed(&format!("[[claim]]\n{REST}\n{text}")).unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
        }
        let twice = format!("[[claim]]\n{REST}\n[[claim]]\n{REST}");
        assert!(parsed(&twice).unwrap_err().contains("two claims `a`"));
    }

    #[test]
    fn a_missing_field_is_told_with_file_line_and_name() {
        for missing in ["id", "says", "where"] {
            let fields = ["id", "says", "where"].map(|field| match field == missing {
                true => String::new(),
                false => format!("{field} = \"{field}\"\n"),
            });
            let said = parsed(&format!("# Claims.\n\n[[claim]]\n{}", fields.concat())).unwrap_err();
            assert!(said.contains(&format!("needs `{missing}`")), "{said}");
            assert!(said.contains("claims.toml:3"), "{said}");
        }
    }

    #[test]
    fn beside_tells_what_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        assert!(beside(None).unwrap().is_none());
        assert!(beside(Some(dir.path())).unwrap().is_none());
        std::fs::write(dir.path().join("claims.toml"), "[[claim]]\nid = \"a\"\n").unwrap();
        let said = beside(Some(dir.path())).unwrap_err().to_string();
        assert!(said.contains("needs `says`"), "{said}");
    }
}
