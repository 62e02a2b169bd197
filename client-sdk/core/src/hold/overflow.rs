//! Losses of an overflowing queue, which the sender must detect at once.
//!
//! A client detects an overflow before its gateway, which learns of it half a round trip later. A hold until
//! then costs a sender in slow start another doubling, and with it twice the losses.
//!
//! Behind a full queue datagrams arrive at the usual rate, whatever the queue has dropped between them. A
//! medium that loses several in a row leaves their time empty: such a hole is no evidence of an overflow.

use core::time::Duration;

use packrat_wire::estimate::{Losses, OverflowJudge, Timestamp};

/// Length of the window of numbers, with one bit for each.
const WINDOW_NUMBERS: u32 = 64;

/// The last numbers of one last mile, and its usual losses.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    /// One bit for each number of the window, set if it is missing; the lowest bit is for the highest number.
    missing: u64,
    /// The missing numbers that a full queue may have lost.
    suspected: u64,
    /// True if the number before the window is missing.
    was_missing: bool,
    newest: u64,
    /// Numbers in the window.
    numbers: u32,
    /// The judge of overflows, which has learned the losses of the numbers that have left the
    /// window.
    judge: OverflowJudge,
    is_over: bool,
    /// Time of the last arrival, and the smoothed time between two in order.
    arrived_at: Option<Timestamp>,
    interval: Duration,
}

impl Overflow {
    /// Records a new highest number; all numbers from `first` to before it are missing. Returns true if they
    /// were lost in an overflow.
    pub(super) fn on_newest(&mut self, first: u64, number: u64, now: Timestamp) -> bool {
        let is_full = self.follow_arrivals(number - first, now);
        let ahead = u32::try_from(number - self.newest).unwrap_or(u32::MAX).min(WINDOW_NUMBERS);
        self.newest = number;
        self.leave(ahead);
        let skipped = u32::try_from(number - first).unwrap_or(u32::MAX).min(WINDOW_NUMBERS - 1);
        let skipped = ((1 << skipped) - 1) << 1;
        self.missing |= skipped;
        self.suspected |= if is_full { skipped } else { 0 };
        let losses = Losses {
            sent: f64::from(self.numbers),
            lost: f64::from(self.suspected.count_ones()),
            runs: f64::from(first_of_runs(self.suspected, false).count_ones()),
            spread: f64::INFINITY,
        };
        self.is_over = self.judge.is_overflow(&losses, ahead.into());
        self.is_over
    }

    /// Records the time of a datagram that follows `missing` missing ones. Returns true if it came as fast as
    /// from a full queue.
    fn follow_arrivals(&mut self, missing: u64, now: Timestamp) -> bool {
        let Some(before) = self.arrived_at.replace(now) else { return true };
        let gap = now.saturating_since(before);
        if missing == 0 {
            let interval = if self.interval.is_zero() { gap } else { self.interval };
            self.interval = (interval * 15 + gap) / 16;
        }
        let missing = u32::try_from(missing).unwrap_or(u32::MAX).min(WINDOW_NUMBERS);
        gap <= self.interval * 3 / 2 + self.interval * missing / 8
    }

    /// Called when a missing number that was not held has arrived: the gateway attributes its loss to the
    /// medium, or it was overtaken.
    pub(super) fn on_repaired(&mut self) {
        self.judge.learn(0, 1, 1);
    }

    /// Shifts the oldest numbers out of the window.
    fn leave(&mut self, numbers: u32) {
        let oldest = |bits: u64| bits.checked_shr(WINDOW_NUMBERS - numbers).unwrap_or(0);
        let runs = first_of_runs(self.missing, self.was_missing);
        let (lost, runs) = (oldest(self.missing), oldest(runs));
        let leaving = (self.numbers + numbers).saturating_sub(WINDOW_NUMBERS);
        self.numbers += numbers - leaving;
        if !self.is_over {
            self.judge.learn(leaving.into(), lost.count_ones().into(), runs.count_ones().into());
        }
        if numbers > 0 {
            self.was_missing = lost & 1 == 1;
        }
        self.missing = self.missing.checked_shl(numbers).unwrap_or(0);
        self.suspected = self.suspected.checked_shl(numbers).unwrap_or(0);
    }
}

