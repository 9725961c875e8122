//! Names and inodes of a made-up machine: with known answers, damaged, and (by hand) a million for the time.

use std::sync::Arc;
use std::time::Instant;

use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::kernel::file_caches::{inodes, names, FoundInodes, FoundNames, Inodes, NameCounts, Names};
use dmods_engine::kernel::page_tables::{Format, Tables};
use dmods_engine::kernel::physical::Physical;
use dmods_engine::kernel::virtual_memory::VirtualMemory;
use dmods_engine::Control;

use super::machine::{Rng, DIRECT};

const ROOT: u64 = 0x1000;
const HEADS: u64 = 0x3000;
const TABLE: u64 = 0x10_0000;
/// Bytes of a dentry and of an inode.
const DENTRY: u64 = 192;
const INODE: u64 = 640;
const LAYOUT: Names = Names { hash: 8, inode: 48, superblock: 104, count: 92, table: DIRECT + TABLE, buckets: 0 };
const OF_INODES: Inodes = Inodes { list: 264, pages: 456, number: 64 };
const SUPERBLOCKS: [u64; 3] = [0xffff_8880_1111_0000, 0xffff_8880_2222_0000, 0xffff_8880_3333_0000];

/// Physical memory from 0 on, mapped at DIRECT.
struct Made {
    bytes: Vec<u8>,
    names: Names,
    /// Where the dentries lie, by number.
    dentries: Vec<u64>,
    told: Vec<NameCounts>,
    told_inodes: Vec<(u64, u64, Option<u64>)>,
    unknown: u64,
}

