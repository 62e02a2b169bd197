//! The program as a process, with its output and signals.
#![allow(dead_code)] // every test uses a part of it

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest time that a test waits for an expected event: it only ends a test that would never end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The program: of this build, or the one that `tools/sanitize` names.
fn path() -> PathBuf {
    let built = || env!("CARGO_BIN_EXE_packrat-gateway").into();
    std::env::var_os("PACKRAT_TEST_GATEWAY").map_or_else(built, PathBuf::from)
}

/// The running program; killed when it is dropped.
pub(crate) struct Program {
    pub(crate) process: Child,
    output: Option<BufReader<ChildStdout>>,
    /// Reads the rest of the output.
    reader: Option<JoinHandle<u64>>,
}

impl Program {
    /// Starts the program with these arguments, which have spaces in between.
    pub(crate) fn start(arguments: &str) -> Self {
        Self::spawn(Command::new(path()).args(arguments.split(' ')))
    }

    /// Starts the program with a limit of open files that it cannot raise.
    pub(crate) fn start_with_descriptors(descriptors: usize, arguments: &str) -> Self {
        let script = format!("ulimit -n {descriptors} && exec \"$0\" {arguments}");
        Self::spawn(Command::new("sh").args(["-c", &script]).arg(path()))
    }

    fn spawn(command: &mut Command) -> Self {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = process.stdout.take().map(BufReader::new);
        Self { process, output, reader: None }
    }

    /// Reads lines until `event`.
    pub(crate) fn line(&mut self, event: &str) -> Value {
        loop {
            let mut line = String::new();
            let output = self.output.as_mut().expect("the output was not taken");
            assert!(output.read_line(&mut line).unwrap() > 0, "the output ended before {event}");
            let line: Value = serde_json::from_str(&line).expect("a JSON object in every line");
            assert!(line["ts"].is_string() && line["level"].is_string());
            if line["event"] == event {
                return line;
            }
        }
    }

    /// Reads lines until the program is ready, and the rest beside the test: the program blocks when
    /// the pipe is full.
    pub(crate) fn ready(&mut self) -> Value {
        let ready = self.line("ready");
        let mut log = self.output.take().unwrap();
        let read = move || std::io::copy(&mut log, &mut std::io::sink()).unwrap();
        self.reader = Some(std::thread::spawn(read));
        ready
    }

    /// Waits for the end of a program that has been ready, which must have said more since.
    pub(crate) fn assert_end(&mut self) {
        assert_eq!(self.wait(), Some(0));
        assert!(self.reader.take().unwrap().join().unwrap() > 0);
    }

    pub(crate) fn wait(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "the program does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent =
            Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A socket that waits for as long as a test does.
pub(crate) fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// A file with this route.
pub(crate) fn file(route: &str) -> tempfile::TempPath {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), route).unwrap();
    file.into_temp_path()
}

/// Waits until `condition` holds.
pub(crate) fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The answer of the metrics server.
pub(crate) fn get(address: &Value, path: &str) -> String {
    let mut stream = TcpStream::connect(address.as_str().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The sum of a metric's series; the name may be followed by labels, all in one brace.
pub(crate) fn metric(address: &Value, name: &str) -> u64 {
    let (name, labels) = name.split_once('{').unwrap_or((name, ""));
    let metrics = get(address, "/metrics");
    let is_meant =
        |line: &&str| line.starts_with(&format!("packrat_{name}{{")) && line.contains(labels);
    let value = |line: &str| line.rsplit(' ').next()?.parse::<u64>().ok();
    let values: Vec<u64> = metrics.lines().filter(is_meant).filter_map(value).collect();
    assert!(!values.is_empty(), "{name}");
    values.iter().sum()
}
