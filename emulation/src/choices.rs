//! Values that are chosen by name on a command line and named in results: the names stand in one
//! place.

#[doc(hidden)]
pub use serde;

/// Gives an enum `ALL`, `name`, and with the same names `FromStr`, `Serialize` and `Deserialize`: `choices!(Arm,
/// "arm", [EndToEnd "end-to-end", …])`. The second argument names the kind of choice in errors.
#[macro_export]
macro_rules! choices {
    ($kind:ty, $what:literal, [$($value:ident $name:literal),+ $(,)?]) => {
        impl $kind {
            /// All values.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// The name on the command line and in results.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }

        impl ::core::str::FromStr for $kind {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::ALL.into_iter().find(|choice| choice.name() == text).ok_or_else(|| {
                    let known = Self::ALL.map(Self::name).join(", ");
                    format!("there is no {} {text:?}; choose one of {known}", $what)
                })
            }
        }

        impl $crate::choices::serde::Serialize for $kind {
            fn serialize<S: $crate::choices::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> $crate::choices::serde::Deserialize<'de> for $kind {
            fn deserialize<D: $crate::choices::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <::std::string::String as $crate::choices::serde::Deserialize>::deserialize(deserializer)?;
                name.parse().map_err($crate::choices::serde::de::Error::custom)
            }
        }
    };
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "what the macro makes is public where the enum is")]
mod tests {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Weather {
        Fair,
        VeryFoul,
    }

    choices!(Weather, "weather", [Fair "fair", VeryFoul "very-foul"]);

    #[test]
    fn a_choice_is_read_and_told_by_its_name() {
        for weather in Weather::ALL {
            assert_eq!(weather.name().parse(), Ok(weather));
            let named = toml::Value::from(weather.name());
            assert_eq!(toml::Value::try_from(weather), Ok(named.clone()));
            assert_eq!(named.try_into(), Ok(weather));
        }
        let refused = "foul".parse::<Weather>().unwrap_err();
        assert_eq!(refused, "there is no weather \"foul\"; choose one of fair, very-foul");
    }
}
