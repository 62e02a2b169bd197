//! Datagram sockets: options, batches with segmentation offload, ECN marks and source addresses;
//! and waiting for them.
//!
//! Thin, safe wrappers: every unsafe system call of the data path is in the files below this
//! module.

mod address;
mod capacity;
mod control_message;
mod ecn;
mod network;
mod options;
#[cfg(feature = "virtual-time")]
mod outlet;
mod poller;
mod receive;
mod reuse_port;
mod send;
mod slot;
mod source_ports;

pub use address::canonical;
pub use ecn::Ecn;
pub use network::network;
pub use options::{
    Family, bind_reuse_port, listener_options, local_address, open_connected,
    raise_descriptor_limit,
};
pub use receive::{Message, ReceiveBatch};
pub use send::{Destination, GsoBatch, Offload, SendReport, Sender, WhenFull};

pub(crate) use address::{ClientAddress, EndpointAddress, ListenerAddress};
pub(crate) use capacity::{Capacity, FlowPermit, RouteRoom};
pub(crate) use options::{bind_alone, join_source};
#[cfg(feature = "virtual-time")]
pub(crate) use outlet::{Outlet, Taken};
pub(crate) use poller::{Poller, use_precise_timers};
pub(crate) use reuse_port::{MOST_READERS, NO_PLACE, PROBE_BYTES, Places, put_in_force};
pub(crate) use slot::{Descriptors, ProbeReader, Reader, Slot};
pub(crate) use source_ports::SourcePorts;
