// SPDX-License-Identifier: GPL-2.0-only
//! `berth scenario help WORD`: the reference, from the same tables that reading uses.
use crate::diag::nearest;
use crate::keys::{Default, KINDS, Kind};
use crate::metrics;
use crate::phrase::{DISTRIBUTIONS, SENDS, STEPS};

const PHRASES: [&str; 5] = ["steps", "durations", "sends", "metrics", "units"];

/// All words that have a page.
pub fn topics() -> Vec<&'static str> {
    KINDS.iter().map(|k| k.help).chain(PHRASES).collect()
}

/// The page of a word.
///
/// # Errors
/// No such word: a sentence with the nearest, and all of them.
pub fn page(word: &str) -> Result<String, String> {
    if let Some(kind) = KINDS.iter().find(|k| k.help == word) {
        return Ok(kind_page(kind));
    }
    let three = |intro: &str, list: &[(&str, &str, &str)]| {
        let rows = list
            .iter()
            .map(|(_, like, says)| format!("  {like:<34} {says}\n"));
        format!("{intro}\n\n{}", rows.collect::<String>())
    };
    match word {
        "steps" => Ok(three(
            "Steps of a task's loop. D is a duration (berth scenario help durations).",
            &STEPS,
        )),
        "durations" => Ok(three(
            "A duration: fixed, or drawn anew each time.",
            &DISTRIBUTIONS,
        )),
        "sends" => Ok(three(
            "When a client sends, to each VM of its group.",
            &SENDS,
        )),
        "metrics" => Ok(metrics_page()),
        "units" => Ok(UNITS.to_string()),
        _ => {
            let topics = topics();
            let near = nearest(word, topics.iter().copied())
                .map_or(String::new(), |n| format!("; did you mean `{n}`?"));
            Err(format!(
                "there is no help on `{}`{near}\n  There is help on: {}",
                word.escape_debug(),
                topics.join(", ")
            ))
        }
    }
}

const UNITS: &str = "A quantity is a string with a unit; a count is a bare number.

  time        ns us ms s min h           \"300us\"
  size        B KiB MiB GiB kB MB GB     \"8KiB\"
  rate        /s /min /ms                \"400/s\"
  share       %                          \"50%\"
  processors  CPUs                       \"1.5 CPUs\"
";

fn kind_page(kind: &Kind) -> String {
    let mut out = String::new();
    if !kind.header.is_empty() {
        out.push_str(&format!("{}\n", kind.header));
    }
    out.push_str(&format!("{}\n\n", kind.says));
    for key in kind.keys {
        let default = match key.default {
            Default::Is(text) => format!("default {text}"),
            Default::Said(text) => format!("default: {text}"),
            Default::Required => "required".into(),
            Default::Later(_) => continue,
        };
        out.push_str(&format!(
            "  {:<15} {:<26} {}\n  {:15} {:26} {}\n",
            key.name, key.takes, key.says, "", "", default
        ));
    }
    let later: Vec<_> = kind
        .keys
        .iter()
        .filter(|k| matches!(k.default, Default::Later(_)))
        .map(|k| k.name)
        .collect();
    if !later.is_empty() {
        out.push_str(&format!("\n  For later releases: {}\n", later.join(", ")));
    }
    out
}

fn metrics_page() -> String {
    let mut out = String::from(
        "A metric is OBJECT.QUANTITY[.STAT]; the object is a VM group, a VM, or host.\n\n",
    );
    for (name, stats, unit, says) in metrics::QUANTITIES {
        let name = if stats.is_empty() {
            name.to_string()
        } else {
            format!("{name}.{{{}}}", stats.join(","))
        };
        out.push_str(&format!("  {name:<50} {unit:<4} {says}\n"));
    }
    for (name, says) in metrics::OF_POLICY {
        out.push_str(&format!(
            "  {:<50} {:<4} {says}\n",
            format!("policy.{name}"),
            "1"
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_has_a_page_that_fits() {
        for topic in topics() {
            let page = page(topic).unwrap();
            assert!(page.len() > 40, "{topic}: {page}");
            for line in page.lines() {
                assert!(line.chars().count() <= 120, "{topic}: {line}");
            }
        }
        assert!(page("vms").unwrap_err().contains("did you mean `vm`?"));
    }
}
