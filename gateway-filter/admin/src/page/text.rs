//! Numbers as people read them.

/// Text inside of HTML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

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
        whole if whole.fract() == 0.0 || whole >= 100.0 => 0,
        large if large >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$} {unit}").trim_end().to_owned()
}

pub(super) fn bits(value: f64) -> String {
    scaled(value, 1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s"])
}

pub(super) fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}

pub(super) fn count(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 10_000.0 {
        return format!("{value:.0}");
    }
    scaled(value, 1000.0, &["", "k", "M", "G"])
}

pub(super) fn percent(ratio: f64) -> String {
    let value = ratio * 100.0;
    if value == 0.0 || value >= 99.995 || (value.fract().abs() < 1e-9 && value >= 1.0) {
        format!("{value:.0} %")
    } else if value >= 10.0 {
        format!("{value:.1} %")
    } else {
        format!("{value:.2} %")
    }
}

pub(super) fn times(value: f64) -> String {
    if value >= 10.0 { format!("{value:.0}×") } else { format!("{value:.1}×") }
}

pub(super) fn milliseconds(seconds: f64) -> String {
    let value = seconds * 1e3;
    if value >= 100.0 { format!("{value:.0} ms") } else { format!("{value:.1} ms") }
}

pub(super) fn age(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_few_digits_and_the_right_unit() {
        assert_eq!(bits(18_700_000.0), "18.7 Mbit/s");
        assert_eq!(bits(0.0), "0 bit/s");
        assert_eq!(bytes(75_566.0), "73.8 KiB");
        assert_eq!(count(824.0), "824");
        assert_eq!(count(0.5), "0.50");
        assert_eq!(count(123_456.0), "123 k");
        assert_eq!(percent(0.0412), "4.12 %");
        assert_eq!(percent(0.25), "25 %");
        assert_eq!(percent(0.99999), "100 %");
        assert_eq!(times(14.8), "15×");
        assert_eq!(milliseconds(0.0041), "4.1 ms");
        assert_eq!(age(3725.0), "1 h 02 min");
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }
}
