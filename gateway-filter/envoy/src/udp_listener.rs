//! The UDP listener filter: takes every datagram of a client out of Envoy's hands.
//!
//! One configuration per listener, one filter instance per worker and listener. On an update Envoy
//! makes new instances and destroys the old ones; for a moment both exist. The newer one takes the
//! slot of the listener's socket over, the older one sees that it no longer owns it.

use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use packrat_dataplane::log::{Event, StandardOutput};
use packrat_dataplane::socket::Ecn;
use packrat_dataplane::{
    Attachment, ClientDatagrams, Ingress, Route, read_static_key, route_from_json,
};

use crate::abi::{
    Buffer, EnvoyFilter, EnvoyPointer, ModulePointer, STOP_ITERATION, hook, is_validation_mode,
};
use crate::listener_socket;
use crate::process;
use crate::retry::Retry;

/// Envoy's handle of one configuration of a listener. `None` when Envoy only validates.
struct Configuration {
    route: Option<Arc<Route>>,
}

/// Envoy's handle of one worker of a listener.
struct Filter {
    route: Option<Arc<Route>>,
    /// The address of the listener. While Envoy delivers a datagram it reports that datagram's
    /// destination instead, which differs if the listener has a wildcard address.
    listener: Option<SocketAddr>,
    /// The entrance and the listener's socket; missing while the socket could not be found.
    attached: Option<(Ingress, Attachment)>,
    /// The time to look for the socket again.
    retry: Retry,
    /// The time to report again that a datagram has come this way.
    stray: Retry,
    scratch: Vec<u8>,
}

impl Filter {
    fn attach(&mut self, envoy: &EnvoyFilter) {
        let (Some(route), Some(dataplane)) = (&self.route, process::existing()) else { return };
        let Some(listener) = self.listener else { return };
        let worker = envoy.worker_index();
        let attached = dataplane.attach_and_read(route, listener, worker, |ours| {
            listener_socket::duplicate(listener, worker, ours)
        });
        match attached {
            Ok(attachment) => {
                self.attached = Some((dataplane.ingress(route, &attachment, worker), attachment))
            }
            Err(error) => dataplane.logger().log(Event::ListenerUnavailable, || {
                [("route", route.name().into()), ("error", error.to_string().into())]
            }),
        }
    }
}

fn configure(text: &[u8]) -> Result<Configuration, String> {
    let config = route_from_json(text).map_err(|error| error.to_string())?;
    if is_validation_mode() {
        // Only the settings that can be checked without threads and sockets.
        read_static_key(&config).map_err(|error| error.to_string())?;
        return Ok(Configuration { route: None });
    }
    let dataplane = process::dataplane().map_err(|error| error.to_string())?;
    let route = dataplane.configure(config).map_err(|error| error.to_string())?;
    Ok(Configuration { route: Some(route) })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_udp_listener_filter_config_new(
    _envoy: EnvoyPointer,
    name: Buffer,
    config: Buffer,
) -> ModulePointer {
    hook("udp_listener_filter_config_new", ptr::null(), || {
        // SAFETY: both buffers are Envoy's, used inside this hook only.
        let (name, config) = unsafe { (name.bytes(), config.bytes()) };
        match configure(config) {
            Ok(configuration) => Box::into_raw(Box::new(configuration)).cast_const().cast(),
            Err(error) => {
                let fields =
                    [("filter", String::from_utf8_lossy(name).into()), ("error", error.into())];
                let event = Event::ConfigurationRefused;
                StandardOutput::line(event.level(), event.name(), fields);
                ptr::null()
            }
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_udp_listener_filter_config_destroy(
    config: ModulePointer,
) {
    hook("udp_listener_filter_config_destroy", (), || {
        // SAFETY: made by `config_new`; Envoy destroys it once, after its filters.
        drop(unsafe { Box::from_raw(config.cast_mut().cast::<Configuration>()) });
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_udp_listener_filter_new(
    config: ModulePointer,
    envoy: EnvoyPointer,
) -> ModulePointer {
    hook("udp_listener_filter_new", ptr::null(), || {
        // SAFETY: made by `config_new`, alive as long as its filters.
        let configuration = unsafe { &*config.cast::<Configuration>() };
        // SAFETY: Envoy's pointer, used inside this hook only.
        let envoy = unsafe { EnvoyFilter::new(envoy) };
        let mut filter = Filter {
            route: configuration.route.clone(),
            listener: envoy.local_address(),
            attached: None,
            retry: Retry::default(),
            stray: Retry::default(),
            scratch: Vec::new(),
        };
        if filter.retry.is_due(Instant::now()) {
            filter.attach(&envoy);
        }
        Box::into_raw(Box::new(filter)).cast_const().cast()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_udp_listener_filter_on_data(
    envoy: EnvoyPointer,
    filter: ModulePointer,
) -> u32 {
    hook("udp_listener_filter_on_data", STOP_ITERATION, || {
        // SAFETY: made by `filter_new`; Envoy calls one hook of a filter at a time, on the worker's
        // thread.
        let filter = unsafe { &mut *filter.cast_mut().cast::<Filter>() };
        // SAFETY: Envoy's pointer, used inside this hook only.
        let envoy = unsafe { EnvoyFilter::new(envoy) };
        if filter.attached.is_none() && filter.retry.is_due(Instant::now()) {
            filter.attach(&envoy);
        }
        let Some((ingress, attachment)) = &mut filter.attached else {
            // The client could not be answered: the session would be of no use.
            if let Some(route) = &filter.route {
                route.count_dropped(1);
            }
            return STOP_ITERATION;
        };
        if filter.stray.is_due(Instant::now()) {
            attachment.note_read_elsewhere();
        }
        if let Some(client) = envoy.peer_address() {
            let local = if ingress.needs_local_address() { envoy.local_address() } else { None };
            envoy.with_datagram(&mut filter.scratch, |data| {
                ingress.receive(&ClientDatagrams {
                    client,
                    local: local.map(|local| local.ip()),
                    ecn: Ecn::NOT_CAPABLE,
                    data,
                    segment_size: data.len(),
                });
            });
        }
        STOP_ITERATION
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn envoy_dynamic_module_on_udp_listener_filter_destroy(filter: ModulePointer) {
    hook("udp_listener_filter_destroy", (), || {
        // SAFETY: made by `filter_new`; Envoy destroys it once. Dropping it closes the duplicate of
        // the listener's socket.
        drop(unsafe { Box::from_raw(filter.cast_mut().cast::<Filter>()) });
    });
}
