//! Numbers for people: few digits, and a suitable unit. The command and the gateway's page use the
//! same format.

/// A value scaled to the first unit in which it is below `step`, with its significant digits.
fn scaled(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = units.first().copied().unwrap_or_default();
    for next in units.iter().skip(1) {
        if value.abs() < step {
            break;
        }
        value /= step;
        unit = next;
    }
    let digits = match value.abs() {
        large if large >= 99.95 || large == 0.0 => 0,
        middle if middle >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}").trim_end().to_owned()
}

/// Bits per second.
pub fn bits(value: f64) -> String {
    scaled(value, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"])
}

/// Bytes, in powers of 1024; whole ones below that.
pub fn bytes(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1024.0 {
        return format!("{value:.0} B");
    }
    scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

/// A number of things, or of things per second; whole below a million.
pub fn count(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e6 {
        return format!("{value:.0}");
    }
    scaled(value, 1000.0, &["", "k", "M", "G"])
}

/// A ratio from 0 to 1, in percent. A small ratio above zero never shows as 0 %.
pub fn percent(ratio: f64) -> String {
    let value = ratio * 100.0;
    match value {
        value if value == 0.0 || value >= 99.95 => format!("{value:.0}%"),
        value if value.abs() < 0.995 => format!("{value:.2}%"),
        value => format!("{value:.1}%"),
    }
}

/// A factor.
pub fn times(value: f64) -> String {
    if value >= 10.0 { format!("{value:.0}×") } else { format!("{value:.1}×") }
}

/// A short time in seconds.
pub fn milliseconds(seconds: f64) -> String {
    let value = seconds * 1e3;
    if value >= 100.0 { format!("{value:.0} ms") } else { format!("{value:.1} ms") }
}

/// A long time in seconds.
pub fn age(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits_and_the_right_unit() {
        assert_eq!(bits(18_700_000.0), "18.7 Mbit/s");
        assert_eq!(
            (bits(1_260_000.0), bits(0.0)),
            ("1.26 Mbit/s".to_owned(), "0 bit/s".to_owned())
        );
        assert_eq!(
            (bits(9_996.0), bits(99_960.0)),
            ("10.0 kbit/s".to_owned(), "100 kbit/s".to_owned())
        );
        assert_eq!((bytes(75_566.0), bytes(7.0)), ("73.8 KiB".to_owned(), "7 B".to_owned()));
        assert_eq!((count(824.0), count(0.5)), ("824".to_owned(), "0.50".to_owned()));
        assert_eq!(
            (count(123_456.0), count(12_345_678.0)),
            ("123456".to_owned(), "12.3 M".to_owned())
        );
        assert_eq!((percent(0.041), percent(1.0)), ("4.1%".to_owned(), "100%".to_owned()));
        assert_eq!((percent(0.0), percent(0.0004)), ("0%".to_owned(), "0.04%".to_owned()));
        assert_eq!((percent(0.25), percent(0.9993)), ("25.0%".to_owned(), "99.9%".to_owned()));
        assert_eq!((times(14.8), times(2.04)), ("15×".to_owned(), "2.0×".to_owned()));
        assert_eq!(
            (milliseconds(0.0041), milliseconds(0.25)),
            ("4.1 ms".to_owned(), "250 ms".to_owned())
        );
        assert_eq!(
            (age(3725.0), age(61.0), age(9.9)),
            ("1h02m".to_owned(), "1m01s".to_owned(), "9s".to_owned())
        );
    }
}
