//! Readings of the gateways' pages: sessions, and routes on which assistance has stopped by itself.
//! The elected replica asks each ready Pod twice a minute.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::Request;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use packrat_api::status::{Stage, Status};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::observations::Observations;
use super::snapshot::Snapshots;
use crate::annotations::ObjectKey;
use crate::status::{Reading, StoppedRoute};
use crate::workload::METRICS_PORT;

const PERIOD: Duration = Duration::from_secs(30);
/// Time before the first look, in which Pods are seen.
const FIRST: Duration = Duration::from_secs(5);
/// Longest time for one Pod.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pods at a time.
const PARALLEL: usize = 16;
/// Largest page that is read.
const MAXIMUM_BYTES: usize = 8 << 20;

/// The newest reading of each EdgeGateway, its gateways added up.
#[derive(Debug, Default)]
pub(super) struct Readings {
    newest: Mutex<BTreeMap<ObjectKey, Reading>>,
    changed: watch::Sender<u64>,
}

impl Readings {
    /// The reading of an EdgeGateway; `None` while there is none.
    pub(super) fn of(&self, gateway: &ObjectKey) -> Option<Reading> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).get(gateway).cloned()
    }

    /// Tells of changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Reads for ever.
    pub(super) async fn run(
        self: Arc<Self>,
        snapshots: Arc<Snapshots>,
        observations: Arc<Observations>,
        elected: watch::Receiver<bool>,
    ) {
        let mut pause = FIRST;
        loop {
            tokio::time::sleep(std::mem::replace(&mut pause, PERIOD)).await;
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
            let read: Vec<(ObjectKey, Option<Reading>)> = futures::stream::iter(pods)
                .map(|(gateway, address)| async move {
                    let reading = tokio::time::timeout(PATIENCE, ask(&address)).await;
                    (gateway, reading.ok().flatten())
                })
                .buffer_unordered(PARALLEL)
                .collect()
                .await;
            let mut sums: BTreeMap<ObjectKey, Reading> = BTreeMap::new();
            for (gateway, reading) in read {
                // A Pod that does not answer is missing from the sum; it is about to be no longer
                // ready.
                let sum = sums.entry(gateway).or_default();
                if let Some(reading) = reading {
                    sum.add(reading);
                }
            }
            let differs = {
                let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
                let differs = *newest != sums;
                *newest = sums;
                differs
            };
            if differs {
                self.changed.send_modify(|count| *count = count.wrapping_add(1));
            }
        }
    }
}

/// The reading of one Pod.
async fn ask(address: &str) -> Option<Reading> {
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

fn read(body: &str) -> Option<Reading> {
    let status: Status<i64> = serde_json::from_str(body).ok()?;
    let mut reading = Reading { gateways: 1, ..Reading::default() };
    for route in status.routes {
        reading.sessions += route.metrics.get("packrat_sessions").copied()?;
        let stopped = match route.comparison.map(|comparison| comparison.stage) {
            None | Some(Stage::Assisting) => continue,
            Some(Stage::Stopped) => StoppedRoute { stopped: 1, trying: 0 },
            Some(Stage::Trial) => StoppedRoute { stopped: 0, trying: 1 },
        };
        reading.routes.insert(route.route, stopped);
    }
    Some(reading)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_all_routes_are_added() {
        let sessions = |page: &str| read(page).map(|reading| reading.sessions);
        let page =
            r#"{"routes":[{"metrics":{"packrat_sessions":2}},{"metrics":{"packrat_sessions":3}}]}"#;
        assert_eq!(sessions(page), Some(5));
        assert_eq!(sessions(r#"{"routes":[]}"#), Some(0));
        assert_eq!(sessions(r#"{"routes":[{}]}"#), None);
        assert_eq!(sessions("no page"), None);
    }

    #[test]
    fn routes_that_have_stopped_are_counted_over_all_gateways() {
        let page = |stage: &str| {
            let route = |name: &str, comparison: &str| {
                format!(r#"{{"route":"{name}","metrics":{{"packrat_sessions":1}}{comparison}}}"#)
            };
            let compared = format!(r#","comparison":{{"holdout":0.05,"stage":"{stage}"}}"#);
            let (web, game) = (route("shop/web/443", &compared), route("shop/game/7000", ""));
            read(&format!(r#"{{"routes":[{web},{game}]}}"#)).unwrap()
        };
        let mut sum = Reading::default();
        for stage in ["assisting", "stopped", "trial", "stopped"] {
            sum.add(page(stage));
        }
        let expected = StoppedRoute { stopped: 2, trying: 1 };
        assert_eq!(sum.routes, [("shop/web/443".to_owned(), expected)].into());
        assert_eq!((sum.gateways, sum.sessions), (4, 8));
    }
}
