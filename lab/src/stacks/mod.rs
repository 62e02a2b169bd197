//! The QUIC stacks of servers and clients, all of whose time and randomness follow from the seed.

mod download;
mod identity;
mod noq;
mod quinn;
mod receiver;
mod runtime;
mod s2n;
mod sender;
mod server;

pub(crate) use download::{Download, Order};
pub use receiver::ReceiverStack;
pub(crate) use receiver::{Receiver, ReceiverSetup};
pub(crate) use s2n::limits;
pub use sender::Sender;
pub(crate) use server::{serve, start};
