//! A download by a client outside, as the client sees it: bytes, checksum, and the longest stall.

use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use packrat_wire::hexadecimal;
use sha2::{Digest, Sha256};

use crate::command::{Background, Failure, Outcome, Prefix, last_lines};

/// Seconds over which goodput is averaged.
pub(crate) const WINDOW_SECONDS: usize = 5;

/// The parameters of a download.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// `https://name/path`.
    pub(crate) url: String,
    /// The address to which the client connects: `address:port`.
    pub(crate) connect_to: String,
    /// Further options of `packrat get`.
    pub(crate) options: Vec<String>,
    /// Longest time until the connection is established.
    pub(crate) connect_limit: Duration,
    /// Longest time for the whole download.
    pub(crate) limit: Duration,
    /// Bytes per second that the client reads, to make downloads last; `None`: without limit.
    pub(crate) pace: Option<u64>,
}

/// The result of a download.
#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    /// Bytes that arrived.
    pub(crate) bytes: u64,
    /// SHA-256 of them, in hexadecimal.
    pub(crate) sha256: String,
    /// Time from the start of the command to its end.
    pub(crate) time: Duration,
    /// Longest time between the arrival of two parts.
    pub(crate) stall: Duration,
    /// Bytes that arrived in each second after the first byte.
    pub(crate) seconds: Vec<u64>,
    /// True if `packrat get` succeeded.
    pub(crate) success: bool,
    /// The summary that `packrat get` printed.
    pub(crate) summary: String,
}

impl Transfer {
    /// Bytes per second of the whole command, in Mbit/s.
    pub(crate) fn goodput(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.time.as_secs_f64()
    }

    /// The goodput of each [`WINDOW_SECONDS`] that the download fills, one for each second, in Mbit/s. The
    /// first second belongs to the transport's start.
    pub(crate) fn windows(&self) -> Vec<f64> {
        let full = self.seconds.split_last().map_or(&[][..], |(_, full)| full);
        let settled = full.get(1..).unwrap_or_default();
        let goodput =
            |bytes: &[u64]| bytes.iter().sum::<u64>() as f64 * 8e-6 / WINDOW_SECONDS as f64;
        settled.windows(WINDOW_SECONDS).map(goodput).collect()
    }

    /// Datagrams that the gateway repaired; `None` without assistance.
    pub(crate) fn repaired(&self) -> Option<u64> {
        let (_, rest) = self.summary.split_once("the gateway repaired ")?;
        rest.split_whitespace().next()?.parse().ok()
    }

    /// The summary's line about assistance.
    pub(crate) fn assistance(&self) -> &str {
        self.summary
            .lines()
            .find_map(|line| line.strip_prefix("assistance: "))
            .unwrap_or("not reported")
    }

    /// Fails unless the whole file arrived intact.
    pub(crate) fn expect(&self, sha256: &str) -> Outcome {
        if !self.success {
            return Err(Failure(format!(
                "the download failed after {} bytes in {:.1} s: {}",
                self.bytes,
                self.time.as_secs_f64(),
                last_lines(&self.summary)
            )));
        }
        if self.sha256 != sha256 {
            return Err(Failure(format!(
                "sha256 {} instead of {sha256}, {} bytes",
                self.sha256, self.bytes
            )));
        }
        Ok(())
    }
}

/// Uploads `file` as the client outside, with `packrat put`; returns the SHA-256 of the server's answer,
/// in hexadecimal, and the summary.
///
/// # Errors
/// The command fails.
pub(crate) fn upload(
    client: &Prefix,
    packrat: &Path,
    authority: &Path,
    file: &Path,
    request: &Request,
) -> Outcome<(String, String)> {
    let output = client
        .then([packrat.to_string_lossy().into_owned()])
        .command(["put", "--answer", "--connect-to", &request.connect_to, "--max-time"])
        .arg(request.limit.as_secs().to_string())
        .arg("--cacert")
        .arg(authority)
        .args(&request.options)
        .arg(file)
        .arg(&request.url)
        .output()?;
    let summary = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(Failure(format!("the upload failed: {}", last_lines(&summary))));
    }
    Ok((hexadecimal::encode(&Sha256::digest(&output.stdout)), summary))
}

