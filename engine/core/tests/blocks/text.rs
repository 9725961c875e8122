//! Words that are part of a text may have the value of an address. They are not pointers.

use super::made::{Memory, World};
use super::reference::solve;
use dmods_engine::blocks::model::State;
use dmods_engine::blocks::runs::{Kind, Owner, Run};
use dmods_engine::image::PROCESS;

/// Two blocks of one run, and an extent. Addresses within the first that look like text end with "/>\n", or "/>\n" and
/// zeros.
const FIRST: u64 = 0x0a3e_2f00;
const SECOND: u64 = FIRST + 0x110;
const END: u64 = SECOND + 0x200;
const EXTENT: u64 = 0x2000_0000;
const ROOTS: u64 = 0x3000_0000;
const PAGE: usize = 0x1000;

/// Where the words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Chunk,
    Extent,
    Roots,
}

/// Returns whether the first block is reachable when only `content` can lead there.
fn holds(word: u64, place: Place, content: &[u8]) -> bool {
    let memory = |start, size| Memory { start, bytes: vec![0; size] };
    let base = FIRST - 2 * word;
    let mut world = World {
        word,
        memory: vec![memory(base, (END + 16 - base) as usize), memory(EXTENT, PAGE), memory(ROOTS, PAGE)],
        runs: vec![
            Run::of_chunks(base, END - 2 * word, Kind::Main, Owner::default(), 0),
            Run::of_chunks(EXTENT, EXTENT + PAGE as u64, Kind::Extent, Owner::default(), PAGE as u64),
        ],
        blocks: Vec::new(),
        dead: Vec::new(),
        roots: vec![(ROOTS, ROOTS + PAGE as u64)],
        values: vec![SECOND, EXTENT],
        gaps: Vec::new(),
        holes: Vec::new(),
        unaligned: false,
        tagged: false,
        addresses: PROCESS,
    };
    world.put(FIRST - word, 0x110 | 1);
    world.put(SECOND - word, 0x200 | 1);
    world.put(END - word, 0x1000 | 1);
    let (index, at) = match place {
        Place::Chunk => (0, SECOND + 0x40 - base),
        Place::Extent => (1, 0x40),
        Place::Roots => (2, 0x40),
    };
    world.memory[index].bytes[at as usize..][..content.len()].copy_from_slice(content);
    let heap = solve(&world, 1);
    let (_, state, ..) = heap.blocks(&[State::Live, State::LeakedDirectly], FIRST, 1)[0];
    state == State::Live
}

fn check(word: u64, content: &[u8], pointer: bool) {
    for place in [Place::Chunk, Place::Extent, Place::Roots] {
        let found = holds(word, place, content);
        assert_eq!(found, pointer, "{:?} in {place:?}, words of {word}", String::from_utf8_lossy(content));
    }
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|&value| (value as u32).to_le_bytes()).collect()
}

#[test]
fn a_word_amid_text_is_no_pointer() {
    // 0x0a3e2f22 each; in the last 0x0a3e2f20, at which a block might begin.
    for text in [
        "count=\"0\"/>\n <size from=",
        "<a b=\"cd\"/>\n</a>\r\n\t.",
        "    ....\"/>\n    ....",
        "0 1 2 3  />\n some more",
    ] {
        check(4, text.as_bytes(), false);
    }
}

#[test]
fn a_word_that_ends_a_text_is_no_pointer_unless_a_block_may_begin_there() {
    for text in ["    ....\"/>\n\0", "    ....\"/>\n...\0.", "a text .... !/>\n\0\0\0\0"] {
        let at = text.find("/>\n").expect("the word") - 1;
        assert_eq!(at % 4, 0);
        check(4, text.as_bytes(), false);
    }
    check(8, b"    ....\"/>\n\0\0\0\0", false);
    check(8, b"    ........!/>\n\0\0\0\0", false);
    for text in ["    .... />\n\0\0\0\0", "    ....(/>\n\0\0\0\0"] {
        check(4, text.as_bytes(), true);
        check(8, text.as_bytes(), true);
    }
}

#[test]
fn what_stands_beside_a_text_is_a_pointer() {
    let pointer = "\"/>\n";
    let contents: [Vec<u8>; 7] = [
        pointer.into(),
        format!("{pointer}a text that is long enough").into_bytes(),
        // Between two texts with their NULs; after a short one; before bytes that are not text.
        format!("a name \0{pointer}and another").into_bytes(),
        format!("\0\0\0\0text{pointer}and another").into_bytes(),
        format!("a name..{pointer}text\x01\x7f\u{80}").into_bytes(),
        // Pointers side by side; and in a structure, every second word.
        words(&[0x0a3e_2f20, 0x0a3e_2f30, 0x0a3e_2f40, 0x0a3e_2f50, 0x0a3e_2f60, 0x0a3e_2f70, 0x0a3e_2f20]),
        words(&[0x0a3e_2f20, 0x2020_2020, 0x0a3e_2f30, 0x2020_2020, 0x0a3e_2f40, 0x2020_2020, 0x0a3e_2f50]),
    ];
    for content in contents {
        check(4, &content, true);
    }
    check(8, b"\"/>\n\0\0\0\0", true);
    check(8, b"a name \0\"/>\n\0\0\0\0", true);
    check(8, b"a name..\"/>\n\0\0\0\0", false);
}
