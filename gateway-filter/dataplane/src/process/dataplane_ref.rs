//! A reference to the data plane for parts that may start before it: its pages, its exporter.

use std::sync::Arc;

use super::dataplane::Dataplane;

/// A reference to a data plane that may be made later.
#[derive(Debug)]
pub enum DataplaneRef {
    /// The data plane exists.
    Owned(Arc<Dataplane>),
    /// The function finds it once it is there.
    Found(fn() -> Option<&'static Dataplane>),
}

impl DataplaneRef {
    /// The data plane; `None`: it is not there yet.
    pub fn get(&self) -> Option<&Dataplane> {
        match self {
            Self::Owned(dataplane) => Some(dataplane),
            Self::Found(find) => find(),
        }
    }
}
