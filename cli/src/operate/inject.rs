//! `packrat inject`: adds the gateway as a sidecar to the Pods of a manifest, as the operator's
//! webhook does.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use packrat_operator::inject::{Outcome, Sidecar, inject_manifest};
use serde_json::Value;

/// Options of `packrat inject`.
#[derive(Debug, Args)]
pub(crate) struct InjectOptions {
    /// A manifest in YAML or JSON; - reads the standard input
    file: PathBuf,
    /// Image of the gateway
    #[arg(long, default_value = concat!("packrat/gateway:", env!("CARGO_PKG_VERSION")))]
    image: String,
    /// Address that the gateway listens on; :: for IPv6 with IPv4
    #[arg(long, default_value = "0.0.0.0")]
    listen_address: std::net::IpAddr,
}

pub(crate) fn run(options: &InjectOptions) -> ExitCode {
    match inject(options) {
        Ok((manifest, is_complete)) => {
            print!("{manifest}");
            if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("packrat inject: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The new manifest, and true if it contains everything that was asked for.
fn inject(options: &InjectOptions) -> Result<(String, bool), String> {
    let name = options.file.display();
    let text = if options.file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(&options.file)
    }
    .map_err(|error| format!("{name} cannot be read: {error}"))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .map_err(|error| format!("{name} is neither YAML nor JSON: {error}"))?;
    let sidecar = Sidecar {
        image: options.image.clone(),
        listen_address: options.listen_address.to_string(),
        ..Sidecar::default()
    };
    let (mut manifest, mut is_complete, mut is_wanted) = (String::new(), true, false);
    for mut document in documents.into_iter().filter(|document| !document.is_null()) {
        for injected in inject_manifest(&mut document, &sidecar) {
            is_wanted |= !matches!(injected.outcome, Ok(Outcome::NotWanted));
            match injected.outcome {
                Ok(Outcome::Injected(ports)) => {
                    let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
                    eprintln!("{}: sidecar for UDP port {}", injected.object, ports.join(", "));
                }
                Ok(Outcome::Present) => eprintln!("{}: has the sidecar already", injected.object),
                Ok(Outcome::NotWanted) => {}
                Err(error) => {
                    eprintln!("{}: no sidecar: {error}", injected.object);
                    is_complete = false;
                }
            }
        }
        let yaml = serde_saphyr::to_string(&document)
            .map_err(|error| format!("an object of {name} cannot be written as YAML: {error}"))?;
        manifest.push_str("---\n");
        manifest.push_str(yaml.trim_end());
        manifest.push('\n');
    }
    if !is_wanted {
        eprintln!(
            "packrat inject: no Pod of {name} has the annotation packrat.dev/inject: sidecar; nothing was changed"
        );
    }
    Ok((manifest, is_complete))
}
