//! Runs that several threads share, in parts.

use dmods_engine::blocks::model::State;
use dmods_engine::blocks::pass::Request;
use dmods_engine::blocks::runs::{Kind, Owner, Run};
use dmods_engine::blocks::{self, Way};
use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::Control;

const BASE: u64 = 0x7000_0000;

/// A run of chunks, each as large as `sizes` says, with `content` in the largest.
fn found(sizes: &[u64], content: &[u8], threads: usize, wide: bool) -> Vec<(u64, u64)> {
    let most = sizes.iter().max().expect("chunks");
    let mut bytes = Vec::new();
    for size in sizes {
        let end = bytes.len() + *size as usize;
        bytes.extend([0, size | 1].map(u64::to_le_bytes).concat());
        bytes.extend(if size == most { content } else { &[] });
        bytes.resize(end, 0);
    }
    let end = BASE + bytes.len() as u64;
    bytes.extend([0, 0x1001].map(u64::to_le_bytes).concat());
    let segment = Segment { start: BASE, end: BASE + bytes.len() as u64, source: Source::Bytes(bytes.into()) };
    let image = Image::new(&[], vec![segment]).expect("no files");
    let runs = vec![Run::of_chunks(BASE, end, Kind::Main, Owner::new(0, 0), 0)];
    let request = Request { image: &image, runs, dead: &[], watch: &[], maps: &[], threads };
    let heap = blocks::build_so(8, request, Way { part_bytes: 4096, wide }, &Control::default()).expect("built");
    assert_eq!(heap.found().reports.len(), 1);
    assert_eq!(heap.found().reports[0].anomaly_count, 0);
    assert_eq!(heap.found().reports[0].chunks, sizes.len() as u64);
    heap.blocks(&[State::Live, State::LeakedDirectly], 0, usize::MAX)
        .iter()
        .map(|row| (row.0.address, row.0.size))
        .collect()
}

fn expected(sizes: &[u64]) -> Vec<(u64, u64)> {
    let mut chunk = BASE;
    let block = |size: &u64| {
        chunk += size;
        (chunk - size + 16, size - 8)
    };
    sizes.iter().map(block).collect()
}

#[test]
fn old_headers_in_a_block_are_no_chunks() {
    // More of them follow each other than a guess asks for, and the last does not lead to the end of the block.
    let old = [0, 48 | 1, 0, 0, 0, 0].map(u64::to_le_bytes).concat().repeat(3333);
    let mut sizes = vec![48; 300];
    sizes.push(160_032);
    sizes.extend(vec![32; 3000]);
    for threads in [1, 2, 64] {
        for wide in [false, true] {
            assert!(found(&sizes, &old, threads, wide) == expected(&sizes), "{threads} threads, wide: {wide}");
        }
    }
}
