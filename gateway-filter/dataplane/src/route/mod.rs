//! Routes: the sessions of one service, its live stream and its listeners' sockets.

mod exposition;
mod inquiries;
mod pending;
mod state;
mod stream;
mod table;

pub use exposition::prometheus_text;
pub use state::Route;

pub(crate) use inquiries::{Answered, GATEWAY_SILENCE, Step};
#[cfg(all(test, feature = "shuttle"))]
pub(crate) use pending::PendingDatagrams;
pub(crate) use pending::{Disposition, Expired, PendingDatagram, may_have_moved};
pub(crate) use stream::{RouteStream, StreamChange, StreamUpstream};
#[cfg(any(test, fuzzing))]
pub(crate) use table::SessionTable;
pub(crate) use table::{Moved, Opened};
