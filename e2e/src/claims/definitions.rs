//! The resource definitions of a cluster, and the release that they belong to.

use super::first_download::uninstall;
use crate::command::{Failure, Outcome};
use crate::suite::{HELM_RELEASE, SHOP_GATEWAY, SHOP_NAMESPACE, Suite};

/// The words before the commands in the chart's message.
const REMEDY_WORDS: &str = "or let this release adopt the definitions: ";

/// A chart of 0.1.0 left its definition, which is no release's, and an EdgeGateway: the chart stops, and
/// its own words are all that it takes to go on, with that EdgeGateway.
pub(super) fn adopted(suite: &mut Suite) -> Outcome<String> {
    let names = [
        "edgegateways.packrat.dev",
        "gatewayparameters.packrat.dev",
        "packratpolicies.packrat.dev",
    ];
    // With `--only` the release is still there.
    let [namespace, name] = HELM_RELEASE;
    let left =
        suite.kubectl.output(["get", "crd", names[0], "--ignore-not-found", "-o", "name"])?;
    if !left.is_empty() {
        suite.delete_gateways()?;
    }
    suite.cluster.helm().output([
        "uninstall",
        name,
        "-n",
        namespace,
        "--ignore-not-found",
        "--wait",
    ])?;
    let delete = ["delete", "crd", "--ignore-not-found", "--timeout=60s"];
    suite.kubectl.output(delete.into_iter().chain(names))?;
    let former = suite.places.project.join("operator/tests/former/edgegateways.yaml");
    suite.kubectl.feed(["create", "-f", "-"], &std::fs::read_to_string(former)?)?;
    let established = "--for=condition=Established";
    suite.kubectl.output(["wait", "crd", names[0], established, "--timeout=60s"])?;
    suite.apply(&suite.manifest("gateway-nodeport.yaml")?, Some(SHOP_NAMESPACE))?;
    let uid = |suite: &Suite| {
        let gateway = suite.get(SHOP_NAMESPACE, &["edgegateway", SHOP_GATEWAY])?;
        Ok::<_, Failure>(gateway["metadata"]["uid"].clone())
    };
    let before = uid(suite)?;
    let said = match suite.install_chart(&[]) {
        Ok(()) => return Err(Failure::new("the chart has taken definitions that are not its own")),
        Err(Failure(said)) => said,
    };
    let commands = said.split_once(REMEDY_WORDS).and_then(|(_, rest)| rest.split(" | ").next());
    let commands = commands.ok_or_else(|| Failure(format!("it does not say how: {said}")))?;
    suite.cluster.administrator().output(["sh", "-c", commands])?;
    suite.install_chart(&[])?;
    suite.gateway_is(SHOP_GATEWAY, "Accepted")?;
    if uid(suite)? != before {
        return Err(Failure::new("the EdgeGateway is another one"));
    }
    suite.kubectl.output(["get", "crd", names[1], names[2]])?;
    uninstall(suite).map(|left| format!("two commands, the EdgeGateway stays; then {left}"))
}
