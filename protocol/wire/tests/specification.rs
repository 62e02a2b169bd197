//! The list of constants in docs/PROTOCOL.md against the code, so that the specification cannot
//! fall behind.

use std::path::Path;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A count or a factor, or a time in microseconds.
fn specified(value: &str) -> Vec<f64> {
    let one = |text: &str| {
        let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
        let number: f64 =
            number.replace(',', "").parse().unwrap_or_else(|_| panic!("not a number: {text}"));
        number
            * match unit {
                "s" => 1e6,
                "ms" => 1e3,
                _ => 1.0,
            }
    };
    value.split(" to ").map(one).collect()
}

/// The values in the text of a constant, or of a field in `fn default`.
fn coded(source: &str, name: &str) -> Vec<f64> {
    let constant =
        source.split_once(&format!("const {name}: ")).and_then(|(_, rest)| rest.split_once(" ="));
    let default = || source.split_once("fn default()")?.1.split_once(&format!(" {name}: "));
    let (end, text) = match constant {
        Some((_, text)) => (';', text),
        None => (',', default().unwrap_or_else(|| panic!("no constant {name}")).1),
    };
    let text = text.split_once(end).expect("an end of the value").0.replace('_', "");
    let times: Vec<f64> = [("frommicros(", 1.0), ("frommillis(", 1e3), ("fromsecs(", 1e6)]
        .into_iter()
        .flat_map(|(unit, factor)| {
            text.split(unit).skip(1).map(move |rest| (rest.to_owned(), factor))
        })
        .map(|(rest, factor)| number(&rest) * factor)
        .collect();
    if times.is_empty() { vec![number(&text)] } else { times }
}

fn number(text: &str) -> f64 {
    let digits: String =
        text.trim().chars().take_while(|one| one.is_ascii_digit() || *one == '.').collect();
    digits.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
}

#[test]
fn the_constants_are_those_of_the_code() {
    let page = read("docs/PROTOCOL.md");
    let mut compared = 0;
    for row in page.lines() {
        // - [`NAME`](../path) value: meaning
        let Some((name, rest)) = row.strip_prefix("- [`").and_then(|row| row.split_once("`](../"))
        else {
            continue;
        };
        let Some((path, (value, what))) =
            rest.split_once(") ").and_then(|(path, rest)| Some((path, rest.split_once(':')?)))
        else {
            continue;
        };
        assert_eq!(
            specified(value),
            coded(&read(path), name),
            "docs/PROTOCOL.md, section 13: {what} ({name} in {path})"
        );
        compared += 1;
    }
    assert!(compared > 60, "only {compared} constants were found in the list");
}
