//! A flame graph, as a picture for a browser: the share of samples in which each function was on
//! the stack.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Width of the picture, pixels.
const PICTURE_WIDTH: f64 = 1400.0;
/// Height of a row, pixels.
const ROW_HEIGHT: f64 = 17.0;
/// Smallest width that is drawn, pixels.
const NARROWEST_WIDTH: f64 = 0.4;

/// A function at one place of the call tree, and the functions that it called.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Frame {
    samples: u64,
    callees: BTreeMap<String, Frame>,
}

impl Frame {
    /// Reads the output of `perf script`: paragraphs of a headline and the stack, the innermost
    /// function first.
    pub(crate) fn from_perf_script(text: &str) -> Self {
        let mut root = Self::default();
        for paragraph in text.split("\n\n") {
            let mut stack: Vec<&str> = paragraph.lines().skip(1).filter_map(function).collect();
            stack.reverse();
            if !stack.is_empty() {
                root.add(&stack);
            }
        }
        root
    }

    fn add(&mut self, stack: &[&str]) {
        self.samples += 1;
        if let [first, rest @ ..] = stack {
            self.callees.entry((*first).to_owned()).or_default().add(rest);
        }
    }

    /// Number of samples.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    fn depth(&self) -> usize {
        1 + self.callees.values().map(Self::depth).max().unwrap_or(0)
    }

    /// The picture: callers below, callees above, the width proportional to the samples.
    pub(crate) fn svg(&self, title: &str) -> String {
        let height = ROW_HEIGHT * (self.depth() + 2) as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {PICTURE_WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
             <text x=\"4\" y=\"13\">{}</text>\n",
            escaped(title)
        );
        let scale = PICTURE_WIDTH / self.samples.max(1) as f64;
        self.draw("all", 0.0, height - ROW_HEIGHT, scale, self.samples, &mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    fn draw(&self, name: &str, left: f64, top: f64, scale: f64, all: u64, svg: &mut String) {
        let width = self.samples as f64 * scale;
        if width < NARROWEST_WIDTH {
            return;
        }
        // Kernel, library, own code: the name decides the shade, so that it is the same in every
        // picture.
        let shade =
            name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
                % 60;
        let hue = if name.contains("packrat") { 120 } else { 20 };
        let share = 100.0 * self.samples as f64 / all.max(1) as f64;
        let name = escaped(name);
        let _ = writeln!(
            svg,
            "<g><title>{name}: {share:.1} %</title><rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{}\" \
             fill=\"hsl({hue},{}%,70%)\"/>",
            ROW_HEIGHT - 1.0,
            40 + shade / 2
        );
        let letters = (width / 6.8) as usize;
        if letters > 3 {
            let label: String = name.chars().take(letters).collect();
            let label = label
                .rfind('&')
                .filter(|at| !label[*at..].contains(';'))
                .map_or(&label[..], |at| &label[..at]);
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
                left + 2.0,
                top + 12.0
            );
        }
        svg.push_str("</g>\n");
        let mut left = left;
        for (name, callee) in &self.callees {
            callee.draw(name, left, top - ROW_HEIGHT, scale, all, svg);
            left += callee.samples as f64 * scale;
        }
    }
}

/// The function of a line such as `  ffffffff81 udp_sendmsg+0x12 ([kernel.kallsyms])`.
fn function(line: &str) -> Option<&str> {
    let (_, rest) = line.trim().split_once(' ')?;
    let rest = rest.rsplit_once(" (").map_or(rest, |(name, _)| name);
    Some(rest.rsplit_once("+0x").map_or(rest, |(name, _)| name))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stacks_are_folded_and_drawn_to_scale() {
        let text = "io 7 1.0: cpu-clock:\n\tff inner<T>+0x1 (/bin/a)\n\tfe outer+0x2 (/bin/a)\n\n\
                    io 7 1.1: cpu-clock:\n\tfe outer+0x9 (/bin/a)\n\nio 7 1.2: cpu-clock:\n\tfd other ([kernel])\n\n";
        let root = Frame::from_perf_script(text);
        assert_eq!(root.samples(), 3);
        assert_eq!(root.callees["outer"].samples, 2);
        assert_eq!(root.callees["outer"].callees["inner<T>"].samples, 1);
        let svg = root.svg("a & b");
        assert!(svg.contains("a &amp; b") && svg.contains("inner&lt;T&gt;: 33.3 %"));
        assert_eq!(svg.matches("<rect").count(), 4);
    }
}
