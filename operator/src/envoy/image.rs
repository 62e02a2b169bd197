//! Paths in the gateway's image.

/// Path in the image of the filter that gives tokens out.
pub const TOKEN_FILTER: &str = "/usr/lib/packrat/packrat-token.wasm";
/// Directory in the image of the module for Envoy.
pub const MODULE_DIRECTORY: &str = "/usr/lib/packrat";
/// Path in the image of Envoy.
pub const ENVOY_PATH: &str = "/usr/local/bin/envoy";
/// Path in the image of the program that starts Envoy.
pub const START_PATH: &str = "/usr/local/bin/packrat-start";
/// Path in the image of the program that drains a gateway before it ends.
pub const DRAIN_PATH: &str = "/usr/local/bin/packrat-drain";
