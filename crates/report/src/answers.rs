// SPDX-License-Identifier: GPL-2.0-only
//! Offered and answered requests, beside every percentile of response times: who hardly answers looks fast.
use crate::table::leading_metric;
use crate::text::fixed;
use berth_results::experiment::Experiment;
use berth_results::requests::Requests;

/// The requests behind a percentile of response times of a metric such as `web.response.p99`.
pub fn behind(e: &Experiment, arm: &str, metric: &str) -> Option<Requests> {
    let (group, quantity) = metric.split_once(".response.")?;
    let percentile = !matches!(quantity, "count" | "offered" | "lost");
    e.requests(arm, group).filter(|_| percentile)
}

/// `1180/1200`: answered, and due in the measured time; all runs together.
pub fn cell(r: Requests) -> String {
    format!("{:.0}/{:.0}", r.answered, r.offered)
}

/// Who certainly waits least by this metric. Nobody, if they leave requests unanswered: then there is nothing to
/// praise.
pub fn best<'a>(e: &'a Experiment, metric: &str) -> Option<&'a str> {
    let best = e.lowest(metric)?;
    let few = behind(e, best, metric).is_some_and(Requests::too_few);
    (!few).then_some(best)
}

/// If the arm answers less than 99 % of the requests by whose times arms are judged: how few.
pub fn warning(e: &Experiment, arm: &str) -> Option<String> {
    let metric = leading_metric(e)?;
    let group = metric.split('.').next().unwrap_or("");
    let r = behind(e, arm, &metric).filter(|r| r.too_few())?;
    Some(format!(
        "answers only {} % of {group}'s requests ({:.0} of {:.0})",
        fixed(r.share() * 100.0, 1),
        r.answered,
        r.offered
    ))
}
