//! The ceiling that the parameters of a GatewayClass are for its Gateways' parameters: a Gateway is
//! to its class what a Service is to its EdgeGateway.

use std::collections::{BTreeMap, BTreeSet};

use packrat_api::token::TokenPolicy;

use super::exposure::ExposureType;
use super::gateway_parameters::GatewayParametersSpec;
use super::limits::{EndpointsFrom, Limits};
use super::lowering::Lowered;
use super::packrat_policy::PolicySettings;
use super::tcp::TcpPolicy;
use super::terminate::TerminatePolicy;
use crate::overrides::Overrides;
use crate::size::parse_size;

impl GatewayParametersSpec {
    /// The parameters, as far as the parameters of a GatewayClass let a Gateway have them, and a
    /// part of a sentence about each that was lowered.
    ///
    /// # Errors
    /// A sentence about a value that the schema would not have let in.
    pub fn within(mut self, class: &Self) -> Result<(Self, Vec<String>), String> {
        let ceiling = class.clone().edge_gateway("");
        let settings: PolicySettings = serde_json::to_value(&self)
            .and_then(serde_json::from_value)
            .map_err(|error| format!("GatewayParameters cannot be read: {error}"))?;
        let settings = settings.overrides().map_err(|error| format!("spec.{error}"))?;
        let (settings, above) = settings.lowered(&ceiling);
        let mut told: Vec<String> = above.iter().map(Lowered::told).collect();
        self.take(settings, class);
        let (limits, above) = self.limits.overrides().lowered(&ceiling);
        told.extend(above.iter().map(|lowered| format!("limits: {}", lowered.told())));
        self.limits.take(limits);
        self.limits.metadata.clone_from(&class.limits.metadata);
        self.lower_tokens(class, &mut told);
        self.lower_destinations(class, &mut told);
        self.lower_exposure(class, &mut told);
        self.lower_features(class, &mut told);
        Ok((self, told))
    }

    /// Tokens live no longer than the class's, and are bound as these.
    fn lower_tokens(&mut self, class: &Self, told: &mut Vec<String>) {
        if class.tokens.policy != TokenPolicy::Off {
            let most = class.tokens.lifetime_seconds;
            if self.tokens.lifetime_seconds > most {
                told.push(format!(
                    "tokens.lifetimeSeconds {} ({most} is used)",
                    self.tokens.lifetime_seconds
                ));
                self.tokens.lifetime_seconds = most;
            }
            if class.tokens.bind_to_network && !self.tokens.bind_to_network {
                told.push("tokens.bindToNetwork false (true is used)".to_owned());
                self.tokens.bind_to_network = true;
            }
        }
    }

    /// Endpoints and images are the class's.
    fn lower_destinations(&mut self, class: &Self, told: &mut Vec<String>) {
        if self.endpoints == EndpointsFrom::Any && class.endpoints == EndpointsFrom::Pods {
            self.endpoints = EndpointsFrom::Pods;
            told.push("endpoints Any (Pods is used)".to_owned());
        }
        if self.envoy.image.is_some() && self.envoy.image != class.envoy.image {
            let image = self.envoy.image.take().unwrap_or_default();
            self.envoy.image.clone_from(&class.envoy.image);
            told.push(format!("envoy.image {image} (that of the class is used)"));
        }
    }

    /// Exposure is within the class's: host network, labels, annotations, networks of clients.
    fn lower_exposure(&mut self, class: &Self, told: &mut Vec<String>) {
        let host = ExposureType::HostNetwork;
        if self.exposure.type_ == host && class.exposure.type_ != host {
            self.exposure.type_ = class.exposure.type_;
            told.push(format!("exposure.type HostNetwork ({:?} is used)", class.exposure.type_));
        }
        let (exposure, of_class) = (&mut self.exposure, &class.exposure);
        let pod = (&mut self.workload.pod, &class.workload.pod);
        let mut refused = BTreeSet::new();
        for (own, of_class) in [
            (&mut exposure.labels, &of_class.labels),
            (&mut exposure.annotations, &of_class.annotations),
            (&mut pod.0.labels, &pod.1.labels),
            (&mut pod.0.annotations, &pod.1.annotations),
        ] {
            refused.extend(class.limits.take_metadata(own, of_class));
            own.extend(of_class.clone());
        }
        told.extend(refused);
        let (own, ranges) =
            (&mut exposure.load_balancer_source_ranges, &of_class.load_balancer_source_ranges);
        if !ranges.is_empty() && own != ranges {
            if !own.is_empty() {
                let why = "exposure.loadBalancerSourceRanges (those of the class are used)";
                told.push(why.to_owned());
            }
            own.clone_from(ranges);
        }
    }

    /// Features that the class has switched off stay off.
    fn lower_features(&mut self, class: &Self, told: &mut Vec<String>) {
        if self.tcp != TcpPolicy::Off && class.tcp == TcpPolicy::Off {
            told.push(format!("tcp {:?} (Off is used)", self.tcp));
            self.tcp = TcpPolicy::Off;
        }
        if self.terminate != TerminatePolicy::Off && class.terminate == TerminatePolicy::Off {
            told.push("terminate Allowed (Off is used)".to_owned());
            self.terminate = TerminatePolicy::Off;
        }
        if self.multicast.enabled && !class.multicast.enabled {
            self.multicast.enabled = false;
            told.push("multicast.enabled true (false is used)".to_owned());
        }
    }

