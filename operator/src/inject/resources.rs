//! Resources of the sidecar's container.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde_json::{Map, Value, json};
use thiserror::Error;

/// Resources that amounts are given of.
pub(super) const RESOURCE_NAMES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// One mebibyte, in thousandths of a byte.
const MEBIBYTE: i128 = 1000 << 20;

/// An amount of a resource, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Amount(pub(super) i128);

/// A text that is no amount.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("\"{0}\" is no amount; write for example 250m or 64Mi")]
pub(super) struct AmountError(String);

impl Amount {
    /// A number of mebibytes.
    pub(super) const fn mebibytes(number: i128) -> Self {
        Self(number * MEBIBYTE)
    }
}

impl FromStr for Amount {
    type Err = AmountError;

    /// Reads an amount as Kubernetes writes it, and rounds it up to thousandths.
    fn from_str(text: &str) -> Result<Self, AmountError> {
        read(text).map(Self).ok_or_else(|| AmountError(text.chars().take(32).collect()))
    }
}

fn read(text: &str) -> Option<i128> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    // Fewer digits than overflow with the largest suffix.
    if digits.len() > 15 {
        return None;
    }
    let digits: i128 = digits.parse().ok()?;
    let (factor, divisor) = unit(suffix)?;
    let divisor = divisor * 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    Some((digits * factor * 1000 + divisor - 1) / divisor)
}

/// The factor and the divisor of a suffix.
fn unit(suffix: &str) -> Option<(i128, i128)> {
    let power = |letters: &str, letter| letters.find(letter).and_then(|at| u32::try_from(at).ok());
    let mut letters = suffix.chars();
    match (letters.next(), letters.as_str()) {
        (None, _) => Some((1, 1)),
        (Some(letter), "i") => Some((1024_i128.pow(power("KMGTPE", letter)? + 1), 1)),
        (Some('e' | 'E'), exponent) if !exponent.is_empty() => {
            let exponent: i32 = exponent.parse().ok().filter(|power| (-9..=18).contains(power))?;
            let size = 10_i128.pow(exponent.unsigned_abs());
            Some(if exponent < 0 { (1, size) } else { (size, 1) })
        }
        (Some(letter), "") => match power("mun", letter) {
            Some(power) => Some((1, 1000_i128.pow(power + 1))),
            None => Some((1000_i128.pow(power("kMGTPE", letter)? + 1), 1)),
        },
        _ => None,
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            amount if amount > 0 && amount % MEBIBYTE == 0 => {
                write!(formatter, "{}Mi", amount / MEBIBYTE)
            }
            amount if amount % 1000 == 0 => write!(formatter, "{}", amount / 1000),
            amount => write!(formatter, "{amount}m"),
        }
    }
}

/// Requests and limits of a container, by the name of the resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarResources {
    pub(super) requests: BTreeMap<String, Amount>,
    pub(super) limits: BTreeMap<String, Amount>,
}

/// A text that names no resources.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "\"{text}\" is not understood{}; write for example requests.cpu=50m,limits.memory=256Mi",
    .source.as_ref().map(|source| format!(": {source}")).unwrap_or_default()
)]
pub struct ResourcesError {
    text: String,
    source: Option<AmountError>,
}

impl Default for SidecarResources {
    fn default() -> Self {
        let requests = [("cpu", Amount(50)), ("memory", Amount::mebibytes(64))];
        Self {
            requests: requests.map(|(name, amount)| (name.to_owned(), amount)).into(),
            limits: BTreeMap::new(),
        }
    }
}

impl FromStr for SidecarResources {
    type Err = ResourcesError;

