//! Second copies of what sparse flows bring, for clients that have no session.
//!
//! A flow of audio or of a game has no sketch to say what is missing when its client does not know
//! Packrat, and no time to wait for it. What such a flow has brought is therefore sent once more when
//! nothing has followed for some milliseconds: a loss of *p* becomes *p*², and the client's transport
//! drops what comes twice, as it must (RFC 9000, section 12.3; RFC 3711, section 3.3.2). The same
//! covers a handshake's flight, and the last datagram before a pause of any flow, whose loss the sender
//! learns by a timeout only.
//!
//! "Sparse" is as in FQ-CoDel (RFC 8290): a flow that takes so little that it builds no queue. The
//! gateway does not see whether a queue stands at a client without a session, so that all that is added
//! is bounded by rate: [`SPARSE_BYTES_PER_SECOND`] and one datagram in [`TAIL_INTERVAL`].

use core::time::Duration;

use packrat_wire::estimate::Timestamp;

use crate::counters::FlowCounters;
use crate::outbox::Outbox;

/// Rate up to which a flow is sparse: 128 kbit/s, an audio stream of good quality or a game's 60 datagrams
/// of 250 bytes.
const SPARSE_BYTES_PER_SECOND: f64 = 16_000.0;
/// Bytes that a sparse flow may bring at once: a server's part of a QUIC handshake, three datagrams
/// (RFC 9000, section 8.1), and a little.
const SPARSE_BURST: f64 = 4_500.0;
/// Time for which a flow that has brought much is not sparse, at most.
const BUSY_FOR: f64 = 1.0;
/// Silence after which what a sparse flow has brought is repeated: apart enough that one short burst of
/// losses does not take both, and within a frame of audio.
const GAP: Duration = Duration::from_millis(5);
/// Longest time that a copy waits for that silence.
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// Silence after which the last datagram of another flow is repeated: more than a pacer's pause.
const TAIL_SILENCE: Duration = Duration::from_millis(25);
/// Time between two such repetitions, at least.
const TAIL_INTERVAL: Duration = Duration::from_millis(200);
/// Copies are sent only as long as the client has said something within this time: nothing is repeated
/// to a client that has gone, or that receives nothing any more (RFC 8084). WebRTC's clients speak every
/// 5 s (RFC 7675).
const CLIENT_SILENCE: Duration = Duration::from_secs(10);
/// Bytes to an address that has proved nothing, for each byte from there (RFC 9000, section 8.1).
const UNPROVEN_FACTOR: u64 = 3;

/// Datagrams that a flow without a session has brought last, until they are sent once more.
#[derive(Debug, Default)]
pub(crate) struct SparseCopies {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The times at which the first and the last of them passed.
    oldest: Timestamp,
    newest: Timestamp,
    /// Bytes of the flow beyond its rate, as of `newest`.
    level: f64,
    /// True if the flow was sparse when the last of them passed.
    is_sparse: bool,
    /// The time from which the last datagram of a flow that is not sparse may be repeated.
    next_tail: Timestamp,
    address: Address,
}

impl SparseCopies {
    /// A datagram passes from the server to the client.
    pub(crate) fn forward(&mut self, datagram: &[u8], now: Timestamp) {
        self.address.sent(datagram);
        let elapsed = now.saturating_since(self.newest).as_secs_f64();
        let drained = (self.level - elapsed * SPARSE_BYTES_PER_SECOND).max(0.0);
        self.level = (drained + datagram.len() as f64)
            .min(SPARSE_BURST + BUSY_FOR * SPARSE_BYTES_PER_SECOND);
        self.is_sparse = self.level <= SPARSE_BURST;
        if !self.is_sparse {
            self.forget();
        }
        if self.ends.is_empty() {
            self.oldest = now;
        }
        self.newest = now;
        self.bytes.extend_from_slice(datagram);
        self.ends.push(self.bytes.len());
    }

    /// A datagram of the base connection has come from the client.
    pub(crate) fn hear(&mut self, datagram: &[u8], now: Timestamp) {
        self.address.received(datagram, now);
    }

