//! Connections over HTTP/3 that stay for the further requests of a run.

use super::connection::{Http3, Requests};
use super::error::GetError;
use super::report::Progress;
use super::request::Request;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The connections of a run, one for each server and name.
#[derive(Default)]
pub(crate) struct Connections(Mutex<Vec<(Key, Arc<Place>)>>);

/// Host and port that are connected to, and the name of the certificate.
type Key = ((String, u16), String);

/// The connection to a server.
#[derive(Default)]
struct Place {
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
    /// The network passes handshakes, and no more.
    is_stalling: AtomicBool,
}

/// A connection, and the opener of its requests.
pub(super) struct Connection {
    pub(super) http3: Http3,
    pub(super) requests: Requests,
}

impl Connections {
    fn place(&self, request: &Request) -> Arc<Place> {
        let key = (request.target(), request.server_name());
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, place)) = places.iter().find(|(own, _)| *own == key) {
            return Arc::clone(place);
        }
        let place = Arc::<Place>::default();
        places.push((key, Arc::clone(&place)));
        place
    }

    /// The connection that stands, or a new one; and true if it is new. Requests to one server wait
    /// for the first one's handshake.
    ///
    /// # Errors
    /// There is no connection, or the server does not speak HTTP/3.
    pub(super) async fn to(
        &self,
        request: &Request,
        progress: &mut impl FnMut(Progress),
    ) -> Result<(Arc<Connection>, bool), GetError> {
        let place = self.place(request);
        let mut standing = place.connection.lock().await;
        if let Some(connection) = standing.as_ref().filter(|standing| standing.http3.is_open()) {
            return Ok((Arc::clone(connection), false));
        }
        let (http3, requests) = Http3::connect(request, progress).await?;
        let connection = Arc::new(Connection { http3, requests });
        *standing = Some(Arc::clone(&connection));
        Ok((connection, true))
    }

    /// True if the network lets handshakes to this server through, and stalls behind them.
    pub(super) fn stall(&self, request: &Request) -> bool {
        self.place(request).is_stalling.load(Ordering::Relaxed)
    }

    /// Ends a connection that stalls: its other requests go on over TCP.
    pub(super) fn end_stalling(&self, request: &Request, connection: &Connection) {
        self.place(request).is_stalling.store(true, Ordering::Relaxed);
        connection.http3.end();
    }

    /// Takes leave of all servers and gateways.
    ///
    /// # Errors
    /// A qlog can't be written.
    pub(crate) async fn close(&self) -> Result<(), GetError> {
        let places = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut closed = Ok(());
        for (_, place) in places {
            let connection = place.connection.lock().await.take();
            if let Some(Ok(Connection { http3, requests })) = connection.map(Arc::try_unwrap) {
                drop(requests);
                closed = closed.and(http3.leave().await);
            }
        }
        closed
    }
}
