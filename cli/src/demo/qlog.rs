//! The packets that the server declared lost, read from its qlog.
//!
//! quic-go writes JSON text sequences (RFC 7464: each record between a record separator and a line
//! feed), aioquic one JSON document. Both name the event `recovery:packet_lost`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::error::DemoError;

const RECORD_SEPARATOR: char = '\u{1e}';

/// The 1-RTT packet numbers that a server declared lost.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeclaredLost(BTreeSet<u64>);

impl DeclaredLost {
    /// Reads all qlogs in `folder`; `None` when there is none.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, DemoError> {
        let of_folder = |error| DemoError::read(folder, error);
        let mut lost = None;
        for entry in fs::read_dir(folder).map_err(of_folder)? {
            let file = entry.map_err(of_folder)?.path();
            let text = fs::read(&file).map_err(|error| DemoError::read(&file, error))?;
            lost.get_or_insert_with(Self::default).take_in(&String::from_utf8_lossy(&text));
        }
        Ok(lost)
    }

    /// Number of packets declared lost.
    pub(crate) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// Number of lost packets within `received`, ascending inclusive ranges of packet numbers: the
    /// spurious ones.
    pub(crate) fn count_within(&self, received: &[(u64, u64)]) -> u64 {
        received
            .iter()
            .filter(|(first, last)| first <= last)
            .map(|(first, last)| self.0.range(first..=last).count() as u64)
            .sum()
    }

    fn take_in(&mut self, text: &str) {
        if text.contains(RECORD_SEPARATOR) {
            // The last record is truncated if the server was killed; all others must be complete.
            for event in
                text.split(RECORD_SEPARATOR).filter_map(|record| serde_json::from_str(record).ok())
            {
                self.take_in_event(&event);
            }
        } else if let Ok(document) = serde_json::from_str::<Value>(text) {
            let traces = document.get("traces").and_then(Value::as_array).into_iter().flatten();
            for event in traces.filter_map(|trace| trace.get("events")?.as_array()).flatten() {
                self.take_in_event(event);
            }
        }
    }

    fn take_in_event(&mut self, event: &Value) {
        let name = event.get("name").and_then(Value::as_str).unwrap_or_default();
        // Later drafts of qlog name the same event in the namespace "quic".
        if name.rsplit(':').next() != Some("packet_lost") {
            return;
        }
        let data = event.get("data").unwrap_or(&Value::Null);
        let header = data.get("header").unwrap_or(data);
        let kind = header.get("packet_type").or_else(|| header.get("type")).and_then(Value::as_str);
        if let (Some("1RTT"), Some(number)) =
            (kind, header.get("packet_number").and_then(Value::as_u64))
        {
            self.0.insert(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_json_text_sequences() {
        let mut lost = DeclaredLost::default();
        lost.take_in(concat!(
            "\u{1e}{\"qlog_format\":\"JSON-SEQ\",\"trace\":{}}\n",
            "\u{1e}{\"time\":1.5,\"name\":\"recovery:packet_lost\",\"data\":{\"header\":{\"packet_type\":\"initial\",\"packet_number\":0}}}\n",
            "\u{1e}{\"time\":2.5,\"name\":\"recovery:packet_lost\",\"data\":{\"header\":{\"packet_type\":\"1RTT\",\"packet_number\":7},\"trigger\":\"reordering_threshold\"}}\n",
            "\u{1e}{\"time\":2.6,\"name\":\"transport:packet_sent\",\"data\":{\"header\":{\"packet_type\":\"1RTT\",\"packet_number\":8}}}\n",
            "\u{1e}{\"time\":3.5,\"name\":\"recovery:packet_lost\",\"data\":{\"header\":{\"packet_type\":\"1RTT\",\"packet_number\":12}}}\n",
            "\u{1e}{\"time\":4.5,\"name\":\"recovery:pack",
        ));
        assert_eq!(lost.count(), 2);
        assert_eq!(lost.count_within(&[(0, 6), (8, 100)]), 1);
        assert_eq!(lost.count_within(&[(0, u64::MAX)]), 2);
        assert_eq!(lost.count_within(&[]), 0);
    }

    #[test]
    fn reads_json_documents() {
        let mut lost = DeclaredLost::default();
        lost.take_in(
            r#"{"qlog_format":"JSON","traces":[{"events":[
                {"name":"recovery:packet_lost","data":{"type":"1RTT","packet_number":3},"time":1},
                {"name":"recovery:packet_lost","data":{"type":"handshake","packet_number":4},"time":1}]}]}"#,
        );
        assert_eq!(lost, DeclaredLost(BTreeSet::from([3])));
    }

    #[test]
    fn without_a_qlog_nothing_is_known() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(DeclaredLost::read(folder.path()).unwrap(), None);
    }
}
