//! docs/CONFIGURATION.md has the lists of settings that the code has.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail anywhere")]

use std::fmt::Write as _;
use std::path::Path;

use packrat_api::knobs::{Knob, ROUTE_KNOBS, TOKEN_ENDPOINT_KNOBS, in_cluster};

const BEGIN: &str = "<!-- begin: generated from protocol/api/src/knobs.rs -->\n";
const END: &str = "<!-- end -->\n";

fn of_fields(knobs: &[Knob]) -> String {
    let mut list = String::new();
    for knob in knobs {
        let default = knob.default.map(|default| format!(", default `{default}`"));
        let default = default.unwrap_or_default();
        writeln!(list, "- `{}` ({}{default}): {}", knob.field, knob.values, knob.meaning).unwrap();
    }
    list
}

fn of_clusters() -> String {
    let mut list = String::new();
    for (knob, cluster) in in_cluster() {
        let (path, annotation) = (cluster.edge_gateway, cluster.annotation);
        writeln!(list, "- `{}`: `{path}`, `{annotation}`: {}", knob.field, cluster.values).unwrap();
    }
    list
}

/// Compares the text between the marks with the lists, line ends apart, which tools/format-markdown
/// sets; with PACKRAT_WRITE_DOCUMENTS=1 writes it.
#[test]
fn the_lists_of_the_document_are_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CONFIGURATION.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut parts = text.split(BEGIN);
    let mut expected = parts.next().unwrap().to_owned();
    for list in [of_fields(&ROUTE_KNOBS), of_clusters(), of_fields(&TOKEN_ENDPOINT_KNOBS)] {
        let rest = parts.next().unwrap().split_once(END).unwrap().1;
        write!(expected, "{BEGIN}\n{list}\n{END}{rest}").unwrap();
    }
    assert_eq!(parts.next(), None, "there are three lists");
    if std::env::var_os("PACKRAT_WRITE_DOCUMENTS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    } else {
        assert!(
            text.split_whitespace().eq(expected.split_whitespace()),
            "{} is out of date; write it anew with: PACKRAT_WRITE_DOCUMENTS=1 cargo test -p packrat-api && tools/format-markdown",
            path.display()
        );
    }
}
