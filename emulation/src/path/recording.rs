//! Recordings of real links: rates in Mahimahi's format (Netravali15), and probes with their delays
//! and losses.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use super::nanos;

/// Nanoseconds of a millisecond.
const MILLISECOND_NANOS: u64 = 1_000_000;
/// Bytes of IP that one delivery opportunity carries (Netravali15).
pub(crate) const OPPORTUNITY_BYTES: usize = 1500;

/// Failure to use a recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file could not be read.
    #[error("cannot read the recording {}: {source}; check the folder and the name", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file could not be decompressed.
    #[error("cannot decompress {}: {reason}; install xz, or decompress the file by hand", path.display())]
    Decompress {
        /// The file.
        path: PathBuf,
        /// The reason, for people.
        reason: String,
    },
    /// The file is in another format.
    #[error("line {line} of {name} is {text:?}: {expected}")]
    Malformed {
        /// The recording.
        name: String,
        /// The line, from 1.
        line: usize,
        /// Text of the unreadable line.
        text: String,
        /// The format that was expected, for people.
        expected: &'static str,
    },
    /// The file is empty.
    #[error("{name} has no {what}; name another recording")]
    Empty {
        /// The recording.
        name: String,
        /// The thing that it lacks, for people.
        what: &'static str,
    },
}

impl RecordingError {
    /// `index`: of the line, from 0.
    fn malformed(name: &str, index: usize, line: &str, expected: &'static str) -> Self {
        let (name, text) = (name.to_owned(), line.to_owned());
        Self::Malformed { name, line: index + 1, text, expected }
    }
}

/// A recording that is replayed from a time of it on.
#[derive(Debug, Clone, PartialEq)]
pub struct Replay<R> {
    /// The recording.
    pub recording: Arc<R>,
    /// The time of the recording at which the link begins.
    pub from: Duration,
}

impl<R> Replay<R> {
    fn begin(&self) -> u64 {
        nanos(self.from)
    }
}

impl Replay<RateRecording> {
    /// The time of an opportunity, nanoseconds; of those before the link begins 0.
    pub(crate) fn time(&self, opportunity: u64) -> u64 {
        self.recording.time(opportunity).saturating_sub(self.begin())
    }

    /// The number of the first opportunity that is not before `nanos`.
    pub(crate) fn first_from(&self, nanos: u64) -> u64 {
        self.recording.first_from(self.begin() + nanos)
    }
}

impl Replay<ProbeRecording> {
    /// Delay one way at `nanos`, microseconds.
    pub(crate) fn delay(&self, nanos: u64) -> u64 {
        self.recording.delay(self.begin() + nanos)
    }

    /// True if an outage overlaps the time between two instants, nanoseconds.
    pub(crate) fn is_out(&self, from: u64, to: u64) -> bool {
        self.recording.is_out(self.begin() + from, self.begin() + to)
    }
}

/// The text of a recording; `NAME.xz` is decompressed when there is no `NAME`.
///
/// # Errors
/// See [`RecordingError`].
pub fn read(path: &Path) -> Result<String, RecordingError> {
    let mut compressed = path.as_os_str().to_owned();
    compressed.push(".xz");
    let compressed = PathBuf::from(compressed);
    if path.exists() || !compressed.exists() {
        return std::fs::read_to_string(path)
            .map_err(|source| RecordingError::Read { path: path.to_owned(), source });
    }
    let failed = |reason: String| RecordingError::Decompress { path: compressed.clone(), reason };
    let output = Command::new("xz")
        .arg("-dc")
        .arg(&compressed)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(error.to_string()))
}

/// A link's rate over time: the opportunities to send 1500 bytes of IP, as Mahimahi replays them.
/// An unused opportunity is lost; after the last one the recording starts again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateRecording {
    /// Milliseconds, ascending; the last one is the period.
    times: Vec<u32>,
}

