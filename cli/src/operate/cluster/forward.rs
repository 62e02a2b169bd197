//! A port of a Pod on this machine's loopback interface, by way of the API server, as `kubectl
//! port-forward` does it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::told;

/// Why the last connection could not be made.
type Trouble = Arc<Mutex<Option<String>>>;

/// Connections are forwarded until it is dropped.
#[derive(Debug)]
pub(crate) struct Forward {
    address: SocketAddr,
    trouble: Trouble,
    task: JoinHandle<()>,
}

impl Forward {
    pub(super) async fn start(api: Api<Pod>, pod: &str, port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let trouble = Trouble::default();
        let task = tokio::spawn(accept(listener, api, pod.to_owned(), port, Arc::clone(&trouble)));
        Ok(Self { address, trouble, task })
    }

    /// The local address to connect to.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Why the last connection could not be made, if it could not.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, api: Api<Pod>, pod: String, port: u16, trouble: Trouble) {
    while let Ok((stream, _)) = listener.accept().await {
        let (api, pod, trouble) = (api.clone(), pod.clone(), Arc::clone(&trouble));
        tokio::spawn(async move {
            let outcome = carry(stream, &api, &pod, port).await;
            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = outcome.err();
        });
    }
}

async fn carry(mut stream: TcpStream, api: &Api<Pod>, pod: &str, port: u16) -> Result<(), String> {
    let mut forwarder = api.portforward(pod, &[port]).await.map_err(|error| told(&error))?;
    let error = forwarder.take_error(port);
    let Some(mut remote) = forwarder.take_stream(port) else {
        return Err(format!("the API server does not forward port {port}"));
    };
    // Who closes first is of no interest.
    let _ = tokio::io::copy_bidirectional(&mut stream, &mut remote).await;
    drop(remote);
    forwarder.abort();
    match error {
        Some(error) => error.await.map_or(Ok(()), Err),
        None => Ok(()),
    }
}
