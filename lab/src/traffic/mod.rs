//! Traffic: flows of several kinds, senders and arms at once.
//!
//! [`plan`] makes connections of a scenario's flows, [`work`] is the part of a client that uses
//! one, and [`results`] has the outcome of each flow and the way they shared the path.

pub(crate) mod arrivals;
pub(crate) mod exchange;
mod page;
pub(crate) mod plan;
pub(crate) mod results;
pub(crate) mod table;
mod video;
pub(crate) mod work;

pub use plan::FlowKind;
pub use results::{Completions, FlowResult};
pub use video::VideoResult;
