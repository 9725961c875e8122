//! Hostile images: segments overlap and reach the end of the address space. Every search of the engine runs on them.

use dmods_engine::allocators::glibc::find;
use dmods_engine::blocks;
use dmods_engine::blocks::marking::Roots;
use dmods_engine::blocks::model::State;
use dmods_engine::blocks::pass::Request;
use dmods_engine::blocks::runs::{Kind, Owner, Run};
use dmods_engine::blocks::tcache::TcacheShape;
use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::symbols::Symbols;
use dmods_engine::tcb;
use dmods_engine::Control;

/// xorshift64 gives the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

const PLACES: [u64; 5] = [0, 0x5000, 0x7fff_0000_0000, 1 << 63, u64::MAX - 0x3000];

fn near(dice: &mut Dice, place: u64) -> u64 {
    place.saturating_add(dice.below(0x4000))
}

/// Words that look meaningful where they stand: their own address, small sizes with flags, addresses of other places.
fn bytes(dice: &mut Dice, start: u64, len: u64) -> Vec<u8> {
    let mut out = vec![0u8; len as usize];
    for at in (0..len.saturating_sub(7)).step_by(8) {
        let value = match dice.below(6) {
            0 => start.wrapping_add(at),
            1 => 16 * dice.below(40) + dice.below(8),
            2 => PLACES[dice.below(5) as usize].wrapping_add(dice.below(0x4000)),
            3 => dice.next(),
            _ => 0,
        };
        out[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
    }
    out
}

fn segments(dice: &mut Dice) -> Vec<Segment> {
    (0..1 + dice.below(12))
        .map(|_| {
            let place = PLACES[dice.below(5) as usize];
            let start = near(dice, place);
            let size = dice.below(0x3000);
            let data = bytes(dice, start, size);
            // The segment claims more or fewer bytes than it has, as a hostile program header does.
            let end =
                start.saturating_add(size).saturating_add(dice.below(64)).saturating_sub(dice.below(64)).max(start);
            Segment { start, end, source: Source::Bytes(data.into()) }
        })
        .collect()
}

/// The byte at an address: it comes from the first segment given that claims the address.
fn slow(given: &[Segment], address: u64) -> Option<u8> {
    let segment = given.iter().find(|s| s.start <= address && address < s.end)?;
    match &segment.source {
        Source::Bytes(data) => data.get((address - segment.start) as usize).copied(),
        Source::File { .. } => None,
    }
}

#[test]
fn every_byte_is_that_of_the_first_segment_given() {
    for seed in 1..300 {
        let mut dice = Dice(seed * 7919);
        let given = segments(&mut dice);
        let image = Image::new(&[], given.clone()).expect("no files");
        for pair in image.segments().windows(2) {
            assert!(pair[0].end <= pair[1].start, "seed {seed}: segments overlap");
        }
        for _ in 0..300 {
            let place = PLACES[dice.below(5) as usize];
            let at = near(&mut dice, place);
            let mut buffer = [0u8; 40];
            let got = image.read(at, &mut buffer);
            let mut expected = (0..40u64).map_while(|i| slow(&given, at.checked_add(i)?));
            assert!(buffer[..got].iter().all(|b| expected.next() == Some(*b)), "seed {seed}: at {at:#x}");
            assert_eq!(expected.next(), None, "seed {seed}: at {at:#x} too few");
            let claimed = given.iter().any(|s| s.start <= at && at < s.end);
            let covered = image.covered(at, at.saturating_add(1));
            assert_eq!(!covered.is_empty(), claimed && at < u64::MAX);
            assert_eq!(image.next(at) == Some(at), claimed);
        }
    }
}

#[test]
fn searches_survive_every_image_and_any_range() {
    for seed in 1..600 {
        let mut dice = Dice(seed * 104_729);
        let image = Image::new(&[], segments(&mut dice)).expect("no files");
        let mut ranges: Vec<(u64, u64)> = (0..6)
            .map(|_| {
                let (a, b) = (PLACES[dice.below(5) as usize], PLACES[dice.below(5) as usize]);
                (near(&mut dice, a), near(&mut dice, b))
            })
            .collect();
        ranges.push((0, u64::MAX));
        ranges.push((u64::MAX, u64::MAX));
        for word in [4, 8] {
            let _ = find::bins(&image, &ranges, word, &Control::default());
            for deep in [false, true] {
                let mapped = find::mapped(&image, &ranges, &ranges, word, 4096, deep);
                assert!(mapped.iter().all(|m| m.base <= m.chunk && m.chunk < m.end));
            }
            let top = ranges[0].0;
            let stretches = find::stretches(&image, &ranges, word, 4096, top);
            assert!(stretches.iter().all(|s| s.0 < s.1));
            let found =
                dmods_engine::search::pointers(&image, &ranges, word, &[(0x5000, 0x9000)], 7, &Control::default());
            assert!(found.is_ok_and(|found| found[0].len() <= 7));
        }
        assert!(tcb::find_self_pointers(&image, &ranges, 4, 9, || false).len() <= 9);
        assert!(tcb::find_self_pointers(&image, &ranges, 8, 9, || false).len() <= 9);
        assert!(tcb::find_dtv_pointers(&image, &ranges, 9, || false).len() <= 9);
        heap(&mut dice, &image, &ranges);
    }
}

/// A heap of runs at any place and of any size, impossible ones too.
fn heap(dice: &mut Dice, image: &Image, ranges: &[(u64, u64)]) {
    let kinds = [Kind::Main, Kind::Thread, Kind::Mmapped];
    let runs: Vec<Run> = ranges
        .iter()
        .enumerate()
        .map(|(i, &(start, end))| {
            let (start, kind) = (start & !15, kinds[dice.below(3) as usize]);
            Run::of_chunks(start, end, kind, Owner::new(0, i as u32), end.saturating_sub(start).saturating_sub(16))
        })
        .collect();
    let control = Control::default();
    let watch = [TcacheShape { chunk: 0x290, bins: 64, width: 2 }];
    let word = [4, 8][dice.below(2) as usize];
    let request = Request { image, runs, dead: &[(0x5000, 0x5100)], watch: &watch, maps: &[], threads: 2 };
    let mut heap = blocks::build(word, request, &control).expect("tables in proportion to what is there");
    let roots = Roots { ranges, values: &[0x5010, u64::MAX], ..Roots::default() };
    heap.mark(image, roots, &control).expect("marked");
    let leaked = heap.blocks(&[State::LeakedDirectly], 0, usize::MAX).len() as u64;
    assert_eq!(heap.groups().iter().map(|g| g.count).sum::<u64>(), leaked);
    heap.sizes(None);
    heap.find(u64::MAX);
}

#[test]
fn symbols_of_damaged_files() {
    let own = std::env::current_exe().expect("a path");
    let whole = std::fs::read(own).expect("this program");
    let mut dice = Dice(1603);
    // The tables lie anywhere in the file. The headers at its start lead to them.
    let headers = &whole[..whole.len().min(4096)];
    for round in 0..40 {
        let mut data = whole[..whole.len().min(4 << 20)].to_vec();
        if round % 4 == 0 {
            data.truncate(dice.below(data.len() as u64) as usize);
        }
        for _ in 0..1 + dice.below(60) {
            let reach = if round % 2 == 0 { headers.len() } else { data.len() }.min(data.len()).max(1);
            let at = dice.below(reach as u64) as usize;
            if let Some(byte) = data.get_mut(at) {
                *byte = dice.next() as u8;
            }
        }
        let symbols = Symbols::load(&[] as &[std::path::PathBuf], &[&data]);
        for address in [0, 1, 0x1000, u64::MAX, dice.next()] {
            if let Some(found) = symbols.at(address) {
                assert!(found.address <= address, "a symbol above the address that it names");
            }
        }
        assert!(symbols.lookup(b"no such name anywhere").is_none());
    }
}
