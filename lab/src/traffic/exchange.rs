//! Downloads and uploads on the streams of a connection.

use super::arrivals::Arrivals;
use crate::connection::{ClientConnection, Outcome, Request, Stream};
use crate::simulation::clock::VirtualClock;
use bytes::Bytes;
use std::sync::Arc;

/// Bytes given to a stream at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// Content of every stream.
static ZERO_CHUNK: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];
/// Downloads an object, counting its bytes.
pub(crate) async fn fetch(
    mut connection: ClientConnection,
    size: u64,
    clock: VirtualClock,
    arrivals: Arc<Arrivals>,
) -> Outcome {
    let mut stream = connection.open().await?;
    stream.send(Request { size, upload: false }.bytes()).await?;
    let mut left = size;
    while left > 0 {
        let Some(data) = stream.receive().await? else {
            return Err("the server ended an answer early".into());
        };
        left = left.saturating_sub(data.len() as u64);
        arrivals.add(data.len() as u64, clock);
    }
    Ok(())
}

/// Uploads an object; the server counts its bytes. Ends when all of them have arrived.
pub(crate) async fn put(mut connection: ClientConnection, size: u64) -> Outcome {
    let mut stream = connection.open().await?;
    stream.send(Request { size, upload: true }.bytes()).await?;
    send_zeroes(&mut stream, size).await?;
    stream.finish()?;
    match stream.receive().await? {
        Some(_) => Ok(()),
        None => Err("the server did not confirm an upload".into()),
    }
}

/// Answers one stream, until the client has gone.
pub(crate) async fn answer(stream: Stream, arrivals: Arc<Arrivals>, clock: VirtualClock) {
    // An error means that the client has gone.
    let _ = try_answer(stream, arrivals, clock).await;
}

async fn try_answer(mut stream: Stream, arrivals: Arc<Arrivals>, clock: VirtualClock) -> Outcome {
    let Some((Request { size, upload }, begun)) = stream.requested().await else { return Ok(()) };
    if upload {
        let mut received = begun;
        arrivals.add(begun, clock);
        while received < size {
            let Some(data) = stream.receive().await? else { return Ok(()) };
            received += data.len() as u64;
            arrivals.add(data.len() as u64, clock);
        }
        stream.send(Bytes::from_static(&ZERO_CHUNK).slice(..1)).await?;
    } else {
        send_zeroes(&mut stream, size).await?;
    }
    stream.finish()
}

async fn send_zeroes(stream: &mut Stream, size: u64) -> Outcome {
    let mut left = size;
    while left > 0 {
        let length = left.min(CHUNK_BYTES as u64);
        stream.send(Bytes::from_static(&ZERO_CHUNK).slice(..length as usize)).await?;
        left -= length;
    }
    Ok(())
}
