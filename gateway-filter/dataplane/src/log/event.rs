//! What can happen, with its level.

use super::Level;

macro_rules! events {
    ($($variant:ident $level:ident $name:literal;)*) => {
        /// What happened; the value of the key `event`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Event {
            $(#[doc = concat!("`", $name, "`")] $variant,)*
        }

        impl Event {
            pub(super) const COUNT: usize = [$(Self::$variant,)*].len();

            /// The text in the log line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The level of its lines.
            pub const fn level(self) -> Level {
                match self { $(Self::$variant => Level::$level,)* }
            }
        }
    };
}

events! {
    RouteConfigured Info "route_configured";
    ConfigurationRefused Error "configuration_refused";
    ListenerAttached Info "listener_attached";
    ListenerReleased Info "listener_released";
    ListenerUnavailable Error "listener_unavailable";
    SessionOpened Info "session_opened";
    SessionClosed Info "session_closed";
    SessionMoved Info "session_moved";
    ClientMoved Info "client_moved";
    ClientWaiting Debug "client_waiting";
    ClientWaitedInVain Debug "client_waited_in_vain";
    SessionRefused Warning "session_refused";
    SessionsLimited Warning "sessions_limited";
    UpstreamError Warning "upstream_error";
    DownstreamError Warning "downstream_error";
    SegmentationUnavailable Warning "segmentation_offload_unavailable";
    ReceiveBufferSmall Warning "receive_buffer_small";
    ControlDropped Info "control_dropped";
    AssistanceBegun Info "assistance_begun";
    AssistanceEnded Info "assistance_ended";
    Reset Warning "reset";
    Assistance Info "assistance";
    AssistancePanic Error "assistance_panic";
    WorkerError Error "worker_error";
    Draining Info "draining";
    Shutdown Info "shutdown";
}
