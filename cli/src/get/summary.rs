//! What `packrat get` says at the end.

use super::report::Report;
use packrat_s2n_quic::AssistanceStats;
use serde_json::{Value, json};

/// For people, on the standard error.
pub(crate) fn text(report: &Report, target: &str) -> String {
    let mut text = format!(
        "{target}: {} in {:.3} s ({:.2} Mbit/s), connected in {:.3} s to {}\nsha256 {}",
        bytes(report.bytes),
        report.seconds(),
        report.goodput_mbps(),
        report.connect_time.as_secs_f64(),
        report.remote,
        report.sha256,
    );
    if report.resumed_from > 0 {
        text += &format!("\nresumed after {}", bytes(report.resumed_from));
    }
    text += "\nassistance: ";
    text += &assistance(report.assist.as_ref());
    text
}

fn assistance(stats: Option<&AssistanceStats>) -> String {
    match stats {
        None => "off".to_owned(),
        Some(stats) if stats.failed => {
            "broke down; the download went on without it (please report this)".to_owned()
        }
        Some(stats) if stats.control_datagrams_received == 0 => "no gateway on the path".to_owned(),
        Some(stats) => format!(
            "{} of eACKs sent, {} acknowledgements shaped, {} forced",
            bytes(stats.assist.eack_bytes),
            stats.packets_rewritten,
            stats.acks_forced
        ),
    }
}

fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} bytes"),
        1_000..1_000_000 => format!("{:.1} KB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}

/// For machines: a finished download.
pub(crate) fn json(url: &str, report: &Report, target: &str) -> Value {
    json!({
        "url": url,
        "output": target,
        "remote": report.remote.to_string(),
        "status": report.status,
        "bytes": report.bytes,
        "expected_bytes": report.expected_bytes,
        "resumed_from": report.resumed_from,
        "partial": report.partial,
        "connect_seconds": report.connect_time.as_secs_f64(),
        "seconds": report.seconds(),
        "goodput_mbps": report.goodput_mbps(),
        "sha256": report.sha256,
        "assist": report.assist.as_ref().map(json_assistance),
        "received_packet_numbers": report.received_packet_numbers,
        "error": null,
    })
}

fn json_assistance(stats: &AssistanceStats) -> Value {
    json!({
        "gateway": stats.control_datagrams_received > 0,
        "failed": stats.failed,
        "eack_bytes": stats.assist.eack_bytes,
        "base_datagrams_received": stats.base_datagrams_received,
        "control_datagrams_received": stats.control_datagrams_received,
        "control_datagrams_sent": stats.control_datagrams_sent,
        "control_send_failures": stats.control_send_failures,
        "packets_rewritten": stats.packets_rewritten,
        "acks_forced": stats.acks_forced,
    })
}

/// For machines: a download that failed.
pub(crate) fn json_error(url: &str, exit_code: u8, kind: &str, message: &str) -> Value {
    json!({ "url": url, "error": { "exit_code": exit_code, "kind": kind, "message": message } })
}
