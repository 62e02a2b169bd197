//! From a host name to a connection: every address in turn.

use super::error::GetError;
use super::lost::LostPackets;
use super::named::Question;
use super::places::Family;
use super::qlog::Qlog;
use super::report::{KnownKey, Progress};
use super::request::Request;
use super::round_trip::SmallestRoundTrip;
use super::trust::{self, Verdict};
use packrat_s2n_quic::{ConnectError, Connection, Endpoint, EndpointConfig, ReceivedPacketNumbers};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::PoisonError;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Time without any packet from the server after which a transfer is given up.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes in flight, whatever the rate at which they are taken.
const SMALLEST_WINDOW: u64 = 16 << 10;
/// Time for the HTTPS record, which few hosts have, beyond that for addresses.
const RECORD_WAIT: Duration = Duration::from_millis(50);

/// The surroundings of a connection: its endpoint, which must outlive it, and its observers.
pub(super) struct Surroundings {
    pub(super) endpoint: Endpoint,
    pub(super) remote: SocketAddr,
    /// The gateway's key, if it was known beforehand.
    pub(super) gateway_key: Option<KnownKey>,
    /// The qlog, and its file.
    pub(super) qlog: Option<(Qlog, PathBuf)>,
    pub(super) received: ReceivedPacketNumbers,
    pub(super) lost: LostPackets,
    pub(super) round_trip: SmallestRoundTrip,
}

/// Looks the target up and connects to the first address that answers, IPv6 and IPv4 in the
/// resolver's order; the addresses of the gateway that the DNS names come first.
pub(super) async fn connect(
    request: &Request,
    progress: &mut impl FnMut(Progress),
) -> Result<(Connection, Surroundings), GetError> {
    let deadline = Instant::now() + request.connect_timeout;
    let (addresses, named) = places(request).await?;
    let mut request = request.clone();
    let mut gateway_key = None;
    if let Some(assist) = &mut request.assist {
        gateway_key = assist.access.gateway_key.map(|_| KnownKey::Given);
        if let Some(key) = named {
            assist.access.gateway_key = Some(key);
            gateway_key = Some(KnownKey::Dns);
        }
    }
    let request = &request;
    let mut last_error = None;
    for (index, &remote) in addresses.iter().enumerate() {
        // The remaining time is shared fairly, so that a dead address does not use up the time of
        // the others.
        let addresses_left = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
        let limit = deadline.saturating_duration_since(Instant::now()) / addresses_left;
        progress(Progress::Connecting { remote });
        match attempt(request, gateway_key, remote, limit).await {
            Ok(connected) => return Ok(connected),
            // Another address of the same host would present the same certificate, and the fault of
            // this machine would be the same.
            Err(
                error @ (GetError::Certificate { .. }
                | GetError::NoTrust { .. }
                | GetError::Local { .. }
                | GetError::Write { .. }),
            ) => {
                return Err(error);
            }
            Err(error) => {
                tracing::info!(%remote, %error, "address failed");
                last_error = Some(error);
            }
        }
    }
    let (host, _) = request.target();
    Err(last_error.unwrap_or(GetError::Resolve { host, reason: "it has no address".to_owned() }))
}

/// Addresses to connect to, and the key of the gateway there if the DNS names it. An unreachable
/// gateway does not cost the transfer: the target's own addresses come after the gateway's.
async fn places(request: &Request) -> Result<(Vec<SocketAddr>, Option<[u8; 32]>), GetError> {
    let target = request.target();
    let mut own = pin!(resolve(request));
    let mut asked = pin!(async { Question::of(request)?.ask().await });
    let (known, named) = tokio::select! {
        own = &mut own => {
            // A host that has no address may have a gateway all the same.
            let wait = if own.is_ok() { RECORD_WAIT } else { request.connect_timeout };
            (Some(own), timeout(wait, asked).await.ok().flatten())
        }
        named = &mut asked => (None, named),
    };
    let place = named.map(|named| {
        ((named.host.unwrap_or(target.0.clone()), named.port.unwrap_or(target.1)), named.key)
    });
    let (place, key) = match place {
        Some((place, key)) if place != target => (place, key),
        // There is none, or it is here.
        here => {
            let own = match known {
                Some(own) => own,
                None => own.await,
            };
            return Ok((own?, here.map(|(_, key)| key)));
        }
    };
    tracing::info!(host = place.0, port = place.1, "the DNS names a gateway");
    let mut addresses = resolve_at(&place, request).await.unwrap_or_default();
    let own = match known {
        Some(own) => own,
        // It may have none.
        None if addresses.is_empty() => own.await,
        None => timeout(RECORD_WAIT, own).await.unwrap_or(Ok(Vec::new())),
    };
    match own {
        Ok(own) => addresses.extend(own),
        Err(error) if addresses.is_empty() => return Err(error),
        Err(_) => {}
    }
    Ok((addresses, Some(key)))
}

