//! What operators type: `check`, `stat`, `top`, `tap`, `plan`, `diagnose`, all against one gateway so far.
//!
//! A gateway is named by the URL of Envoy's administration port or of `packrat-gateway --metrics`. [`gateway::Gateway`] is the seam: what
//! finds gateways in a cluster hands the same to the same commands.

pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod diagnose;
mod error;
mod gateway;
mod output;
pub(crate) mod plan;
mod probe;
pub(crate) mod stat;
pub(crate) mod tap;
pub(crate) mod top;
pub(crate) mod version;

use std::process::ExitCode;

use clap::Args;
use url::Url;

use error::OperateError;
use gateway::Gateway;

/// Which gateway.
#[derive(Debug, Clone, Args)]
pub(crate) struct Target {
    /// Envoy's administration port, or the address of `packrat-gateway --metrics`, for example http://127.0.0.1:9901
    #[arg(long, value_name = "URL", env = "PACKRAT_GATEWAY")]
    gateway: Url,
}

impl Target {
    fn gateway(&self) -> Gateway {
        Gateway::new(self.gateway.clone())
    }
}

/// Ends a command: prints what went wrong.
fn finish(command: &str, result: Result<ExitCode, OperateError>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("packrat {command}: {error}");
        ExitCode::FAILURE
    })
}
