//! Writes dashboards, rules and docs/METRICS.md into the source tree.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;

use packrat_dashboards::{Definitions, files};

fn main() -> Result<(), Box<dyn Error>> {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = crate_folder.ancestors().nth(2).ok_or("the source tree was not found")?;
    for (path, content) in files(&Definitions::read()?) {
        let path = root.join(path);
        std::fs::write(&path, content)
            .map_err(|error| format!("{} could not be written: {error}", path.display()))?;
    }
    Ok(())
}
