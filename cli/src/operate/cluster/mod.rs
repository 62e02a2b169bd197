//! The cluster of the kubeconfig, if no gateway is named by its URL.

mod forward;
mod pods;

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use packrat_operator::resource::EdgeGateway;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

use super::error::OperateError;

pub(crate) use forward::Forward;
pub(crate) use pods::{Place, is_ready};

/// Time within which the API server must accept a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// Time within which the API server must answer.
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);

/// Which cluster, and which part of it; the flags are kubectl's.
#[derive(Debug, Clone, Args)]
pub(crate) struct ClusterOptions {
    /// Namespace of the EdgeGateways [default: the namespace of the kubeconfig's context]
    #[arg(short, long, value_name = "NAME", conflicts_with_all = ["all_namespaces", "gateway"], global = false)]
    pub(crate) namespace: Option<String>,

    /// EdgeGateways of all namespaces
    #[arg(short = 'A', long, conflicts_with = "gateway")]
    pub(crate) all_namespaces: bool,

    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME", conflicts_with = "gateway")]
    pub(crate) context: Option<String>,

    /// The kubeconfig [default: KUBECONFIG, or ~/.kube/config]
    #[arg(long, value_name = "FILE", conflicts_with = "gateway")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// A connection to an API server.
pub(crate) struct Cluster {
    runtime: Runtime,
    client: Client,
    /// URL of the cluster's server.
    server: String,
    /// The chosen namespace; `None`: all of them.
    namespace: Option<String>,
}

impl Debug for Cluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cluster").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Reads the kubeconfig; nothing is asked yet. `everywhere`: all namespaces, unless one is
    /// named.
    pub(crate) fn connect(
        options: &ClusterOptions,
        everywhere: bool,
    ) -> Result<Self, OperateError> {
        // Taken already when this is not the first cluster of the process.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| OperateError::NoCluster(error.to_string()))?;
        let no_cluster = |error: &dyn std::error::Error| OperateError::NoCluster(told(error));
        let chosen =
            KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
        let mut config = runtime.block_on(async {
            match &options.kubeconfig {
                Some(path) => {
                    let read = Kubeconfig::read_from(path).map_err(|error| no_cluster(&error))?;
                    Config::from_custom_kubeconfig(read, &chosen)
                        .await
                        .map_err(|error| no_cluster(&error))
                }
                None => match Config::from_kubeconfig(&chosen).await {
                    Ok(config) => Ok(config),
                    // In a Pod there is none.
                    Err(error) if options.context.is_none() => {
                        Config::incluster().map_err(|_| no_cluster(&error))
                    }
                    Err(error) => Err(no_cluster(&error)),
                },
            }
        })?;
        config.connect_timeout = Some(CONNECT_PATIENCE);
        let namespace = match (&options.namespace, options.all_namespaces) {
            (Some(namespace), _) => Some(namespace.clone()),
            (None, true) => None,
            (None, false) if everywhere => None,
            (None, false) => Some(config.default_namespace.clone()),
        };
        let server = config.cluster_url.to_string();
        let client = runtime
            .block_on(async { Client::try_from(config) })
            .map_err(|error| no_cluster(&error))?;
        Ok(Self { runtime, client, server, namespace })
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub(crate) const fn client(&self) -> &Client {
        &self.client
    }

    /// Runs something that talks to the API server; `what`: for the error.
    pub(crate) fn ask<T>(
        &self,
        what: &str,
        question: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, OperateError> {
        let problem = |problem: String| OperateError::Api {
            what: what.to_owned(),
            server: self.server.clone(),
            problem,
        };
        match self.runtime.block_on(async { tokio::time::timeout(ANSWER_PATIENCE, question).await })
        {
            Err(_) => Err(problem(format!("no answer within {} s", ANSWER_PATIENCE.as_secs()))),
            Ok(Err(kube::Error::Api(status))) => Err(problem(status.message)),
            Ok(Err(error)) => Err(problem(told(&error))),
            Ok(Ok(answer)) => Ok(answer),
        }
    }

    /// The objects of a kind in the namespace that is looked at.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    /// The objects of a kind in a namespace.
    pub(crate) fn api_in<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The objects of a kind without namespaces.
    pub(crate) fn api_of_cluster<K>(&self) -> Api<K>
    where
        K: Resource<Scope = ClusterResourceScope, DynamicType = ()>,
    {
        Api::all(self.client.clone())
    }

    /// All objects of a kind that have the labels.
    pub(crate) fn list<K>(&self, api: &Api<K>, labels: &str) -> Result<Vec<K>, OperateError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let parameters = ListParams::default().labels(labels);
        Ok(self.ask(&format!("listing {}", K::plural(&())), api.list(&parameters))?.items)
    }

    /// The EdgeGateways that are looked at.
    pub(crate) fn edge_gateways(&self) -> Result<Vec<EdgeGateway>, OperateError> {
        let question = async {
            match self.api::<EdgeGateway>().list(&ListParams::default()).await {
                Ok(found) => Ok(Some(found.items)),
                // The definition is missing, not an object.
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                Err(error) => Err(error),
            }
        };
        let found = self.ask("listing edgegateways", question)?;
        found.ok_or_else(|| OperateError::NotInstalled { server: self.server.clone() })
    }

    /// The way to a port of a Pod.
    pub(crate) fn forward(
        &self,
        namespace: &str,
        pod: &str,
        port: u16,
    ) -> Result<Forward, OperateError> {
        let api = Api::<Pod>::namespaced(self.client.clone(), namespace);
        self.runtime.block_on(Forward::start(api, pod, port)).map_err(|source| {
            OperateError::NoListener { pod: format!("{namespace}/{pod}"), source }
        })
    }
}

/// An error with its causes, as far as they add to it.
pub(crate) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
