//! Issues assist tokens over TLS: an HTTP filter for Envoy (proxy-wasm), for HTTP/1.1, HTTP/2 and
//! HTTP/3 listeners alike.
//!
//! The answer to `GET /.well-known/packrat` contains everything that a client needs for assistance:
//! the gateway's UDP endpoint, its public key, a short-lived token, and parameters. The gateway's
//! UDP filter verifies the token offline (crate `packrat-assist-token`).
//!
//! ```json
//! {"version":1,"udp":{"host":"edge.example","port":443},"gateway_key":"64 hexadecimal digits",
//!  "token":"base64url","expires":1800000300,"parameters":{"maximum_hold_ms":1000}}
//! ```
//!
//! - [`configuration`]: the operator's configuration
//! - [`endpoint`]: the decision on each request, and its answer
//! - [`rate_limit`]: the requests that each client may make
//! - `filter` (in WebAssembly only): the thin layer between these and Envoy
#![forbid(unsafe_code)]

pub mod configuration;
pub mod endpoint;
#[cfg(target_arch = "wasm32")]
mod filter;
pub mod rate_limit;
