//! The stream that a route is configured with.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use super::relay::RouteStream;
use super::upstream::{StreamUpstream, senders};
use crate::context::RouteContext;
use crate::log::Event;
use crate::socket::Sender;
use crate::stream::config as settings;
use packrat_api::route::StreamRoute;

/// A change that an I/O thread has to carry out.
#[derive(Debug)]
pub(crate) enum StreamChange {
    /// Read this stream.
    Open(Arc<RouteStream>, Arc<StreamUpstream>),
    /// Do not read it any more.
    Close(Arc<StreamUpstream>),
}

impl StreamChange {
    /// The worker whose I/O thread it is.
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
    /// One socket is opened at a time.
    opening: Mutex<()>,
}

impl ConfiguredStream {
    pub(crate) fn current(&self) -> Option<Arc<RouteStream>> {
        self.current.read().as_ref().map(|(_, stream)| Arc::clone(stream))
    }

    /// True if the route has no server beside the stream's.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    /// Brings the stream into the state that is configured: its engine always, its sockets while
    /// the route has listeners. `change` is told, in order, what the I/O threads have to do.
    pub(crate) fn follow(
        &self,
        route: &Arc<RouteContext>,
        has_listener: impl FnOnce() -> bool,
        mut change: impl FnMut(StreamChange),
    ) {
        let settings = route.settings();
        self.alone.store(settings.config.endpoints.is_empty(), Ordering::Relaxed);
        let mut current = self.current.write();
        let Some(config) = &settings.config.stream else {
            if let Some((_, stream)) = current.take() {
                end(&stream, change);
            }
            return;
        };
        let kept =
            current.as_ref().filter(|(before, _)| !settings::needs_another_engine(before, config));
        let stream = match kept {
            Some((_, stream)) => {
                stream.reconfigure(config, Arc::clone(&settings.engine));
                Arc::clone(stream)
            }
            None => {
                if let Some((_, stream)) = current.take() {
                    end(&stream, &mut change);
                }
                match RouteStream::new(route, config, Arc::clone(&settings.engine)) {
                    Ok(stream) => Arc::new(stream),
                    Err(error) => return report(route, config, &error.to_string()),
                }
            }
        };
        *current = Some((config.clone(), Arc::clone(&stream)));
        drop(current);
        let wanted = has_listener();
        // I/O threads, one of which may have to close the former socket first, do not wait for it.
        let _opening = self.opening.lock();
        let former = stream.upstream().clone();
        let senders: Vec<IpAddr> = senders(&settings.config).collect();
        let is_open = |open: &Arc<StreamUpstream>| {
            let joins_others = config.upstream.ip().is_multicast() && open.senders != senders;
            !settings::needs_other_sockets(&open.config, config) && !joins_others
        };
        if wanted && former.as_ref().is_some_and(is_open) {
            return;
        }
        drop(former);
        let former = stream.upstream().take();
        if let Some(open) = former {
            change(StreamChange::Close(open));
        }
        if !wanted {
            return;
        }
        match StreamUpstream::open(route.environment.next_number(), config, senders) {
            Ok(open) => {
                let open = Arc::new(open);
                *stream.upstream() = Some(Arc::clone(&open));
                change(StreamChange::Open(Arc::clone(&stream), open));
            }
            Err(error) => report(route, config, &error.to_string()),
        }
    }
}

/// Ends a stream that the route does not have any more.
fn end(stream: &RouteStream, mut change: impl FnMut(StreamChange)) {
    if let Some(open) = stream.upstream().take() {
        change(StreamChange::Close(open));
    }
    stream.close(&mut Sender::default());
}

fn report(route: &RouteContext, config: &StreamRoute, error: &str) {
    route.log(Event::StreamUnavailable, || {
        [
            ("upstream", config.upstream.to_string().into()),
            ("group", config.group.map(|group| group.to_string()).into()),
            ("error", error.into()),
        ]
    });
}
