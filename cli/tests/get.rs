//! `packrat get` as users run it: the real command against a real HTTP/3 server of another
//! implementation.

use packrat_real_envoy::free_port;
use serde_json::Value;
use server::tcp::TcpServer;
use server::{FILE_SIZE, Identity, STALL_AFTER, Server, file};
use sha2::{Digest, Sha256};
use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::server;

/// Generous: no test here depends on speed.
const PATIENCE: Duration = Duration::from_secs(60);

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_packrat"));
    command.current_dir(folder).arg("get").args(arguments);
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().unwrap()
}

fn get(server: &Server, folder: &Path, path: &str, arguments: &[&str]) -> Output {
    let authority = server.authority.to_str().unwrap();
    run(folder, &[&[&server.url(path), "--cacert", authority], arguments].concat())
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn assert_fails(output: &Output, code: i32, message: &str) {
    assert_eq!(output.status.code(), Some(code), "{}", errors(output));
    assert!(errors(output).contains(message), "{}", errors(output));
}

#[track_caller]
fn assert_empty(folder: &Path) {
    let left: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn sha256(data: &[u8]) -> String {
    packrat_wire::hexadecimal::encode(&Sha256::digest(data))
}

/// Waits until `condition` holds.
fn wait_for(mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "this never happened");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn part_of(folder: &Path) -> Option<u64> {
    fs::read_dir(folder).unwrap().flatten().find_map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        let is_part = name.starts_with(".stall.part") && !name.ends_with(".validator");
        is_part.then(|| entry.metadata().unwrap().len())
    })
}

fn signal(child: &Child, name: &str) {
    let status =
        Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn the_exit_code_says_the_same_where_no_one_reads_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut unread = command(folder.path(), &["https://"]);
    unread.stderr(std::io::pipe().unwrap().1);
    assert_eq!(unread.status().unwrap().code(), Some(3));
}

#[test]
fn a_file_arrives_whole_and_the_summary_says_so() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let output = get(&server, folder.path(), "/file", &[]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), file());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    let summary = errors(&output);
    assert!(summary.contains(&sha256(&file())) && summary.contains("3.0 MB"), "{summary}");
    assert!(summary.contains("no gateway on the path"), "{summary}");
    assert!(output.stdout.is_empty());

    let output = get(&server, folder.path(), "/file", &["-o", "-", "--silent", "--no-assist"]);
    assert_eq!(output.stdout, file());
    assert_eq!(errors(&output), "");
}

#[test]
fn json_reports_success_and_failure() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let output = get(&server, folder.path(), "/file", &["--json", "--silent", "-o", "named"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["bytes"], FILE_SIZE);
    assert_eq!(report["sha256"], sha256(&file()));
    assert_eq!(report["status"], 200);
    assert_eq!(report["error"], Value::Null);
    assert_eq!(report["assist"]["gateway"], false);
    assert!(
        report["seconds"].as_f64().unwrap() > 0.0 && report["goodput_mbps"].as_f64().unwrap() > 0.0
    );
    let ranges = report["received_packet_numbers"].as_array().unwrap();
    let packets: u64 = ranges
        .iter()
        .map(|range| range[1].as_u64().unwrap() - range[0].as_u64().unwrap() + 1)
        .sum();
    // No packet carries more than 1,500 bytes.
    assert!(packets as usize >= FILE_SIZE / 1500, "{packets}");

    let output = get(&server, folder.path(), "/file", &["--json", "--no-assist"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["assist"], Value::Null);

    let output = get(&server, folder.path(), "/nothing", &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["error"]["exit_code"], 22);
    assert_eq!(report["error"]["kind"], "status");
}

/// A limit is kept on any machine, however fast: it is the least time that is compared.
#[test]
fn a_limited_download_takes_the_bytes_at_its_rate() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let arguments = ["-o", "file", "--json", "--limit-rate", "2M"];
    let output = get(&server, folder.path(), "/file", &arguments);
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), file());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    // What came last was in flight when its time had come.
    let least = (FILE_SIZE as f64 / f64::from(2 << 20)) / 2.0;
    assert!(report["seconds"].as_f64().unwrap() >= least, "{report:#}");
    let output = get(&server, folder.path(), "/file", &["--limit-rate", "fast"]);
    assert_fails(&output, 2, "expected bytes per second");
}

#[test]
fn http_errors_leave_no_file() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    assert_fails(&get(&server, folder.path(), "/nothing", &[]), 22, "HTTP status 404");
    assert_fails(&get(&server, folder.path(), "/moved", &[]), 47, "/file");
    assert_fails(&get(&server, folder.path(), "/short", &[]), 18, "10 of 1000 bytes");
    assert_empty(folder.path());
}

