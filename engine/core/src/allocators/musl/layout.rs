//! The layout of mallocng's structures (meta.h). It depends on the size of a word alone, and is the same from 1.2.1 to
//! 1.2.6.

/// Bytes in a unit: the alignment of blocks, and the size of a group's header.
pub const UNIT: u64 = 16;
/// Bytes of a slot that are the header of the next one ("in-band").
pub const IN_BAND: u64 = 4;
/// Bytes of an area of metas, and its alignment. A page of the machine may be larger.
pub const AREA: u64 = 4096;
/// The unit of a group's mapped length.
pub const MAPPED_UNIT: u64 = 4096;
/// The size class of a block that has a mapping of its own.
pub const SINGLE: u8 = 63;

/// Bytes of a slot by size class, in units.
pub const CLASSES: [u16; 48] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 31, 36, 42, 50, 63, 72, 84, 102, 127, 146, 170, 204, 255, 292,
    340, 409, 511, 584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
];

/// The sizes of structures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes in a word: 4 or 8.
    pub word: u64,
}

impl Layout {
    /// Returns the bytes before the metas of a `struct meta_area`: check (8 bytes), next, nslots (an int).
    pub fn area_header(self) -> u64 {
        8 + 2 * self.word
    }

    /// Returns the bytes of a `struct meta`: prev, next, mem, two masks (ints), and a word of bit fields.
    pub fn meta(self) -> u64 {
        4 * self.word + 8
    }

    /// Returns how many metas an area has.
    pub fn metas(self) -> u64 {
        (AREA - self.area_header()) / self.meta()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_structures() {
        let (wide, narrow) = (Layout { word: 8 }, Layout { word: 4 });
        assert_eq!((wide.area_header(), wide.meta(), wide.metas()), (24, 40, 101));
        assert_eq!((narrow.area_header(), narrow.meta(), narrow.metas()), (16, 24, 170));
    }
}
