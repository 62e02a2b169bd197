//! Second copies of sparse flows' datagrams, for clients that have no session.
//!
//! A flow of audio or of a game has no sketch to show missing datagrams when its client does not
//! know Packrat, and no time to wait for them. The datagrams of such a flow are therefore sent once
//! more when no other has followed for some milliseconds: a loss of *p* becomes *p*², and the
//! client's transport drops duplicates, as it must (RFC 9000, section 12.3; RFC 3711, section
//! 3.3.2). Copies also cover a handshake's flight, and the last datagram before a pause of any
//! flow, whose loss the sender learns by a timeout only.
//!
//! "Sparse" is as in FQ-CoDel (RFC 8290): a flow that takes so little that it builds no queue. The
//! gateway does not see whether a queue stands at a client without a session, so the rate of copies
//! is bounded: [`SPARSE_BYTES`] and one datagram in [`TAIL_INTERVAL`].

use core::time::Duration;

use packrat_assist_token::token_bucket::{Rate, TokenBucket};
use packrat_wire::estimate::Timestamp;

use crate::address_proof::AddressProof;
use crate::counters::FlowCounters;
use crate::outbox::Outbox;

/// Rate of a sparse flow's bytes, and bytes at once: at most 128 kbit/s, an audio stream of good
/// quality or a game's 60 datagrams of 250 bytes; at once a server's part of a QUIC handshake,
/// three datagrams (RFC 9000, section 8.1), and a little.
const SPARSE_BYTES: Rate = Rate { per_second: 16_000.0, burst: 4_500.0 };
/// Largest debt of a flow, in bytes: after it has brought much, a flow is not sparse for a second.
const LARGEST_DEBT_BYTES: f64 = SPARSE_BYTES.per_second;
/// Silence after which a sparse flow's datagrams are repeated: long enough that one short burst of
/// losses does not take both, and within a frame of audio.
const COPY_GAP: Duration = Duration::from_millis(5);
/// Longest time that a copy waits for that silence.
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// Silence after which the last datagram of another flow is repeated: more than a pacer's pause.
const TAIL_SILENCE: Duration = Duration::from_millis(25);
/// Shortest time between two such repetitions.
const TAIL_INTERVAL: Duration = Duration::from_millis(200);
/// Copies are sent only within this time after a datagram from the client: not to a client that has
/// gone, or that does not receive any more (RFC 8084). WebRTC's clients send every 5 s (RFC 7675).
const CLIENT_SILENCE: Duration = Duration::from_secs(10);
/// Bytes to an unproven address for each byte from there (RFC 9000, section 8.1).
const UNPROVEN_FACTOR: u64 = 3;

/// The newest datagrams of a flow without a session, until they are sent once more.
#[derive(Debug)]
pub(crate) struct SparseCopies {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// The times at which the first and the last of them passed.
    oldest: Timestamp,
    newest: Timestamp,
    /// Bytes by which the flow is below the limit of a sparse one, as of `newest`.
    tokens: TokenBucket,
    /// The time from which the last datagram of a flow that is not sparse may be repeated.
    next_tail: Timestamp,
    address: Address,
}

impl Default for SparseCopies {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            ends: Vec::new(),
            oldest: Timestamp::ZERO,
            newest: Timestamp::ZERO,
            tokens: TokenBucket::new(SPARSE_BYTES.burst),
            next_tail: Timestamp::ZERO,
            address: Address::default(),
        }
    }
}

impl SparseCopies {
    /// Records a datagram from the server to the client.
    pub(crate) fn forward(&mut self, datagram: &[u8], now: Timestamp) {
        self.address.sent(datagram);
        self.tokens
            .earn(SPARSE_BYTES.earned(now.saturating_since(self.newest)), SPARSE_BYTES.burst);
        self.tokens.charge((datagram.len() as f64).min(self.tokens.tokens() + LARGEST_DEBT_BYTES));
        if !self.is_sparse() {
            self.forget();
        }
        if self.ends.is_empty() {
            self.oldest = now;
        }
        self.newest = now;
        self.bytes.extend_from_slice(datagram);
        self.ends.push(self.bytes.len());
    }

    /// True if the flow was sparse when its last datagram passed.
    fn is_sparse(&self) -> bool {
        self.tokens.covers(0.0)
    }

    /// Records a datagram of the base connection from the client.
    pub(crate) fn hear(&mut self, datagram: &[u8], now: Timestamp) {
        self.address.received(datagram, now);
    }

    /// Forgets the datagrams that have passed so far: they are not repeated.
    pub(crate) fn forget(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Time of the next call of [`Self::handle_timeout`], if one is due.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        if self.ends.is_empty() {
            None
        } else if self.is_sparse() {
            Some((self.newest + COPY_GAP).min(self.oldest + LONGEST_WAIT))
        } else {
            Some(self.newest + TAIL_SILENCE)
        }
    }

    /// Sends the copies that are due.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Timestamp,
        counters: &mut FlowCounters,
        out: &mut Outbox,
    ) {
        if self.next_timeout().is_none_or(|due| due > now) {
            return;
        }
        let is_due = self.is_sparse() || self.next_tail <= now;
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

/// Evidence that the client receives at its address: an unproven address is sent at most
/// [`UNPROVEN_FACTOR`] times the bytes that have come from there.
#[derive(Debug, Default)]
struct Address {
    sent: u64,
    received: u64,
    heard: Option<Timestamp>,
    proof: AddressProof,
}

impl Address {
    fn sent(&mut self, datagram: &[u8]) {
        self.add(datagram.len());
        self.proof.sent(datagram);
    }

    fn add(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes as u64);
    }

    fn received(&mut self, datagram: &[u8], now: Timestamp) {
        self.received = self.received.saturating_add(datagram.len() as u64);
        self.heard = Some(now);
        self.proof.received(datagram);
    }

    /// True if `bytes` more may go there now.
    fn allows(&self, bytes: usize, now: Timestamp) -> bool {
        let is_there = self.heard.is_some_and(|heard| now <= heard + CLIENT_SILENCE);
        let limit = self.received.saturating_mul(UNPROVEN_FACTOR);
        is_there && (self.proof.is_given() || self.sent.saturating_add(bytes as u64) <= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flow with second copies to a client that has proved its address.
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
            copies.address.proof = AddressProof::given();
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
            assert_eq!(copies, [(passed + COPY_GAP, frame)]);
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
        // A flow that is quiet for long enough is sparse again.
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
    fn an_unproven_address_gets_its_bytes_three_times() {
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
