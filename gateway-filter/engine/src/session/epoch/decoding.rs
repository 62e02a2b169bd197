//! The decoding of an eACK: the difference between the gateway's set and the client's, first as it
//! is, then under assumptions about missing datagrams.

use core::cell::Cell;

use packrat_eack::{Decoder, EncodedPrefix, Identifier, Sketch};
use packrat_wire::message::Eack;

use super::EpochState;
use super::own_set::OwnSet;
use crate::history::History;
use crate::reconciliation::decode_assuming;
use crate::scratch::Scratch;
use crate::session::outage::Outage;

/// Datagrams that are assumed missing at once, at most: there are more only when a client was
/// silent for seconds.
const ASSUMED_DATAGRAMS: usize = 8192;
/// Work per datagram that may be missing, before decoding.
const CANDIDATE_WORK: u64 = 4;

/// The search for the difference that an eACK stands for.
struct Search<'a, S> {
    set: &'a OwnSet,
    own: &'a Sketch,
    prefix: EncodedPrefix<'a>,
    history: &'a History,
    /// Work of every attempt, before decoding.
    work: u64,
    spend: S,
    /// The last result of `spend`.
    may_go_on: bool,
    only_here: &'a mut Vec<Identifier>,
    only_there: &'a mut Vec<Identifier>,
    decoder: &'a mut Decoder,
}

impl<S: FnMut(u64, bool) -> bool> Search<'_, S> {
    /// Decodes the difference under the assumption that all `assumed` datagrams are missing.
    /// `likely`: others that may be missing.
    fn attempt(
        &mut self,
        assumed: &[Identifier],
        likely: impl Iterator<Item = Identifier>,
    ) -> Option<()> {
        if !self.may_go_on || assumed.len() > ASSUMED_DATAGRAMS {
            return None;
        }
        let reduced;
        let own = if assumed.is_empty() {
            self.own
        } else {
            reduced = self.without(assumed);
            &reduced
        };
        let (decoded, work) = self.decode(assumed, likely, own);
        let work = self.work + self.set.limits().work_of(assumed.len()) + work;
        self.may_go_on = (self.spend)(work, !decoded);
        decoded.then_some(())
    }

    fn without(&self, assumed: &[Identifier]) -> Sketch {
        let mut reduced = self.own.clone();
        reduced.remove_all(assumed);
        reduced
    }

    /// Decodes the difference to a sketch without the datagrams that are `assumed` to be missing.
    /// True if that succeeds, and the work.
    fn decode(
        &mut self,
        assumed: &[Identifier],
        likely: impl Iterator<Item = Identifier>,
        own: &Sketch,
    ) -> (bool, u64) {
        let Self { set, prefix, history, only_here, only_there, decoder, .. } = self;
        let looked_at = Cell::new(0);
        let others = assumed.iter().copied().chain(set.outside(history, &looked_at));
        let difference = own.decode_among(*prefix, likely, others, decoder);
        if let Ok(difference) = difference {
            let arrived =
                |identifier: &Identifier| difference.only_there.binary_search(identifier).is_ok();
            let (mut late, lost): (Vec<_>, Vec<_>) =
                assumed.iter().copied().partition(|identifier| arrived(identifier));
            late.sort_unstable();
            only_here.clear();
            only_here.extend_from_slice(difference.only_here);
            only_here.extend(lost);
            only_there.clear();
            only_there.extend(
                difference
                    .only_there
                    .iter()
                    .filter(|identifier| late.binary_search(identifier).is_err()),
            );
        }
        let decoded = difference.is_ok();
        (decoded, decoder.take_work() + looked_at.get())
    }
}

