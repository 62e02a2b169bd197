//! Writes dashboards, rules and docs/METRICS.md into the source tree.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(root) = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2) else {
        eprintln!("the source tree was not found");
        return ExitCode::FAILURE;
    };
    for (path, content) in packrat_dashboards::files() {
        let path = root.join(path);
        if let Err(error) = std::fs::write(&path, content) {
            eprintln!("{} could not be written: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
