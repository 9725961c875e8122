//! A group: slots of one size side by side, in a mapping of their own, in a slot of a larger group, or in memory that the
//! dynamic linker gave away.

use super::layout::{Layout, CLASSES, IN_BAND, MAPPED_UNIT, SINGLE, UNIT};
use crate::words::USER_END;

/// No group, or no slot.
pub const NONE: u32 = u32::MAX;

/// A group as its meta describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// The address of its `struct meta`.
    pub meta: u64,
    /// The address of its `struct group`: its header, and the slots behind it.
    pub start: u64,
    /// The end of its memory.
    pub end: u64,
    /// Bytes of a slot.
    pub stride: u64,
    /// How many slots it has, at most 32.
    pub count: u32,
    /// Its size class.
    pub class: u8,
    /// Whether it has a mapping of its own.
    pub mapped: bool,
    /// Whether malloc may give its memory back. It may not where the dynamic linker gave it away.
    pub freeable: bool,
    /// The slots that are free, from bit 0 on: those that malloc takes next (`avail_mask`).
    pub avail: u32,
    /// The slots that are free and were not collected yet, or never used (`freed_mask`).
    pub freed: u32,
    /// The slots that hold another group.
    pub nested: u32,
    /// The index of the group that holds this one, or NONE.
    pub parent: u32,
}

impl Group {
    /// Returns where a slot begins.
    pub fn slot(&self, index: u32) -> u64 {
        self.start + UNIT + self.stride * u64::from(index)
    }

    /// Returns where the memory of a slot ends that a block may use. Behind it stands the header of the next slot.
    pub fn slot_end(&self, index: u32) -> u64 {
        self.slot(index) + self.stride - IN_BAND
    }

    /// Returns the slot that holds the address, or None for the group's header.
    pub fn slot_of(&self, address: u64) -> Option<u32> {
        let offset = address.checked_sub(self.start + UNIT)?;
        u32::try_from(offset / self.stride).ok().filter(|&slot| slot < self.count)
    }

    /// Returns whether it lies in no other group.
    pub fn is_outermost(&self) -> bool {
        self.parent == NONE
    }

    /// Returns whether the slot holds a block or a group.
    pub fn in_use(&self, slot: u32) -> bool {
        (self.avail | self.freed) >> slot & 1 == 0
    }
}

/// What is wrong with a meta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Its bit fields describe no group.
    Fields,
    /// The group does not lie where memory can be.
    Place,
}

/// Reads a meta. None: it describes no group now (`mem` is 0).
pub fn read(bytes: &[u8], meta: u64, layout: Layout) -> Option<Result<Group, Flaw>> {
    let word = layout.word as usize;
    let value = |at: usize, size: usize| {
        let mut full = [0; 8];
        full[..size].copy_from_slice(bytes.get(at..at + size)?);
        Some(u64::from_le_bytes(full))
    };
    let start = value(2 * word, word)?;
    let (avail, freed) = (value(3 * word, 4)? as u32, value(3 * word + 4, 4)? as u32);
    let fields = value(3 * word + 8, word)?;
    if start == 0 {
        return None;
    }
    let (count, freeable) = ((fields & 31) as u32 + 1, fields >> 5 & 1 != 0);
    let (class, length) = ((fields >> 6 & 63) as u8, (fields >> 12).saturating_mul(MAPPED_UNIT));
    let unit = CLASSES.get(usize::from(class)).map(|&units| u64::from(units) * UNIT);
    let single = class == SINGLE && count == 1 && length > 0;
    let beyond = if count == 32 { 0 } else { u32::MAX << count };
    if (unit.is_none() && !single) || (avail | freed) & beyond != 0 || avail & freed != 0 {
        return Some(Err(Flaw::Fields));
    }
    // A slot that is alone in a mapping has all of it (get_stride).
    let stride = match unit {
        Some(unit) if count > 1 || length == 0 => unit,
        _ => length.saturating_sub(UNIT),
    };
    let slots = stride.saturating_mul(u64::from(count)).saturating_add(UNIT);
    let size = if length > 0 { length } else { slots };
    let end = start.checked_add(size).filter(|&end| end < USER_END);
    let fits = slots <= size && start % UNIT == 0;
    match end {
        Some(end) if fits && (length == 0 || start % MAPPED_UNIT == 0) => Some(Ok(Group {
            meta,
            start,
            end,
            stride,
            count,
            class,
            mapped: length > 0,
            freeable,
            avail,
            freed,
            nested: 0,
            parent: NONE,
        })),
        _ => Some(Err(Flaw::Place)),
    }
}
