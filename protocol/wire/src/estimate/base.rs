//! The round trip of a path without a queue.
//!
//! It is the least one that was seen. A path may become longer, so the least of a while counts; but
//! where many flows share a queue, it is never empty, and the least of any while contains it. Two
//! things tell them apart. A queue grows, and a handover is a step. And at the least round trip of a
//! longer path the medium alone loses, as it did before, but a queue that is nearly full all the time
//! loses more than that.
//!
//! ```text
//!                a step, and it stays for a second -----+
//!   the base                                            +--> is more lost there? --no--> the new base
//!                the least of half a minute is above ---+            | yes
//!      ^                                                             |
//!      +---------------------- for ten minutes ----------------------+
//! ```

use core::time::Duration;

use crate::estimate::{MediumLoss, Timestamp};

/// The least one of this time and of as long before counts.
const PERIOD: Duration = Duration::from_secs(30);
/// A base above which more is lost counts for so long: the longer path's medium may be worse.
const MEMORY: Duration = Duration::from_secs(600);
/// A step counts after this time and so many samples.
const STEP: Duration = Duration::from_secs(1);
const STEP_SAMPLES: u32 = 64;
/// One after which more is lost counts after this time: a queue that is full is not as long all the time.
const LOSSY_STEP: Duration = Duration::from_secs(5);
/// A queue grows more slowly: by this part of the time, unless its sender is in slow start, and then it
/// soon loses something.
const GROWTH: u32 = 4;

/// The delay from which on a queue counts, above a round trip without one.
pub(super) trait Threshold: Fn(Duration) -> Duration + Copy {}

impl<T: Fn(Duration) -> Duration + Copy> Threshold for T {}

/// The least round trip of a while.
#[derive(Debug, Clone, Default)]
pub(super) struct Base {
    /// That of the period that began then.
    now: Option<(Timestamp, Duration)>,
    /// That of the periods before, and when it was last the least of one.
    before: Option<(Timestamp, Duration)>,
    /// `None` where no fate is known: in clients, which believe their gateway.
    evidence: Option<Box<Evidence>>,
}

/// Evidence for a longer path, or against one.
#[derive(Debug, Clone, Default)]
struct Evidence {
    /// Losses at the base, and at the least round trip of this period, where that is above.
    lost: MediumLoss,
    lost_above: MediumLoss,
    /// Losses at longer round trips than that.
    lost_higher: MediumLoss,
    /// The last sample at the base, and when what it measured was sent.
    at_base: Option<(Timestamp, Duration)>,
    /// When the round trip has grown in a step, and samples since.
    step: Option<(Timestamp, u32)>,
}

impl Evidence {
    /// More is lost at the least round trip of this period than at the base.
    fn loses_more(&self) -> bool {
        self.lost_above.is_worse_than(&self.lost)
    }

    /// The flow has long known what is lost at the base, and the round trip has hardly been longer than the
    /// least of this period since.
    fn is_flat(&self) -> bool {
        self.lost.is_known() && self.lost_above.is_most_of(&self.lost_higher)
    }
}

impl Base {
    pub(super) const fn new() -> Self {
        Self { now: None, before: None, evidence: None }
    }

    /// Takes in a round trip. `least_step`: a step is larger; `None`: nothing is one.
    pub(super) fn on_sample(
        &mut self,
        sample: Duration,
        threshold: impl Threshold,
        least_step: Option<Duration>,
        at: Timestamp,
    ) {
        self.follow_step(sample, threshold, least_step, at);
        self.now = Some(match self.now {
            Some((_, least)) if sample + threshold(sample) <= least => {
                self.forget_lost_above();
                (at, sample)
            }
            Some((since, least)) if at.saturating_since(since) < PERIOD => {
                (since, least.min(sample))
            }
            Some((_, least)) => {
                self.end_period(least, false, at);
                if let Some(evidence) = &mut self.evidence {
                    evidence.step = None;
                }
                (at, sample)
            }
            None => (at, sample),
        });
    }

    /// The period has another least round trip: what was lost above it was lost in a queue.
    fn forget_lost_above(&mut self) {
        if let Some(evidence) = &mut self.evidence {
            evidence.lost_above = MediumLoss::default();
            evidence.lost_higher = MediumLoss::default();
        }
    }

    /// A step goes on, or is seen in this sample.
    fn follow_step(
        &mut self,
        sample: Duration,
        threshold: impl Threshold,
        least_step: Option<Duration>,
        at: Timestamp,
    ) {
        let (Some(base), Some(evidence)) = (self.get(), &mut self.evidence) else { return };
        let sent = at - sample;
        if sample < base + threshold(base) {
            evidence.at_base = Some((sent, sample));
            evidence.step = None;
            return;
        }
        if let Some((begun, samples)) = &mut evidence.step {
            *samples += 1;
            let enough = *samples >= STEP_SAMPLES && at.saturating_since(*begun) >= STEP;
            if at.saturating_since(*begun) < sample {
                // What was on its way then has taken a part of the old path.
                self.now = None;
                self.forget_lost_above();
            } else if let Some((_, least)) = self.now
                && enough
                && sample < least + threshold(least)
            {
                // It is there again: a queue that grows is not.
                let waited = at.saturating_since(*begun) >= LOSSY_STEP;
                if waited || !evidence.loses_more() {
                    evidence.step = None;
                    self.end_period(least, true, at);
                }
            }
        } else if let (Some((last_sent, last)), Some(step)) = (evidence.at_base, least_step) {
            let grown = sent.saturating_since(last_sent) / GROWTH;
            if sample >= last + threshold(base) + step + grown {
                evidence.step = Some((at, 0));
                self.before = Some((at, base));
                self.now = None;
                self.forget_lost_above();
            }
        }
    }

    /// A period ends. `stepped`: it began with a step.
    fn end_period(&mut self, least: Duration, stepped: bool, at: Timestamp) {
        if let Some((seen, base)) = self.before
            && least > base
            && let Some(evidence) = &mut self.evidence
        {
            let is_queue = evidence.loses_more() && !(stepped && evidence.is_flat());
            if is_queue && at.saturating_since(seen) < MEMORY {
                return;
            }
            evidence.lost = core::mem::take(&mut evidence.lost_above);
            evidence.lost_higher = MediumLoss::default();
        }
        self.before = Some((at, least));
    }

    /// The fate of `sent` datagrams is known: of them some were lost, in so many runs. `last`: the last
    /// round trip.
    pub(super) fn on_fate(
        &mut self,
        sent: u64,
        runs: u64,
        last: Duration,
        threshold: impl Threshold,
    ) {
        let is_at = |base: Duration| last < base + threshold(base);
        let is_at_base = self.get().is_none_or(is_at);
        let evidence = self.evidence.get_or_insert_default();
        if is_at_base {
            evidence.lost.on_fate(sent, runs, runs);
        } else if self.now.is_some_and(|(_, least)| is_at(least)) {
            evidence.lost_above.on_fate(sent, runs, runs);
        } else {
            evidence.lost_higher.on_fate(sent, runs, runs);
        }
    }

    /// It is this one from now on.
    pub(super) fn set(&mut self, base: Duration, at: Timestamp) {
        *self = Self { now: Some((at, base)), ..Self::new() };
    }

    /// The least one, if there was any.
    pub(super) fn get(&self) -> Option<Duration> {
        let [now, before] = [self.now, self.before].map(|one| one.map(|(_, least)| least));
        now.into_iter().chain(before).min()
    }
}
