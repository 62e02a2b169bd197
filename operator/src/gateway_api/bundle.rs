//! Versions of the Gateway API's definitions in the cluster, and whether the operator knows them.

use std::collections::BTreeMap;

use super::finding::Finding;

/// The annotation of a definition that names the release it is of.
pub const BUNDLE_VERSION: &str = "gateway.networking.k8s.io/bundle-version";
/// The newest release that is known, with all before it: major and minor number.
const NEWEST_RELEASE: (u32, u32) = (1, 6);
/// Definitions that are listed in one message.
const LISTED_DEFINITIONS: usize = 5;

/// The definitions that the operator watches, by name, each with its release if it names one.
pub type Bundles = BTreeMap<String, Option<String>>;

/// Condition `SupportedVersion` of a GatewayClass. Definitions of other releases are served as far
/// as they have the needed fields: `Accepted` does not follow from it. `bundles`: `None` if the
/// operator may not look at definitions.
pub fn supported_version(bundles: Option<&Bundles>) -> Finding {
    const CONDITION_TYPE: &str = "SupportedVersion";
    let Some(bundles) = bundles else {
        return Finding {
            type_: CONDITION_TYPE,
            status: None,
            reason: "NotKnown",
            message: "the operator may not look at the definitions of the Gateway API: its ClusterRole is that of an older version".to_owned(),
        };
    };
    let others: Vec<String> = bundles
        .iter()
        .filter(|(_, version)| !version.as_deref().is_some_and(is_known))
        .map(|(name, version)| match version {
            Some(version) => format!("{name} is of {version:.40}"),
            None => format!("{name} has no annotation {BUNDLE_VERSION}"),
        })
        .collect();
    let (major, minor) = NEWEST_RELEASE;
    if others.is_empty() {
        let message = format!("the definitions are of release v{major}.{minor} or an earlier one");
        return Finding::yes(CONDITION_TYPE, "SupportedVersion", &message);
    }
    let told = others.iter().take(LISTED_DEFINITIONS).cloned().collect::<Vec<_>>().join(", ");
    let message = format!(
        "known are releases v{major}.0 to v{major}.{minor}; {told}. What is known of them is served"
    );
    Finding::no(CONDITION_TYPE, "UnsupportedVersion", message)
}

/// True for a release that is known: `v1.6.3`, `v1.5.0-rc.1`.
fn is_known(version: &str) -> bool {
    let mut numbers = version.strip_prefix('v').unwrap_or_default().split('.');
    let mut number = || numbers.next()?.parse::<u32>().ok();
    matches!((number(), number()), (Some(major), Some(minor)) if major == NEWEST_RELEASE.0 && minor <= NEWEST_RELEASE.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_are_the_releases_of_the_major_version_up_to_the_newest() {
        for (version, expected) in [
            ("v1.6.3", true),
            ("v1.0.0", true),
            ("v1.5.0-rc.1", true),
            ("v1.7.0", false),
            ("v2.0.0", false),
            ("v0.8.1", false),
            ("1.6.3", false),
            ("v1", false),
            ("main", false),
            ("", false),
        ] {
            assert_eq!(is_known(version), expected, "{version}");
        }
    }

    #[test]
    fn one_definition_of_another_release_is_enough() {
        let name = |plural: &str| format!("{plural}.gateway.networking.k8s.io");
        let mut bundles: Bundles = ["gateways", "udproutes"]
            .map(|plural| (name(plural), Some("v1.6.3".to_owned())))
            .into();
        let of = |bundles: &Bundles| {
            let Finding { type_, status, reason, message } = supported_version(Some(bundles));
            assert_eq!(type_, "SupportedVersion");
            (status, reason, message)
        };
        assert_eq!((of(&bundles).0, of(&bundles).1), (Some(true), "SupportedVersion"));
        bundles.insert(name("udproutes"), Some("v1.9.0".to_owned()));
        let (status, reason, message) = of(&bundles);
        assert_eq!((status, reason), (Some(false), "UnsupportedVersion"));
        assert!(message.contains("udproutes.gateway.networking.k8s.io is of v1.9.0"), "{message}");
        assert!(!message.contains("gateways.gateway"), "{message}");
        bundles.insert(name("udproutes"), None);
        assert!(of(&bundles).2.contains("has no annotation"));
        assert_eq!(supported_version(None).status, None);
    }
}
