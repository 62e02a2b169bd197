//! Defaults of a token endpoint's configuration, each stated here alone. EdgeGateways have the same
//! ones.

/// `lifetime_seconds`.
pub const fn lifetime_seconds() -> u32 {
    300
}

/// `maximum_hold_ms`.
pub const fn maximum_hold_ms() -> u32 {
    1000
}

/// `bind.ipv4_prefix`.
pub const fn ipv4_prefix() -> u32 {
    24
}

/// `bind.ipv6_prefix`.
pub const fn ipv6_prefix() -> u32 {
    56
}

/// `rate.per_minute`.
pub const fn per_minute() -> u32 {
    30
}

/// `rate.burst`.
pub const fn burst() -> u32 {
    10
}

/// `rate.clients`.
pub const fn clients() -> u32 {
    4096
}
