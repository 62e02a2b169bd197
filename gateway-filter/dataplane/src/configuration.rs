//! The configuration of a route as the data plane takes it in: from JSON, with the keys that its
//! files hold. [`packrat_api::route`] has the fields.

use std::path::PathBuf;

use packrat_api::route::{Hidden, InvalidField, RouteConfig};
use packrat_api::status::RouteSummary;
use packrat_api::token::TokenPolicy;
use packrat_engine::TokenAdmission;
use packrat_wire::hexadecimal::decode_key;
use zeroize::Zeroizing;

use crate::socket::Capacity;
use crate::stream::config as stream;
use crate::tokens::{read_lines, token_admission};

/// The error of a configuration that is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigurationError {
    /// Not JSON, an unknown field, a missing field or a value of the wrong type.
    #[error("the route configuration cannot be read: {0}; correct the field that is named")]
    Syntax(#[from] serde_json::Error),
    /// A value outside its range.
    #[error(transparent)]
    Field(#[from] InvalidField),
    /// A file with a static key or token keys cannot be read.
    #[error("the key file {path} cannot be read: {source}; check the path and its permissions")]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The operating system gave no random bytes for a key.
    #[error(
        "the operating system gave no random bytes: {0}; configure `static_key_file` and check /dev/urandom"
    )]
    Random(getrandom::Error),
}

/// Reads and checks the configuration of a route.
///
/// # Errors
/// [`ConfigurationError::Syntax`] or [`ConfigurationError::Field`], both naming the field.
pub fn route_from_json(text: &[u8]) -> Result<RouteConfig, ConfigurationError> {
    Ok(RouteConfig::read(text)?.checked()?)
}

/// The static key that is configured, or `None` when one is to be made.
///
/// # Errors
/// When the text or the file is not a key.
pub fn read_static_key(
    config: &RouteConfig,
) -> Result<Option<Zeroizing<[u8; 32]>>, ConfigurationError> {
    if let Some(text) = &config.static_key {
        let problem =
            || InvalidField::of_route("static_key", "must be 64 hexadecimal digits (32 bytes)");
        let key = decode_key(text.reveal().as_bytes()).map(Zeroizing::new);
        return Ok(Some(key.ok_or_else(problem)?));
    }
    let Some(path) = &config.static_key_file else { return Ok(None) };
    let content = std::fs::read(path)
        .map(Zeroizing::new)
        .map_err(|source| ConfigurationError::KeyFile { path: path.clone(), source })?;
    let raw = <[u8; 32]>::try_from(content.as_slice()).ok();
    let key = raw.or_else(|| decode_key(content.trim_ascii())).ok_or_else(|| {
        let problem = format!(
            "names {}, which holds neither 32 raw bytes nor 64 hexadecimal digits",
            path.display()
        );
        InvalidField::of_route("static_key_file", problem)
    })?;
    Ok(Some(Zeroizing::new(key)))
}

/// The secrets that are configured for the gateways of one address.
///
/// # Errors
/// When one of them is not a key.
pub(crate) fn read_peer_keys(
    config: &RouteConfig,
) -> Result<Vec<Zeroizing<[u8; 32]>>, ConfigurationError> {
    let problem = || InvalidField::of_route("peer_keys", "must be 64 hexadecimal digits each");
    let read = |text: &Hidden| decode_key(text.reveal().as_bytes()).map(Zeroizing::new);
    let keys = config.peer_keys.iter().map(|text| read(text).ok_or_else(problem));
    Ok(keys.collect::<Result<_, _>>()?)
}

/// The engine's token admission, with the keys that are configured.
///
/// # Errors
/// When a text is not a key, there are more than two, or the file cannot be read.
pub(crate) fn read_token_admission(
    config: &RouteConfig,
) -> Result<TokenAdmission, ConfigurationError> {
    let (policy, route) = (config.tokens, &config.route);
    match &config.token_keys_file {
        Some(path) if policy != TokenPolicy::Off => {
            let content = read_lines(path)?;
            let lines = content.lines().map(str::trim).filter(|line| !line.is_empty());
            Ok(token_admission(policy, route, lines, "token_keys_file")?)
        }
        _ => {
            let texts = config.token_keys.iter().map(Hidden::reveal);
            Ok(token_admission(policy, route, texts, "token_keys")?)
        }
    }
}

