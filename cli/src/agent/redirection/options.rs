//! Options of commands that redirect, and the agent's sockets for them.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use packrat_agent::{
    Access, ClientConfig, DontFragment, IdentifierScheme, Service, Target, transparent,
};
use packrat_token_client::gateway_key;

use super::super::plan::read_token;
use super::filter::Rules;

/// Port whose datagrams are redirected if no port is named: HTTP/3.
const HTTP_PORT: u16 = 443;

/// Which datagrams a command redirects, and the settings of their assistance.
#[derive(Debug, Clone, Args)]
pub(crate) struct RedirectionOptions {
    /// Redirect datagrams to this port; repeat it for more [default: 443]
    #[arg(long = "port", value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
    /// Accept help only from the gateway with this public key (64 hexadecimal digits)
    #[arg(long, value_name = "HEX", value_parser = gateway_key)]
    gateway_key: Option<[u8; 32]>,
    /// Longest time a datagram waits for the repair of an earlier one, in milliseconds
    #[arg(long, value_name = "MS")]
    maximum_hold: Option<u64>,
    /// Read an assist token from this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    assist_token_file: Option<PathBuf>,
}

/// Opens the agent's sockets for datagrams to the ports (HTTP/3's if there are none).
///
/// # Errors
/// A sentence about the token, or the right that is missing.
pub(crate) fn listeners(
    options: &RedirectionOptions,
) -> Result<(Vec<Service>, Vec<Rules>), String> {
    let mut access = Access::default().with_gateway_key(options.gateway_key);
    if let Some(hold) = options.maximum_hold {
        access.maximum_hold = Duration::from_millis(hold);
    }
    if let Some(path) = &options.assist_token_file {
        access.token = read_token(path)?;
    }
    let config = ClientConfig::from(access).with_scheme(IdentifierScheme::Payload);
    let mut ports = if options.ports.is_empty() { vec![HTTP_PORT] } else { options.ports.clone() };
    ports.sort_unstable();
    ports.dedup();
    let (mut services, mut rules) = (Vec::new(), Vec::new());
    for port in ports {
        let any = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()];
        let listen = any.map(|any| {
            // A host without IPv6 has no such datagrams, either.
            let socket = match transparent(any) {
                Err(_) if any.is_ipv6() => return Ok(None),
                socket => socket.map_err(|error| {
                    format!(
                        "cannot take over datagrams: {error}; run it as root, or use packrat agent"
                    )
                })?,
            };
            let listen = socket.local_addr().map_err(|error| error.to_string())?;
            services.push(Service {
                name: format!("port {port}"),
                socket,
                to: Target::Original { port },
                config: config.clone(),
                dont_fragment: DontFragment::default(),
            });
            Ok::<_, String>(Some(listen.port()))
        });
        let [v4, v6] = listen;
        rules.push(Rules { port, v4: v4?, v6: v6? });
    }
    Ok((services, rules))
}
