//! Whether a route's clients need a token, and the keys that tokens are verified with.

use std::path::Path;

use packrat_engine::assist_token::{Key, Keys, RouteHash};
use packrat_engine::{TokenCheck, TokenPolicy};
use serde::{Deserialize, Serialize};

use crate::configuration::ConfigurationError;

/// Whether clients need a token from the gateway's token endpoint to be assisted. Plain forwarding never does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tokens {
    /// Tokens are not looked at.
    #[default]
    Off,
    /// A client without a token is assisted, one with a wrong token is not.
    Optional,
    /// Only clients with a valid token are assisted.
    Required,
}

impl Tokens {
    /// The engine's policy. `texts`: the current key and perhaps the previous one; `field`: where they come from, for messages.
    pub(crate) fn policy<'a>(
        self,
        route: &str,
        texts: impl Iterator<Item = &'a str>,
        field: &'static str,
    ) -> Result<TokenPolicy, ConfigurationError> {
        if self == Self::Off {
            return Ok(TokenPolicy::Off);
        }
        let value = |problem: String| ConfigurationError::Value { field, problem };
        let keys: Vec<_> =
            texts.map(Key::from_text).collect::<Result<_, _>>().map_err(|error| value(error.to_string()))?;
        let (current, previous) = match <[Key; 2]>::try_from(keys) {
            Ok([current, previous]) => (current, Some(previous)),
            Err(mut keys) => match (keys.pop(), keys.pop()) {
                (Some(current), None) => (current, None),
                _ => return Err(value("must have one or two keys, the current one first".to_owned())),
            },
        };
        let check = TokenCheck { keys: Keys { current, previous }, route: RouteHash::of(route) };
        Ok(match self {
            Self::Required => TokenPolicy::Required(check),
            _ => TokenPolicy::Optional(check),
        })
    }
}

/// The lines of a file of keys, without empty ones.
pub(crate) fn read_lines(path: &Path) -> Result<String, ConfigurationError> {
    std::fs::read_to_string(path)
        .map_err(|source| ConfigurationError::KeyFile { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(tokens: Tokens, texts: &[&str]) -> Result<TokenPolicy, String> {
        tokens.policy("web", texts.iter().copied(), "token_keys").map_err(|error| error.to_string())
    }

    #[test]
    fn one_key_or_two() {
        let (one, two) = (format!("1:{}", "01".repeat(32)), format!("2:{}", "02".repeat(32)));
        assert_eq!(policy(Tokens::Off, &["rubbish"]), Ok(TokenPolicy::Off));
        let TokenPolicy::Required(check) = policy(Tokens::Required, &[&two, &one]).unwrap() else { panic!() };
        assert_eq!(check.keys, Keys { current: Key::new(2, [2; 32]), previous: Some(Key::new(1, [1; 32])) });
        assert_eq!(check.route, RouteHash::of("web"));
        let TokenPolicy::Optional(check) = policy(Tokens::Optional, &[&one]).unwrap() else { panic!() };
        assert_eq!(check.keys, Keys { current: Key::new(1, [1; 32]), previous: None });
        for (texts, part) in [
            (&[][..], "one or two keys"),
            (&[&one[..], &one, &two], "one or two keys"),
            (&["1:0101"], "64 hexadecimal digits"),
        ] {
            let error = policy(Tokens::Required, texts).unwrap_err();
            assert!(error.contains(part) && error.contains("token_keys"), "{error}");
        }
    }
}
