//! The subscribers of a stream, by the socket through which they are reached.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;

use crate::context::RouteContext;
use crate::metrics::Metric;
use crate::session::ClientPath;
use crate::socket::{ClientAddress, Destination, GsoBatch, Sender, Slot, WhenFull};

/// Subscribers that are reached through the same socket.
#[derive(Debug, Clone)]
pub(super) struct Recipients {
    slot: Arc<Slot>,
    local: Option<IpAddr>,
    clients: Vec<ClientAddress>,
}

impl Recipients {
    /// The way to one of them.
    fn path(&self, client: ClientAddress) -> ClientPath {
        ClientPath { client, slot: Arc::clone(&self.slot), local: self.local }
    }

    /// Sends a copy to each of them.
    pub(super) fn send(&self, route: &RouteContext, sender: &mut Sender, batches: &[GsoBatch<'_>]) {
        let (mut datagrams, mut bytes) = (0, 0);
        let sent = self.slot.with(|downstream| {
            let destination = |client: &ClientAddress| {
                downstream.destination(*client, self.local, WhenFull::Drop)
            };
            let destinations: Vec<Destination> = self.clients.iter().map(destination).collect();
            let (socket, offload) = (downstream.socket(), &downstream.offload);
            sender.send_to_each(socket, offload, &destinations, batches, |destination, report| {
                datagrams += report.datagrams;
                bytes += report.bytes;
                let failed = report.error.is_some() || report.offload_refused;
                if let Some(client) = destination.address.filter(|_| failed) {
                    self.path(ClientAddress::new(client)).count_unsent(route, &report);
                }
            });
        });
        if sent.is_none() {
            let dropped = GsoBatch::count(batches) * self.clients.len() as u64;
            route.metrics.add(Metric::DownstreamDropped, dropped);
        }
        route.metrics.add(Metric::DownstreamDatagrams, datagrams);
        route.metrics.add(Metric::DownstreamBytes, bytes);
    }
}

/// Brings the recipients up to date. `now`: the subscribers; `path`: of the one that has just come
/// or moved.
pub(super) fn update(
    recipients: &mut Vec<Recipients>,
    mut now: HashSet<ClientAddress>,
    path: Option<&ClientPath>,
) {
    for group in &mut *recipients {
        group.clients.retain(|client| now.remove(client));
    }
    recipients.retain(|group| !group.clients.is_empty());
    let Some(path) = path else { return };
    for client in now {
        let is_same = |group: &&mut Recipients| {
            Arc::ptr_eq(&group.slot, &path.slot) && group.local == path.local
        };
        match recipients.iter_mut().find(is_same) {
            Some(group) => group.clients.push(client),
            None => recipients.push(Recipients {
                slot: Arc::clone(&path.slot),
                local: path.local,
                clients: vec![client],
            }),
        }
    }
}

/// The way to one of the recipients.
pub(super) fn path_to(recipients: &[Recipients], client: ClientAddress) -> Option<ClientPath> {
    let group = recipients.iter().find(|group| group.clients.contains(&client))?;
    Some(group.path(client))
}
