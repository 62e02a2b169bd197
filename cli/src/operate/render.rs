//! `packrat render`: what the operator would make of the routes in a manifest, without a cluster.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::DynamicObject;
use packrat_api::route::RouteConfig;
use packrat_operator::gateway_api::objects::Read as _;
use packrat_operator::gateway_api::{
    Finding, Gateway, GatewayClass, Parameters, PolicyModel, ReferenceGrant, UdpRoute,
};
use packrat_operator::index::{Index, Listener, Resolution};
use packrat_operator::model::{
    GatewayModel, NamespaceModel, PodModel, ServiceModel, SliceModel, service_addresses,
};
use packrat_operator::object_key::ObjectKey;
use packrat_operator::policy::Policy;
use packrat_operator::resource::{EdgeGateway, EdgeGatewaySpec};
use packrat_operator::status::service_condition;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::manifest;

/// Address of the Pod that is assumed behind a Service without EndpointSlices (RFC 5737).
const ASSUMED_ADDRESS: &str = "192.0.2.1";

/// Options of `packrat render`.
#[derive(Debug, Args)]
pub(crate) struct RenderOptions {
    /// A manifest in YAML or JSON with EdgeGateways or Gateways, Services and routes; - reads the
    /// standard input
    file: PathBuf,
    /// Namespace of objects that name none
    #[arg(short, long, default_value = "default")]
    namespace: String,
}

pub(crate) fn run(options: &RenderOptions) -> ExitCode {
    manifest::print("render", render(options))
}

/// The routes as YAML, and true if each that was asked for is there.
fn render(options: &RenderOptions) -> Result<(String, bool), String> {
    let mut objects = Vec::new();
    let documents = manifest::read(&options.file)?;
    documents.into_iter().for_each(|document| flatten(document, &mut objects));
    let mut manifest = Manifest::new(options.namespace.clone());
    for object in objects {
        manifest.take(object)?;
    }
    let (result, is_well) = manifest.routes();
    let yaml = serde_saphyr::to_string(&result)
        .map_err(|error| format!("the routes cannot be written as YAML: {error}"))?;
    Ok((yaml, is_well))
}

/// The objects of a document; a list has several.
fn flatten(document: Value, objects: &mut Vec<Value>) {
    match document {
        Value::Null => {}
        Value::Object(mut list) if list.get("items").is_some_and(Value::is_array) => {
            if let Some(Value::Array(items)) = list.remove("items") {
                items.into_iter().for_each(|item| flatten(item, objects));
            }
        }
        object => objects.push(object),
    }
}

/// The objects of a manifest, as the operator sees them.
struct Manifest {
    index: Index,
    namespace: String,
    services: Vec<(ObjectKey, Service)>,
    /// Services with EndpointSlices.
    sliced: BTreeSet<ObjectKey>,
}

impl Manifest {
    fn new(namespace: String) -> Self {
        // What an installation allows is not known here.
        let policy = Policy {
            host_network: true,
            images: "*".parse().into_iter().collect(),
            ..Policy::default()
        };
        let index = Index::new("packrat-system", policy);
        Self { index, namespace, services: Vec::new(), sliced: BTreeSet::new() }
    }

