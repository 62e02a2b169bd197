//! The webhook that adds the sidecar.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::try_join;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::Value;

use super::refusal::told;
use crate::inject::{Room, Sidecar, review};

/// Largest request: the API server's own limit for objects is half of it.
const MAXIMUM_BYTES: usize = 3 << 20;
/// Longest time for looking at the limits of a namespace: Pods wait for it.
const LOOK_TIME: Duration = Duration::from_secs(2);

/// The injector: the settings of sidecars, and the way to their namespaces' limits.
pub(super) struct Injector {
    pub(super) client: Client,
    pub(super) sidecar: Sidecar,
}

impl Injector {
    /// Answers the API server.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Response<Full<Bytes>> {
        if request.method() != Method::POST || request.uri().path() != "/inject" {
            return text(StatusCode::NOT_FOUND, "only POST /inject is possible\n".to_owned());
        }
        let body = match Limited::new(request.into_body(), MAXIMUM_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => {
                return text(
                    StatusCode::BAD_REQUEST,
                    format!("the request cannot be read: {error}\n"),
                );
            }
        };
        let question: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut sidecar = self.sidecar.clone();
        if let Some(namespace) = question["request"]["namespace"].as_str() {
            sidecar.room = self.room(namespace).await;
        }
        match review(&body, &sidecar) {
            Ok(answer) => {
                let mut response = Response::new(Full::new(Bytes::from(answer)));
                response.headers_mut().insert(
                    http::header::CONTENT_TYPE,
                    http::HeaderValue::from_static("application/json"),
                );
                response
            }
            Err(error) => text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        }
    }

    /// The limits of a namespace. Where they cannot be had, the sidecar is as if there were none.
    async fn room(&self, namespace: &str) -> Room {
        let ranges = Api::<LimitRange>::namespaced(self.client.clone(), namespace);
        let quotas = Api::<ResourceQuota>::namespaced(self.client.clone(), namespace);
        let all = ListParams::default();
        let both = try_join(ranges.list(&all), quotas.list(&all));
        match tokio::time::timeout(LOOK_TIME, both).await {
            Ok(Ok((ranges, quotas))) => Room { ranges: ranges.items, quotas: quotas.items },
            Ok(Err(error)) => {
                tracing::warn!(event = "limits_unknown", namespace, error = told(&error));
                Room::default()
            }
            Err(_) => {
                tracing::warn!(event = "limits_unknown", namespace, error = "no answer in time");
                Room::default()
            }
        }
    }
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}
