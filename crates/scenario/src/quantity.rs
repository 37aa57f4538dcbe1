// SPDX-License-Identifier: GPL-2.0-only
//! Quantities with units: `300us`, `2MiB`, `400/s`, `10Gbit/s`, `50%`, `1.5 CPUs`.
//!
//! A unit is never guessed: a number without one is an error that shows what was probably meant.
use crate::model::Nanos;

/// Nanoseconds per unit of time, from short to long.
const TIME: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("min", 60e9),
    ("h", 3600e9),
];

/// No time in a scenario is longer: sums of them then stay far from overflow.
pub const LONGEST_NS: Nanos = 100 * 24 * 3600 * 1_000_000_000;

/// No message is larger.
pub const LARGEST_BYTES: u64 = 1 << 40;

/// Splits `1.5 CPUs` into the number and the unit. No sign, no exponent: nobody writes those in a scenario.
fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.is_empty() {
        if text.starts_with('-') {
            return Err(format!("`{text}` is negative"));
        }
        return Err(format!("`{text}` does not start with a number"));
    }
    let value: f64 = number
        .parse()
        .map_err(|_| format!("`{number}` is not a number"))?;
    Ok((value, unit.trim()))
}

fn in_nanos(text: &str) -> Result<f64, String> {
    let (value, unit) = split(text)?;
    if unit.is_empty() {
        return Err(format!(
            "`{}` has no unit: write {}us, {}ms or {}s",
            text.trim(),
            value,
            value,
            value
        ));
    }
    let Some((_, scale)) = TIME.iter().find(|(name, _)| *name == unit) else {
        return Err(format!(
            "`{unit}` is not a unit of time; there are ns, us, ms, s, min, h"
        ));
    };
    let ns = value * scale;
    if ns > LONGEST_NS as f64 {
        return Err(format!("`{}` is longer than 100 days", text.trim()));
    }
    Ok(ns)
}

/// A duration in whole nanoseconds, e.g. `300us`, `1.5s`.
///
/// # Errors
/// No unit, an unknown one, a negative number, more than 100 days.
pub fn duration(text: &str) -> Result<Nanos, String> {
    Ok(in_nanos(text)?.round() as Nanos)
}

/// A size in bytes, e.g. `64B`, `8KiB`, `1.5MB`.
///
/// # Errors
/// No unit, an unknown one, more than 1 TiB.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (value, unit) = split(text)?;
    let scale = match unit {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        "kB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "" => {
            return Err(format!(
                "`{}` has no unit: write {value}B or {value}KiB",
                text.trim()
            ));
        }
        _ => {
            return Err(format!(
                "`{unit}` is not a unit of size; there are B, KiB, MiB, GiB, kB, MB, GB"
            ));
        }
    };
    let bytes = (value * scale).round();
    if bytes > LARGEST_BYTES as f64 {
        return Err(format!("`{}` is larger than 1024GiB", text.trim()));
    }
    Ok(bytes as u64)
}

/// A rate in events per second, e.g. `400/s`, `10/ms`, `30/min`. Greater than zero.
///
/// # Errors
/// No `/` and unit of time, an unknown one, zero, above 10^9 a second.
pub fn per_second(text: &str) -> Result<f64, String> {
    let Some((count, unit)) = text.split_once('/') else {
        return Err(format!(
            "`{}` is not a rate: write for instance {}/s",
            text.trim(),
            text.trim()
        ));
    };
    let (value, rest) = split(count)?;
    if !rest.is_empty() {
        return Err(format!(
            "`{rest}` does not belong in a rate: write for instance {value}/s"
        ));
    }
    let unit = unit.trim();
    let Some((_, scale)) = TIME.iter().find(|(name, _)| *name == unit) else {
        return Err(format!(
            "`{unit}` is not a unit of time; a rate is for instance {value}/s"
        ));
    };
    let rate = value * 1e9 / scale;
    if rate <= 0.0 {
        return Err("a rate of zero sends nothing".into());
    }
    if !(1e-9..=1e9).contains(&rate) {
        return Err(format!("`{}` is outside 1e-9/s to 1e9/s", text.trim()));
    }
    Ok(rate)
}

/// A bandwidth in bits per second, e.g. `10Gbit/s`, `125MB/s`.
///
/// # Errors
/// Not one of bit/s, kbit/s, Mbit/s, Gbit/s, B/s, kB/s, MB/s, GB/s; zero.
pub fn bits_per_second(text: &str) -> Result<u64, String> {
    let (value, unit) = split(text)?;
    let scale = match unit {
        "bit/s" => 1.0,
        "kbit/s" => 1e3,
        "Mbit/s" => 1e6,
        "Gbit/s" => 1e9,
        "B/s" => 8.0,
        "kB/s" => 8e3,
        "MB/s" => 8e6,
        "GB/s" => 8e9,
        "" => {
            return Err(format!(
                "`{}` has no unit: write for instance {value}Gbit/s",
                text.trim()
            ));
        }
        _ => {
            return Err(format!(
                "`{unit}` is not a bandwidth; write for instance {value}Gbit/s or {value}MB/s"
            ));
        }
    };
    let bits = (value * scale).round();
    if !(1.0..=1e15).contains(&bits) {
        return Err(format!("`{}` is outside 1bit/s to 1e6Gbit/s", text.trim()));
    }
    Ok(bits as u64)
}

