//! Which operator an EdgeGateway belongs to.

use kube::{Api, Client};
use serde_json::json;

use super::edge_gateway::{newest, write_status};
use crate::index::Operator;
use crate::object_key::ObjectKey;
use crate::resource::EdgeGateway;

/// Outcome of claiming an EdgeGateway.
pub(super) enum Claim {
    /// The EdgeGateway belongs to this operator.
    Own,
    /// Another operator was faster, or the EdgeGateway is gone: the watch will show which.
    Lost,
    /// The API server has dropped the written fields.
    Dropped,
}

/// Claims an EdgeGateway for this operator in its status. Of two simultaneous claims one is
/// refused.
pub(super) async fn claim(
    client: &Client,
    operator: &Operator,
    key: &ObjectKey,
) -> Result<Claim, kube::Error> {
    let api = Api::<EdgeGateway>::namespaced(client.clone(), &key.namespace);
    let Some(found) = newest(&api, key).await? else { return Ok(Claim::Lost) };
    let own = &operator.identity;
    if found.spec.class != operator.class {
        return Ok(Claim::Lost);
    }
    let holder = |found: &EdgeGateway| found.status.clone().and_then(|status| status.operator);
    match holder(&found) {
        Some(holder) if holder == *own => return Ok(Claim::Own),
        Some(_) => return Ok(Claim::Lost),
        None => {}
    }
    let Some(written) = write_status(&api, &found, json!({ "operator": own })).await? else {
        return Ok(Claim::Lost);
    };
    if holder(&written).is_none() {
        return Ok(Claim::Dropped);
    }
    tracing::info!(event = "gateway_claimed", gateway = %key, operator = own);
    Ok(Claim::Own)
}

/// Gives up an EdgeGateway that has another class now: its objects stay as they are for the
/// operator of that class.
pub(super) async fn release(
    client: &Client,
    operator: &Operator,
    key: &ObjectKey,
) -> Result<(), kube::Error> {
    let api = Api::<EdgeGateway>::namespaced(client.clone(), &key.namespace);
    let Some(found) = newest(&api, key).await? else { return Ok(()) };
    let holder = found.status.as_ref().and_then(|status| status.operator.as_ref());
    if found.spec.class != operator.class && holder == Some(&operator.identity) {
        tracing::info!(event = "gateway_released", gateway = %key, class = found.spec.class);
        write_status(&api, &found, json!({ "operator": null })).await?;
    }
    Ok(())
}
