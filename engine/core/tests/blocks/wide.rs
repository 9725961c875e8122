//! More words than 32 bits number: a block of 40 GiB beside small ones. It is a hole of the file but for its two ends.

use dmods_engine::blocks;
use dmods_engine::blocks::marking::Roots;
use dmods_engine::blocks::model::State;
use dmods_engine::blocks::pass::Request;
use dmods_engine::blocks::runs::{Kind, Owner, Run};
use dmods_engine::blocks::widths::Widths;
use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::Control;
use std::os::unix::fs::FileExt;

const SMALL: u64 = 0x5555_0000_0000;
const LARGE: u64 = 0x7000_0000_0000;
const LARGE_BYTES: u64 = 40 << 30;
const PAGE: u64 = 4096;

#[test]
fn a_block_of_many_gigabytes_leads_to_a_small_one() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let put = |at: u64, words: &[u64]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.as_file().write_all_at(&bytes, at).expect("written");
    };
    file.as_file().set_len(PAGE + LARGE_BYTES).expect("a sparse file");
    // 40 chunks of 32 bytes and top; then the mapped chunk, whose last word leads to the seventh.
    let chunk = |number: u64| SMALL + number * 32;
    for number in 0..40 {
        put(chunk(number) - SMALL, &[0, 32 | 1]);
    }
    put(chunk(40) - SMALL, &[0, 0x800 | 1]);
    put(PAGE, &[0, LARGE_BYTES | 2]);
    put(PAGE + LARGE_BYTES - 8, &[chunk(7) + 16]);
    let segment =
        |start, bytes, offset| Segment { start, end: start + bytes, source: Source::File { index: 0, offset } };
    let path = file.path().to_owned();
    let segments = vec![segment(SMALL, PAGE, 0), segment(LARGE, LARGE_BYTES, PAGE)];
    let image = Image::new(&[path], segments).expect("readable");
    let runs = vec![
        Run::of_chunks(SMALL, chunk(40), Kind::Main, Owner::new(0, 0), 0),
        Run::of_chunks(LARGE, LARGE + LARGE_BYTES, Kind::Mmapped, Owner::new(0, u32::MAX), LARGE_BYTES - 16),
    ];
    let control = Control::default();
    let request = Request { image: &image, runs, dead: &[], watch: &[], maps: &[], threads: 2 };
    let mut heap = blocks::build(8, request, &control).expect("built");
    assert!(matches!(heap.widths(), Widths::Many8(_)));
    heap.mark(&image, Roots { values: &[LARGE + LARGE_BYTES / 2], ..Roots::default() }, &control).expect("marked");
    assert_eq!(heap.addresses(&[State::Live], 0, u64::MAX, 99), [chunk(7) + 16, LARGE + 16]);
    assert_eq!(heap.addresses(&[State::LeakedDirectly], 0, u64::MAX, 99).len(), 39);
    let (block, ..) = heap.find(LARGE + LARGE_BYTES - 1).expect("the large block");
    assert_eq!((block.address, block.size), (LARGE + 16, LARGE_BYTES - 16));
}
