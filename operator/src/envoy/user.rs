//! The user of gateways and sidecars.

use std::num::ParseIntError;
use std::str::FromStr;

use serde_json::{Map, Value};

/// Number of the user in the image, and of its group.
const IMAGE_USER: u32 = 65_532;

/// User and group of the containers that the operator makes; `None`: the platform chooses them, as
/// OpenShift does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User(Option<u32>);

impl Default for User {
    fn default() -> Self {
        Self(Some(IMAGE_USER))
    }
}

impl FromStr for User {
    type Err = ParseIntError;

    /// A number; an empty text leaves the choice to the platform.
    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let number = Some(text).filter(|text| !text.is_empty());
        number.map(str::parse).transpose().map(Self)
    }
}

impl User {
    /// Writes the user into these fields of a security context.
    pub(crate) fn write(self, context: &mut Map<String, Value>, fields: &[&str]) {
        let Self(Some(user)) = self else { return };
        context.extend(fields.iter().map(|field| ((*field).to_owned(), user.into())));
    }
}
