//! Page tables of both machines, compared with addresses worked out by hand.

use std::collections::HashMap;

use dmods_engine::kernel::page_tables::{Format, Mapped, Tables, Walker};
use dmods_engine::kernel::physical::Physical;

/// Words of physical memory. Everything else is not in the dump.
struct Words(HashMap<u64, u64>);

impl Physical for Words {
    fn read(&self, address: u64, buf: &mut [u8]) -> usize {
        for (i, byte) in buf.iter_mut().enumerate() {
            let at = address + i as u64;
            // A table is in the dump as a whole page.
            if !self.0.keys().any(|word| word >> 12 == at >> 12) {
                return i;
            }
            *byte = self.0.get(&(at & !7)).map_or(0, |word| word.to_le_bytes()[at as usize % 8]);
        }
        buf.len()
    }
    fn granule(&self) -> usize {
        4096
    }
}

fn at(tables: Tables, words: &[(u64, u64)], address: u64) -> Option<(u64, u64)> {
    let memory = Words(words.iter().copied().collect());
    let found = Walker::new(tables).translate(&memory, address);
    found.map(|Mapped { physical, left }| (physical, left))
}

const X86: Format = Format::X86 { clear: 1 << 47 };

#[test]
fn x86_with_four_levels() {
    let tables = Tables::new(X86, 0x1000, 12, 48).unwrap();
    let words = [
        // 0xffffea0000000000: entry 468 of the first table, then 0, 0 (2 MB), 1 (a table, entry 3).
        (0x1000 + 468 * 8, 0x2003),
        (0x2000, 0x3003),
        (0x3000, 0x8000_0000_4560_00e3),
        (0x3008, 0x8000_0000_0000_4063 | 1 << 47),
        (0x4018, 0x8000_0000_1234_5163),
        // 0xffff888000000000: entry 273, 1 GB pages.
        (0x1000 + 273 * 8, 0x5003),
        (0x5008, 0xc000_00e3),
    ];
    let at = |address| at(tables, &words, address);
    assert_eq!(at(0xffff_ea00_0000_1234), Some((0x4560_1234, 0x20_0000 - 0x1234)));
    assert_eq!(at(0xffff_ea00_0020_3456), Some((0x1234_5456, 0x1000 - 0x456)));
    assert_eq!(at(0xffff_ea00_0020_4000), None);
    assert_eq!(at(0xffff_8880_4000_0001), Some((0xc000_0001, 0x4000_0000 - 1)));
    assert_eq!(at(0xffff_8880_0000_0000), None);
    // Not canonical, and not the kernel's.
    assert_eq!(at(0x00ff_ea00_0000_1234), None);
    assert_eq!(at(0x0000_0000_0000_1234), None);
}

#[test]
fn x86_with_five_levels() {
    let tables = Tables::new(X86, 0x1000, 12, 57).unwrap();
    // 0xff11000000000000: entry 273 of the first table.
    let words = [(0x1000 + 273 * 8, 0x2003), (0x2000, 0x3003), (0x3000, 0xe3)];
    assert_eq!(at(tables, &words, 0xff11_0000_1234_5678), Some((0x1234_5678, 0x4000_0000 - 0x1234_5678)));
}

#[test]
fn aarch64_with_pages_of_4_and_64_kb() {
    // 48 bits: 0xffff000000000000 is entry 0 of the first of four tables.
    let tables = Tables::new(Format::Aarch64, 0x1000, 12, 48).unwrap();
    let words = [
        (0x1000, 0x2003),
        (0x2000, 0x3003),
        (0x2008, 0x0068_0000_8000_0f01),
        (0x3000, 0x4003),
        (0x3008, 0x0068_0000_4020_0f01),
        (0x4010, 0x0068_0000_4567_8f03),
        // The last level has no blocks: this one is reserved.
        (0x4018, 0x0068_0000_4567_9f01),
    ];
    assert_eq!(at(tables, &words, 0xffff_0000_0000_2abc), Some((0x4567_8abc, 0x544)));
    assert_eq!(at(tables, &words, 0xffff_0000_0000_3abc), None);
    assert_eq!(at(tables, &words, 0xffff_0000_0020_0010), Some((0x4020_0010, 0x20_0000 - 0x10)));
    assert_eq!(at(tables, &words, 0xffff_0000_4000_0010), Some((0x8000_0010, 0x4000_0000 - 0x10)));

    // 39 bits: three tables, and the address space begins at 0xffffff8000000000.
    let tables = Tables::new(Format::Aarch64, 0x2000, 12, 39).unwrap();
    assert_eq!(at(tables, &words, 0xffff_ff80_0000_2abc), Some((0x4567_8abc, 0x544)));
    assert_eq!(at(tables, &words, 0xffff_0000_0000_2abc), None);

    // 64 KB and 52 bits: the first table decides 10 bits, the others 13; bits 15:12 are bits 51:48.
    let tables = Tables::new(Format::Aarch64, 0x10000, 16, 52).unwrap();
    let words = [(0x10000, 0x2_0003), (0x2_0000, 0x3_0003), (0x3_0008, 0x0068_0000_8001_a703)];
    assert_eq!(at(tables, &words, 0xfff0_0000_0001_2345), Some((0xa_0000_8001_2345, 0x1_0000 - 0x2345)));
}

#[test]
fn some_last_table_of_a_process() {
    let tables = Tables::new(X86, 0x1000, 12, 48).unwrap();
    let words =
        [(0x1000 + 300 * 8, 0x9003), (0x1000 + 8, 0x2067), (0x2000 + 40, 0x3067), (0x3000, 0x4567), (0x3008, 0x45e7)];
    let memory = Words(words.into_iter().collect());
    assert_eq!(tables.some_last_table(&memory, 0x1000), Some(0x4000));
    // Tables that lead back to themselves.
    let memory = Words([(0x1000, 0x1067), (0x1008, 0x1067)].into_iter().collect());
    assert_eq!(tables.some_last_table(&memory, 0x1000), Some(0x1000));
}

#[test]
fn shapes_that_cannot_be() {
    assert!(Tables::new(X86, 0, 16, 48).is_none());
    assert!(Tables::new(X86, 0, 12, 52).is_none());
    assert!(Tables::new(Format::Aarch64, 0, 12, 12).is_none());
    assert!(Tables::new(Format::Aarch64, 0, 13, 48).is_none());
}