    /// Nothing is repeated of what has passed so far.
    pub(crate) fn forget(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The time at which [`Self::handle_timeout`] wants to be called, if at all.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        if self.ends.is_empty() {
            None
        } else if self.is_sparse {
            Some((self.newest + GAP).min(self.oldest + LONGEST_WAIT))
        } else {
            Some(self.newest + TAIL_SILENCE)
        }
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) {
        if self.next_timeout().is_none_or(|due| due > now) {
            return;
        }
        let is_due = self.is_sparse || self.next_tail <= now;
        if is_due && self.address.allows(self.bytes.len(), now) {
            let mut start = 0;
            for &end in &self.ends {
                let datagram = self.bytes.get(start..end).unwrap_or_default();
                out.send(|bytes| bytes.extend_from_slice(datagram));
                start = end;
            }
            counters.sparse_copies += self.ends.len() as u64;
            counters.sparse_copy_bytes += self.bytes.len() as u64;
            self.address.add(self.bytes.len());
            self.next_tail = now + TAIL_INTERVAL;
        }
        self.forget();
        // A flow that is quiet keeps no memory.
        self.bytes = Vec::new();
    }
}

/// Evidence that the client is at its address: more than [`UNPROVEN_FACTOR`] times what has come from
/// there goes to no other.
#[derive(Debug, Default)]
struct Address {
    sent: u64,
    received: u64,
    heard: Option<Timestamp>,
    proof: Proof,
}

/// Longest value of a server's that is kept: a transaction identifier of STUN.
const LONGEST_VALUE: usize = 12;

/// A value that a server has chosen at random and that its client repeats, in the clear.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Proof {
    #[default]
    Missing,
    /// The server has sent this value.
    Asked(Value),
    /// The client has repeated it.
    Given,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Value {
    protocol: Protocol,
    length: u8,
    bytes: [u8; LONGEST_VALUE],
}

/// A protocol whose servers choose such a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// The server's connection ID (RFC 8999, section 5).
    Quic,
    /// The transaction identifier of a connectivity check (RFC 8489, section 5).
    Stun,
    /// The index of the server in a handshake response.
    WireGuard,
}

impl Value {
    fn new(protocol: Protocol, value: &[u8]) -> Option<Self> {
        let length = value.len().min(LONGEST_VALUE);
        let mut bytes = [0; LONGEST_VALUE];
        bytes.get_mut(..length)?.copy_from_slice(value.get(..length)?);
        Some(Self { protocol, length: length as u8, bytes })
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    /// The value in a server's datagram. Four random bytes are the least: an attacker who guesses them
    /// gains copies at the rate of a sparse flow.
    fn in_question(datagram: &[u8]) -> Option<Self> {
        match datagram {
            // A long header, of a version.
            [0x80..=0xff, version @ ..] if version.get(..4)? != [0; 4] => {
                let source = version.get(4..)?;
                let source = source.get(1 + usize::from(*source.first()?)..)?;
                let length = usize::from(*source.first()?);
                let value = source.get(1..1 + length)?;
                (length >= 4).then(|| Self::new(Protocol::Quic, value)).flatten()
            }
            // A request, not an indication or an answer.
            [first, second, ..] if is_stun(datagram) && first & 1 == 0 && second & 0x10 == 0 => {
                Self::new(Protocol::Stun, datagram.get(8..20)?)
            }
            [2, 0, 0, 0, index @ ..] if datagram.len() == 92 => {
                Self::new(Protocol::WireGuard, index.get(..4)?)
            }
            _ => None,
        }
    }

    /// True if a client's datagram repeats the value.
    fn is_in(&self, datagram: &[u8]) -> bool {
        let at = match (self.protocol, datagram) {
            (Protocol::Quic, [0x80..=0xff, ..]) => 6,
            (Protocol::Quic, [0x40..=0x7f, ..]) => 1,
            // The answer that says "yes".
            (Protocol::Stun, [1, 1, ..]) if is_stun(datagram) => 8,
            (Protocol::WireGuard, [4, 0, 0, 0, ..]) => 4,
            _ => return false,
        };
        datagram.get(at..).is_some_and(|rest| rest.starts_with(self.as_bytes()))
    }
}

fn is_stun(datagram: &[u8]) -> bool {
    datagram.first().is_some_and(|first| first & 0xc0 == 0)
        && datagram.get(4..8) == Some(&[0x21, 0x12, 0xa4, 0x42])
}

impl Address {
    fn sent(&mut self, datagram: &[u8]) {
        self.add(datagram.len());
        if self.proof != Proof::Given
            && let Some(value) = Value::in_question(datagram)
        {
            self.proof = Proof::Asked(value);
        }
    }

    fn add(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes as u64);
    }

    fn received(&mut self, datagram: &[u8], now: Timestamp) {
        self.received = self.received.saturating_add(datagram.len() as u64);
        self.heard = Some(now);
        if let Proof::Asked(value) = self.proof
            && value.is_in(datagram)
        {
            self.proof = Proof::Given;
        }
    }

