//! The second implementation of the protocol (protocol/interop), made from docs/PROTOCOL.md alone:
//! the golden vectors, and sessions with this gateway. `make test-interop` installs what it runs on.

use std::path::{Path, PathBuf};
use std::process::Command;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a program of the folder; its errors become the test's.
fn run(program: &str, arguments: &[&str]) {
    let environment = std::env::var_os("PACKRAT_INTEROP_VENV")
        .map_or_else(|| workspace().join(".packrat/interop"), PathBuf::from);
    let python = environment.join("bin/python");
    assert!(python.exists(), "{} is not there: `make test-interop` installs it", python.display());
    let script = workspace().join("protocol/interop").join(program);
    let output = Command::new(python).arg("-B").arg(script).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    println!("{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
#[ignore = "needs Python packages; make test-interop"]
fn the_second_implementation_makes_the_golden_vectors() {
    run("check_vectors.py", &[]);
}

#[test]
#[ignore = "needs Python packages; make test-interop"]
fn the_second_implementation_is_repaired_moves_and_says_goodbye() {
    run("meet_gateway.py", &[env!("CARGO_BIN_EXE_packrat-gateway")]);
}
