//! Namespaces whose routes a listener takes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::objects::RouteNamespaces;
use crate::object_key::ObjectKey;

/// Namespaces whose routes a listener takes.
#[derive(Debug, Clone, PartialEq)]
pub enum NamespaceRule {
    /// Only this namespace.
    Same(String),
    /// Every namespace.
    All,
    /// Namespaces with certain labels.
    Selector(LabelSelector),
    /// No namespaces.
    Nothing,
}

impl NamespaceRule {
    pub(super) fn of(namespaces: &RouteNamespaces, gateway: &ObjectKey) -> Self {
        match namespaces.from.as_deref() {
            None | Some("Same") => Self::Same(gateway.namespace.clone()),
            Some("All") => Self::All,
            Some("Selector") => match &namespaces.selector {
                Some(selector) => Self::Selector(selector.clone()),
                None => Self::Nothing,
            },
            Some(_) => Self::Nothing,
        }
    }

    /// True if routes of a namespace with these labels are taken.
    pub fn admits(&self, namespace: &str, labels: Option<&BTreeMap<String, String>>) -> bool {
        match self {
            Self::Same(own) => own == namespace,
            Self::All => true,
            Self::Selector(selector) => labels.is_some_and(|labels| selects(selector, labels)),
            Self::Nothing => false,
        }
    }
}

/// True if a selector of labels selects an object.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let wanted = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    wanted.into_iter().all(|(name, value)| labels.get(name) == Some(value))
        && expressions.all(|expression| {
            let value = labels.get(&expression.key);
            let is_one = value.is_some_and(|value| {
                expression.values.iter().flatten().any(|wanted| wanted == value)
            });
            match expression.operator.as_str() {
                "In" => is_one,
                "NotIn" => !is_one,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        })
}