#[test]
fn certificates_are_verified() {
    let folder = tempfile::tempdir().unwrap();
    let (server, stranger) =
        (Server::start(&["localhost"], false), Server::start(&["localhost"], false));
    let wrong = stranger.authority.to_str().unwrap();
    assert_fails(
        &run(folder.path(), &[&server.url("/file"), "--cacert", wrong]),
        60,
        "not a trusted authority",
    );

    let other = Server::start(&["other.example"], false);
    assert_fails(&get(&other, folder.path(), "/file", &[]), 60, "other.example");
    let expired = Server::start(&["localhost"], true);
    assert_fails(&get(&expired, folder.path(), "/file", &[]), 60, "expired");

    let missing = run(folder.path(), &[&server.url("/file"), "--cacert", "missing.pem"]);
    assert_fails(&missing, 77, "missing.pem");
    fs::write(folder.path().join("empty.pem"), "").unwrap();
    let empty = run(folder.path(), &[&server.url("/file"), "--cacert", "empty.pem"]);
    assert_fails(&empty, 77, "no certificate in it");
}

#[test]
fn connecting_elsewhere_keeps_the_expected_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&["files.example"], false);
    let place = server.address.to_string();
    let output = get(&server, folder.path(), "/file", &["--connect-to", &place]);
    assert_fails(&output, 60, "files.example");
    let authority = server.authority.to_str().unwrap();
    let url = "https://files.example/file";
    let output = run(folder.path(), &[url, "--connect-to", &place, "--cacert", authority]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
}

#[test]
fn unusable_urls_hosts_and_ports() {
    let folder = tempfile::tempdir().unwrap();
    assert_fails(&run(folder.path(), &["http://localhost/file"]), 1, "https://");
    assert_fails(&run(folder.path(), &["localhost/file"]), 3, "not a URL");
    assert_fails(
        &run(folder.path(), &["https://no-such-host.invalid/file"]),
        6,
        "no-such-host.invalid",
    );
    assert_fails(
        &run(folder.path(), &["https://localhost/", "--json", "-o", "-"]),
        2,
        "standard output",
    );

    let refused = run(folder.path(), &[&format!("https://127.0.0.1:{}/file", free_port())]);
    assert_fails(&refused, 7, "refused");

    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("https://127.0.0.1:{}/file", silent.local_addr().unwrap().port());
    assert_fails(&run(folder.path(), &[&url, "--connect-timeout", "0.7"]), 28, "--connect-timeout");
    assert_empty(folder.path());
}

#[test]
fn outputs_that_cannot_be_written() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let nowhere = folder.path().join("nowhere").join("file");
    let output = get(&server, folder.path(), "/file", &["-o", nowhere.to_str().unwrap()]);
    assert_fails(&output, 23, "create the folder first");
    assert_fails(&get(&server, folder.path(), "/file", &["-o", "."]), 23, "not a folder");
    assert_fails(
        &get(&server, folder.path(), "/file", &["-o", "/dev/full"]),
        23,
        "free some space",
    );
    std::os::unix::fs::symlink("/dev/full", folder.path().join("full")).unwrap();
    assert_fails(&get(&server, folder.path(), "/file", &["-o", "full"]), 23, "free some space");
    // procfs refuses new files, even to root.
    assert_fails(
        &get(&server, folder.path(), "/file", &["-o", "/proc/file"]),
        23,
        "cannot write /proc/file",
    );
}

#[test]
fn interrupted_and_terminated_downloads_leave_nothing() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let authority = server.authority.to_str().unwrap();
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let child = command(folder.path(), &[&server.url("/stall"), "--cacert", authority])
            .spawn()
            .unwrap();
        // The part is cut to its beginning when the response has begun; data stays in memory at
        // first.
        wait_for(|| part_of(folder.path()).is_some());
        std::thread::sleep(Duration::from_millis(200));
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        assert_fails(&output, code, "interrupted");
        assert_empty(folder.path());
    }
}

#[test]
fn the_time_limit_is_an_error_and_an_old_file_survives_it() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    fs::write(folder.path().join("stall"), "old").unwrap();
    assert_fails(&get(&server, folder.path(), "/stall", &["--max-time", "1"]), 28, "--max-time");
    assert_eq!(fs::read_to_string(folder.path().join("stall")).unwrap(), "old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_download_goes_on_where_it_stopped() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    // On a busy host the first limits may be too short for all that comes.
    let mut seconds = 1;
    loop {
        let limit = seconds.to_string();
        let output = get(&server, folder.path(), "/stall", &["--continue", "--max-time", &limit]);
        assert_fails(&output, 28, "--max-time");
        assert!(!folder.path().join("stall").exists());
        if part_of(folder.path()) == Some(STALL_AFTER as u64) {
            assert_fails(&output, 28, ".stall.part");
            break;
        }
        assert!(seconds < PATIENCE.as_secs(), "{}", errors(&output));
        for name in [".stall.part", ".stall.part.validator"] {
            // There may be none yet.
            let _ = fs::remove_file(folder.path().join(name));
        }
        seconds *= 2;
    }

    let output = get(&server, folder.path(), "/stall", &["--continue", "--json", "--silent"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["resumed_from"], STALL_AFTER);
    assert_eq!(report["bytes"], FILE_SIZE - STALL_AFTER);
    assert_eq!(report["sha256"], sha256(&file()), "of the whole file");
    assert_eq!(fs::read(folder.path().join("stall")).unwrap(), file());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "part and validator are gone");
}

