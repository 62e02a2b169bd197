//! `packrat inject`: adds the gateway as a sidecar to the Pods of a manifest, as the operator's
//! webhook does.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use packrat_operator::inject::{Outcome, Sidecar, inject_manifest};

use super::manifest;

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
    manifest::print("inject", inject(options))
}

/// The new manifest, and true if it contains everything that was asked for.
fn inject(options: &InjectOptions) -> Result<(String, bool), String> {
    let name = options.file.display();
    let documents = manifest::read(&options.file)?;
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
