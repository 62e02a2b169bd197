//! `packrat version`: of this command, and of a gateway.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use url::Url;

use super::error::OperateError;
use super::gateway::AskedGateway;
use super::output::Format;

/// Options of the command.
#[derive(Debug, Args)]
pub(crate) struct VersionOptions {
    /// Also ask this gateway for its version
    #[arg(long, value_name = "URL", env = "PACKRAT_GATEWAY")]
    gateway: Option<Url>,

    /// Output format
    #[arg(short, long, value_enum, default_value = "table")]
    output: Format,
}

/// Runs `packrat version`.
pub(crate) fn version(options: &VersionOptions) -> Result<ExitCode, OperateError> {
    let ours = env!("CARGO_PKG_VERSION");
    let protocol = format!("packrat/{}", packrat_wire::control::PROTOCOL_VERSION);
    let gateway = options.gateway.clone().map(AskedGateway::new);
    let theirs = gateway.map(|gateway| gateway.status()).transpose()?.map(|status| status.version);
    if options.output == Format::Json {
        println!("{:#}", json!({ "command": ours, "protocol": protocol, "gateway": theirs }));
    } else {
        println!("command   {ours}\nprotocol  {protocol}");
        if let Some(theirs) = theirs {
            println!("gateway   {theirs}");
        }
    }
    Ok(ExitCode::SUCCESS)
}
