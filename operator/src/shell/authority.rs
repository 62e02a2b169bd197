//! The operator's certificates: the authority is in a Secret, each replica issues its own
//! certificate from it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use rustls::ServerConfig;
use serde_json::json;
use tokio::sync::watch;

use super::refusal::{is_silence, told};
use super::secrets::{self, STATE_ENTRY};
use super::tls::{ServerIdentity, TlsError};
use crate::certificates::{Authority, CertificateError, LEAF_RENEWAL_SECONDS};
use crate::names::FIELD_MANAGER;

/// Time between two looks at the Secret.
const LOOK_PERIOD: Duration = Duration::from_secs(60);

/// The newest authority, and the configurations of the two servers.
#[derive(Debug)]
pub struct Identities {
    authority: watch::Sender<Authority>,
    discovery: watch::Sender<Arc<ServerConfig>>,
    webhook: watch::Sender<Arc<ServerConfig>>,
}

/// Failure to get the authority or its certificates.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// The API server.
    #[error("the Secret {name} cannot be had: {}", told(.source))]
    Api {
        /// Namespace and name.
        name: String,
        /// The API server's error.
        source: Box<kube::Error>,
    },
    /// A certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// A configuration.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The state has no JSON form.
    #[error("the certificate authority cannot be written: {0}")]
    Json(#[from] serde_json::Error),
}

impl AuthorityError {
    /// True if the API server has not answered.
    pub(super) fn is_silence(&self) -> bool {
        matches!(self, Self::Api { source, .. } if is_silence(source))
    }
}

impl Identities {
    /// Certificates for servers with `names`, from `authority`.
    ///
    /// # Errors
    /// When a certificate cannot be made.
    pub fn new(authority: Authority, names: &[String], now: i64) -> Result<Self, AuthorityError> {
        let (discovery, webhook) = configurations(&authority, names, now)?;
        Ok(Self {
            authority: watch::Sender::new(authority),
            discovery: watch::Sender::new(discovery),
            webhook: watch::Sender::new(webhook),
        })
    }

    /// The newest authority.
    pub fn authority(&self) -> watch::Receiver<Authority> {
        self.authority.subscribe()
    }

    /// The configuration of the discovery service.
    pub fn discovery(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.discovery.subscribe()
    }

    /// The configuration of the webhook.
    pub fn webhook(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.webhook.subscribe()
    }

    /// Replaces the authority and both configurations; existing connections stay.
    ///
    /// # Errors
    /// When a certificate cannot be made; then the authority is unchanged.
    pub fn replace(
        &self,
        authority: Authority,
        names: &[String],
        now: i64,
    ) -> Result<(), AuthorityError> {
        let (discovery, webhook) = configurations(&authority, names, now)?;
        self.discovery.send_replace(discovery);
        self.webhook.send_replace(webhook);
        self.authority.send_replace(authority);
        Ok(())
    }
}

fn configurations(
    authority: &Authority,
    names: &[String],
    now: i64,
) -> Result<(Arc<ServerConfig>, Arc<ServerConfig>), AuthorityError> {
    let issued = authority.issue_server(names, now)?;
    let discovery = ServerIdentity { issued: issued.clone(), clients: Some(authority.bundle()) };
    let webhook = ServerIdentity { issued, clients: None };
    Ok((discovery.configuration()?, webhook.configuration()?))
}

/// Reads the authority, or creates it if it is missing. Of replicas that create it at the same time
/// only one succeeds; the others read the result. `may_advance`: true if a due step of the rotation
/// is taken. `known`: the authority in use, which is written again if the Secret was deleted:
/// gateways trust no other.
pub(super) async fn obtain(
    client: &Client,
    namespace: &str,
    name: &str,
    may_advance: bool,
    known: Option<&Authority>,
) -> Result<Authority, AuthorityError> {
    let api = |source| AuthorityError::Api {
        name: format!("{namespace}/{name}"),
        source: Box::new(source),
    };
    let now = Timestamp::now().as_second();
    let metadata = json!({
        "name": name,
        "namespace": namespace,
        "labels": { "app.kubernetes.io/managed-by": FIELD_MANAGER, "app.kubernetes.io/part-of": "packrat" },
    });
    for _ in 0..3 {
        let (authority, version) =
            match secrets::read(client, namespace, name).await.map_err(api)? {
                Some((entries, version)) => {
                    let text = entries.get(STATE_ENTRY).map_or(&[][..], Vec::as_slice);
                    let mut authority = Authority::from_json(text)?;
                    if !may_advance || !authority.advance(now)? {
                        return Ok(authority);
                    }
                    (authority, Some(version))
                }
                None => match known {
                    Some(known) => (known.clone(), None),
                    None => (Authority::generate(now)?, None),
                },
            };
        let (state, bundle) = (authority.to_json()?, authority.bundle());
        let entries = [(STATE_ENTRY, state.as_str()), ("ca.crt", bundle.as_str())];
        match secrets::write(client, metadata.clone(), &entries, version.as_deref()).await {
            Ok(()) => return Ok(authority),
            // Another replica was faster: its authority counts.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(api(error)),
        }
    }
    let text = "other replicas keep changing it".to_owned();
    Err(AuthorityError::Certificate(CertificateError::Unreadable(text)))
}

/// Keeps the certificates current, forever.
pub(super) async fn keep_current(
    identities: Arc<Identities>,
    client: Client,
    namespace: String,
    name: String,
    names: Vec<String>,
    elected: watch::Receiver<bool>,
) {
    let mut issued = Timestamp::now().as_second();
    loop {
        tokio::time::sleep(LOOK_PERIOD).await;
        let now = Timestamp::now().as_second();
        let may_advance = *elected.borrow();
        let known = identities.authority.borrow().clone();
        let authority = match obtain(&client, &namespace, &name, may_advance, Some(&known)).await {
            Ok(authority) => authority,
            Err(error) => {
                tracing::error!(event = "certificates_failed", error = %error);
                // A Secret that cannot be read must not let the servers' certificates run out.
                known.clone()
            }
        };
        if authority == known && now - issued < LEAF_RENEWAL_SECONDS {
            continue;
        }
        match identities.replace(authority, &names, now) {
            Ok(()) => {
                issued = now;
                tracing::info!(event = "certificates_replaced");
            }
            Err(error) => tracing::error!(event = "certificates_failed", error = %error),
        }
    }
}
