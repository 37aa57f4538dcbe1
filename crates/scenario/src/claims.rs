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
//! ```
use crate::diag::{Error, Result, Source};
use crate::tree::{self, Value};
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
    /// What is missing before it can be judged.
    pub needs: Option<String>,
}

/// How a claim compares two arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// 1 - arm / against.
    Reduction,
    /// arm / against - 1.
    Gain,
}

const FIELDS: [&str; 11] = [
    "id", "says", "where", "value", "arm", "against", "as", "metric", "accept", "also", "needs",
];

/// Largest file of claims.
const FILE_BYTES: u64 = 1 << 20;

/// The claims beside a scenario; none if there is no such file, or it cannot be read.
pub fn beside(folder: Option<&Path>) -> Option<Vec<Claim>> {
    read(&folder?.join("claims.toml")).ok()
}

/// Reads a file of claims.
///
/// # Errors
/// It cannot be read, is not TOML, or has something else than claims with id and says.
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
            let Value::Table(fields) = &item.value else {
                return Err(Error::at(&item.at, "a claim is a table [[claim]]"));
            };
            let mut claim = Claim {
                id: String::new(),
                says: String::new(),
                source: String::new(),
                value: None,
                arm: None,
                against: None,
                comparison: None,
                metric: None,
                accept: None,
                also: None,
                needs: None,
            };
            for field in &fields.entries {
                let Value::Str(text) = &field.node.value else {
                    return Err(Error::at(&field.node.at, "a claim has strings only"));
                };
                match &*field.key {
                    "id" => claim.id = text.clone(),
                    "says" => claim.says = text.clone(),
                    "where" => claim.source = text.clone(),
                    "value" => claim.value = Some(text.clone()),
                    "arm" => claim.arm = Some(text.clone()),
                    "against" => claim.against = Some(text.clone()),
                    "metric" => claim.metric = Some(text.clone()),
                    "also" => claim.also = Some(text.clone()),
                    "needs" => claim.needs = Some(text.clone()),
                    "as" => {
                        claim.comparison = Some(match text.as_str() {
                            "reduction" => Comparison::Reduction,
                            "gain" => Comparison::Gain,
                            _ => {
                                return Err(Error::at(&field.node.at, "`as` is reduction or gain")
                                    .nearest(text, ["reduction", "gain"]));
                            }
                        });
                    }
                    "accept" => {
                        let Some((low, high)) = text.split_once(" to ") else {
                            return Err(Error::at(&field.node.at, "`accept` is LOW to HIGH")
                                .label("for instance \"5ms to 50ms\""));
                        };
                        claim.accept = Some((low.trim().into(), high.trim().into()));
                    }
                    other => {
                        return Err(Error::at(
                            &field.key_at,
                            format!("unknown key `{}` in a claim", other.escape_debug()),
                        )
                        .nearest(other, FIELDS));
                    }
                }
            }
            if claim.against.is_some() != claim.comparison.is_some() {
                return Err(Error::at(&item.at, "`against` and `as` belong together"));
            }
            if claim.also.is_some() && claim.arm.is_none() {
                return Err(Error::at(&item.at, "`also` is a second `arm`"));
            }
            if claim.id.is_empty() || claim.says.is_empty() {
                return Err(Error::at(&item.at, "a claim needs `id` and `says`"));
            }
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
             = \"y\"\n",
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
        for (text, words) in [
            ("x = 1", "[[claim]] only"),
            ("claim = 1", "[[claim]] only"),
            ("[[claim]]\nid = \"a\"", "needs `id` and `says`"),
            ("[[claim]]\nid = 1", "strings only"),
            ("[[claim]]\nidd = \"a\"", "did you mean `id`?"),
            (
                "[[claim]]\nid = \"a\"\nsays = \"x\"\n[[claim]]\nid = \"a\"\nsays = \"x\"",
                "two claims `a`",
            ),
            ("[[claim]", "not TOML"),
            (
                "[[claim]]\nid = \"a\"\nsays = \"x\"\nagainst = \"b\"",
                "belong together",
            ),
            ("[[claim]]\nas = \"gian\"", "did you mean `gain`?"),
            ("[[claim]]\naccept = \"5\"", "LOW to HIGH"),
        ] {
            let said = parsed(text).unwrap_err();
            assert!(said.contains(words), "{text}: {said}");
        }
    }
}
