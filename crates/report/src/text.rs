// SPDX-License-Identifier: GPL-2.0-only
//! Numbers and columns as a reader wants them.
use unicode_width::UnicodeWidthStr;

/// Columns a text takes on a terminal.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Fills with blanks on the right.
pub fn left(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(width(text))))
}

/// Fills with blanks on the left.
pub fn right(text: &str, columns: usize) -> String {
    format!("{}{text}", " ".repeat(columns.saturating_sub(width(text))))
}

/// A unit that a column of values is shown in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub name: &'static str,
    /// Base units per shown unit.
    pub factor: f64,
}

/// The unit of time in which the largest of `values` (nanoseconds) is at least 1.
pub fn time_scale(values: impl IntoIterator<Item = f64>) -> Scale {
    let largest = values
        .into_iter()
        .filter(|v| v.is_finite())
        .fold(0.0, f64::max);
    let scales = [("s", 1e9), ("ms", 1e6), ("us", 1e3)];
    let found = scales.iter().find(|(_, factor)| largest >= *factor);
    let (name, factor) = found.copied().unwrap_or(("ns", 1.0));
    Scale { name, factor }
}

/// Decimals that leave about three significant digits.
pub fn decimals(value: f64) -> usize {
    match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 || v == 0.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    }
}

/// A number with three significant digits and groups of thousands: `1 240`, `14.1`, `0.62`.
pub fn number(value: f64) -> String {
    fixed(value, decimals(value))
}

/// A number with so many decimals and groups of thousands.
pub fn fixed(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |d| ("-", d));
    let mut grouped = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            grouped.push(' ');
        }
        grouped.push(c);
    }
    // Four digits read well without a gap in tables, but a column should be uniform: always grouped.
    format!("{sign}{grouped}{rest}")
}

/// A number with at most so many significant digits, without needless zeros, as C's `%g` writes it: `16.24`, `2.6e-05`.
pub fn significant(value: f64, digits: usize) -> String {
    let digits = digits.max(1);
    if value == 0.0 || !value.is_finite() {
        return format!("{}", value + 0.0);
    }
    // Rounded first: 9.996 with three digits is 10.
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{value:.decimals$}"))
}

/// A duration in its best unit: `12.5 ms`.
pub fn duration(ns: f64) -> String {
    let scale = time_scale([ns.abs()]);
    format!("{} {}", number(ns / scale.factor), scale.name)
}

/// A duration as a scenario has it, without needless digits: `10 s`.
pub fn plain_duration(ns: u64) -> String {
    let scale = time_scale([ns as f64]);
    format!("{} {}", ns as f64 / scale.factor, scale.name)
}

/// A value of a metric with its unit (`ns`, `CPU`, `1/s`, `1`).
pub fn value(value: f64, unit: &str) -> String {
    match unit {
        "ns" => duration(value),
        "1/s" => format!("{} /s", number(value)),
        "CPU" => format!("{} CPUs", number(value)),
        "bit/s" => format!("{} Mbit/s", number(value / 1e6)),
        _ => number(value),
    }
}

/// The same with the half of its interval, in one unit: `12.0 ± 0.3 ms`.
pub fn with_half(mean: f64, half: f64, unit: &str) -> (String, String) {
    let (scale, name) = match unit {
        "ns" => {
            let scale = time_scale([mean.abs(), half]);
            (scale.factor, scale.name)
        }
        "1/s" => (1.0, "/s"),
        "CPU" => (1.0, "CPUs"),
        "bit/s" => (1e6, "Mbit/s"),
        _ => (1.0, ""),
    };
    let digits = decimals(mean / scale).min(3);
    let half = match half {
        0.0 => "0".to_string(),
        half => fixed(half / scale, digits),
    };
    let half = format!("{half} {name}").trim_end().to_string();
    (fixed(mean / scale, digits), half)
}

/// So many of something: `1 CPU`, `2 CPUs`.
pub fn count(n: u32, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(number(14.13), "14.1");
        assert_eq!(number(0.6234), "0.623");
        assert_eq!(number(0.0), "0.00");
        assert_eq!(number(1240.4), "1 240");
        assert_eq!(number(-1234567.0), "-1 234 567");
        assert_eq!(number(999.9), "1 000");
        assert_eq!(duration(14.1e6), "14.1 ms");
        assert_eq!(duration(820.0), "820 ns");
        assert_eq!(plain_duration(10_000_000_000), "10 s");
        assert_eq!(plain_duration(1_500_000), "1.5 ms");
        assert_eq!(value(1.5, "CPU"), "1.50 CPUs");
        let both = |mean, half, unit| {
            let (mean, half) = with_half(mean, half, unit);
            format!("{mean} ± {half}")
        };
        assert_eq!(both(12.04e6, 0.31e6, "ns"), "12.0 ± 0.3 ms");
        assert_eq!(both(12.04e6, 0.0, "ns"), "12.0 ± 0 ms");
        assert_eq!(both(2.0e6, 900.0, "ns"), "2.00 ± 0.00 ms");
        assert_eq!(both(1.5, 0.25, "CPU"), "1.50 ± 0.25 CPUs");
        assert_eq!(
            (count(1, "CPU"), count(2, "VM")),
            ("1 CPU".into(), "2 VMs".into())
        );
    }

    #[test]
    fn significant_digits_as_c_writes_them() {
        for (value, digits, text) in [
            (16.2449, 4, "16.24"),
            (0.000_026_4, 2, "2.6e-05"),
            (0.000_264, 2, "0.00026"),
            (21.4, 2, "21"),
            (9.996, 3, "10"),
            (99.95, 2, "1e+02"),
            (12345.0, 4, "1.234e+04"),
            (-0.5, 4, "-0.5"),
            (1.0, 4, "1"),
            (0.0, 4, "0"),
            (100.0, 3, "100"),
        ] {
            assert_eq!(significant(value, digits), text, "{value} with {digits}");
        }
    }

    #[test]
    fn widths() {
        assert_eq!(left("µs", 4), "µs  ");
        assert_eq!(right("±", 3), "  ±");
        assert_eq!(left("long", 2), "long");
    }
}
