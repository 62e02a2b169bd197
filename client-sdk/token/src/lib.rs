//! Assist tokens for a client: requests them from a gateway's token endpoint, over TCP and, with the
//! feature `http3`, over HTTP/3, and renews them before they expire.
//!
//! ```no_run
//! # #[cfg(feature = "http3")]
//! # async fn example(tls: rustls::ClientConfig) -> Result<(), Box<dyn std::error::Error>> {
//! use packrat_s2n_quic::{ClientConfig, Endpoint, EndpointConfig, s2n_quic};
//! use packrat_token_client::{Renewal, TokenEndpoint};
//!
//! let endpoint = TokenEndpoint::of_host("https://example.org/", tls.clone())?;
//! let token = endpoint.fetch().await?;
//! let config = ClientConfig::from(token.access(None));
//! let renewal = Renewal::new(endpoint, &token);
//!
//! let tls = s2n_quic::provider::tls::rustls::Client::from(tls);
//! let config = EndpointConfig::default().with_assist(config);
//! let client = Endpoint::bind("0.0.0.0:0".parse()?, tls, config)?;
//! let remote = "192.0.2.7:443".parse()?;
//! let (connection, assistance) = client.connect(remote, "example.org").await?.split();
//! let work = async {
//!     // … use `connection`
//! };
//! renewal.during(work, |token| assistance.set_access(token.gateway_key, &token.token)).await;
//! # drop(connection);
//! # Ok(())
//! # }
//! ```
//!
//! - [`TokenEndpoint`]: the address of the endpoint, and the certificates to trust
//! - [`AssistToken`]: the endpoint's answer
//! - [`Renewal`]: the clock and the network around [`packrat_client::RenewalSchedule`]
#![forbid(unsafe_code)]

mod document;
mod endpoint;
mod error;
#[cfg(feature = "http3")]
mod over_quic;
mod over_tcp;
mod renewal;

pub use document::{AssistToken, MAXIMUM_HOLD, gateway_key, parse};
pub use endpoint::TokenEndpoint;
pub use error::TokenError;
pub use renewal::Renewal;
