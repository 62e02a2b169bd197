//! The stream that a route is configured with.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use packrat_wire::estimate::Timestamp;

use super::relay::RouteStream;
use super::upstream::{StreamUpstream, WhenInUse, senders};
use crate::context::RouteContext;
use crate::log::Event;
use crate::socket::Sender;
use crate::stream::config as settings;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, RwLock};
use packrat_api::route::StreamRoute;

/// Delay of the next attempt to open the sockets of a stream after the first one that failed. It
/// doubles with each.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// Longest delay of an attempt to open the sockets of a stream.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// The last attempt to open the sockets of a stream, which failed.
#[derive(Debug)]
struct Failure {
    error: String,
    /// Delay and time of the next one.
    delay: Duration,
    next: Timestamp,
}

/// A change that an I/O thread has to carry out.
#[derive(Debug)]
pub(crate) enum StreamChange {
    /// Read this stream.
    Open(Arc<RouteStream>, Arc<StreamUpstream>),
    /// Do not read it any more.
    Close(Arc<StreamUpstream>),
}

impl StreamChange {
    /// Worker whose I/O thread reads the stream's socket.
    pub(crate) fn worker(&self) -> usize {
        match self {
            Self::Open(_, upstream) | Self::Close(upstream) => upstream.worker(),
        }
    }
}

/// The live stream of a route, if it has one.
#[derive(Debug, Default)]
pub(crate) struct ConfiguredStream {
    /// The stream, with the configuration that it was made for.
    current: RwLock<Option<(StreamRoute, Arc<RouteStream>)>>,
    /// True if the route has no server beside the stream's.
    alone: AtomicBool,
    /// Held by the one thread that follows the configuration, so that no thread brings back a state
    /// that another one has replaced.
    following: Mutex<()>,
    failure: Mutex<Option<Failure>>,
}

impl ConfiguredStream {
    pub(crate) fn current(&self) -> Option<Arc<RouteStream>> {
        self.current.read().as_ref().map(|(_, stream)| Arc::clone(stream))
    }

    /// The configuration of the stream that there is.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn config(&self) -> Option<StreamRoute> {
        self.current.read().as_ref().map(|(config, _)| config.clone())
    }

    /// True if the route has no server beside the stream's.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// The reason why the stream does not arrive although it should.
    pub(crate) fn error(&self) -> Option<String> {
        self.failure.lock().as_ref().map(|failure| failure.error.clone())
    }

    /// True if [`Self::follow`] has asked to be called at this time, and not been called since.
    pub(crate) fn is_due(&self, planned: Timestamp) -> bool {
        self.failure.lock().as_ref().is_some_and(|failure| failure.next == planned)
    }

    /// Brings the stream into the state that is configured: its engine always, its sockets while
    /// the route has listeners. `change` is called, in order, with the I/O threads' tasks. Returns
    /// when it has to be called again, if its sockets could not be opened.
    pub(crate) fn follow(
        &self,
        route: &Arc<RouteContext>,
        has_listener: impl FnOnce() -> bool,
        when_in_use: WhenInUse,
        mut change: impl FnMut(StreamChange),
    ) -> Option<Timestamp> {
        let _following = self.following.lock();
        let settings = route.settings();
        self.alone.store(settings.config.endpoints.is_empty(), Ordering::Relaxed);
        let mut current = self.current.write();
        let Some(config) = &settings.config.stream else {
            if let Some((_, stream)) = current.take() {
                end(&stream, change);
            }
            self.succeed(route, false);
            return None;
        };
        let kept = current
            .as_ref()
            .filter(|(before, _)| !settings::needs_other_identifiers(before, config));
        let stream = match kept {
            Some((_, stream)) => {
                stream.reconfigure(config);
                Arc::clone(stream)
            }
            None => {
                if let Some((_, stream)) = current.take() {
                    end(&stream, &mut change);
                }
                match RouteStream::new(route, config) {
                    Ok(stream) => Arc::new(stream),
                    Err(error) => return Some(self.fail(route, config, &error.to_string())),
                }
            }
        };
        *current = Some((config.clone(), Arc::clone(&stream)));
        // I/O threads, one of which may have to close the former socket first, do not wait for it.
        drop(current);
        if !has_listener() {
            close_sockets(&stream, change);
            self.succeed(route, false);
            return None;
        }
        let senders = senders(&settings.config).collect();
        self.open_sockets(route, config, senders, &stream, when_in_use, change)
    }

    /// Opens the sockets of the stream, unless they are open as configured.
    fn open_sockets(
        &self,
        route: &Arc<RouteContext>,
        config: &StreamRoute,
        senders: Vec<IpAddr>,
        stream: &Arc<RouteStream>,
        when_in_use: WhenInUse,
        mut change: impl FnMut(StreamChange),
    ) -> Option<Timestamp> {
        let former = stream.upstream().clone();
        let is_open = |open: &Arc<StreamUpstream>| {
            let joins_others = config.upstream.ip().is_multicast() && open.senders != senders;
            !settings::needs_other_sockets(&open.config, config) && !joins_others
        };
        if former.as_ref().is_some_and(is_open) {
            self.succeed(route, true);
            return None;
        }
        drop(former);
        close_sockets(stream, &mut change);
        let number = route.environment.next_number();
        match StreamUpstream::open(number, config, senders, when_in_use) {
            Ok(open) => {
                let open = Arc::new(open);
                *stream.upstream() = Some(Arc::clone(&open));
                change(StreamChange::Open(Arc::clone(stream), open));
                self.succeed(route, true);
                None
            }
            Err(error) => Some(self.fail(route, config, &error.to_string())),
        }
    }

    /// Cancels further attempts. `arrives`: true if they have succeeded because the stream arrives.
    fn succeed(&self, route: &RouteContext, arrives: bool) {
        if self.failure.lock().take().is_some() && arrives {
            route.log(Event::StreamAvailable, || []);
        }
    }

    /// Plans the next attempt.
    fn fail(&self, route: &RouteContext, config: &StreamRoute, error: &str) -> Timestamp {
        let mut failure = self.failure.lock();
        let again = |before: &Failure| (before.delay * 2).min(LONGEST_RETRY);
        let delay = failure.as_ref().map_or(FIRST_RETRY, again);
        let next = route.environment.now() + delay;
        *failure = Some(Failure { error: error.to_owned(), delay, next });
        drop(failure);
        route.log(Event::StreamUnavailable, || {
            [
                ("upstream", config.upstream.to_string().into()),
                ("group", config.group.map(|group| group.to_string()).into()),
                ("error", error.into()),
                ("retry_seconds", delay.as_secs_f64().into()),
            ]
        });
        next
    }
}

fn close_sockets(stream: &RouteStream, mut change: impl FnMut(StreamChange)) {
    let former = stream.upstream().take();
    if let Some(open) = former {
        change(StreamChange::Close(open));
    }
}

/// Ends a stream that the route does not have any more.
fn end(stream: &RouteStream, change: impl FnMut(StreamChange)) {
    close_sockets(stream, change);
    stream.close(&mut Sender::default());
}
