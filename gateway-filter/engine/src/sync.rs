//! Locks and atomics of what threads share: the standard library's, or those of the crate `shuttle`,
//! with which a test runs its threads in many orders (`make check-concurrency`).

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, atomic};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, atomic};
