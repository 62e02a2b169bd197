//! Belief in unauthenticated packets: SRTP's keys are the application's.
//!
//! ```text
//!   no RTP, or of a source that is not followed         recorded, 100 a second at most
//!   of a followed source, next to its newest number     numbered
//!   of a followed source, far from it                   recorded; numbered once the packets go on
//!                                                       there, and only there
//!   several datagrams of one number, 32 in a second     someone forges headers that it sees: nothing
//!                                                       is believed for 10 s
//! ```
//!
//! An attacker off the path guesses neither the source (32 bits) nor the current numbers. One that
//! sees the headers can only end the assistance: datagrams that are not believed pass at once.

use core::time::Duration;
use std::collections::{BTreeMap, HashMap, VecDeque};

use packrat_assist_token::token_bucket::Rate;
use packrat_wire::RateLimit;
use packrat_wire::estimate::Timestamp;
use packrat_wire::identifier::{IdentifierScheme, Material};

use crate::rtp::{Extender, RtpHeader};

/// Unproven datagrams recorded at once: fewer than a gateway tolerates in one eACK (64).
const UNPROVEN_BURST: f64 = 24.0;
/// Unproven datagrams recorded per second.
const UNPROVEN_RATE: u32 = 100;
/// Limit of the unproven datagrams that are recorded.
const UNPROVEN_LIMIT: Rate = Rate { per_second: UNPROVEN_RATE as f64, burst: UNPROVEN_BURST };
/// Packets in sequence after which a source is followed (RFC 3550, appendix A.1).
const SEQUENCE_PACKETS: u32 = 2;
/// Longest distance of two packets in sequence, numbers.
const SEQUENCE_GAP: u16 = 16;
/// Most sources that were heard and have not sent packets in sequence yet.
const MOST_CANDIDATES: usize = 1024;
/// Most sources that are followed.
const MOST_SOURCES: usize = 64;
/// Silence of a source after which another one takes its place.
const SUCCESSION_SILENCE: Duration = Duration::from_secs(1);
/// Distance above the newest number beyond which a number is believed when the next packets
/// continue it.
const NEAR_NUMBERS: u64 = 64;
/// Distance below the newest number from which a number is rejected.
const LATE_NUMBERS: u64 = 1000;
/// Packets that confirm a jump.
const JUMP_PACKETS: u32 = 3;
/// Time without a packet that continues the old numbers, after which a jump is confirmed.
const JUMP_SILENCE: Duration = Duration::from_millis(100);
/// Numbers whose datagram is remembered.
const REMEMBERED_NUMBERS: usize = 1024;
/// Most numbers with several datagrams in a second.
const CONFLICTS_PER_SECOND: u32 = 32;
/// Duration of the doubt after more conflicts.
const DOUBT_TIME: Duration = Duration::from_secs(10);

/// The belief in a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Belief {
    /// The packet with this number. Numbers begin at zero, and continue when a sender restarts.
    Numbered(u64),
    /// The packet may be the sender's.
    Recorded,
    /// The datagram is one of too many like it.
    Ignored,
}

#[derive(Debug, Clone, Copy)]
struct Source {
    last: u16,
    in_sequence: u32,
    at: Timestamp,
}

impl Source {
    fn is_confirmed(self) -> bool {
        self.in_sequence >= SEQUENCE_PACKETS
    }
}

/// Numbers that would be far above the newest one.
#[derive(Debug, Clone, Copy)]
struct Jump {
    next: u16,
    count: u32,
}

/// The judge of a session's packets.
#[derive(Debug)]
pub(crate) struct Credibility {
    /// Sources that the application has from its signalling: no others are followed.
    signalled: Vec<u32>,
    /// Set if only one source is followed at a time.
    is_single: bool,
    followed: HashMap<u32, Source>,
    candidates: HashMap<u32, Source>,
    order: VecDeque<u32>,
    /// Sources that have used numbers of another one, and until when they are not followed.
    banned: VecDeque<(u32, Timestamp)>,
    extender: Extender,
    /// The number that counts as zero.
    first: Option<i64>,
    jump: Option<Jump>,
    last_near: Timestamp,
    /// The datagram of each of the last numbers, and its source.
    seen: BTreeMap<u64, (Material, u32)>,
    conflicts: (Timestamp, u32),
    doubted_until: Option<Timestamp>,
    limit: RateLimit,
}

