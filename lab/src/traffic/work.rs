//! The part of a client that uses its connection: one transfer, objects, a page, a video.

use super::arrivals::Arrivals;
use super::exchange::{fetch, put};
use super::page;
use super::video::{Player, VideoResult};
use crate::connection::{ClientConnection, Outcome, Request};
use crate::simulation::clock::VirtualClock;
use packrat_emulation::scenario::{FlowDirection, PageModel, VideoSettings};
use packrat_wire::estimate::Timestamp;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The work of one connection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Work {
    /// A single object; `u64::MAX` bytes: an endless transfer.
    Transfer { size: u64, direction: FlowDirection },
    /// Objects on one connection.
    Objects { sizes: Vec<u64>, together: bool, direction: FlowDirection },
    /// A web page, handshake included.
    Page(PageModel),
    /// A video session, handshake included.
    Video(VideoSettings),
}

/// The outcome of that besides the bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkOutcome {
    /// Bytes and seconds of each object; of a page 0 bytes.
    pub(crate) completions: Vec<(u64, f64)>,
    pub(crate) video: Option<VideoResult>,
    /// True if everything that was asked for has arrived.
    pub(crate) complete: bool,
}

/// A client's work while it lasts.
pub(crate) struct Working {
    pub(crate) clock: VirtualClock,
    pub(crate) arrivals: Arc<Arrivals>,
    /// The longest time, from the request on.
    pub(crate) limit: Duration,
    /// The beginning: of the connection, then of the request if that counts.
    begun: Timestamp,
    /// The beginning of the connection.
    pub(crate) connected_from: Timestamp,
    outcome: Mutex<WorkOutcome>,
    /// Player of a video session.
    player: Mutex<Option<Player>>,
}

impl Work {
    /// True if the time of the handshake is part of the result.
    fn counts_handshake(&self) -> bool {
        matches!(self, Self::Page(_) | Self::Video(_))
    }

    /// True if the client sends the bulk.
    pub(crate) fn is_upload(&self) -> bool {
        matches!(
            self,
            Self::Transfer { direction: FlowDirection::Up, .. }
                | Self::Objects { direction: FlowDirection::Up, .. }
        )
    }

    /// True if it ends only with the trial.
    pub(crate) fn is_open_ended(&self) -> bool {
        matches!(self, Self::Transfer { size: u64::MAX, .. })
    }
}

impl Working {
    /// The connection is about to begin.
    pub(crate) fn new(clock: VirtualClock, arrivals: Arc<Arrivals>, limit: Duration) -> Self {
        Self {
            clock,
            arrivals,
            limit,
            begun: clock.now(),
            connected_from: clock.now(),
            outcome: Mutex::default(),
            player: Mutex::default(),
        }
    }

    /// The beginning of the counted time.
    pub(crate) fn begun(&self) -> Timestamp {
        self.begun
    }

    /// The outcome so far.
    pub(crate) fn outcome(self) -> WorkOutcome {
        let now = self.clock.now();
        let video = self.lock_player().as_mut().map(|player| player.result(now));
        let outcome = self.outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        WorkOutcome { video, ..outcome }
    }

    fn lock_player(&self) -> MutexGuard<'_, Option<Player>> {
        self.player.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, WorkOutcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the work, until its limit.
    pub(crate) async fn perform(
        &mut self,
        work: &Work,
        mut connection: ClientConnection,
    ) -> Outcome {
        if let Work::Transfer { size, direction: FlowDirection::Down } = *work {
            return self.download(size, &mut connection).await;
        }
        if !work.counts_handshake() {
            self.begun = self.clock.now();
        }
        let end = self.begun + self.limit;
        let (this, clock) = (&*self, self.clock);
        tokio::select! {
            biased;
            result = this.other(work, connection) => {
                result?;
                this.lock().complete = true;
            }
            () = clock.sleep_until(end) => {}
        }
        Ok(())
    }

    /// Downloads a single object.
    async fn download(&mut self, size: u64, connection: &mut ClientConnection) -> Outcome {
        let mut stream = connection.open().await?;
        self.begun = self.clock.now();
        stream.send(Request { size, upload: false }.bytes()).await?;
        while self.arrivals.all() < size
            && self.clock.now().saturating_since(self.begun) < self.limit
        {
            match stream.receive().await? {
                Some(data) => self.arrivals.add(data.len() as u64, self.clock),
                None => break,
            }
        }
        let mut outcome = self.lock();
        outcome.complete = self.arrivals.all() == size;
        if outcome.complete {
            outcome.completions.push((size, self.elapsed()));
        }
        Ok(())
    }

    async fn other(&self, work: &Work, connection: ClientConnection) -> Outcome {
        match work {
            Work::Transfer { size, direction } => self.object(*size, *direction, connection).await,
            Work::Objects { sizes, together: false, direction } => {
                for &size in sizes {
                    self.object(size, *direction, connection.clone()).await?;
                }
                Ok(())
            }
            Work::Objects { sizes, direction, .. } => {
                let transfer = |size| {
                    transfer(connection.clone(), size, *direction, self.clock, &self.arrivals)
                };
                let done = |place: usize| {
                    self.lock().completions.push((sizes[place], self.elapsed()));
                };
                page::together(sizes, transfer, done).await
            }
            Work::Page(model) => {
                page::load(*model, &connection, self.clock, &self.arrivals).await?;
                self.lock().completions.push((0, self.elapsed()));
                Ok(())
            }
            Work::Video(settings) => self.watch(settings, connection).await,
        }
    }

    async fn object(
        &self,
        size: u64,
        direction: FlowDirection,
        connection: ClientConnection,
    ) -> Outcome {
        let begun = self.clock.now();
        transfer(connection, size, direction, self.clock, &self.arrivals).await?;
        let seconds = self.clock.now().saturating_since(begun).as_secs_f64();
        self.lock().completions.push((size, seconds));
        Ok(())
    }

    async fn watch(&self, settings: &VideoSettings, connection: ClientConnection) -> Outcome {
        *self.lock_player() = Some(Player::new(settings.clone(), self.begun));
        let player = |act: fn(&mut Player, Timestamp) -> Option<u64>| {
            self.lock_player().as_mut().and_then(|player| act(player, self.clock.now()))
        };
        while let Some(bytes) = player(Player::next_segment) {
            fetch(connection.clone(), bytes, self.clock, Arc::clone(&self.arrivals)).await?;
            let wait = player(|player, now| Some(player.arrived(now).as_micros()));
            self.clock.sleep_until(Timestamp::from_micros(wait.unwrap_or_default())).await;
        }
        Ok(())
    }

    fn elapsed(&self) -> f64 {
        self.clock.now().saturating_since(self.begun).as_secs_f64()
    }
}

/// Transfers an object in its direction.
fn transfer(
    connection: ClientConnection,
    size: u64,
    direction: FlowDirection,
    clock: VirtualClock,
    arrivals: &Arc<Arrivals>,
) -> impl Future<Output = Outcome> + Send + 'static {
    let arrivals = Arc::clone(arrivals);
    async move {
        match direction {
            FlowDirection::Down => fetch(connection, size, clock, arrivals).await,
            FlowDirection::Up => put(connection, size).await,
        }
    }
}
