// SPDX-License-Identifier: GPL-2.0-only
//! Parameters a policy declares about its variables: `berth:param unit=us default=1000 min=100 max=100000
//! live=0 help=...`, or with names for its values `berth:param words=tickle|direct default=0 live=0 help=...`, as a BTF
//! declaration tag (policies/include/berth/param.bpf.h).
use crate::error::{LoadError, Result};
use crate::ir::Program;

/// A declared parameter.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Param {
    /// The variable's name.
    pub name: String,
    /// `ns`, `us`, `ms`, `s`, `percent`, `bool`, ... as written; empty if a plain number or a word.
    pub unit: String,
    /// Names of the values from 0 on; empty if it is a number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub words: Vec<String>,
    pub default: i64,
    pub min: i64,
    pub max: i64,
    /// May be changed while the policy runs.
    pub live: bool,
    pub help: String,
}

const PREFIX: &str = "berth:param";

/// All parameters of a program, in the object's order.
pub fn declared(program: &Program) -> Result<Vec<Param>> {
    let mut params = Vec::new();
    for section in &program.sections {
        for var in &section.vars {
            for tag in &var.tags {
                if let Some(text) = tag.strip_prefix(PREFIX) {
                    params.push(parse(&var.name, text)?);
                }
            }
        }
    }
    Ok(params)
}

fn parse(name: &str, text: &str) -> Result<Param> {
    let bad =
        |why: String| LoadError::Broken(format!("parameter {name}: {why} in `{PREFIX}{text}`"));
    let mut param = Param {
        name: name.to_string(),
        unit: String::new(),
        words: Vec::new(),
        default: 0,
        min: i64::MIN,
        max: i64::MAX,
        live: false,
        help: String::new(),
    };
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest
            .split_once('=')
            .ok_or_else(|| bad(format!("`{rest}` is not key=value")))?;
        let (value, next) = if key == "help" {
            (after, "")
        } else {
            after.split_once(char::is_whitespace).unwrap_or((after, ""))
        };
        let number = || {
            value
                .parse::<i64>()
                .map_err(|_| bad(format!("{key}={value} is not a number")))
        };
        match key {
            "unit" => param.unit = value.to_string(),
            "words" => param.words = value.split('|').map(str::to_string).collect(),
            "default" => param.default = number()?,
            "min" => param.min = number()?,
            "max" => param.max = number()?,
            "live" => param.live = number()? != 0,
            "help" => param.help = value.trim().to_string(),
            _ => return Err(bad(format!("unknown key {key}"))),
        }
        rest = next.trim_start();
    }
    if !param.words.is_empty() {
        (param.min, param.max) = (0, param.words.len() as i64 - 1);
    }
    if param.min > param.max || param.default < param.min || param.default > param.max {
        return Err(bad("the default is outside the bounds".into()));
    }
    Ok(param)
}

impl Param {
    /// A value as a user writes it: its name, or the number with the unit.
    pub fn written(&self, value: i64) -> String {
        let word = usize::try_from(value).ok().and_then(|i| self.words.get(i));
        match word {
            Some(word) => word.clone(),
            None if self.unit.is_empty() => value.to_string(),
            None => format!("{value} {}", self.unit),
        }
    }

    /// The value of `text`: a name of a value, a plain number in this parameter's unit, or one with a time unit
    /// (`20ms`).
    pub fn value(&self, text: &str) -> Result<i64> {
        let text = text.trim();
        let wrong =
            |why: &str| LoadError::Setting(format!("parameter {} = `{text}`: {why}", self.name));
        if !self.words.is_empty() {
            // Its number, too: so presets and older scenarios may have it.
            let number = text.parse().ok().filter(|n| *n < self.words.len());
            let found = self.words.iter().position(|w| w == text).or(number);
            return found
                .map(|i| i as i64)
                .ok_or_else(|| wrong(&format!("must be one of {}", self.words.join(", "))));
        }
        let value = match text {
            "true" | "on" | "yes" => 1,
            "false" | "off" | "no" => 0,
            _ => {
                let split = text
                    .find(|c: char| !(c.is_ascii_digit() || c == '-' || c == '_'))
                    .unwrap_or(text.len());
                let number: i64 = text[..split]
                    .replace('_', "")
                    .parse()
                    .map_err(|_| wrong("not a number"))?;
                let suffix = text[split..].trim();
                if suffix.is_empty()
                    || suffix == self.unit
                    || (suffix == "%" && self.unit == "percent")
                {
                    number
                } else {
                    let (from, to) = nanoseconds(suffix)
                        .zip(nanoseconds(&self.unit))
                        .ok_or_else(|| {
                            wrong(&format!(
                                "a whole number is wanted, its unit is {}, from {} to {}",
                                if self.unit.is_empty() {
                                    "none"
                                } else {
                                    &self.unit
                                },
                                self.min,
                                self.max
                            ))
                        })?;
                    let ns = number.checked_mul(from).ok_or_else(|| wrong("too large"))?;
                    if ns % to != 0 {
                        return Err(wrong(&format!("not a whole number of {}", self.unit)));
                    }
                    ns / to
                }
            }
        };
        if value < self.min || value > self.max {
            return Err(wrong(&format!(
                "must be from {} to {} {}",
                self.min, self.max, self.unit
            )));
        }
        Ok(value)
    }
}

fn nanoseconds(unit: &str) -> Option<i64> {
    Some(match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_and_values() {
        let p = parse(
            "slice",
            " unit=us default=1000 min=100 max=100000 live=1 help=Time slice, as given",
        )
        .unwrap();
        assert_eq!(
            (p.default, p.live, p.help.as_str()),
            (1000, true, "Time slice, as given")
        );
        assert_eq!(p.value("5ms").unwrap(), 5000);
        assert_eq!(p.value("250").unwrap(), 250);
        assert!(
            p.value("150ns")
                .unwrap_err()
                .to_string()
                .contains("whole number of us")
        );
        assert!(
            p.value("1")
                .unwrap_err()
                .to_string()
                .contains("from 100 to 100000 us")
        );
        assert!(p.value("3kg").is_err());
        let p = parse("mode", " words=paper|off default=1 live=0 help=Which").unwrap();
        assert_eq!((p.min, p.max, p.written(1).as_str()), (0, 1, "off"));
        // Not the word for "no" of other parameters.
        assert_eq!(p.value("off").unwrap(), 1);
        assert_eq!(p.value("0").unwrap(), 0);
        for wrong in ["2", "on", "Paper", "-1", ""] {
            let e = p.value(wrong).unwrap_err().to_string();
            assert!(e.contains("must be one of paper, off"), "{e}");
        }
        assert!(parse("x", " words=a|b default=2").is_err());
        assert!(parse("x", " default=5 max=4").is_err());
        assert!(parse("x", " colour=red").is_err());
    }
}
