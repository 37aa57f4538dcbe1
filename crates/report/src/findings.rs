// SPDX-License-Identifier: GPL-2.0-only
//! What a paper reports beside what came out here, as text.
use crate::Style;
use crate::text::{number, value};
use berth_results::findings::{Claim, Finding};
use berth_results::schema::unit_of;

/// Two lines for each claim; empty if there are none.
pub fn findings(findings: &[Finding], style: &Style) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let mut out = format!("  {}\n", style.bold("The paper's claims"));
    for finding in findings {
        let claim = &finding.claim;
        out.push_str(&format!(
            "  {}  {} ({})\n",
            claim.id, claim.says, claim.source
        ));
        let mut parts = vec![format!("paper {}", paper(claim))];
        parts.extend(ours(finding).map(|ours| format!("ours {ours}")));
        let range = claim.accept.map_or(String::new(), |(low, high)| {
            format!("{} to {}", shown(claim, low), shown(claim, high))
        });
        parts.push(match (finding.holds, &finding.why) {
            (Some(true), _) => format!("{} within {range}", style.green("found:")),
            (Some(false), _) => format!("{} outside {range}", style.red("not found:")),
            (None, Some(why)) => why.clone(),
            (None, None) => String::new(),
        });
        out.push_str(&format!("      {}\n", parts.join(" · ")));
    }
    out
}

/// A value of a claim, in its unit; comparisons and shares in per cent. What a policy is counted by is no share.
fn shown(claim: &Claim, x: f64) -> String {
    match (claim.comparison, unit_of(&claim.metric)) {
        (None, "1") if claim.metric.starts_with("policy.") => number(x),
        (Some(_), _) | (None, "1") => format!("{} %", number(x * 100.0)),
        (None, unit) => value(x, unit),
    }
}

/// The paper's value; `-` where it has only words.
pub fn paper(claim: &Claim) -> String {
    claim.value.map_or("-".into(), |x| shown(claim, x))
}

/// What came out, without its interval; none if nothing was measured.
pub fn ours_alone(finding: &Finding) -> Option<String> {
    finding.ours.map(|x| shown(&finding.claim, x))
}

/// What came out with its interval; none if nothing was measured.
pub fn ours(finding: &Finding) -> Option<String> {
    let ours = ours_alone(finding)?;
    let shown = |x| shown(&finding.claim, x);
    let interval = finding.interval.map_or(String::new(), |(low, high)| {
        format!(" ({} to {})", shown(low), shown(high))
    });
    Some(format!("{ours}{interval}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_results::findings::Comparison;

    #[test]
    fn a_claim_and_what_came_out() {
        let claim = Claim {
            id: "F-1".into(),
            says: "FLMS is shorter".into(),
            source: "Table 1".into(),
            metric: "lsvm.response.mean".into(),
            arm: Some("flms".into()),
            against: Some("credit".into()),
            comparison: Some(Comparison::Reduction),
            value: Some(0.766),
            accept: Some((0.5, 0.95)),
            fitted: false,
            needs: None,
        };
        let mut finding = Finding {
            claim,
            ours: Some(0.4),
            interval: Some((0.35, 0.45)),
            holds: Some(false),
            why: None,
        };
        let style = Style {
            colour: false,
            width: 100,
        };
        assert_eq!(
            findings(&[finding.clone()], &style),
            "  The paper's claims\n  F-1  FLMS is shorter (Table 1)\n      paper 76.6 % · ours 40.0 % (35.0 % to 45.0 \
             %) · not found: outside 50.0 % to 95.0 %\n"
        );
        finding.claim.comparison = None;
        finding.claim.value = Some(16_853_000.0);
        finding.ours = None;
        finding.holds = None;
        finding.why = Some("arm credit was not run".into());
        assert!(findings(&[finding], &style).contains("paper 16.9 ms · arm credit was not run"));
        assert_eq!(findings(&[], &style), "");
    }
}
