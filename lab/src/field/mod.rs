//! The field matrix: the last miles that people have, times losses, times senders, with assistance,
//! without it, split, and without loss.
//!
//! The bottleneck is the last mile, whose random losses come on top of those of its queue: there
//! assistance must tell the two apart, and there it can do harm. [`summary`] counts where it does.

mod cells;
mod command;
mod measure;
mod report;
mod sharing;
mod summary;
mod table;

pub(crate) use command::{Field, FieldError};
pub use table::sample_table;
