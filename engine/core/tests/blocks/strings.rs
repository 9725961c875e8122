//! Words behind the text of a string hold nothing, where the words beside its address say how long it is.

use super::made::{Memory, World};
use super::reference::{solve, solve_so};
use dmods_engine::blocks::model::State;
use dmods_engine::blocks::runs::{Kind, Owner, Run};
use dmods_engine::blocks::Way;
use dmods_engine::image::PROCESS;

/// Three blocks of one run: the structure that has the header of the string, its text, and what may be lost.
const HOLDER: u64 = 0x0800_0000;
const HOLDER_SIZE: u64 = 0x800;
const TEXT: u64 = HOLDER + HOLDER_SIZE;
const LOST_SIZE: u64 = 0x110;
/// The size of the two chunks that are there instead of the first one.
const SMALL: u64 = 0x30;
/// The same text in a slab.
const SLAB: u64 = 0x2000_0000;

/// Where the text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Chunk,
    Slab,
    /// In the chunk, and the header begins so many bytes before the end of what a thread scans.
    Across(u64),
    /// In the chunk, and the header is at the beginning or at the end of a block of `SMALL` bytes.
    Start,
    End,
}

/// A string: the three words of its header, of which [`P`] is where its text begins, and the block of the text.
struct Case<'a> {
    header: &'a [u64],
    /// The bytes of its chunk.
    chunk: u64,
    /// What it begins with.
    text: &'a [u8],
    /// Where in the block the lost block's address stands.
    at: u64,
}

const P: u64 = u64::MAX;

impl Case<'_> {
    /// Returns whether the block that only a word behind the text leads to is in use.
    fn holds(&self, word: u64, place: Place) -> bool {
        let base = HOLDER - 2 * word;
        let lost = TEXT + self.chunk;
        let end = lost + LOST_SIZE;
        let (text, index, from) = if place == Place::Slab { (SLAB, 1, 0) } else { (TEXT, 0, (TEXT - base) as usize) };
        let memory = |start, size| Memory { start, bytes: vec![0; size] };
        let usable = self.chunk - word;
        let slab =
            Run { start: SLAB, end: SLAB + 2 * usable, kind: Kind::Slab, owner: Owner::default(), usable, map: 0 };
        let mut world = World {
            word,
            memory: vec![memory(base, (end + 16 - base) as usize), memory(SLAB, 2 * usable as usize)],
            runs: vec![Run::of_chunks(base, end - 2 * word, Kind::Main, Owner::default(), 0), slab],
            blocks: Vec::new(),
            dead: Vec::new(),
            roots: Vec::new(),
            values: vec![HOLDER, text],
            gaps: Vec::new(),
            holes: Vec::new(),
            unaligned: false,
            tagged: false,
            addresses: PROCESS,
        };
        let sizes = match place {
            Place::Start | Place::End => vec![SMALL, SMALL, HOLDER_SIZE - 2 * SMALL],
            _ => vec![HOLDER_SIZE],
        };
        let mut at = HOLDER;
        for size in sizes {
            world.put(at - word, size | 1);
            at += size;
        }
        world.put(TEXT - word, self.chunk | 1);
        world.put(lost - word, LOST_SIZE | 1);
        world.put(end - word, 0x1000 | 1);
        let header = match place {
            Place::Across(before) => base + 0x400 - before,
            Place::Start => HOLDER,
            Place::End => HOLDER + SMALL - (self.header.len() as u64 + 1) * word,
            _ => HOLDER + 4 * word,
        };
        for (number, &value) in (0..).zip(self.header) {
            world.put(header + number * word, if value == P { text } else { value });
        }
        let bytes = &mut world.memory[index].bytes[from..];
        // It leads into the lost block, and does so when its lowest byte is 0.
        let pointer = (lost | 0xff) + 1 + 0x10;
        bytes[self.at as usize..][..word as usize].copy_from_slice(&pointer.to_le_bytes()[..word as usize]);
        bytes[..self.text.len()].copy_from_slice(self.text);
        let heap = match place {
            Place::Across(_) => solve_so(&world, 2, Way { part_bytes: 0x400, wide: false }),
            _ => solve(&world, 1),
        };
        heap.blocks(&[State::Live], lost, 1).first().is_some_and(|found| found.0.address == lost)
    }

    fn check(&self, held: bool) {
        for (word, place) in [(8, Place::Chunk), (8, Place::Slab), (4, Place::Chunk)] {
            let found = self.holds(word, place);
            assert_eq!(found, held, "{:?}, words of {word}, in {place:?}", self.header);
        }
    }
}

