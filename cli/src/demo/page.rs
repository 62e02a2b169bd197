//! The page that a browser loads: typical parts in typical sizes.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::error::DemoError;

/// Number of style sheets of the page.
const STYLE_COUNT: usize = 4;
/// Number of pictures of the page.
const PICTURE_COUNT: usize = 18;
/// Number of scripts of the page.
const SCRIPT_COUNT: usize = 8;
/// Bytes of an object: 1.2 MB in all on average.
const OBJECT_BYTES: std::ops::Range<usize> = 5_000..75_000;

/// Writes `page.html` and its 30 objects, whose contents follow from `seed`, into `folder`.
pub(super) fn write(folder: &Path, seed: u64) -> Result<(), DemoError> {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ 0x7061_6765);
    let mut noise = || {
        let bytes = random.random_range(OBJECT_BYTES);
        let mut text = String::with_capacity(bytes);
        while text.len() < bytes {
            // Writing to a String cannot fail.
            let _ = write!(text, "{:016x}", random.random::<u64>());
        }
        text
    };
    let save = |name: &str, text: String| {
        let file = folder.join(name);
        fs::write(&file, text).map_err(|error| DemoError::write(&file, error))
    };
    let (mut head, mut body) = (String::new(), String::new());
    for number in 0..STYLE_COUNT {
        let name = format!("object-style-{number}.css");
        save(&name, format!("/*{}*/", noise()))?;
        let _ = writeln!(head, "<link rel=\"stylesheet\" href=\"{name}\">");
    }
    for number in 0..PICTURE_COUNT {
        let name = format!("object-picture-{number}.svg");
        let open = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"20\" height=\"20\">";
        save(&name, format!("{open}<!--{}--><circle r=\"9\"/></svg>", noise()))?;
        let _ = writeln!(body, "<img src=\"{name}\">");
    }
    for number in 0..SCRIPT_COUNT {
        let name = format!("object-script-{number}.js");
        save(&name, format!("/*{}*/", noise()))?;
        let _ = writeln!(body, "<script src=\"{name}\"></script>");
    }
    let head = format!("<meta charset=\"utf-8\"><title>Packrat</title>\n{head}");
    // Without an icon of its own the browser asks for another object.
    let icon = "<link rel=\"icon\" href=\"data:,\">\n";
    save(
        "page.html",
        format!("<!doctype html>\n<html><head>{head}{icon}</head><body>\n{body}</body></html>\n"),
    )
}
