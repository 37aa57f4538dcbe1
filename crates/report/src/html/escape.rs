// SPDX-License-Identifier: GPL-2.0-only
//! Text that came from outside, made harmless for a page.

/// For text and for attributes in double quotes. Control characters become spaces.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push(' '),
            // Marks that change the direction of what follows could disguise text.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// One row of CSV.
pub fn csv_row<S: AsRef<str>>(cells: &[S]) -> String {
    let cell = |c: &S| {
        let c = c.as_ref();
        if c.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", c.replace('"', "\"\""))
        } else {
            c.to_string()
        }
    };
    let mut row = cells.iter().map(cell).collect::<Vec<_>>().join(",");
    row.push('\n');
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_through() {
        assert_eq!(
            escape("<script>a && \"b\" 'c'\u{0}\u{202e}"),
            "&lt;script&gt;a &amp;&amp; &quot;b&quot; &#39;c&#39;  "
        );
        assert_eq!(csv_row(&["a", "b,c", "d\"e"]), "a,\"b,c\",\"d\"\"e\"\n");
    }
}