    /// Takes an object in; other kinds do not matter.
    fn take(&mut self, mut object: Value) -> Result<(), String> {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if !object["metadata"].is_object() {
            return Ok(());
        }
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&self.namespace);
        let key = ObjectKey::new(namespace, &name);
        if !matches!(kind.as_str(), "Namespace" | "GatewayClass") {
            object["metadata"]["namespace"] = key.namespace.as_str().into();
        }
        // The API server gives each object an identity.
        object["metadata"]["uid"] = format!("{kind}/{key}").into();
        let subject = format!("{kind} {key}");
        let unreadable = |error: serde_json::Error| format!("{subject}: {error}");
        match kind.as_str() {
            "EdgeGateway" => {
                let gateway: EdgeGateway = read(object).map_err(unreadable)?;
                self.index.gateways.set(key, Some(GatewayModel::read(&gateway)));
            }
            "Service" => self.services.push((key, read(object).map_err(unreadable)?)),
            "Namespace" => {
                let namespace: Namespace = read(object).map_err(unreadable)?;
                let labels = namespace.metadata.labels.clone().unwrap_or_default();
                self.index.set_namespace_labels(name.clone(), Some(labels));
                self.index.namespaces.set(name, NamespaceModel::read(&namespace));
            }
            "EndpointSlice" => self.take_slice(&key, &read(object).map_err(unreadable)?),
            _ => self.take_of_gateway_api(&kind, key, &object).map_err(unreadable)?,
        }
        Ok(())
    }

    fn take_slice(&mut self, key: &ObjectKey, slice: &EndpointSlice) {
        // The named Pods have the slice's addresses.
        for endpoint in &slice.endpoints {
            let Some(name) = endpoint.target_ref.as_ref().and_then(|pod| pod.name.as_ref()) else {
                continue;
            };
            let addresses = endpoint.addresses.iter().filter_map(|ip| ip.parse().ok()).collect();
            let pod = PodModel { addresses, ..PodModel::default() };
            self.index.pods.set(ObjectKey::new(&key.namespace, name), Some(pod));
        }
        let labels = slice.metadata.labels.clone().unwrap_or_default();
        if let Some(service) = labels.get("kubernetes.io/service-name") {
            self.sliced.insert(ObjectKey::new(&key.namespace, service));
        }
        self.index.set_slice(key.clone(), SliceModel::read(slice));
    }

    fn take_of_gateway_api(
        &mut self,
        kind: &str,
        key: ObjectKey,
        object: &Value,
    ) -> Result<(), serde_json::Error> {
        let kinds = [
            "GatewayClass",
            "Gateway",
            "UDPRoute",
            "ReferenceGrant",
            "PackratPolicy",
            "GatewayParameters",
        ];
        if !kinds.contains(&kind) {
            return Ok(());
        }
        let object: DynamicObject = read(object.clone())?;
        let mut outcome = Ok(());
        self.index.set_gateway_api(|objects| {
            let taken = match kind {
                "GatewayClass" => GatewayClass::read(&object)
                    .map(|class| drop(objects.classes.insert(key.name, class))),
                "Gateway" => Gateway::read(&object)
                    .map(|gateway| drop(objects.gateways.insert(key, gateway))),
                "UDPRoute" => {
                    UdpRoute::read(&object).map(|route| drop(objects.routes.insert(key, route)))
                }
                "ReferenceGrant" => ReferenceGrant::read(&object)
                    .map(|grant| drop(objects.grants.insert(key, grant))),
                "PackratPolicy" => PolicyModel::read(&object)
                    .map(|policy| drop(objects.policies.insert(key, policy))),
                _ => Parameters::read(&object)
                    .map(|parameters| drop(objects.parameters.insert(key, parameters))),
            };
            outcome = taken;
            true
        });
        outcome
    }

    /// All routes, and true if each that was asked for is there.
    fn routes(mut self) -> (Value, bool) {
        for (key, service) in std::mem::take(&mut self.services) {
            if !self.sliced.contains(&key)
                && let Some(slice) = assumed_slice(&key, &service)
            {
                self.take_slice(&key, &slice);
            }
            self.index.set_service_addresses(key.clone(), Some(service_addresses(&service)));
            self.index.services.set(key, ServiceModel::read(&service));
        }
        // The operator makes an EdgeGateway for each Gateway.
        for state in self.index.resolve().attachments.gateways.into_values() {
            let Some(spec) = state.spec else { continue };
            let model =
                GatewayModel { spec: *spec, owner: Some(state.uid), ..GatewayModel::default() };
            self.index.gateways.set(state.edge, Some(model));
        }
        let resolution = self.index.resolve();
        let mut is_well = true;
        let services: Vec<Value> = resolution
            .services
            .iter()
            .filter_map(|(key, view)| {
                let (status, reason, message) = service_condition(key, view, None)?;
                is_well &= status || reason == "SwitchedOff";
                Some(json!({
                    "service": key.to_string(), "assisted": status, "reason": reason, "message": message,
                }))
            })
            .collect();
        let routes = udp_routes(&resolution, &mut is_well);
        let gateways = self.gateways(&resolution);
        (json!({ "edgeGateways": gateways, "services": services, "udpRoutes": routes }), is_well)
    }

    fn gateways(&self, resolution: &Resolution) -> Vec<Value> {
        let of_gateway = |(key, view): (&ObjectKey, &packrat_operator::index::GatewayView)| {
            let spec = &self.index.gateways.get(key)?.spec;
            let listeners = view.listeners.iter();
            let listeners: Vec<_> =
                listeners.map(|(port, found)| listener(*port, found, spec)).collect();
            let mut gateway = json!({ "edgeGateway": key.to_string(), "listeners": listeners });
            if let Some(refusal) = &view.refusal {
                gateway["refused"] = refusal.as_str().into();
            }
            Some(gateway)
        };
        resolution.gateways.iter().filter_map(of_gateway).collect()
    }
}

