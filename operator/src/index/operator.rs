//! This operator among others of the cluster.

use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt as _;

use crate::model::GatewayModel;
use crate::resource::DEFAULT_CLASS;

/// An operator among others of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operator {
    /// Class of the operator, which serves the EdgeGateways of that class.
    pub class: String,
    /// Namespace and name; of two operators of a class, an EdgeGateway is one's.
    pub identity: String,
}

impl Default for Operator {
    fn default() -> Self {
        Self {
            class: DEFAULT_CLASS.to_owned(),
            identity: "packrat-system/packrat-operator".to_owned(),
        }
    }
}

impl Operator {
    /// True if an EdgeGateway is of its class.
    pub fn is_of_class(&self, gateway: &GatewayModel) -> bool {
        gateway.spec.class == self.class
    }

    /// True if an EdgeGateway belongs to this operator, or is still unclaimed.
    pub fn serves(&self, gateway: &GatewayModel) -> bool {
        self.is_of_class(gateway)
            && gateway.status.operator.as_ref().is_none_or(|operator| *operator == self.identity)
    }

    /// True if the operator has the default class: EdgeGateways in its namespace are found by
    /// Services without a choice of their own.
    pub(super) fn is_default(&self) -> bool {
        self.class == DEFAULT_CLASS
    }

    /// The order of operators for reports about objects without an EdgeGateway: the first one makes
    /// them.
    pub(super) fn precedence(&self) -> (bool, &str, &str) {
        (!self.is_default(), &self.class, &self.identity)
    }

    /// The operator that a Service leads to, as the chart labels it.
    pub fn read(service: &Service) -> Option<Self> {
        let class = service.labels().get(CLASS_LABEL)?.clone();
        let identity =
            format!("{}/{}", service.namespace().unwrap_or_default(), service.name_any());
        Some(Self { class, identity })
    }
}

/// The label of an operator's Service with its class.
const CLASS_LABEL: &str = "packrat.dev/operator-class";
