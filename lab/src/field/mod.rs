//! The field matrix: common last miles, times losses, times senders, with assistance, without it,
//! split, and without loss.
//!
//! The bottleneck is the last mile, whose random losses add to its queue's: here assistance
//! must distinguish the two, and here it can do harm. [`summary`] counts where it does.

mod amount;
mod cells;
mod command;
mod measure;
mod report;
mod sharing;
mod summary;
mod table;
mod verdict;

pub(crate) use command::Field;
pub use table::sample_table;
