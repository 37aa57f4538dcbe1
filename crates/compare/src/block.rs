// SPDX-License-Identifier: GPL-2.0-only
//! A generated part of a page that people write: between a line that begins it and one that ends it.

/// The page with `content` between the lines `<!-- begin NAME ... -->` and `<!-- end NAME -->`.
///
/// # Errors
/// The page does not have these two lines, once each and in this order.
pub fn replaced(page: &str, name: &str, content: &str) -> Result<String, String> {
    let missing = |what: &str| format!("no line `<!-- {what} {name} ... -->` in it");
    let begin = page
        .find(&format!("<!-- begin {name} "))
        .ok_or_else(|| missing("begin"))?;
    let line = page[begin..].find('\n').ok_or_else(|| missing("end"))?;
    let inside = begin + line + 1;
    let length = page[inside..]
        .find(&format!("<!-- end {name} -->"))
        .ok_or_else(|| missing("end"))?;
    Ok(format!(
        "{}\n{}\n\n{}",
        &page[..inside],
        content.trim_end(),
        &page[inside + length..]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "before\n<!-- begin score (make x) -->\nold\n<!-- end score -->\nafter\n";

    #[test]
    fn what_is_between_the_lines_is_replaced_and_nothing_else() {
        let once = replaced(PAGE, "score", "new\n").unwrap();
        assert_eq!(
            once,
            "before\n<!-- begin score (make x) -->\n\nnew\n\n<!-- end score -->\nafter\n"
        );
        assert_eq!(replaced(&once, "score", "new\n").unwrap(), once);
        assert!(replaced(PAGE, "other", "").unwrap_err().contains("begin"));
        assert!(
            replaced("<!-- begin a (x) -->\n", "a", "")
                .unwrap_err()
                .contains("end")
        );
    }
}
