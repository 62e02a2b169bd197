//! Metrics and status of an agent, over HTTP.

use std::net::SocketAddr;

use packrat_agent::Handle;
use packrat_pages::{Answer, Pages, Request};

/// Serves metrics and status of the agent, to other machines only if they may ask.
pub(crate) fn serve_pages(
    address: SocketAddr,
    allow_remote: bool,
    handle: &Handle,
) -> Result<Pages, String> {
    check_metrics(address, allow_remote)?;
    pages(address, handle)
}

/// Serves metrics and status of the agent.
pub(super) fn pages(address: SocketAddr, handle: &Handle) -> Result<Pages, String> {
    let handle = handle.clone();
    Pages::serve(address, move |request| answer(request, &handle))
        .map_err(|error| error.to_string())
}

fn answer(request: &Request<'_>, handle: &Handle) -> Answer {
    let path = request.target.split('?').next().unwrap_or_default();
    if request.method != "GET" && request.method != "HEAD" {
        return Answer::problem(405, format!("{path} takes no {}; use GET", request.method));
    }
    if !["/metrics", "/packrat"].contains(&path) {
        return Answer::problem(404, format!("nothing is at {path}; try /metrics or /packrat"));
    }
    match handle.status() {
        None => Answer::problem(503, "the agent ends".to_owned()),
        Some(status) if path == "/metrics" => Answer::prometheus(status.prometheus()),
        Some(status) => Answer::json(&status),
    }
}

/// Fails if other machines can reach the address, unless they may.
pub(super) fn check_metrics(address: SocketAddr, allow_remote: bool) -> Result<(), String> {
    if address.ip().to_canonical().is_loopback() || allow_remote {
        return Ok(());
    }
    Err(format!(
        "other machines can reach {address}, and /packrat shows who sends through this one; serve metrics on 127.0.0.1, \
         or allow it with --allow-remote-metrics"
    ))
}
