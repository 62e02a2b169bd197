//! A session's share of the gateway's limits.

use std::net::IpAddr;
use std::sync::Arc;

use packrat_wire::estimate::Timestamp;

use super::{Admission, Network, SourceAccount, WorkKind};
use crate::budget::{FlowBudget, SourceBudget};
use crate::gateway::Gateway;
use crate::sync::atomic::Ordering;

/// A session whose client has not proven its address keeps no more bytes than this: a server's
/// first flight, not its patience.
const UNVALIDATED_CACHE_BYTES: usize = 128 * 1024;

/// Permit of one session: its place among the gateway's sessions, its source's charge, and the
/// memory it holds. All of it is returned when the permit is dropped.
#[derive(Debug)]
pub(crate) struct SessionPermit {
    gateway: Arc<Gateway>,
    source: IpAddr,
    /// Account of its source. There is one as soon as the client is known to receive at its
    /// address, and the source has been charged for the session.
    account: Option<Arc<SourceAccount>>,
    cache_bytes: usize,
}

impl SessionPermit {
    /// A permit for a client that has proven its address. `None`: there is no room for it, of its
    /// source or at all.
    pub(crate) fn new(gateway: &Arc<Gateway>, source: IpAddr, now: Timestamp) -> Option<Self> {
        let maximum = gateway.config().maximum_sessions;
        let mut permit = Self::below(gateway, source, maximum)?;
        let admitted = permit.validate(now) && permit.takes_handshake(now);
        admitted.then_some(permit)
    }

    /// A permit for a client that has not proven its address: an attacker that forges addresses
    /// must not use up their limits, nor more than half of the room. `None`: the client has to
    /// prove its address first.
    pub(crate) fn unvalidated(
        gateway: &Arc<Gateway>,
        source: IpAddr,
        now: Timestamp,
    ) -> Option<Self> {
        if !gateway.admission.may_prepare(source, now) {
            return None;
        }
        let room = Admission::room_for_unvalidated(&gateway.config());
        let permit = Self::below(gateway, source, room)?;
        permit.takes_handshake(now).then_some(permit)
    }

    fn below(gateway: &Arc<Gateway>, source: IpAddr, limit: usize) -> Option<Self> {
        gateway.admission.take_room(limit).then_some(())?;
        Some(Self { gateway: Arc::clone(gateway), source, account: None, cache_bytes: 0 })
    }

    fn takes_handshake(&self, now: Timestamp) -> bool {
        self.admission().take_handshake(self.account.as_deref(), now)
    }

    fn admission(&self) -> &Admission {
        &self.gateway.admission
    }

    /// The client receives at its address: from now on its source is charged for the session.
    /// `false`: the source may have no more.
    pub(crate) fn validate(&mut self, now: Timestamp) -> bool {
        if self.account.is_none() {
            self.account = {
                let admission = self.admission();
                admission.sources.begin(self.source, &admission.config.get(), now)
            };
            if let Some(account) = &self.account {
                account.hold(0, self.cache_bytes);
            }
        }
        self.account.is_some()
    }

    /// True if the client is known to receive at its address.
    pub(crate) const fn is_validated(&self) -> bool {
        self.account.is_some()
    }

    /// True if this thread may work on a message of the session's client now. `strain`: the share
    /// of the session's credit that is used.
    pub(crate) fn admits_work(&self, strain: f64, now: Timestamp) -> bool {
        let work = &self.admission().work;
        work.admits(WorkKind::Message, self.account.as_deref(), strain, now)
    }

    /// Charges the thread and the source for work on a message of the session's client.
    pub(crate) fn charge_work(&self, units: u64, now: Timestamp) {
        self.admission().work.charge(WorkKind::Message, self.account.as_deref(), units, now);
    }

    /// Earns repairs for `bytes` that a flow has forwarded whose repairs may take this share.
    pub(crate) fn earn(&self, bytes: u64, share: f64) {
        match &self.account {
            Some(source) => self.gateway.budget.earn_for(&source.repairs, bytes, share),
            None => self.gateway.budget.earn(bytes, share),
        }
    }

    /// Takes `bytes` for a repair from the budgets of the flow, its source and the gateway. `live`:
    /// for a live stream.
    pub(crate) fn take_repair(&self, flow: &mut FlowBudget, bytes: usize, live: bool) -> bool {
        if let Some(source) = &self.account {
            return self.gateway.budget.take(&source.repairs, flow, bytes, live);
        }
        // Its first message proves the address, and is answered before the source is charged for
        // the session.
        match self.admission().sources.account(self.source) {
            Some(source) => self.gateway.budget.take(&source.repairs, flow, bytes, live),
            None => self.gateway.budget.take(&SourceBudget::new(), flow, bytes, live),
        }
    }

    /// The client's address, or its /64.
    pub(crate) fn source(&self) -> Network {
        Network::of(self.source)
    }

    /// The network whose vote its client has.
    pub(crate) fn network(&self) -> Network {
        Network::largest_of(self.source)
    }

    pub(crate) fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Reports the memory that this session holds now.
    pub(crate) fn hold(&mut self, bytes: usize) {
        let total = &self.admission().cache_bytes;
        if bytes >= self.cache_bytes {
            total.fetch_add(bytes - self.cache_bytes, Ordering::Relaxed);
        } else {
            total.fetch_sub(self.cache_bytes - bytes, Ordering::Relaxed);
        }
        if let Some(account) = &self.account {
            account.hold(self.cache_bytes, bytes);
        }
        self.cache_bytes = bytes;
    }

