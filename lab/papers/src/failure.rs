//! Failures, as messages for people.

use std::error::Error;
use std::io;
use std::path::Path;

/// The reason why a figure or a sweep was not made.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;

/// A file or folder that could not be written; `option` names another one.
pub(crate) fn unwritable(path: &Path, error: &io::Error, option: &str) -> Failure {
    let path = path.display();
    format!("cannot write {path}: {error}; name a folder that you may write to with {option}")
        .into()
}