impl Made {
    fn put(&mut self, at: u64, value: u64) {
        self.bytes[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(*self.bytes[at as usize..].first_chunk().unwrap())
    }

    /// Makes `count` dentries in buckets, in no order, and a tenth as many inodes.
    fn new(count: u64, buckets: u64) -> Made {
        let dentries_at = (TABLE + buckets * 8).next_multiple_of(4096);
        let inodes_at = dentries_at + (count / 21 + 1) * 4096;
        let end = inodes_at + (count / 60 + 1) * 4096;
        let mut made = Made {
            bytes: vec![0; end as usize],
            names: Names { buckets, ..LAYOUT },
            dentries: (0..count).map(|number| dentries_at + number / 21 * 4096 + number % 21 * DENTRY).collect(),
            told: vec![NameCounts::default(); 3],
            told_inodes: Vec::new(),
            unknown: 0,
        };
        made.put(ROOT + (DIRECT >> 39 & 511) * 8, 0x2003);
        made.put(0x2000, 0xe3);
        let mut rng = Rng(0x1234_5678_9abc);
        for number in 0..count {
            let (at, bucket) = (made.dentries[number as usize], TABLE + rng.below(buckets) * 8);
            let first = made.word(bucket) & !1;
            made.put(bucket, (DIRECT + at + LAYOUT.hash) | rng.below(2)); // a bucket may be locked
            made.put(at + LAYOUT.hash, first);
            made.put(at + LAYOUT.hash + 8, DIRECT + bucket);
            if first != 0 {
                made.put(first - DIRECT + 8, DIRECT + at + LAYOUT.hash);
            }
            let (negative, unused, system) = (rng.chance(3), rng.chance(2), rng.below(4) as usize);
            made.put(at + LAYOUT.inode, if negative { 0 } else { DIRECT + 0x1000 });
            made.bytes[(at + LAYOUT.count) as usize] = u8::from(!unused);
            made.put(at + LAYOUT.superblock, SUPERBLOCKS.get(system).copied().unwrap_or(0xffff_8880_dead_0000));
            if let Some(told) = made.told.get_mut(system) {
                told.names += 1;
                told.negative += u64::from(negative);
                told.unused += u64::from(unused);
            } else {
                made.unknown += 1;
            }
        }
        for system in 0..3 {
            let head = HEADS + system * 16;
            let mut before = head;
            let mut told = (0, 0, None);
            for number in (0..count / 10).filter(|number| number % 3 == system) {
                let at = inodes_at + number / 6 * 4096 + number % 6 * INODE;
                made.put(before, DIRECT + at + OF_INODES.list);
                made.put(at + OF_INODES.list + 8, DIRECT + before);
                made.put(at + OF_INODES.pages, number % 100);
                made.put(at + OF_INODES.number, number);
                told = (told.0 + 1, told.1 + number % 100, None);
                before = at + OF_INODES.list;
            }
            made.put(before, DIRECT + head);
            made.put(head + 8, DIRECT + before);
            made.told_inodes.push(told);
        }
        made
    }

    fn image(&self) -> Image {
        let bytes: Arc<[u8]> = self.bytes.as_slice().into();
        Image::new(&[], vec![Segment { start: 0, end: bytes.len() as u64, source: Source::Bytes(bytes) }]).unwrap()
    }

    fn ask(&self, physical: &dyn Physical) -> (FoundNames, FoundInodes) {
        let tables = Tables::new(Format::X86 { clear: 0 }, ROOT, 12, 48).unwrap();
        let mut memory = VirtualMemory::new(physical, tables);
        let control = Control::default();
        let found = names(&self.names, &SUPERBLOCKS, &mut memory, &control);
        let heads = [0, 1, 2].map(|system| DIRECT + HEADS + system * 16);
        (found, inodes(&OF_INODES, &heads, 5, &mut memory, &control))
    }
}

#[test]
fn all_names_and_inodes_are_counted() {
    let made = Made::new(20_000, 1 << 13);
    let (found, inodes) = made.ask(&made.image());
    assert_eq!((found.of, found.unknown, found.missing, found.broken), (made.told.clone(), made.unknown, 0, (0, 0)));
    assert_eq!(inodes.of, made.told_inodes);
    // Number 1999 has 99 pages, and is of superblock 1.
    let top: Vec<(u64, u64, u32)> = inodes.top.iter().map(|file| (file.0, file.2, file.3)).collect();
    assert_eq!(top.len(), 5);
    assert!(top
        .iter()
        .all(|(pages, number, system)| *pages == 99 && number % 100 == 99 && number % 3 == u64::from(*system)));
}

#[test]
fn a_chain_that_leads_back_ends() {
    let mut made = Made::new(2_000, 64);
    let (node, other) = (made.dentries[1000] + LAYOUT.hash, made.dentries[1999] + LAYOUT.hash);
    made.put(node, DIRECT + other);
    let node = made.word(HEADS) - DIRECT;
    made.put(node, DIRECT + node);
    let (found, inodes) = made.ask(&made.image());
    assert_eq!(found.broken, (1, DIRECT + other));
    let counted: u64 = found.of.iter().map(|of| of.names).sum::<u64>() + found.unknown;
    assert!(counted < 2_000 && counted > 1_900);
    assert_eq!(inodes.of[0], (1, 0, Some(DIRECT + node)));
    assert_eq!(inodes.of[1..], made.told_inodes[1..]);
}

#[test]
fn buckets_that_the_dump_lacks_are_counted() {
    let mut made = Made::new(2_000, 4 << 9);
    made.names.table += 4096 * 3; // the last three of six pages are not buckets: the first dentries
    made.names.buckets = 4 << 9;
    made.bytes.truncate(TABLE as usize + 4096 * 4);
    let (found, inodes) = made.ask(&made.image());
    assert_eq!(found.missing, 3 << 9);
    assert!(found.of.iter().all(|of| of.names == 0) && found.broken.0 > 100);
    assert!(inodes.of.iter().all(|of| of.0 == 0 && of.2.is_some()));
}

#[test]
fn noise_ends() {
    let mut rng = Rng(77);
    for _ in 0..200 {
        let mut made = Made::new(300, 64);
        for _ in 0..rng.below(200) {
            let at = HEADS + rng.below((made.bytes.len() as u64 - HEADS) / 8 - 1) * 8;
            let value = if rng.chance(2) { rng.next() } else { DIRECT + rng.below(made.bytes.len() as u64) };
            made.put(at, value);
        }
        let (found, _) = made.ask(&made.image());
        assert!(found.of.iter().map(|of| of.names).sum::<u64>() <= made.bytes.len() as u64 / 8);
    }
}

#[test]
#[ignore = "by hand: the time for a million names, from a file"]
fn a_million_names() {
    let made = Made::new(1_000_000, 1 << 20);
    let path = std::env::temp_dir().join("dmods-names");
    std::fs::write(&path, &made.bytes).unwrap();
    let size = made.bytes.len() as u64;
    let segments = vec![Segment { start: 0, end: size, source: Source::File { index: 0, offset: 0 } }];
    let image = Image::new(&[path.to_owned()], segments).unwrap();
    let began = Instant::now();
    let (found, inodes) = made.ask(&image);
    println!("{:?}", began.elapsed());
    std::fs::remove_file(&path).unwrap();
    assert_eq!((found.of, inodes.of), (made.told, made.told_inodes));
}
