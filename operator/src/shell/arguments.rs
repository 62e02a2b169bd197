//! The command line of the operator. Each option can also be given in the environment.

use std::net::{IpAddr, SocketAddr};

use clap::{Args, Parser, Subcommand};

use crate::envoy::User;
use crate::index::Operator;
use crate::inject::SidecarResources;
use crate::policy::{ImagePattern, Network, Policy, Quotas};
use crate::resource::DEFAULT_CLASS;
use crate::workload::Patches;

/// Turns annotated Services into routes of Envoy gateways at the cluster's edge.
#[derive(Debug, Parser)]
#[command(name = "packrat-operator", version)]
pub struct Arguments {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator.
    Run(Box<RunOptions>),
    /// Print the custom resource definitions as YAML.
    Crds,
}

/// RunOptions of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunOptions {
    /// Namespace of the operator.
    #[arg(long, env = "POD_NAMESPACE", default_value = "packrat-system")]
    pub namespace: String,
    /// Name of this replica; no two may have the same.
    #[arg(long, env = "POD_NAME")]
    pub replica: String,
    /// Class of the EdgeGateways that this operator serves (their spec.class).
    #[arg(long, env = "PACKRAT_CLASS", default_value = DEFAULT_CLASS)]
    pub class: String,
    /// The Service in front of the operator.
    #[command(flatten)]
    pub service: ServiceOptions,
    /// Images and addresses of gateways.
    #[command(flatten)]
    pub gateway: GatewayOptions,
    /// Limits of all EdgeGateways.
    #[command(flatten)]
    pub limits: LimitOptions,
    /// Restrict also the destinations of gateways with their NetworkPolicies.
    #[arg(long, env = "PACKRAT_GATEWAY_EGRESS_POLICY", default_value_t = true, action = clap::ArgAction::Set)]
    pub gateway_egress_policy: bool,
    /// Changes to the objects that make gateways, by kind, as JSON: {"Deployment": {"spec": {…}}}. They are
    /// merged strategically.
    #[arg(long, env = "PACKRAT_GATEWAY_PATCHES", default_value = "")]
    pub gateway_patches: Patches,
    /// Addresses of the operator's servers.
    #[command(flatten)]
    pub listen: ListenOptions,
    /// The MutatingWebhookConfiguration whose certificate authority is kept current; empty if there
    /// is none.
    #[arg(long, env = "PACKRAT_WEBHOOK_CONFIGURATION", default_value = "packrat-injector")]
    pub webhook_configuration: String,
    /// Secret with the operator's certificate authority, in the operator's namespace.
    #[arg(long, env = "PACKRAT_AUTHORITY_SECRET", default_value = "packrat-operator-authority")]
    pub authority_secret: String,
    /// Lease that elects the replica which writes.
    #[arg(long, env = "PACKRAT_LEASE", default_value = "packrat-operator")]
    pub lease: String,
    /// Seconds for which an elected replica that is silent keeps the lease.
    #[arg(long, env = "PACKRAT_LEASE_SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(3..=300))]
    pub lease_seconds: u64,
    /// Log level: error, warn, info, debug or trace, also by module.
    #[arg(long, env = "PACKRAT_LOG", default_value = "info")]
    pub log: String,
}

/// The Service in front of the operator.
#[derive(Debug, Clone, Args)]
pub struct ServiceOptions {
    /// Name of the operator's Service, through which gateways and the API server reach it.
    #[arg(long, env = "PACKRAT_SERVICE_NAME", default_value = "packrat-operator")]
    pub service_name: String,
    /// Port of that Service for gateways.
    #[arg(long, env = "PACKRAT_DISCOVERY_PORT", default_value_t = 18000)]
    pub discovery_port: u16,
    /// Host name that gateways reach the operator at [default: SERVICE.NAMESPACE.svc].
    #[arg(long, env = "PACKRAT_DISCOVERY_HOST")]
    pub discovery_host: Option<String>,
}

/// Images and addresses of gateways.
#[derive(Debug, Clone, Args)]
pub struct GatewayOptions {
    /// Image of gateways whose EdgeGateway names no image.
    #[arg(long, env = "PACKRAT_GATEWAY_IMAGE", default_value = concat!("packrat/gateway:", env!("CARGO_PKG_VERSION")))]
    pub gateway_image: String,
    /// When that image is pulled: Always, IfNotPresent or Never [default: Kubernetes chooses].
    #[arg(long, env = "PACKRAT_GATEWAY_IMAGE_PULL_POLICY")]
    pub gateway_image_pull_policy: Option<String>,
    /// Pull secrets for that image in the Pods' namespaces, separated by commas.
    #[arg(long, env = "PACKRAT_GATEWAY_IMAGE_PULL_SECRETS", value_delimiter = ',')]
    pub gateway_image_pull_secrets: Vec<String>,
    /// Number of the user and group of gateways and sidecars; empty: the platform chooses.
    #[arg(long, env = "PACKRAT_GATEWAY_USER", default_value = "65532")]
    pub gateway_user: User,
    /// Resources of sidecars whose Pod does not choose them.
    #[arg(
        long,
        env = "PACKRAT_SIDECAR_RESOURCES",
        default_value = "requests.cpu=50m,requests.memory=64Mi"
    )]
    pub sidecar_resources: SidecarResources,
    /// Address that gateways and sidecars listen on [default: :: for IPv6 and IPv4, or 0.0.0.0 if
    /// the operator has no IPv6].
    #[arg(long, env = "PACKRAT_GATEWAY_LISTEN_ADDRESS")]
    pub gateway_listen_address: Option<IpAddr>,
}

