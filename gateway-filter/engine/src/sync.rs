//! Locks and atomics of shared state: the standard library's, or the crate `shuttle`'s, with which
//! a test runs its threads in many orders (`make check-concurrency`).

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, atomic};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, atomic};
