//! The last download from this machine, for the commands that use it.

use std::time::SystemTime;

use super::output::{age, bits, bytes, count, milliseconds, percent};
use crate::last_download::{self, LastDownload};

/// The last download of this user; prints an error if that cannot be known.
pub(super) fn last_download(command: &str) -> Option<LastDownload> {
    last_download::path().and_then(|path| {
        LastDownload::recall(&path).unwrap_or_else(|error| {
            eprintln!("packrat {command}: {error}");
            None
        })
    })
}

/// A line about it, for people.
pub(super) fn text(last: &LastDownload) -> String {
    text_at(last, SystemTime::now())
}

fn text_at(last: &LastDownload, now: SystemTime) -> String {
    let mut text = format!(
        "The last download from here, {} ago, from {}: {} at {}",
        age(last.age(now).as_secs_f64()),
        last.host,
        bytes(last.bytes as f64),
        bits(last.goodput_bits()),
    );
    let path = |name: &str, round_trip: Option<f64>| {
        let figures =
            [round_trip.map(milliseconds), last.loss_ratio.map(|loss| percent(loss) + " lost")];
        let known: Vec<String> = figures.into_iter().flatten().collect();
        if known.is_empty() { String::new() } else { format!("; {name} {}", known.join(", ")) }
    };
    if last.protocol != "h3" {
        text += &format!(", over TCP ({}), which no gateway assists", last.protocol);
    } else if last.assisted {
        text += ", assisted by a gateway";
        text += &path("last mile", last.last_mile_round_trip_seconds);
        let far = last.far_round_trip_seconds().map(milliseconds);
        text += &far.map(|far| format!("; far segment {far}")).unwrap_or_default();
        text += &format!(
            "; of {} holes {} were filled in time",
            count(last.holes as f64),
            count(last.filled_in_time as f64)
        );
    } else {
        text += ", without assistance";
        text += &path("the whole path", last.round_trip_seconds);
    }
    text + "."
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::Duration;

    fn said(more: Value) -> String {
        let mut memory = json!({
            "version": 1, "finished_unix_seconds": 1_800_000_000_u64, "host": "shop.example", "bytes": 25_000_000, "seconds": 10.0,
            "protocol": "h3", "assisted": false, "round_trip_seconds": null, "last_mile_round_trip_seconds": null,
            "loss_ratio": null, "holes": 0, "filled_in_time": 0,
        });
        memory.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_240);
        text_at(&serde_json::from_value(memory).unwrap(), now)
    }

    #[test]
    fn a_line_says_what_is_known_and_nothing_else() {
        let begin =
            "The last download from here, 4m00s ago, from shop.example: 23.8 MiB at 20.0 Mbit/s, ";
        let assisted = said(json!({
            "assisted": true, "round_trip_seconds": 0.064, "last_mile_round_trip_seconds": 0.004, "loss_ratio": 0.04,
            "holes": 800, "filled_in_time": 798,
        }));
        assert_eq!(
            assisted,
            format!(
                "{begin}assisted by a gateway; last mile 4.0 ms, 4.0% lost; far segment 60.0 ms; of 800 holes 798 were filled in time."
            )
        );
        assert_eq!(said(json!({})), format!("{begin}without assistance."));
        assert_eq!(
            said(json!({ "round_trip_seconds": 0.064, "loss_ratio": 0.001 })),
            format!("{begin}without assistance; the whole path 64.0 ms, 0.10% lost.")
        );
        assert_eq!(
            said(json!({ "protocol": "h2" })),
            format!("{begin}over TCP (h2), which no gateway assists.")
        );
    }
}
