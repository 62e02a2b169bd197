//! A web page: objects that are known only when others have arrived.
//!
//! Numbers and bytes of each type are medians of home pages (HTTPArchive24, "Page Weight": number of
//! requests by content type, weight by content type). The rest is this model's: objects of a type
//! are of the same size; all come from one server over one connection; frames, videos, and the time
//! that a browser computes are left out.

use super::arrivals::Arrivals;
use super::exchange::fetch;
use crate::connection::{ClientConnection, Outcome};
use crate::simulation::clock::VirtualClock;
use packrat_emulation::scenario::PageModel;
use s2n_quic::provider::io::testing::spawn;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Objects of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Objects {
    count: u64,
    /// Bytes of all of them.
    bytes: u64,
}

const fn objects(count: u64, kilobytes: u64) -> Objects {
    Objects { count, bytes: kilobytes * 1000 }
}

/// The waves of a page: a wave's objects are requested when the previous wave has arrived.
fn waves(model: PageModel) -> [Vec<Objects>; 3] {
    // Two documents, style sheets, scripts, fonts, images.
    let [documents, styles, scripts, fonts, images] = match model {
        PageModel::Mobile => {
            [objects(2, 18), objects(8, 73), objects(22, 558), objects(3, 111), objects(16, 900)]
        }
        PageModel::Desktop => {
            [objects(2, 18), objects(8, 78), objects(24, 613), objects(4, 131), objects(18, 1054)]
        }
    };
    [vec![documents], vec![styles, scripts], vec![fonts, images]]
}

/// The sizes of a page's objects, wave by wave.
fn sizes(model: PageModel) -> impl Iterator<Item = Vec<u64>> {
    waves(model).into_iter().map(|wave| {
        wave.into_iter()
            .flat_map(|objects| (0..objects.count).map(move |_| objects.bytes / objects.count))
            .collect()
    })
}

/// Loads a page.
pub(super) async fn load(
    model: PageModel,
    connection: &ClientConnection,
    clock: VirtualClock,
    arrivals: &Arc<Arrivals>,
) -> Outcome {
    for wave in sizes(model) {
        let get = |size| fetch(connection.clone(), size, clock, Arc::clone(arrivals));
        together(&wave, get, |_| {}).await?;
    }
    Ok(())
}

/// Transfers objects beside each other; `done` gets the place of each arrived one.
pub(super) async fn together<F>(
    sizes: &[u64],
    transfer: impl Fn(u64) -> F,
    mut done: impl FnMut(usize),
) -> Outcome
where
    F: Future<Output = Outcome> + Send + 'static,
{
    let (sender, mut ended) = mpsc::unbounded_channel();
    for (place, &size) in sizes.iter().enumerate() {
        let (sender, transfer) = (sender.clone(), transfer(size));
        spawn(async move {
            // An error means that the receiver of results is gone.
            let _ = sender.send((place, transfer.await));
        });
    }
    drop(sender);
    while let Some((place, result)) = ended.recv().await {
        result?;
        done(place);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_weight_and_the_requests_of_its_source() {
        for (model, requests, kilobytes) in
            [(PageModel::Mobile, 51, 1660), (PageModel::Desktop, 56, 1894)]
        {
            let all: Vec<u64> = sizes(model).flatten().collect();
            assert_eq!(all.len(), requests);
            // Less than a byte of each object is lost by rounding.
            let bytes = all.iter().sum::<u64>();
            assert!((kilobytes * 1000 - 60..=kilobytes * 1000).contains(&bytes), "{bytes}");
            let waves: Vec<usize> = sizes(model).map(|wave| wave.len()).collect();
            assert_eq!(waves[0], 2, "documents come first, alone");
        }
    }
}
