//! The receiver: writes units in order and at their time, and prints statistics each second.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use packrat_media::udp::UdpReceiver;
use packrat_media::{Assistance, Counts, MediaKey, ReceiverConfig, Statistics};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use super::send::SOURCE;

const EVERY: Duration = Duration::from_secs(1);

pub(crate) struct Settings {
    /// The sender, or the gateway in front of it.
    pub(crate) peer: SocketAddr,
    pub(crate) secret: [u8; 32],
    /// Time from sending to writing, beyond the quickest packet's travel.
    pub(crate) latency: Duration,
    /// True if a gateway on the path is asked for repairs.
    pub(crate) assisted: bool,
}

/// Writes the stream until it ends; `say` gets a line each second.
pub(crate) async fn run(
    settings: Settings,
    output: &mut (impl AsyncWrite + Unpin),
    mut say: impl FnMut(&str),
) -> io::Result<Statistics> {
    let config = ReceiverConfig { latency: settings.latency, ..ReceiverConfig::default() };
    let assistance = settings.assisted.then(Assistance::default);
    let key = MediaKey::new(settings.secret);
    let mut receiver =
        UdpReceiver::connect(settings.peer, SOURCE, config, key, assistance.as_ref()).await?;
    let mut next = Instant::now() + EVERY;
    loop {
        match timeout_at(next, receiver.next()).await {
            Ok(unit) => {
                let unit = unit?;
                if unit.bytes.is_empty() {
                    break;
                }
                output.write_all(&unit.bytes).await?;
            }
            Err(_) => {
                next += EVERY;
                let statistics = receiver.take_statistics();
                say(&line(&statistics.interval, &statistics));
            }
        }
    }
    output.flush().await?;
    let statistics = receiver.take_statistics();
    receiver.close().await?;
    Ok(statistics)
}

/// A line of statistics, with SRT's terms in brackets.
pub(crate) fn line(counts: &Counts, now: &Statistics) -> String {
    let round_trip =
        now.round_trip.map_or("-".to_owned(), |time| format!("{:.0} ms", time.as_secs_f64() * 1e3));
    format!(
        "packets {} (pktRecv), lost {} (pktRcvLoss), repaired by the gateway {}, by the sender {} (pktRcvRetrans), belated {} (pktRcvBelated), \
         dropped {} (pktRcvDrop), {:.2} Mbit/s (mbpsRecvRate), round trip {round_trip} (msRTT), buffered {} ms (msRcvBuf)",
        counts.packets,
        counts.lost,
        counts.recovered_by_gateway,
        counts.recovered_end_to_end,
        counts.belated,
        counts.dropped,
        now.receive_rate / 1e6,
        now.buffered.as_millis(),
    )
}
