//! A datagram shim: assistance between a socket and a transport that knows nothing of it.
//!
//! ```text
//!                     +------------------------- Shim ---------------------------+
//!   socket -------->  | number, control   ->   now: the caller's own bytes       |  --------> transport
//!                     |                        later: kept, released in order    |
//!          <--------  | control: handshake, eACKs                                |
//!                     +----------------------------------------------------------+
//! ```
//!
//! The transport sees the datagrams in the order in which the gateway has forwarded them, as from a
//! link that repairs its losses: while a missing one may still be repaired, those above it wait, for
//! the hold at most. The order is that of the gateway's numbers (docs/PROTOCOL.md, section 11), or
//! of the transport's own where these are in the clear. Without a session, and where nothing is
//! missing, everything passes at once and uncopied.

mod pace;
mod plain;
mod recovery;
mod release;

use packrat_wire::estimate::Timestamp;
use packrat_wire::number::{MaskedNumber, NumberHeader, Places, split};

use crate::assist::{Assist, Datagram, TimeoutActions};
use crate::config::ClientConfig;
use crate::events::{ClientEvent, Observer};
use crate::loss_memory::{Experience, Remembered};
use crate::packet_number::PacketNumber;
use crate::stats::AssistStats;
use crate::token::Token;
use plain::Plain;
use recovery::{Recovered, Recovery};
use release::Release;
pub use release::Released;

/// The shim's decision about a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<M> {
    /// Hand it to the transport now, without its first `skip` bytes, and before what
    /// [`Shim::poll_deliver`] has.
    Now {
        /// Bytes in front that are not the transport's.
        skip: usize,
        /// As it was passed in.
        metadata: M,
    },
    /// It is kept, and comes out of [`Shim::poll_deliver`].
    Later,
    /// It is not the transport's, or the second copy of one that the transport has, or that is kept.
    Never,
}

/// The place of a datagram, from a source of numbers that the caller has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// It has this number, and may be believed.
    Number(PacketNumber),
    /// It has no number, and may be believed.
    Unnumbered,
    /// It may be forged.
    Unproven,
}

/// Figures of a shim, beside those of [`Shim::assistance`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShimStats {
    /// Datagrams with a number that was believed.
    pub numbered: u64,
    /// Datagrams with a number that was not.
    pub far: u64,
    /// Datagrams that were kept.
    pub kept: u64,
    /// Datagrams recovered from the gateway's symbols.
    pub recovered: u64,
}

/// A transport's helper, sans-IO: datagrams of the socket in, datagrams for the transport out, in
/// order. `M` is what belongs to a datagram and passes through untouched: ECN, addresses, time of
/// reception.
///
/// After every call, poll [`Self::poll_deliver`] and [`Self::poll_transmit`] until they are empty,
/// and call [`Self::handle_timeout`] at [`Self::next_timeout`]. The transport's own datagrams go to
/// the socket unchanged, or with what [`Self::on_send`] says in front.
///
/// ```
/// use packrat_client::{ClientConfig, Shim, Timestamp, Verdict};
///
/// // An application takes the seed from the operating system.
/// let now = Timestamp::from_millis(1000);
/// let mut shim = Shim::new(ClientConfig::default(), [7; 32], now);
/// assert!(shim.poll_transmit(now).is_some(), "a question for a gateway");
///
/// // Without a gateway everything passes at once.
/// let ecn = 2;
/// let verdict = shim.on_datagram(b"a datagram from the peer", ecn, now);
/// assert_eq!(verdict, Verdict::Now { skip: 0, metadata: ecn });
/// assert_eq!(shim.poll_deliver(), None);
/// ```
#[derive(Debug)]
pub struct Shim<M> {
    assist: Assist,
    /// Since a session in which numbers were agreed.
    places: Option<Places>,
    /// The session that the places are of, counted from 1.
    places_of: u64,
    /// In a session in which coded repair was agreed; of the same session as the places.
    recovery: Option<Recovery<M>>,
    plain: Plain,
    release: Release<M>,
    stats: ShimStats,
}

impl<M: Clone> Shim<M> {
    /// A shim that asks the gateway for numbers. `seed`: 32 fresh random bytes from the operating
    /// system. The first [`Self::poll_transmit`] asks for a gateway.
    pub fn new(config: ClientConfig, seed: [u8; 32], now: Timestamp) -> Self {
        let (spread, hold) = (config.spread_bursts, config.access.maximum_hold);
        let mut shim = Self::with(Assist::with_numbers(config, seed, now));
        if spread {
            shim.release.spread(hold);
        }
        shim
    }

