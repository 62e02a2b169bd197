//! A route's live stream: what arrives at one address goes to everybody who subscribes at the
//! route's listeners.

mod configured;
mod recipients;
mod relay;
mod upstream;

pub(crate) use configured::{ConfiguredStream, StreamChange};
pub(crate) use relay::RouteStream;
pub(crate) use upstream::{StreamUpstream, WhenInUse};
