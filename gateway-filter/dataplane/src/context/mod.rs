//! The context of everything above the sockets: of the process, and of a route.

mod benefit;
mod environment;
mod inquiry_budget;
mod named_servers;
mod route_context;

pub(crate) use benefit::{Arm, Transferred};
pub(crate) use environment::Environment;
pub(crate) use inquiry_budget::InquiryBudget;
pub(crate) use route_context::{RouteContext, Settings};
