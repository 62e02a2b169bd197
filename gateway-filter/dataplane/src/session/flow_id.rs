//! The name of a flow.

use std::fmt;

use serde_json::Value;

/// Names one client's flow through this process, assisted or not; never used again. Log lines have
/// it as `session`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FlowId(u64);

impl FlowId {
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }

    pub(crate) const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FlowId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl From<FlowId> for Value {
    fn from(id: FlowId) -> Self {
        id.0.into()
    }
}
