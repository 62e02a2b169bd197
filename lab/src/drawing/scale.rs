//! Conversion of values to pixels, and the choice of values to write at an axis.

use super::figure::Axis;

/// A mapping of one axis.
#[derive(Debug, Clone)]
pub(crate) struct Scale {
    logarithmic: bool,
    values: (f64, f64),
    pixels: (i32, i32),
    ticks: Vec<f64>,
}

impl Scale {
    /// A scale of the visible values of `axis`, in a stretch of `pixels`. Linear axes begin at
    /// zero, axes with ticks at the least value.
    pub(crate) fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        pixels: (i32, i32),
        most_ticks: usize,
    ) -> Self {
        let values = values.chain(axis.ticks.iter().copied()).filter(|value| value.is_finite());
        let values = values.filter(|value| !axis.logarithmic || *value > 0.0);
        let (least, most) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                (least.min(value), most.max(value))
            });
        let (least, most) = if least > most { (0.0, 1.0) } else { (least, most) };
        if axis.logarithmic {
            let mut ticks = axis.ticks.clone();
            let (mut low, mut high) = (least, most);
            if ticks.is_empty() {
                (low, high) = (10f64.powf(least.log10().floor()), 10f64.powf(most.log10().ceil()));
                let decades = (high / low).log10().round() as i32;
                ticks = (0..=decades).map(|decade| low * 10f64.powi(decade)).collect();
            }
            return Self { logarithmic: true, values: (low, high.max(low * 1.001)), pixels, ticks };
        }
        let low = if axis.ticks.is_empty() { least.min(0.0) } else { least };
        let mut ticks = axis.ticks.clone();
        let mut high = most.max(low + f64::MIN_POSITIVE);
        if ticks.is_empty() {
            let step = step(high - low, most_ticks);
            // To the end of the data, and to the next tick if that is near.
            high =
                if (high / step).fract() > 0.6 { (high / step).ceil() * step } else { high * 1.03 };
            ticks = (0..)
                .map(|tick| low + f64::from(tick) * step)
                .take_while(|tick| *tick <= high)
                .collect();
        }
        Self { logarithmic: false, values: (low, high), pixels, ticks }
    }

    /// The pixel at which a value is drawn.
    pub(crate) fn pixel(&self, value: f64) -> i32 {
        let position = if self.logarithmic {
            (value.max(self.values.0) / self.values.0).ln() / (self.values.1 / self.values.0).ln()
        } else {
            (value - self.values.0) / (self.values.1 - self.values.0)
        };
        let (from, to) = (f64::from(self.pixels.0), f64::from(self.pixels.1));
        (from + (to - from) * position).round() as i32
    }

    /// The values to write, and how.
    pub(crate) fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        let step =
            self.ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
        self.ticks.iter().map(move |&tick| {
            let digits = if self.logarithmic || !step.is_finite() { tick } else { step };
            let digits =
                if digits >= 1.0 || digits == 0.0 { 0 } else { (-digits.log10()).ceil() as usize };
            // Ticks that were given may need more digits than their distance.
            let digits = if (tick * 10f64.powi(digits as i32)).fract().abs() > 1e-6 {
                digits + 1
            } else {
                digits
            };
            (tick, thousands(tick, digits))
        })
    }
}

/// A number with spaces between groups of three digits.
pub(crate) fn thousands(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, fraction) =
        text.split_once('.').map_or((text.as_str(), None), |(w, f)| (w, Some(f)));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if index > 0 && left % 3 == 0 && digit.is_ascii_digit() && whole.len() > 4 {
            grouped.push('\u{2009}');
        }
        grouped.push(digit);
    }
    match fraction {
        Some(fraction) => format!("{grouped}.{fraction}"),
        None => grouped,
    }
}

/// Round values between two others, about `most` of them.
pub(crate) fn round_values(from: f64, to: f64, most: usize) -> Vec<f64> {
    let step = step((to - from).max(f64::MIN_POSITIVE), most);
    let first = (from / step).ceil() as i64;
    (first..).map(|index| index as f64 * step).take_while(|value| *value <= to).collect()
}

/// 1, 2 or 5 times a power of ten, so that there are at most `most` steps.
fn step(span: f64, most: usize) -> f64 {
    let rough = span / most.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(rough)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(axis: &Axis, values: &[f64]) -> Vec<String> {
        let scale = Scale::new(axis, values.iter().copied(), (0, 100), 5);
        scale.ticks().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(written(&Axis::linear(""), &[3.0, 18.9]), ["0", "5", "10", "15", "20"]);
        assert_eq!(written(&Axis::linear(""), &[3.0, 16.9]), ["0", "5", "10", "15"]);
        assert_eq!(written(&Axis::linear(""), &[0.31]), ["0.0", "0.1", "0.2", "0.3"]);
        assert_eq!(
            written(&Axis::logarithmic(""), &[0.02, 300.0]),
            ["0.01", "0.1", "1", "10", "100", "1000"]
        );
        assert_eq!(written(&Axis::linear("").with_ticks(&[1.0, 2.5]), &[0.0]), ["1", "2.5"]);
    }

    #[test]
    fn round_values_lie_between() {
        let written: Vec<_> =
            round_values(0.813, 0.871, 3).iter().map(|value| format!("{value:.3}")).collect();
        assert_eq!(written, ["0.820", "0.840", "0.860"]);
        assert_eq!(round_values(902.0, 1390.0, 5), [1000.0, 1100.0, 1200.0, 1300.0]);
    }

    #[test]
    fn values_are_mapped_in_proportion() {
        let scale = Scale::new(&Axis::logarithmic(""), [1.0, 100.0].into_iter(), (200, 0), 5);
        assert_eq!([1.0, 10.0, 100.0].map(|value| scale.pixel(value)), [200, 100, 0]);
        let scale =
            Scale::new(&Axis::linear("").with_ticks(&[0.0, 4.0]), [2.0].into_iter(), (10, 50), 5);
        assert_eq!([0.0, 1.0, 4.0].map(|value| scale.pixel(value)), [10, 20, 50]);
    }

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(thousands(1234.0, 0), "1234");
        assert_eq!(thousands(1_234_567.25, 1), "1\u{2009}234\u{2009}567.2");
    }
}
