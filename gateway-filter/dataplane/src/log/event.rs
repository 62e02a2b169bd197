//! Events, with their levels.

use super::level::Level;

macro_rules! events {
    ($($variant:ident $level:ident $name:literal $help:literal;)*) => {
        /// An event; the value of the key `event`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Event {
            $(#[doc = concat!("`", $name, "`: ", $help)] $variant,)*
        }

        impl Event {
            /// Every event.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub(super) const COUNT: usize = [$(Self::$variant,)*].len();

            /// The text in the log line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The cause of the event's line, and its keys beside the keys of all lines.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }

            /// The level of its lines.
            pub const fn level(self) -> Level {
                match self { $(Self::$variant => Level::$level,)* }
            }
        }
    };
}

events! {
    RouteConfigured Info "route_configured" "A configuration is in force: `endpoints`, `public_key`.";
    RouteForgotten Info "route_forgotten" "A route is not shown any more: for a minute it had no configuration, no listener and no session.";
    ConfigurationRefused Error "configuration_refused" "A configuration was refused, the old one stays: `error`.";
    ListenerAttached Info "listener_attached" "A socket that clients send to is in use: `listener`, `worker`.";
    ListenerReleased Info "listener_released" "It is not any more: `listener`, `worker`.";
    ListenerSteered Info "listener_steered" "Inside Envoy: the gateway's own threads read what clients send there: `listener`, `detail`.";
    ListenerNotSteered Warning "listener_not_steered" "Envoy goes on reading part or all of it, which costs more: `listener`, `detail`.";
    ListenerUnavailable Error "listener_unavailable" "The socket of a listener could not be found; clients are not served there: `error`.";
    StreamUnavailable Error "stream_unavailable" "A live stream cannot be received or sent to its group: `upstream`, `group`, `error`. It is tried again after `retry_seconds`.";
    StreamAvailable Info "stream_available" "A live stream that could not be received can be.";
    SessionOpened Info "session_opened" "A client is new: `endpoint`, `worker`.";
    SessionClosed Info "session_closed" "A client has gone: `reason`, `seconds`, and its totals `to_client_datagrams`, `to_client_bytes`, `to_server_datagrams`, `to_server_bytes`, `repairs`.";
    EndpointChanged Info "session_moved" "A session has another endpoint, because its own was removed: `from`, `to`.";
    ClientMoved Info "client_moved" "A client has proved to be at another address, and its session has followed: `from`.";
    ClientWaiting Debug "client_waiting" "Datagrams of an unknown address wait: they may belong to a client that has moved.";
    ClientWaitedInVain Debug "client_waited_in_vain" "They belonged to a new client: `datagrams`.";
    SessionRefused Warning "session_refused" "A datagram of a new client was dropped: `reason`.";
    SessionsLimited Warning "sessions_limited" "The process cannot hold as many sessions as are configured: `maximum_sessions`, `in_force`, `reason`.";
    UpstreamError Warning "upstream_error" "A server could not be reached, or refused: `endpoint`, `error`.";
    DownstreamError Warning "downstream_error" "A client could not be reached: `dropped`, `error`.";
    SegmentationUnavailable Warning "segmentation_offload_unavailable" "The kernel refuses to cut batches into datagrams (GSO); sending costs more.";
    ReceiveBufferSmall Warning "receive_buffer_small" "The kernel gives small receive buffers: `bytes`, `advice`.";
    ControlDropped Info "control_dropped" "A control datagram was dropped: `reason`.";
    AssistanceBegun Info "assistance_begun" "A client and the gateway have finished their handshake: `assistance`.";
    AssistanceEnded Info "assistance_ended" "Assistance has ended: `side`, `reason`, and its totals `repaired`, `repair_transmissions`, `unrepairable`, `decode_failures`, `resets`, `cache_high_water_bytes`.";
    Reset Warning "reset" "Gateway and client begin anew with empty sets: `side`, `reason`, `epoch`.";
    SendersJudged Warning "senders_judged" "What clients of three networks report has changed how the route's sessions begin: without repairs (`tolerant` is true), because its senders seem to tolerate losses, or with repairs again.";
    AssistanceStopped Warning "assistance_stopped" "Assistance stops by itself: the median goodput of assisted sessions is `speedup` times that of sessions held out, with 99 % confidence between `lower` and `upper`. It is tried again after `retry_seconds`.";
    AssistanceTried Info "assistance_tried" "Assistance that had stopped is tried again, for half of the clients.";
    AssistanceResumed Info "assistance_resumed" "The trial has not shown assistance to be slower: `speedup`, `lower`, `upper`.";
    Assistance Info "assistance" "Something else in assistance: `detail`.";
    AssistancePanic Error "assistance_panic" "A fault in assistance; the flow goes on without it: `message`.";
    WorkerError Error "worker_error" "An I/O thread met an error: `message`, `error`.";
    Draining Info "draining" "The gateway is shutting down: it assists no new clients; forwarding and running assistance go on.";
    Shutdown Info "shutdown" "All sessions have ended.";
}
