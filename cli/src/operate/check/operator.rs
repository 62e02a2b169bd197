//! The operator: is it there, in which version, elected, and known to the API server.

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Api, ResourceExt as _};

use packrat_operator::resource::DEFAULT_CLASS;

use super::{Check, INSTALL_HINT, Verdict, edge};
use crate::operate::cluster::{Cluster, is_ready};
use crate::operate::error::OperateError;

/// Name of this group of checks.
const CHECK_GROUP: &str = "operator";
/// Labels of the operator's Deployment, whatever the release is called.
pub(crate) const OPERATOR_LABELS: &str = "app.kubernetes.io/component=operator,helm.sh/chart";
/// Annotation of the operator's Deployment with the namespaces that the release names.
const NAMESPACES_ANNOTATION: &str = "packrat.dev/gateway-namespaces";
/// A lease that was not renewed for this long has no holder.
const LEASE_SECONDS: i64 = 60;

/// The operator's place in the cluster.
#[derive(Debug, Clone)]
pub(crate) struct Operator {
    pub(crate) namespace: String,
    /// ServiceAccount of the operator.
    pub(crate) account: String,
    deployment: Deployment,
}

impl Operator {
    /// The Deployments of operators; there should be one.
    pub(crate) fn find(cluster: &Cluster) -> Result<Vec<Self>, OperateError> {
        let api = Api::<Deployment>::all(cluster.client().clone());
        let is_ours = |deployment: &Deployment| {
            deployment
                .labels()
                .get("helm.sh/chart")
                .is_some_and(|chart| chart.starts_with("packrat-"))
        };
        let found = cluster.list(&api, OPERATOR_LABELS)?.into_iter().filter(is_ours);
        Ok(found
            .map(|deployment| Self {
                namespace: deployment.namespace().unwrap_or_default(),
                account: deployment
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.template.spec.as_ref()?.service_account_name.clone())
                    .unwrap_or_else(|| "default".to_owned()),
                deployment,
            })
            .collect())
    }

    fn name(&self) -> String {
        format!("{}/{}", self.namespace, self.deployment.name_any())
    }

    /// The class of EdgeGateways that it serves.
    fn class(&self) -> &str {
        self.argument("class").unwrap_or(DEFAULT_CLASS)
    }

    /// The value of one of its arguments.
    fn argument(&self, name: &str) -> Option<&str> {
        let containers = &self.deployment.spec.as_ref()?.template.spec.as_ref()?.containers;
        let arguments = containers.iter().flat_map(|container| container.args.iter().flatten());
        let prefix = format!("--{name}=");
        arguments.filter_map(|argument| argument.strip_prefix(&prefix)).next()
    }
}

/// Checks before an installation that the class has no operator yet.
pub(super) fn before_installation(cluster: &Cluster) -> Vec<Check> {
    match Operator::find(cluster) {
        Err(error) => vec![unreadable(&error)],
        Ok(found) => {
            let names: Vec<String> = found.iter().map(Operator::name).collect();
            let hint = "use `helm upgrade` for the release that is there, or give the new one a class of its own: --set class=NAME,sidecarInjector.enabled=false";
            let detail = format!("there is {}", names.join(", "));
            vec![Check::of(
                CHECK_GROUP,
                "is not there yet",
                names.is_empty(),
                Verdict::Warning,
                detail,
                hint,
            )]
        }
    }
}

fn unreadable(error: &OperateError) -> Check {
    let hint = "you need the right to list deployments of all namespaces";
    Check::of(CHECK_GROUP, "can be looked for", false, Verdict::Warning, error.to_string(), hint)
}

/// Checks after an installation.
pub(super) fn installed(cluster: &Cluster) -> (Vec<Check>, Option<Operator>) {
    let found = match Operator::find(cluster) {
        Ok(found) => found,
        Err(error) => return (vec![unreadable(&error)], None),
    };
    let Some(operator) = found.first().cloned() else {
        return (
            vec![Check::of(
                CHECK_GROUP,
                "is there",
                false,
                Verdict::Failed,
                "no Deployment of the chart",
                INSTALL_HINT,
            )],
            None,
        );
    };
    let label = |name: &str| operator.deployment.labels().get(name).cloned().unwrap_or_default();
    let (chart, version) = (label("helm.sh/chart"), label("app.kubernetes.io/version"));
    let ours = env!("CARGO_PKG_VERSION");
    let wanted = operator.deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let ready =
        operator.deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0);
    let mut checks = vec![
        Check::passed(CHECK_GROUP, "is there", Some(operator.name())),
        only_one_of_class(&found),
        Check::of(
            CHECK_GROUP,
            "has the chart's version of this command",
            version == ours && chart == format!("packrat-{ours}"),
            Verdict::Warning,
            format!("chart {chart} with {version}, this command is {ours}"),
            "upgrade the older of the two",
        ),
        Check::of(
            CHECK_GROUP,
            "has its replicas ready",
            ready >= wanted && wanted > 0,
            if ready > 0 { Verdict::Warning } else { Verdict::Failed },
            format!("{ready} of {wanted}{}", why_not_ready(cluster, &operator)),
            format!(
                "kubectl describe pods -n {} -l app.kubernetes.io/component=operator",
                operator.namespace
            ),
        ),
    ];
    checks.extend(namespaces(cluster, &operator));
    checks.push(elected(cluster, &operator));
    checks.extend(webhook(cluster, &operator));
    (checks, Some(operator))
}

