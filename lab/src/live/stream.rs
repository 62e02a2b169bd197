//! The streams: the audio of Packrat26, section 6.2, and video.

use std::time::Duration;

use packrat_media::ReceiverConfig;

/// Bytes of an audio packet's payload: 40 ms at 96 kbit/s (Packrat26, section 6.2), so that 20 ms
/// are half of it.
const AUDIO_UNIT: usize = 240;
const AUDIO_RHYTHM: Duration = Duration::from_millis(20);
/// Video: 30 frames per second at 4 Mbit/s.
const FRAME_RHYTHM: Duration = Duration::from_micros(33_333);
const FRAME_BYTES: usize = 16_667;
const VIDEO_UNIT: usize = 1_190;

/// A stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// A packet every 20 ms with the last 40 ms, 480 bytes: each 20 ms are sent twice.
    Audio,
    /// 30 frames per second at 4 Mbit/s, each a burst of packets.
    Video,
}

packrat_emulation::choices!(Stream, "stream", [
    Audio "audio",
    Video "video",
]);

impl Stream {
    /// The sizes of the units sent together, and the time until the next ones.
    pub(crate) fn burst(self) -> (Vec<usize>, Duration) {
        match self {
            Self::Audio => (vec![AUDIO_UNIT], AUDIO_RHYTHM),
            Self::Video => {
                let whole = FRAME_BYTES / VIDEO_UNIT;
                let mut sizes = vec![VIDEO_UNIT; whole];
                sizes.push(FRAME_BYTES - whole * VIDEO_UNIT);
                (sizes, FRAME_RHYTHM)
            }
        }
    }

    /// The time from the beginning of a unit's content until it is sent.
    pub(crate) fn production(self) -> Duration {
        match self {
            Self::Audio => AUDIO_RHYTHM,
            Self::Video => FRAME_RHYTHM,
        }
    }

    /// Configuration of the stream's receiver. Audio is played at the latest time at which the
    /// second packet with it could have come (40 ms in the buffer at first: Packrat26, section
    /// 6.2); video after 100 ms. Both prefer stalling to skipping, for a while.
    pub(crate) fn receiver(self) -> ReceiverConfig {
        match self {
            Self::Audio => ReceiverConfig {
                latency: AUDIO_RHYTHM,
                patience: Duration::from_millis(780),
                repeats: true,
                rhythm: Some(AUDIO_RHYTHM),
                ..ReceiverConfig::default()
            },
            Self::Video => ReceiverConfig {
                latency: Duration::from_millis(100),
                patience: Duration::from_millis(700),
                ..ReceiverConfig::default()
            },
        }
    }
}
