//! Models by the keys of their objects.

use std::collections::BTreeMap;

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
