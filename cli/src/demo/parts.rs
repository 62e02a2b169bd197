//! Programs that `make demo`, `tools/install-client-parts` and `tools/install-alternatives` have
//! installed.

use std::path::{Path, PathBuf};

use super::error::DemoError;

/// The program at `path` in the folder of all parts.
pub(crate) fn part(parts: &Path, path: &str, what: &'static str) -> Result<PathBuf, DemoError> {
    let path = parts.join(path);
    match path.is_file() {
        true => Ok(path),
        false => Err(DemoError::PartMissing { what, path }),
    }
}

/// The interpreter of a Python environment, for `what`.
pub(crate) fn python(
    parts: &Path,
    environment: &str,
    what: &'static str,
) -> Result<PathBuf, DemoError> {
    part(parts, &format!("{environment}/bin/python"), what)
}

/// Envoy.
pub(crate) fn envoy(parts: &Path) -> Result<PathBuf, DemoError> {
    part(parts, "venv/bin/envoy", "Envoy")
}

/// WireGuard's program in user space.
pub(crate) fn wireguard_go(parts: &Path) -> Result<PathBuf, DemoError> {
    part(parts, "go-clients/wireguard", "wireguard-go")
}

/// The program of both ends of a tunnel.
pub(crate) fn tunnel_program(parts: &Path) -> Result<PathBuf, DemoError> {
    alternative(parts, "tunnel", "the program of tunnels")
}

/// A program of an alternative to Packrat.
pub(crate) fn alternative(
    parts: &Path,
    path: &str,
    what: &'static str,
) -> Result<PathBuf, DemoError> {
    let path = parts.join("alternatives").join(path);
    match path.is_file() {
        true => Ok(path),
        false => Err(DemoError::AlternativeMissing { what, path }),
    }
}