    /// Takes `more` bytes of memory, if all sessions together may have them, and its source leaves
    /// enough to others.
    pub(crate) fn try_take(&mut self, more: usize) -> bool {
        if self.account.is_none() && self.cache_bytes + more > UNVALIDATED_CACHE_BYTES {
            return false;
        }
        let admission = self.admission();
        let reserve = self.account.as_ref().map_or(0, |account| account.cache_reserve(more));
        let limit = admission.config.get().cache_bytes_total.saturating_sub(reserve);
        let within = |held: usize| held.checked_add(more).filter(|held| *held <= limit);
        let taken = admission
            .cache_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within)
            .is_ok();
        if taken {
            if let Some(account) = &self.account {
                account.hold(0, more);
            }
            self.cache_bytes += more;
        }
        taken
    }

    /// True if all sessions together hold more memory than they may, since that is less now.
    pub(crate) fn is_too_much_held(&self) -> bool {
        let admission = self.admission();
        admission.cache_bytes.load(Ordering::Relaxed) > admission.config.get().cache_bytes_total
    }

    /// Share of a thread's work that its source has used lately.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn use_lately(&self, now: Timestamp) -> Option<f64> {
        self.account.as_ref().map(|account| account.use_lately(now))
    }

    /// Memory that the session holds, as reported last.
    pub(crate) fn held(&self) -> usize {
        self.cache_bytes
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        let admission = self.admission();
        admission.leave_room();
        if let Some(account) = &self.account {
            account.hold(self.cache_bytes, 0);
            admission.sources.end(self.source);
        }
        admission.cache_bytes.fetch_sub(self.cache_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::GatewayConfig;

    const SOURCE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn gateway(maximum_sessions: usize) -> Arc<Gateway> {
        let config =
            GatewayConfig { maximum_sessions, cache_bytes_total: 1 << 20, ..Default::default() };
        Gateway::new(config, [1; 32], [2; 32])
    }

    #[test]
    fn a_dropped_permit_returns_all_that_it_took() {
        let gateway = gateway(1);
        let mut permit = SessionPermit::new(&gateway, SOURCE, Timestamp::ZERO).unwrap();
        assert!(SessionPermit::new(&gateway, SOURCE, Timestamp::ZERO).is_none());
        let most = (1 << 20) / 3 * 2;
        assert!(permit.try_take(most) && !permit.try_take(9));
        permit.hold(1 << 10);
        assert!(permit.try_take(9));
        drop(permit);
        assert_eq!(gateway.sessions(), 0);
        assert_eq!(gateway.admission.cache_bytes.load(Ordering::Relaxed), 0);
        assert!(SessionPermit::new(&gateway, SOURCE, Timestamp::ZERO).is_some());
    }

    #[test]
    fn unproven_addresses_get_half_of_the_room_and_little_memory() {
        let gateway = gateway(2);
        let mut first = SessionPermit::unvalidated(&gateway, SOURCE, Timestamp::ZERO).unwrap();
        assert!(SessionPermit::unvalidated(&gateway, SOURCE, Timestamp::ZERO).is_none());
        assert!(first.try_take(UNVALIDATED_CACHE_BYTES) && !first.try_take(1));
        assert!(first.validate(Timestamp::ZERO) && first.try_take(1));
        assert!(!first.try_take((1 << 20) / 3 * 2), "what it had before counts");
        assert!(SessionPermit::new(&gateway, SOURCE, Timestamp::ZERO).is_some());
    }

    #[test]
    fn limits_change_and_what_is_used_of_them_stays_counted() {
        let gateway = gateway(3);
        let begin = || SessionPermit::new(&gateway, SOURCE, Timestamp::ZERO);
        let (mut first, second) = (begin().unwrap(), begin().unwrap());
        assert!(first.try_take(500_000));
        let config = gateway.config();
        gateway.reconfigure(GatewayConfig { maximum_sessions: 2, ..config });
        assert!(begin().is_none() && gateway.sessions() == 2);
        gateway.reconfigure(GatewayConfig { sessions_per_source: 2, ..config });
        assert!(begin().is_none(), "its source has two already");
        gateway.reconfigure(GatewayConfig { handshakes_per_second_per_source: 1, ..config });
        drop(second);
        assert!(begin().is_some() && begin().is_none(), "the bucket has become smaller");
        assert!(!first.is_too_much_held());
        gateway.reconfigure(GatewayConfig { cache_bytes_total: 400_000, ..config });
        assert!(first.is_too_much_held() && !first.try_take(1));
        gateway.reconfigure(GatewayConfig { cache_bytes_total: 2 << 20, ..config });
        assert!(!first.is_too_much_held() && first.try_take(600_000));
    }

    #[test]
    fn memory_is_shared_between_sources_and_not_between_sessions() {
        let gateway = Gateway::new(
            GatewayConfig { cache_bytes_total: 1 << 20, ..GatewayConfig::default() },
            [1; 32],
            [2; 32],
        );
        let take = |source: IpAddr, sessions: usize| -> Vec<SessionPermit> {
            let permit = |_| {
                let mut permit = SessionPermit::new(&gateway, source, Timestamp::ZERO).unwrap();
                while permit.try_take(1 << 10) {}
                permit
            };
            (0..sessions).map(permit).collect()
        };
        let held = |permits: &[SessionPermit]| {
            permits.iter().map(SessionPermit::held).sum::<usize>() as f64 / f64::from(1 << 20)
        };
        let hog = take(SOURCE, 50);
        assert!((0.6..=0.67).contains(&held(&hog)), "{}", held(&hog));
        // A neighbour, a stranger, and one of whose session there are few.
        let (neighbour, stranger) = (take([192, 0, 2, 9].into(), 3), take([10, 0, 0, 1].into(), 1));
        assert!(held(&neighbour) > 0.05 && held(&stranger) > 0.15, "{}", held(&neighbour));
        drop(hog);
        assert!(held(&take([10, 0, 1, 1].into(), 2)) > 0.4);
    }
}
