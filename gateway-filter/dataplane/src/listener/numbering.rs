//! Numbers in front of the datagrams of a batch.

use packrat_engine::NumberHeader;

use crate::socket::GsoBatch;

/// Header in the place of the number of a datagram without one.
const NO_HEADER: NumberHeader = [0; size_of::<NumberHeader>()];

/// The numbers in front of some datagrams, in order.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Headers of the datagrams; empty as long as none of them has a number.
    headers: Vec<NumberHeader>,
    /// Datagrams before the first one that has.
    plain: usize,
}

impl Numbers {
    /// The next datagram's.
    #[inline]
    pub(super) fn push(&mut self, number: Option<NumberHeader>) {
        match number {
            None if self.headers.is_empty() => self.plain += 1,
            None => self.headers.push(NO_HEADER),
            Some(number) => {
                if self.headers.is_empty() {
                    self.headers.resize(self.plain, NO_HEADER);
                }
                self.headers.push(number);
            }
        }
    }

    /// True if no datagram has a number.
    pub(super) fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// The number of the only datagram.
    pub(super) fn only(&self) -> Option<NumberHeader> {
        self.headers.first().copied().filter(|number| *number != NO_HEADER)
    }

    /// Datagrams with their numbers in front; split between one that has a number and one that has
    /// none, and before they are too long for one send.
    pub(super) fn in_front_of<'a>(&'a self, batches: &[GsoBatch<'a>]) -> Vec<GsoBatch<'a>> {
        let mut numbered = Vec::with_capacity(batches.len() + 1);
        let mut headers = &self.headers[..];
        for batch in batches {
            let (of_batch, rest) = headers.split_at(batch.segments().min(headers.len()));
            headers = rest;
            let most = batch.most_numbered();
            let mut data = batch.data;
            let alike = |one: &NumberHeader, other: &NumberHeader| {
                (*one == NO_HEADER) == (*other == NO_HEADER)
            };
            for run in of_batch.chunk_by(alike).flat_map(|run| run.chunks(most)) {
                let (part, rest) = data.split_at(data.len().min(run.len() * batch.segment_size));
                data = rest;
                let numbers = if run.contains(&NO_HEADER) { &[] } else { run };
                numbered.push(GsoBatch { data: part, numbers, ..*batch });
            }
        }
        numbered
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::socket::Ecn;

    proptest! {
        #[test]
        fn every_datagram_keeps_its_bytes_its_mark_and_its_number(
            shapes in prop::collection::vec((0usize..70_000, 1usize..1500, 0u8..4), 0..6),
            chosen in prop::collection::vec(any::<bool>(), 1..200),
        ) {
            let bytes: Vec<u8> = (0..70_000u32).map(|at| (at / 7) as u8).collect();
            let batches: Vec<GsoBatch<'_>> = shapes
                .iter()
                .map(|&(length, size, mark)| {
                    GsoBatch::plain(&bytes[..length.min(size * 64).min(65_507)], size, Ecn::from_traffic_class(mark))
                })
                .collect();
            let datagrams: Vec<_> =
                batches.iter().flat_map(|batch| batch.datagrams().map(|datagram| (datagram, batch.ecn))).collect();
            let number = |index: usize| {
                chosen[index % chosen.len()].then_some([11, 1, 2, 3, 4, 5, (index >> 8) as u8, index as u8])
            };
            let mut numbers = Numbers::default();
            (0..datagrams.len()).for_each(|index| numbers.push(number(index)));
            prop_assert_eq!(numbers.is_empty(), (0..datagrams.len()).all(|index| number(index).is_none()));
            if numbers.is_empty() {
                return Ok(());
            }
            let numbered = numbers.in_front_of(&batches);
            let mut index = 0;
            for batch in &numbered {
                let count = batch.datagrams().count();
                prop_assert!(batch.numbers.is_empty() || batch.numbers.len() == count);
                prop_assert!(batch.data.len() + 8 * batch.numbers.len() <= 65_507);
                for (at, datagram) in batch.datagrams().enumerate() {
                    prop_assert_eq!((datagram, batch.ecn), datagrams[index]);
                    prop_assert_eq!(batch.numbers.get(at).copied(), number(index));
                    index += 1;
                }
            }
            prop_assert_eq!(index, datagrams.len());
        }
    }
}
