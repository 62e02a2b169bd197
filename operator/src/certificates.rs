//! The operator's own certificate authority: it secures the connections of gateways and of the API
//! server to the operator.
//!
//! Authority certificates are announced before they are used ([`crate::rotation`]), so that a peer
//! that trusts the old one has the new one already. Certificates of servers and gateways live for
//! days and are made again long before they expire.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde::{Deserialize, Serialize};

use crate::object_key::ObjectKey;
use crate::rotation::{Rotation, Schedule};

/// Seconds of a day.
const DAY_SECONDS: i64 = 86_400;
/// Validity of an authority's certificate.
const AUTHORITY_DAYS: i64 = 730;
/// Validity of the certificates that an authority issues.
pub const LEAF_DAYS: i64 = 7;
/// Age at which a certificate is made again.
pub const LEAF_RENEWAL_SECONDS: i64 = 2 * DAY_SECONDS;
/// Tolerance for clocks that differ.
const LEEWAY_SECONDS: i64 = 3600;

const CERTIFICATE_SCHEDULE: Schedule = Schedule {
    period: 365 * DAY_SECONDS,
    // Longer than Kubernetes takes to bring a changed Secret into a Pod.
    announcement: DAY_SECONDS,
    // By then, the certificates of the old authority have been replaced.
    overlap: LEAF_DAYS * DAY_SECONDS,
};

/// An authority: certificate and key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Member {
    name: String,
    not_before: i64,
    certificate: String,
    key: String,
}

/// The authorities that are trusted, one of which issues.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Authority {
    members: Rotation<Member>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The keys stay out of logs.
        formatter
            .debug_struct("Authority")
            .field("current", &self.members.current.name)
            .finish_non_exhaustive()
    }
}

/// A certificate with its key, in PEM.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub certificate: String,
    /// The private key (PKCS #8).
    pub key: String,
}

/// Failure to read the authority or to make a certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The Secret holds something else.
    #[error(
        "the Secret does not hold the operator's certificate authority: {0}; delete it to have a new one made"
    )]
    Unreadable(String),
    /// The certificate cannot be made.
    #[error("a certificate cannot be made: {0}")]
    Make(#[from] rcgen::Error),
}

impl Authority {
    /// A new authority. `now`: seconds since 1970.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn generate(now: i64) -> Result<Self, CertificateError> {
        Ok(Self { members: Rotation::new(Member::generate(1, now)?, now) })
    }

    /// Reads what [`Self::to_json`] has written.
    ///
    /// # Errors
    /// For anything else, without repeating it.
    pub fn from_json(text: &[u8]) -> Result<Self, CertificateError> {
        let authority: Self = serde_json::from_slice(text).map_err(|error| {
            CertificateError::Unreadable(format!(
                "line {}, column {}",
                error.line(),
                error.column()
            ))
        })?;
        KeyPair::from_pem(&authority.members.current.key)
            .map_err(|error| CertificateError::Unreadable(error.to_string()))?;
        Ok(authority)
    }

    /// Encodes the authority for a Secret.
    ///
    /// # Errors
    /// Not expected.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Takes the step of the rotation that is due; true if anything has changed.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn advance(&mut self, now: i64) -> Result<bool, CertificateError> {
        self.members.advance(now, CERTIFICATE_SCHEDULE, |current| {
            let number: u32 =
                current.name.rsplit(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0);
            Member::generate(number.wrapping_add(1), now)
        })
    }

    /// The time at which the certificate that issues ends, in seconds since 1970.
    pub fn expires(&self) -> i64 {
        self.members.current.not_before + AUTHORITY_DAYS * DAY_SECONDS
    }

    /// Certificates that are to be trusted, in PEM.
    pub fn bundle(&self) -> String {
        self.members.accepted().map(|member| member.certificate.as_str()).collect()
    }

    /// A certificate for a server with these DNS names.
    ///
    /// # Errors
    /// When a name is no DNS name.
    pub fn issue_server(&self, names: &[String], now: i64) -> Result<Issued, CertificateError> {
        self.members.current.issue(names, ExtendedKeyUsagePurpose::ServerAuth, now)
    }

    /// A certificate for the gateways of an EdgeGateway. `uid`: its identity.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn issue_gateway(
        &self,
        gateway: &ObjectKey,
        uid: &str,
        now: i64,
    ) -> Result<Issued, CertificateError> {
        self.members.current.issue(
            &[gateway_name(gateway, uid)],
            ExtendedKeyUsagePurpose::ClientAuth,
            now,
        )
    }

    /// Name of the issuing authority, which distinguishes its certificates from an older
    /// authority's.
    pub fn issuer(&self) -> &str {
        &self.members.current.name
    }
}

/// The DNS name in the certificate of a gateway: names the EdgeGateway whose configuration it may
/// have, and its identity, so that the certificate is of no use for another EdgeGateway of the same
/// name. The name is never resolved.
pub fn gateway_name(gateway: &ObjectKey, uid: &str) -> String {
    format!("{uid}.{}", name_without_uid(gateway))
}

