//! The secrets of a gateway: its static key, which clients may pin, and the keys of its tokens.

use packrat_wire::hexadecimal;
use serde::{Deserialize, Serialize};

use crate::rotation::{Rotation, Schedule};

/// Time between the announcement of a token key and its use: all gateways have heard of it by then.
const ANNOUNCEMENT_SECONDS: i64 = 600;
/// Time for which gateways write with one secret. The one before is understood meanwhile: a ticket is
/// of use for so long at least.
const PEER_KEY_SECONDS: i64 = 7 * 86_400;

/// The secrets of a gateway, as they are kept in a Secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatewayKeys {
    /// 64 hexadecimal digits. Kept as long as the EdgeGateway exists.
    static_key: String,
    /// `identifier:64 hexadecimal digits` each.
    tokens: Rotation<String>,
    /// Secrets for what the gateways write for each other, 64 hexadecimal digits each. A Secret of
    /// an earlier version lacks it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    peers: Option<Rotation<String>>,
}

impl std::fmt::Debug for GatewayKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The keys stay out of logs.
        formatter
            .debug_struct("GatewayKeys")
            .field("public_key", &self.public_key_text())
            .finish_non_exhaustive()
    }
}

/// Failure to read or make the keys of a gateway.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError {
    /// The Secret holds something else.
    #[error("the Secret does not hold the keys of a gateway: {0}; delete it to have new ones made")]
    Unreadable(String),
    /// No random bytes.
    #[error("the operating system gave no random bytes: {0}")]
    Random(#[from] getrandom::Error),
}

impl GatewayKeys {
    /// New keys. `now`: seconds since 1970.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate(now: i64) -> Result<Self, KeysError> {
        Ok(Self {
            static_key: random_hexadecimal()?,
            tokens: Rotation::new(format!("1:{}", random_hexadecimal()?), now),
            peers: Some(Rotation::new(random_hexadecimal()?, now)),
        })
    }

    /// Reads what [`Self::to_json`] has written.
    ///
    /// # Errors
    /// For anything else, without repeating it.
    pub fn from_json(text: &[u8]) -> Result<Self, KeysError> {
        let keys: Self = serde_json::from_slice(text).map_err(|error| {
            KeysError::Unreadable(format!("line {}, column {}", error.line(), error.column()))
        })?;
        let is_key =
            |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_token = |text: &String| {
            text.split_once(':').is_some_and(|(id, key)| id.parse::<u32>().is_ok() && is_key(key))
        };
        if !is_key(&keys.static_key)
            || !keys.tokens.accepted().all(is_token)
            || !keys.peer_keys().iter().all(|key| is_key(key))
        {
            return Err(KeysError::Unreadable("a key is malformed".to_owned()));
        }
        Ok(keys)
    }

    /// Encodes the keys for a Secret.
    ///
    /// # Errors
    /// Not expected.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    /// Takes the steps of the rotations that are due; true if anything has changed.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn advance(
        &mut self,
        now: i64,
        rotation_seconds: i64,
        lifetime_seconds: i64,
    ) -> Result<bool, KeysError> {
        let schedule = Schedule {
            period: rotation_seconds,
            announcement: ANNOUNCEMENT_SECONDS,
            // A token that was given out just before the new key was used is good until it expires.
            overlap: lifetime_seconds + ANNOUNCEMENT_SECONDS,
        };
        let has_tokens = self.tokens.advance(now, schedule, |current| {
            let id: u32 =
                current.split(':').next().and_then(|id| id.parse().ok()).unwrap_or_default();
            Ok::<_, KeysError>(format!("{}:{}", id.wrapping_add(1), random_hexadecimal()?))
        })?;
        Ok(self.advance_peers(now)? || has_tokens)
    }

    fn advance_peers(&mut self, now: i64) -> Result<bool, KeysError> {
        let Some(peers) = &mut self.peers else {
            self.peers = Some(Rotation::new(random_hexadecimal()?, now));
            return Ok(true);
        };
        let schedule = Schedule {
            period: PEER_KEY_SECONDS,
            announcement: ANNOUNCEMENT_SECONDS,
            overlap: PEER_KEY_SECONDS,
        };
        peers.advance(now, schedule, |_| random_hexadecimal())
    }

    /// The secrets that gateways understand each other with, the one in use first.
    pub fn peer_keys(&self) -> Vec<String> {
        self.peers.iter().flat_map(Rotation::accepted).cloned().collect()
    }

    /// The static private key, 64 hexadecimal digits.
    pub fn static_key_text(&self) -> &str {
        &self.static_key
    }

    /// The public key that clients may pin, 64 hexadecimal digits.
    pub fn public_key_text(&self) -> String {
        let key = hexadecimal::decode_key(self.static_key.as_bytes());
        key.and_then(|key| packrat_wire::handshake::public_key(&key).ok())
            .map(|key| hexadecimal::encode(&key))
            .unwrap_or_default()
    }

    /// Keys that tokens are verified with: one or two.
    pub fn verifying(&self) -> Vec<String> {
        self.tokens.accepted().cloned().collect()
    }

    /// The key that tokens are issued with.
    pub fn issuing(&self) -> Vec<String> {
        vec![self.tokens.current.clone()]
    }
}

