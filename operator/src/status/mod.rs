//! Conditions of EdgeGateways, Services and objects of the Gateway API, with reasons. Pure; the shell
//! writes them.

mod assistance;
mod edge_gateway;
mod gateway;
pub mod gateway_api;
mod observed;
mod reading;
mod rollout;
mod service;
#[cfg(test)]
mod tests;

pub use edge_gateway::gateway_status;
pub use observed::Observed;
pub use reading::{Reading, StoppedRoute};
pub use rollout::{Rollout, why_waiting};
pub use service::service_condition;