/// A bit for the first number of each run of missing ones. `is_run`: the number before them is missing.
fn first_of_runs(missing: u64, is_run: bool) -> u64 {
    missing & !(missing >> 1 | u64::from(is_run) << (WINDOW_NUMBERS - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Receives the numbers of a range that are not `lost`, at a constant rate. Returns the numbers whose
    /// arrival showed an overflow.
    fn told(
        overflow: &mut Overflow,
        numbers: std::ops::Range<u64>,
        lost: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let mut next = numbers.start;
        let mut told = Vec::new();
        for (arrivals, number) in (numbers.start..).zip(numbers.filter(|number| !lost(*number))) {
            if overflow.on_newest(next, number, at(arrivals)) {
                told.push(number);
            }
            next = number + 1;
        }
        told
    }

    #[test]
    fn every_second_datagram_is_an_overflow_soon() {
        let mut overflow = Overflow::default();
        let told = told(&mut overflow, 0..1000, |number| number >= 500 && number % 2 == 0);
        assert!(told.first().is_some_and(|first| *first < 520), "{:?}", told.first());
    }

    #[test]
    fn bursts_of_a_sender_overflow_in_runs() {
        let mut overflow = Overflow::default();
        let told = told(&mut overflow, 0..1000, |number| number >= 500 && number % 16 >= 8);
        assert!(!told.is_empty());
    }

    #[test]
    fn one_burst_is_none_however_long_it_is() {
        let mut overflow = Overflow::default();
        assert!(told(&mut overflow, 0..5000, |number| (1000..3000).contains(&number)).is_empty());
    }

    #[test]
    fn a_quarter_is_usual_after_some_hundreds() {
        let mut overflow = Overflow::default();
        let told = told(&mut overflow, 0..5000, |number| number % 4 == 3);
        assert!(told.last().is_none_or(|last| *last < 400), "{:?}", told.last());
    }

    /// The bad state of a medium, in which it loses four of five (Packrat26, appendix A).
    #[test]
    fn what_a_medium_loses_in_a_row_leaves_its_time_empty() {
        let (mut overflow, mut next) = (Overflow::default(), 0);
        for number in (0..5000).filter(|number| number % 100 < 75 || number % 5 == 0) {
            assert!(!overflow.on_newest(next, number, at(number)), "{number}");
            next = number + 1;
        }
    }

    /// The bad states of a medium that lose some datagrams here and there (Packrat26, appendix A).
    #[test]
    fn repairs_show_that_losses_were_the_mediums() {
        let is_lost = |number: u64| number % 200 >= 180 && !number.is_multiple_of(3);
        let mut overflow = Overflow::default();
        told(&mut overflow, 0..500, |_| false);
        let first = told(&mut overflow, 500..700, is_lost);
        assert!(!first.is_empty());
        (0..14).for_each(|_| overflow.on_repaired());
        let later = told(&mut overflow, 700..5000, is_lost);
        assert!(later.is_empty(), "{later:?}");
    }

    #[test]
    fn a_path_that_overtakes_much_is_not_full() {
        let mut overflow = Overflow::default();
        let told = told(&mut overflow, 0..5000, |number| number % 3 == 0);
        assert!(told.last().is_none_or(|last| *last < 400), "{:?}", told.last());
    }

    /// Each loss of a paced flow leaves a gap; behind a queue that drains, arrivals come close together.
    #[test]
    fn losses_that_left_gaps_are_usual_when_later_ones_leave_none() {
        let (mut overflow, mut next, mut now) = (Overflow::default(), 0, 0);
        for number in 0..6000 {
            if number % 10 == 3 {
                continue;
            }
            now = if number < 4000 || number % 200 == 0 { number * 10 } else { now + 1 };
            assert!(
                !overflow.on_newest(next, number, Timestamp::from_micros(now * 100)),
                "{number}"
            );
            next = number + 1;
        }
    }

    #[test]
    fn any_number_is_taken() {
        let mut overflow = Overflow::default();
        assert!(!overflow.on_newest(0, u64::MAX - 1, at(1)));
        assert!(!overflow.on_newest(u64::MAX, u64::MAX, at(1)));
    }
}