/// Bytes, checksum, the longest stall, and the bytes of each second.
type Arrivals = (u64, String, Duration, Vec<u64>);

/// A download in progress.
pub(crate) struct Download {
    program: Background,
    arrived: Arc<AtomicU64>,
    reader: JoinHandle<Arrivals>,
    complaints: JoinHandle<String>,
    started: Instant,
}

/// Reads a body to its end, not faster than `pace` bytes per second.
fn read(mut body: impl Read, counter: &AtomicU64, pace: Option<u64>) -> Arrivals {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    let (mut bytes, mut stall, mut last) = (0, Duration::ZERO, None);
    let (mut first, mut seconds) = (None, Vec::new());
    while let Ok(length @ 1..) = body.read(&mut buffer) {
        let now = Instant::now();
        // The time before the first byte is the handshake's.
        stall = last.map_or(stall, |last| stall.max(now - last));
        last = Some(now);
        digest.update(&buffer[..length]);
        bytes += length as u64;
        let second = (now - *first.get_or_insert(now)).as_secs() as usize;
        seconds.resize(seconds.len().max(second + 1), 0);
        if let Some(count) = seconds.get_mut(second) {
            *count += length as u64;
        }
        counter.store(bytes, Ordering::Relaxed);
        if let Some(pace) = pace {
            // Meanwhile the pipe is full, and flow control slows the server down.
            thread::sleep(Duration::from_secs_f64(length as f64 / pace as f64));
        }
    }
    (bytes, hexadecimal::encode(&digest.finalize()), stall, seconds)
}

impl Download {
    /// Starts `packrat get` as the client outside.
    ///
    /// # Errors
    /// The command cannot be started.
    pub(crate) fn start(
        client: &Prefix,
        packrat: &Path,
        authority: &Path,
        request: &Request,
    ) -> Outcome<Self> {
        let limit = request.limit.as_secs().to_string();
        let mut child = client
            .then([packrat.to_string_lossy().into_owned()])
            .command(["get", "-o", "-", "--connect-to", &request.connect_to, "--max-time", &limit])
            .args([
                "--connect-timeout",
                &request.limit.min(request.connect_limit).as_secs().to_string(),
                "--cacert",
            ])
            .arg(authority)
            .args(&request.options)
            .arg(&request.url)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (Some(body), Some(mut standard_error)) = (child.stdout.take(), child.stderr.take())
        else {
            return Err(Failure::new("packrat get has no pipes"));
        };
        let arrived = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&arrived);
        let pace = request.pace;
        let reader = thread::spawn(move || read(body, &counter, pace));
        let complaints = thread::spawn(move || {
            let mut text = String::new();
            let _ = standard_error.read_to_string(&mut text);
            text
        });
        Ok(Self {
            program: Background(child),
            arrived,
            reader,
            complaints,
            started: Instant::now(),
        })
    }

    /// Waits until `bytes` have arrived.
    ///
    /// # Errors
    /// The download ends before.
    pub(crate) fn wait_for(&mut self, bytes: u64) -> Outcome {
        while self.arrived.load(Ordering::Relaxed) < bytes {
            if let Some(status) = self.program.0.try_wait()? {
                return Err(Failure(format!(
                    "the download ended early ({status}), after {} bytes",
                    self.arrived.load(Ordering::Relaxed)
                )));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// True if it has ended.
    pub(crate) fn ended(&mut self) -> Outcome<bool> {
        Ok(self.program.0.try_wait()?.is_some())
    }

    /// Waits for the end.
    pub(crate) fn finish(mut self) -> Outcome<Transfer> {
        let status = self.program.0.wait()?;
        let time = self.started.elapsed();
        let broken = |_| Failure::new("a thread that read the download broke");
        let (bytes, sha256, stall, seconds) = self.reader.join().map_err(broken)?;
        let summary = self.complaints.join().map_err(broken)?;
        Ok(Transfer { bytes, sha256, time, stall, seconds, success: status.success(), summary })
    }
}
