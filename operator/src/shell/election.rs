//! Election of the replica that writes: the holder of a Lease, as long as the API server confirms
//! it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::contact::Contact;

/// A candidate for a lease.
pub(super) struct Candidate {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) lease: String,
    pub(super) replica: String,
    /// Time for which a silent holder keeps the lease.
    pub(super) duration: Duration,
    /// Noted with each look at the lease.
    pub(super) contact: Arc<Contact>,
}

/// The reason for the end of an election.
#[derive(Debug)]
pub(super) enum Ending {
    /// The task that holds the lease has ended.
    Task,
    /// No replica has renewed the lease within its duration. The lease is free now, and goes to the
    /// next candidate.
    Silence,
}

/// The state of the lease (true if this replica believes that it holds it), and the task that
/// renews it.
pub(super) type Standing =
    (watch::Receiver<bool>, JoinHandle<Result<LeaseManager, LeaseManagerError>>);

impl Candidate {
    /// Tries to acquire and to keep the lease, until the receiver is dropped.
    ///
    /// # Errors
    /// When the lease can be neither read nor created.
    pub(super) async fn stand(&self) -> Result<Standing, LeaseManagerError> {
        let seconds = self.duration.as_secs();
        let manager = LeaseManagerBuilder::new(self.client.clone(), &self.lease)
            .with_namespace(&self.namespace)
            .with_identity(&self.replica)
            .with_duration(seconds)
            .with_grace((seconds / 3).max(1))
            .build()
            .await?;
        Ok(manager.watch().await)
    }

    /// Keeps `elected` current from `holds`, this replica's belief that it holds the lease; ends
    /// when `holds` does.
    ///
    /// A replica that is cut off from the API server continues to believe that it holds the lease.
    /// So its belief counts only while the API server has confirmed it within the lease's duration:
    /// when another replica gets the lease, this one has stopped.
    ///
    /// A lease has the time of its holder's wall clock. If that clock was ahead and the holder is
    /// gone, all other replicas would wait until this time. So the time since the last write to the
    /// lease also counts, by this replica's monotonic clock.
    pub(super) async fn follow(
        &self,
        mut holds: watch::Receiver<bool>,
        elected: &watch::Sender<bool>,
    ) -> Ending {
        let api = Api::<Lease>::namespaced(self.client.clone(), &self.namespace);
        let interval = self.duration / 5;
        let mut confirmed: Option<Instant> = None;
        let mut silence = Silence::default();
        loop {
            tokio::select! {
                changed = holds.changed() => if changed.is_err() { return Ending::Task },
                () = tokio::time::sleep(interval) => {}
            }
            let asked = Instant::now();
            let holds_it = *holds.borrow_and_update();
            let answer = tokio::time::timeout(interval, api.get_opt(&self.lease)).await;
            let is_answer = matches!(answer, Ok(Ok(_) | Err(kube::Error::Api(_))));
            self.contact.note(is_answer, Instant::now());
            let lease = answer.ok().and_then(Result::ok);
            let holder = lease.as_ref().map(|lease| holder_of(lease.as_ref()));
            if !holds_it {
                confirmed = None;
            } else if let Some(holder) = holder {
                confirmed = (holder == Some(&self.replica)).then_some(asked);
            }
            // A running holder notices before others do.
            let patience =
                if holder == Some(Some(&self.replica)) { self.duration } else { 2 * self.duration };
            let silent = silence.after(lease.as_ref().and_then(Option::as_ref), asked) > patience;
            let is_elected = confirmed.is_some_and(|at| at.elapsed() < self.duration);
            elected.send_if_modified(|before| {
                let differs = *before != is_elected;
                if differs {
                    tracing::info!(event = "election", elected = is_elected);
                    *before = is_elected;
                }
                differs
            });
            if let Some(version) = silence.version.as_deref().filter(|_| silent) {
                self.free(&api, version).await;
                elected.send_replace(false);
                return Ending::Silence;
            }
        }
    }

    /// Takes the lease from its holder, unless it was written to since `version`.
    async fn free(&self, api: &Api<Lease>, version: &str) {
        let released = json!({
            "metadata": { "resourceVersion": version },
            "spec": { "holderIdentity": null, "acquireTime": null, "renewTime": null, "leaseDurationSeconds": null },
        });
        match api.patch(&self.lease, &PatchParams::default(), &Patch::Merge(released)).await {
            Ok(_) => {
                tracing::warn!(event = "lease_freed", reason = "its holder has not renewed it")
            }
            // The lease has been written to since, or the next check finds it unchanged and tries
            // again.
            Err(error) => tracing::info!(event = "lease_kept", error = %error),
        }
    }
}

fn holder_of(lease: Option<&Lease>) -> Option<&String> {
    lease?.spec.as_ref()?.holder_identity.as_ref()
}

/// The time for which a held lease has not changed.
#[derive(Debug, Default)]
struct Silence {
    version: Option<String>,
    since: Option<Instant>,
}

impl Silence {
    /// `lease`: as it was at `now`; `None` when it is unknown or missing.
    fn after(&mut self, lease: Option<&Lease>, now: Instant) -> Duration {
        let held = lease.filter(|lease| holder_of(Some(lease)).is_some());
        let version = held.and_then(|lease| lease.metadata.resource_version.as_ref());
        if version.is_none() || version != self.version.as_ref() {
            *self = Self { version: version.cloned(), since: version.map(|_| now) };
        }
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(version: &str, holder: Option<&str>) -> Lease {
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some(version.to_owned());
        lease.spec.get_or_insert_default().holder_identity = holder.map(str::to_owned);
        lease
    }

    #[test]
    fn silence_is_the_time_since_the_last_write() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut silence = Silence::default();
        let (one, other) = (lease("1", Some("a")), lease("2", Some("a")));
        assert_eq!(silence.after(Some(&one), at(0)), Duration::ZERO);
        assert_eq!(silence.after(Some(&one), at(7)), Duration::from_secs(7));
        assert_eq!(silence.after(Some(&other), at(8)), Duration::ZERO);
        assert_eq!(silence.after(Some(&other), at(9)), Duration::from_secs(1));
        // A replica that could not read the lease does not know if it was written to.
        assert_eq!(silence.after(None, at(50)), Duration::ZERO);
        assert_eq!(silence.after(Some(&other), at(51)), Duration::ZERO);
        // A lease without a holder can be taken at once.
        let free = lease("3", None);
        assert_eq!(silence.after(Some(&free), at(52)), Duration::ZERO);
        assert_eq!(silence.after(Some(&free), at(99)), Duration::ZERO);
    }
}
