//! The use that clients make of their connections: transfers, objects, pages, video.

mod arrivals;
mod exchange;
mod page;
mod video;
mod work;

pub(crate) use arrivals::Arrivals;
pub(crate) use exchange::answer;
pub use video::VideoResult;
pub(crate) use work::{Work, WorkOutcome, Working};
