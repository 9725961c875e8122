//! Reads a radix tree of extents, and checks that the extents lead back to it.

use super::extents::SPARE;
use super::extents::{Extent, Extents};
use super::layout::{is_table, part, Fault, Layout};
use crate::blocks::runs::SLOTS;
use crate::cached_reader::CachedReader;
use crate::control::{Control, Stopped};
use crate::image::Image;
use crate::nonzero_words::each_word;
use crate::words::USER_END;
use std::collections::HashSet;

/// Words of an `edata_t` before its slab's bitmap.
const EDATA_WORDS: usize = 8;
/// The word numbers of `e_addr`, `e_size_esn` and the slab's bitmap, the same in every release from 5.0 to 5.3.1. (A
/// bitmap of more than 512 bits has a tree above, which follows it.)
pub(super) const E_ADDR: usize = 1;
const E_SIZE: usize = 2;
const E_SLAB: u64 = 8;
/// Bytes of a table read at once.
const BLOCK: usize = 1 << 18;

/// Reads all extents of the tree with that root. With `most` it reads about that many, to try a layout, and looks at few
/// more entries. Another kind of tree may lead to millions of places that are not extents (CPython's tree of its arenas
/// does).
pub fn collect(image: &Image, layout: &Layout, root: u64, most: usize, control: &Control) -> Result<Extents, Stopped> {
    let mut out = Extents { sizes: layout.sizes.clone(), page: layout.page_size(), ..Default::default() };
    let mut tables = vec![(0, root)];
    for level in 0..layout.levels.len() - 1 {
        tables = children(image, layout, level, &tables, &mut out, control)?;
        out.tables.extend(tables.iter().map(|&(_, table)| table));
    }
    let mut reader =
        Reader { layout, window: CachedReader::new(image), seen: HashSet::new(), strays: Vec::new(), last: 0 };
    let last = layout.levels.len() - 1;
    for (path, leaf) in tables {
        if out.is_enough(most) {
            break;
        }
        each_word(image, leaf, leaf.saturating_add(layout.table(last)), BLOCK, |at, entry| {
            if (at - leaf) % layout.entry == 0 {
                let page = ((path << layout.levels[last]) | ((at - leaf) / layout.entry)) << layout.page;
                reader.entry(&mut out, page, entry, at);
            }
            !out.is_enough(most) && !control.cancelled()
        });
        if control.cancelled() {
            return Err(Stopped::Cancelled);
        }
    }
    for (edata, page) in reader.strays {
        if !reader.seen.contains(&edata) {
            out.fault(Fault::Address, edata, page);
        }
    }
    out.settle();
    Ok(out)
}

/// Returns the tables that those of a level lead to, each with the path of entries. A table is read once, and tables must
/// not overlap: otherwise a crafted root would cost hours.
fn children(
    image: &Image,
    layout: &Layout,
    level: usize,
    tables: &[(u64, u64)],
    out: &mut Extents,
    control: &Control,
) -> Result<Vec<(u64, u64)>, Stopped> {
    let mut found: Vec<(u64, u64)> = Vec::new();
    for &(path, table) in tables {
        each_word(image, table, table.saturating_add(layout.table(level)), BLOCK, |at, child| {
            if is_table(child) {
                found.push(((path << layout.levels[level]) | ((at - table) / 8), child));
            } else {
                out.fault(Fault::Missing, child, at);
            }
            !control.cancelled()
        });
    }
    if control.cancelled() {
        return Err(Stopped::Cancelled);
    }
    found.sort_unstable_by_key(|&(path, table)| (table, path));
    let size = layout.table(level + 1);
    found.dedup_by(|next, kept| next.1 - kept.1 < size);
    Ok(found)
}

struct Reader<'a> {
    layout: &'a Layout,
    window: CachedReader<'a>,
    seen: HashSet<u64>,
    /// Entries of pages that are not in use, with an extent that lies elsewhere.
    strays: Vec<(u64, u64)>,
    last: u64,
}