fn random_hexadecimal() -> Result<String, KeysError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)?;
    Ok(hexadecimal::encode(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_keys_rotate_with_overlap_and_the_static_key_stays() {
        let mut keys = GatewayKeys::generate(0).unwrap();
        let first = keys.clone();
        assert!(!keys.advance(3599, 3600, 300).unwrap());
        assert!(keys.advance(3600, 3600, 300).unwrap());
        assert_eq!(keys.issuing(), first.issuing());
        assert_eq!(keys.verifying().len(), 2);
        assert!(keys.verifying()[1].starts_with("2:"));
        assert!(keys.advance(4200, 3600, 300).unwrap());
        assert_ne!(keys.issuing(), first.issuing());
        assert_eq!(keys.verifying()[1], first.issuing()[0]);
        assert_eq!(keys.static_key_text(), first.static_key_text());
        assert_eq!(GatewayKeys::from_json(keys.to_json().unwrap().as_bytes()).unwrap(), keys);
    }

    #[test]
    fn gateways_secrets_rotate_weekly_each_known_before_its_use() {
        let mut keys = GatewayKeys::generate(0).unwrap();
        let first = keys.peer_keys();
        assert_eq!(first.len(), 1);
        // Tokens of a period beyond the test.
        let mut at = |now| {
            keys.advance(now, i64::MAX, 300).unwrap();
            keys.peer_keys()
        };
        assert_eq!(at(PEER_KEY_SECONDS - 1), first);
        let announced = at(PEER_KEY_SECONDS);
        assert_eq!((announced.len(), &announced[0]), (2, &first[0]));
        assert_eq!(at(PEER_KEY_SECONDS + ANNOUNCEMENT_SECONDS - 1), announced);
        let used = [announced[1].clone(), first[0].clone()];
        let begun = PEER_KEY_SECONDS + ANNOUNCEMENT_SECONDS;
        assert_eq!(at(begun), used);
        assert_eq!(at(begun + PEER_KEY_SECONDS - 1), used, "a ticket is good for a week");
        let next = at(begun + PEER_KEY_SECONDS);
        assert_eq!((next.len(), &next[0]), (2, &used[0]));
        assert!(!next.contains(&first[0]));
    }

    #[test]
    fn a_secret_of_an_earlier_version_gets_the_secrets_it_lacks() {
        let text = format!(
            r#"{{"static_key":"{}","tokens":{{"current":"1:{}","since":0}}}}"#,
            "05".repeat(32),
            "0f".repeat(32)
        );
        let mut keys = GatewayKeys::from_json(text.as_bytes()).unwrap();
        assert!(keys.peer_keys().is_empty());
        assert!(keys.advance(1, 3600, 300).unwrap());
        assert_eq!(keys.peer_keys().len(), 1);
        assert_eq!(GatewayKeys::from_json(keys.to_json().unwrap().as_bytes()).unwrap(), keys);
    }

    #[test]
    fn the_public_key_is_that_of_the_handshake() {
        let text = format!(
            r#"{{"static_key":"{}","tokens":{{"current":"1:{}","since":0}}}}"#,
            "05".repeat(32),
            "0f".repeat(32)
        );
        let keys = GatewayKeys::from_json(text.as_bytes()).unwrap();
        let expected = packrat_wire::handshake::public_key(&[5; 32]).unwrap();
        assert_eq!(keys.public_key_text(), hexadecimal::encode(&expected));
        assert!(!format!("{keys:?}").contains("0505"), "secrets stay out of logs");
    }

    #[test]
    fn what_is_no_set_of_keys_is_refused_without_being_repeated() {
        for text in [
            "",
            "{}",
            "s3cret",
            r#"{"static_key":"s3cret","tokens":{"current":"s3cret","since":0}}"#,
        ] {
            let error = GatewayKeys::from_json(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("delete it") && !error.contains("s3cret"), "{error}");
        }
    }
}