/// The addresses of the target, IPv6 and IPv4 in the resolver's order.
pub(super) async fn resolve(request: &Request) -> Result<Vec<SocketAddr>, GetError> {
    resolve_at(&request.target(), request).await
}

async fn resolve_at(
    (host, port): &(String, u16),
    request: &Request,
) -> Result<Vec<SocketAddr>, GetError> {
    let fault = |reason: String| GetError::Resolve { host: host.clone(), reason };
    let limit = request.connect_timeout;
    let lookup = tokio::net::lookup_host((host.as_str(), *port));
    let addresses = match request.places.addresses(host, *port) {
        Some(addresses) => addresses,
        None => timeout(limit, lookup)
            .await
            .map_err(|_| fault(format!("no answer within {limit:?}")))?
            .map_err(|error| fault(error.to_string()))?
            .collect(),
    };
    let mut unique = Vec::new();
    for address in addresses {
        if !unique.contains(&address) && request.places.takes(&address) {
            unique.push(address);
        }
    }
    match (unique.is_empty(), request.places.family) {
        (false, _) => Ok(unique),
        (true, None) => Err(fault("it has no address".to_owned())),
        (true, Some(Family::V4)) => Err(fault("it has no IPv4 address; leave -4 out".to_owned())),
        (true, Some(Family::V6)) => Err(fault("it has no IPv6 address; leave -6 out".to_owned())),
    }
}

async fn attempt(
    request: &Request,
    gateway_key: Option<KnownKey>,
    remote: SocketAddr,
    limit: Duration,
) -> Result<(Connection, Surroundings), GetError> {
    let verdict = Verdict::default();
    let tls = trust::client_tls(&request.trust, &verdict)?;
    let local: SocketAddr = match remote {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let config = EndpointConfig::default()
        .with_assist(request.assist.clone())
        // Ours ends first; s2n-quic's is the safety net.
        .with_handshake_timeout(limit + Duration::from_secs(1))
        .with_idle_timeout(IDLE_TIMEOUT);
    // Data in flight beyond a second's worth would wait here.
    let second = request.limit_rate.map(|rate| u64::from(rate).max(SMALLEST_WINDOW));
    let window = second.map_or(config.data_window, |second| second.min(config.data_window));
    let config = config.with_data_window(window);
    let qlog = request.qlog.as_deref().map(|path| qlog(path, request)).transpose()?;
    let (received, lost) = (ReceivedPacketNumbers::default(), LostPackets::default());
    let round_trip = SmallestRoundTrip::default();
    let counts = (received.clone(), (lost.clone(), round_trip.clone()));
    let endpoint = match &qlog {
        Some(qlog) => {
            let config = config.with_observer(qlog.observer());
            let events = (counts, qlog.subscriber());
            Endpoint::bind_with_events(local, tls, events, config)
        }
        None => Endpoint::bind_with_events(local, tls, counts, config),
    };
    let endpoint = endpoint.map_err(|error| GetError::Local { reason: error.to_string() })?;
    let connected = timeout(limit, endpoint.connect(remote, &request.server_name())).await;
    let timed_out = || GetError::ConnectTimedOut { remote, after: request.connect_timeout };
    let connection = connected.map_err(|_| timed_out())?.map_err(|error| match error {
        ConnectError::TimedOut { .. } => timed_out(),
        error => {
            let verdict = verdict.lock().unwrap_or_else(PoisonError::into_inner).take();
            explain(error, verdict, remote, request)
        }
    })?;
    let qlog = qlog.zip(request.qlog.clone());
    let surroundings =
        Surroundings { endpoint, remote, gateway_key, qlog, received, lost, round_trip };
    Ok((connection, surroundings))
}

/// The command's word for a failure. `verdict`: why a certificate was refused.
fn explain(
    error: ConnectError,
    verdict: Option<rustls::Error>,
    remote: SocketAddr,
    request: &Request,
) -> GetError {
    let host = request.server_name();
    match (error, verdict) {
        (ConnectError::Unreachable { remote, source }, _) => {
            GetError::Unreachable { remote, source }
        }
        (ConnectError::Tls { .. }, Some(error)) => {
            GetError::Certificate { host, fault: trust::fault(&error) }
        }
        (ConnectError::Tls { reason, alert, local, .. }, None) => {
            let by = if local { "this client" } else { "the server" };
            GetError::Tls { host, reason: format!("{reason} (TLS alert {alert} by {by})") }
        }
        (ConnectError::ServerName { name }, _) => GetError::MalformedUrl {
            url: request.url.to_string(),
            reason: format!("{name:?} is not a host name"),
        },
        (other, _) => GetError::Connect { remote, reason: other.to_string() },
    }
}

fn qlog(path: &Path, request: &Request) -> Result<Qlog, GetError> {
    // Without query and credentials: a qlog is passed on to others.
    let title = format!("{}{}", request.server_name(), request.url.path());
    Qlog::create(path, &title)
        .map_err(|source| GetError::Write { target: path.display().to_string(), source })
}
