//! Messages of conditions, in the length that the API server takes.

/// Longest message, in bytes; the API server takes 32768.
const MAXIMUM_MESSAGE_BYTES: usize = 4096;

/// A message that the API server takes.
pub(crate) fn shortened(mut message: String) -> String {
    if message.len() > MAXIMUM_MESSAGE_BYTES {
        let mut end = MAXIMUM_MESSAGE_BYTES;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push('…');
    }
    message
}
