//! Where pointers into some memory lie.

use super::batch::blank;
use super::code::constants;
use super::device_address;
use super::freelists::{state, States};
use super::plan::{has_struct_page, pieces, Source};
use super::sweep::{show, Memory};
use super::table::Table;
use crate::control::{Control, Stopped};
use crate::kernel::frame_set::FrameSet;
use crate::kernel::virtual_memory::VirtualMemory;

/// A word that points into the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Where it lies: a direct-map address, or that of a `struct page` or of an instruction.
    pub at: u64,
    /// Its value.
    pub value: u64,
    /// What it is: one of [`state`]'s PLAIN, STACK, UNALIGNED, PHYSICAL.
    pub class: u8,
}

/// Finds words that point into `[start, end)`, which are direct-map addresses, or that are the physical address
/// of the object at `start`. Words in free objects do not count.
/// Returns the first `most`, and how many there are.
pub fn holders(
    table: &Table,
    states: &States,
    memory: &mut VirtualMemory,
    what: &Memory,
    (start, end): (u64, u64),
    most: usize,
    control: &Control,
) -> Result<(Vec<Holder>, u64), Stopped> {
    let bits = table.page_bits();
    let mut search = Search {
        table,
        states: &states.of,
        start,
        size: end.wrapping_sub(start),
        physical: table.physical(start),
        most,
        found: Vec::new(),
        count: 0,
    };
    for range in what.code {
        constants(memory, *range, |at, value| {
            if value.wrapping_sub(start) < search.size {
                search.add(at, value, state::PLAIN);
            }
        });
    }
    let size = what.layout.size;
    let at_once = (memory.physical.granule() / size).max(1) as u64;
    let (mut page, mut own) = (vec![0; at_once as usize * size], FrameSet::default());
    let mut before = 0u64;
    for &(first, last) in what.ranges {
        let mut pfn = first;
        while pfn < last {
            if control.cancelled() {
                return Err(Stopped::Cancelled);
            }
            let count = at_once.min(last - pfn);
            let at = (before + pfn - first) as usize;
            let kinds = what.kinds.get(at..at + count as usize).unwrap_or_default();
            if let Some(address) = what.layout.page(pfn).filter(|_| kinds.iter().any(|kind| has_struct_page(*kind))) {
                let wanted = count as usize * size;
                show(table, memory, address, wanted as u64, &mut own);
                let got = memory.read(address, &mut page[..wanted]) / size;
                for (number, _) in kinds.iter().enumerate().take(got).filter(|(_, kind)| has_struct_page(**kind)) {
                    search.words(
                        &page[number * size..][..size],
                        address.wrapping_add((number * size) as u64),
                        state::PLAIN,
                    );
                }
            }
            pfn += count;
        }
        before += last - first;
    }
    let physical = memory.physical;
    let mut bytes = Vec::new();
    pieces(
        table,
        what.ranges,
        what.kinds,
        |pfn| own.contains(pfn) || what.is_unread(pfn),
        |piece| {
            if control.cancelled() {
                return;
            }
            let mut done = 0;
            while done < piece.pages {
                let now =
                    if matches!(piece.source, Source::Slab(_)) { piece.pages } else { (piece.pages - done).min(64) };
                let at = (piece.pfn + done) << bits;
                bytes.resize((now << bits) as usize, 0);
                let got = physical.read(at, &mut bytes);
                blank(what.ignored, at, &mut bytes);
                let address = table.address(at);
                match piece.source {
                    Source::Slab(index) => {
                        let slab = &table.slabs[index as usize];
                        let (stride, skip, scanned) = match table.caches.get(slab.cache as usize) {
                            Some(cache) => (cache.size as usize, cache.red_left as usize, cache.scanned as usize),
                            None => (bytes.len(), 0, bytes.len()),
                        };
                        for slot in 0..usize::from(slab.objects) {
                            let from = slot * stride + skip;
                            if states.of[slab.first as usize + slot] < state::OWN && from + scanned <= got {
                                search.words(
                                    &bytes[from..from + scanned],
                                    address.wrapping_add(from as u64),
                                    state::PLAIN,
                                );
                            }
                        }
                    }
                    Source::Pages => search.words(&bytes[..got], address, state::PLAIN),
                    Source::Stack => search.words(&bytes[..got], address, state::STACK),
                }
                done += now;
            }
        },
    );
    if control.cancelled() {
        return Err(Stopped::Cancelled);
    }
    Ok((search.found, search.count))
}

struct Search<'a> {
    table: &'a Table,
    states: &'a [u8],
    start: u64,
    size: u64,
    physical: u64,
    most: usize,
    found: Vec<Holder>,
    count: u64,
}

impl Search<'_> {
    fn words(&mut self, bytes: &[u8], address: u64, class: u8) {
        let mut before = 0u64;
        for (index, word) in bytes.chunks_exact(8).enumerate() {
            let value = u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8]));
            let at = address.wrapping_add(index as u64 * 8); // the direct map may wrap around
            if value.wrapping_sub(self.start) < self.size {
                self.add(at, value, class);
            } else if value == self.physical
                && value >= device_address::LEAST
                && device_address::is_meant(self.table, self.states, bytes, index, value)
            {
                self.add(at, value, state::PHYSICAL);
            }
            let between = before >> 32 | value << 32;
            if between.wrapping_sub(self.start) < self.size {
                self.add(at.wrapping_sub(4), between, state::UNALIGNED);
            }
            before = value;
        }
    }

    fn add(&mut self, at: u64, value: u64, class: u8) {
        self.count += 1;
        if self.found.len() < self.most {
            self.found.push(Holder { at, value, class });
        }
    }
}
