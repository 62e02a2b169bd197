//! Limits of connections that are so large that only the network and the congestion control decide.

use s2n_quic::provider::limits::Limits;
use std::error::Error;

/// Flow control windows and send buffers, bytes: large enough that they never limit a trial.
pub(crate) const WINDOW_BYTES: u64 = 32 << 20;
const SEND_BUFFER: u32 = 8 << 20;

/// Limits of both ends: only the network and the congestion control decide.
pub(crate) fn limits() -> Result<Limits, Box<dyn Error>> {
    Ok(Limits::new()
        .with_data_window(WINDOW_BYTES)?
        .with_bidirectional_remote_data_window(WINDOW_BYTES)?
        .with_bidirectional_local_data_window(WINDOW_BYTES)?
        .with_max_send_buffer_size(SEND_BUFFER)?)
}