impl RateRecording {
    /// A recording from the lines of a file; `name` is for errors.
    ///
    /// # Errors
    /// [`RecordingError::Malformed`] and [`RecordingError::Empty`].
    pub fn parse(name: &str, text: &str) -> Result<Self, RecordingError> {
        let mut times = Vec::new();
        let mut latest = 0;
        for (index, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() {
                continue;
            }
            let malformed = |expected| RecordingError::malformed(name, index, line, expected);
            let time: u32 = line.parse().map_err(|_| malformed("expected milliseconds"))?;
            if time < latest {
                return Err(malformed("the times of a recording do not decrease"));
            }
            latest = time;
            times.push(time);
        }
        if latest == 0 {
            return Err(RecordingError::Empty { name: name.to_owned(), what: "opportunity" });
        }
        Ok(Self { times })
    }

    /// Rates in bits of IP per second, each for `every_ms` milliseconds. A rate below one
    /// opportunity a millisecond is spread by the rest that each millisecond leaves.
    pub fn of_rates(rates: impl Iterator<Item = f64>, every_ms: u32) -> Self {
        let (mut times, mut millis, mut bits) = (Vec::new(), 0, 0.0);
        let opportunity = OPPORTUNITY_BYTES as f64 * 8.0;
        for rate in rates {
            for _ in 0..every_ms {
                millis += 1;
                bits += rate * 1e-3;
                while bits >= opportunity {
                    bits -= opportunity;
                    times.push(millis);
                }
            }
        }
        // The last opportunity is the period.
        if times.last() != Some(&millis) {
            times.push(millis.max(1));
        }
        Self { times }
    }

    /// Mean rate, bits of IP per second.
    pub fn mean_rate(&self) -> u64 {
        let bits = self.times.len() as u64 * OPPORTUNITY_BYTES as u64 * 8;
        bits * 1000 / self.period()
    }

    /// The time of an opportunity, nanoseconds; they are numbered from 0.
    fn time(&self, opportunity: u64) -> u64 {
        let count = self.times.len() as u64;
        let within = self.times[(opportunity % count) as usize];
        (opportunity / count * self.period() + u64::from(within)) * MILLISECOND_NANOS
    }

    /// The number of the first opportunity that is not before `nanos`.
    fn first_from(&self, nanos: u64) -> u64 {
        let millis = nanos.div_ceil(MILLISECOND_NANOS);
        // The last opportunity of one round is at the time at which the next round begins.
        let round = millis.saturating_sub(1) / self.period();
        let within = millis - round * self.period();
        let index = self.times.partition_point(|time| u64::from(*time) < within);
        round * self.times.len() as u64 + index as u64
    }

    fn period(&self) -> u64 {
        u64::from(self.times.last().copied().unwrap_or(1).max(1))
    }
}

/// A link's delay and loss over time, as probes at short intervals found them. After the last probe
/// the recording starts again.
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeRecording {
    /// Answered probes: milliseconds, and the delay one way in microseconds.
    delays: Vec<(u64, u64)>,
    /// Runs of lost probes, milliseconds: from the first lost one to the next answered one.
    outages: Vec<(u64, u64)>,
    /// Share of the probes that were lost alone, one way.
    single_loss: f64,
    /// Milliseconds.
    period: u64,
}

