//! Counters and gauges, defined once: name, unit and meaning in one place for metrics, documentation
//! and tests.

use std::cell::Cell;

thread_local! {
    /// Zeros in memory that the thread has used a moment ago. A flow that counted in memory of its own
    /// would bring it into the processor's caches for each of its turns, and ten thousand flows would
    /// push each other out.
    static FREE: Cell<Option<Box<FlowCounters>>> = const { Cell::new(None) };
}

impl FlowCounters {
    /// Counters of this thread, all zero, until [`Self::give_back`].
    pub(crate) fn borrow() -> Box<Self> {
        FREE.take().unwrap_or_default()
    }

    /// The thread has its counters again. Returns what they have counted.
    pub(crate) fn give_back(mut counters: Box<Self>) -> Self {
        let counted = core::mem::take(&mut *counters);
        FREE.set(Some(counters));
        counted
    }
}

/// Makes a struct of counters whose fields can be walked by name.
macro_rules! counters {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $doc:literal])+ $field:ident,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: u64,)+
        }

        impl $name {
            /// Name and help text of every field, in the order of [`Self::values`].
            pub const FIELDS: &'static [(&'static str, &'static str)] =
                &[$((stringify!($field), concat!($($doc),+)),)+];

            /// Every value, in the order of [`Self::FIELDS`].
            pub fn values(&self) -> [u64; Self::FIELDS.len()] {
                [$(self.$field),+]
            }

            /// Adds another set of counters. Of these, memory is touched only where there is something to
            /// add.
            pub fn add(&mut self, other: &Self) {
                $(if other.$field != 0 {
                    self.$field += other.$field;
                })+
            }
        }
    };
}

counters! {
    /// Counters of one flow since the last [`crate::Flow::take_counters`]; add them up per route.
    FlowCounters {
        /// Sessions begun: a client and this gateway finished the handshake.
        sessions_begun,
        /// Datagrams recorded for possible repair.
        datagrams_recorded,
        /// Forwarded datagrams that the network had duplicated.
        datagrams_duplicated,
        /// Recorded datagrams whose bytes did not fit the cache.
        datagrams_uncached,
        /// Datagrams evicted from a full cache before their fate was known.
        evictions_full,
        /// eACKs received.
        eacks_received,
        /// eACKs decoded.
        eacks_decoded,
        /// eACKs ignored because a newer one was processed before.
        eacks_stale,
        /// eACKs ignored because they belong to another epoch.
        eacks_other_epoch,
        /// eACKs not looked at: the client, or its source, makes the gateway work too much.
        eacks_limited,
        /// eACKs that could not be decoded; a longer prefix was asked for.
        eacks_failed,
        /// Bytes of sketch prefixes received.
        eack_prefix_bytes,
        /// Sealed datagrams dropped: replayed.
        sealed_replayed,
        /// Sealed datagrams dropped: authentication failed.
        sealed_forged,
        /// Sealed datagrams dropped: malformed.
        sealed_malformed,
        /// Datagrams that eACKs showed to be missing.
        datagrams_missing,
        /// Missing datagrams that were sent again at least once.
        repairs,
        /// Transmissions of repairs beyond the first: spaced copies and repetitions.
        repair_copies,
        /// Bytes of repairs sent, copies included.
        repair_bytes,
        /// Repaired datagrams that eACKs showed to have arrived.
        repairs_arrived,
        /// Missing datagrams given up: a queue stands on the last mile and the sender must see what it loses.
        losses_shown,
        /// Missing datagrams given up: the sender tolerates so much loss, and gains nothing by a repair.
        losses_tolerated,
        /// Sessions whose sender was found to go on as before when it was shown losses: they are not repaired while they are few.
        senders_tolerant,
        /// Sessions whose sender was found to give way when it was shown losses: they are repaired from then on.
        senders_answering,
        /// Missing datagrams given up: repairs paused, and the sender must see what is lost.
        repairs_paused,
        /// Missing datagrams given up: too late to be of use.
        repairs_late,
        /// Missing datagrams given up: their bytes were gone.
        repairs_evicted,
        /// Pauses of a session's repairs: what arrived did not follow what was sent, or most repairs got lost.
        repair_pauses,
        /// Repairs put off because the budget was used up.
        budget_refusals,
        /// Early copies of thin live streams' datagrams, where a repair would come too late, and of first and rare datagrams, where the last mile is known to lose some.
        early_copies,
        /// Bytes of them.
        early_copy_bytes,
        /// Second copies of sparse flows' datagrams, for clients without a session.
        sparse_copies,
        /// Bytes of them.
        sparse_copy_bytes,
        /// Symbols of coded repair sent, each for half of the datagrams that it covers.
        symbols,
        /// Bytes of them.
        symbol_bytes,
        /// Datagrams sent again because a flow went quiet with its tail unacknowledged.
        tail_probes,
        /// Numbered datagrams received from clients.
        upward_numbered,
        /// Those of clients' datagrams that were missing when a later one arrived.
        upward_missing,
        /// Missing datagrams of clients that arrived in time, most of them as the client's repair.
        upward_repaired,
        /// Missing datagrams of clients that were given up: too late.
        upward_given_up,
        /// Missing datagrams of clients that were left to the client's transport: a queue stands on the last mile, or repairs pause.
        upward_shown,
        /// Datagrams of clients that waited for a missing one before them.
        upward_waited,
        /// Messages that told clients which of their datagrams are missing.
        upward_reports,
        /// Pauses of a client's repairs: what arrived did not follow what it sent.
        upward_pauses,
        /// Identifiers that only the client had and nothing explains.
        identifiers_foreign,
        /// Resets asked for by the gateway.
        resets_gateway,
        /// Resets asked for by the client.
        resets_client,
        /// Reports sent.
        reports_sent,
        /// Challenges sent to addresses from which messages of a session came unexpectedly.
        paths_challenged,
        /// Sessions that moved to another client address.
        paths_moved,
        /// Addresses that a client proved to be at and did not get: another session's client is there.
        paths_refused,
    }
}

