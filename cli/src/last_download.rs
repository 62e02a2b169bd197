//! The memory of the last `packrat get` of this user: what it has found out about its path, for
//! `packrat stat` and `packrat plan`. One file, without the path and the query of the URL.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// Version of the file.
pub(crate) const FILE_VERSION: u32 = 1;

/// A download and its path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LastDownload {
    pub(crate) version: u32,
    /// Seconds since 1970 when it was over.
    pub(crate) finished_unix_seconds: u64,
    /// Host, and port unless it is the usual one, of the URL.
    pub(crate) host: String,
    /// Bytes of the body that arrived.
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// `h3`, or the protocol over TCP.
    pub(crate) protocol: String,
    /// True if a gateway has assisted.
    pub(crate) assisted: bool,
    /// Smallest round trip between client and server.
    pub(crate) round_trip_seconds: Option<f64>,
    /// Round trip between client and gateway.
    pub(crate) last_mile_round_trip_seconds: Option<f64>,
    /// Loss between gateway and client if it was assisted, else of the whole path.
    pub(crate) loss_ratio: Option<f64>,
    /// Missing datagrams, and how many of them came before the server noticed.
    pub(crate) holes: u64,
    pub(crate) filled_in_time: u64,
}

/// Why the memory is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    /// The file is not read.
    #[error("the last download is not known: {path} cannot be read: {source}")]
    Read { path: PathBuf, source: io::Error },
    /// The file has another form.
    #[error(
        "the last download is not known: {path} is damaged, or of another version ({problem}); the next `packrat get` writes it anew"
    )]
    Form { path: PathBuf, problem: String },
}

impl LastDownload {
    /// Round trip between server and gateway: what the last mile leaves of the whole.
    pub(crate) fn far_round_trip_seconds(&self) -> Option<f64> {
        let (whole, last_mile) = self.round_trip_seconds.zip(self.last_mile_round_trip_seconds)?;
        Some((whole - last_mile).max(MINIMUM_ROUND_TRIP))
    }

    /// The loss between gateway and client.
    pub(crate) fn last_mile_loss(&self) -> Option<f64> {
        self.loss_ratio.filter(|_| self.assisted)
    }

    /// Goodput in bits per second.
    pub(crate) fn goodput_bits(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8.0 / self.seconds } else { 0.0 }
    }

    /// Time since it was over.
    pub(crate) fn age(&self, now: SystemTime) -> Duration {
        let finished = SystemTime::UNIX_EPOCH + Duration::from_secs(self.finished_unix_seconds);
        now.duration_since(finished).unwrap_or_default()
    }

    /// The download that is remembered, if one is.
    pub(crate) fn recall(path: &Path) -> Result<Option<Self>, MemoryError> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(MemoryError::Read { path: path.to_owned(), source }),
        };
        let wrong = |problem: String| MemoryError::Form { path: path.to_owned(), problem };
        let found: Self =
            serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        if found.version != FILE_VERSION {
            return Err(wrong(format!("version {} instead of {FILE_VERSION}", found.version)));
        }
        if !found.is_plausible() {
            return Err(wrong("a figure is out of its range".to_owned()));
        }
        Ok(Some(found))
    }

    fn is_plausible(&self) -> bool {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let times = [self.round_trip_seconds, self.last_mile_round_trip_seconds];
        times.into_iter().flatten().all(positive)
            && self.loss_ratio.is_none_or(|loss| (0.0..=1.0).contains(&loss))
            && self.seconds.is_finite()
            && self.seconds >= 0.0
    }
}

/// No far segment is shorter: gateway and server on one machine.
const MINIMUM_ROUND_TRIP: f64 = 1e-4;

/// Path of the memory: in the user's folder of states (XDG Base Directory Specification). `None` if
/// there is no such folder.
pub(crate) fn path() -> Option<PathBuf> {
    path_in(|name| std::env::var_os(name).map(PathBuf::from))
}

fn path_in(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    let states = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(states.join("packrat/last-download.json"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn memory() -> LastDownload {
        LastDownload {
            version: FILE_VERSION,
            finished_unix_seconds: 1_800_000_000,
            host: "shop.example".to_owned(),
            bytes: 25_000_000,
            seconds: 10.0,
            protocol: "h3".to_owned(),
            assisted: true,
            round_trip_seconds: Some(0.065),
            last_mile_round_trip_seconds: Some(0.005),
            loss_ratio: Some(0.04),
            holes: 800,
            filled_in_time: 798,
        }
    }

    #[test]
    fn the_far_segment_is_what_the_last_mile_leaves() {
        assert!((memory().far_round_trip_seconds().unwrap() - 0.06).abs() < 1e-9);
        let near = LastDownload { round_trip_seconds: Some(0.004), ..memory() };
        assert_eq!(near.far_round_trip_seconds(), Some(MINIMUM_ROUND_TRIP));
        let alone =
            LastDownload { assisted: false, last_mile_round_trip_seconds: None, ..memory() };
        assert_eq!((alone.far_round_trip_seconds(), alone.last_mile_loss()), (None, None));
    }

    #[test]
    fn the_file_is_in_the_users_folder_of_states() {
        let place = |states: Option<&str>, home: Option<&str>| {
            path_in(|name| match name {
                "HOME" => home.map(PathBuf::from),
                _ => states.map(PathBuf::from),
            })
        };
        let own = Some(PathBuf::from("/states/packrat/last-download.json"));
        assert_eq!(place(Some("/states"), Some("/home/me")), own);
        let usual = Some(PathBuf::from("/home/me/.local/state/packrat/last-download.json"));
        // Relative paths do not count.
        assert_eq!(place(Some("states"), Some("/home/me")), usual);
        assert_eq!(place(None, None), None);
    }
}
