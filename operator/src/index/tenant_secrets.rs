//! Secrets of tenants, which Services name.

use std::collections::{BTreeMap, BTreeSet};

use super::models::set;
use crate::names::SECRET_LABEL;
use crate::object_key::ObjectKey;

/// Secrets that mean a `T`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TenantSecrets<T>(BTreeMap<ObjectKey, Found<T>>);

#[derive(Debug, Clone, PartialEq)]
struct Found<T> {
    /// The last content that could be read.
    content: Option<T>,
    /// The fault of the Secret as it is now.
    problem: Option<String>,
}

impl<T> Default for TenantSecrets<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Clone + PartialEq> TenantSecrets<T> {
    /// True if a Secret has been looked for, and could be used.
    pub(super) fn is_usable(&self, key: &ObjectKey) -> bool {
        self.0.get(key).is_some_and(|found| found.problem.is_none())
    }

    /// Takes the content of a Secret, or the reason why it cannot be used: then the former one
    /// stays in use. Returns whether anything has changed.
    pub(super) fn set(&mut self, key: ObjectKey, read: Result<T, String>) -> bool {
        let found = match read {
            Ok(content) => Found { content: Some(content), problem: None },
            Err(problem) => {
                let former = self.0.get(&key).and_then(|found| found.content.clone());
                Found { content: former, problem: Some(problem) }
            }
        };
        set(&mut self.0, key, Some(found))
    }

    /// Forgets Secrets that are not in `keys`.
    pub(super) fn retain(&mut self, keys: &BTreeSet<ObjectKey>) {
        self.0.retain(|key, _| keys.contains(key));
    }

    /// The last content of a Secret that could be read, and the fault of the Secret as it is now.
    pub(super) fn get(&self, key: &ObjectKey) -> (Option<&T>, Option<String>) {
        let found = self.0.get(key);
        let problem = match found {
            None => Some("has not been read yet"),
            Some(found) => found.problem.as_deref(),
        };
        let problem = problem.map(|problem| format!("Secret {key} {problem}"));
        (found.and_then(|found| found.content.as_ref()), problem)
    }
}

/// Checks that a Secret with these labels is meant for gateways.
///
/// # Errors
/// The label to set, if it is missing.
pub(super) fn check_label(labels: &BTreeMap<String, String>) -> Result<(), String> {
    match labels.get(SECRET_LABEL).is_some_and(|value| value == "true") {
        true => Ok(()),
        false => Err(format!("is not for gateways; label it {SECRET_LABEL}: \"true\"")),
    }
}
