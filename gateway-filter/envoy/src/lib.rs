//! Packrat's gateway inside Envoy 1.40: a dynamic module with a UDP listener filter and a bootstrap
//! extension.
//!
//! `cargo build -p packrat-envoy` makes `libpackrat_envoy.so`. Envoy finds it in the directory that
//! the environment variable `ENVOY_DYNAMIC_MODULES_SEARCH_PATH` names.
//!
//! # The listener
//!
//! The filter is the terminal filter of a UDP listener; it owns the upstream sockets, no cluster is
//! needed:
//!
//! ```yaml
//! name: web
//! address: { socket_address: { protocol: UDP, address: 0.0.0.0, port_value: 443 } }
//! udp_listener_config: { downstream_socket_config: { prefer_gro: true } }
//! listener_filters:
//! - name: packrat
//!   typed_config:
//!     "@type": type.googleapis.com/envoy.extensions.filters.udp.dynamic_modules.v3.DynamicModuleUdpListenerFilter
//!     dynamic_module_config: { name: packrat_envoy, do_not_close: true, metrics_namespace: packrat }
//!     filter_name: packrat
//!     filter_config:
//!       "@type": type.googleapis.com/google.protobuf.Struct
//!       value: { route: web, gateway: edge, endpoints: ["192.0.2.10:443"] }
//! ```
//!
//! `prefer_gro` is required: without it Envoy drops batches that the kernel has put together.
//! `do_not_close` is required: without it Envoy unloads the module, and with it every session.
//! `value` has the fields of `packrat_api::route::RouteConfig`. A refused configuration is logged
//! with the reason, and the current listener stays.
//!
//! Sessions belong to the route, not to the listener: they survive updates of the listener, its
//! removal and return, and a client whose packets arrive at another worker.
//!
//! # The bootstrap extension: metrics and status
//!
//! ```yaml
//! layered_runtime:
//!   layers:
//!   - name: packrat
//!     static_layer: { envoy.reloadable_features.dynamic_modules_strip_custom_stat_prefix: true }
//! bootstrap_extensions:
//! - name: packrat
//!   typed_config:
//!     "@type": type.googleapis.com/envoy.extensions.bootstrap.dynamic_modules.v3.DynamicModuleBootstrapExtension
//!     dynamic_module_config: { name: packrat_envoy, do_not_close: true, metrics_namespace: packrat }
//!     extension_name: packrat
//! ```
//!
//! `/stats/prometheus` shows every metric of `packrat_dataplane::metrics` with the labels `route`,
//! `gateway` and `namespace`, at most half a second old. Without the runtime setting Envoy puts
//! `envoy_packrat_` in front of these names. The administration endpoint `/packrat` returns the
//! routes, their configuration and their metrics as JSON; `packrat_admin::ANSWERED_PATHS` are the
//! others. Envoy declares the answers of modules as plain text, so the page for people has a port
//! of its own, when one is named:
//!
//! ```yaml
//!     extension_config:
//!       "@type": type.googleapis.com/google.protobuf.Struct
//!       value: { page: "127.0.0.1:9902", log_level: info, log_clients: hashed, otlp: "http://127.0.0.1:4318" }
//! ```
//!
//! `otlp`, or `OTEL_EXPORTER_OTLP_ENDPOINT` in Envoy's environment, names an OpenTelemetry
//! collector; `OTEL_EXPORTER_OTLP_HEADERS` has headers for it. If they are invalid, Envoy logs
//! `otlp_failed` and runs without a collector.
//!
//! # The log
//!
//! One JSON object per line on standard output; Envoy's own lines go to standard error. `POST
//! /packrat/log?level=debug` changes the level, `log_clients` may be `hashed`, `shown` or `hidden`.
//!
//! # Draining
//!
//! `POST /drain_listeners?graceful` on Envoy's administration interface starts Envoy's drain: new
//! clients are not assisted, current ones still are, and everything is forwarded until
//! `--drain-time-s` is over. Call it from a `preStop` hook that then waits for that time.
//! `POST /healthcheck/fail` alone is no drain: it only changes what health checks see. On SIGTERM
//! the module sends Goodbye to assisted clients, so that they stop waiting for repairs, and ends
//! everything at once. A drain cannot be undone. This needs the bootstrap extension.
//!
//! # ECN
//!
//! The ECN mark of datagrams from clients is not visible to a UDP listener filter: they are
//! forwarded to servers without a mark. Marks from servers to clients are carried through. The
//! standalone gateway carries both.
#![allow(unsafe_code)] // Envoy's C interface: `abi` and the hooks
#![deny(unsafe_op_in_unsafe_fn)]

mod abi;
mod bootstrap;
mod listener_socket;
mod process;
mod retry;
mod udp_listener;

/// Keeps small allocations apart from datagrams, and returns memory to the operating system seconds
/// after a burst of thousands of sessions; Envoy's allocator does not.
#[global_allocator]
static GLOBAL_ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
