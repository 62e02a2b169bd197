//! Conversion of a rate to due halves.

use crate::framing::Half;

/// Turns a rate into halves that are due, spread evenly: the two halves take turns.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Schedule {
    /// Halves that are due, with a fraction.
    due: f64,
    is_second: bool,
}

impl Schedule {
    /// The most halves that are due after one datagram.
    const MOST_DUE: f64 = 8.0;

    /// Counts a datagram at a rate, in symbols for whole datagrams per datagram.
    pub fn on_datagram(&mut self, symbols_per_datagram: f64) {
        self.due = (self.due + 2.0 * symbols_per_datagram.max(0.0)).min(Self::MOST_DUE);
    }

    /// Counts symbols that are to be sent at once, as at the end of a flow: a coded tail.
    pub fn at_once(&mut self, symbols: u8) {
        self.due += 2.0 * f64::from(symbols);
    }

    /// True if a half is due.
    pub fn is_due(&self) -> bool {
        self.due >= 1.0
    }

    /// Drops the due halves.
    pub fn clear(&mut self) {
        self.due = 0.0;
    }

    /// The next half that is due.
    pub fn next_due(&mut self) -> Option<Half> {
        if !self.is_due() {
            return None;
        }
        self.due -= 1.0;
        self.is_second = !self.is_second;
        Some(if self.is_second { Half::First } else { Half::Second })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn halves_take_turns_at_the_rate() {
        let mut schedule = Schedule::default();
        let mut sent = Vec::new();
        for place in 0..100 {
            schedule.on_datagram(0.1);
            while let Some(half) = schedule.next_due() {
                sent.push((place, half));
            }
        }
        assert!((19..=20).contains(&sent.len()), "{sent:?}");
        assert!(sent.windows(2).all(|pair| pair[0].1 != pair[1].1), "{sent:?}");
        assert!(sent.windows(2).all(|pair| (4..=6).contains(&(pair[1].0 - pair[0].0))));
        schedule.clear();
        schedule.at_once(3);
        assert_eq!(core::iter::from_fn(|| schedule.next_due()).count(), 6);
        schedule.on_datagram(f64::INFINITY);
        assert_eq!(core::iter::from_fn(|| schedule.next_due()).count(), 8);
        schedule.on_datagram(f64::NAN);
        assert_eq!(schedule.next_due(), None);
    }
}
