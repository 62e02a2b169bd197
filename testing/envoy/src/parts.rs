//! Programs and modules that a test needs and cargo does not build.

use std::path::{Path, PathBuf};

/// File that the environment variable names, or the one at `path` in the workspace, to which
/// `command` installs it. If it is missing, the result is `None` and a line is printed.
///
/// # Panics
/// With `CI=true`, if it is missing.
pub fn find(variable: &str, path: &str, command: &str) -> Option<PathBuf> {
    let workspace =
        Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the workspace");
    let part = std::env::var_os(variable).map_or(workspace.join(path), PathBuf::from);
    if part.exists() {
        return Some(part);
    }
    let hint = format!("nothing at {}: set {variable} or run `{command}` once", part.display());
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{hint}");
    println!("SKIPPED: {hint}");
    None
}

/// The Envoy of `PACKRAT_ENVOY`, or the one installed by `tools/install-demo-parts`; see [`find`].
pub fn find_envoy() -> Option<PathBuf> {
    find("PACKRAT_ENVOY", ".packrat/venv/bin/envoy", "tools/install-demo-parts")
}

/// The directory of the filter, which cargo builds next to the tests of packages that depend on it.
///
/// # Panics
/// If it is missing.
pub fn module_directory() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    let directory = test.parent().expect("its directory");
    assert!(
        directory.join("libpackrat_envoy.so").exists(),
        "no libpackrat_envoy.so in {}: run `cargo build -p packrat-envoy`",
        directory.display()
    );
    directory.to_owned()
}