/// Limits of all EdgeGateways.
#[derive(Debug, Clone, Args)]
pub struct LimitOptions {
    /// Images that EdgeGateways may name in addition to that one, separated by commas; an entry
    /// that ends in :*, /* or @* stands for all images with this beginning.
    #[arg(long, env = "PACKRAT_ALLOWED_IMAGES", value_delimiter = ',')]
    pub allowed_images: Vec<ImagePattern>,
    /// Allow gateways on the host network, on which they run as root with the capability
    /// NET_BIND_SERVICE.
    #[arg(long, env = "PACKRAT_ALLOW_HOST_NETWORK")]
    pub allow_host_network: bool,
    /// Networks that gateways never forward to, separated by commas, in addition to loopback,
    /// link-local and multicast addresses, nodes and Services.
    #[arg(long, env = "PACKRAT_DENIED_NETWORKS", value_delimiter = ',')]
    pub denied_networks: Vec<Network>,
    /// Most listeners of one Service.
    #[arg(long, env = "PACKRAT_LISTENERS_PER_SERVICE", default_value_t = 100, value_parser = listeners())]
    pub listeners_per_service: u16,
    /// Most listeners of all Services of a namespace at an EdgeGateway.
    #[arg(long, env = "PACKRAT_LISTENERS_PER_NAMESPACE", default_value_t = 100, value_parser = listeners())]
    pub listeners_per_namespace: u16,
    /// Most listeners of all Services at an EdgeGateway.
    #[arg(long, env = "PACKRAT_LISTENERS_PER_GATEWAY", default_value_t = 1000, value_parser = listeners())]
    pub listeners_per_gateway: u16,
}

/// Addresses of the operator's servers.
#[derive(Debug, Clone, Args)]
pub struct ListenOptions {
    /// Address that serves gateways (gRPC, mutual TLS).
    #[arg(long, env = "PACKRAT_DISCOVERY_LISTEN", default_value = "[::]:18000")]
    pub discovery_listen: SocketAddr,
    /// Address that serves the injector (HTTPS).
    #[arg(long, env = "PACKRAT_WEBHOOK_LISTEN", default_value = "[::]:9443")]
    pub webhook_listen: SocketAddr,
    /// Address that serves /live, /ready and /metrics (HTTP).
    #[arg(long, env = "PACKRAT_HEALTH_LISTEN", default_value = "[::]:8080")]
    pub health_listen: SocketAddr,
}

/// The numbers of listeners that an EdgeGateway's status can name.
fn listeners() -> clap::builder::RangedI64ValueParser<u16> {
    clap::value_parser!(u16).range(1..=Quotas::MOST_PER_GATEWAY.into())
}

impl RunOptions {
    /// The operator that this is, among others of the cluster.
    pub fn operator(&self) -> Operator {
        Operator {
            class: self.class.clone(),
            identity: format!("{}/{}", self.namespace, self.service.service_name),
        }
    }

    /// Host name that gateways reach the operator at.
    pub fn discovery_host(&self) -> String {
        self.service
            .discovery_host
            .clone()
            .unwrap_or_else(|| format!("{}.{}.svc", self.service.service_name, self.namespace))
    }

    /// The namespace of the Pods that gateways reach the operator at; `None` if they reach it under
    /// another name.
    pub(super) fn discovery_namespace(&self) -> Option<String> {
        self.service.discovery_host.is_none().then(|| self.namespace.clone())
    }

    /// The limits of all EdgeGateways.
    pub(super) fn policy(&self) -> Policy {
        let mut policy = Policy {
            images: self.limits.allowed_images.clone(),
            host_network: self.limits.allow_host_network,
            quotas: Quotas {
                per_service: self.limits.listeners_per_service.into(),
                per_namespace: self.limits.listeners_per_namespace.into(),
                per_gateway: self.limits.listeners_per_gateway.into(),
            },
            ..Policy::default()
        };
        policy.images.extend(self.gateway.gateway_image.parse());
        policy.never.extend(&self.limits.denied_networks);
        policy
    }

    /// Address that gateways listen on.
    pub(super) fn gateway_listen_address(&self) -> String {
        self.gateway.gateway_listen_address.map_or_else(
            || super::listening::every_address().to_owned(),
            |address| address.to_string(),
        )
    }

    /// Names that are in the operator's certificate.
    pub fn server_names(&self) -> Vec<String> {
        let service = format!("{}.{}.svc", self.service.service_name, self.namespace);
        let mut names = vec![service.clone(), format!("{service}.cluster.local")];
        if let Some(host) = &self.service.discovery_host
            && !names.contains(host)
        {
            names.push(host.clone());
        }
        names
    }
}
