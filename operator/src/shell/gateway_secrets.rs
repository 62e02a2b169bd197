//! The Secrets of gateways: their keys, and the certificate by which the operator knows them.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

use super::authority::Identities;
use super::failure::Failure;
use super::secrets::{self, STATE_ENTRY};
use super::snapshot::Snapshots;
use crate::certificates::{Authority, LEAF_RENEWAL_SECONDS, gateway_name};
use crate::keys::GatewayKeys;
use crate::model::GatewayModel;
use crate::object_key::ObjectKey;
use crate::workload;

/// Time between two checks of the Secrets of a gateway.
const SECRETS_PERIOD: Duration = Duration::from_secs(60);

/// The Secrets of an EdgeGateway that this replica has checked.
#[derive(Default)]
pub(super) struct CheckedSecrets {
    at: Option<Instant>,
    /// The authorities that the certificate was made with.
    bundle: String,
}

impl CheckedSecrets {
    /// Makes missing Secrets, and renews old ones, if it is time to check them. `snapshots`: gets the
    /// keys.
    pub(super) async fn renew(
        &mut self,
        client: &Client,
        identities: &Identities,
        snapshots: &Snapshots,
        key: &ObjectKey,
        gateway: &GatewayModel,
    ) -> Result<(), Failure> {
        let authority = identities.authority().borrow().clone();
        let bundle = authority.bundle();
        if self.bundle == bundle && self.at.is_some_and(|at| at.elapsed() < SECRETS_PERIOD) {
            return Ok(());
        }
        let now = Timestamp::now().as_second();
        snapshots.set_keys(key, renew_keys(client, key, gateway, now).await?);
        renew_certificate(client, &authority, key, gateway, now).await?;
        self.bundle = bundle;
        self.at = Some(Instant::now());
        Ok(())
    }
}

/// The keys of a gateway, after the next step of their rotation if that is due.
async fn renew_keys(
    client: &Client,
    key: &ObjectKey,
    gateway: &GatewayModel,
    now: i64,
) -> Result<GatewayKeys, Failure> {
    let name = workload::keys_secret_name(&key.name);
    let found = secrets::read(client, &key.namespace, &name).await.map_err(Failure::Secret)?;
    let tokens = &gateway.spec.tokens;
    let (keys, version) = match found {
        Some((entries, version)) => {
            let text = entries.get(STATE_ENTRY).map_or(&[][..], Vec::as_slice);
            let mut keys = GatewayKeys::from_json(text).map_err(|error| Failure::text(&error))?;
            let (rotation, lifetime) =
                (i64::from(tokens.rotation_hours) * 3600, i64::from(tokens.lifetime_seconds));
            if !keys.advance(now, rotation, lifetime).map_err(|error| Failure::text(&error))? {
                return Ok(keys);
            }
            (keys, Some(version))
        }
        None => (GatewayKeys::generate(now).map_err(|error| Failure::text(&error))?, None),
    };
    let metadata = workload::metadata(&name, key, gateway);
    let state = keys.to_json().map_err(|error| Failure::text(&error))?;
    let public = keys.public_key_text();
    let entries = [(STATE_ENTRY, state.as_str()), ("public-key", public.as_str())];
    secrets::write(client, metadata, &entries, version.as_deref())
        .await
        .map_err(Failure::Secret)?;
    Ok(keys)
}

/// Makes the certificate of a gateway, unless there is one that is young enough.
async fn renew_certificate(
    client: &Client,
    authority: &Authority,
    key: &ObjectKey,
    gateway: &GatewayModel,
    now: i64,
) -> Result<(), Failure> {
    let name = workload::client_secret_name(&key.name);
    let identity = gateway_name(key, &gateway.uid);
    let bundle = authority.bundle();
    let found = secrets::read(client, &key.namespace, &name).await.map_err(Failure::Secret)?;
    let is_current = found.as_ref().is_some_and(|(entries, _)| {
        let state: Value = entries
            .get(STATE_ENTRY)
            .and_then(|text| serde_json::from_slice(text).ok())
            .unwrap_or_default();
        state["issuer"] == authority.issuer()
            && state["name"] == identity.as_str()
            && state["issued"].as_i64().is_some_and(|issued| now - issued < LEAF_RENEWAL_SECONDS)
            && entries.get("ca.crt").map(Vec::as_slice) == Some(bundle.as_bytes())
    });
    if is_current {
        return Ok(());
    }
    let issued =
        authority.issue_gateway(key, &gateway.uid, now).map_err(|error| Failure::text(&error))?;
    let state = json!({ "issuer": authority.issuer(), "issued": now, "name": identity });
    let state = state.to_string();
    let entries = [
        ("tls.crt", issued.certificate.as_str()),
        ("tls.key", issued.key.as_str()),
        ("ca.crt", bundle.as_str()),
        (STATE_ENTRY, state.as_str()),
    ];
    let version = found.map(|(_, version)| version);
    let metadata = workload::metadata(&name, key, gateway);
    secrets::write(client, metadata, &entries, version.as_deref()).await.map_err(Failure::Secret)
}