counters! {
    /// Levels of one flow, now.
    FlowGauges {
        /// 1 if the flow is assisted, else 0.
        assisted,
        /// Bytes cached.
        cache_bytes,
        /// Most bytes that were ever cached.
        cache_high_water_bytes,
        /// Datagrams cached.
        cache_entries,
        /// Smoothed last-mile round trip in microseconds; 0: unknown.
        round_trip_microseconds,
        /// Last-mile loss in parts per million.
        loss_ppm,
    }
}

counters! {
    /// Counters of one stream with many receivers since the last [`crate::Stream::take_counters`].
    StreamCounters {
        /// Packets of the stream.
        stream_packets,
        /// Packets that the network had duplicated before.
        stream_duplicates,
        /// Subscriptions begun.
        subscriptions,
        /// Subscriptions ended, by the subscriber or by its silence.
        subscriptions_ended,
        /// Subscriptions refused: no room, or too many of one source.
        subscriptions_refused,
        /// Addresses challenged because a subscriber's message came from there unexpectedly.
        subscriptions_challenged,
        /// Subscriptions that moved to another address.
        subscriptions_moved,
        /// Datagrams of subscribers dropped: not control, of no subscription, forged, replayed, malformed.
        stream_refused,
        /// eACKs received.
        stream_eacks,
        /// eACKs not looked at: the subscriber, or its source, makes the gateway work too much.
        stream_eacks_limited,
        /// eACKs that could not be decoded.
        stream_eacks_failed,
        /// Packets that a subscriber missed, each counted once.
        stream_missing,
        /// Repairs sent.
        stream_repairs,
        /// Bytes of them.
        stream_repair_bytes,
        /// Repairs that were sent to all subscribers at once.
        stream_group_repairs,
        /// Symbols of coded repair that were sent to all subscribers at once.
        stream_symbols,
        /// Bytes of them.
        stream_symbol_bytes,
        /// Repaired packets that arrived.
        stream_repairs_arrived,
        /// Missing packets given up: too late to be of use, or tried too often.
        stream_late,
        /// Missing packets given up: their bytes were gone.
        stream_unrepairable,
        /// Repairs put off because a budget was used up.
        stream_budget_refusals,
        /// Identifiers that a subscriber has and the stream never had.
        stream_foreign,
        /// Resets asked for.
        stream_resets,
    }
}

counters! {
    /// Levels of one stream, now.
    StreamGauges {
        /// Subscribers.
        stream_subscribers,
        /// Bytes cached, for all subscribers together.
        stream_cache_bytes,
        /// Packets under repair, of all subscribers.
        stream_outstanding,
        /// Memory of all subscribers, with their sealed channels and what is under repair.
        stream_state_bytes,
    }
}
