//! The preStop hook of gateways: drains Envoy and returns when no session is left or the time is
//! up. Kubernetes ends the container afterwards.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use packrat_operator::envoy::ADMIN_SOCKET;

/// Drain a gateway: return when it has no session left, or after some seconds
#[derive(Debug, Parser)]
#[command(name = "packrat-drain", version, about)]
struct DrainOptions {
    /// The Unix socket of Envoy's administration interface
    #[arg(long, default_value = ADMIN_SOCKET)]
    admin: PathBuf,
    /// Longest time to wait
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

fn main() -> ExitCode {
    let options = DrainOptions::parse();
    match packrat_operator::drain::drain(&options.admin, Duration::from_secs(options.seconds)) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!(
                "packrat-drain: {} does not drain: {error}; is Envoy running?",
                options.admin.display()
            );
            ExitCode::FAILURE
        }
    }
}
