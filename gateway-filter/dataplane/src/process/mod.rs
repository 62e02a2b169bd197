//! The process: its data plane and the I/O threads.

#[cfg(all(test, feature = "shuttle"))]
mod concurrency;
mod dataplane;
mod dataplane_ref;
mod io_thread;
mod listener_reader;
mod unassured;
#[cfg(feature = "virtual-time")]
pub mod virtual_time;
mod wake_coalescing;

#[cfg(any(test, fuzzing))]
pub(crate) use unassured::{Places, Room, Unassured};

pub use dataplane::{Dataplane, DataplaneError, ObservationError, Options};
pub use dataplane_ref::DataplaneRef;
