//! The entry point of gateways: starts Envoy, with the last configuration while no operator
//! answers.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use packrat_operator::envoy::{ADMIN_SOCKET, ENVOY_PATH};
use packrat_operator::start::{Settings, start};
use packrat_operator::workload::LAST_CONFIGURATION;

/// Start a gateway's Envoy, with the last configuration while no operator answers
#[derive(Debug, Parser)]
#[command(name = "packrat-start", version, about)]
struct StartOptions {
    /// Host and port of the operator's discovery service
    #[arg(long, env = "PACKRAT_OPERATOR")]
    operator: String,
    /// The last configuration
    #[arg(long, env = "PACKRAT_LAST_CONFIGURATION", default_value = LAST_CONFIGURATION)]
    last: PathBuf,
    /// The program
    #[arg(long, env = "PACKRAT_ENVOY", default_value = ENVOY_PATH)]
    envoy: PathBuf,
    /// The Unix socket of its administration interface
    #[arg(long, env = "PACKRAT_ADMIN", default_value = ADMIN_SOCKET)]
    admin: PathBuf,
    /// Seconds that the operator has to answer
    #[arg(long, env = "PACKRAT_PATIENCE", default_value_t = 30)]
    patience: u64,
    /// Seconds between two looks for it while the last configuration is in force
    #[arg(long, env = "PACKRAT_INTERVAL", default_value_t = 10)]
    interval: u64,
    /// Longest extra time, in seconds, until Envoy begins anew when the operator is back: each gateway
    /// chooses one, so that not all of them do it at once
    #[arg(long, env = "PACKRAT_SPREAD", default_value_t = 120)]
    spread: u64,
    /// Envoy's arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

fn main() -> ExitCode {
    let options = StartOptions::parse();
    let settings = Settings {
        operator: options.operator,
        last: options.last,
        envoy: options.envoy,
        admin: options.admin,
        patience: Duration::from_secs(options.patience),
        interval: Duration::from_secs(options.interval),
        spread: Duration::from_secs(options.spread),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(start(&settings, &options.arguments))) {
        Ok(code) => code,
        Err(error) => {
            eprintln!(
                "packrat-start: {} does not start: {error}; is the image complete?",
                settings.envoy.display()
            );
            ExitCode::FAILURE
        }
    }
}
