//! Listeners: the way of every datagram, in both directions, and the sockets that clients send to.

mod attachment;
mod client_to_server;
mod control;
mod forwarder;
mod gathered;
mod mailbox;
mod message_rate;
mod numbering;
mod put_off;
mod read_coalescing;
mod server_to_client;
mod steering;

pub use attachment::Attachment;
pub use client_to_server::{ClientDatagrams, Ingress};

pub(crate) use attachment::Listeners;
pub(crate) use control::{answer_put_off, refuse_unanswered};
pub(crate) use forwarder::Forwarder;
pub(crate) use mailbox::{Command, Mailbox, Mailboxes};
pub(crate) use message_rate::MessageRate;
pub(crate) use put_off::PutOffHandshakes;
pub(crate) use read_coalescing::ReadCoalescing;
pub(crate) use server_to_client::{MESSAGES_PER_RECEIVE, RECEIVES_PER_TURN, forward_to_client};
#[cfg(feature = "virtual-time")]
pub(crate) use server_to_client::{pass_on, take_peer_messages};
