//! The objects that make the gateways of an EdgeGateway run, for server-side apply.
//!
//! A field that is not set here belongs to the field manager that sets it. Pods do not depend on
//! routes: those travel by [`crate::xds`], so that a route comes and goes without a restart.

mod bootstrap;
mod names;
mod object;
mod objects;
mod patches;
mod platform;
mod pod;
#[cfg(test)]
mod tests;

pub use bootstrap::{bootstrap, certificate_file, node_page};
pub use names::{
    BOOTSTRAP_DIRECTORY, CLIENT_DIRECTORY, LAST_CLUSTERS, LAST_CONFIGURATION, LAST_DIRECTORY,
    LAST_ENTRY, TOKEN_DIRECTORY, client_secret_name, keys_secret_name, last_secret_name, metadata,
    object_name, selector,
};
pub use object::{Kind, Object};
pub use objects::{objects, obsolete};
pub use patches::{PatchError, Patches};
pub use platform::Platform;
pub use pod::named_secrets;
