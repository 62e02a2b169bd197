//! Settings of a route that a Service or a Namespace overrides by annotations.

use std::net::SocketAddr;
use std::str::FromStr;

use packrat_api::affinity::Affinity;
use packrat_api::knobs::{self, ClusterKnob, ClusterValues};
use packrat_api::route::{RouteConfig, StreamRoute, share_of_million, share_of_percent};
use packrat_api::sender::SenderKind;
use packrat_api::token::TokenPolicy;

use crate::size::parse_size;

/// A live stream with many receivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multicast {
    /// Address at which the stream arrives at the gateway: a multicast group, or an address of the
    /// gateway's.
    pub upstream: SocketAddr,
    /// The group that the stream is sent to; without a group each subscriber gets a copy.
    pub group: Option<SocketAddr>,
}

impl Multicast {
    /// The stream that an annotation describes.
    pub(crate) fn read(value: &str) -> Option<Self> {
        let mut parts = value.split(',').map(|part| part.trim().parse::<SocketAddr>());
        let upstream = parts.next()?.ok()?;
        let group = parts.next().transpose().ok()?;
        let is_group = group.is_none_or(|group| group.ip().is_multicast() && group.port() != 0);
        let whole = parts.next().is_none() && upstream.port() >= 1024 && group != Some(upstream);
        (is_group && whole).then_some(Self { upstream, group })
    }

    /// True if the stream needs IP multicast, and with it the host's network.
    pub fn has_group(&self) -> bool {
        self.upstream.ip().is_multicast() || self.group.is_some()
    }
}

/// Settings of a route that override its EdgeGateway's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overrides {
    /// False: clients are forwarded without assistance.
    pub assist: Option<bool>,
    /// Bytes of the cache per session.
    pub cache_bytes_per_session: Option<u64>,
    /// Bytes of the cache of all sessions.
    pub cache_bytes_total: Option<u64>,
    /// Repairs in percent of the forwarded bytes.
    pub repair_budget_percent: Option<u32>,
    /// True: datagrams of sparse flows are sent twice to clients without a session.
    pub sparse_copies: Option<bool>,
    /// Datagrams of a million that may still be missing after their repair.
    pub residual_loss_per_million: Option<u32>,
    /// Seconds without a datagram after which a session ends.
    pub idle_timeout_seconds: Option<u64>,
    /// Sessions at once.
    pub maximum_sessions: Option<u64>,
    /// Assisted sessions of one client address.
    pub sessions_per_source: Option<u32>,
    /// Assisted sessions that one client address may begin per second.
    pub handshakes_per_second_per_source: Option<u32>,
    /// The part of a client's address that determines its server.
    pub affinity: Option<Affinity>,
    /// Clients in percent that are refused assistance for comparison.
    pub holdout_percent: Option<u32>,
    /// Congestion control of the servers.
    pub sender: Option<SenderKind>,
    /// Policy about tokens.
    pub tokens: Option<TokenPolicy>,
    /// The port is a live stream; only Services have it.
    pub multicast: Option<Multicast>,
}

/// The setting that an annotation overrides. `name`: after `packrat.dev/config.`.
pub(crate) fn knob(name: &str) -> Option<&'static ClusterKnob> {
    knobs::in_cluster().map(|(_, knob)| knob).find(|knob| knob.annotation == name)
}

impl Overrides {
    /// Reads the value of an annotation.
    ///
    /// # Errors
    /// The text to write instead.
    pub(crate) fn read(&mut self, knob: &ClusterKnob, value: &str) -> Result<(), String> {
        let size = || size(value).map(Some);
        let number = || number(knob.values, value).map(Some);
        match knob.annotation {
            "assist" => self.assist = Some(switch(value)?),
            "cache-bytes-per-session" => self.cache_bytes_per_session = size()?,
            "cache-bytes-total" => self.cache_bytes_total = size()?,
            "repair-budget-percent" => self.repair_budget_percent = number()?,
            "sparse-copies" => self.sparse_copies = Some(switch(value)?),
            "residual-loss-per-million" => self.residual_loss_per_million = number()?,
            "idle-timeout-seconds" => self.idle_timeout_seconds = number()?.map(u64::from),
            "maximum-sessions" => self.maximum_sessions = number()?.map(u64::from),
            "sessions-per-source" => self.sessions_per_source = number()?,
            "handshakes-per-second-per-source" => {
                self.handshakes_per_second_per_source = number()?;
            }
            "affinity" => {
                let affinity: Result<Affinity, _> = value.parse();
                self.affinity = Some(affinity.map_err(|error| error.to_string())?);
            }
            "holdout-percent" => self.holdout_percent = number()?,
            "sender" => {
                let kind: Result<SenderKind, _> = value.parse();
                self.sender = Some(kind.map_err(|error| error.to_string())?);
            }
            "tokens" => {
                let policy: Result<TokenPolicy, _> = value.parse();
                self.tokens = Some(policy.map_err(|error| error.to_string())?);
            }
            _ => return Err("remove it, this operator cannot set it".to_owned()),
        }
        Ok(())
    }

