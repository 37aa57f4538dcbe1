// SPDX-License-Identifier: GPL-2.0-only
//! The optimiser's settings, as an operator writes them: `reserve=0.1`, `by=sets,weights`.
use berth_optimiser::{Means, Settings, Spread};
use std::collections::BTreeMap;

/// What may be set, and what it is.
pub const NAMES: [(&str, &str); 10] = [
    (
        "by",
        "by what it may act: sets, weights, caps, freezing, separated by commas; it freezes only without caps \
         [default: sets,weights,caps]",
    ),
    (
        "reserve",
        "part of the CPUs kept for what is no VM, in planning only [default: 0.05]",
    ),
    (
        "host_weight",
        "weight of what is no VM, beyond the reserve [default: 100]",
    ),
    (
        "alpha",
        "weight of the newest sample in the average of demand [default: 0.3]",
    ),
    (
        "step",
        "a change of demand by a larger part is followed at once [default: 0.2]",
    ),
    (
        "hysteresis",
        "weights and caps change by a larger part [default: 0.05]",
    ),
    (
        "imbalance",
        "part of the mean load by which a CPU may be above others before a VM leaves it [default: 0.1]",
    ),
    (
        "dedicate_from",
        "a target gets CPUs of its own when it wants this part of them [default: 0.5]",
    ),
    (
        "dedicate_until",
        "and loses them when it wants less than this part [default: 0.2]",
    ),
    (
        "spread",
        "in want: cpus (each VM to a few) or pool (all to all that are nobody's own) [default: cpus]",
    ),
];

/// # Errors
/// The first that is wrong: what it is, and what it may be.
pub fn settings(set: &BTreeMap<String, String>) -> Result<Settings, String> {
    let mut settings = Settings::default();
    for (name, text) in set {
        let part = || {
            text.parse::<f64>()
                .map_err(|_| format!("{name}={text}: a number, such as 0.1"))
        };
        match name.as_str() {
            "by" => settings.means = means(text)?,
            "reserve" => settings.reserve = part()?,
            "host_weight" => {
                settings.host_weight = text
                    .parse()
                    .map_err(|_| format!("{name}={text}: 1 to 10000"))?;
            }
            "alpha" => settings.alpha = part()?,
            "step" => settings.step = part()?,
            "hysteresis" => settings.hysteresis = part()?,
            "imbalance" => settings.imbalance = part()?,
            "dedicate_from" => settings.dedicate_from = part()?,
            "dedicate_until" => settings.dedicate_until = part()?,
            "spread" => {
                settings.spread = Spread::of(text).ok_or(format!("{name}={text}: cpus or pool"))?
            }
            _ => {
                let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
                return Err(format!(
                    "the optimiser has no parameter {name:?}; it has {}",
                    names.join(", ")
                ));
            }
        }
    }
    settings.check().map_err(|e| e.to_string())?;
    Ok(settings)
}

fn means(text: &str) -> Result<Means, String> {
    let mut means = Means {
        sets: false,
        weights: false,
        caps: false,
        freezing: false,
    };
    for word in text.split(',').map(str::trim) {
        match word {
            "sets" => means.sets = true,
            "weights" => means.weights = true,
            "caps" => means.caps = true,
            "freezing" => means.freezing = true,
            _ => {
                return Err(format!(
                    "by={text}: sets, weights, caps, freezing, separated by commas"
                ));
            }
        }
    }
    Ok(means)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(&str, &str)]) -> Result<Settings, String> {
        settings(
            &set.iter()
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
        )
    }

    #[test]
    fn every_name_is_one() {
        assert_eq!(of(&[]).unwrap(), Settings::default());
        let all = of(&[
            ("by", "sets, caps"),
            ("reserve", "0.2"),
            ("spread", "pool"),
            ("host_weight", "7"),
        ])
        .unwrap();
        assert!(all.means.sets && all.means.caps && !all.means.weights);
        assert_eq!(
            (all.reserve, all.spread, all.host_weight),
            (0.2, Spread::Pool, 7)
        );
        for (name, _) in NAMES {
            let error = of(&[(name, "?")]).unwrap_err();
            assert!(
                error.contains(name) && !error.contains("has no parameter"),
                "{error}"
            );
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(of(&[("reserv", "1")]).unwrap_err().contains("reserve"));
        assert!(of(&[("reserve", "2")]).unwrap_err().contains("reserve"));
        assert!(of(&[("reserve", "NaN")]).is_err());
        assert!(of(&[("by", "sets,freezing")]).unwrap().means.freezing);
        assert!(!of(&[]).unwrap().means.freezing, "only if it is asked for");
        assert!(of(&[("by", "")]).is_err());
    }
}
