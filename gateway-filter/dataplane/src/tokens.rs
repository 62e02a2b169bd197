//! The keys that a route's tokens are verified with.

use std::path::Path;

use packrat_api::route::InvalidField;
use packrat_api::token::TokenPolicy;
use packrat_engine::assist_token::{Key, Keys, RouteHash};
use packrat_engine::{TokenAdmission, TokenCheck};

use crate::configuration::ConfigurationError;

/// The engine's token admission. `texts`: the current key and perhaps the previous one; `field`:
/// their source, for messages.
///
/// # Errors
/// When a text is not a key, or there are none or more than two.
pub(crate) fn token_admission<'a>(
    policy: TokenPolicy,
    route: &str,
    texts: impl Iterator<Item = &'a str>,
    field: &'static str,
) -> Result<TokenAdmission, InvalidField> {
    if policy == TokenPolicy::Off {
        return Ok(TokenAdmission::Off);
    }
    let value = |problem: String| InvalidField::of_route(field, problem);
    let keys: Vec<_> = texts
        .map(Key::from_text)
        .collect::<Result<_, _>>()
        .map_err(|error| value(error.to_string()))?;
    let (current, previous) = match <[Key; 2]>::try_from(keys) {
        Ok([current, previous]) => (current, Some(previous)),
        Err(mut keys) => match (keys.pop(), keys.pop()) {
            (Some(current), None) => (current, None),
            _ => {
                return Err(value("must have one or two keys, the current one first".to_owned()));
            }
        },
    };
    let check = TokenCheck { keys: Keys { current, previous }, route: RouteHash::of(route) };
    Ok(match policy {
        TokenPolicy::Required => TokenAdmission::Required(check),
        TokenPolicy::Off | TokenPolicy::Optional => TokenAdmission::Optional(check),
    })
}

/// The lines of a file of keys, without empty ones.
pub(crate) fn read_lines(path: &Path) -> Result<String, ConfigurationError> {
    std::fs::read_to_string(path)
        .map_err(|source| ConfigurationError::KeyFile { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(policy: TokenPolicy, texts: &[&str]) -> Result<TokenAdmission, String> {
        token_admission(policy, "web", texts.iter().copied(), "token_keys")
            .map_err(|error| error.to_string())
    }

    #[test]
    fn one_key_or_two() {
        let (one, two) = (format!("1:{}", "01".repeat(32)), format!("2:{}", "02".repeat(32)));
        assert_eq!(admission(TokenPolicy::Off, &["rubbish"]), Ok(TokenAdmission::Off));
        let TokenAdmission::Required(check) =
            admission(TokenPolicy::Required, &[&two, &one]).unwrap()
        else {
            panic!()
        };
        assert_eq!(
            check.keys,
            Keys { current: Key::new(2, [2; 32]), previous: Some(Key::new(1, [1; 32])) }
        );
        assert_eq!(check.route, RouteHash::of("web"));
        let TokenAdmission::Optional(check) = admission(TokenPolicy::Optional, &[&one]).unwrap()
        else {
            panic!()
        };
        assert_eq!(check.keys, Keys { current: Key::new(1, [1; 32]), previous: None });
        for (texts, part) in [
            (&[][..], "one or two keys"),
            (&[&one[..], &one, &two], "one or two keys"),
            (&["1:0101"], "64 hexadecimal digits"),
        ] {
            let error = admission(TokenPolicy::Required, texts).unwrap_err();
            assert!(error.contains(part) && error.contains("token_keys"), "{error}");
        }
    }
}
