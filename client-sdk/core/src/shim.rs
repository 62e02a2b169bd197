//! A datagram shim: assistance between a socket and a transport that does not know Packrat.
//!
//! ```text
//!                     +------------------------- Shim ---------------------------+
//!   socket -------->  | number, control   ->   now: the caller's own bytes       |  --------> transport
//!                     |                        later: kept, released in order    |
//!          <--------  | control: handshake, eACKs                                |
//!                     +----------------------------------------------------------+
//! ```
//!
//! The transport receives the datagrams in the order in which the gateway has forwarded them, as from a link
//! that repairs its losses. While a missing datagram may still be repaired, the datagrams above it wait, for
//! the hold at most. The order is given by the gateway's numbers (docs/PROTOCOL.md, section 11), or by the
//! transport's own numbers if these are in the clear. Without a session, and while no datagram is missing,
//! all datagrams pass at once and are not copied.

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
    /// Pass the datagram to the transport now, without its first `skip` bytes, and before the
    /// datagrams of [`Shim::poll_deliver`].
    Now {
        /// Number of leading bytes that are not the transport's.
        skip: usize,
        /// The caller's metadata of the datagram.
        metadata: M,
    },
    /// The shim keeps the datagram; [`Shim::poll_deliver`] will return it.
    Later,
    /// Do not pass the datagram on: it is not the transport's, or a copy of a datagram that the transport or
    /// the shim has.
    Never,
}

/// The number of a datagram, as the caller knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The datagram has this number, and may be believed.
    Number(PacketNumber),
    /// The datagram has no number, and may be believed.
    Unnumbered,
    /// The datagram may be forged.
    Unproven,
}

/// An event of the base connection beside its datagrams, for [`Shim::handle`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Input<'a> {
    /// The time of [`Shim::next_timeout`] has come.
    Timeout,
    /// The transport's first flight begins, of which [`Shim::on_send`] receives each datagram. The
    /// first question for a gateway follows this flight, so that the gateway can report whether it
    /// has arrived completely. The question waits for [`Self::FirstFlightEnds`], for 5 ms after a
    /// datagram of the flight, or for 50 ms.
    FirstFlightBegins,
    /// The transport has sent all of its first flight.
    FirstFlightEnds,
    /// The transport's next datagrams bear another ECN mark: those that [`Shim::bundle`] has taken
    /// leave before.
    MarkChanges,
    /// The link refuses a datagram of this length (without its number) because of the number that
    /// [`Shim::on_send`] has returned for it. Datagrams of this length and longer have no numbers
    /// from then on. The caller sends this one as it is.
    NumberRefused {
        /// Bytes of the datagram.
        length: usize,
    },
    /// The caller has dropped datagrams unseen, or will not believe them: a new epoch begins.
    DatagramsDropped,
    /// Another gateway to accept, and the token of the next handshakes. A session with another
    /// gateway ends.
    Access {
        /// The gateway's static key; `None`: any, on first use.
        gateway_key: Option<[u8; 32]>,
        /// The token.
        token: &'a Token,
    },
    /// The application or the system changes this client's address: before any datagram leaves
    /// from the new one.
    NetworkChange,
    /// Too much waits: the lowest datagrams leave without delay, until at most this number of bytes
    /// is left.
    Crowded {
        /// Bytes that may wait; 0: all datagrams leave.
        most: usize,
    },
    /// There was no traffic for longer than any repair takes: the memory for past datagrams is
    /// released. The session stays.
    Idle,
    /// The base connection ends: all waiting datagrams leave, and [`Shim::poll_transmit`] returns a
    /// last message for the gateway.
    Close,
}

/// Counters of a shim, in addition to [`Shim::assistance`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShimStats {
    /// Datagrams with a number that was believed.
    pub numbered: u64,
    /// Datagrams with a number that was not believed.
    pub far: u64,
    /// Datagrams that were kept.
    pub kept: u64,
    /// Datagrams recovered from the gateway's symbols.
    pub recovered: u64,
}