    /// A shim for a transport whose own numbers are in the clear: [`Self::on_ordered`] takes its
    /// datagrams.
    pub fn with_own_numbers(config: ClientConfig, seed: [u8; 32], now: Timestamp) -> Self {
        Self::with(Assist::new(config, seed, now))
    }

    fn with(mut assist: Assist) -> Self {
        // The order of each datagram says what is to be believed.
        assist.believe_proven_only();
        Self {
            assist,
            places: None,
            places_of: 0,
            recovery: None,
            plain: Plain::default(),
            release: Release::default(),
            stats: ShimStats::default(),
        }
    }

    /// Tells `observer` of everything from here on.
    pub fn observe(&mut self, observer: Observer) {
        self.assist.observe(observer);
    }

    /// A UDP payload arrived: one datagram, exactly as received.
    pub fn on_datagram(&mut self, datagram: &[u8], metadata: M, now: Timestamp) -> Verdict<M> {
        self.release.on_time(now);
        let split = if self.places.is_some() { split(datagram) } else { None };
        let (number, base) = split.map_or((None, datagram), |(number, base)| (Some(number), base));
        let skip = datagram.len() - base.len();
        if self.assist.on_datagram(base, now) == Datagram::Control {
            self.on_control(now);
            return Verdict::Never;
        }
        if number.is_some_and(|number| self.is_copy(number)) {
            return Verdict::Never;
        }
        let place = number.and_then(|number| {
            let identifier = self.assist.identifier()?;
            self.places.as_mut()?.read(number, identifier, now).map(PacketNumber::new)
        });
        if place.is_some() {
            self.stats.numbered += 1;
            self.plain.on_number(base.len());
        }
        self.stats.far += u64::from(number.is_some() && place.is_none());
        // The repair of what was recovered: the transport has it, or it waits.
        if self.is_repair_of_recovered(place, base, &metadata, now) {
            return Verdict::Never;
        }
        let order = match place {
            // The gateway has sent one datagram with this number: what arrives next is the same
            // one, which is known, or forged.
            Some(number) if self.assist.has_arrived(number) => Order::Unproven,
            Some(number) => Order::Number(number),
            None if number.is_some() => Order::Unproven,
            None if self.plain.admits(base.len(), now) => Order::Unnumbered,
            None => Order::Unproven,
        };
        let verdict = self.put_in_order(order, base, skip, metadata, now);
        // Behind the one that made it known.
        self.take_recovered(now);
        verdict
    }

    /// True if the datagram that has arrived last is known to be a second copy, by its number: the
    /// gateway's repair, a tail probe, or the network's.
    fn is_copy(&self, number: MaskedNumber) -> bool {
        if !self.assist.knows_copies() {
            return false;
        }
        let nearest = self.places.as_ref().zip(self.assist.identifier());
        let nearest = nearest.map(|(places, identifier)| places.nearest(number, identifier));
        nearest.is_some_and(|nearest| self.assist.is_copy(PacketNumber::new(nearest)))
    }

    /// Tells the code of a datagram; true if the transport has it already, as it was recovered.
    fn is_repair_of_recovered(
        &mut self,
        place: Option<PacketNumber>,
        base: &[u8],
        metadata: &M,
        now: Timestamp,
    ) -> bool {
        let Some(recovery) = &mut self.recovery else { return false };
        match place {
            Some(number) => {
                let place = self.places.as_ref().and_then(|places| places.place_of(number.get()));
                place.is_some_and(|place| recovery.on_datagram(place, base, metadata, now))
            }
            None => recovery.on_plain(base, now),
        }
    }

    /// Where the gateway numbers, a datagram without a number comes behind what has arrived before it.
    fn pass_behind(&mut self, base: &[u8], skip: usize, metadata: M, now: Timestamp) -> Verdict<M> {
        let in_order = self.places.is_some() && self.release.waiting() > 0;
        let newest = self.assist.highest_arrived().filter(|_| in_order);
        let Some(newest) = newest else { return Verdict::Now { skip, metadata } };
        self.release.keep(newest, base, metadata);
        self.on_kept(newest, now);
        self.release();
        Verdict::Later
    }

