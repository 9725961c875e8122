//! Words that are part of a text have the value of an address, and are none.

use crate::made::{Memory, World};
use crate::reference::solve;
use dmods_engine::heap::model::State;
use dmods_engine::heap::space::{Kind, Run};

/// Two blocks of one run, and an extent. All of the first have addresses that are text: the three bytes behind their lowest are "/>\n".
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

/// Whether the first block is reachable when only `content` can lead there.
fn holds(place: Place, content: &[u8]) -> bool {
    let memory = |start, size| Memory { start, bytes: vec![0; size] };
    let mut world = World {
        word: 4,
        memory: vec![memory(FIRST - 8, (END - FIRST) as usize + 16), memory(EXTENT, PAGE), memory(ROOTS, PAGE)],
        runs: vec![
            Run::of_chunks(FIRST - 8, END - 8, Kind::Main, 0, 0),
            Run::of_chunks(EXTENT, EXTENT + PAGE as u64, Kind::Extent, 0, PAGE as u64),
        ],
        blocks: Vec::new(),
        dead: Vec::new(),
        roots: vec![(ROOTS, ROOTS + PAGE as u64)],
        values: vec![SECOND, EXTENT],
        gaps: Vec::new(),
        holes: Vec::new(),
    };
    world.put(FIRST - 4, 0x110 | 1);
    world.put(SECOND - 4, 0x200 | 1);
    world.put(END - 4, 0x1000 | 1);
    let (index, at) = match place {
        Place::Chunk => (0, SECOND + 0x40 - (FIRST - 8)),
        Place::Extent => (1, 0x40),
        Place::Roots => (2, 0x40),
    };
    world.memory[index].bytes[at as usize..][..content.len()].copy_from_slice(content);
    let heap = solve(&world, 1);
    let (_, state, ..) = heap.blocks(&[State::Live, State::LeakedDirectly], FIRST, 1)[0];
    state == State::Live
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|&value| (value as u32).to_le_bytes()).collect()
}

#[test]
fn a_word_within_a_text_is_no_pointer() {
    // "/>\n and a quotation mark before it: 0x0a3e2f22.
    for text in ["count=\"0\"/>\n <size from=", "<a b=\"cd\"/>\n</a>\r\n\t.", "    ....\"/>\n    ...."] {
        let at = text.find("\"/>\n").expect("the word");
        assert_eq!(at % 4, 0);
        for place in [Place::Chunk, Place::Extent, Place::Roots] {
            assert!(!holds(place, text.as_bytes()), "{text:?} in {place:?}");
        }
    }
}

#[test]
fn what_stands_beside_a_text_is_a_pointer() {
    let pointer = "\"/>\n";
    let contents: [Vec<u8>; 8] = [
        pointer.into(),
        // Behind a text, before one, between two with their NULs, and between two of which one is short.
        format!("a text without end..{pointer}").into_bytes(),
        format!("{pointer}a text that is long enough").into_bytes(),
        format!("a name \0{pointer}and another").into_bytes(),
        format!("a name..{pointer}text\0...").into_bytes(),
        format!("\0\0\0\0text{pointer}and another").into_bytes(),
        format!("a name..{pointer}text\x01\x7f\u{80}").into_bytes(),
        // Pointers one beside the other; and in a structure, every third word.
        words(&[0x0a3e_2f20, 0x0a3e_2f30, 0x0a3e_2f40, 0x0a3e_2f50, 0x0a3e_2f60, 0x0a3e_2f70, 0x0a3e_2f20]),
    ];
    for content in contents {
        for place in [Place::Chunk, Place::Extent, Place::Roots] {
            assert!(holds(place, &content), "{:?} in {place:?}", String::from_utf8_lossy(&content));
        }
    }
    let structures =
        words(&[0x0a3e_2f20, 0x2020_2020, 0x0a3e_2f30, 0x2020_2020, 0x0a3e_2f40, 0x2020_2020, 0x0a3e_2f50]);
    assert!(holds(Place::Chunk, &structures));
}
