//! Connections that end at the gateway: with the certificate of the Service's tenant, over HTTP/3 at the
//! UDP port and over HTTP/2 or HTTP/1.1 at the TCP port of the same number. Requests go on to the TCP port
//! of the Service.

use std::collections::BTreeSet;

use super::certificate::Certificate;
use super::objects::Index;
use super::tcp::Passthrough;
use crate::annotations::TcpChoice;
use crate::model::ServiceModel;
use crate::names::{CERTIFICATE_ANNOTATION, MODE_ANNOTATION, TCP_ANNOTATION};
use crate::object_key::ObjectKey;
use crate::problem::{Problem, Reason};
use crate::resource::{EdgeGatewaySpec, TerminatePolicy};

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

impl Index {
    /// The Secrets with certificates that Services name whose connections an EdgeGateway lets end. No
    /// other one is looked at.
    pub fn certificates(&self) -> BTreeSet<ObjectKey> {
        let of_service = |(key, service): (&ObjectKey, &ServiceModel)| {
            let annotations = &service.annotations;
            let name = annotations.certificate.as_ref().filter(|_| self.ends(key, service))?;
            Some(ObjectKey::new(key.namespace.clone(), name.clone()))
        };
        self.services.iter().filter_map(of_service).collect()
    }

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
