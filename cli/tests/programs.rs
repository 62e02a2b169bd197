//! Clients of `packrat demo` that take longer to install than to run: browsers, and a WebRTC peer.
//! `make test-programs` installs them.

use std::path::Path;
use std::process::Command;

use packrat_path::Trials;
use serde_json::Value;

/// Runs demos with these arguments until the path of one was on time; `check` gets the arm with
/// Packrat of each, and whether its figures may be judged.
fn assisted(figure: &'static str, arguments: &[&str], check: impl Fn(&Value, bool)) {
    let parts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.packrat");
    let mut trials = Trials::of(figure);
    while trials.go_on() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.json");
        let mut command = Command::new(env!("CARGO_BIN_EXE_packrat"));
        command.arg("demo").arg("--parts").arg(&parts).arg("--json").arg(&file);
        command.args(["--arms", "packrat", "--gateway", "standalone", "--profile", "wifi"]);
        let output = command.args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        let arm = &report[0]["arms"][0];
        assert_eq!((&arm["sha256_ok"], &arm["complete"]), (&true.into(), &true.into()), "{arm:#}");
        check(arm, trials.may_judge(arm["on_time"] == true));
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value:#}"))
}

#[test]
#[ignore = "needs a browser: make test-programs"]
fn a_browser_gets_a_page_and_a_file_over_http_3_repaired() {
    let options = ["--client", "chromium", "--repeats", "3", "--size", "4MB"];
    assisted("a browser", &options, |arm, is_on_time| {
        // Each page comes by a connection of its own; the browser may open another one.
        assert_eq!(number(&arm["times"]["completed"]), 3, "{arm:#}");
        let assistance = &arm["assistance"];
        assert!(number(&assistance["sessions"]) >= 3, "{arm:#}");
        let holes = number(&assistance["holes"]);
        let in_time = number(&assistance["filled_in_time"]);
        assert!(holes > 50 && (!is_on_time || in_time * 2 >= holes), "{arm:#}");
    });
}

#[test]
#[ignore = "needs aiortc: make test-programs"]
fn a_video_by_webrtc_is_shown_frame_by_frame() {
    video_is_repaired("a video by WebRTC", "webrtc");
}

#[test]
#[ignore = "needs a browser and Go: make test-programs"]
fn a_page_gets_video_through_turn_repaired() {
    video_is_repaired("a page's video", "browser-webrtc");
}

/// Most of a video's frames are shown, in one session whose holes are filled in time.
fn video_is_repaired(what: &'static str, client: &str) {
    let options = ["--client", client, "--repeats", "300"];
    assisted(what, &options, |arm, is_on_time| {
        let assistance = &arm["assistance"];
        assert_eq!(number(&assistance["sessions"]), 1, "{arm:#}");
        let holes = number(&assistance["holes"]);
        let in_time = number(&assistance["filled_in_time"]);
        if is_on_time {
            // The first frames may be lost with the handshake before them.
            assert!(number(&arm["times"]["completed"]) >= 200, "{arm:#}");
            assert!(holes > 5 && in_time * 2 >= holes, "{arm:#}");
        }
    });
}
