//! Session counts of the gateways: the elected replica asks each ready Pod twice a minute.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::Request;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use packrat_api::status::Status;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::observations::Observations;
use super::snapshot::Snapshots;
use crate::annotations::ObjectKey;
use crate::workload::METRICS_PORT;

const PERIOD: Duration = Duration::from_secs(30);
/// Longest time for one Pod.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pods at a time.
const PARALLEL: usize = 16;
/// Largest page that is read.
const MAXIMUM_BYTES: usize = 8 << 20;

/// Sessions of each EdgeGateway.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<BTreeMap<ObjectKey, i64>>);

impl Sessions {
    /// Sessions of an EdgeGateway; `None` when they are not known.
    pub(super) fn of(&self, gateway: &ObjectKey) -> Option<i64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(gateway).copied()
    }

    /// Counts for ever.
    pub(super) async fn count(
        self: Arc<Self>,
        snapshots: Arc<Snapshots>,
        observations: Arc<Observations>,
        elected: watch::Receiver<bool>,
    ) {
        loop {
            tokio::time::sleep(PERIOD).await;
            if !*elected.borrow() {
                continue;
            }
            let snapshot = snapshots.subscribe().borrow().clone().unwrap_or_default();
            let pods: Vec<(ObjectKey, String)> = snapshot
                .gateways
                .keys()
                .flat_map(|gateway| {
                    let addresses = observations.pods(gateway).into_values().flatten();
                    addresses.map(move |address| (gateway.clone(), address))
                })
                .collect();
            let counted: Vec<(ObjectKey, Option<i64>)> = futures::stream::iter(pods)
                .map(|(gateway, address)| async move {
                    let count = tokio::time::timeout(PATIENCE, ask(&address)).await;
                    (gateway, count.ok().flatten())
                })
                .buffer_unordered(PARALLEL)
                .collect()
                .await;
            let mut sums = BTreeMap::new();
            for (gateway, count) in counted {
                // A Pod that does not answer is missing from the sum; it is about to be no longer
                // ready.
                *sums.entry(gateway).or_insert(0) += count.unwrap_or(0);
            }
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = sums;
        }
    }
}

/// Sessions of one Pod.
async fn ask(address: &str) -> Option<i64> {
    let stream = TcpStream::connect((address, METRICS_PORT)).await.ok()?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let connection = tokio::spawn(connection);
    let request =
        Request::get("/packrat").header("host", "gateway").body(Empty::<Bytes>::new()).ok()?;
    let answer = sender.send_request(request).await.ok()?;
    let body = Limited::new(answer.into_body(), MAXIMUM_BYTES).collect().await.ok()?.to_bytes();
    connection.abort();
    read(&String::from_utf8_lossy(&body))
}

fn read(body: &str) -> Option<i64> {
    let status: Status<i64> = serde_json::from_str(body).ok()?;
    status.routes.iter().map(|route| route.metrics.get("packrat_sessions").copied()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_all_routes_are_added() {
        let page =
            r#"{"routes":[{"metrics":{"packrat_sessions":2}},{"metrics":{"packrat_sessions":3}}]}"#;
        assert_eq!(read(page), Some(5));
        assert_eq!(read(r#"{"routes":[]}"#), Some(0));
        assert_eq!(read(r#"{"routes":[{}]}"#), None);
        assert_eq!(read("no page"), None);
    }
}
