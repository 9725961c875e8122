//! Whole runs of chunks that one thread scans one after the other. Their edges have no gaps.
//!
//! A run has room for an edge at each word, and needs a small part of it. If each heap of a thread arena (64 MB) had its own
//! room, the huge page where its edges end would be half empty: 3 bytes for each block.

use super::chunk_scan::ChunkScan;
use super::part::Part;
use super::report::Request;
use crate::blocks::number::Index;
use crate::blocks::string_room::Headers;
use crate::blocks::word_map::PlacedRun;
use crate::control::Control;

/// The most bytes of several runs in a batch, so that all threads end at about the same time.
const MOST: u64 = 512 << 20;

/// Runs of chunks that follow each other, or a part of one, and the room for their edges.
pub(super) struct Batch<'a, I: Index, const P: usize> {
    scans: Vec<ChunkScan<'a, I, P>>,
    first: usize,
    edges: &'a mut [I],
}

impl<'a, I: Index, const P: usize> Batch<'a, I, P> {
    /// Makes a batch of scans. `first` is the number of the first edge in `edges`, the room for all of them.
    pub(super) fn new(scans: Vec<ChunkScan<'a, I, P>>, first: usize, edges: &'a mut [I]) -> Self {
        Batch { scans, first, edges }
    }

    /// Scans the runs.
    #[inline(always)]
    pub(super) fn run(self, buffer: &mut Vec<u8>, headers: &mut Headers<I>, request: &Request, control: &Control) {
        let Batch { scans, mut first, mut edges } = self;
        for mut scan in scans {
            scan.set_room(first, edges);
            scan.run(buffer, headers, request, control);
            (first, edges) = scan.room_left();
        }
    }
}

/// Returns how many of the next runs of chunks make a batch, with up to `most` bytes. Each is there with its parts: a run
/// of several parts is no batch.
pub(super) fn count(runs: &[PlacedRun], next: &[(usize, Vec<Part>)], most: u64) -> usize {
    let Some(&(first, _)) = next.first() else { return 0 };
    let mut bytes = 0u64;
    let fits = |&(place, (index, parts)): &(usize, &(usize, Vec<Part>))| {
        let run = runs[*index].run;
        bytes = bytes.saturating_add(run.end - run.start);
        *index == first + place && parts.len() == 1 && (place == 0 || bytes <= most.min(MOST))
    };
    next.iter().enumerate().take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::runs::{Kind, Owner, Run};
    use crate::blocks::word_map::WordMap;
    use crate::image::PROCESS;

    #[test]
    fn a_batch_has_neighbours_that_are_not_divided() {
        let run = |at: u64, kind| Run::of_chunks(at << 30, (at << 30) + (100 << 20), kind, Owner::default(), 4096);
        let kinds = [Kind::Main, Kind::Main, Kind::Extent, Kind::Thread, Kind::Thread, Kind::Thread];
        let runs: Vec<Run> = (1..).zip(kinds).map(|(at, kind)| run(at, kind)).collect();
        let (word_map, _) = WordMap::<2>::new(runs, PROCESS, 1);
        let whole = |index: usize| (index, vec![Part::whole(&word_map.runs[index])]);
        let mut next = [0, 1, 3, 4, 5].map(whole);
        let count = |next: &[(usize, Vec<Part>)], most: u64| super::count(&word_map.runs, next, most << 20);
        assert_eq!(count(&next, 1000), 2);
        assert_eq!(count(&next[1..], 1000), 1);
        assert_eq!(count(&next[2..], 1000), 3);
        assert_eq!(count(&next[2..], 250), 2);
        assert_eq!(count(&next[2..], 50), 1);
        assert_eq!(count(&[], 1000), 0);
        let part = next[4].1[0];
        next[4].1.push(part);
        assert_eq!(count(&next[2..], 1000), 2);
        assert_eq!(count(&next[4..], 1000), 0);
    }
}
