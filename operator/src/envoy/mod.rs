//! The Envoy of a gateway and of a sidecar: paths in its image, its administration interface, the page
//! with metrics.

mod administration;
mod image;
mod metrics_page;
mod user;

pub(crate) use administration::administration;
pub use administration::{ADMIN_SOCKET, RUN_DIRECTORY, admin_address, run_volume};
pub use image::{DRAIN_PATH, ENVOY_PATH, MODULE_DIRECTORY, START_PATH, TOKEN_FILTER};
pub use metrics_page::METRICS_PORT;
pub(crate) use metrics_page::{Readers, metrics_page};
pub use user::User;

/// Name of the certificate of the listeners that give tokens out.
pub const TOKEN_CERTIFICATE: &str = "token";
