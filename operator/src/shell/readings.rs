//! Readings of the gateways' pages: sessions, and routes on which assistance has stopped by itself.
//! The elected replica asks each ready Pod twice a minute.

use std::collections::{BTreeMap, BTreeSet};
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
use crate::envoy::METRICS_PORT;
use crate::object_key::ObjectKey;
use crate::status::{Reading, StoppedRoute};

/// Time between two readings of the Pods.
const LOOK_PERIOD: Duration = Duration::from_secs(30);
/// Time before the first reading, in which Pods are observed.
const FIRST_DELAY: Duration = Duration::from_secs(5);
/// Longest time for one Pod.
const POD_PATIENCE: Duration = Duration::from_secs(2);
/// Number of Pods at a time.
const PARALLEL_PODS: usize = 16;
/// Largest page that is read.
const MAXIMUM_BYTES: usize = 8 << 20;

/// The last readings of the Pods of each EdgeGateway, by the name of the Pod.
type OfPods = BTreeMap<ObjectKey, BTreeMap<String, Reading>>;

/// The last reading of each gateway.
#[derive(Debug, Default)]
pub(super) struct Readings {
    last: Mutex<OfPods>,
    changed: watch::Sender<u64>,
}

impl Readings {
    /// The sum of the readings of an EdgeGateway's ready Pods; `None` without a reading.
    pub(super) fn of(&self, gateway: &ObjectKey, ready: &BTreeSet<String>) -> Option<Reading> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let of_ready = last.get(gateway)?.iter().filter(|(pod, _)| ready.contains(*pod));
        of_ready.map(|(_, reading)| reading.clone()).reduce(|mut sum, reading| {
            sum.add(reading);
            sum
        })
    }

    /// Records the answers of all Pods. A Pod that is too busy to answer keeps its last reading:
    /// assistance that has stopped there stays stopped.
    fn take(&self, answers: Vec<(ObjectKey, String, Option<Reading>)>) {
        let differs = {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let mut newest = OfPods::new();
            for (gateway, pod, answer) in answers {
                let known = || last.get(&gateway).and_then(|pods| pods.get(&pod)).cloned();
                if let Some(reading) = answer.or_else(known) {
                    newest.entry(gateway).or_default().insert(pod, reading);
                }
            }
            let differs = *last != newest;
            *last = newest;
            differs
        };
        if differs {
            self.changed.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Receiver that is notified of changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Reads the Pods' pages, forever.
    pub(super) async fn run(
        self: Arc<Self>,
        snapshots: Arc<Snapshots>,
        observations: Arc<Observations>,
        elected: watch::Receiver<bool>,
    ) {
        let mut pause = FIRST_DELAY;
        loop {
            tokio::time::sleep(std::mem::replace(&mut pause, LOOK_PERIOD)).await;
            if !*elected.borrow() {
                // After a later election the readings would be old.
                self.take(Vec::new());
                continue;
            }
            let snapshot = snapshots.subscribe().borrow().clone().unwrap_or_default();
            let pods: Vec<(ObjectKey, String, Option<String>)> = snapshot
                .gateways
                .keys()
                .flat_map(|gateway| {
                    let pods = observations.pods(gateway).into_iter();
                    pods.map(move |(pod, address)| (gateway.clone(), pod, address))
                })
                .collect();
            let answers = futures::stream::iter(pods)
                .map(|(gateway, pod, address)| async move {
                    let Some(address) = address else { return (gateway, pod, None) };
                    let reading = tokio::time::timeout(POD_PATIENCE, ask(&address)).await;
                    (gateway, pod, reading.ok().flatten())
                })
                .buffer_unordered(PARALLEL_PODS)
                .collect()
                .await;
            self.take(answers);
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
    fn a_gateway_that_does_not_answer_keeps_its_last_reading() {
        let (edge, readings) = (ObjectKey::new("shop", "edge"), Readings::default());
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let sessions = |ready: &[&str]| {
            let reading = readings.of(&edge, &names(ready))?;
            Some((reading.gateways, reading.sessions))
        };
        let take = |answers: &[(&str, Option<i64>)]| {
            let answers = answers.iter().map(|(pod, sessions)| {
                let reading = |sessions| Reading { gateways: 1, sessions, ..Reading::default() };
                (edge.clone(), (*pod).to_owned(), sessions.map(reading))
            });
            readings.take(answers.collect());
        };
        take(&[("a", None), ("b", None)]);
        assert_eq!(sessions(&["a", "b"]), None);
        take(&[("a", Some(2)), ("b", Some(3))]);
        assert_eq!(sessions(&["a", "b"]), Some((2, 5)));
        take(&[("a", None), ("b", Some(4))]);
        assert_eq!(sessions(&["a", "b"]), Some((2, 6)));
        assert_eq!(sessions(&["b"]), Some((1, 4)), "one that is not ready does not count");
        // A deleted Pod's reading is forgotten.
        take(&[("b", Some(4))]);
        assert_eq!(sessions(&["a", "b"]), Some((1, 4)));
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
