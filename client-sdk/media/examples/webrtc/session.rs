//! A WebRTC session between two unmodified peers, through a gateway and over a last mile that loses
//! packets.
//!
//! ```text
//!   sender (str0m) <-- far segment, delay --> gateway <-- last mile, delay and loss --> [Packrat's client] receiver (str0m)
//! ```

use std::error::Error;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use packrat_client::{AssistState, AssistStats};
use packrat_dataplane::log::Silent;
use packrat_dataplane::socket::{bind_reuse_port, local_address};
use packrat_dataplane::{Dataplane, Options, RouteConfig};
use packrat_emulation::path::{LinkConfig, LossModel, PathConfig, UdpPath};
use packrat_media::rtp::transport_wide_extension;
use packrat_media::{PacketNumbers, RtpAssist, RtpAssistConfig};
use str0m::change::SdpAnswer;
use str0m::format::Codec;
use str0m::media::{Direction, Frequency, MediaKind, MediaTime, Mid};

use super::peer::Peer;

const VIDEO_FRAME: Duration = Duration::from_micros(33_333);
const AUDIO_FRAME: Duration = Duration::from_millis(20);
const VIDEO_BYTES: usize = 14_000;
const AUDIO_BYTES: usize = 160;
/// Time after the last frame in which packets in flight arrive.
const AFTERWARDS: Duration = Duration::from_millis(1500);
/// Longest time until the session begins.
const PATIENCE: Duration = Duration::from_secs(60);

/// Settings of a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// True if the receiver has Packrat's client. The gateway is there in any case.
    pub(crate) assisted: bool,
    /// Share of datagrams that the last mile loses, in each direction.
    pub(crate) loss: f64,
    /// Delay between sender and gateway, one way.
    pub(crate) far_delay: Duration,
    /// Delay between gateway and receiver, one way.
    pub(crate) near_delay: Duration,
    /// The time for which media is sent.
    pub(crate) duration: Duration,
}

/// The result of a session.
#[derive(Debug)]
pub(crate) struct Report {
    /// RTP packets sent, without retransmissions, and how many of them arrived as themselves.
    pub(crate) packets: usize,
    pub(crate) arrived: usize,
    pub(crate) video: Frames,
    pub(crate) audio: Frames,
    /// Packets that the receiver asked for again (NACK), and packets that the sender sent again
    /// (RTX).
    pub(crate) asked: u64,
    pub(crate) retransmissions: u64,
    /// Packets that waited for a repair below them.
    pub(crate) waited: u64,
    pub(crate) assistance: Option<AssistStats>,
    /// Datagrams that the last mile lost on their way to the receiver.
    pub(crate) lost: u64,
    /// True if both segments were on time: the figures are then the network's, and not the
    /// machine's.
    pub(crate) is_on_time: bool,
}

/// Frames of one kind.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    pub(crate) sent: u32,
    /// Numbers of the frames that came whole, in the order in which they came.
    pub(crate) numbers: Vec<u32>,
    /// Times from writing to reading, ascending.
    pub(crate) latencies: Vec<Duration>,
    /// Frames whose bytes differ from the sent ones.
    pub(crate) corrupt: u32,
}

impl Frames {
    /// The latency that this share of the frames does not exceed.
    pub(crate) fn latency(&self, share: f64) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
    }

    fn arrived(&mut self, origin: Instant, at: Instant, data: &[u8]) {
        let number =
            data.get(1..5).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes);
        let sent =
            data.get(5..13).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
        if data != frame(number, sent, data.len()) {
            self.corrupt += 1;
            return;
        }
        self.numbers.push(number);
        self.latencies.push((at - origin).saturating_sub(Duration::from_micros(sent)));
    }
}

/// The bytes of a frame. The first one shows whether the decoder needs other frames (RFC 6386
/// section 9.1), and is irrelevant here.
fn frame(number: u32, sent: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![u8::from(!number.is_multiple_of(30))];
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&sent.to_be_bytes());
    bytes.extend(
        (bytes.len()..length).map(|at| (at as u32).wrapping_mul(31).wrapping_add(number) as u8),
    );
    bytes
}

/// A media that the sender writes.
struct Track {
    mid: Mid,
    codec: Codec,
    clock: Frequency,
    every: Duration,
    bytes: usize,
    next: Instant,
    sent: u32,
}

impl Track {
    async fn write_due(&mut self, peer: &mut Peer, origin: Instant) -> Result<(), Box<dyn Error>> {
        while Instant::now() >= self.next {
            let payload_type = peer
                .rtc
                .codec_config()
                .iter()
                .find(|params| params.spec().codec == self.codec)
                .map(|params| params.pt())
                .ok_or("the codec was not negotiated")?;
            let at = self.every * self.sent;
            let time = MediaTime::new(
                u64::try_from(at.as_micros())? * u64::from(self.clock.get()) / 1_000_000,
                self.clock,
            );
            let written = Instant::now();
            let sent = u64::try_from((written - origin).as_micros())?;
            let bytes = frame(self.sent, sent, self.bytes);
            let writer = peer.rtc.writer(self.mid).ok_or("the media was not negotiated")?;
            writer.write(payload_type, written, time, bytes)?;
            peer.drain().await?;
            self.sent += 1;
            self.next += self.every;
        }
        Ok(())
    }
}

