//! The standalone gateway with a live stream, as a process.
#![allow(dead_code)] // every test uses a part of it

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that a test waits for an expected event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The gateway's program, which cargo builds beside the command.
pub(crate) fn program() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_BIN_EXE_packrat"));
    let program = built.with_file_name("packrat-gateway");
    assert!(program.exists(), "run `cargo build -p packrat-gateway` first");
    program
}

pub(crate) struct StreamGateway {
    process: Child,
    pub(crate) listen: SocketAddr,
    /// The address at which the stream arrives.
    pub(crate) stream: SocketAddr,
    pub(crate) metrics: SocketAddr,
}

impl StreamGateway {
    /// Starts the gateway with `command`, which may run the program in a namespace.
    pub(crate) fn start(command: &mut Command, listen: &str, options: &[&str]) -> Self {
        let stream: &[&str] =
            if options.contains(&"--stream") { &[] } else { &["--stream", "127.0.0.1:0"] };
        let process = command
            .args([
                "--listen",
                listen,
                "--metrics",
                "127.0.0.1:0",
                "--workers",
                "2",
                "--drain-seconds",
                "0",
            ])
            .args(stream)
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let nowhere: SocketAddr = ([127, 0, 0, 1], 0).into();
        // Ends with the test, even if it fails from here on.
        let mut started = Self { process, listen: nowhere, stream: nowhere, metrics: nowhere };
        let mut lines = BufReader::new(started.process.stdout.take().unwrap()).lines();
        let ready = lines
            .by_ref()
            .map(|line| serde_json::from_str::<serde_json::Value>(&line.unwrap()).unwrap())
            .find(|line| line["event"] == "ready")
            .expect("the gateway is ready");
        let address = |key: &str| -> SocketAddr {
            let text = ready[key].as_str();
            text.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no {key} in {ready}"))
        };
        started.listen = address("listen");
        started.stream = address("stream");
        started.metrics = address("metrics");
        // The thread reads the output, because the program blocks when the pipe is full.
        std::thread::spawn(move || lines.for_each(drop));
        started
    }

    /// A metric of the route.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let Ok(mut stream) = TcpStream::connect(self.metrics) else { return 0 };
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        let line =
            text.lines().find(|line| line.starts_with(name) && line[name.len()..].starts_with('{'));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
    }

    pub(crate) fn wait_for_subscribers(&self, count: u64) {
        let start = Instant::now();
        while self.metric("packrat_stream_subscribers") != count {
            assert!(start.elapsed() < PATIENCE, "there are not {count} subscribers");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for StreamGateway {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