    /// Takes what the code has recovered, as if it had arrived.
    fn take_recovered(&mut self, now: Timestamp) {
        while let (Some(places), Some(recovery)) = (&self.places, &mut self.recovery)
            && let Some(Recovered { place, datagram, metadata, is_passed }) =
                recovery.next_recovered(now)
        {
            let number = PacketNumber::new(places.number_of(place));
            self.stats.recovered += 1;
            let packet_number = number;
            self.assist.tell(now, || ClientEvent::DatagramRecovered { packet_number });
            self.assist.on_recovered();
            // The gateway codes no control datagrams.
            if self.assist.on_datagram(&datagram, now) == Datagram::Base {
                self.assist.on_packet_number(number, now);
                // It comes out before those that waited for it, unless its repair has passed.
                if !is_passed {
                    self.release.keep(number, &datagram, metadata);
                }
                self.release();
            }
        }
    }

    /// The same, where the transport's numbers are in the clear: `order` is called for what is not
    /// the gateway's.
    pub fn on_ordered(
        &mut self,
        datagram: &[u8],
        metadata: M,
        now: Timestamp,
        order: impl FnOnce(&[u8]) -> Order,
    ) -> Verdict<M> {
        self.release.on_time(now);
        if self.assist.on_datagram(datagram, now) == Datagram::Control {
            self.on_control(now);
            return Verdict::Never;
        }
        self.put_in_order(order(datagram), datagram, 0, metadata, now)
    }

    /// A datagram of the transport's passes, or waits.
    fn put_in_order(
        &mut self,
        order: Order,
        base: &[u8],
        skip: usize,
        metadata: M,
        now: Timestamp,
    ) -> Verdict<M> {
        let number = match order {
            Order::Number(number) => number,
            Order::Unnumbered => {
                self.assist.on_authentic(now);
                return self.pass_behind(base, skip, metadata, now);
            }
            Order::Unproven => return self.pass_behind(base, skip, metadata, now),
        };
        // As true as it will get: the transport authenticates it, and keeps that to itself.
        self.assist.on_packet_number(number, now);
        self.release.on_arrival(base.len());
        let passes = number < self.assist.deliverable() && self.release.is_next(number);
        let verdict = if passes {
            self.release.on_passing(base.len());
            Verdict::Now { skip, metadata }
        } else {
            self.release.keep(number, base, metadata);
            self.on_kept(number, now);
            Verdict::Later
        };
        self.release();
        verdict
    }

    fn on_kept(&mut self, packet_number: PacketNumber, now: Timestamp) {
        self.stats.kept += 1;
        let waiting = self.release.waiting();
        self.assist.tell(now, || ClientEvent::DatagramKept { packet_number, waiting });
    }

    /// A message of the gateway's may have begun a session, or ended one.
    fn on_control(&mut self, now: Timestamp) {
        if let Some((session, key)) = self.assist.number_key()
            && self.places_of != session
        {
            self.places_of = session;
            self.release.begin(now);
            match &mut self.places {
                Some(places) => places.follow(key),
                None => self.places = Some(Places::new(key)),
            }
            self.recovery = self.assist.repairs_by_code().then(Recovery::new);
        }
        self.plain.on_resets(self.assist.stats().resets, now);
        self.release();
        while let (Some(places), Some(recovery)) = (&self.places, &mut self.recovery)
            && let Some(symbol) = self.assist.take_symbol()
        {
            recovery.on_symbol(&symbol, places.expected(), now);
            self.take_recovered(now);
        }
    }

    fn release(&mut self) {
        self.release.release_below(self.assist.deliverable());
    }

    /// Releases everything that waits.
    pub fn release_all(&mut self) {
        self.release.release_all();
    }

    /// Has the first of those that wait pass without delay, until no more than so many bytes are left.
    pub fn limit_waiting(&mut self, bytes: usize) {
        self.release.limit(bytes);
    }

    /// The next datagram for the transport.
    pub fn poll_deliver(&mut self) -> Option<Released<M>> {
        self.release.poll()
    }

    /// The transport sends a datagram: what goes in front of it. `None`: nothing, and always so
    /// unless [`ClientConfig::with_uploads`] is set and a gateway agrees.
    pub fn on_send(&mut self, datagram: &[u8], now: Timestamp) -> Option<NumberHeader> {
        self.assist.on_send(datagram, now)
    }

    /// Takes a datagram of the transport's that leaves with others, in what [`Self::poll_transmit`] gives: an
    /// acknowledgement of a download, where a gateway agrees. It may wait for 8 ms or a quarter of the round
    /// trip while that makes the download no slower. False: the caller sends it, and passes it to
    /// [`Self::on_send`] before.
    ///
    /// For a shell that wants fewer datagrams, to be called for each that its transport sends; what has been
    /// taken is the shim's to send. The transport's ECN mark belongs on what [`bears_mark`](crate::bears_mark)
    /// says it does; where the mark changes, [`Self::end_bundle`] and poll before. Only QUIC's datagrams are taken,
    /// of connections whose handshakes the shim has seen.
    pub fn bundle(&mut self, datagram: &[u8], now: Timestamp) -> bool {
        self.assist.bundle(datagram, now)
    }

