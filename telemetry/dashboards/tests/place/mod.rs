//! Paths and patience of the tests.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time that a test waits for an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The folder of the sources.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}
