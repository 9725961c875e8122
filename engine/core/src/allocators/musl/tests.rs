//! A small mallocng in memory, sound and damaged.

use super::slot::Block;
use super::walk::FreeSlots;
use super::*;
use crate::control::Control;
use crate::image::{Image, Segment, Source};

const DATA: u64 = 0x10_0000;
const CONTEXT: u64 = DATA + 0x40;
const AREA: u64 = 0x20_0000;
const GROUP: u64 = 0x30_0000;
const NESTED: u64 = GROUP + 16 + 2 * 496;
const SECRET: u64 = 0x1234_5678_9abc_def1;

/// Memory from 0x100000 to 0x400000.
struct Memory(Vec<u8>);

impl Memory {
    fn new(word: u64) -> Memory {
        let mut memory = Memory(vec![0; 0x30_0000]);
        let layout = Layout { word };
        memory.put(CONTEXT, 8, SECRET);
        let head = CONTEXT + 7 * word.max(5);
        memory.put(head / word * word, word, AREA);
        memory.put(head / word * word + word, word, AREA);
        memory.put(AREA, 8, SECRET);
        memory.put(AREA + 8 + word, 4, layout.metas());
        // Four slots of 496 bytes in a mapping: a block, a free slot, a group of two slots of 32 bytes, and a block
        // that begins later.
        memory.meta(layout, 1, GROUP, (0b0010, 0), (4, 15, 1));
        memory.header(GROUP + 16, 0, 0, 5);
        memory.put(GROUP + 16 + 492 - 4, 4, 100);
        memory.header(NESTED, 2, 62, 6);
        memory.meta(layout, 0, NESTED, (0, 0b10), (2, 1, 0));
        memory.header(NESTED + 16, 0, 0, 3);
        let last = GROUP + 16 + 3 * 496;
        memory.header(last, 0, 2, 7);
        memory.header(last + 32, 3, 95, 0);
        memory
    }

    fn put(&mut self, at: u64, size: u64, value: u64) {
        let at = (at - DATA) as usize;
        self.0[at..at + size as usize].copy_from_slice(&value.to_le_bytes()[..size as usize]);
    }

    /// Writes meta number `index` and the group's pointer to it. `sizes` are slots, size class, mapped units.
    fn meta(&mut self, layout: Layout, index: u64, start: u64, masks: (u64, u64), sizes: (u64, u64, u64)) {
        let (at, word) = (AREA + layout.area_header() + index * layout.meta(), layout.word);
        self.put(at + 2 * word, word, start);
        self.put(at + 3 * word, 4, masks.0);
        self.put(at + 3 * word + 4, 4, masks.1);
        self.put(at + 3 * word + 8, word, (sizes.0 - 1) | 1 << 5 | sizes.1 << 6 | sizes.2 << 12);
        self.put(start, word, at);
    }

    fn header(&mut self, block: u64, index: u64, units: u64, reserved: u64) {
        self.put(block - 3, 1, index | reserved << 5);
        self.put(block - 2, 2, units);
    }

    fn walk(&self, word: u64) -> Walked {
        let (image, layout) = (self.image(), Layout { word });
        let found = find(&image, &[(DATA, DATA + 0x1000)], layout, &Control::default());
        assert_eq!(found, [Context { at: CONTEXT, secret: SECRET, head: AREA, tail: AREA }]);
        walk(&image, &found[0], layout, &[(DATA, DATA + 0x30_0000)], &Control::default()).expect("not cancelled")
    }

    fn image(&self) -> Image {
        let end = DATA + self.0.len() as u64;
        let segment = Segment { start: DATA, end, source: Source::Bytes(self.0.clone().into()) };
        Image::new(&[], vec![segment]).unwrap()
    }
}

fn faults(walked: &Walked) -> Vec<(Fault, u64)> {
    walked.faults.iter().map(|&(fault, at, _)| (fault, at)).collect()
}

#[test]
fn blocks_have_the_size_that_was_asked_for() {
    for word in [4, 8] {
        let walked = Memory::new(word).walk(word);
        assert!(walked.listed && walked.faults.is_empty() && walked.between.is_empty(), "{:?}", walked.faults);
        let block = |start, size| Block { start, size };
        let last = GROUP + 16 + 3 * 496 + 32;
        assert_eq!(walked.blocks, [block(GROUP + 16, 392), block(last, 460), block(NESTED + 16, 25)]);
        let free = |start, stride| FreeSlots { start, stride, count: 1 };
        assert_eq!(walked.free, [free(GROUP + 16 + 496, 496), free(NESTED + 48, 32)]);
        assert_eq!(walked.owned(), [(AREA, AREA + 4096), (GROUP, GROUP + 4096)]);
        assert_eq!(walked.group_at(NESTED + 70).map(|group| group.start), Some(NESTED));
        assert_eq!(walked.group_at(NESTED + 90).map(|group| group.start), Some(GROUP));
        assert_eq!(walked.group_at(GROUP + 4096), None);
        let figures = walked.figures();
        assert_eq!((figures.asked, figures.used, figures.free), (877, 2 * 496 + 32, 528));
        assert_eq!((figures.mapped, figures.donated), (4096, 0));
        assert_eq!(walked.slots().len(), 3);
    }
}

#[test]
fn damage_is_told_and_the_rest_is_read() {
    let damaged = |at: u64, size: u64, value: u64| {
        let mut memory = Memory::new(8);
        memory.put(at, size, value);
        let walked = memory.walk(8);
        (faults(&walked), walked.blocks.len())
    };
    let (first, last) = (GROUP + 16, GROUP + 16 + 3 * 496 + 32);
    assert_eq!(damaged(GROUP, 8, 0x41), (vec![(Fault::Back, GROUP)], 3));
    assert_eq!(damaged(first + 392, 1, 0x41), (vec![(Fault::Overflow, first)], 3));
    assert_eq!(damaged(first + 488, 4, 2000), (vec![(Fault::Reserved, first)], 3));
    assert_eq!(damaged(last - 3, 1, 0x41), (vec![(Fault::Header, last)], 3));
    assert_eq!(damaged(last - 4, 1, 0x41), (vec![(Fault::Check, last)], 3));
    let meta = AREA + 24;
    assert_eq!(damaged(meta + 24, 4, 0xff), (vec![(Fault::Fields, meta)], 2));
    assert_eq!(damaged(meta + 16, 8, 0x1_0000_0000), (vec![(Fault::Place, meta)], 2));
    assert_eq!(damaged(meta + 16, 8, NESTED + 16).0, [(Fault::Back, NESTED + 16), (Fault::Overlap, NESTED + 16)]);
}

#[test]
fn a_slot_that_a_thread_is_about_to_free_counts_as_free() {
    let mut memory = Memory::new(8);
    memory.put(GROUP + 13, 3, 255);
    let walked = memory.walk(8);
    assert_eq!((walked.between.len(), walked.blocks.len(), walked.faults.len()), (1, 2, 0));
    assert_eq!(walked.free[0], FreeSlots { start: GROUP + 16, stride: 496, count: 2 });
}

#[test]
fn a_broken_list_of_areas_is_replaced_by_a_search() {
    let mut memory = Memory::new(8);
    memory.put(AREA + 8, 8, 0x4141_4141);
    let walked = memory.walk(8);
    assert!(!walked.listed);
    assert_eq!((walked.areas.len(), walked.blocks.len()), (1, 3));
}