    /// Removes labels and annotations that a Gateway's own infrastructure may not put on its objects if these
    /// are the parameters of its class; a part of a sentence about each.
    pub fn lower_infrastructure(
        &self,
        labels: &mut BTreeMap<String, String>,
        annotations: &mut BTreeMap<String, String>,
    ) -> BTreeSet<String> {
        let (pod, exposure) = (&self.workload.pod, &self.exposure);
        let all = |pod: &BTreeMap<String, String>,
                   exposure: &BTreeMap<String, String>|
         -> BTreeMap<String, String> {
            pod.iter().chain(exposure).map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        let mut told = BTreeSet::new();
        for (own, of_class) in [
            (labels, all(&pod.labels, &exposure.labels)),
            (annotations, all(&pod.annotations, &exposure.annotations)),
        ] {
            told.extend(self.limits.take_metadata(own, &of_class));
            own.retain(|name, _| !of_class.contains_key(name));
        }
        told
    }

    fn take(&mut self, settings: Overrides, class: &Self) {
        // A new setting also has to be taken here.
        let Overrides {
            assist,
            cache_bytes_per_session,
            cache_bytes_total,
            repair_budget_percent,
            sparse_copies,
            residual_loss_per_million,
            idle_timeout_seconds,
            maximum_sessions,
            sessions_per_source,
            handshakes_per_second_per_source,
            tokens,
            affinity: _,
            holdout_percent: _,
            sender: _,
            multicast: _,
        } = settings;
        set(&mut self.assist, assist);
        set_size(&mut self.cache.bytes_per_session, cache_bytes_per_session);
        set_size(&mut self.cache.bytes_total, cache_bytes_total);
        set(&mut self.repair.budget_percent, number(repair_budget_percent));
        set(&mut self.repair.sparse_copies, sparse_copies);
        set(&mut self.last_mile.residual_loss_per_million, number(residual_loss_per_million));
        set(&mut self.sessions.idle_timeout_seconds, number(idle_timeout_seconds));
        set(&mut self.sessions.maximum, number(maximum_sessions));
        set(&mut self.sessions.per_source, number(sessions_per_source));
        set(
            &mut self.sessions.handshakes_per_second_per_source,
            number(handshakes_per_second_per_source),
        );
        if tokens.is_some_and(|policy| policy != self.tokens.policy) {
            // With the certificate that its policy needs.
            self.tokens = class.tokens.clone();
        }
    }
}

impl Limits {
    /// The most that Services may ask for, where these limits say so.
    fn overrides(&self) -> Overrides {
        let size = |limit: &Option<String>| limit.as_ref().and_then(|text| parse_size(text).ok());
        Overrides {
            cache_bytes_per_session: size(&self.cache_bytes_per_session),
            cache_bytes_total: size(&self.cache_bytes_total),
            repair_budget_percent: number(self.repair_budget_percent),
            sparse_copies: self.sparse_copies.then_some(true),
            residual_loss_per_million: number(self.residual_loss_per_million),
            idle_timeout_seconds: number(self.idle_timeout_seconds),
            maximum_sessions: number(self.maximum_sessions),
            sessions_per_source: number(self.sessions_per_source),
            handshakes_per_second_per_source: number(self.handshakes_per_second_per_source),
            tokens: self.weaker_tokens.then_some(TokenPolicy::Off),
            ..Overrides::default()
        }
    }

    /// Keeps what a Gateway may have of labels or annotations, unless its class has others of these names.
    fn take_metadata(
        &self,
        own: &mut BTreeMap<String, String>,
        of_class: &BTreeMap<String, String>,
    ) -> Vec<String> {
        let mut told = Vec::new();
        own.retain(|name, value| {
            let of_class = of_class.get(name);
            if of_class == Some(value) || of_class.is_none() && self.allow_metadata(name) {
                return true;
            }
            let why = match of_class {
                Some(_) => "the value of the class is used",
                None => "not in limits.metadata of the class",
            };
            told.push(format!("{name} ({why})"));
            false
        });
        told
    }

    fn take(&mut self, most: Overrides) {
        // A new limit also has to be taken here.
        *self = Self {
            cache_bytes_per_session: most.cache_bytes_per_session.map(size_text),
            cache_bytes_total: most.cache_bytes_total.map(size_text),
            repair_budget_percent: number(most.repair_budget_percent),
            residual_loss_per_million: number(most.residual_loss_per_million),
            idle_timeout_seconds: number(most.idle_timeout_seconds),
            maximum_sessions: number(most.maximum_sessions),
            sessions_per_source: number(most.sessions_per_source),
            handshakes_per_second_per_source: number(most.handshakes_per_second_per_source),
            sparse_copies: most.sparse_copies == Some(true),
            weaker_tokens: most.tokens == Some(TokenPolicy::Off),
            metadata: std::mem::take(&mut self.metadata),
        };
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

/// Sets a size, unless it is the same in another notation.
fn set_size(field: &mut String, bytes: Option<u64>) {
    if let Some(bytes) = bytes.filter(|bytes| parse_size(field).ok() != Some(*bytes)) {
        *field = size_text(bytes);
    }
}

/// A size with the largest unit that leaves it whole: the schema takes no more than 15 digits.
fn size_text(bytes: u64) -> String {
    let units = [(1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    let unit = units.into_iter().find(|(unit, _)| bytes.is_multiple_of(*unit));
    unit.map_or_else(|| bytes.to_string(), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// A number that the schema has bounded.
fn number<T, U: TryFrom<T>>(value: Option<T>) -> Option<U> {
    value.and_then(|value| U::try_from(value).ok())
}
