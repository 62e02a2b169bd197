//! The memory of a download's findings about its path, for `packrat stat` and `packrat plan`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::http3::{Report, Request};
use crate::last_download::{FILE_VERSION, LastDownload, path};

/// The file that was not written.
#[derive(Debug, thiserror::Error)]
#[error("this download is not remembered for `packrat plan`: {path} cannot be written: {source}")]
pub(super) struct NotRemembered {
    path: PathBuf,
    source: io::Error,
}

/// Remembers the findings of a download from `url`, if there is a folder for them.
pub(super) fn remember(url: &str, report: &Report) -> Result<(), NotRemembered> {
    let (Some(path), Ok(request)) = (path(), Request::new(url)) else { return Ok(()) };
    // The URL has one, or there would be no report.
    let host = request.url.host_str().unwrap_or_default();
    let host = match request.url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    write(&findings(report, host, SystemTime::now()), &path)
}

/// The findings of a download. `host`: of its URL.
fn findings(report: &Report, host: String, now: SystemTime) -> LastDownload {
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let assist = report.assist.as_ref().filter(|stats| stats.assist.sessions > 0);
    let assist = assist.map(|stats| &stats.assist);
    let loss_ratio = match assist {
        Some(assist) => {
            let filled = assist.filled_in_time + assist.filled_late;
            let arrived = assist.datagrams.saturating_sub(assist.duplicates);
            ratio(assist.holes, arrived + assist.holes.saturating_sub(filled))
        }
        None => loss_of(&report.connection.received_packet_numbers),
    };
    LastDownload {
        version: FILE_VERSION,
        finished_unix_seconds: since_1970.as_secs(),
        host,
        bytes: report.bytes,
        seconds: report.seconds(),
        protocol: report.protocol.to_owned(),
        assisted: assist.is_some(),
        round_trip_seconds: report.connection.round_trip.map(|time| time.as_secs_f64()),
        last_mile_round_trip_seconds: assist
            .and_then(|assist| assist.round_trip)
            .map(|time| time.as_secs_f64()),
        loss_ratio,
        holes: assist.map_or(0, |assist| assist.holes),
        filled_in_time: assist.map_or(0, |assist| assist.filled_in_time),
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64).min(1.0))
}

/// Share of packet numbers up to the last that did not arrive.
fn loss_of(received: &[(u64, u64)]) -> Option<f64> {
    let (first, last) = (received.first()?.0, received.last()?.1);
    let arrived: u64 = received.iter().map(|(from, to)| to - from + 1).sum();
    let sent = last.checked_sub(first)? + 1;
    ratio(sent.saturating_sub(arrived), sent)
}

/// A reader finds the file as it was or as it is, also when two downloads end at once.
fn write(memory: &LastDownload, path: &Path) -> Result<(), NotRemembered> {
    write_atomically(memory, path).map_err(|source| NotRemembered { path: path.to_owned(), source })
}

fn write_atomically(memory: &LastDownload, path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    // Only its owner may read it.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer_pretty(&mut file, memory)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::last_download::tests::memory;

    #[test]
    fn remembered_values_are_recalled_and_others_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("states/packrat/last-download.json");
        assert_eq!(LastDownload::recall(&path).unwrap(), None);
        write(&memory(), &path).unwrap();
        write(&memory(), &path).unwrap();
        assert_eq!(LastDownload::recall(&path).unwrap(), Some(memory()));
        let said = |text: &str| {
            std::fs::write(&path, text).unwrap();
            LastDownload::recall(&path).unwrap_err().to_string()
        };
        assert!(said("{").contains("is damaged, or of another version"));
        let newer = LastDownload { version: 2, ..memory() };
        assert!(said(&serde_json::to_string(&newer).unwrap()).contains("version 2 instead of 1"));
        let absurd = LastDownload { loss_ratio: Some(1.5), ..memory() };
        assert!(said(&serde_json::to_string(&absurd).unwrap()).contains("out of its range"));
        // The next download writes it anew, unless it cannot.
        write(&memory(), &path).unwrap();
        assert_eq!(LastDownload::recall(&path).unwrap(), Some(memory()));
        let error = write(&memory(), &path.join("below-a-file")).unwrap_err().to_string();
        assert!(error.contains("not remembered") && error.contains("below-a-file"), "{error}");
    }

    #[test]
    fn packet_numbers_that_did_not_arrive_are_lost() {
        assert_eq!(loss_of(&[]), None);
        assert_eq!(loss_of(&[(0, 99)]), Some(0.0));
        assert_eq!(loss_of(&[(0, 49), (60, 99)]), Some(0.1));
    }
}