    /// Settings of this route, completed by the others.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            assist: self.assist.or(other.assist),
            cache_bytes_per_session: self.cache_bytes_per_session.or(other.cache_bytes_per_session),
            cache_bytes_total: self.cache_bytes_total.or(other.cache_bytes_total),
            repair_budget_percent: self.repair_budget_percent.or(other.repair_budget_percent),
            sparse_copies: self.sparse_copies.or(other.sparse_copies),
            residual_loss_per_million: self
                .residual_loss_per_million
                .or(other.residual_loss_per_million),
            idle_timeout_seconds: self.idle_timeout_seconds.or(other.idle_timeout_seconds),
            maximum_sessions: self.maximum_sessions.or(other.maximum_sessions),
            sessions_per_source: self.sessions_per_source.or(other.sessions_per_source),
            handshakes_per_second_per_source: self
                .handshakes_per_second_per_source
                .or(other.handshakes_per_second_per_source),
            affinity: self.affinity.or(other.affinity),
            holdout_percent: self.holdout_percent.or(other.holdout_percent),
            sender: self.sender.or(other.sender),
            tokens: self.tokens.or(other.tokens),
            multicast: self.multicast,
        }
    }

    /// Writes the settings into the configuration of a route.
    pub fn apply(&self, route: &mut RouteConfig) {
        fn set<T>(field: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *field = value;
            }
        }
        set(&mut route.assist, self.assist);
        set(&mut route.cache_bytes_per_session, self.cache_bytes_per_session);
        set(&mut route.cache_bytes_total, self.cache_bytes_total);
        // The two limits have to be consistent, whichever of them was overridden.
        route.cache_bytes_total = route.cache_bytes_total.max(route.cache_bytes_per_session);
        set(&mut route.repair_budget, self.repair_budget_percent.map(share_of_percent));
        set(&mut route.sparse_copies, self.sparse_copies);
        set(&mut route.residual_loss_target, self.residual_loss_per_million.map(share_of_million));
        set(&mut route.idle_timeout_seconds, self.idle_timeout_seconds);
        set(&mut route.maximum_sessions, self.maximum_sessions);
        set(&mut route.sessions_per_source, self.sessions_per_source);
        set(&mut route.handshakes_per_second_per_source, self.handshakes_per_second_per_source);
        set(&mut route.affinity, self.affinity);
        set(&mut route.holdout, self.holdout_percent.map(share_of_percent));
        set(&mut route.sender, self.sender);
        set(&mut route.tokens, self.tokens);
        let stream =
            |Multicast { upstream, group }| StreamRoute { group, ..StreamRoute::new(upstream) };
        route.stream = self.multicast.map(stream);
    }
}

fn switch(value: &str) -> Result<bool, String> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}

fn size(value: &str) -> Result<u64, String> {
    match parse_size(value) {
        Ok(0) | Err(_) => {
            Err("write whole bytes or Ki, Mi or Gi, at least 1, for example 512Ki or 1Mi"
                .to_owned())
        }
        Ok(size) => Ok(size),
    }
}

fn number(values: ClusterValues, value: &str) -> Result<u32, String> {
    let (least, most) = match values {
        ClusterValues::Numbers { least, most } => (least, most),
        ClusterValues::Bytes
        | ClusterValues::TokenPolicies
        | ClusterValues::Switch
        | ClusterValues::Senders
        | ClusterValues::Affinities => {
            (0, u32::MAX) // no numbers
        }
    };
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    u32::from_str(value)
        .ok()
        .filter(|number| digits && (least..=most).contains(number))
        .ok_or_else(|| format!("write a whole number from {least} to {most}"))
}