/// The configuration for an operator to see: no secrets, and the limit that is in force.
pub(crate) fn summary(config: &RouteConfig, capacity: &Capacity) -> RouteSummary {
    let is_limited = config.maximum_sessions > capacity.sessions();
    RouteSummary {
        gateway: config.gateway.clone(),
        namespace: config.namespace.clone(),
        endpoints: config.endpoints.clone(),
        stream: config.stream.as_ref().map(stream::summary),
        assist: config.assist,
        cache_bytes_per_session: config.cache_bytes_per_session,
        cache_bytes_total: config.cache_bytes_total,
        repair_budget: config.repair_budget,
        idle_timeout_seconds: config.idle_timeout_seconds,
        maximum_sessions: config.maximum_sessions,
        maximum_sessions_in_force: config.maximum_sessions.min(capacity.sessions()),
        sessions_limited_by: is_limited.then(|| capacity.reason().to_owned()),
        tokens: config.tokens,
        sender: config.sender,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said_in_a_sentence_that_names_the_field() {
        let refused = |text: &str| route_from_json(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            refused(r#"{"route":"web","endpoints":["192.0.2.1:443"],"repair_budget":-1}"#),
            "field `repair_budget` of the route configuration must be between 0 and 10"
        );
        let said = refused(r#"{"route":"web","repair_budjet":1}"#);
        assert!(
            said.starts_with(
                "the route configuration cannot be read: unknown field `repair_budjet`"
            ) && said.ends_with("; correct the field that is named"),
            "{said}"
        );
    }

    #[test]
    fn token_keys_inline_and_in_a_file() {
        let lines = format!("2:{}\n\n 1:{}\n", "02".repeat(32), "01".repeat(32));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("keys");
        std::fs::write(&file, &lines).unwrap();
        let mut config = RouteConfig::new("web", ["192.0.2.1:443".parse().unwrap()]).unwrap();
        config.token_keys_file = Some(file.clone());
        assert_eq!(read_token_admission(&config).unwrap(), TokenAdmission::Off);
        config.tokens = TokenPolicy::Required;
        let from_file = read_token_admission(&config).unwrap();
        config.token_keys = lines.split_whitespace().map(Hidden::new).collect();
        config.token_keys_file = None;
        assert_eq!(read_token_admission(&config).unwrap(), from_file);
        assert!(
            matches!(from_file, TokenAdmission::Required(check) if check.keys.previous.is_some())
        );
        assert!(!format!("{config:?}").contains("0202"));
        config.token_keys_file = Some(directory.path().join("nothing"));
        assert!(read_token_admission(&config).unwrap_err().to_string().contains("cannot be read"));
    }

    #[test]
    fn static_keys_in_three_forms() {
        let hexadecimal = "0f".repeat(32);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        let mut config = RouteConfig::new("web", ["192.0.2.1:443".parse().unwrap()]).unwrap();
        config.static_key_file = Some(file.clone());
        for content in [
            vec![15; 32],
            hexadecimal.clone().into_bytes(),
            format!("{hexadecimal}\n").into_bytes(),
        ] {
            std::fs::write(&file, content).unwrap();
            assert_eq!(read_static_key(&config).unwrap().as_deref(), Some(&[15; 32]));
        }
        std::fs::write(&file, "short").unwrap();
        assert!(
            read_static_key(&config).unwrap_err().to_string().contains("64 hexadecimal digits")
        );
        std::fs::remove_file(&file).unwrap();
        assert!(read_static_key(&config).unwrap_err().to_string().contains("cannot be read"));
        config.static_key_file = None;
        config.static_key = Some(Hidden::new(hexadecimal));
        assert_eq!(read_static_key(&config).unwrap().as_deref(), Some(&[15; 32]));
        assert!(!format!("{config:?}").contains("0f0f"));
    }
}
