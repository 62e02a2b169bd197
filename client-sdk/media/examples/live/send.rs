//! The sender: sends its input in packets, and retransmits the packets that the receiver asks for.
//! It has no knowledge of Packrat.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use packrat_media::udp::UdpSender;
use packrat_media::{MediaKey, Sender, SenderConfig};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

/// Identifier of the stream, used by both ends.
pub(crate) const SOURCE: u32 = 1;
/// Seven packets of an MPEG transport stream, as in a packet of SRT.
const UNIT: usize = 7 * 188;
/// The longest wait for a receiver.
const PATIENCE: Duration = Duration::from_secs(600);
/// Number of empty units that end the stream: several, as the last one may be lost unseen.
const LAST_UNITS: u32 = 10;
/// Time between empty units, and time to answer the last requests.
const AT_THE_END: Duration = Duration::from_millis(100);

pub(crate) struct Settings {
    pub(crate) listen: SocketAddr,
    pub(crate) secret: [u8; 32],
    /// Bits per second, for input without a pace of its own.
    pub(crate) rate: Option<u64>,
}

/// The sender's totals.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    pub(crate) retransmissions: u64,
}

/// Waits for a receiver, and sends it the input. `ready` gets the address for receivers.
pub(crate) async fn run(
    settings: Settings,
    mut input: impl AsyncRead + Unpin,
    ready: impl FnOnce(SocketAddr),
) -> io::Result<Sent> {
    let mut run = [0; 16];
    getrandom::fill(&mut run).map_err(io::Error::other)?;
    let config = SenderConfig { source: SOURCE, repeats: false };
    let core = Sender::new(config, MediaKey::new(settings.secret), run);
    let mut sender = UdpSender::bind(settings.listen, core).await?;
    ready(sender.local_address()?);
    sender.wait_for_receiver(PATIENCE).await?;
    let (mut unit, mut filled, mut next) = (vec![0; UNIT], 0, Instant::now());
    loop {
        let wait =
            Some(next.saturating_duration_since(Instant::now())).filter(|wait| !wait.is_zero());
        tokio::select! {
            length = input.read(&mut unit[filled..]), if wait.is_none() => {
                let length = length?;
                filled += length;
                if filled == UNIT || (length == 0 && filled > 0) {
                    sender.send(&unit[..filled]).await?;
                    if let Some(rate) = settings.rate.filter(|rate| *rate > 0) {
                        next += Duration::from_nanos(filled as u64 * 8 * 1_000_000_000 / rate);
                    }
                    filled = 0;
                }
                if length == 0 {
                    break;
                }
            }
            served = sender.serve(wait.unwrap_or(AT_THE_END)) => served?,
        }
    }
    for _ in 0..LAST_UNITS {
        sender.serve(AT_THE_END).await?;
        sender.send(&[]).await?;
    }
    sender.serve(AT_THE_END).await?;
    Ok(Sent {
        packets: sender.sender().packets(),
        retransmissions: sender.sender().retransmissions(),
    })
}
