//! The operator's knowledge of the cluster, and the listeners that follow for each gateway. Pure:
//! objects go in, listeners and problems come out.
//!
//! [`Index`] keeps a model of each object. [`Index::resolve`] looks at all models at once, so the
//! result cannot depend on the order in which objects have arrived, and an unusable object does not
//! affect others.

mod certificate;
mod choice;
mod chosen;
mod claims;
mod declared;
mod endpoints;
mod grants;
mod lingering;
mod listener;
mod models;
mod objects;
mod operator;
mod ports;
mod quotas;
mod resolution;
mod resolve;
mod server_ids;
mod tcp;
mod tenant_secrets;
mod terminate;
mod udp_routes;

pub use certificate::Certificate;
pub use lingering::Lingering;
pub use listener::{Listener, Shares};
pub use models::Models;
pub(crate) use models::set;
pub use objects::Index;
pub use operator::Operator;
pub use resolution::{GatewayView, Resolution, ServiceView};
pub use server_ids::read_server_ids;
pub use tcp::Passthrough;
pub use terminate::{Terminated, Upstream};
