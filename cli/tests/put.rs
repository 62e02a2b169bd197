//! `packrat put` as users run it: the real command against a real HTTP/3 server of another
//! implementation. Its repairs are the demo's to test.

use serde_json::Value;
use server::{Server, file};
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::server;

fn command(server: &Server, folder: &Path, name: &str, path: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packrat"));
    command.current_dir(folder).args(["put", name, &server.url(path), "--cacert"]);
    command.arg(&server.authority);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn put(server: &Server, folder: &Path, path: &str, arguments: &[&str]) -> Output {
    fs::write(folder.join("file"), file()).unwrap();
    command(server, folder, "file", path).args(arguments).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn sha256(data: &[u8]) -> String {
    packrat_wire::hexadecimal::encode(&Sha256::digest(data))
}

#[track_caller]
fn assert_fails(output: &Output, code: i32, message: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", errors(output));
    assert!(errors(output).contains(message), "{}", errors(output));
}

#[test]
fn the_server_has_the_same_file_and_the_summary_reports_it() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    for (options, method) in [(&["--answer"][..], "PUT"), (&["--answer", "--post"], "POST")] {
        let output = put(&server, folder.path(), "/taken", options);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        // The server has counted and hashed it.
        let said = format!("{method} {} {}", sha256(&file()), file().len());
        assert_eq!(String::from_utf8_lossy(&output.stdout), said);
        let summary = errors(&output);
        assert!(summary.contains(&sha256(&file())) && summary.contains("3.0 MB"), "{summary}");
        assert!(summary.contains("no gateway on the path"), "{summary}");
    }
}

#[test]
fn a_stream_of_unknown_length_is_sent_to_its_end() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let mut child = command(&server, folder.path(), "-", "/taken").arg("--answer").spawn().unwrap();
    child.stdin.take().unwrap().write_all(&file()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let said = format!("PUT {} -", sha256(&file()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), said);
}

#[test]
fn json_reports_success_and_failure() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let output = put(&server, folder.path(), "/taken", &["--json", "--silent"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["bytes"], &report["status"]), (&file().len().into(), &201.into()));
    assert_eq!((&report["sha256"], &report["input"]), (&sha256(&file()).into(), &"file".into()));
    assert_eq!(report["assist"]["upward_numbered"], 0, "there is no gateway");
    let output = put(&server, folder.path(), "/refused", &["--json", "--silent"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["error"]["exit_code"], 22, "{report}");
    assert_eq!(report["error"]["kind"], "status");
}

#[test]
fn a_servers_refusal_is_an_error_with_a_remedy() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let folder = folder.path();
    assert_fails(
        &put(&server, folder, "/refused", &[]),
        22,
        "refused the PUT with HTTP status 403",
    );
    assert_fails(&put(&server, folder, "/moved", &[]), 47, "/taken; run the command with that URL");
    assert_fails(
        &put(&server, folder, "/unclear", &[]),
        22,
        "does not say whether it has taken it",
    );
    let output = put(&server, folder, "/stall", &["--max-time", "1"]);
    assert_fails(&output, 28, "raise --max-time");
}

#[test]
fn a_file_that_cannot_be_read_is_not_begun() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let output = command(&server, folder.path(), "missing", "/taken").output().unwrap();
    assert_fails(&output, 26, "cannot read missing");
    let output = command(&server, folder.path(), ".", "/taken").output().unwrap();
    assert_fails(&output, 26, "not a folder");
}

fn get(server: &Server, folder: &Path, url: &str) -> Vec<u8> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packrat"));
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.args(["get", url, "-o", "-", "--silent", "--cacert"]).arg(&server.authority);
    let output = command.current_dir(folder).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    output.stdout
}

/// An upload at the server: its headers and its bytes.
fn stored(server: &Server, folder: &Path, place: &str) -> (String, Vec<u8>) {
    let stored = get(server, folder, place);
    let end = stored.iter().position(|byte| *byte == b'\n').unwrap();
    let metadata = String::from_utf8(stored[..end].to_vec()).unwrap();
    (metadata, stored[end + 1..].to_vec())
}

#[test]
fn an_upload_that_the_server_remembers_goes_on_after_each_break() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let options = ["--tus", "--content-type", "text/plain", "--json"];
    let output = put(&server, folder.path(), "/tus-breaking", &options);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let breaks = errors(&output).matches("next attempt in 1 s").count();
    assert_eq!(breaks, 2, "3 MB, and a break after 1.3: {}", errors(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (sent, before) =
        (report["bytes"].as_u64().unwrap(), report["resumed_from"].as_u64().unwrap());
    assert!(before > 2_000_000 && sent + before == file().len() as u64, "{report}");
    assert_eq!(report["sha256"], sha256(&file()), "of all of it");
    let place = report["location"].as_str().unwrap();
    assert!(place.starts_with(&server.url("/tus-breaking/")), "{place}");
    let (metadata, content) = stored(&server, folder.path(), place);
    assert_eq!(metadata, "filename ZmlsZQ==,filetype dGV4dC9wbGFpbg==");
    assert!(content == file());
}

/// Uploads a file that grows, such as a log or a recording.
#[test]
fn the_server_gets_the_announced_length_of_a_growing_file() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let path = folder.path().join("file");
    fs::write(&path, file()).unwrap();
    let mut command = command(&server, folder.path(), "file", "/tus-breaking");
    let mut child = command.args(["--tus", "--json"]).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(errors.any(|line| line.contains("next attempt in 1 s")), "there is no break");
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    let errors: Vec<_> = errors.collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{errors:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["sha256"], sha256(&file()));
    let (_, content) = stored(&server, folder.path(), report["location"].as_str().unwrap());
    assert!(content == file());
}

