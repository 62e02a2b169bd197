//! The last lines, for watching without access to the log.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value};

/// Lines that are kept.
const KEPT_LINES: usize = 1024;

/// A line of the log, with its number.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// Number of the line, from 1, one more with each line.
    pub number: u64,
    /// The keys and values.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    newest: u64,
    lines: VecDeque<Line>,
}

impl Recent {
    pub(super) fn push(&self, fields: &Map<String, Value>) {
        let mut ring = self.0.lock();
        ring.newest += 1;
        let number = ring.newest;
        if ring.lines.len() >= KEPT_LINES {
            ring.lines.pop_front();
        }
        ring.lines.push_back(Line { number, fields: fields.clone() });
    }

    pub(super) fn newest(&self) -> u64 {
        self.0.lock().newest
    }

    pub(super) fn after(&self, after: u64, limit: usize) -> Vec<Line> {
        let ring = self.0.lock();
        ring.lines.iter().filter(|line| line.number > after).take(limit).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_lines_make_room_and_numbers_go_on() {
        let recent = Recent::default();
        for _ in 0..KEPT_LINES + 10 {
            recent.push(&Map::new());
        }
        assert_eq!(recent.newest(), KEPT_LINES as u64 + 10);
        let lines = recent.after(0, usize::MAX);
        assert_eq!((lines.len(), lines[0].number), (KEPT_LINES, 11));
        assert_eq!(recent.after(KEPT_LINES as u64 + 8, 1)[0].number, KEPT_LINES as u64 + 9);
    }
}