fn only_one_of_class(found: &[Operator]) -> Check {
    let names: Vec<String> = found.iter().map(Operator::name).collect();
    let same_class: Vec<&str> = names
        .iter()
        .zip(found)
        .filter(|(_, one)| found.iter().filter(|other| other.class() == one.class()).count() > 1)
        .map(|(name, _)| name.as_str())
        .collect();
    Check::of(
        CHECK_GROUP,
        "is the only one of its class",
        same_class.is_empty(),
        Verdict::Failed,
        same_class.join(", "),
        "an EdgeGateway is served by the first that finds it: give one release another class (value class), or uninstall all but one",
    )
}

/// Reasons that the operator's Pods give, if one of them is not ready.
fn why_not_ready(cluster: &Cluster, operator: &Operator) -> String {
    let pods = cluster.api_in::<Pod>(&operator.namespace);
    let selector = "app.kubernetes.io/component=operator";
    let found = cluster.list(&pods, selector).unwrap_or_default();
    let reason = found.iter().filter(|pod| !is_ready(pod)).find_map(edge::reason_of);
    reason.map(|reason| format!("; {reason}")).unwrap_or_default()
}

/// The namespaces that the release names: it leaves out the objects of those that are missing.
fn namespaces(cluster: &Cluster, operator: &Operator) -> Option<Check> {
    let named = operator.deployment.annotations().get(NAMESPACES_ANNOTATION)?;
    let api = cluster.api_of_cluster::<Namespace>();
    let is_missing = |name: &&str| {
        let found = cluster.ask("getting a namespace", api.get_opt(name));
        matches!(found, Ok(None))
    };
    let missing: Vec<&str> = named.split(',').filter(is_missing).collect();
    Some(Check::of(
        CHECK_GROUP,
        "has the namespaces of gateway.namespaces",
        missing.is_empty(),
        Verdict::Warning,
        format!("not there: {}", missing.join(", ")),
        "correct the value, or create the namespace and upgrade the release",
    ))
}

fn elected(cluster: &Cluster, operator: &Operator) -> Check {
    let name = operator.argument("lease").unwrap_or("packrat-operator").to_owned();
    let lease = cluster.ask(
        "getting the operator's Lease",
        cluster.api_in::<Lease>(&operator.namespace).get_opt(&name),
    );
    let spec = match lease {
        Ok(lease) => lease.and_then(|lease| lease.spec).unwrap_or_default(),
        Err(error) => {
            let hint = "you need the right to get leases";
            return Check::of(
                CHECK_GROUP,
                "has elected a writer",
                false,
                Verdict::Warning,
                error.to_string(),
                hint,
            );
        }
    };
    let age = spec.renew_time.map(|renewed| Timestamp::now().as_second() - renewed.0.as_second());
    let holder = spec.holder_identity.unwrap_or_default();
    let detail = match age {
        Some(age) if !holder.is_empty() => format!("{holder}, renewed {age} s ago"),
        _ => "no replica holds the Lease".to_owned(),
    };
    let holds = !holder.is_empty() && age.is_some_and(|age| age < LEASE_SECONDS);
    let check = Check::of(
        CHECK_GROUP,
        "has elected a writer",
        holds,
        Verdict::Failed,
        detail,
        "new Services and gateways wait meanwhile; the operator's log says why",
    );
    check.see("packratoperatornotelected")
}

fn webhook(cluster: &Cluster, operator: &Operator) -> Option<Check> {
    let name = operator.argument("webhook-configuration").filter(|name| !name.is_empty())?;
    let api = cluster.api_of_cluster::<MutatingWebhookConfiguration>();
    let check = match cluster.ask("getting the webhook's configuration", api.get_opt(name)) {
        Err(error) => {
            let hint = "you need the right to get mutatingwebhookconfigurations";
            Check::of(
                CHECK_GROUP,
                "is trusted as a webhook",
                false,
                Verdict::Warning,
                error.to_string(),
                hint,
            )
        }
        Ok(configuration) => {
            let webhooks =
                configuration.and_then(|configuration| configuration.webhooks).unwrap_or_default();
            let is_trusted = webhooks.iter().all(|webhook| {
                webhook.client_config.ca_bundle.as_ref().is_some_and(|bundle| !bundle.0.is_empty())
            });
            Check::of(
                CHECK_GROUP,
                "is trusted as a webhook",
                !webhooks.is_empty() && is_trusted,
                Verdict::Warning,
                format!("{name} is missing or has no certificate authority"),
                "Pods that ask for a sidecar start without one; the operator writes the authority when it is elected",
            )
        }
    };
    Some(check)
}
