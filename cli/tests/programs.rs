//! Clients of `packrat demo` that take longer to install than to run: a browser, and a WebRTC peer.
//! `make test-programs` installs both.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The arm with Packrat of a demo with these arguments.
fn assisted(arguments: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let parts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.packrat");
    let mut command = Command::new(env!("CARGO_BIN_EXE_packrat"));
    command.arg("demo").arg("--parts").arg(parts).arg("--json").arg(&file);
    command.args(["--arms", "packrat", "--gateway", "standalone", "--profile", "wifi"]);
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let arm = report[0]["arms"][0].clone();
    assert_eq!((&arm["sha256_ok"], &arm["complete"]), (&true.into(), &true.into()), "{arm:#}");
    arm
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value:#}"))
}

#[test]
#[ignore = "needs a browser: make test-programs"]
fn a_browser_gets_a_page_and_a_file_over_http_3_repaired() {
    let arm = assisted(&["--client", "chromium", "--repeats", "3", "--size", "4MB"]);
    // Each page comes by a connection of its own; the browser may open another one.
    assert_eq!(number(&arm["times"]["completed"]), 3, "{arm:#}");
    let assistance = &arm["assistance"];
    assert!(number(&assistance["sessions"]) >= 3, "{arm:#}");
    let (holes, in_time) = (number(&assistance["holes"]), number(&assistance["filled_in_time"]));
    assert!(holes > 50 && in_time * 2 >= holes, "{arm:#}");
}

#[test]
#[ignore = "needs aiortc: make test-programs"]
fn a_video_by_webrtc_is_shown_frame_by_frame() {
    let arm = assisted(&["--client", "webrtc", "--repeats", "300"]);
    let times = &arm["times"];
    // The first frames may be lost with the handshake before them, and a busy host may be late.
    assert!(number(&times["completed"]) >= 200, "{arm:#}");
    let assistance = &arm["assistance"];
    assert_eq!(number(&assistance["sessions"]), 1, "{arm:#}");
    let (holes, in_time) = (number(&assistance["holes"]), number(&assistance["filled_in_time"]));
    assert!(holes > 5 && in_time * 2 >= holes, "{arm:#}");
}