/// 20 bytes and their NUL.
const NAME: &[u8] = b"a text of 20 bytes..\0";

#[test]
fn a_word_behind_the_text_of_a_string_holds_nothing() {
    // A 64-bit block has 40 bytes, a 32-bit one 44.
    for header in [&[P, 20, 30], &[30, P, 20], &[31, 20, P], &[P, 20, 28], &[40, 20, P], &[P, 40, 20]] {
        Case { header, chunk: 0x30, text: NAME, at: 24 }.check(false);
        Case { header, chunk: 0x30, text: NAME, at: 32 }.check(false);
    }
}

#[test]
fn a_word_that_the_nul_begins_is_none() {
    let text = b"this text has 24 letters\0";
    for header in [&[P, 24, 28], &[P, 24, 30], &[31, 24, P]] {
        Case { header, chunk: 0x30, text, at: 24 }.check(false);
    }
    // Nobody says that this is a string.
    Case { header: &[P, 0, 0], chunk: 0x30, text, at: 24 }.check(true);
}

#[test]
fn a_header_may_lie_across_the_parts_of_two_threads() {
    for before in [0, 8, 16] {
        let case = Case { header: &[P, 20, 30], chunk: 0x30, text: NAME, at: 32 };
        assert!(!case.holds(8, Place::Across(before)), "{before} bytes before the end");
    }
}

#[test]
fn a_rust_string_needs_no_nul() {
    let text = b"this text has 24 letters";
    Case { header: &[30, P, 24], chunk: 0x30, text, at: 24 }.check(false);
    Case { header: &[P, 24, 30], chunk: 0x30, text, at: 24 }.check(true);
    Case { header: &[20, P, 24], chunk: 0x30, text, at: 24 }.check(true);
}

#[test]
fn what_is_no_string_holds_what_it_points_to() {
    for header in [
        &[P, 19, 30][..],   // the text is longer
        &[P, 21, 30],       // and shorter
        &[P, 20, 60],       // it cannot grow to this
        &[P, 20, 20],       // the block would be smaller
        &[P, 20, 1 << 40],  // no length
        &[P, 3, 30],        // a string keeps so few in itself
        &[0, 20, 30],       // no address
        &[P, 30, P, 20],    // addresses, each with a length
        &[30, P, 20, P, 1], // and lengths, each with an address
    ] {
        Case { header, chunk: 0x30, text: NAME, at: 32 }.check(true);
    }
    // The block is far larger than the string says.
    Case { header: &[P, 20, 20], chunk: 0x90, text: NAME, at: 0x40 }.check(true);
    // Other bytes than text.
    Case { header: &[P, 20, 30], chunk: 0x30, text: b"a text of\x01 20 bytes..\0", at: 32 }.check(true);
    Case { header: &[P, 20, 30], chunk: 0x30, text: b"a text of\xff 20 bytes..\0", at: 32 }.check(true);
}

#[test]
fn the_size_of_a_chunk_is_no_capacity() {
    // An address and a length at the end of a block, and at its beginning, each way round: the size of the next chunk or of
    // their own fits the block of the text.
    for (header, place) in [(&[P, 20][..], Place::End), (&[P, 20], Place::Start), (&[20, P], Place::Start)] {
        let case = Case { header, chunk: 0x40, text: NAME, at: 40 };
        assert!(case.holds(8, place), "{header:?} in {place:?}");
    }
}

#[test]
fn a_structure_that_holds_its_own_text_has_more_behind_it() {
    // char text[24]; char *begin; size_t length, room; and a pointer.
    for word in [4, 8] {
        let mut content = NAME.to_vec();
        content.resize(24, 0);
        for value in [TEXT, 20, 24] {
            content.extend_from_slice(&value.to_le_bytes()[..word as usize]);
        }
        let at = content.len() as u64;
        let case = Case { header: &[P, 0, 0], chunk: (at + 2 * word).next_multiple_of(16), text: &content, at };
        assert!(case.holds(word, Place::Chunk), "words of {word}");
    }
}
