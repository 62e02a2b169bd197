//! Settings of which each value is a word.

/// The words of a setting, from the one that asks least of clients to the one that asks most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words {
    /// Each word as annotations and as EdgeGateways write it.
    pub all: &'static [(&'static str, &'static str)],
    /// The words to write instead of an unknown one.
    pub advice: &'static str,
}

/// Gives an enum the names of its values in a configuration and in annotations, and in
/// EdgeGateways, as `WORDS`, `name`, `Display` and `FromStr`, and the error of an unknown text.
macro_rules! words {
    ($type:ident, $(#[$document:meta])* $unknown:ident $advice:literal, [$($value:ident $name:literal $edge_gateway:literal),* $(,)?]) => {
        impl $type {
            /// The names of all values.
            pub const WORDS: crate::knobs::Words = crate::knobs::Words {
                all: &[$(($name, $edge_gateway)),*],
                advice: $advice,
            };

            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$value),*];

            /// The name in a route's configuration and in annotations.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)*
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                formatter.write_str(self.name())
            }
        }

        $(#[$document])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $unknown;

        impl ::std::fmt::Display for $unknown {
            fn fmt(&self, formatter: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                formatter.write_str($advice)
            }
        }

        impl ::std::error::Error for $unknown {}

        impl ::std::str::FromStr for $type {
            type Err = $unknown;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($name => Ok(Self::$value),)*
                    _ => Err($unknown),
                }
            }
        }
    };
}

pub(crate) use words;
