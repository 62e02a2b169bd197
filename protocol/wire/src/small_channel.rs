//! A sealed channel in 84 bytes, for a gateway that has thousands of them for one stream.
//!
//! The same bytes on the wire as [`crate::seal`]. The window of counters that may arrive late is 64
//! instead of 1,024.

use crate::cipher::Key;
use crate::seal::{OpenError, SealError};
use crate::{MessageCounter, SessionId};

/// Number of counters below the newest one that may arrive late.
const LATE_COUNTERS: u32 = u64::BITS;

/// Both directions of a session, the gateway's end.
pub struct SmallChannel {
    seen: u64,
    opens: Key,
    seals: Key,
    session: SessionId,
    /// The next message's counter; the last of all: used up.
    next: MessageCounter,
    /// Highest counter accepted, plus one; zero before the first.
    end: u32,
}

impl core::fmt::Debug for SmallChannel {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "SmallChannel(session {}, next {})", self.session, self.next)
    }
}

impl SmallChannel {
    pub(crate) const fn new(session: SessionId, opens: Key, seals: Key) -> Self {
        Self { seen: 0, opens, seals, session, next: MessageCounter::FIRST, end: 0 }
    }

    /// The session's id.
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Appends the datagram for `plaintext` to `out` and returns its counter.
    ///
    /// # Errors
    /// Too long, or the counter is used up.
    pub fn seal(
        &mut self,
        plaintext: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<MessageCounter, SealError> {
        let counter = self.next;
        let next = counter.next().ok_or(SealError::Exhausted)?;
        self.seals.seal(self.session, counter, plaintext, out)?;
        self.next = next;
        Ok(counter)
    }

    /// Replaces `plaintext` by the message of a sealed datagram and returns its counter. On error
    /// only `plaintext` changes.
    ///
    /// # Errors
    /// The datagram is to be dropped.
    pub fn open(
        &mut self,
        datagram: &[u8],
        plaintext: &mut Vec<u8>,
    ) -> Result<MessageCounter, OpenError> {
        let counter = self.opens.open(datagram, plaintext, |counter| self.is_new(counter.get()))?;
        self.accept(counter.get());
        Ok(counter)
    }

    fn is_new(&self, counter: u32) -> bool {
        // The largest counter is never used: `end` could not represent it.
        let behind = match self.end.checked_sub(counter) {
            None | Some(0) => return counter < u32::MAX,
            Some(behind) => behind - 1,
        };
        behind < LATE_COUNTERS && self.seen >> behind & 1 == 0
    }

    fn accept(&mut self, counter: u32) {
        if counter >= self.end {
            let ahead = counter - self.end + 1;
            self.seen = self.seen.checked_shl(ahead).unwrap_or(0) | 1;
            self.end = counter + 1;
        } else {
            self.seen |= 1 << (self.end - counter - 1);
        }
    }
}

/// There are thousands of them.
const _: () = assert!(size_of::<SmallChannel>() <= 88);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::{ClientParams, Established, GatewayParams, Initiator, respond};
    use crate::identifier::IdentifierScheme;
    use crate::seal::MAXIMUM_PLAINTEXT_BYTES;
    use packrat_eack::SketchLimits;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Both ends of a session: the client's, and the gateway's.
    fn session() -> (Established, SmallChannel) {
        let limits = SketchLimits { coded_symbols: 0, power_sums: 40 };
        let scheme = IdentifierScheme::Payload;
        let maximum_hold = core::time::Duration::from_millis(100);
        let client_params = ClientParams {
            scheme,
            limits,
            maximum_hold,
            live: None,
            numbered: None,
            token: Vec::new(),
            ticket: None,
            bundles: false,
        };
        let client = Initiator::new([1; 32], 9, client_params, None);
        let message = client.message().unwrap();
        let gateway_params = GatewayParams {
            session: SessionId::new(77),
            scheme,
            limits,
            cache_bytes: 9,
            secret: [3; 32].into(),
            stream: Some([4; 32].into()),
            symbols: None,
            numbered: None,
            hint: Default::default(),
            ticket: None,
            bundles: false,
            distinct: false,
        };
        let (gateway, _, answer) =
            respond([2; 32], &[5; 32], 9, &message, |_, _| gateway_params).unwrap();
        (client.finish(&answer).unwrap(), gateway.into_small_channel())
    }

    #[test]
    fn it_speaks_with_an_ordinary_end() {
        let (mut client, mut gateway) = session();
        let mut plaintext = Vec::new();
        for number in 0..200u32 {
            let text = vec![number as u8; number as usize];
            let (theirs, own) = (MessageCounter::new(number * 2), MessageCounter::new(number));
            let mut sealed = Vec::new();
            // Each round seals two messages.
            assert_eq!(client.sealer.seal(&text, &mut sealed), Ok(theirs));
            assert_eq!(gateway.open(&sealed, &mut plaintext), Ok(theirs));
            assert_eq!(plaintext, text);
            assert_eq!(gateway.open(&sealed, &mut plaintext), Err(OpenError::Replayed));
            let mut answer = Vec::new();
            assert_eq!(gateway.seal(&text, &mut answer), Ok(own));
            assert_eq!(client.opener.open(&answer, &mut plaintext), Ok(own));
            assert_eq!(plaintext, text);
            // It rejects messages that it sealed itself, and altered ones.
            assert!(gateway.open(&answer, &mut plaintext).is_err());
            let mut bent = Vec::new();
            client.sealer.seal(b"bent", &mut bent).unwrap();
            let at = bent.len() - 1 - number as usize % 20;
            bent[at] ^= 1;
            assert_eq!(gateway.open(&bent, &mut plaintext), Err(OpenError::Forged));
        }
        let mut out = Vec::new();
        assert_eq!(
            gateway.seal(&[0; MAXIMUM_PLAINTEXT_BYTES + 1], &mut out),
            Err(SealError::TooLong)
        );
        gateway.next = MessageCounter::new(u32::MAX);
        assert_eq!(gateway.seal(b"", &mut out), Err(SealError::Exhausted));
    }

    proptest! {
        /// Against a model that remembers everything.
        #[test]
        fn nothing_is_accepted_twice_and_nothing_recent_is_refused(jumps in proptest::collection::vec(-800i64..3000, 1..300)) {
            let (mut channel, mut seen, mut end) = (SmallChannel::new(SessionId::new(1), Key::new([0; 32]), Key::new([0; 32])), HashSet::new(), 0i64);
            for jump in jumps {
                let counter = (end + jump / 8 - 3).max(0);
                let expected = end - counter <= i64::from(LATE_COUNTERS) && !seen.contains(&counter);
                prop_assert_eq!(channel.is_new(counter as u32), expected, "counter {} end {}", counter, end);
                if expected {
                    channel.accept(counter as u32);
                    seen.insert(counter);
                    end = end.max(counter + 1);
                }
            }
        }
    }

    #[test]
    fn the_end_of_all_counters_is_not_passed() {
        let mut channel =
            SmallChannel::new(SessionId::new(1), Key::new([0; 32]), Key::new([0; 32]));
        channel.accept(u32::MAX - 1);
        assert!(
            !channel.is_new(u32::MAX)
                && !channel.is_new(u32::MAX - 1)
                && channel.is_new(u32::MAX - 2)
        );
    }
}
