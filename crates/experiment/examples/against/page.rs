// SPDX-License-Identifier: GPL-2.0-only
//! The tables' place in a page.
use std::collections::HashMap;

const BEGIN: &str = "<!-- begin against -->\n";
const END: &str = "<!-- end against -->";

/// The page with these tables in place of those it has.
pub fn with_tables(page: &str, text: &str) -> Result<String, String> {
    let (head, _, tail) = parts(page)?;
    Ok(format!("{head}{BEGIN}\n{text}\n{END}{tail}"))
}

/// The page with these tables' rows in place of those of the same names. An error where there is no such row, or where
/// a table is of another number of hosts.
pub fn with_rows(page: &str, text: &str) -> Result<String, String> {
    let (head, tables, tail) = parts(page)?;
    let named = |(place, line)| Some((place?, line));
    let mut rows: HashMap<Place, &str> = places(text).filter_map(named).collect();
    let tables: Vec<&str> = places(tables)
        .map(|(place, line)| place.and_then(|place| rows.remove(&place)).unwrap_or(line))
        .collect();
    match rows.into_values().next() {
        Some(row) => Err(format!("the page's tables have no row in place of {row:?}")),
        None => Ok(format!("{head}{BEGIN}{}\n{END}{tail}", tables.join("\n"))),
    }
}

/// What is before the tables, they, and what is behind them.
fn parts(page: &str) -> Result<(&str, &str, &str), String> {
    let parts = page
        .split_once(BEGIN)
        .and_then(|(head, rest)| Some((head, rest.split_once(END)?)));
    let (head, (tables, tail)) = parts.ok_or("no place for the tables")?;
    Ok((head, tables, tail))
}

/// Where a row stands.
#[derive(PartialEq, Eq, Hash)]
struct Place<'a> {
    /// What is said above the table.
    title: &'a str,
    /// The first column's.
    header: &'a str,
    /// What the row begins with: a name, or of how many hosts the table is.
    name: &'a str,
}

/// All lines, and which rows they are; none: no row.
fn places(text: &str) -> impl Iterator<Item = (Option<Place<'_>>, &str)> {
    let (mut title, mut header) = ("", "");
    text.lines().map(move |line| {
        let cell = line
            .strip_prefix("| ")
            .and_then(|rest| rest.split_once(" |"));
        let mut row = None;
        match cell {
            Some((first, _)) if header.is_empty() => header = first,
            Some((name, _)) => {
                row = Some(Place {
                    title,
                    header,
                    name,
                })
            }
            None if line.starts_with("Of ") => {
                row = Some(Place {
                    title,
                    header,
                    name: line,
                });
                header = "";
            }
            None if line.ends_with(':') => title = line,
            None => {}
        }
        (row, line)
    })
}