impl ProbeRecording {
    /// A recording from the lines of a file; `name` is for errors. Lines are `milliseconds delay`,
    /// the delay in microseconds, or `-` for a lost probe. A comment (`#`) with the words "round
    /// trip" marks the delays as sums of both directions: each direction then has half of the
    /// delay, and half of the probes that were lost alone. A run of lost probes is an outage of
    /// both directions.
    ///
    /// # Errors
    /// [`RecordingError::Malformed`] and [`RecordingError::Empty`].
    pub fn parse(name: &str, text: &str) -> Result<Self, RecordingError> {
        let directions =
            if comments(text).any(|line| line.contains("(round trip)")) { 2 } else { 1 };
        let mut probes: Vec<(u64, Option<u64>)> = Vec::new();
        for (index, line) in text.lines().map(str::trim).enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let malformed = |expected| RecordingError::malformed(name, index, line, expected);
            let expected = "expected milliseconds, then microseconds or -";
            let (at, delay) = line.split_once(' ').ok_or_else(|| malformed(expected))?;
            let at = at.parse().map_err(|_| malformed(expected))?;
            let delay: Option<u64> = match delay.trim() {
                "-" => None,
                delay => Some(delay.parse().map_err(|_| malformed(expected))?),
            };
            if probes.last().is_some_and(|(before, _)| at < *before) {
                return Err(malformed("the times of a recording do not decrease"));
            }
            probes.push((at, delay.map(|delay| delay / directions)));
        }
        let empty = |what| RecordingError::Empty { name: name.to_owned(), what };
        let last = probes.last().map(|(at, _)| *at).ok_or_else(|| empty("probe"))?;
        let delays: Vec<(u64, u64)> =
            probes.iter().filter_map(|(at, delay)| delay.map(|delay| (*at, delay))).collect();
        if delays.is_empty() {
            return Err(empty("answered probe"));
        }
        // The last probe stands for as long as the others do on average.
        let period = last + last / (probes.len() as u64 - 1).max(1) + 1;
        let (mut outages, mut singles) = (Vec::new(), 0u64);
        for run in probes.chunk_by(|one, other| one.1.is_none() == other.1.is_none()) {
            match run {
                [(_, None)] => singles += 1,
                [(from, None), ..] => {
                    let after = probes.partition_point(|(at, _)| *at <= run[run.len() - 1].0);
                    outages.push((*from, probes.get(after).map_or(period, |(at, _)| *at)));
                }
                _ => {}
            }
        }
        let single_loss = singles as f64 / probes.len() as f64 / directions as f64;
        Ok(Self { delays, outages, single_loss, period })
    }

    /// Share of datagrams that a direction loses apart from outages, 0 to 1: a probe that was lost
    /// alone is no evidence about the datagrams a millisecond from it.
    pub fn single_loss(&self) -> f64 {
        self.single_loss
    }

    /// Delay one way at `nanos`, microseconds: the delay of the last answered probe before it.
    fn delay(&self, nanos: u64) -> u64 {
        let within = nanos / MILLISECOND_NANOS % self.period;
        let after = self.delays.partition_point(|(at, _)| *at <= within);
        self.delays[after.saturating_sub(1)].1
    }

    /// True if an outage overlaps the time between two instants, nanoseconds.
    fn is_out(&self, from: u64, to: u64) -> bool {
        let period = self.period * MILLISECOND_NANOS;
        let (round, within) = (from / period, from % period);
        let after = self.outages.partition_point(|(_, end)| end * MILLISECOND_NANOS <= within);
        let begin = match self.outages.get(after) {
            Some((begin, _)) => round * period + begin * MILLISECOND_NANOS,
            None => match self.outages.first() {
                Some((begin, _)) => (round + 1) * period + begin * MILLISECOND_NANOS,
                None => return false,
            },
        };
        begin <= to
    }
}

