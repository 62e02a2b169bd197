//! The load balancer before an EdgeGateway's gateways.

use std::time::Duration;

use crate::command::{Outcome, until};
use crate::suite::{SHOP_NAMESPACE, Suite};

/// The nodes' proxies have seen a new address of a Service after this time. A flow that comes before is
/// tracked as one to nowhere.
const KNOWN_TO_NODES: Duration = Duration::from_secs(3);

/// A load balancer with ready gateways behind it.
pub(super) struct Balancer {
    service: String,
    pub(super) address: String,
}

impl Balancer {
    /// The balancer of an EdgeGateway, when all its gateways are ready; `None` if the cluster has
    /// none.
    pub(super) fn before(suite: &Suite, gateway: &str) -> Outcome<Option<Self>> {
        suite.gateway_is(gateway, "Programmed")?;
        suite.rolled_out(&deployment(gateway), SHOP_NAMESPACE)?;
        let service = format!("{SHOP_NAMESPACE}/{}", suite.service_of(gateway)?);
        let address = until(Duration::from_secs(60), "a way to the balancer's address", || {
            balance(suite, &service)
        })?;
        if address.is_empty() {
            return Ok(None);
        }
        suite.gateway_is(gateway, "Ready")?;
        balance(suite, &service)?;
        std::thread::sleep(KNOWN_TO_NODES);
        Ok(Some(Self { service, address }))
    }

    /// A cloud's balancer follows the endpoints; this one needs a call.
    pub(super) fn follow(&self, suite: &Suite) -> Outcome {
        balance(suite, &self.service).map(drop)
    }
}

fn balance(suite: &Suite, service: &str) -> Outcome<String> {
    suite.cluster.balance(service).unwrap_or_else(|| Ok(String::new()))
}

/// The Deployment of an EdgeGateway's gateways, as kubectl takes it.
pub(super) fn deployment(gateway: &str) -> String {
    format!("deployment/packrat-gateway-{gateway}")
}