fn name_without_uid(gateway: &ObjectKey) -> String {
    format!("{}.{}.edgegateways.packrat.dev", gateway.name, gateway.namespace)
}

/// The identity of the EdgeGateway in the name of a certificate, if it is one of `gateway`.
pub fn uid_in<'a>(name: &'a str, gateway: &ObjectKey) -> Option<&'a str> {
    let uid = name.strip_suffix(&name_without_uid(gateway))?.strip_suffix('.')?;
    (!uid.is_empty() && !uid.contains('.')).then_some(uid)
}

impl Member {
    fn generate(number: u32, now: i64) -> Result<Self, CertificateError> {
        let key = KeyPair::generate()?;
        let name = format!("packrat-operator {number}");
        let certificate = authority_parameters(&name, now).self_signed(&key)?.pem();
        Ok(Self { name, not_before: now, certificate, key: key.serialize_pem() })
    }

    fn issue(
        &self,
        names: &[String],
        purpose: ExtendedKeyUsagePurpose,
        now: i64,
    ) -> Result<Issued, CertificateError> {
        let issuer = Issuer::new(
            authority_parameters(&self.name, self.not_before),
            KeyPair::from_pem(&self.key)?,
        );
        let mut parameters = CertificateParams::new(names)?;
        parameters.distinguished_name.remove(DnType::CommonName);
        parameters.distinguished_name.push(DnType::OrganizationName, "packrat");
        parameters.not_before = date_time_ymd(1970, 1, 1) + seconds(now - LEEWAY_SECONDS);
        parameters.not_after = date_time_ymd(1970, 1, 1) + seconds(now + LEAF_DAYS * DAY_SECONDS);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![purpose];
        parameters.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &issuer)?.pem();
        Ok(Issued { certificate, key: key.serialize_pem() })
    }
}

fn authority_parameters(name: &str, now: i64) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.remove(DnType::CommonName);
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    parameters.not_before = date_time_ymd(1970, 1, 1) + seconds(now - LEEWAY_SECONDS);
    parameters.not_after = date_time_ymd(1970, 1, 1) + seconds(now + AUTHORITY_DAYS * DAY_SECONDS);
    parameters
}

fn seconds(count: i64) -> std::time::Duration {
    std::time::Duration::from_secs(u64::try_from(count).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_authority_is_trusted_before_it_issues() {
        let mut authority = Authority::generate(0).unwrap();
        let first = authority.bundle();
        assert!(!authority.advance(364 * DAY_SECONDS).unwrap());
        assert!(authority.advance(365 * DAY_SECONDS).unwrap());
        assert_eq!(authority.issuer(), "packrat-operator 1");
        assert!(authority.bundle().starts_with(&first) && authority.bundle().len() > first.len());
        assert!(authority.advance(366 * DAY_SECONDS).unwrap());
        assert_eq!(authority.issuer(), "packrat-operator 2");
        assert!(authority.bundle().ends_with(&first), "what the old one has issued is still good");
        assert!(authority.advance((366 + LEAF_DAYS) * DAY_SECONDS).unwrap());
        assert!(!authority.bundle().contains(&first));
        let again = Authority::from_json(authority.to_json().unwrap().as_bytes()).unwrap();
        assert_eq!(again, authority);
    }

    #[test]
    fn the_name_in_a_certificate_is_that_of_one_object() {
        let edge = ObjectKey::new("shop", "edge");
        let name = gateway_name(&edge, "1b4e28ba");
        assert_eq!(uid_in(&name, &edge), Some("1b4e28ba"));
        assert_eq!(uid_in(&name, &ObjectKey::new("shop", "dge")), None);
        assert_eq!(uid_in(&name, &ObjectKey::new("shop", "other")), None);
        for name in ["edge.shop.edgegateways.packrat.dev", ".edge.shop.edgegateways.packrat.dev"] {
            assert_eq!(uid_in(name, &edge), None, "{name}");
        }
        let longer = gateway_name(&ObjectKey::new("edge.shop", "uid"), "1b4e28ba");
        assert_eq!(uid_in(&longer, &edge), None);
    }

    #[test]
    fn certificates_survive_a_weekend_without_an_operator() {
        const {
            assert!(
                LEAF_DAYS <= 7 && LEAF_DAYS * DAY_SECONDS - LEAF_RENEWAL_SECONDS >= 4 * DAY_SECONDS
            )
        };
    }

    #[test]
    fn what_is_no_authority_is_refused_without_being_repeated() {
        for text in ["", "s3cret", r#"{"current":"s3cret","since":0}"#] {
            let error = Authority::from_json(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("delete it") && !error.contains("s3cret"), "{error}");
        }
        assert!(!format!("{:?}", Authority::generate(0).unwrap()).contains("PRIVATE"));
    }
}