/// A frequency in kHz, e.g. `1.4GHz`, `800MHz`.
///
/// # Errors
/// Not one of kHz, MHz, GHz; outside 1 MHz to 100 GHz.
pub fn kilohertz(text: &str) -> Result<u32, String> {
    let (value, unit) = split(text)?;
    let scale = match unit {
        "kHz" => 1.0,
        "MHz" => 1e3,
        "GHz" => 1e6,
        "" => {
            return Err(format!(
                "`{}` has no unit: write {value}MHz or {value}GHz",
                text.trim()
            ));
        }
        _ => {
            return Err(format!(
                "`{unit}` is not a unit of frequency; there are kHz, MHz, GHz"
            ));
        }
    };
    let khz = (value * scale).round();
    if !(1e3..=1e8).contains(&khz) {
        return Err(format!("`{}` is outside 1MHz to 100GHz", text.trim()));
    }
    Ok(khz as u32)
}

/// A percentage in parts per million, e.g. `50%` -> 500000.
///
/// # Errors
/// No `%`, more than 100 000 %.
pub fn percent_ppm(text: &str) -> Result<u32, String> {
    let (value, unit) = split(text)?;
    if unit != "%" {
        return Err(format!(
            "`{}` is not a percentage: write for instance 50%",
            text.trim()
        ));
    }
    let ppm = (value * 1e4).round();
    if ppm > 1e9 {
        return Err(format!("`{}` is more than 100000%", text.trim()));
    }
    Ok(ppm as u32)
}

/// An amount of CPUs in thousandths, e.g. `1.5 CPUs` -> 1500.
///
/// # Errors
/// The word CPU or CPUs is missing; more than 4096.
pub fn milli_cpus(text: &str) -> Result<u64, String> {
    let (value, unit) = split(text)?;
    if !matches!(unit, "CPU" | "CPUs") {
        return Err(format!(
            "`{}` is not an amount of CPUs: write for instance 1.5 CPUs",
            text.trim()
        ));
    }
    let milli = (value * 1e3).round();
    if milli > 4_096_000.0 {
        return Err(format!("`{}` is more than 4096 CPUs", text.trim()));
    }
    Ok(milli as u64)
}

/// A bare number such as a distribution's shape: greater than zero, at most a million.
///
/// # Errors
/// A unit behind it, or outside that range.
pub fn plain(text: &str) -> Result<f64, String> {
    let (value, unit) = split(text)?;
    if !unit.is_empty() {
        return Err(format!("`{}` should be a bare number", text.trim()));
    }
    if !(value > 0.0 && value <= 1e6) {
        return Err(format!(
            "`{}` should be greater than 0 and at most 1000000",
            text.trim()
        ));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration("300us"), Ok(300_000));
        assert_eq!(duration("1.5 s"), Ok(1_500_000_000));
        assert_eq!(duration("2min"), Ok(120_000_000_000));
        assert_eq!(duration("3µs"), Ok(3_000));
        assert_eq!(duration("0s"), Ok(0));
        assert!(duration("300").unwrap_err().contains("has no unit"));
        assert!(duration("300 parsecs").unwrap_err().contains("`parsecs`"));
        assert!(duration("-1s").unwrap_err().contains("negative"));
        assert!(duration("1.2.3s").unwrap_err().contains("not a number"));
        assert!(duration("9999999999h").unwrap_err().contains("100 days"));
        assert!(duration("").is_err());
    }

    #[test]
    fn other_quantities() {
        assert_eq!(bytes("8KiB"), Ok(8192));
        assert_eq!(bytes("1.5MB"), Ok(1_500_000));
        assert!(bytes("8").unwrap_err().contains("has no unit"));
        assert_eq!(per_second("400/s"), Ok(400.0));
        assert_eq!(per_second("30/min"), Ok(0.5));
        assert!(per_second("400").unwrap_err().contains("400/s"));
        assert!(per_second("0/s").is_err());
        assert_eq!(bits_per_second("10Gbit/s"), Ok(10_000_000_000));
        assert_eq!(bits_per_second("125MB/s"), Ok(1_000_000_000));
        assert_eq!(percent_ppm("50%"), Ok(500_000));
        assert_eq!(percent_ppm("0.5 %"), Ok(5_000));
        assert!(percent_ppm("50").is_err());
        assert_eq!(milli_cpus("1.5 CPUs"), Ok(1500));
        assert_eq!(milli_cpus("1 CPU"), Ok(1000));
        assert!(milli_cpus("2").is_err());
        assert!(plain("0").is_err());
        assert_eq!(plain("0.8"), Ok(0.8));
    }
}