fn read<T: DeserializeOwned>(object: Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(object)
}

/// A slice with one ready Pod for each port of a Service: an offline manifest has no Pods.
fn assumed_slice(key: &ObjectKey, service: &Service) -> Option<EndpointSlice> {
    let ports = service.spec.as_ref()?.ports.as_ref()?;
    let ports: Vec<Value> = ports
        .iter()
        .map(|port| {
            json!({
                "name": port.name.as_deref().unwrap_or_default(), "port": port.port,
                "protocol": port.protocol.as_deref().unwrap_or("TCP"),
            })
        })
        .collect();
    let pod = json!({ "kind": "Pod", "name": format!("{}-assumed", key.name) });
    read(json!({
        "addressType": "IPv4",
        "metadata": { "name": format!("{}-assumed", key.name), "namespace": key.namespace, "labels": {
            "kubernetes.io/service-name": key.name,
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        }},
        "ports": ports,
        "endpoints": [{ "addresses": [ASSUMED_ADDRESS], "conditions": { "ready": true }, "targetRef": pod }],
    }))
    .ok()
}

/// A listener with the settings of its route that are not the defaults.
fn listener(port: u16, listener: &Listener, spec: &EdgeGatewaySpec) -> Value {
    let fields = |config: &RouteConfig| match serde_json::to_value(config) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let mut config = RouteConfig::unchecked(listener.route(), listener.endpoints.iter().copied());
    let usual = fields(&config);
    spec.apply(&mut config);
    listener.overrides.apply(&mut config);
    let mut settings = fields(&config);
    settings.retain(|name, value| usual.get(name) != Some(value));
    let endpoints: Vec<String> = listener.endpoints.iter().map(ToString::to_string).collect();
    let mut found = json!({
        "port": port, "route": listener.route(), "endpoints": endpoints, "settings": settings,
    });
    if listener.tcp.is_some() {
        found["tcp"] = true.into();
    }
    if listener.terminated.is_some() {
        found["terminated"] = true.into();
    }
    found
}

/// The UDPRoutes, with the findings about their parents.
fn udp_routes(resolution: &Resolution, is_well: &mut bool) -> Vec<Value> {
    let mut routes = Vec::new();
    for (key, state) in &resolution.attachments.routes {
        for parent in &state.parents {
            let found: Vec<&Finding> = vec![&parent.accepted, &parent.resolved];
            *is_well &= found.iter().all(|finding| finding.status == Some(true))
                && parent.waits_for.is_none();
            let mut route =
                json!({ "udpRoute": key.to_string(), "gateway": parent.reference.name });
            for finding in found {
                route[finding.type_] =
                    format!("{} {}: {}", finding.status_word(), finding.reason, finding.message)
                        .into();
            }
            routes.push(route);
        }
    }
    routes
}
