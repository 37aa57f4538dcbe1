// SPDX-License-Identifier: GPL-2.0-only
//! What was seen of a host, for the terminal.
mod doctor;
mod explain;
mod list;
pub mod top;

pub use doctor::doctor;
pub use explain::explain;
pub use list::list;

/// A cell of a table.
pub struct Cell {
    text: String,
    right: bool,
}

pub fn left(text: impl Into<String>) -> Cell {
    Cell {
        text: text.into(),
        right: false,
    }
}

pub fn right(text: impl Into<String>) -> Cell {
    Cell {
        text: text.into(),
        right: true,
    }
}

/// Columns as wide as their widest cell, two blanks apart; every row begins with its mark.
pub fn columns(rows: &[(char, Vec<Cell>)]) -> Vec<String> {
    let count = rows.iter().map(|r| r.1.len()).max().unwrap_or(0);
    let wide = |i: usize| {
        let cells = rows.iter().filter_map(|r| r.1.get(i));
        cells
            .map(|c| crate::text::width(&c.text))
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(wide).collect();
    rows.iter()
        .map(|(mark, cells)| {
            let cells: Vec<String> = cells
                .iter()
                .zip(&widths)
                .map(|(c, w)| match c.right {
                    true => crate::text::right(&c.text, *w),
                    false => crate::text::left(&c.text, *w),
                })
                .collect();
            format!("{mark} {}", cells.join("   "))
                .trim_end()
                .to_string()
        })
        .collect()
}

/// A name cut to so many columns.
pub fn shortened(name: &str, most: usize) -> String {
    if crate::text::width(name) <= most {
        return name.to_string();
    }
    let mut out = String::new();
    for c in name.chars() {
        if crate::text::width(&out) + 2 > most {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// `6.2 %`; `-` for what is not known.
pub fn share(value: Option<f64>) -> String {
    value.map_or("-".into(), |v| format!("{:.1} %", v * 100.0))
}

/// Sentences, folded at a width, indented by two blanks.
pub fn notes(notes: &[String], width: usize) -> String {
    let mut out = String::new();
    for note in notes {
        let mut line = String::from(" ");
        for word in note.split(' ') {
            if crate::text::width(&line) + 1 + crate::text::width(word) > width {
                out.push_str(&line);
                out.push('\n');
                line = String::from(" ");
            }
            line.push(' ');
            line.push_str(word);
        }
        out.push_str(&line);
        out.push('\n');
    }
    out
}