impl EpochState {
    /// Decodes the difference into `only_here` and `only_there` of the working memory; `None` if
    /// that fails. Changes no other state.
    ///
    /// First as it is: missing datagrams are only here. Then under assumptions (see
    /// [`decode_assuming`]): that all datagrams forwarded since the last eACK are missing (a long
    /// burst), all that were `missing` before (a long repair), or both; or all that passed before
    /// the client had asked for the last time. Last, that an outage began at one of some places.
    /// `spend` gets the work after each attempt and whether it failed, and returns whether there
    /// may be another one.
    pub(crate) fn decode(
        &self,
        eack: &Eack<'_>,
        missing: impl ExactSizeIterator<Item = u64> + Clone,
        history: &History,
        spend: impl FnMut(u64, bool) -> bool,
        scratch: &mut Scratch,
    ) -> Option<()> {
        let prefix = EncodedPrefix::new(eack.encoding, eack.prefix).ok()?;
        let set = &self.set;
        let empty;
        let own = match set.sketch() {
            Some(sketch) => sketch,
            None => {
                empty = set.empty_sketch();
                &empty
            }
        };
        let Scratch { candidates, only_here, only_there, decoder, .. } = scratch;
        let candidate_count = missing.len() as u64 + set.horizon() - set.considered();
        let mut search = Search {
            set,
            own,
            prefix,
            history,
            work: CANDIDATE_WORK * candidate_count,
            spend,
            may_go_on: true,
            only_here,
            only_there,
            decoder: decoder.get_or_insert_default(),
        };
        let known = missing.filter_map(|sequence| history.get(sequence));
        let known = known.map(|entry| entry.identifier);
        let unknown = set.unspoken(u64::MAX, history);
        // Few differences are found without candidates: these are collected when that has failed.
        let decoded = search.attempt(&[], known.clone().chain(unknown.clone()));
        if decoded.is_some() || !search.may_go_on {
            return decoded;
        }
        candidates.clear();
        candidates.extend(known);
        let known = candidates.len();
        candidates.extend(unknown);
        let all = &**candidates;
        let (known, new) = all.split_at(known);
        let unheard = set.unspoken(self.joined, history).count();
        let unheard = new.get(..unheard).unwrap_or_default();
        let assumptions: [(&[_], &[_]); 5] =
            [(all, &[]), (all, unheard), (known, new), (new, known), (&[], all)];
        let assumed = assumptions.map(|(_, assumed)| assumed);
        let decoded = decode_assuming(&assumed, |attempt, assumed| {
            // The first attempt was the one before.
            if attempt == 0 {
                return None;
            }
            search.attempt(assumed, assumptions[attempt].0.iter().copied())
        });
        let outage = self.outage.as_ref().filter(|_| set.longest() == Some(eack.encoding));
        let Some(outage) = outage.filter(|_| decoded.is_none() && search.may_go_on) else {
            return decoded;
        };
        let end = set.unspoken(outage.end(), history).count();
        Outage::beginnings(end, eack.encoding.decodable()).find_map(|begin| {
            let lost = new.get(begin..end)?;
            let likely = known.iter().chain(&new[..begin]).chain(&new[end..]).copied();
            search.attempt(lost, likely)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::ends::{Ends, identifier};

    #[test]
    fn missing_datagrams_are_only_here_and_late_ones_only_there() {
        let mut ends = Ends::new(10);
        ends.receive([0, 1, 2, 4, 5, 7]);
        let (only_here, only_there) = ends.eack(5, &[], false).unwrap();
        assert_eq!((only_here, only_there), (vec![identifier(3)], vec![identifier(7)]));
        assert!(ends.epoch.set.fold_in(identifier(7), &mut ends.history));
        assert!(!ends.epoch.set.fold_in(identifier(99), &mut ends.history), "never forwarded");
        ends.epoch.set.fold_out(identifier(99));
        ends.epoch.set.give_up(3, &mut ends.history);
        assert_eq!(ends.epoch.set.consider(&mut ends.history), 6);
        assert_eq!(ends.eack(7, &[], false), Some((vec![identifier(6)], vec![])));
        assert!(ends.epoch.set.is_tail_open(&ends.history));
        assert_eq!(ends.epoch.set.settled(Some(6), &ends.history), Some(identifier(5)));
    }

    #[test]
    fn a_long_burst_decodes_as_missing_in_whole() {
        let mut ends = Ends::new(100);
        ends.receive([0, 1, 40, 99]);
        assert_eq!(ends.eack(99, &[], false), None, "nothing may be assumed");
        let (mut only_here, only_there) = ends.eack(99, &[], true).unwrap();
        only_here.sort_unstable();
        let mut lost: Vec<_> = (2..99).filter(|number| *number != 40).map(identifier).collect();
        lost.sort_unstable();
        assert_eq!((only_here, only_there), (lost, vec![]));
    }
}