    /// Has what [`Self::bundle`] has taken leave now, with what [`Self::poll_transmit`] gives next.
    pub fn end_bundle(&mut self, now: Timestamp) {
        self.assist.end_bundle(now);
    }

    /// The link refuses a datagram of this length (without its number) for what [`Self::on_send`] has put in
    /// front of it: such ones have no number from then on. The caller sends this one as it is.
    pub fn on_refused(&mut self, length: usize) {
        self.assist.on_refused(length);
    }

    /// Takes in what earlier connections have seen of the last mile ([`crate::LossMemory::recall`]). To be called
    /// before anything else.
    pub fn remember(&mut self, remembered: Remembered) {
        self.assist.remember(remembered);
    }

    /// Observations of the last mile so far, for [`crate::LossMemory::note`].
    pub fn experience(&self) -> Experience {
        self.assist.experience()
    }

    /// The transport is about to begin, and [`Self::on_send`] is told of all that it sends: the first
    /// question for a gateway follows its first flight, so that the gateway can say in its answer
    /// whether all of that has arrived. It waits for [`Self::end_first_flight`], for 5 ms after a datagram
    /// of the flight, or for 50 ms.
    pub fn expect_first_flight(&mut self, now: Timestamp) {
        self.assist.expect_first_flight(now);
    }

    /// Ends the first flight: the transport has sent what it had, and what [`Self::poll_transmit`] has may
    /// follow.
    pub fn end_first_flight(&mut self) {
        self.assist.end_first_flight();
    }

    /// The next control datagram, or repair, to send to the peer's address, from the transport's own
    /// socket.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        self.assist.poll_transmit(now)
    }

    /// The time at which to call [`Self::handle_timeout`].
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let timeouts = [self.assist.next_timeout(), self.release.next_timeout()];
        timeouts.into_iter().flatten().min()
    }

    /// Time has passed. A caller that can make its transport send something does so if that is asked
    /// for.
    pub fn handle_timeout(&mut self, now: Timestamp) -> TimeoutActions {
        let actions = self.assist.handle_timeout(now);
        self.release.on_time(now);
        self.release();
        actions
    }

    /// Datagrams were dropped unseen, or will not be believed: a new epoch begins.
    pub fn reset(&mut self, now: Timestamp) {
        self.assist.reset(now);
    }

    /// The gateway to accept and the token for the handshakes to come: a session with another gateway
    /// ends.
    pub fn set_access(
        &mut self,
        gateway_key: impl Into<Option<[u8; 32]>>,
        token: &Token,
        now: Timestamp,
    ) {
        self.assist.set_access(gateway_key, token, now);
        self.release();
    }

    /// Nothing has passed for a while, longer than any repair takes: gives back the memory that what has
    /// passed has taken. The session stays.
    pub fn trim(&mut self) {
        self.assist.trim();
        if let Some(recovery) = &mut self.recovery {
            recovery.trim();
        }
        self.release.trim();
    }

    /// The application or the system changes this client's address: call it before anything is sent
    /// from the new one.
    pub fn on_network_change(&mut self, now: Timestamp) {
        self.assist.on_network_change(now);
    }

    /// The base connection ends: a last message for the gateway is in [`Self::poll_transmit`], and
    /// nothing waits any more.
    pub fn close(&mut self, now: Timestamp) {
        self.assist.close(now);
        self.release_all();
    }

    /// True since a session in which numbers were agreed: they come off.
    pub fn knows_numbers(&self) -> bool {
        self.places.is_some()
    }

    /// Counters of the assistance.
    pub fn assistance(&self) -> AssistStats {
        self.assist.stats()
    }

    /// The shim's own counters.
    pub fn stats(&self) -> ShimStats {
        self.stats
    }

    /// Datagrams that wait now, and those of a burst that is being spread.
    pub fn waiting(&self) -> usize {
        self.release.waiting()
    }

    /// Their bytes.
    pub fn waiting_bytes(&self) -> usize {
        self.release.waiting_bytes()
    }

    /// Bytes of what grows with the traffic: of what waits, of what is remembered of what has passed, and of what
    /// is kept to be sent again. [`Self::trim`] gives back all but the first.
    pub fn memory(&self) -> usize {
        let recovery = self.recovery.as_ref().map_or(0, Recovery::memory);
        self.release.waiting_bytes() + self.assist.memory() + recovery
    }
}
