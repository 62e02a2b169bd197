//! The workload of gateways, as Kubernetes reports it, and condition `RolledOut`.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;

use super::observed::Observed;
use crate::gateway_api::Finding;
use crate::problem::Reason;

/// Reasons for which a container waits in its usual course.
const USUAL_WAITS: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The workload of an EdgeGateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rollout {
    /// Gateways that are wanted.
    pub wanted: i32,
    /// Gateways with the newest settings of Pods.
    pub updated: i32,
    /// All gateways but those that end.
    pub present: i32,
    /// Gateways that are ready.
    pub ready: i32,
    /// Why no Pod is made, or none has become ready for a while.
    pub fault: Option<String>,
}

impl From<&Deployment> for Rollout {
    fn from(deployment: &Deployment) -> Self {
        let status = deployment.status.clone().unwrap_or_default();
        let fault = |type_: &str, bad: &str| {
            let mut conditions = status.conditions.iter().flatten();
            let found = conditions.find(|found| found.type_ == type_ && found.status == bad)?;
            let reason = found.reason.as_deref().unwrap_or(type_);
            Some(format!("{reason}: {}", found.message.as_deref().unwrap_or_default()))
        };
        Self {
            wanted: deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
            updated: status.updated_replicas.unwrap_or(0),
            present: status.replicas.unwrap_or(0),
            ready: status.ready_replicas.unwrap_or(0),
            fault: fault("ReplicaFailure", "True").or_else(|| fault("Progressing", "False")),
        }
    }
}

impl From<&DaemonSet> for Rollout {
    /// A DaemonSet has no condition about its progress: its Pods tell.
    fn from(set: &DaemonSet) -> Self {
        let status = set.status.clone().unwrap_or_default();
        Self {
            wanted: status.desired_number_scheduled,
            updated: status.updated_number_scheduled.unwrap_or(0),
            present: status.current_number_scheduled,
            ready: status.number_ready,
            fault: None,
        }
    }
}

/// Why a Pod is not ready, if there is a reason beside its usual course.
pub fn why_waiting(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let waiting = status.container_statuses.iter().flatten().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        let message = waiting.message.as_deref().map(|message| format!(": {message}"));
        let is_usual = USUAL_WAITS.contains(&reason);
        (!is_usual).then(|| format!("{reason}{}", message.unwrap_or_default()))
    });
    let mut conditions = status.conditions.iter().flatten();
    let unscheduled = || {
        let condition = conditions.find(|condition| condition.type_ == "PodScheduled")?;
        condition.message.clone().filter(|_| condition.status == "False")
    };
    waiting.or_else(unscheduled)
}

impl Observed {
    /// Number of gateways that are wanted.
    pub(super) fn wanted(&self) -> i32 {
        self.rollout.as_ref().map_or(self.pods, |rollout| rollout.wanted)
    }

    /// Why fewer gateways are ready than are wanted, as the end of a sentence.
    pub(super) fn why_fewer(&self) -> String {
        let fault = self.rollout.as_ref().and_then(|rollout| rollout.fault.clone());
        let waiting = self.waiting.as_ref().map(|(pod, reason)| format!("Pod {pod}: {reason}"));
        let ending = (self.ending > 0).then(|| format!("{} more drain", self.ending));
        let all: Vec<String> = [ending, fault, waiting].into_iter().flatten().collect();
        if all.is_empty() { String::new() } else { format!("; {}", all.join("; ")) }
    }
}

/// Condition `RolledOut`: all wanted gateways have the newest settings of Pods, and are ready.
pub(super) fn rolled_out(observed: &Observed) -> Finding {
    let Some(rollout) = &observed.rollout else {
        return Finding::unknown(
            "RolledOut",
            "NotKnown",
            "the gateways' workload is not known yet",
        );
    };
    let Rollout { wanted, updated, present, ready, .. } = *rollout;
    if updated >= wanted && present <= updated && ready >= wanted {
        let message = format!("all {wanted} gateways have the newest version of their Pods");
        return Finding::yes("RolledOut", "RolledOut", message);
    }
    let message = format!(
        "of {wanted} gateways {} have the newest version of their Pods, and {} are ready{}",
        updated.min(wanted),
        ready.min(wanted),
        observed.why_fewer()
    );
    // A Deployment waits for its deadline.
    let is_stuck =
        rollout.fault.is_some() || (observed.is_on_each_node && observed.waiting.is_some());
    let reason = if is_stuck { Reason::RolloutStuck.name() } else { "RollingOut" };
    Finding::no("RolledOut", reason, message)
}
