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
    RouteForgotten Info "route_forgotten" "A route is not shown any more: no configuration, listener or session for a minute.";
    ConfigurationRefused Error "configuration_refused" "A configuration was refused; the old one stays: `error`.";
    ListenerAttached Info "listener_attached" "A listener's socket is in use: `listener`, `worker`.";
    ListenerReleased Info "listener_released" "A listener's socket is not in use any more: `listener`, `worker`.";
    ListenerSteered Info "listener_steered" "In Envoy, the gateway's threads read the listener: `listener`, `detail`.";
    ListenerNotSteered Warning "listener_not_steered" "Envoy reads part or all of the listener, which costs more: `listener`, `detail`.";
    ListenerUnavailable Error "listener_unavailable" "A listener's socket was not found; its clients are not served: `error`.";
    StreamUnavailable Error "stream_unavailable" "A live stream cannot be received or sent to its group: `upstream`, `group`, `error`, `retry_seconds` until the next attempt.";
    StreamAvailable Info "stream_available" "A live stream can be received again.";
    SessionOpened Info "session_opened" "A client is new: `endpoint`, `worker`.";
    SessionClosed Info "session_closed" "A client has gone: `reason`, `seconds`, totals `to_client_datagrams`, `to_client_bytes`, `to_server_datagrams`, `to_server_bytes`, `repairs`.";
    EndpointChanged Info "session_moved" "A session's endpoint was removed; it has another: `from`, `to`.";
    ClientMoved Info "client_moved" "A session followed its client to another address: `from`.";
    ClientWaiting Debug "client_waiting" "Datagrams of an unknown address wait: their client may have moved.";
    ClientWaitedInVain Debug "client_waited_in_vain" "Datagrams that waited belonged to a new client: `datagrams`.";
    SessionRefused Warning "session_refused" "A datagram of a new client was dropped: `reason`.";
    SessionsLimited Warning "sessions_limited" "The process cannot hold the configured number of sessions: `maximum_sessions`, `in_force`, `reason`.";
    UpstreamError Warning "upstream_error" "A server could not be reached, or refused: `endpoint`, `error`.";
    DownstreamError Warning "downstream_error" "A client could not be reached: `dropped`, `error`.";
    SegmentationUnavailable Warning "segmentation_offload_unavailable" "The kernel refuses GSO; sending costs more.";
    ReceiveBufferSmall Warning "receive_buffer_small" "The kernel gives small receive buffers: `bytes`, `advice`.";
    ControlDropped Info "control_dropped" "A control datagram was dropped: `reason`.";
    AssistanceBegun Info "assistance_begun" "A client's handshake is finished: `assistance`.";
    AssistanceEnded Info "assistance_ended" "Assistance has ended: `side`, `reason`, totals `repaired`, `repair_transmissions`, `unrepairable`, `decode_failures`, `resets`, `cache_high_water_bytes`.";
    Reset Warning "reset" "Gateway and client begin anew with empty sets: `side`, `reason`, `epoch`.";
    SendersJudged Warning "senders_judged" "By reports from three networks, the route's sessions begin without repairs (`tolerant` is true: senders tolerate losses) or with repairs again.";
    AssistanceStopped Warning "assistance_stopped" "Assistance stops: median goodput of assisted sessions is `speedup` times that of sessions held out, with 99 % confidence between `lower` and `upper`; next trial after `retry_seconds`.";
    AssistanceTried Info "assistance_tried" "Stopped assistance is tried again, for half of the clients.";
    AssistanceResumed Info "assistance_resumed" "The trial has not shown assistance to be slower: `speedup`, `lower`, `upper`.";
    Assistance Info "assistance" "Another event of assistance: `detail`.";
    AssistancePanic Error "assistance_panic" "A fault in assistance; the flow continues without it: `message`.";
    WorkerError Error "worker_error" "An I/O thread met an error: `message`, `error`.";
    Draining Info "draining" "The gateway shuts down: it assists no new clients; forwarding and running assistance continue.";
    Shutdown Info "shutdown" "All sessions have ended.";
}
