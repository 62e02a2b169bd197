//! Models by the keys of their objects.

use std::collections::BTreeMap;
use std::ops::Deref;

/// The models of the objects of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Models<K, V>(BTreeMap<K, V>);

impl<K, V> Default for Models<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K, V> Deref for Models<K, V> {
    type Target = BTreeMap<K, V>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K: Ord, V: PartialEq> Models<K, V> {
    /// Takes or replaces (`Some`) or forgets an object; true if anything has changed.
    pub fn set(&mut self, key: K, model: Option<V>) -> bool {
        set(&mut self.0, key, model)
    }

    /// Forgets objects that are not to be kept: after a watch has begun again.
    pub fn retain(&mut self, keep: impl Fn(&K) -> bool) {
        self.0.retain(|key, _| keep(key));
    }
}

/// Takes or replaces (`Some`) or forgets an object; true if anything has changed.
pub(crate) fn set<K: Ord, V: PartialEq>(
    map: &mut BTreeMap<K, V>,
    key: K,
    value: Option<V>,
) -> bool {
    match value {
        Some(value) if map.get(&key) == Some(&value) => false,
        Some(value) => {
            map.insert(key, value);
            true
        }
        None => map.remove(&key).is_some(),
    }
}
