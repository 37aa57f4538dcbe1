// SPDX-License-Identifier: GPL-2.0-only
//! Who waited for whom: VM by VM, per arm.
use super::escape::{csv_row, escape};
use super::figure::Figure;
use berth_results::detail::{COSTS, FROZEN, HOST, IDLE, OTHERS};
use berth_results::experiment::Experiment;
use std::collections::BTreeMap;

/// More VMs than this are shown by group.
const VMS: usize = 14;

/// With more columns than this a narrow page has the rows as lists of causes, without those that are nothing.
const NARROW: usize = 6;

/// Waiting of an arm: mean over its runs, ns per second of the measured window.
pub type Table = BTreeMap<(String, String), f64>;

/// Rows and columns of an arm, VMs put together as `name_of` says.
pub fn table(e: &Experiment, arm: &str, name_of: &dyn Fn(&str) -> String) -> Table {
    let runs: Vec<_> = e.runs.iter().filter(|r| r.arm == arm).collect();
    let seconds = e.setup.measure_ns.max(1) as f64 / 1e9 * runs.len().max(1) as f64;
    let mut table = Table::new();
    for wait in runs.iter().flat_map(|r| &r.waits) {
        let at = (name_of(&wait.waiter), name_of(&wait.cause));
        *table.entry(at).or_default() += wait.ns as f64 / seconds;
    }
    table
}

/// The same with every VM by itself.
pub fn table_of_waits(e: &Experiment, arm: &str) -> Table {
    table(e, arm, &str::to_string)
}

/// The group of a VM (`web-2` is of `web`); what is no VM stays itself.
pub fn group_of(e: &Experiment, name: &str) -> String {
    let of = |g: &&berth_results::experiment::Group| {
        let rest = name.strip_prefix(g.name.as_str());
        rest.is_some_and(|r| {
            r.is_empty()
                || r.strip_prefix('-')
                    .is_some_and(|n| n.parse::<u32>().is_ok_and(|n| n <= g.vms))
        })
    };
    let found = e.setup.groups.iter().find(of);
    found.map_or(name.into(), |g| g.name.clone())
}

/// Names in the order of the scenario: VMs or groups, the host, then what is nobody.
fn order(e: &Experiment, names: impl Iterator<Item = String>) -> Vec<String> {
    let rank = |name: &str| {
        let special = [OTHERS, HOST, IDLE, COSTS, FROZEN]
            .iter()
            .position(|s| *s == name);
        let group = group_of(e, name);
        let group = e.setup.groups.iter().position(|g| g.name == group);
        let number = name.rsplit('-').next().and_then(|n| n.parse::<u32>().ok());
        (
            special.map_or(0, |s| s + 1),
            group,
            number,
            name.to_string(),
        )
    };
    let mut all: Vec<String> = names.collect();
    all.sort_by_key(|n| rank(n));
    all.dedup();
    all
}

/// The figure of all arms, in the same colours.
pub fn figure(e: &Experiment) -> Option<Figure> {
    let arms: Vec<&str> = e
        .arms
        .iter()
        .map(|a| a.name.as_str())
        .filter(|a| e.runs.iter().any(|r| r.arm == *a && !r.waits.is_empty()))
        .collect();
    if arms.is_empty() {
        return None;
    }
    let vms: u32 = e.setup.groups.iter().map(|g| g.vms).sum();
    let by_group = vms as usize > VMS;
    let name_of = |name: &str| {
        if by_group {
            group_of(e, name)
        } else {
            name.to_string()
        }
    };
    let tables: Vec<Table> = arms.iter().map(|a| table(e, a, &name_of)).collect();
    let every = || tables.iter().flat_map(BTreeMap::keys);
    let waiters = order(e, every().map(|(w, _)| w.clone()));
    let causes = order(e, every().map(|(_, c)| c.clone()));
    let largest = tables
        .iter()
        .flat_map(BTreeMap::values)
        .fold(0.0, |a: f64, b| a.max(*b));
    let mut csv = csv_row(&["arm", "waiter", "cause", "ns_per_s"]);
    let mut body = String::new();
    for (arm, table) in arms.iter().zip(&tables) {
        body.push_str(&one(arm, table, &waiters, &causes, largest));
        for ((waiter, cause), ns) in table {
            csv.push_str(&csv_row(&[
                (*arm).to_string(),
                waiter.clone(),
                cause.clone(),
                format!("{ns:.0}"),
            ]));
        }
    }
    let unit = if by_group { "VM groups" } else { "VMs" };
    Some(Figure {
        title: "Who waited for whom".into(),
        caption: format!(
            "{unit} down wanted a CPU while what stands across had it: milliseconds of waiting per second, all threads \
             and seeds; rows add up to the run delay. {IDLE}: the CPU was free, the wake-up on its way. {COSTS}: it \
             was changing threads. {FROZEN}: the VM was frozen, which is no run delay. Darker is more, the \
             same scale for all arms; dashed: who waited for others of its own."
        ),
        body: format!("<div class=\"matrices\">{body}</div>"),
        csv,
    })
}

fn one(arm: &str, table: &Table, waiters: &[String], causes: &[String], largest: f64) -> String {
    let head: String = causes
        .iter()
        .map(|c| format!("<th scope=\"col\"><span>{}</span></th>", escape(c)))
        .collect();
    let mut rows = String::new();
    for waiter in waiters {
        let mut sum = 0.0;
        let mut cells = String::new();
        for cause in causes {
            let ns = table
                .get(&(waiter.clone(), cause.clone()))
                .copied()
                .unwrap_or(0.0);
            sum += ns;
            // Square root: small causes stay visible.
            let heat = if largest > 0.0 {
                (ns / largest).sqrt() * 100.0
            } else {
                0.0
            };
            let text = if ns == 0.0 { "·".into() } else { ms(ns) };
            let own = if waiter == cause { " own" } else { "" };
            let dark = if heat > 62.0 { " dark" } else { "" };
            let none = if ns == 0.0 { " none" } else { "" };
            let named = escape(cause);
            cells.push_str(&format!(
                "<td class=\"heat{own}{dark}{none}\" style=\"--h:{heat:.0}%\" data-of=\"{named}\" title=\"{} waited {} \
                 ms/s while {named} had the CPU\">{text}</td>",
                escape(waiter),
                ms(ns),
            ));
        }
        rows.push_str(&format!(
            "<tr><th scope=\"row\">{}</th>{cells}<td class=\"sum\" data-of=\"all\">{}</td></tr>",
            escape(waiter),
            ms(sum)
        ));
    }
    let many = if causes.len() > NARROW { " many" } else { "" };
    format!(
        "<div class=\"matrix{many}\"><h4>{}</h4><div class=\"scroll\"><table><thead><tr><th></th>{head}<th \
         scope=\"col\"><span>all</span></th></tr></thead><tbody>{rows}</tbody></table></div></div>",
        escape(arm)
    )
}

/// Milliseconds, three digits.
fn ms(ns: f64) -> String {
    let v = ns / 1e6;
    match v {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v if v >= 0.0095 => format!("{v:.2}"),
        v if v > 0.0 => "&lt;0.01".into(),
        _ => "0".into(),
    }
}
