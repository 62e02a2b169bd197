//! A route's live stream: datagrams that arrive at one address go to all subscribers at the route's
//! listeners.

mod configured;
mod recipients;
mod relay;
mod upstream;

pub(crate) use configured::{ConfiguredStream, StreamChange};
pub(crate) use relay::RouteStream;
pub(crate) use upstream::{StreamUpstream, WhenInUse};
