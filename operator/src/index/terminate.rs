//! Connections that end at the gateway: with the certificate of the Service's tenant, over HTTP/3 at the
//! UDP port and over HTTP/2 or HTTP/1.1 at the TCP port of the same number. Requests go on to the TCP port
//! of the Service.

use std::collections::BTreeMap;

use packrat_api::route::Hidden;
use rustls::SignatureAlgorithm;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::tcp::Passthrough;
use super::tenant_secrets::check_label;
use super::{Index, ServiceModel};
use crate::annotations::{
    CERTIFICATE_ANNOTATION, MODE_ANNOTATION, ObjectKey, Problem, Reason, TCP_ANNOTATION, TcpChoice,
};
use crate::resource::{EdgeGatewaySpec, TerminatePolicy};

/// Entry of a Secret of type kubernetes.io/tls with the chain of certificates.
const CHAIN_ENTRY: &str = "tls.crt";
/// Entry of a Secret of type kubernetes.io/tls with the private key.
const KEY_ENTRY: &str = "tls.key";

/// A route whose connections end at the gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct Terminated {
    /// The protocol of its servers.
    pub upstream: Upstream,
    /// The certificate; without one, no listener is made.
    pub certificate: Option<Certificate>,
}

/// The protocol of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upstream {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2 without TLS.
    Http2,
}

/// A certificate with its key, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate, and those between it and its authority.
    pub chain: String,
    /// Private key of the certificate.
    pub key: Hidden,
}

impl Certificate {
    /// Reads a Secret. `labels` and `entries`: its own.
    ///
    /// # Errors
    /// The fault of the Secret. Pairs that a gateway would refuse are refused here: a Secret of one
    /// tenant must not show as a fault of the gateway.
    pub fn read(
        labels: &BTreeMap<String, String>,
        entries: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, String> {
        check_label(labels)?;
        let text = |entry: &str| {
            let bytes = entries.get(entry).ok_or_else(|| {
                format!("has no entry {entry}; a Secret of type kubernetes.io/tls has both")
            })?;
            String::from_utf8(bytes.clone())
                .map_err(|_| format!("has an entry {entry} that is no PEM"))
        };
        let (chain, key) = (text(CHAIN_ENTRY)?, Hidden::new(text(KEY_ENTRY)?));
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(chain.as_bytes()).collect();
        let certificates = certificates
            .ok()
            // Envoy also reads the certificates in between.
            .filter(|found| !found.is_empty() && found.iter().all(is_certificate))
            .ok_or_else(|| format!("has an entry {CHAIN_ENTRY} that is no certificate in PEM"))?;
        let private = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
            .ok()
            .and_then(|found| any_supported_type(&found).ok())
            .filter(|found| {
                matches!(found.algorithm(), SignatureAlgorithm::RSA | SignatureAlgorithm::ECDSA)
            })
            .ok_or_else(|| {
                format!("has an entry {KEY_ENTRY} that is no RSA key (2048 bits or more) or ECDSA key (P-256, P-384) in PEM")
            })?;
        CertifiedKey::new(certificates, private).keys_match().map_err(|_| {
            format!("has an entry {KEY_ENTRY} that is not the key of {CHAIN_ENTRY}")
        })?;
        Ok(Self { chain, key })
    }
}

fn is_certificate(bytes: &CertificateDer<'_>) -> bool {
    webpki::EndEntityCert::try_from(bytes).is_ok()
}

impl Index {
    /// True if connections to a Service may end at an EdgeGateway of this operator.
    pub(super) fn ends(&self, key: &ObjectKey, service: &ServiceModel) -> bool {
        service.annotations.terminates()
            && self.wanted_gateway(key, service).is_some_and(|(gateway_key, gateway)| {
                refusal(service, gateway_key, &gateway.spec).is_none()
            })
    }

    /// The end of connections to a Service at a gateway, and its faults. `None`: they do not end
    /// there.
    pub(super) fn terminated(
        &self,
        key: &ObjectKey,
        service: &ServiceModel,
        number: u16,
    ) -> (Option<Terminated>, Vec<Problem>) {
        if !service.annotations.terminates() {
            return (None, Vec::new());
        }
        let mut problems = Vec::new();
        let mut tell = |reason, message| problems.push(Problem { reason, message });
        let mut refused = false;
        let upstream = match service.application_protocols.get(&number).map(String::as_str) {
            None | Some("http") => Upstream::Http1,
            Some("kubernetes.io/h2c") => Upstream::Http2,
            Some(other) => {
                let message = format!(
                    "port {number} of the Service has the appProtocol {other}; gateways ask servers over HTTP/1.1 (http) and over HTTP/2 without TLS (kubernetes.io/h2c)"
                );
                tell(Reason::NotAllowed, message);
                refused = true;
                Upstream::Http1
            }
        };
        let mut certificate = None;
        match &service.annotations.certificate {
            None => tell(
                Reason::NoCertificate,
                format!(
                    "{MODE_ANNOTATION}: terminate needs a certificate; name its Secret with {CERTIFICATE_ANNOTATION}"
                ),
            ),
            Some(name) => {
                let secret = ObjectKey::new(key.namespace.clone(), name.clone());
                let (found, problem) = self.certificates.get(&secret);
                certificate = found.cloned();
                if let Some(problem) = problem {
                    tell(Reason::NoCertificate, problem);
                }
            }
        }
        if service.annotations.tcp.is_some_and(|tcp| tcp != TcpChoice::Off) {
            let message = format!(
                "{TCP_ANNOTATION} and {MODE_ANNOTATION}: terminate exclude each other; TCP connections end at the gateway, too. Remove {TCP_ANNOTATION}, or write off"
            );
            tell(Reason::InvalidAnnotation, message);
        }
        // The port is the Service's all the same.
        let certificate = certificate.filter(|_| !refused);
        (Some(Terminated { upstream, certificate }), problems)
    }
}

/// Why connections to a Service may not end at a gateway.
pub(super) fn refusal(
    service: &ServiceModel,
    gateway: &ObjectKey,
    spec: &EdgeGatewaySpec,
) -> Option<Problem> {
    let is_refused = service.annotations.terminates() && spec.terminate == TerminatePolicy::Off;
    is_refused.then(|| Problem {
        reason: Reason::NotAllowed,
        message: format!(
            "EdgeGateway {gateway} ends no connections; set its spec.terminate to Allowed, or remove {MODE_ANNOTATION}"
        ),
    })
}

/// TCP connections at the port of such a route: they end at the gateway as well, unless the
/// Service's annotation is `off`.
pub(super) fn tcp(
    service: &ServiceModel,
    endpoints: &[std::net::SocketAddr],
) -> Option<Passthrough> {
    let weights = endpoints.iter().map(|endpoint| (*endpoint, 1.0)).collect();
    (service.annotations.tcp != Some(TcpChoice::Off))
        .then(|| Passthrough { weights, ..Passthrough::default() })
}
