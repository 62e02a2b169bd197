//! Sessions: one client of one route each, with an upstream socket of its own.

mod assistance;
mod assisted;
mod assisting;
mod client_path;
mod deadlines;
mod endpoint;
mod engine_events;
mod engine_side;
mod evidence;
mod far_round_trip;
mod flow_id;
mod following;
mod occupancy;
mod path_claim;
mod server_side;
mod snapshot;
mod state;
mod transfer;
mod upstream;
mod upstream_state;

pub(crate) use assistance::guarded;
pub(crate) use assisted::AssistedSessions;
pub(crate) use client_path::{ClientPath, Newcomer};
pub(crate) use deadlines::Deadlines;
pub(crate) use flow_id::FlowId;
pub(crate) use following::Followed;
pub(crate) use occupancy::Occupancy;
pub(crate) use server_side::RelayName;
pub(crate) use state::Session;
pub(crate) use upstream::Upstream;
#[cfg(all(test, feature = "shuttle"))]
pub(crate) use upstream_state::{UpstreamState, UpstreamStateCell};
