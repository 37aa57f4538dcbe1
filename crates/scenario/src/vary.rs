// SPDX-License-Identifier: GPL-2.0-only
//! `--vary ADDRESS=A,B,C`: values, ranges of numbers, and all combinations of several.
use crate::diag::{At, Error, Result};
use crate::edit::{argument, assignment};

/// One point of a `--vary`: what is set, as `ADDRESS=VALUE`. Empty for a plain run.
pub type Variant = Vec<String>;

/// The most combinations of `--vary`.
const MOST_COMBINATIONS: u64 = 10_000_000;

/// How many combinations several `--vary` come to.
///
/// # Errors
/// As [`variants`].
pub fn combinations(vary: &[String]) -> Result<u64> {
    let mut all = 1_u64;
    for text in vary {
        let (_, values, whole) = varied(text)?;
        all = all.saturating_mul(values.len() as u64);
        if all > MOST_COMBINATIONS {
            return Err(Error::at(
                &whole,
                format!("these are more than {MOST_COMBINATIONS} combinations"),
            )
            .label("vary less at once"));
        }
    }
    Ok(all)
}

/// The first combination.
///
/// # Errors
/// As [`variants`].
pub fn first(vary: &[String]) -> Result<Variant> {
    vary.iter()
        .map(|text| {
            let (address, values, _) = varied(text)?;
            Ok(format!(
                "{address}={}",
                values.first().map_or("", String::as_str)
            ))
        })
        .collect()
}

/// Address and values of one `--vary`, and where it stands.
fn varied(text: &str) -> Result<(String, Vec<String>, At)> {
    let (address, _, _) = assignment("--vary", text)?;
    let values = split_values(text.split_once('=').map_or("", |(_, v)| v));
    let (source, start) = argument("--vary", text);
    let whole = At {
        source,
        span: start..start + text.len(),
    };
    if values.iter().any(|v| v.is_empty()) {
        return Err(Error::at(&whole, "a value is missing between two commas"));
    }
    let mut all = Vec::new();
    for value in values {
        match range(value) {
            None if meant_as_range(value) => {
                return Err(Error::at(&whole, format!("`{value}` is no range")).label(RANGES));
            }
            None => all.push(value.to_string()),
            Some(Ok(range)) => all.extend(range),
            Some(Err(why)) => {
                return Err(Error::at(&whole, format!("`{value}`: {why}")).label(RANGES));
            }
        }
    }
    Ok((address, all, whole))
}

/// All combinations of several `--vary ADDRESS=a,b,c`, the last varying fastest.
///
/// # Errors
/// No `=`, an empty value, or more than 10 million combinations.
pub fn variants(vary: &[String]) -> Result<Vec<Variant>> {
    combinations(vary)?;
    let mut all: Vec<Variant> = vec![Vec::new()];
    for text in vary {
        let (address, values, _) = varied(text)?;
        all = all
            .iter()
            .flat_map(|variant| {
                let address = &address;
                values.iter().map(move |value| {
                    let mut variant = variant.clone();
                    variant.push(format!("{address}={value}"));
                    variant
                })
            })
            .collect();
    }
    Ok(all)
}

/// The forms of a range.
const RANGES: &str =
    "1..5 is 1, 2, 3, 4, 5; 8..64..8 goes by 8; 1..64..x2 doubles; 1ms..5ms has a unit";

/// Something that begins as a range of numbers does: `1..`, `..5`, `1..9..xx`.
fn meant_as_range(text: &str) -> bool {
    let begins = |text: &str| {
        let text = text.trim_start();
        let text = text.strip_prefix('-').unwrap_or(text);
        text.starts_with(|c: char| c.is_ascii_digit())
    };
    text.split_once("..")
        .is_some_and(|(from, to)| begins(from) || (from.trim().is_empty() && begins(to)))
}

/// The most values of a range.
const MOST_VALUES: usize = 100_000;

/// A number and its unit, which may be none.
fn number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text
        .find(|c: char| c.is_ascii_alphabetic() || c == '%')
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let plain = digits
        .chars()
        .all(|c| c.is_ascii_digit() || c == '.' || c == '-');
    let value = digits
        .parse::<f64>()
        .ok()
        .filter(|v| plain && v.is_finite())?;
    let unit = unit.trim();
    unit.chars()
        .all(|c| c.is_ascii_alphabetic() || matches!(c, '%' | '/'))
        .then_some((value, unit))
}