    /// True if so many bytes more may go there now.
    fn allows(&self, bytes: usize, now: Timestamp) -> bool {
        let is_there = self.heard.is_some_and(|heard| now <= heard + CLIENT_SILENCE);
        let limit = self.received.saturating_mul(UNPROVEN_FACTOR);
        is_there && (self.proof == Proof::Given || self.sent.saturating_add(bytes as u64) <= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow on a path that loses, and what its client gets.
    struct Trial {
        copies: SparseCopies,
        counters: FlowCounters,
        out: Outbox,
        now: Timestamp,
    }

    impl Trial {
        fn new() -> Self {
            let mut copies = SparseCopies::default();
            let now = Timestamp::from_millis(1000);
            copies.hear(&[0x40], now);
            copies.address.proof = Proof::Given;
            Self { copies, counters: FlowCounters::default(), out: Outbox::new(), now }
        }

        /// Copies up to `until`, each with the time at which it is sent.
        fn run(&mut self, until: Timestamp) -> Vec<(Timestamp, Vec<u8>)> {
            let mut sent = Vec::new();
            while let Some(due) = self.copies.next_timeout().filter(|due| *due <= until) {
                self.now = due;
                self.copies.handle_timeout(due, &mut self.counters, &mut self.out);
                sent.extend(self.out.datagrams().map(|datagram| (due, datagram.to_vec())));
                self.out.clear();
            }
            self.now = until;
            sent
        }

        fn forward(&mut self, datagram: &[u8]) {
            self.copies.forward(datagram, self.now);
        }
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn each_datagram_of_an_audio_stream_goes_twice() {
        let mut trial = Trial::new();
        for number in 0..500_u16 {
            let frame = [&number.to_be_bytes()[..], &[7; 118]].concat();
            trial.copies.hear(&frame, trial.now);
            trial.forward(&frame);
            let passed = trial.now;
            let copies = trial.run(passed + millis(20));
            assert_eq!(copies, [(passed + GAP, frame)]);
        }
        assert_eq!((trial.counters.sparse_copies, trial.counters.sparse_copy_bytes), (500, 60_000));
    }

    #[test]
    fn a_flow_that_takes_more_has_its_tails_repeated_and_no_more() {
        let mut trial = Trial::new();
        // 1 Mbit/s, evenly; then a pause.
        let mut copies = Vec::new();
        for _ in 0..1000 {
            trial.copies.hear(&[0x40], trial.now);
            trial.forward(&[1; 1200]);
            copies.extend(trial.run(trial.now + Duration::from_micros(9600)));
        }
        assert!(copies.len() <= 5, "a flight at its begin: {}", copies.len());
        trial.forward(&[2; 1200]);
        let passed = trial.now;
        assert_eq!(trial.run(passed + millis(150)), [(passed + TAIL_SILENCE, vec![2; 1200])]);
        // Bursts ten times a second: not each of their tails.
        let mut copies = Vec::new();
        for _ in 0..100 {
            trial.copies.hear(&[0x40], trial.now);
            (0..10).for_each(|_| trial.forward(&[3; 1200]));
            copies.extend(trial.run(trial.now + millis(100)));
        }
        assert!((40..=50).contains(&copies.len()), "{} in ten seconds", copies.len());
        // What is quiet for long enough is sparse again.
        trial.run(trial.now + millis(1500));
        for _ in 0..3 {
            trial.forward(&[4; 1200]);
        }
        assert_eq!(trial.run(trial.now + millis(100)).len(), 3);
    }

    #[test]
    fn copies_wait_for_the_end_of_a_burst_but_not_for_long() {
        let mut trial = Trial::new();
        let begin = trial.now;
        let mut copies = Vec::new();
        for _ in 0..12 {
            trial.forward(&[1; 100]);
            copies.extend(trial.run(trial.now + millis(4)));
        }
        copies.extend(trial.run(trial.now + millis(100)));
        assert_eq!(copies.len(), 12);
        assert!(copies.iter().all(|(at, _)| *at >= begin + LONGEST_WAIT));
        assert_eq!(copies[0].0, begin + LONGEST_WAIT);
    }

    #[test]
    fn a_loss_of_p_becomes_its_square() {
        let mut state = 1_u64;
        let mut is_lost = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % 100 < 10
        };
        let mut trial = Trial::new();
        let (mut once, mut both) = (0, 0);
        for _ in 0..20_000 {
            trial.copies.hear(&[7; 100], trial.now);
            trial.forward(&[7; 100]);
            let copies = trial.run(trial.now + millis(20));
            let first = is_lost();
            once += u32::from(first);
            both += u32::from(first && copies.iter().all(|_| is_lost()));
        }
        assert!((1_800..2_200).contains(&once), "{once}");
        assert!((150..250).contains(&both), "{both}");
    }

    #[test]
    fn an_address_that_has_proved_nothing_gets_three_times_what_has_come_from_there() {
        let mut copies = SparseCopies::default();
        let (mut counters, mut out) = (FlowCounters::default(), Outbox::new());
        let mut now = Timestamp::from_millis(1000);
        copies.hear(&[7; 1000], now);
        let mut sent = 0;
        for _ in 0..200 {
            copies.forward(&[7; 100], now);
            sent += 100;
            now = now + millis(20);
            copies.handle_timeout(now, &mut counters, &mut out);
            if out.datagrams().count() > 0 {
                sent += 100;
                assert!(sent <= 3000, "{sent}");
            }
            out.clear();
        }
        assert_eq!(counters.sparse_copies, 15);
    }

    /// A long header with these connection IDs.
    fn long_header(destination: &[u8], source: &[u8]) -> Vec<u8> {
        let mut datagram = vec![0xc3, 0, 0, 0, 1, destination.len() as u8];
        datagram.extend_from_slice(destination);
        datagram.push(source.len() as u8);
        datagram.extend_from_slice(source);
        datagram.extend_from_slice(&[9; 60]);
        datagram
    }

    fn stun(kind: [u8; 2], transaction: [u8; 12]) -> Vec<u8> {
        [&kind[..], &[0, 8, 0x21, 0x12, 0xa4, 0x42], &transaction, &[0; 8]].concat()
    }

    #[test]
    fn a_client_proves_its_address_by_what_its_server_has_chosen() {
        let own = [1; 8];
        let index = |kind: u8, bytes: usize| {
            [&[kind, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef][..], &vec![3; bytes]].concat()
        };
        let cases: [(Vec<u8>, Vec<u8>, bool); 13] = [
            (long_header(&own, b"server!!"), [b"\x41server!!", &[5; 40][..]].concat(), true),
            (long_header(&own, b"serv"), [b"\x41serv", &[5; 40][..]].concat(), true),
            (long_header(&own, b"server!!"), long_header(b"server!!", &own), true),
            (long_header(&own, b"server!!"), [b"\x41server?!", &[5; 40][..]].concat(), false),
            (long_header(&own, b"server!!"), long_header(b"another!", b"server!!"), false),
            // Too short to prove anything, or none.
            (long_header(&own, b"srv"), [b"\x41srv", &[5; 40][..]].concat(), false),
            (long_header(&own, b""), vec![0x41; 40], false),
            (stun([0, 1], *b"transaction!"), stun([1, 1], *b"transaction!"), true),
            (stun([0, 1], *b"transaction!"), stun([1, 1], *b"transaction?"), false),
            // The client's own, which the server answers.
            (stun([1, 1], *b"transaction!"), stun([1, 1], *b"transaction!"), false),
            (stun([0, 1], *b"transaction!"), stun([0, 1], *b"transaction!"), false),
            (index(2, 84), index(4, 24), true),
            (index(1, 140), index(4, 24), false),
        ];
        for (asked, answered, proved) in cases {
            let mut copies = SparseCopies::default();
            let now = Timestamp::from_millis(1000);
            copies.forward(&asked, now);
            copies.hear(&answered, now);
            assert_eq!(copies.address.proof == Proof::Given, proved, "{asked:?} {answered:?}");
            assert_eq!(copies.address.allows(1 << 20, now), proved);
        }
    }

    #[test]
    fn nothing_is_repeated_to_a_client_that_is_silent() {
        let mut trial = Trial::new();
        trial.now = trial.now + CLIENT_SILENCE;
        trial.forward(&[1; 100]);
        assert_eq!(trial.run(trial.now + millis(50)), []);
        trial.copies.hear(&[1], trial.now);
        trial.forward(&[1; 100]);
        assert_eq!(trial.run(trial.now + millis(50)).len(), 1);
    }

    #[test]
    fn any_bytes_are_taken() {
        let mut copies = SparseCopies::default();
        let now = Timestamp::from_millis(1000);
        for length in 0..40 {
            for first in 0..=255 {
                let datagram: Vec<u8> =
                    (0..length).map(|at| if at == 0 { first } else { 0xff }).collect();
                copies.forward(&datagram, now);
                copies.hear(&datagram, now);
            }
        }
    }
}
