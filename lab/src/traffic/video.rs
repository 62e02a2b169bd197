//! An adaptive video session, sans-IO: the player, and its choice of a bit rate by its buffer.

use packrat_emulation::scenario::VideoSettings;
use packrat_wire::estimate::Timestamp;
use serde::Serialize;
use std::time::Duration;

/// The outcome of a video session.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct VideoResult {
    /// Mean bit rate of the segments that arrived, Mbit/s.
    pub bitrate_mbps: f64,
    /// Segments that arrived, and segments of the video.
    pub segments: [u64; 2],
    /// Times that the buffer ran empty.
    pub stalls: u64,
    /// Seconds that playing stood still because of that.
    pub stalled_seconds: f64,
    /// Changes of the bit rate.
    pub switches: u64,
    /// Seconds from the beginning to the first picture, with the handshake.
    pub startup_seconds: f64,
}

/// A player: BBA-0 (Huang14, algorithm 1) over segments of constant bit rate.
#[derive(Debug)]
pub(super) struct Player {
    settings: VideoSettings,
    begun: Timestamp,
    /// Seconds of video that have arrived and are not played yet, at `at`.
    buffer: f64,
    at: Timestamp,
    playing: bool,
    /// The place of the last bit rate in the ladder.
    rate: usize,
    kilobits: u64,
    result: VideoResult,
}

impl Player {
    pub(super) fn new(settings: VideoSettings, begun: Timestamp) -> Self {
        let segments = settings.seconds / settings.segment_seconds;
        Self {
            settings,
            begun,
            buffer: 0.0,
            at: begun,
            playing: false,
            rate: 0,
            kilobits: 0,
            result: VideoResult { segments: [0, segments], ..VideoResult::default() },
        }
    }

    /// The next segment's bytes; `None` when all have arrived.
    pub(super) fn next_segment(&mut self, now: Timestamp) -> Option<u64> {
        if self.result.segments[0] == self.result.segments[1] {
            return None;
        }
        self.play(now);
        let rate = self.choose();
        if self.result.segments[0] > 0 && rate != self.rate {
            self.result.switches += 1;
        }
        self.rate = rate;
        Some(self.settings.ladder_kbps[rate] * 1000 / 8 * self.settings.segment_seconds)
    }

    /// The segment has arrived; the time at which the next one has room in the buffer.
    pub(super) fn arrived(&mut self, now: Timestamp) -> Timestamp {
        self.play(now);
        if self.result.segments[0] == 0 {
            self.result.startup_seconds = now.saturating_since(self.begun).as_secs_f64();
        }
        self.result.segments[0] += 1;
        self.kilobits += self.settings.ladder_kbps[self.rate] * self.settings.segment_seconds;
        self.buffer += self.settings.segment_seconds as f64;
        self.playing = true;
        let room = self.settings.buffer_seconds.saturating_sub(self.settings.segment_seconds);
        let wait = (self.buffer - room as f64).max(0.0);
        now + Duration::from_secs_f64(wait)
    }

    /// The session so far.
    pub(super) fn result(&mut self, now: Timestamp) -> VideoResult {
        if self.result.segments[0] < self.result.segments[1] {
            self.play(now);
        }
        let seconds = self.result.segments[0] * self.settings.segment_seconds;
        VideoResult {
            bitrate_mbps: self.kilobits as f64 * 1e-3 / seconds.max(1) as f64,
            ..self.result.clone()
        }
    }

    /// Plays until `now`.
    fn play(&mut self, now: Timestamp) {
        let passed = now.saturating_since(self.at).as_secs_f64();
        self.at = now;
        if self.playing {
            let played = passed.min(self.buffer);
            self.buffer -= played;
            // The end of a segment that arrives just in time is no stall.
            if passed - played > 1e-6 {
                self.playing = false;
                self.result.stalls += 1;
                self.result.stalled_seconds += passed - played;
            }
        } else if self.result.segments[0] > 0 {
            self.result.stalled_seconds += passed;
        }
    }

    /// The place in the ladder of the next segment's bit rate.
    fn choose(&self) -> usize {
        let ladder = &self.settings.ladder_kbps;
        let last = ladder.len() - 1;
        let reservoir = self.settings.reservoir_seconds as f64;
        // The highest rate is for a buffer that lacks one segment and a bit.
        let upper = (self.settings.buffer_seconds - self.settings.segment_seconds) as f64 * 0.95;
        if self.buffer <= reservoir {
            return 0;
        }
        if self.buffer >= upper {
            return last;
        }
        let (lowest, highest) = (ladder[0] as f64, ladder[last] as f64);
        let map = lowest + (highest - lowest) * (self.buffer - reservoir) / (upper - reservoir);
        let (above, below) = ((self.rate + 1).min(last), self.rate.saturating_sub(1));
        if map >= ladder[above] as f64 {
            ladder.iter().rposition(|rate| (*rate as f64) < map).unwrap_or(0)
        } else if map <= ladder[below] as f64 {
            ladder.iter().position(|rate| *rate as f64 > map).unwrap_or(last)
        } else {
            self.rate
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> VideoSettings {
        VideoSettings {
            seconds: 80,
            segment_seconds: 4,
            ladder_kbps: vec![1000, 2000, 4000],
            buffer_seconds: 24,
            reservoir_seconds: 8,
        }
    }

    fn seconds(seconds: f64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs_f64(seconds)
    }

    /// Plays over a link of this rate; segments and result.
    fn watch(kbps: f64) -> (Vec<u64>, VideoResult, f64) {
        let mut player = Player::new(settings(), Timestamp::ZERO);
        let (mut now, mut segments) = (0.0, Vec::new());
        while let Some(bytes) = player.next_segment(seconds(now)) {
            segments.push(bytes);
            now += bytes as f64 * 8e-3 / kbps;
            let next = player.arrived(seconds(now));
            now = now.max(next.saturating_since(Timestamp::ZERO).as_secs_f64());
        }
        (segments, player.result(seconds(now)), now)
    }

    #[test]
    fn a_fast_link_reaches_the_highest_rate_and_the_buffer_paces_it() {
        let (segments, result, end) = watch(100_000.0);
        assert_eq!(segments.len(), 20);
        assert_eq!((segments[0], segments[19]), (500_000, 2_000_000));
        assert_eq!((result.stalls, result.segments), (0, [20, 20]));
        assert!(result.switches >= 1 && result.bitrate_mbps > 3.0, "{result:?}");
        // The last segment is asked for when the buffer has room for it: 20 s before the end.
        assert!((54.0..=62.0).contains(&end), "{end}");
    }

    #[test]
    fn a_link_below_the_lowest_rate_stalls_for_the_missing_time() {
        let (segments, result, end) = watch(800.0);
        assert!(segments.iter().all(|bytes| *bytes == 500_000), "{segments:?}");
        // 5 s for each segment of 4 s: a second of standing still before each but the first.
        assert_eq!(result.stalls, 19);
        assert!((result.stalled_seconds - 19.0).abs() < 1e-3, "{result:?}");
        assert!((end - 100.0).abs() < 1e-3 && (result.startup_seconds - 5.0).abs() < 1e-6);
        assert_eq!(result.bitrate_mbps, 1.0);
    }

    #[test]
    fn a_link_between_two_rates_uses_those_around_it() {
        let (_, result, _) = watch(2_500.0);
        assert!((1.5..=2.6).contains(&result.bitrate_mbps), "{result:?}");
        assert_eq!(result.stalls, 0);
    }
}
