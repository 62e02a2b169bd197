//! Issues assist tokens over TLS: an HTTP filter for Envoy (proxy-wasm), for HTTP/1.1, HTTP/2 and HTTP/3 listeners alike.
//!
//! `GET /.well-known/packrat` is answered with what a client needs to be assisted: the gateway's UDP endpoint, its public key, a
//! short-lived token, and parameters. The gateway's UDP filter verifies the token offline (crate `packrat-assist-token`).
//!
//! ```json
//! {"version":1,"udp":{"host":"edge.example","port":443},"gateway_key":"64 hexadecimal digits",
//!  "token":"base64url","expires":1800000300,"parameters":{"maximum_hold_ms":1000}}
//! ```
//!
//! - [`configuration`]: what an operator configures
//! - [`endpoint`]: which answer a request gets
//! - [`rate_limit`]: how often a client may ask
//! - `filter` (in WebAssembly only): the thin layer between these and Envoy
#![forbid(unsafe_code)]

pub mod configuration;
pub mod endpoint;
#[cfg(target_arch = "wasm32")]
mod filter;
pub mod rate_limit;
