//! Checks of Envoy by its metrics and the page about itself. The standalone gateway has neither.

use serde_json::Value;

use super::{Check, Verdict};
use crate::operate::gateway::AskedGateway;

/// Days before the end of a certificate that is never renewed so late.
const SOON_DAYS: u64 = 4;

fn page(gateway: &AskedGateway, path: &str) -> Option<Value> {
    serde_json::from_str(&gateway.text(path).ok()?).ok()
}

/// The version of a gateway's Envoy.
pub(super) fn version(gateway: &AskedGateway) -> Option<String> {
    version_of(&page(gateway, "/server_info")?)
}

/// `1.40.0` of `<commit>/1.40.0/Clean/RELEASE/BoringSSL`.
fn version_of(page: &Value) -> Option<String> {
    page["version"].as_str()?.split('/').nth(1).map(str::to_owned)
}

/// All gateways run the same Envoy.
pub(super) fn versions(envoys: &[(String, String)]) -> Option<Check> {
    let (_, first) = envoys.first()?;
    let all: Vec<String> = envoys.iter().map(|(pod, version)| format!("{pod} {version}")).collect();
    let is_one = envoys.iter().all(|(_, version)| version == first);
    if is_one {
        return Some(Check::passed("envoy", "all gateways run the same", Some(first.clone())));
    }
    let hint = "an update that is under way, or an EdgeGateway that names an image of its own";
    Some(Check::of(
        "envoy",
        "all gateways run the same",
        false,
        Verdict::Warning,
        all.join(", "),
        hint,
    ))
}

/// No certificate that a gateway uses ends soon.
pub(super) fn certificates(gateway: &AskedGateway) -> Option<Check> {
    let days = least_days(&gateway.metrics().ok()?)?;
    let name = "has certificates that last";
    if days >= SOON_DAYS {
        return Some(Check::passed("certificates", name, Some(format!("{days} days"))));
    }
    let verdict = if days > 0 { Verdict::Warning } else { Verdict::Failed };
    let hint = "they are renewed long before that: look at the operator's log";
    let check =
        Check::of("certificates", name, false, verdict, format!("one ends in {days} days"), hint);
    Some(check.see("packratcertificatenearexpiry"))
}

/// Days until the first certificate ends. Envoy reports a very large number when it has none.
fn least_days(metrics: &str) -> Option<u64> {
    let line = |line: &str| {
        let value = line.strip_prefix("envoy_server_days_until_first_cert_expiring")?;
        value.trim_start_matches("{}").trim().parse::<u64>().ok()
    };
    metrics.lines().find_map(line).filter(|days| *days < 100_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pages_of_envoy() {
        let info = json!({ "version": "abc/1.40.0/Clean/RELEASE/BoringSSL" });
        assert_eq!(version_of(&info), Some("1.40.0".to_owned()));
        let metrics = |days: &str| {
            format!(
                "# TYPE envoy_server_days_until_first_cert_expiring gauge\nenvoy_server_days_until_first_cert_expiring{{}} {days}\nenvoy_server_uptime{{}} 3\n"
            )
        };
        assert_eq!(least_days(&metrics("6")), Some(6));
        assert_eq!(least_days(&metrics("4294967295")), None, "there is none");
        assert_eq!(least_days("packrat_sessions 3"), None);
    }

    #[test]
    fn two_envoys_are_told_apart() {
        let named = |pod: &str, version: &str| (pod.to_owned(), version.to_owned());
        assert_eq!(versions(&[]), None);
        let same = versions(&[named("a", "1.40.0"), named("b", "1.40.0")]).unwrap();
        assert_eq!(same.verdict, Verdict::Passed);
        let differ = versions(&[named("a", "1.40.0"), named("b", "1.39.0")]).unwrap();
        assert!(differ.detail.unwrap().contains("b 1.39.0"));
    }
}