/// A transport's helper, sans-IO: it takes datagrams from the socket, and returns datagrams for the
/// transport, in order. The metadata `M` of a datagram (ECN mark, addresses, time of reception)
/// passes through unchanged.
///
/// The contract: datagrams come in by [`Self::on_datagram`], [`Self::on_send`] and [`Self::bundle`],
/// all other events by [`Self::handle`], in any order, with times that do not go back. After each,
/// the caller polls [`Self::poll_deliver`] and then [`Self::poll_transmit`] until they are empty,
/// and calls `handle` with [`Input::Timeout`] at [`Self::next_timeout`]. The transport's own
/// datagrams go to the socket unchanged, or behind the number that `on_send` returns.
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
    /// Set once a session has agreed on numbers.
    places: Option<Places>,
    /// The number of the session that the places belong to, counted from 1.
    places_of: u64,
    /// Set if coded repair was agreed in the session of the places.
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
        // The order of each datagram shows whether to believe it.
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

    /// Reports all further events to `observer`.
    pub fn observe(&mut self, observer: Observer) {
        self.assist.observe(observer);
    }

    /// Processes a received UDP payload: one datagram, exactly as received.
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
        // The transport or the shim already has a recovered datagram: its repair is dropped.
        if self.is_repair_of_recovered(place, base, &metadata, now) {
            return Verdict::Never;
        }
        let order = match place {
            // The gateway sends one datagram with this number: another one is either its copy,
            // which is known, or forged.
            Some(number) if self.assist.has_arrived(number) => Order::Unproven,
            Some(number) => Order::Number(number),
            None if number.is_some() => Order::Unproven,
            None if self.plain.admits(base.len(), now) => Order::Unnumbered,
            None => Order::Unproven,
        };
        let verdict = self.put_in_order(order, base, skip, metadata, now);
        // Recovered datagrams follow the one that made them known.
        self.take_recovered(now);
        verdict
    }

    /// True if the datagram that arrived last is a second copy, as its number shows: the gateway's
    /// repair, a tail probe, or the network's copy.
    fn is_copy(&self, number: MaskedNumber) -> bool {
        if !self.assist.knows_copies() {
            return false;
        }
        let nearest = self.places.as_ref().zip(self.assist.identifier());
        let nearest = nearest.map(|(places, identifier)| places.nearest(number, identifier));
        nearest.is_some_and(|nearest| self.assist.is_copy(PacketNumber::new(nearest)))
    }

    /// Passes a datagram to the decoder. Returns true if the datagram was already recovered.
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

    /// Passes a datagram without a number. If the gateway sends numbers, the datagram follows the highest
    /// number received before it.
    fn pass_behind(&mut self, base: &[u8], skip: usize, metadata: M, now: Timestamp) -> Verdict<M> {
        let in_order = self.places.is_some() && self.release.waiting() > 0;
        let newest = self.assist.highest_arrived().filter(|_| in_order);
        let Some(newest) = newest else { return Verdict::Now { skip, metadata } };
        self.release.keep(newest, base, metadata);
        self.on_kept(newest, now);
        self.release();
        Verdict::Later
    }

    /// Takes the recovered datagrams as if they had arrived.
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
            // Control datagrams are never coded.
            if self.assist.on_datagram(&datagram, now) == Datagram::Base {
                self.assist.on_packet_number(number, now);
                // The recovered datagram leaves before the datagrams that waited for it, unless its
                // repair has passed.
                if !is_passed {
                    self.release.keep(number, &datagram, metadata);
                }
                self.release();
            }
        }
    }

    /// Processes a received UDP payload of a transport whose own numbers are in the clear. `order`
    /// is called for a datagram that is not the gateway's.
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

    /// Passes a datagram of the transport's, or keeps it.
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
        // No better proof will follow: the transport authenticates the datagram, but does not
        // report the result.
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

    /// Called after a control datagram, which may have begun or ended a session.
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

    /// Returns the next datagram for the transport.
    pub fn poll_deliver(&mut self) -> Option<Released<M>> {
        self.release.poll()
    }

    /// Processes a datagram that the transport sends. Returns the number to put in front of it;
    /// `None` if it leaves without one, as always unless [`ClientConfig::with_uploads`] is set and
    /// a gateway agrees.
    pub fn on_send(&mut self, datagram: &[u8], now: Timestamp) -> Option<NumberHeader> {
        self.assist.on_send(datagram, now)
    }

    /// Takes a datagram of the transport's to send it with others in a datagram of [`Self::poll_transmit`]:
    /// an acknowledgement of a download, if a gateway agrees. It waits for at most 8 ms and a quarter of the
    /// round trip, while this does not slow the download down. If the result is false, the caller sends the
    /// datagram itself, and passes it to [`Self::on_send`] before.
    ///
    /// A shell that wants fewer datagrams calls this method for each datagram of its transport; the shim
    /// sends the datagrams that it has taken. Datagrams for which [`bears_mark`](crate::bears_mark) returns
    /// true bear the transport's ECN mark ([`Input::MarkChanges`]). Only QUIC datagrams are taken, of
    /// connections whose handshakes the shim has seen.
    pub fn bundle(&mut self, datagram: &[u8], now: Timestamp) -> bool {
        self.assist.bundle(datagram, now)
    }

    /// Takes notice of an event. If the result asks for a packet, a caller that can do so makes its
    /// transport send one.
    pub fn handle(&mut self, input: Input<'_>, now: Timestamp) -> TimeoutActions {
        match input {
            Input::Timeout => {
                let actions = self.assist.handle_timeout(now);
                self.release.on_time(now);
                self.release();
                return actions;
            }
            Input::FirstFlightBegins => self.assist.expect_first_flight(now),
            Input::FirstFlightEnds => self.assist.end_first_flight(),
            Input::MarkChanges => self.assist.end_bundle(now),
            Input::NumberRefused { length } => self.assist.on_refused(length),
            Input::DatagramsDropped => self.assist.reset(now),
            Input::Access { gateway_key, token } => {
                self.assist.set_access(gateway_key, token, now);
                self.release();
            }
            Input::NetworkChange => self.assist.on_network_change(now),
            Input::Crowded { most: 0 } => self.release.release_all(),
            Input::Crowded { most } => self.release.limit(most),
            Input::Idle => {
                self.assist.trim();
                self.recovery.iter_mut().for_each(Recovery::trim);
                self.release.trim();
            }
            Input::Close => {
                self.assist.close(now);
                self.release.release_all();
            }
        }
        TimeoutActions::default()
    }

    /// Takes the observations of the last mile by earlier connections ([`crate::LossMemory::recall`]). To be
    /// called before all other methods.
    pub fn remember(&mut self, remembered: Remembered) {
        self.assist.remember(remembered);
    }

    /// Observations of the last mile so far, for [`crate::LossMemory::note`].
    pub fn experience(&self) -> Experience {
        self.assist.experience()
    }

    /// Returns the next datagram to send to the peer's address from the transport's own socket: a control
    /// datagram, a repair, a copy, or a bundle.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        self.assist.poll_transmit(now)
    }

    /// The time of [`Input::Timeout`].
    pub fn next_timeout(&self) -> Option<Timestamp> {
        let timeouts = [self.assist.next_timeout(), self.release.next_timeout()];
        timeouts.into_iter().flatten().min()
    }

    /// True once a session has agreed on numbers: the shim then removes them.
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

    /// Number of waiting datagrams, including released ones of a burst that is being spread.
    pub fn waiting(&self) -> usize {
        self.release.waiting()
    }

    /// Bytes of the waiting datagrams, including released ones.
    pub fn waiting_bytes(&self) -> usize {
        self.release.waiting_bytes()
    }

    /// Memory that grows with the traffic, in bytes: for waiting datagrams, past datagrams, and datagrams
    /// that may be sent again. [`Input::Idle`] releases all but the waiting datagrams.
    pub fn memory(&self) -> usize {
        let recovery = self.recovery.as_ref().map_or(0, Recovery::memory);
        self.release.waiting_bytes() + self.assist.memory() + recovery
    }
}
