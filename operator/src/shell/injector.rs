//! The webhook that adds the sidecar.

use std::sync::Arc;

use crate::inject::{Sidecar, review};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;

/// Largest request: the API server's own limit for objects is half of it.
const MAXIMUM_BYTES: usize = 3 << 20;

/// Answers the API server.
pub(super) async fn answer(
    request: Request<Incoming>,
    sidecar: Arc<Sidecar>,
) -> Response<Full<Bytes>> {
    if request.method() != Method::POST || request.uri().path() != "/inject" {
        return text(StatusCode::NOT_FOUND, "only POST /inject is possible\n".to_owned());
    }
    let body = match Limited::new(request.into_body(), MAXIMUM_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            return text(StatusCode::BAD_REQUEST, format!("the request cannot be read: {error}\n"));
        }
    };
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

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response
}
