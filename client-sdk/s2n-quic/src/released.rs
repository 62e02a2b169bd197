//! Datagrams that s2n-quic may see now.

use crate::path::Metadata;
use packrat_client::Released;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// The datagrams that an endpoint's shims have released, in order, and the waker of s2n-quic's
/// endpoint, which takes them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReleasedDatagrams(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    ready: VecDeque<Released<Metadata>>,
    waker: Option<Waker>,
}

impl ReleasedDatagrams {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The endpoint waits.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        let known = &mut self.lock().waker;
        if !known.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *known = Some(waker.clone());
        }
    }

    pub(crate) fn push(&self, released: Released<Metadata>) {
        self.lock().ready.push_back(released);
    }

    pub(crate) fn pop(&self) -> Option<Released<Metadata>> {
        self.lock().ready.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().ready.is_empty()
    }

    /// Wakes the endpoint to take the ready datagrams.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &self.lock().waker {
            waker.wake_by_ref();
        }
    }
}
