//! Locks and atomics for state that threads share: from `parking_lot` and the standard library, or
//! from the crate `shuttle`, with which a test runs its threads in many orders (`make
//! concurrency`).

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock};
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{collections::hash_map::RandomState, sync::atomic};

#[cfg(feature = "shuttle")]
pub(crate) use double::{Mutex, RandomState, RwLock};
#[cfg(feature = "shuttle")]
pub(crate) use shuttle::sync::{MutexGuard, atomic};

/// Shuttle's locks with the interface of `parking_lot`'s.
#[cfg(feature = "shuttle")]
mod double {
    use std::collections::hash_map::DefaultHasher;
    use std::hash::BuildHasherDefault;
    use std::sync::PoisonError;

    use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

    /// Hasher with the same hashes in each run, so that the same schedule leads to the same end.
    pub(crate) type RandomState = BuildHasherDefault<DefaultHasher>;

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(shuttle::sync::RwLock::new(value))
        }

        pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        pub(crate) fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }
    }
}
