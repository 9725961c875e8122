//! Reads pieces of memory for the sweep, those that lie side by side together.

use super::plan::{Piece, Source};
use crate::control::Control;
use crate::kernel::physical::{read_pages, Physical};

/// Takes what a batch has read.
pub(super) trait Taker {
    fn page_bits(&self) -> u32;

    /// Takes the bytes of a piece. Pages that the dump lacks are zeros; so many of them are `missing`.
    fn take(&mut self, source: Source, bytes: &[u8], missing: u64);
}

/// Pieces that lie side by side. They are read together.
pub(super) struct Batch<'a> {
    pieces: Vec<Piece>,
    bytes: Vec<u8>,
    most: u64,
    ignored: &'a [u64],
}

impl<'a> Batch<'a> {
    /// Reads at most so many pages together. `ignored`: see [`super::sweep::Memory`].
    pub(super) fn new(most: u64, ignored: &'a [u64]) -> Batch<'a> {
        Batch { pieces: Vec::new(), bytes: Vec::new(), most: most.max(1), ignored }
    }

    fn end(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.pfn + piece.pages)
    }

    /// Adds a piece. What was added before may be read now.
    pub(super) fn add(&mut self, taker: &mut impl Taker, physical: &dyn Physical, piece: Piece, control: &Control) {
        let mut piece = piece;
        // A slab is read whole. Other pages are read as they come.
        while !matches!(piece.source, Source::Slab(_)) && piece.pages > self.most {
            let hole = physical.hole(piece.pfn << taker.page_bits(), piece.pages << taker.page_bits());
            let skip = (hole >> taker.page_bits()).min(piece.pages);
            (piece.pfn, piece.pages) = (piece.pfn + skip, piece.pages - skip);
            let now = piece.pages.min(self.most);
            if now > 0 {
                self.put(taker, physical, Piece { pages: now, ..piece }, control);
            }
            (piece.pfn, piece.pages) = (piece.pfn + now, piece.pages - now);
        }
        if piece.pages > 0 {
            self.put(taker, physical, piece, control);
        }
    }

    fn put(&mut self, taker: &mut impl Taker, physical: &dyn Physical, piece: Piece, control: &Control) {
        let begin = self.pieces.first().map_or(piece.pfn, |first| first.pfn);
        if self.end() != piece.pfn || piece.pfn + piece.pages - begin > self.most {
            self.flush(taker, physical, control);
        }
        self.pieces.push(piece);
    }

    /// Reads all pieces.
    pub(super) fn flush(&mut self, taker: &mut impl Taker, physical: &dyn Physical, control: &Control) {
        let Some(first) = self.pieces.first().map(|piece| piece.pfn) else { return };
        let bits = taker.page_bits();
        let size = ((self.end() - first) << bits) as usize;
        self.bytes.resize(size, 0);
        let mut lost = Vec::new();
        read_pages(physical, first << bits, bits, &mut self.bytes, |page| lost.push(first + page as u64));
        blank(self.ignored, first << bits, &mut self.bytes);
        control.add(size as u64);
        for piece in self.pieces.drain(..) {
            let from = ((piece.pfn - first) << bits) as usize;
            let bytes = &self.bytes[from..from + (piece.pages << bits) as usize];
            let missing = lost.iter().filter(|pfn| (piece.pfn..piece.pfn + piece.pages).contains(pfn)).count();
            taker.take(piece.source, bytes, missing as u64);
        }
    }
}

/// Overwrites the words that lie at `ignored` (sorted) with zeros. The bytes begin at the physical address `start`.
pub(super) fn blank(ignored: &[u64], start: u64, bytes: &mut [u8]) {
    let from = ignored.partition_point(|at| *at < start);
    for at in ignored[from..].iter().map_while(|at| usize::try_from(at - start).ok()) {
        let Some(word) = bytes.get_mut(at..at.saturating_add(8)) else { break };
        word.fill(0);
    }
}
