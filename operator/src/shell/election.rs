//! Which replica writes: the holder of a Lease, as long as the API server confirms it.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

/// Who is to be elected, and where.
pub(super) struct Candidate {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) lease: String,
    pub(super) replica: String,
    /// For so long a holder that is silent keeps the lease.
    pub(super) duration: Duration,
}

impl Candidate {
    /// Tells `elected` what follows from `holds`, what this replica believes of the lease; ends when that does.
    ///
    /// A replica that is cut off goes on believing that it holds the lease, for as long as nobody tells it otherwise. So it counts only
    /// while the API server has said so within the time that the lease is good for: when somebody else has it, this one has stopped.
    pub(super) async fn follow(self, mut holds: watch::Receiver<bool>, elected: watch::Sender<bool>) {
        let api = Api::<Lease>::namespaced(self.client.clone(), &self.namespace);
        let interval = self.duration / 5;
        let mut confirmed: Option<Instant> = None;
        loop {
            tokio::select! {
                changed = holds.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(interval) => {}
            }
            let asked = Instant::now();
            if !*holds.borrow_and_update() {
                confirmed = None;
            } else if let Ok(Ok(found)) = tokio::time::timeout(interval, api.get_opt(&self.lease)).await {
                let holder = found.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity);
                confirmed = (holder.as_ref() == Some(&self.replica)).then_some(asked);
            }
            let is_elected = confirmed.is_some_and(|at| at.elapsed() < self.duration);
            elected.send_if_modified(|before| {
                let differs = *before != is_elected;
                if differs {
                    tracing::info!(event = "election", elected = is_elected);
                    *before = is_elected;
                }
                differs
            });
        }
    }
}
