//! The header of a slot.
//!
//! The four bytes before a block are: a byte that is 0 (or says that the offset has 32 bits), three bits for the bytes at
//! the slot's end that the block does not use with five bits for the slot's number, and the distance to the group in
//! units (meta.h, `enframe` and `get_nominal_size`).

use super::group::Group;
use super::layout::UNIT;
use crate::cached_reader::CachedReader;

/// The first byte of a slot whose block begins further on.
const MOVED: u64 = 7 << 5;
/// What free() writes there.
const FREED: u64 = 255;
/// The bytes that are not used are counted at the slot's end.
const COUNTED: u64 = 5;
/// The slot holds a group.
const GROUP: u64 = 6;
/// Units that the 16 bits of an offset can say.
const FAR: u64 = 1 << 16;
/// How many places are tried where an alignment of more than a megabyte moved a block.
const MOST_PLACES: u64 = 1 << 16;

/// A block in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its address, as malloc returned it.
    pub start: u64,
    /// The bytes that were asked for.
    pub size: u64,
}

/// What is wrong with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Its header is not one. The block has all of its slot.
    Header,
    /// No count of unused bytes is at its end. The block has all of its slot.
    Reserved,
    /// The first byte of its header is not 0.
    Check,
    /// The byte behind it is not 0.
    Overflow {
        /// The byte.
        byte: u8,
        /// Where it is.
        at: u64,
    },
}

/// The content of a slot that the masks have in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A block, and what is wrong with it.
    Block(Block, Option<Damage>),
    /// A thread is about to give it out or has begun to free it: the header says that it is free.
    Between,
    /// The dump does not have its header.
    Missing,
}

/// The four bytes before an address.
#[derive(Clone, Copy)]
struct Header {
    check: u64,
    tag: u64,
    offset: u64,
    /// The four bytes before these.
    before: u64,
}

fn header(reader: &mut CachedReader, at: u64) -> Option<Header> {
    let word = reader.word(at.checked_sub(8)?, 8)?;
    Some(Header { before: word & 0xffff_ffff, check: word >> 32 & 255, tag: word >> 40 & 255, offset: word >> 48 })
}

impl Header {
    /// Returns whether it belongs to slot number `index` and lies `distance` bytes behind the group's first slot.
    ///
    /// The first byte may be anything where the offset has 16 bits: a block that was written beyond its end changes it.
    fn fits(self, index: u32, distance: u64) -> bool {
        let units = distance / UNIT;
        let near = self.offset == units && units < FAR;
        let far = self.check != 0 && self.offset == 0 && self.before == units && units >= FAR;
        self.tag & 31 == u64::from(index) && (near || far)
    }
}

/// Reads slot number `index`, which the masks of the group have in use.
pub fn read(reader: &mut CachedReader, group: &Group, index: u32) -> Slot {
    let (start, end) = (group.slot(index), group.slot_end(index));
    let Some(first) = header(reader, start) else { return Slot::Missing };
    let whole = |at: u64, damage| Slot::Block(Block { start: at, size: end - at }, Some(damage));
    let (at, header) = if first.tag == MOVED {
        match moved(reader, group, index, first.offset) {
            Some(found) => found,
            None => return Slot::Missing,
        }
    } else {
        (start, first)
    };
    let never_used = header.check == 0 && header.tag == 0 && header.offset == 0 && index > 0;
    if header.tag == FREED || never_used || header.tag >> 5 == GROUP {
        return Slot::Between;
    }
    if !header.fits(index, at - group.slot(0)) {
        return whole(at, Damage::Header);
    }
    let reserved = match header.tag >> 5 {
        COUNTED => {
            let count = reader.word(end - 4, 4).filter(|&count| (COUNTED..=end - at).contains(&count));
            match count.filter(|_| reader.word(end - 5, 1) == Some(0)) {
                Some(count) => count,
                None => return whole(at, Damage::Reserved),
            }
        }
        few if few <= end - at && few < COUNTED => few,
        _ => return whole(at, Damage::Header),
    };
    let after = end - reserved;
    let overflow = [after, end].into_iter().find_map(|at| {
        let byte = reader.word(at, 1).filter(|&byte| byte != 0)?;
        Some(Damage::Overflow { byte: byte as u8, at })
    });
    // The block before this one is told, if it did it.
    let told = at == start && index > 0 && group.in_use(index - 1) && group.nested >> (index - 1) & 1 == 0;
    let check = (header.check != 0 && header.offset != 0 && !told).then_some(Damage::Check);
    let damage = overflow.or(check);
    Slot::Block(Block { start: at, size: after - at }, damage)
}

/// Returns where the block of a slot begins that lies `units` behind the slot's beginning, and its header.
///
/// The bits of `units` above the 16th are lost. Where the header does not fit at the nearest place, it fits further on. If
/// it fits nowhere, it is damaged: then the nearest place is returned.
fn moved(reader: &mut CachedReader, group: &Group, index: u32, units: u64) -> Option<(u64, Header)> {
    let (start, end) = (group.slot(index), group.slot_end(index));
    let nearest = start + units * UNIT;
    if nearest >= end {
        return header(reader, start).map(|first| (start, first));
    }
    let first = header(reader, nearest)?;
    let fits = |found: Header, at: u64| found.fits(index, at - group.slot(0));
    if fits(first, nearest) || first.tag == FREED {
        return Some((nearest, first));
    }
    let places = (1..MOST_PLACES).map(|more| nearest.saturating_add(more * FAR * UNIT)).take_while(|&at| at < end);
    let mut found = places.filter_map(|at| header(reader, at).map(|header| (at, header)));
    Some(found.find(|&(at, header)| fits(header, at)).unwrap_or((nearest, first)))
}
