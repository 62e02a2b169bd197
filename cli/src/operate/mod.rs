//! What operators type: `check`, `stat`, `top`, `tap`, `plan`, `diagnose`, against the gateways of a cluster or against one.
//!
//! [`target::Target`] finds them: by the kubeconfig, through the API server; or by the URL of Envoy's administration port or of
//! `packrat-gateway --metrics`. Either way the commands ask a [`gateway::Gateway`].

pub(crate) mod check;
mod cluster;
pub(crate) mod completions;
pub(crate) mod diagnose;
mod error;
mod gateway;
mod output;
pub(crate) mod plan;
mod probe;
pub(crate) mod stat;
pub(crate) mod tap;
mod target;
pub(crate) mod top;
pub(crate) mod version;

use std::process::ExitCode;

use error::OperateError;

/// Ends a command: prints what went wrong.
fn finish(command: &str, result: Result<ExitCode, OperateError>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("packrat {command}: {error}");
        ExitCode::FAILURE
    })
}

/// Says who could not be asked; what the others say is not the whole.
fn warn(command: &str, problems: &[OperateError]) {
    for problem in problems {
        eprintln!("packrat {command}: left out: {problem}");
    }
}