impl Reader<'_> {
    /// Reads an entry of a leaf, at `at`, for the page.
    fn entry(&mut self, out: &mut Extents, page: u64, entry: u64, at: u64) {
        let edata = entry & self.layout.pointer;
        // An extent that is gone leaves a size class behind. A slab is there once for each page.
        if edata == 0 || edata == self.last {
            return;
        }
        self.last = edata;
        out.entries += 1;
        let copies = if self.layout.entry == 8 { Some(entry) } else { self.window.word(at + 8, 8) };
        match self.extent(out, page, edata, copies.unwrap_or(0)) {
            Ok(Some(extent)) => out.all.push(extent),
            Ok(None) => {}
            Err(fault) => out.fault(fault, edata, page),
        }
    }

    /// Returns the extent that an entry of the tree leads to. None where another page has led there.
    fn extent(&mut self, out: &mut Extents, page: u64, edata: u64, copies: u64) -> Result<Option<Extent>, Fault> {
        let layout = self.layout;
        if edata % layout.alignment != 0 || edata >= USER_END {
            return Err(Fault::Missing);
        }
        let words: [u64; EDATA_WORDS] = self.window.words(edata, 8).ok_or(Fault::Missing)?;
        let bits = |field| part(words[0], field);
        let unit = layout.page_size();
        let (address, size) = (words[E_ADDR], words[E_SIZE] / unit * unit);
        let start = address / unit * unit;
        let sound = size > 0 && start < USER_END && size < USER_END && start + size <= USER_END;
        let slab = bits(layout.slab) != 0;
        let last = start.wrapping_add(size).wrapping_sub(unit);
        let copied = (part(copies, layout.leaf_szind) as usize, part(copies, layout.leaf_slab) != 0);
        if !sound || !(page == start || page == last || slab && (start..last).contains(&page)) {
            // Guarded extents (opt.san_guard_small) are cut from a larger one. The entry of its last page still names
            // the old record (san_bump_alloc in src/san_bump.c), which is cleared or serves another extent. That is not
            // a fault if the tree leads to the other extent too.
            let cleared = address == 0 && size == 0;
            if copied != (layout.sizes.len(), false) || !(sound || cleared) {
                return Err(Fault::Address);
            }
            self.strays.extend(sound.then_some((edata, page)));
            return Ok(None);
        }
        let (state, szind) = (bits(layout.state), bits(layout.szind) as usize);
        if state > 5 || szind > layout.sizes.len() {
            return Err(Fault::Bits);
        }
        if !self.seen.insert(edata) {
            return Ok(None);
        }
        let used = state == 0 && szind < layout.sizes.len();
        // For a large extent only the entry of the first page is kept up to date. For an extent that is not in use no
        // entry is (emap_remap in src/emap.c).
        if used && page == start && copied != (szind, slab) {
            return Err(Fault::Leaf);
        }
        if layout.leaf_state.1 > 0 && part(copies, layout.leaf_state) != state {
            // jemalloc changes the two one after the other.
            out.fault(Fault::Leaf, edata, page);
        }
        let (mut map, mut free) = (0, 0);
        if used && slab {
            let slots = size / layout.sizes[szind];
            if szind >= layout.bins || address != start || slots == 0 || slots > (unit / 8).min(SLOTS as u64) {
                return Err(Fault::Size);
            }
            map = out.maps.len() as u32;
            free = self.bitmap(&mut out.maps, edata, slots).ok_or(Fault::Missing)?;
            if free != bits(layout.nfree) {
                out.fault(Fault::Free, edata, page);
            }
        } else if used && (address - start >= size || size < unit) {
            return Err(Fault::Size);
        }
        Ok(Some(Extent {
            edata,
            start,
            size,
            address,
            arena: bits(layout.arena) as u16,
            state: if state == 0 && !used { SPARE } else { state as u8 },
            szind: szind as u16,
            slab,
            map,
            free: free as u32,
        }))
    }

    /// Appends the bits of the slab's first `slots` regions. Returns how many are set, which means free.
    fn bitmap(&mut self, maps: &mut Vec<u64>, edata: u64, slots: u64) -> Option<u64> {
        let mut free = 0;
        for group in 0..slots.div_ceil(64) {
            let kept = (slots - group * 64).min(64);
            let word = self.window.word(edata + (E_SLAB + group) * 8, 8)? & (u64::MAX >> (64 - kept));
            free += u64::from(word.count_ones());
            maps.push(word);
        }
        Some(free)
    }
}