/// A server that has taken a part has not taken all, whatever its status.
#[test]
fn an_upload_of_which_a_part_was_taken_is_not_done() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let output = put(&server, folder.path(), "/tus-taking-parts", &["--tus", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let told = format!("the server has taken 1000000 of {} bytes", file().len());
    assert!(errors(&output).contains(&told), "{}", errors(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["sha256"], sha256(&file()));
    let (_, content) = stored(&server, folder.path(), report["location"].as_str().unwrap());
    assert!(content == file());
}

#[test]
fn the_rest_of_an_upload_that_was_given_up_can_be_sent_later() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let folder = folder.path();
    // The server takes a piece and refuses the rest.
    let output = put(&server, folder, "/tus-failing", &["--tus"]);
    assert_fails(&output, 22, "refused the PATCH with HTTP status 403");
    let place = server.url("/tus-failing/0");
    assert_fails(&output, 22, &format!("to send the rest: packrat put --continue file {place}"));
    let (_, begun) = stored(&server, folder, &place);
    assert!(!begun.is_empty() && begun.len() < file().len() && file().starts_with(&begun));

    // Another file is not the rest of this one.
    fs::write(folder.join("other"), b"other").unwrap();
    let output =
        command(&server, folder, "other", "/tus-failing/0").arg("--continue").output().unwrap();
    assert_fails(&output, 33, "name the file that it was begun with");
    let output =
        command(&server, folder, "file", "/tus-failing/9").arg("--continue").output().unwrap();
    assert_fails(&output, 33, "no such upload any more (HTTP status 404)");
}

#[test]
fn an_upload_that_is_whole_already_is_not_sent_again() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let output = put(&server, folder.path(), "/tus", &["--tus", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["bytes"], &report["resumed_from"]), (&file().len().into(), &0.into()));
    let output = put(&server, folder.path(), "/tus/0", &["--continue", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["bytes"], &report["resumed_from"]), (&0.into(), &file().len().into()));
    assert_eq!(report["sha256"], sha256(&file()));
}

#[test]
fn a_server_without_tus_and_a_stream_are_errors_with_a_remedy() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let output = put(&server, folder.path(), "/tus-none", &["--tus"]);
    assert_fails(&output, 33, "check the URL, or leave --tus out");
    let output = command(&server, folder.path(), "-", "/tus").arg("--tus").output().unwrap();
    assert_fails(&output, 26, "must be a file, not a stream");
}

/// Uploads the file, and lets the server go on when the command has seen its offer to resume.
fn put_with_offer(server: &Server, folder: &Path, path: &str, arguments: &[&str]) -> Output {
    fs::write(folder.join("file"), file()).unwrap();
    let mut child =
        command(server, folder, "file", path).arg("-v").args(arguments).spawn().unwrap();
    let errors = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut said = String::new();
    for line in errors {
        if line == "< HTTP 104" {
            get(server, folder, &server.url("/draft-seen"));
        }
        said += &format!("{line}\n");
    }
    Output { stderr: said.into_bytes(), ..child.wait_with_output().unwrap() }
}

/// The offer of Resumable Uploads for HTTP comes with any upload.
#[test]
fn a_server_may_offer_to_resume_any_upload() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let folder = folder.path();
    for (options, begun) in [(&["--answer"][..], 0), (&["--answer", "--post"], 1)] {
        let output = put_with_offer(&server, folder, "/draft-breaking", options);
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
        let breaks = errors(&output).matches("next attempt in 1 s").count();
        assert_eq!(breaks, 2, "3 MB, and a break after 1.3: {}", errors(&output));
        // The last answer is that of the whole upload.
        let said = format!("PATCH {} {}", sha256(&file()), file().len());
        assert_eq!(String::from_utf8_lossy(&output.stdout), said);
        let summary = errors(&output);
        assert!(summary.contains(&sha256(&file())), "of all of it: {summary}");
        assert!(summary.contains("stored at /made"), "{summary}");
        let place = server.url(&format!("/draft-breaking/{begun}"));
        assert!(stored(&server, folder, &place).1 == file());
    }
    // It is whole already.
    let output = command(&server, folder, "file", "/draft-breaking/0").arg("--continue").output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(errors(&output).contains("resumed after 3.0 MB"), "{}", errors(&output));
}

#[test]
fn an_offer_of_another_version_is_none() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let other = ["-H", "Upload-Draft-Interop-Version: 6"];
    let output = put(&server, folder.path(), "/draft-breaking", &other);
    assert_fails(&output, 56, "the transfer broke after");
    assert!(!errors(&output).contains("next attempt"), "{}", errors(&output));
    let output = put(&server, folder.path(), "/draft", &other);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
}

#[test]
fn an_offered_place_that_vanishes_is_told() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let output =
        put_with_offer(&server, folder.path(), "/draft-forgetting", &["--restart", "--answer"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert!(errors(&output).contains("no such upload any more"), "{}", errors(&output));
    let said = format!("PUT {} {}", sha256(&file()), file().len());
    assert_eq!(String::from_utf8_lossy(&output.stdout), said);

    let server = Server::start(&["localhost"], false);
    let output = put_with_offer(&server, folder.path(), "/draft-forgetting", &[]);
    assert_fails(&output, 33, "begin anew at the URL where it creates uploads");
    assert!(!errors(&output).contains("to send the rest"), "{}", errors(&output));
}