/// The values of `FROM..TO`, `FROM..TO..STEP` or `FROM..TO..xFACTOR`, both ends included where the steps meet them;
/// none if it is something else.
fn range(text: &str) -> Option<std::result::Result<Vec<String>, String>> {
    let parts: Vec<&str> = text.split("..").collect();
    let (from, to, step) = match parts[..] {
        [from, to] => (from, to, None),
        [from, to, step] => (from, to, Some(step)),
        _ => return None,
    };
    let ((from, unit_from), (to, unit)) = (number(from)?, number(to)?);
    let (factor, step) = match step {
        None => (None, 1.0),
        Some(step) => match step.trim().strip_prefix('x') {
            Some(factor) => (Some(number(factor)?.0), 0.0),
            None => {
                let (step, of) = number(step)?;
                if !of.is_empty() && of != unit {
                    return Some(Err(format!("the step is in {of}, the range in {unit}")));
                }
                (None, step)
            }
        },
    };
    if !unit_from.is_empty() && unit_from != unit {
        return Some(Err("both ends need the same unit".into()));
    }
    Some(values(from, to, factor, step, unit))
}

fn values(
    from: f64,
    to: f64,
    factor: Option<f64>,
    step: f64,
    unit: &str,
) -> std::result::Result<Vec<String>, String> {
    match factor {
        Some(factor) if factor <= 1.0 || from <= 0.0 || to < from => {
            return Err("a factor is above 1, and goes up from a number above 0".into());
        }
        None if step <= 0.0 || to < from => {
            return Err("it goes up, by a step above 0".into());
        }
        _ => (),
    }
    let mut list = Vec::new();
    // Steps of 0.1 do not add up to a whole number; half a billionth of a step is let pass.
    let slack = factor.map_or(step, |_| to) * 1e-9;
    loop {
        let value = match factor {
            Some(factor) => from * factor.powi(list.len() as i32),
            None => from + step * list.len() as f64,
        };
        if value > to + slack {
            return Ok(list);
        }
        if list.len() >= MOST_VALUES {
            return Err(format!("it has more than {MOST_VALUES} values"));
        }
        // Twelve digits, without what binary fractions leave.
        let rounded: f64 = format!("{value:.12e}").parse().unwrap_or(value);
        list.push(format!("{rounded}{unit}"));
    }
}

/// Splits at commas outside brackets and quotes.
fn split_values(text: &str) -> Vec<&str> {
    let (mut list, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0_i32, false);
    for (i, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                list.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    list.push(text[start..].trim());
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cartesian_product() {
        let all = variants(&[
            "vm.web.count=1,2".into(),
            "task.t.loop=[\"compute exp(1ms)\"],[]".into(),
        ])
        .unwrap();
        assert_eq!(all.len(), 4);
        assert_eq!(all[1], ["vm.web.count=1", "task.t.loop=[]"]);
        assert_eq!(
            all[2],
            ["vm.web.count=2", "task.t.loop=[\"compute exp(1ms)\"]"]
        );
        assert_eq!(variants(&[]).unwrap(), [Variant::new()]);
        assert!(variants(&["x".into()]).is_err());
        assert!(variants(&["a.b=1,,2".into()]).is_err());
        let many = "a.b=".to_string() + &vec!["1"; 300].join(",");
        let many = [many.clone(), many.clone(), many];
        assert!(variants(&many).is_err());
        assert_eq!(combinations(&many[..2]).unwrap(), 90_000);
        assert_eq!(
            first(&["a.b=7,8".into(), "c.d=[1, 2],3".into()]).unwrap(),
            ["a.b=7", "c.d=[1, 2]"]
        );
    }

    #[test]
    fn ranges() {
        let values = |text: &str| {
            let all = variants(&[format!("a.b={text}")]);
            let all = all.map_err(|e| e.to_string())?;
            Ok::<_, String>(
                all.iter()
                    .map(|v| v[0].replace("a.b=", ""))
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        for (text, wanted) in [
            ("1..5", "1 2 3 4 5"),
            ("8..64..8", "8 16 24 32 40 48 56 64"),
            ("1..64..x2", "1 2 4 8 16 32 64"),
            ("1..50..x2", "1 2 4 8 16 32"),
            ("1,4..6,100", "1 4 5 6 100"),
            ("0.1..0.5..0.1", "0.1 0.2 0.3 0.4 0.5"),
            ("1..3ms", "1ms 2ms 3ms"),
            ("100us..400us..100us", "100us 200us 300us 400us"),
            ("-1..1", "-1 0 1"),
            ("3..3", "3"),
            // Not ranges of numbers.
            ("../x.bpf.c,a..b", "../x.bpf.c a..b"),
            ("\"0..3\"", "\"0..3\""),
            ("..,uniform(1..5)", ".. uniform(1..5)"),
        ] {
            assert_eq!(values(text).unwrap(), wanted, "{text}");
        }
        for wrong in [
            "5..1",
            "1..5..0",
            "0..8..x2",
            "1..8..x1",
            "1ms..5us",
            "1..1000000000",
            "1..9ms..1us",
            "1..",
            "..5",
            "1..100..xx",
            "0..1e30..1e-9",
            "1...5",
            "1..5..",
        ] {
            assert!(values(wrong).unwrap_err().contains("8..64..8"), "{wrong}");
        }
    }
}
