//! The ceiling that the parameters of a GatewayClass are for its Gateways' parameters: a Gateway is
//! to its class what a Service is to its EdgeGateway.

use std::collections::{BTreeMap, BTreeSet};

use packrat_api::token::TokenPolicy;

use super::exposure::ExposureType;
use super::gateway_parameters::GatewayParametersSpec;
use super::limits::{EndpointsFrom, Limits};
use super::lowering::Lowered;
use super::route::{edit, settings};
use super::tcp::TcpPolicy;
use super::terminate::TerminatePolicy;

impl GatewayParametersSpec {
    /// The parameters, as far as the parameters of a GatewayClass let a Gateway have them, and a
    /// part of a sentence about each that was lowered.
    ///
    /// # Errors
    /// A sentence about a value that the schema would not have let in.
    pub fn within(mut self, class: &Self) -> Result<(Self, Vec<String>), String> {
        let ceiling = class.clone().edge_gateway("");
        let spec = serde_json::to_value(&self).unwrap_or_default();
        let (settings, problems) = settings(&spec);
        if let Some(problem) = problems.first() {
            return Err(format!("spec.{problem}"));
        }
        let (_, above) = settings.lowered(&ceiling);
        let mut told: Vec<String> = above.iter().map(Lowered::told).collect();
        edit(&mut self, above.iter().map(|lowered| (lowered.knob.edge_gateway, lowered.value())))?;
        if above.iter().any(|lowered| lowered.knob.annotation == "tokens") {
            // With the certificate that its policy needs.
            self.tokens = class.tokens.clone();
        }
        let (_, above) = self.limits.settings().lowered(&ceiling);
        told.extend(above.iter().map(|lowered| format!("limits: {}", lowered.told())));
        edit(&mut self.limits, above.iter().filter_map(Lowered::limit))?;
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
}

impl Limits {
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
}