    /// Reads amounts by the names that a ResourceQuota has for them: `requests.cpu=50m,limits.memory=256Mi`. An
    /// empty text has none.
    fn from_str(text: &str) -> Result<Self, ResourcesError> {
        let mut read = Self { requests: BTreeMap::new(), limits: BTreeMap::new() };
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let refuse = |source| ResourcesError { text: entry.chars().take(64).collect(), source };
            let parts = entry.split_once('=').and_then(|(name, amount)| {
                let (kind, name) = name.trim().split_once('.')?;
                Some((kind, RESOURCE_NAMES.iter().find(|known| **known == name)?, amount.trim()))
            });
            let (kind, name, amount) = parts.ok_or_else(|| refuse(None))?;
            let amounts = match kind {
                "requests" => &mut read.requests,
                "limits" => &mut read.limits,
                _ => return Err(refuse(None)),
            };
            let amount = amount.parse().map_err(|error| refuse(Some(error)))?;
            amounts.insert((*name).to_owned(), amount);
        }
        Ok(read)
    }
}

impl SidecarResources {
    /// These with the amounts of `other` in place of their own.
    pub(super) fn with(mut self, other: Self) -> Self {
        self.requests.extend(other.requests);
        self.limits.extend(other.limits);
        self
    }

    /// The resources of a container of a Pod. A limit is also the request where there is no other.
    pub(super) fn of(container: &Value) -> Self {
        let read = |kind: &str| -> BTreeMap<String, Amount> {
            let entries = container["resources"][kind].as_object().into_iter().flatten();
            let amount = |value: &Value| match value {
                Value::String(text) => text.parse().ok(),
                other => other.to_string().parse().ok(),
            };
            entries.filter_map(|(name, value)| Some((name.clone(), amount(value)?))).collect()
        };
        let (mut requests, limits) = (read("requests"), read("limits"));
        for (name, limit) in &limits {
            requests.entry(name.clone()).or_insert(*limit);
        }
        Self { requests, limits }
    }

    /// As a container has them.
    pub(super) fn to_value(&self) -> Value {
        let written = |amounts: &BTreeMap<String, Amount>| -> Map<String, Value> {
            let written = amounts.iter().map(|(name, amount)| (name.clone(), amount.to_string()));
            written.map(|(name, amount)| (name, amount.into())).collect()
        };
        let mut resources = json!({ "requests": written(&self.requests) });
        if !self.limits.is_empty() {
            resources["limits"] = written(&self.limits).into();
        }
        resources
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_those_of_kubernetes() {
        for (text, thousandths, written) in [
            ("0", 0, "0"),
            ("50m", 50, "50m"),
            ("1", 1000, "1"),
            ("1.5", 1500, "1500m"),
            ("100n", 1, "1m"),
            ("2k", 2_000_000, "2000"),
            ("64Mi", 64 * MEBIBYTE, "64Mi"),
            ("0.5Gi", 512 * MEBIBYTE, "512Mi"),
            ("1e3", 1_000_000, "1000"),
            ("1E", 1_000_000_000_000_000_000_000, "1000000000000000000"),
            ("5e-1", 500, "500m"),
        ] {
            let amount: Amount = text.parse().unwrap();
            assert_eq!((amount, amount.to_string().as_str()), (Amount(thousandths), written));
        }
        for text in
            ["", "m", "-1", "1 Mi", "1mi", "1Kib", "1e", "1e99", "1.2.3", "99999999999999999"]
        {
            assert!(text.parse::<Amount>().is_err(), "{text}");
        }
    }

    #[test]
    fn resources_are_read_by_the_names_of_quotas() {
        let text = "requests.cpu=100m, limits.memory=256Mi";
        let read: SidecarResources = text.parse().unwrap();
        let merged = SidecarResources::default().with(read);
        let written = json!({
            "requests": { "cpu": "100m", "memory": "64Mi" }, "limits": { "memory": "256Mi" },
        });
        assert_eq!(merged.to_value(), written);
        assert_eq!(SidecarResources::of(&json!({ "resources": written })).limits, merged.limits);
        for (text, message) in [
            ("cpu=1", "\"cpu=1\" is not understood; write"),
            ("requests.gpu=1", "\"requests.gpu=1\" is not understood; write"),
            ("limits.cpu=much", "\"limits.cpu=much\" is not understood: \"much\" is no amount"),
        ] {
            let error = text.parse::<SidecarResources>().unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }
}