impl Credibility {
    /// Creates the state of a session. `is_single`: the numbers belong to one source.
    pub(crate) fn new(signalled: Vec<u32>, is_single: bool, now: Timestamp) -> Self {
        Self {
            signalled,
            is_single,
            followed: HashMap::new(),
            candidates: HashMap::new(),
            order: VecDeque::new(),
            banned: VecDeque::new(),
            extender: Extender::default(),
            first: None,
            jump: None,
            last_near: now,
            seen: BTreeMap::new(),
            conflicts: (now, 0),
            doubted_until: None,
            limit: RateLimit::new(UNPROVEN_LIMIT.burst, now),
        }
    }

    /// True while no datagram is believed.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubted_until.is_some()
    }

    /// True, once, when the doubt is over.
    pub(crate) fn ends_doubt(&mut self, now: Timestamp) -> bool {
        self.doubted_until.take_if(|until| now >= *until).is_some()
    }

    /// Judges a datagram. `packet`: the header of an RTP packet, and the number that reveals a
    /// missing packet, if it has one.
    pub(crate) fn judge(
        &mut self,
        datagram: &[u8],
        packet: Option<(RtpHeader, u16)>,
        now: Timestamp,
    ) -> Belief {
        if self.is_in_doubt() {
            return Belief::Ignored;
        }
        let number = packet.and_then(|(header, sequence)| {
            let followed = self.is_followed(&header, now);
            let number = if followed { self.number(&header, sequence, now) } else { None };
            number.map(|number| (number, header.source))
        });
        match number {
            Some((number, source)) if self.is_only_one(number, source, datagram, now) => {
                Belief::Numbered(number)
            }
            Some(_) => Belief::Ignored,
            None if self.limit.try_acquire(&UNPROVEN_LIMIT, now) => Belief::Recorded,
            None => Belief::Ignored,
        }
    }

    fn is_followed(&mut self, header: &RtpHeader, now: Timestamp) -> bool {
        let name = header.source;
        if !self.signalled.is_empty() {
            return self.signalled.contains(&name);
        }
        if self.banned.iter().any(|(banned, until)| *banned == name && now < *until) {
            return false;
        }
        if let Some(source) = self.followed.get_mut(&name) {
            continue_source(source, header.sequence, now);
            return true;
        }
        let is_confirmed = self.note_candidate(header, now);
        // The very first one is followed at once, and gives way to the first that is confirmed.
        let only_unconfirmed = self.followed.values().all(|source| !source.is_confirmed());
        let replaces = self.is_single && !self.followed.is_empty();
        let silent = |source: &Source| now.saturating_since(source.at) >= SUCCESSION_SILENCE;
        let may = if self.followed.is_empty() {
            true
        } else if replaces {
            is_confirmed && (only_unconfirmed || self.followed.values().all(silent))
        } else {
            is_confirmed
        };
        let candidate = if may { self.candidates.remove(&name) } else { None };
        let Some(source) = candidate else { return false };
        if replaces || only_unconfirmed {
            if !self.followed.is_empty() {
                self.begin_anew();
            }
            self.followed.clear();
        } else if self.followed.len() == MOST_SOURCES {
            let oldest = self.followed.iter().min_by_key(|(name, source)| (source.at, **name));
            if let Some(oldest) = oldest.map(|(name, _)| *name) {
                self.followed.remove(&oldest);
            }
        }
        self.followed.insert(name, source);
        true
    }

    /// A packet of a source that is not followed. True if the source has sent packets in sequence.
    fn note_candidate(&mut self, header: &RtpHeader, now: Timestamp) -> bool {
        if let Some(source) = self.candidates.get_mut(&header.source) {
            continue_source(source, header.sequence, now);
            return source.is_confirmed();
        }
        if self.order.len() == MOST_CANDIDATES
            && let Some(oldest) = self.order.pop_front()
        {
            self.candidates.remove(&oldest);
        }
        self.order.push_back(header.source);
        let source = Source { last: header.sequence, in_sequence: 1, at: now };
        self.candidates.insert(header.source, source);
        false
    }

    /// Continues with the numbers of another or a restarted sender: they follow the old ones.
    fn begin_anew(&mut self) {
        if let (Some(newest), Some(first)) = (self.extender.newest(), self.first) {
            self.first = Some(-(newest as i64 - first + 1));
        }
        self.extender = Extender::default();
        self.jump = None;
    }

    fn number(&mut self, header: &RtpHeader, sequence: u16, now: Timestamp) -> Option<u64> {
        let number = self.extender.extend(sequence);
        let is_near = self.extender.newest().is_none_or(|newest| {
            number <= newest + NEAR_NUMBERS && number + LATE_NUMBERS >= newest
        });
        if is_near {
            self.jump = None;
            self.last_near = now;
        } else {
            let continues =
                self.jump.filter(|jump| sequence.wrapping_sub(jump.next) < SEQUENCE_GAP);
            let count = continues.map_or(1, |jump| jump.count + 1);
            self.jump = Some(Jump { next: sequence.wrapping_add(1), count });
            let alone = now.saturating_since(self.last_near) >= JUMP_SILENCE;
            if count < JUMP_PACKETS || !alone {
                // A source far from the others has to prove itself again.
                if self.followed.len() > 1 {
                    self.followed.remove(&header.source);
                }
                return None;
            }
            self.last_near = now;
            self.jump = None;
            let newest = self.extender.newest()?;
            if number > newest && number - newest <= LATE_NUMBERS {
                // A long burst of loss.
            } else {
                self.begin_anew();
            }
        }
        let number = self.extender.extend(sequence);
        self.extender.accept(number);
        let first = match self.first {
            // After a new beginning: minus the number that its first packet gets.
            Some(first) if first <= 0 => {
                let first = number as i64 + first;
                self.first = Some(first);
                first
            }
            Some(first) => first,
            None => *self.first.insert(number as i64),
        };
        u64::try_from(number as i64 - first).ok()
    }

    /// True unless another datagram has had this number. Of two sources the earlier one is right;
    /// too many such datagrams of one source cause doubt about all.
    fn is_only_one(&mut self, number: u64, source: u32, datagram: &[u8], now: Timestamp) -> bool {
        let material = Material::of(IdentifierScheme::Payload, datagram);
        let (known, other) = *self.seen.entry(number).or_insert((material, source));
        while self.seen.len() > REMEMBERED_NUMBERS {
            self.seen.pop_first();
        }
        if known == material {
            return true;
        }
        if other != source && self.signalled.is_empty() {
            let length = |name| self.followed.get(&name).map_or(0, |known| known.in_sequence);
            let is_older = length(source) > length(other);
            let younger = if is_older { other } else { source };
            self.followed.remove(&younger);
            self.banned.push_back((younger, now + DOUBT_TIME));
            if self.banned.len() > MOST_SOURCES {
                self.banned.pop_front();
            }
            if is_older {
                self.seen.insert(number, (material, source));
            }
            return is_older;
        }
        let (since, count) = &mut self.conflicts;
        if now.saturating_since(*since) >= Duration::from_secs(1) {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        if *count > CONFLICTS_PER_SECOND {
            self.doubted_until = Some(now + DOUBT_TIME);
            self.seen.clear();
        }
        *count <= CONFLICTS_PER_SECOND
    }
}