#[test]
fn a_part_of_another_version_is_thrown_away() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    fs::write(folder.path().join(".file.part"), "something else").unwrap();
    fs::write(folder.path().join(".file.part.validator"), "\"zero\"").unwrap();
    let output = get(&server, folder.path(), "/file", &["-C"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), file());
}

#[test]
fn a_part_that_is_complete_takes_its_name() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    fs::write(folder.path().join(".file.part"), file()).unwrap();
    fs::write(folder.path().join(".file.part.validator"), "\"one\"").unwrap();
    let output = get(&server, folder.path(), "/file", &["-C", "--json", "--silent"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["bytes"], &report["resumed_from"]), (&0.into(), &FILE_SIZE.into()));
    assert_eq!(report["sha256"], sha256(&file()));
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), file());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "part and validator are gone");

    // A part longer than the file cannot be its beginning.
    fs::write(folder.path().join(".file.part"), [&file()[..], b"more"].concat()).unwrap();
    fs::write(folder.path().join(".file.part.validator"), "\"one\"").unwrap();
    assert_fails(&get(&server, folder.path(), "/file", &["-C"]), 33, "cannot resume");
}

/// A download from a server that has TCP, and UDP that leads nowhere; its report.
fn over_tcp(server: &TcpServer, identity: &Identity, folder: &Path, more: &[&str]) -> Output {
    let url = format!("https://localhost:{}/file", server.address.port());
    let authority = identity.authority.to_str().unwrap();
    // Of the name's addresses one has a server.
    let at = server.address.to_string();
    let arguments = [&url, "--cacert", authority, "--connect-to", &at, "--json", "--silent"];
    run(folder, &[&arguments, more].concat())
}

fn report(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", errors(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A network that lets no UDP through.
#[test]
fn where_udp_gives_nothing_the_file_comes_over_tcp() {
    let (identity, folder) = (Identity::new(&["localhost"], false), tempfile::tempdir().unwrap());
    let folder = folder.path();
    for protocol in ["h2", "http/1.1"] {
        // UDP is silent there.
        let port = free_port();
        let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let server = TcpServer::start(&identity, port, protocol, None);
        let told = report(&over_tcp(
            &server,
            &identity,
            folder,
            &["--connect-timeout", "8", "-o", "silent"],
        ));
        assert_eq!(told["protocol"], protocol);
        assert_eq!(told["bytes"], FILE_SIZE);
        assert_eq!(told["sha256"], sha256(&file()));
        assert_eq!(told["assist"], Value::Null);
        assert_eq!(fs::read(folder.join("silent")).unwrap(), file());
        // Nothing listens there any more: it is refused at once.
        drop(silent);
        let told = report(&over_tcp(&server, &identity, folder, &["-o", "refused"]));
        assert_eq!(told["protocol"], protocol);
        assert_eq!(told["bytes"], FILE_SIZE);

        let refused = over_tcp(&server, &identity, folder, &["--http3-only", "-o", "never"]);
        assert_eq!(refused.status.code(), Some(7), "{}", errors(&refused));
        assert!(!folder.join("never").exists());
    }
    // Bytes that have arrived before are not requested again.
    let server = TcpServer::start(&identity, free_port(), "h2", None);
    fs::write(folder.join(".rest.part"), &file()[..1000]).unwrap();
    fs::write(folder.join(".rest.part.validator"), "\"one\"").unwrap();
    let told = report(&over_tcp(&server, &identity, folder, &["-C", "-o", "rest"]));
    assert_eq!(told["resumed_from"], 1000);
    assert_eq!(told["sha256"], sha256(&file()));
    // A server with another identity than it claims also gives nothing over TCP.
    let stranger = Identity::new(&["localhost"], false);
    let output = over_tcp(&server, &stranger, folder, &["-o", "never"]);
    assert_eq!(output.status.code(), Some(60), "{}", errors(&output));
}

/// Finds HTTP/3 as browsers do: the gateway's port is another one than the URL's.
#[test]
fn http3_is_found_by_alt_svc() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let port = server.address.port();
    let alternative = Some(format!(r#"h3=":{port}"; ma=60"#));
    let tcp = TcpServer::start(&server.identity, free_port(), "h2", alternative);
    let told = report(&over_tcp(&tcp, &server.identity, folder.path(), &[]));
    assert_eq!(told["protocol"], "h3");
    assert_eq!(told["remote"], server.address.to_string());
    assert_eq!(told["sha256"], sha256(&file()));
    assert_eq!(told["assist"]["gateway"], false, "assistance was asked for there");

    // The announcement may be wrong: the existing answer counts.
    let alternative = Some(format!(r#"h3=":{}""#, free_port()));
    let tcp = TcpServer::start(&server.identity, free_port(), "h2", alternative);
    let told = report(&over_tcp(&tcp, &server.identity, folder.path(), &[]));
    assert_eq!(told["protocol"], "h2");
    assert_eq!(told["sha256"], sha256(&file()));
}