/// Runs a session.
pub(crate) async fn run(settings: Settings) -> Result<Report, Box<dyn Error>> {
    let origin = Instant::now();
    let (mut sender, mut receiver) = (Peer::new(true).await?, Peer::new(false).await?);
    let link = |delay: Duration, seed: u64| LinkConfig::new(delay, 0).with_seed(seed);
    let far = UdpPath::start(PathConfig {
        server: sender.local,
        upward: link(settings.far_delay, 1),
        downward: link(settings.far_delay, 2),
    })?;
    let dataplane = Dataplane::start(Options { workers: 1 }, Box::new(Silent))?;
    let route = dataplane.configure(RouteConfig::new("conference", [far.address()])?)?;
    let socket = bind_reuse_port(([127, 0, 0, 1], 0).into())?;
    let listen = local_address(socket.as_fd()).ok_or("the gateway has no address")?;
    let _attachment = dataplane.listen(&route, listen, 0, socket)?;
    let loss = LossModel::Independent { rate: settings.loss };
    let near = UdpPath::start(PathConfig {
        server: listen,
        upward: link(settings.near_delay, 3).with_loss(loss),
        downward: link(settings.near_delay, 4).with_loss(loss),
    })?;

    let tracks = negotiate(&mut sender, &mut receiver, near.address(), settings.assisted)?;
    let gateway = Some(near.address());
    let mut tracks = Vec::from(tracks);
    let (mut begun, begin_by) = (None, origin + PATIENCE);
    loop {
        let now = Instant::now();
        let ready = sender.is_connected
            && receiver.is_connected
            && receiver
                .assist
                .as_ref()
                .is_none_or(|a| a.assistance().state == AssistState::Established);
        if ready && begun.is_none() {
            begun = Some(now);
            tracks.iter_mut().for_each(|track| track.next = now);
        }
        if begun.is_none() && now > begin_by {
            return Err("the session did not begin within a minute".into());
        }
        let end = begun.map(|begun| begun + settings.duration);
        if end.is_some_and(|end| now >= end + AFTERWARDS) {
            break;
        }
        let mut due = sender.due().min(receiver.due()).min(now + Duration::from_millis(100));
        if end.is_some_and(|end| now < end) {
            for track in &mut tracks {
                track.write_due(&mut sender, origin).await?;
                due = due.min(track.next);
            }
        }
        tokio::select! {
            datagram = sender.datagram() => {
                let (datagram, from) = datagram?;
                sender.receive(datagram, from).await?;
            }
            datagram = receiver.datagram() => {
                let (datagram, from) = datagram?;
                receiver.receive(datagram, from).await?;
            }
            () = tokio::time::sleep_until(due.into()) => {}
        }
        sender.advance(None).await?;
        receiver.advance(gateway).await?;
    }
    let [mut video, mut audio] = [Frames::default(), Frames::default()];
    (video.sent, audio.sent) = (tracks[0].sent, tracks[1].sent);
    for (at, data) in &receiver.frames {
        let frames = if data.mid == tracks[0].mid { &mut video } else { &mut audio };
        frames.arrived(origin, *at, &data.data);
    }
    video.latencies.sort_unstable();
    audio.latencies.sort_unstable();
    Ok(Report {
        packets: sender.seen.sent.len(),
        arrived: sender.seen.sent.intersection(&receiver.seen.received).count(),
        video,
        audio,
        asked: receiver.seen.asked,
        retransmissions: sender.seen.retransmissions,
        waited: receiver.assist.as_ref().map_or(0, RtpAssist::waited),
        assistance: receiver.assist.as_ref().map(RtpAssist::assistance),
        lost: near.report().downward.link.lost,
        is_on_time: far.report().is_on_time() && near.report().is_on_time(),
    })
}

/// Offer and answer, which in the world travel over the application's signalling. The one thing
/// that is different from a session without Packrat: the answer names the gateway's address, where
/// else the media server's own would be.
fn negotiate(
    sender: &mut Peer,
    receiver: &mut Peer,
    gateway: SocketAddr,
    assisted: bool,
) -> Result<[Track; 2], Box<dyn Error>> {
    let mut change = receiver.rtc.sdp_api();
    let mut media = |kind| change.add_media(kind, Direction::RecvOnly, None, None, None);
    let (video, audio) = (media(MediaKind::Video), media(MediaKind::Audio));
    let (offer, pending) = change.apply().ok_or("nothing to offer")?;
    let answer = sender.rtc.sdp_api().accept_offer(offer)?.to_sdp_string();
    let address = |address: SocketAddr| format!(" {} {} ", address.ip(), address.port());
    let announced = answer.replace(&address(sender.local), &address(gateway));
    receiver.rtc.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(&announced)?)?;
    if assisted {
        let extension = transport_wide_extension(&announced).ok_or("no transport-wide numbers")?;
        let config = RtpAssistConfig::new(PacketNumbers::TransportWide { extension });
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        receiver.assist = Some(RtpAssist::new(config, seed, receiver.timestamp()));
    }
    let now = Instant::now();
    Ok([
        Track {
            mid: video,
            codec: Codec::Vp8,
            clock: Frequency::NINETY_KHZ,
            every: VIDEO_FRAME,
            bytes: VIDEO_BYTES,
            next: now,
            sent: 0,
        },
        Track {
            mid: audio,
            codec: Codec::Opus,
            clock: Frequency::FORTY_EIGHT_KHZ,
            every: AUDIO_FRAME,
            bytes: AUDIO_BYTES,
            next: now,
            sent: 0,
        },
    ])
}