fn continue_source(source: &mut Source, sequence: u16, now: Timestamp) {
    let step = sequence.wrapping_sub(source.last);
    if (1..=SEQUENCE_GAP).contains(&step) {
        source.in_sequence = source.in_sequence.saturating_add(1);
        source.last = sequence;
    } else if step != 0 && step < 0x8000 {
        source.in_sequence = source.in_sequence.min(SEQUENCE_PACKETS - 1);
        source.last = sequence;
    }
    source.at = now;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1000 + millis)
    }

    struct Session(Credibility);

    impl Session {
        fn new(signalled: &[u32]) -> Self {
            Self(Credibility::new(signalled.to_vec(), true, at(0)))
        }

        fn packet(&mut self, source: u32, sequence: u16, millis: u64) -> Belief {
            let header = RtpHeader { payload_type: 96, sequence, timestamp: 0, source };
            let datagram = [source.to_be_bytes(), u32::from(sequence).to_be_bytes()].concat();
            self.0.judge(&datagram, Some((header, sequence)), at(millis))
        }
    }

    #[test]
    fn the_first_forged_packet_does_not_lock_the_stream_out() {
        let mut session = Session::new(&[]);
        assert_eq!(session.packet(666, 9, 0), Belief::Numbered(0));
        assert_eq!(session.packet(7, 100, 1), Belief::Recorded);
        assert_eq!(session.packet(7, 101, 2), Belief::Numbered(1));
        // From here on only its silence ends it.
        for number in 0..100u16 {
            let millis = 3 + u64::from(number);
            assert_eq!(
                session.packet(7, 102 + number, millis),
                Belief::Numbered(2 + u64::from(number))
            );
            assert!(!matches!(session.packet(666, 10 + number, millis), Belief::Numbered(_)));
        }
        session.packet(8, 5, 2000);
        assert_eq!(session.packet(8, 6, 2001), Belief::Numbered(102), "the numbers go on");
        assert_eq!(session.packet(8, 7, 2002), Belief::Numbered(103));
    }

    #[test]
    fn a_signalled_source_is_the_only_one() {
        let mut session = Session::new(&[7]);
        for number in 0..10u16 {
            assert_eq!(session.packet(666, number, 0), Belief::Recorded);
        }
        assert_eq!(session.packet(7, 50, 0), Belief::Numbered(0));
        assert_eq!(session.packet(7, 52, 0), Belief::Numbered(2));
    }

    #[test]
    fn forged_numbers_far_above_have_no_effect_on_a_running_stream() {
        let mut session = Session::new(&[]);
        for number in 0..500u16 {
            let millis = u64::from(number) * 2;
            assert_eq!(session.packet(7, number, millis), Belief::Numbered(number.into()));
            for ahead in 0..4 {
                session.packet(7, number + 1000 + ahead, millis);
            }
        }
        // A restarted sender is followed after three packets in sequence.
        assert_eq!(session.packet(7, 30_000, 1200), Belief::Recorded);
        assert_eq!(session.packet(7, 30_001, 1210), Belief::Recorded);
        assert_eq!(session.packet(7, 30_002, 1220), Belief::Numbered(500));
        assert_eq!(session.packet(7, 30_004, 1230), Belief::Numbered(502));
    }

    #[test]
    fn what_nothing_speaks_for_has_a_rate() {
        let mut session = Session::new(&[]);
        let garbage = (0..10_000u64).filter(|tick| {
            let belief = session.0.judge(&[0x40; 60], None, at(tick / 2));
            belief == Belief::Recorded
        });
        let recorded = garbage.count();
        assert!((500..600).contains(&recorded), "{recorded} of 10,000 in five seconds");
    }

    #[test]
    fn who_forges_headers_that_it_sees_ends_the_belief_for_a_while() {
        let mut session = Session::new(&[]);
        let header = |sequence| RtpHeader { payload_type: 96, sequence, timestamp: 0, source: 7 };
        let mut ended = None;
        for number in 0..100u16 {
            session.packet(7, number, 0);
            let belief = session.0.judge(&[0xee; 40], Some((header(number), number)), at(0));
            if belief == Belief::Ignored {
                ended.get_or_insert(number);
            }
        }
        assert_eq!(ended, Some(CONFLICTS_PER_SECOND as u16));
        assert!(session.0.is_in_doubt() && !session.0.ends_doubt(at(9_999)));
        assert!(session.0.ends_doubt(at(10_000)) && !session.0.is_in_doubt());
        assert_eq!(session.packet(7, 60, 10_001), Belief::Numbered(60));
    }
}
