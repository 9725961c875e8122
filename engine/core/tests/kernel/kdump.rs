//! makedumpfile's format: pages in every encoding are read back, and hostile files are refused or leave pages out.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use dmods_engine::kernel::kdump::Kdump;
use dmods_engine::kernel::physical::Physical;
use flate2::write::ZlibEncoder;

use super::machine::Rng;

const PAGE: usize = 4096;

struct Dump {
    file: tempfile::NamedTempFile,
    /// The contents of the dump, by page frame.
    pages: Vec<Option<Vec<u8>>>,
}

fn compress(page: &[u8], how: u64) -> (Vec<u8>, u32) {
    match how {
        0 => (page.to_vec(), 0),
        1 => {
            let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(page).unwrap();
            (encoder.finish().unwrap(), 1)
        }
        2 => (snap::raw::Encoder::new().compress_vec(page).unwrap(), 4),
        _ => (ruzstd::encoding::compress_to_vec(page, ruzstd::encoding::CompressionLevel::Fastest), 32),
    }
}

fn dump(rng: &mut Rng, count: usize) -> Dump {
    let file = tempfile::NamedTempFile::new().unwrap();
    let bitmap_blocks = 2 * count.div_ceil(PAGE * 8);
    let mut head = vec![0u8; PAGE * (2 + bitmap_blocks)];
    let put = |head: &mut [u8], at: usize, value: u32| head[at..at + 4].copy_from_slice(&value.to_le_bytes());
    head[..8].copy_from_slice(b"KDUMP   ");
    put(&mut head, 8, 6);
    put(&mut head, 428, PAGE as u32);
    put(&mut head, 432, 1);
    put(&mut head, 436, bitmap_blocks as u32);
    put(&mut head, 440, count as u32);
    put(&mut head, PAGE + 96, count as u32);
    let (mut pages, mut descriptors, mut data) = (Vec::new(), Vec::new(), Vec::new());
    for pfn in 0..count {
        if rng.chance(3) {
            pages.push(None);
            continue;
        }
        head[PAGE * (2 + bitmap_blocks / 2) + pfn / 8] |= 1 << (pfn % 8);
        let seed = rng.next() as u8;
        let page: Vec<u8> =
            (0..PAGE).map(|i| if i % 97 == 0 { rng.next() as u8 } else { seed.wrapping_add((i / 64) as u8) }).collect();
        descriptors.push(compress(&page, rng.below(4)));
        pages.push(Some(page));
    }
    let mut at = (head.len() + descriptors.len() * 24) as u64;
    for (bytes, flags) in &descriptors {
        head.extend(at.to_le_bytes());
        head.extend((bytes.len() as u32).to_le_bytes());
        head.extend(flags.to_le_bytes());
        head.extend(0u64.to_le_bytes());
        data.extend_from_slice(bytes);
        at += bytes.len() as u64;
    }
    file.as_file().write_all_at(&head, 0).unwrap();
    file.as_file().write_all_at(&data, head.len() as u64).unwrap();
    Dump { file, pages }
}

#[test]
fn every_page_comes_back() {
    let mut rng = Rng(99);
    let Dump { file, pages } = dump(&mut rng, 3000);
    let kdump = Kdump::open(file.path()).unwrap();
    let expected = |from: usize, size: usize| -> Vec<u8> {
        let all = (from / PAGE..).map_while(|pfn| pages.get(pfn).and_then(|page| page.as_deref()));
        all.flatten().copied().skip(from % PAGE).take(size).collect()
    };
    for _ in 0..4000 {
        let (from, size) = (rng.below(3001 * PAGE as u64), rng.below(5 * PAGE as u64) as usize);
        let from = if rng.chance(2) { from / PAGE as u64 * PAGE as u64 } else { from };
        let mut buf = vec![0xa5; size];
        let got = kdump.read(from, &mut buf);
        let wanted = expected(from as usize, size);
        assert_eq!(got, wanted.len(), "{from:#x} {size}");
        assert!(buf[..got] == wanted[..], "{from:#x} {size}");
    }
}

#[test]
fn damage_and_truncation_leave_pages_out() {
    for seed in 1..=60 {
        let mut rng = Rng(seed * 0xdead_beef);
        let Dump { file, pages } = dump(&mut rng, 600);
        let length = file.as_file().metadata().unwrap().len();
        for _ in 0..rng.below(40) {
            // Sometimes the header too.
            let at = if rng.chance(4) { 400 + rng.below(8000) } else { rng.below(length) };
            let value = if rng.chance(3) { u64::MAX } else { rng.next() };
            file.as_file().write_all_at(&value.to_le_bytes(), at).unwrap();
        }
        if rng.chance(2) {
            file.as_file().set_len(rng.below(length)).unwrap();
        }
        let Ok(kdump) = Kdump::open(file.path()) else { continue };
        for _ in 0..200 {
            let mut buf = vec![0; rng.below(3 * PAGE as u64) as usize];
            let from = if rng.chance(9) { rng.next() } else { rng.below(pages.len() as u64 * PAGE as u64) };
            assert!(kdump.read(from, &mut buf) <= buf.len());
        }
    }
}

#[test]
fn what_cannot_be_read_here_says_why() {
    let refused = |head: &[u8]| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(head).unwrap();
        Kdump::open(file.path()).err().unwrap()
    };
    assert!(refused(b"makedumpfile\0\0\0\0").contains("flattened"));
    assert!(refused(b"\x7fELF").contains("not a compressed dump"));
    assert!(refused(b"KDUMP   ").contains("ends within its header"));
    let Dump { file, .. } = dump(&mut Rng(3), 100);
    File::options().write(true).open(file.path()).unwrap().write_all_at(&1u32.to_le_bytes(), 4096 + 12).unwrap();
    assert!(Kdump::open(file.path()).err().unwrap().contains("split"));
}
