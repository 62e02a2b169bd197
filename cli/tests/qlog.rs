//! `packrat get --qlog`: the file after a download through a gateway and over a last mile that
//! loses datagrams.

use lossy_path::LossyPath;
use serde_json::{Value, json};
use server::{Server, file};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::lossy_path;
use crate::server;

fn get(server: &Server, folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_packrat"))
        .current_dir(folder)
        .env("XDG_STATE_HOME", folder)
        .args(["get", &server.url("/file"), "--cacert", server.authority.to_str().unwrap()])
        .args(["--qlog", "trace.sqlog", "--json", "--silent"])
        .args(arguments)
        .output()
        .unwrap()
}

/// The records of a JSON text sequence (RFC 7464).
fn records(path: &Path) -> Vec<Value> {
    let text = fs::read(path).unwrap();
    let mut records = text.split(|byte| *byte == 0x1e);
    assert_eq!(records.next(), Some(&[][..]), "a record begins with a separator");
    let parse = |record: &[u8]| {
        assert!(record.ends_with(b"\n"), "a record ends with a line feed");
        serde_json::from_slice(record).unwrap()
    };
    records.map(parse).collect()
}

/// Checks the fields that the main schema and qvis require of a file of version 0.3, and returns
/// name and data of its events.
fn events(path: &Path) -> Vec<(String, Value)> {
    let records = records(path);
    let (head, events) = records.split_first().unwrap();
    assert_eq!((&head["qlog_version"], &head["qlog_format"]), (&json!("0.3"), &json!("JSON-SEQ")));
    let trace = &head["trace"];
    assert_eq!(trace["vantage_point"]["type"], "client");
    assert_eq!(trace["common_fields"]["time_format"], "relative");
    assert!(trace["common_fields"]["reference_time"].as_f64().unwrap() > 1e12, "{trace}");
    assert!(trace["common_fields"]["protocol_type"].as_array().unwrap().contains(&json!("QUIC")));
    assert_eq!(trace["title"], "localhost/file", "neither query nor credentials");

    let mut before = 0.0;
    let read = |event: &Value| {
        let keys: Vec<&String> = event.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["time", "name", "data"]);
        let time = event["time"].as_f64().unwrap();
        assert!(time >= before, "{time} ms comes after {before} ms: {event}");
        before = time;
        let name = event["name"].as_str().unwrap();
        assert_eq!(name.split(':').count(), 2, "{name}");
        let data = &event["data"];
        assert!(data.is_object(), "{event}");
        if matches!(name, "transport:packet_sent" | "transport:packet_received") {
            assert!(data["header"]["packet_type"].is_string(), "{event}");
            assert!(data["raw"]["length"].as_u64().unwrap() > 0, "{event}");
            // RFC 9000, section 12.4: no packet is without a frame.
            assert!(!data["frames"].as_array().unwrap().is_empty(), "{event}");
            for frame in data["frames"].as_array().unwrap() {
                assert!(frame["frame_type"].is_string(), "{event}");
            }
        }
        (name.to_owned(), data.clone())
    };
    events.iter().map(read).collect()
}

fn named<'a>(events: &'a [(String, Value)], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|(event, _)| event == name).map(|(_, data)| data).collect()
}

#[test]
fn a_qlog_tells_what_became_of_each_hole() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    let path = LossyPath::to(server.address);

    let connect_to = path.address();
    let output = get(&server, folder.path(), &["--connect-to", &connect_to, "-o", "downloaded"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read(folder.path().join("downloaded")).unwrap(), file());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let events = events(&folder.path().join("trace.sqlog"));

    // QUIC, as every viewer knows it.
    let numbers: BTreeSet<u64> = named(&events, "transport:packet_received")
        .iter()
        .filter(|data| data["header"]["packet_type"] == "1RTT")
        .map(|data| data["header"]["packet_number"].as_u64().unwrap())
        .collect();
    let reported = report["received_packet_numbers"].as_array().unwrap().iter();
    let reported: BTreeSet<u64> = reported
        .flat_map(|range| range[0].as_u64().unwrap()..=range[1].as_u64().unwrap())
        .collect();
    assert_eq!(numbers.intersection(&reported).count(), reported.len());
    assert!(!named(&events, "transport:packet_sent").is_empty());
    assert!(named(&events, "recovery:metrics_updated").iter().all(|data| {
        data["smoothed_rtt"].as_f64().unwrap() > 0.0 && data["congestion_window"].is_u64()
    }));
    assert_eq!(named(&events, "connectivity:connection_closed").len(), 1);

    // Assistance: every missing packet that arrived was in a hole that had been opened.
    let assist = &report["assist"];
    let count = |key: &str| assist[key].as_u64().unwrap_or_else(|| panic!("no {key}: {assist}"));
    let mut missing: BTreeMap<u64, &Value> = BTreeMap::new();
    for hole in named(&events, "packrat:hole_opened") {
        let (first, last) = (hole["first"].as_u64().unwrap(), hole["last"].as_u64().unwrap());
        missing.extend((first..=last).map(|number| (number, &hole["not_held"])));
    }
    let arrived = named(&events, "packrat:missing_arrived");
    let in_time = arrived.iter().filter(|data| data["held"] == true).count() as u64;
    // The report is made a moment before the connection ends.
    assert!(missing.len() as u64 >= count("holes"), "{} {assist}", missing.len());
    assert!(in_time >= count("filled_in_time"), "{in_time} {assist}");
    assert!(in_time > 0, "nothing was repaired: {assist}");
    for data in arrived {
        let number = data["packet_number"].as_u64().unwrap();
        let not_held = missing[&number];
        assert!(not_held.is_null() || not_held.is_string(), "{not_held}");
        assert!(data["after_microseconds"].is_u64());
    }
    assert_eq!(named(&events, "packrat:session_opened").len(), 1);
    assert!(named(&events, "packrat:eack_sent").len() as u64 >= count("eacks"));
    let kept = named(&events, "packrat:datagram_kept").len() as u64;
    assert!(count("kept") > 0 && kept >= count("kept"), "{kept} {assist}");
    assert!(count("numbered") > 0, "{assist}");
    let recovered = named(&events, "packrat:datagram_recovered").len() as u64;
    assert!(recovered >= count("recovered"), "{recovered} {assist}");
    assert_eq!(named(&events, "packrat:session_closed")[0]["reason"], "done");
}

#[test]
fn a_qlog_that_cannot_be_written_is_an_error_of_its_own() {
    let (server, folder) = (Server::start(&["localhost"], false), tempfile::tempdir().unwrap());
    fs::create_dir(folder.path().join("trace.sqlog")).unwrap();
    let output = get(&server, folder.path(), &[]);
    assert_eq!(output.status.code(), Some(23), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("trace.sqlog"));
}