fn comments(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opportunities_repeat_with_the_period_of_the_last_line() {
        let recording = RateRecording::parse("r", "1\n1\n3\n\n4\n").unwrap();
        let times: Vec<u64> = (0..9).map(|n| recording.time(n) / MILLISECOND_NANOS).collect();
        assert_eq!(times, [1, 1, 3, 4, 5, 5, 7, 8, 9]);
        for (nanos, first) in
            [(0, 0), (1_000_000, 0), (1_000_001, 2), (4_000_000, 3), (4_000_001, 4), (8_000_000, 7)]
        {
            assert_eq!(recording.first_from(nanos), first, "{nanos}");
        }
        // Four opportunities of 1500 bytes in 4 ms.
        assert_eq!(recording.mean_rate(), 12_000_000);
    }

    #[test]
    fn rates_become_opportunities_and_are_repeated() {
        // 18 Mbit/s: three opportunities in two milliseconds; 1.2: one in ten.
        let recording = RateRecording::of_rates([18e6, 1.2e6].into_iter(), 20);
        assert_eq!(recording.times[..6], [1, 2, 2, 3, 4, 4]);
        assert_eq!(recording.times[30..], [30, 40]);
        assert_eq!(recording.mean_rate(), 9_600_000);
        let idle = RateRecording::of_rates([12e6, 0.0].into_iter(), 4);
        assert_eq!(idle.period(), 8);
    }

    #[test]
    fn a_run_of_lost_probes_is_an_outage_and_a_single_one_is_not() {
        let text = "# delay (round trip)\n0 20000\n10 -\n20 30000\n30 -\n40 -\n50 40000\n60 -\n";
        let recording = ProbeRecording::parse("p", text).unwrap();
        let millis = |ms: u64| ms * MILLISECOND_NANOS;
        assert_eq!(recording.delay(millis(5)), 10_000);
        assert_eq!(recording.delay(millis(15)), 10_000, "a lost probe has no delay");
        assert_eq!(recording.delay(millis(45)), 15_000);
        assert!(!recording.is_out(millis(10), millis(19)));
        assert!(recording.is_out(millis(25), millis(30)));
        assert!(recording.is_out(millis(49), millis(49)));
        assert!(!recording.is_out(millis(50), millis(55)));
        // The period is 71 ms; the next round has the same outage.
        assert!(recording.is_out(millis(71 + 35), millis(71 + 35)));
        assert!(recording.is_out(millis(60), millis(71 + 30)));
        // Two of seven, and either direction has lost them.
        assert!((recording.single_loss() - 1.0 / 7.0).abs() < 1e-9);
    }

    #[test]
    fn a_replay_begins_in_the_middle() {
        let from = Duration::from_millis(3);
        let rate = Arc::new(RateRecording::parse("r", "1\n2\n4\n5\n").unwrap());
        let replay = Replay { recording: rate, from };
        let first = replay.first_from(0);
        let times: Vec<u64> =
            (first..first + 4).map(|n| replay.time(n) / MILLISECOND_NANOS).collect();
        assert_eq!(times, [1, 2, 3, 4]);
        let probes = Arc::new(ProbeRecording::parse("p", "0 10\n2 -\n3 -\n4 20\n").unwrap());
        let replay = Replay { recording: probes, from };
        assert!(replay.is_out(0, 0) && !replay.is_out(MILLISECOND_NANOS, 2 * MILLISECOND_NANOS));
        assert_eq!((replay.delay(0), replay.delay(MILLISECOND_NANOS)), (10, 20));
    }

    #[test]
    fn delays_of_one_direction_are_taken_as_they_are() {
        let recording = ProbeRecording::parse("p", "# (one way)\n0 12000\n10 14000\n").unwrap();
        assert_eq!(recording.delay(12 * MILLISECOND_NANOS), 14_000);
        assert_eq!(recording.single_loss(), 0.0);
        assert!(!recording.is_out(0, u64::MAX / 2));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let said = |text| RateRecording::parse("r.down", text).unwrap_err().to_string();
        assert!(said("1\nx\n").contains("line 2 of r.down is \"x\""), "{}", said("1\nx\n"));
        assert!(said("5\n4\n").contains("do not decrease"));
        assert!(said("\n").contains("no opportunity"));
        assert!(
            ProbeRecording::parse("p", "0 -\n").unwrap_err().to_string().contains("no answered")
        );
        assert!(ProbeRecording::parse("p", "0\n").unwrap_err().to_string().contains("line 1 of p"));
        let absent = read(Path::new("nowhere/such.down")).unwrap_err().to_string();
        assert!(absent.contains("nowhere/such.down"), "{absent}");
    }
}
