//! Overflows: losses that come in more runs than a medium has.

use super::MediumLoss;

/// Runs of losses in an overflow, beyond a multiple of the medium's.
const RUNS_MARGIN: f64 = 3.0;
/// Multiple of the medium's losses that an overflow has.
const RATIO: f64 = 2.5;
/// Share of losses in an overflow of few long runs, beyond a multiple of the medium's.
const LOST_MARGIN: f64 = 0.25;
/// Datagrams after which the medium's share of losses is known.
const KNOWN_DATAGRAMS: f64 = 256.0;
/// Share of losses, from the first one to the last, above which they do not come from a full queue: it takes a sender's
/// doubled rate to lose every second datagram.
const MOST_LOST_SHARE: f64 = 0.65;
/// Length of the longest overflow: a sender has answered it by then, so that longer ones are the medium's.
const LONGEST_OVERFLOW_DATAGRAMS: u64 = 2048;

/// Datagrams and losses of a short while.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Losses {
    /// Datagrams.
    pub sent: f64,
    /// Lost datagrams.
    pub lost: f64,
    /// Runs of neighbouring losses.
    pub runs: f64,
    /// Datagrams from the first lost one to the last.
    pub spread: f64,
}

/// Judge of one last mile's losses, by the usual ones.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OverflowJudge {
    medium: MediumLoss,
    /// Datagrams since the overflow began.
    lasted: u64,
}

impl OverflowJudge {
    /// True if the losses come from an overflowing queue or a policer, as far as their runs show. `news`: datagrams
    /// since the last call.
    pub fn is_overflow(&mut self, losses: &Losses, news: u64) -> bool {
        let Losses { sent, lost, runs, spread } = *losses;
        let has_runs = runs >= RUNS_MARGIN + RATIO * self.medium.most_runs() * sent;
        let most_lost = (LOST_MARGIN + RATIO * self.medium.loss()) * sent;
        let has_lost =
            self.medium.sent() >= KNOWN_DATAGRAMS && runs >= RUNS_MARGIN && lost >= most_lost;
        let has_many = (has_runs || has_lost) && lost <= MOST_LOST_SHARE * spread;
        self.lasted = if has_many { self.lasted + news } else { 0 };
        has_many && self.lasted <= LONGEST_OVERFLOW_DATAGRAMS
    }

    /// Takes in the fate of datagrams without an overflow: see [`MediumLoss::on_fate`].
    pub fn learn(&mut self, sent: u64, lost: u64, runs: u64) {
        self.medium.on_fate(sent, lost, runs);
    }

    /// The usual losses.
    pub fn medium(&self) -> &MediumLoss {
        &self.medium
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(runs: f64) -> Losses {
        Losses { sent: 64.0, lost: runs, runs, spread: 64.0 }
    }

    #[test]
    fn runs_beyond_those_of_the_medium_are_an_overflow() {
        let mut judge = OverflowJudge::default();
        assert!(!judge.is_overflow(&losses(16.0), 64), "hardly anything is known");
        judge.learn(2000, 0, 0);
        assert!(judge.is_overflow(&losses(4.0), 64) && !judge.is_overflow(&losses(3.0), 64));
        judge.learn(2000, 200, 180);
        assert!(judge.is_overflow(&losses(30.0), 64) && !judge.is_overflow(&losses(10.0), 64));
    }

    #[test]
    fn a_blocked_medium_is_none() {
        let mut judge = OverflowJudge::default();
        judge.learn(2000, 0, 0);
        let blocked = Losses { sent: 64.0, lost: 40.0, runs: 12.0, spread: 50.0 };
        assert!(!judge.is_overflow(&blocked, 64));
        assert!(judge.is_overflow(&Losses { lost: 30.0, ..blocked }, 64));
    }

    #[test]
    fn an_overflow_that_no_sender_answers_is_the_mediums() {
        let mut judge = OverflowJudge::default();
        judge.learn(2000, 0, 0);
        let count = (0..100).take_while(|_| judge.is_overflow(&losses(20.0), 64)).count();
        assert_eq!(count, 32);
        assert!(!judge.is_overflow(&losses(2.0), 64) && judge.is_overflow(&losses(20.0), 64));
    }
}
