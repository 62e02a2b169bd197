//! Counters and gauges, defined once: name, unit and meaning in one place for metrics, documentation
//! and tests.

use std::cell::Cell;

thread_local! {
    /// Zeros in memory that the thread has used a moment ago. A flow that counted in memory of its
    /// own would bring it into the processor's caches for each of its turns, and ten thousand flows
    /// would push each other out.
    static FREE_COUNTERS: Cell<Option<Box<FlowCounters>>> = const { Cell::new(None) };
}

impl FlowCounters {
    /// Counters of this thread, all zero, until [`Self::give_back`].
    pub(crate) fn borrow() -> Box<Self> {
        FREE_COUNTERS.take().unwrap_or_default()
    }

    /// The thread has its counters again. Returns what they have counted.
    pub(crate) fn give_back(mut counters: Box<Self>) -> Self {
        let counted = core::mem::take(&mut *counters);
        FREE_COUNTERS.set(Some(counters));
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

            /// Adds another set of counters. Touches memory only of fields that grow.
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
        /// Sessions whose handshake is finished.
        sessions_begun,
        /// Datagrams recorded for repair.
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
        /// eACKs ignored: a newer one came before.
        eacks_stale,
        /// eACKs ignored: of another epoch.
        eacks_other_epoch,
        /// eACKs ignored: the client or its source makes too much work.
        eacks_limited,
        /// eACKs not decoded; the gateway asked for a longer prefix.
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
        /// Missing datagrams sent again.
        repairs,
        /// Transmissions of repairs beyond the first.
        repair_copies,
        /// Bytes of repairs sent, copies included.
        repair_bytes,
        /// Repaired datagrams that eACKs showed to have arrived.
        repairs_arrived,
        /// Missing datagrams left to the sender: a queue stands on the last mile.
        losses_shown,
        /// Missing datagrams left to the sender: it tolerates so much loss.
        losses_tolerated,
        /// Sessions whose sender was found to tolerate few losses.
        senders_tolerant,
        /// Sessions whose sender was found to slow down at losses.
        senders_answering,
        /// Missing datagrams left to the sender: repairs paused.
        repairs_paused,
        /// Missing datagrams given up: too late.
        repairs_late,
        /// Missing datagrams given up: their bytes were gone.
        repairs_evicted,
        /// Pauses of a session's repairs: most never arrived.
        repair_pauses,
        /// Repairs postponed: budget used up.
        budget_refusals,
        /// Early copies of thin live streams' datagrams, and of first and rare datagrams on a lossy last mile.
        early_copies,
        /// Bytes of early copies.
        early_copy_bytes,
        /// Copies of sparse flows' datagrams to clients without a session.
        sparse_copies,
        /// Bytes of sparse copies.
        sparse_copy_bytes,
        /// Symbols of coded repair sent.
        symbols,
        /// Bytes of symbols.
        symbol_bytes,
        /// Datagrams sent again because a flow paused with its tail unacknowledged.
        tail_probes,
        /// Numbered datagrams received from clients.
        upward_numbered,
        /// Clients' datagrams missing when a later one arrived.
        upward_missing,
        /// Clients' missing datagrams that arrived in time.
        upward_repaired,
        /// Clients' missing datagrams given up: too late.
        upward_given_up,
        /// Clients' missing datagrams left to the transport: a queue lost them, or repairs pause.
        upward_shown,
        /// Clients' datagrams that waited for a missing one.
        upward_waited,
        /// Messages to clients about missing datagrams.
        upward_reports,
        /// Pauses of a client's repairs: most never arrived.
        upward_pauses,
        /// Unexplained identifiers that only the client had.
        identifiers_foreign,
        /// Resets asked for by the gateway.
        resets_gateway,
        /// Resets asked for by the client.
        resets_client,
        /// Reports sent.
        reports_sent,
        /// Challenges to unexpected addresses of a session's messages.
        paths_challenged,
        /// Sessions that moved to another client address.
        paths_moved,
        /// Proven addresses refused: another session's client is there.
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
        /// Packets that the network had duplicated.
        stream_duplicates,
        /// Subscriptions begun.
        subscriptions,
        /// Subscriptions ended, by the subscriber or by its silence.
        subscriptions_ended,
        /// Subscriptions refused: no room, or too many of one source.
        subscriptions_refused,
        /// Challenges to unexpected addresses of subscribers.
        subscriptions_challenged,
        /// Subscriptions that moved to another address.
        subscriptions_moved,
        /// Datagrams of subscribers dropped: not control, no subscription, forged, replayed or malformed.
        stream_refused,
        /// eACKs received.
        stream_eacks,
        /// eACKs ignored: the subscriber or its source makes too much work.
        stream_eacks_limited,
        /// eACKs not decoded.
        stream_eacks_failed,
        /// Packets that a subscriber missed.
        stream_missing,
        /// Repairs sent.
        stream_repairs,
        /// Bytes of repairs.
        stream_repair_bytes,
        /// Repairs sent to all subscribers at once.
        stream_group_repairs,
        /// Symbols of coded repair sent to all subscribers at once.
        stream_symbols,
        /// Bytes of symbols.
        stream_symbol_bytes,
        /// Repaired packets that arrived.
        stream_repairs_arrived,
        /// Missing packets given up: too late, or tried too often.
        stream_late,
        /// Missing packets given up: their bytes were gone.
        stream_unrepairable,
        /// Repairs postponed: a budget used up.
        stream_budget_refusals,
        /// Identifiers that only a subscriber had.
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
        /// Memory of all subscribers, with their sealed channels and packets under repair.
        stream_state_bytes,
    }
}
