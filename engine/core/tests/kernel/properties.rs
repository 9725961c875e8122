use dmods_engine::kernel::listed_pages::{ListedPages, Lists};
use dmods_engine::kernel::scan::{Counts, Scan};
use dmods_engine::kernel::virtual_memory::VirtualMemory;
use dmods_engine::kernel::{Kind, KINDS};
use dmods_engine::Control;

use super::machine::{Machine, Memory, Rng, BASE, DIRECT, PAGE, PAGES};
use super::plain::Plain;

const IDLE: u64 = 0xffff_ffff;
/// One user, mapped nowhere.
const USED: u64 = 1 << 32 | 0xffff_ffff;

fn scan(machine: &Machine, memory: &Memory, remember: usize) -> (Vec<u8>, Counts) {
    let mut space = VirtualMemory::new(memory, machine.tables);
    let listed = ListedPages::default();
    let mut each = Vec::new();
    let counts = Scan::new(&machine.layout, &listed, &mut space, remember, Some(&mut each))
        .run(&[(0, PAGES)], &Control::default());
    (each, counts)
}

fn page_type(machine: &Machine, kind: Kind) -> Option<u64> {
    machine.layout.types.iter().find(|t| t.2 == kind).map(|(mask, value, _)| {
        // A type that is a cleared bit has all others set.
        let rest = if *value == 0xffff_0000 { 0xffff & !mask } else { 0 };
        u64::from(value | rest)
    })
}

/// Writes one `struct page`. Returns how many pages it begins.
fn write(machine: &mut Machine, rng: &mut Rng, pfn: u64) -> u64 {
    let layout = machine.layout.clone();
    let files: Vec<u64> = {
        let mut files: Vec<u64> = machine.files.keys().copied().collect();
        files.sort_unstable();
        files
    };
    let set = |machine: &mut Machine, offset: usize, value: u64| machine.set(pfn, offset, value);
    let counts = if rng.chance(3) { 2 << 32 | rng.below(3) } else { USED };
    set(machine, layout.mapcount, counts);
    let mut flags = if rng.chance(4) { 1 << rng.below(7) } else { 0 };
    let mut order = if rng.chance(3) { 1 + rng.below(5) } else { 0 };
    match rng.below(13) {
        0 => flags |= layout.reserved,
        1 => {
            // A free block, idle up to its end.
            order = rng.below(10);
            order = order.min(u64::from(pfn.trailing_zeros())).min(63 - (PAGES - pfn).leading_zeros() as u64);
            machine.set(pfn, layout.flags, 0);
            machine.set(pfn, layout.mapcount, page_type(machine, Kind::Free).unwrap());
            machine.set(pfn, layout.private, order);
            (1..1 << order).for_each(|i| machine.set(pfn + i, layout.mapcount, IDLE));
            return 1 << order;
        }
        2 => {
            if let Some(kind) = page_type(machine, Kind::Slab) {
                set(machine, layout.mapcount, kind);
            }
            flags |= layout.slab;
        }
        3 | 4 => {
            set(machine, layout.mapping, DIRECT + 0x50000 + 1 + rng.below(2) * 2);
            flags |= layout.swapbacked;
        }
        5 => {
            set(machine, layout.mapping, DIRECT + 0x77000 + rng.below(2) * 0x1000 + 2);
        }
        6 | 7 => {
            set(machine, layout.mapping, files[rng.below(files.len() as u64) as usize]);
            flags |= if rng.chance(4) { layout.swapbacked } else { 0 };
            flags |= if rng.chance(4) { 1 << 3 } else { 0 };
        }
        8 => {
            flags |= layout.has_private;
            set(machine, layout.private, if rng.chance(2) { layout.zfs } else { 77 });
        }
        9 => {
            let typed = layout.types[rng.below(layout.types.len() as u64) as usize].2;
            if typed != Kind::Free {
                set(machine, layout.mapcount, page_type(machine, typed).unwrap());
            }
        }
        10 => flags |= layout.swapbacked | layout.swapcache,
        11 => set(machine, layout.mapcount, IDLE),
        _ => flags |= if rng.chance(4) { layout.hwpoison } else { 0 },
    }
    let order = order.min(u64::from(pfn.trailing_zeros()));
    let count = if pfn + (1 << order) <= PAGES { 1 << order } else { 1 };
    if count > 1 {
        flags |= layout.compound;
        for i in 1..count {
            machine.set(pfn + i, layout.head, BASE + pfn * layout.size as u64 + 1);
            machine.set(pfn + i, layout.mapcount, IDLE);
        }
        machine.set(pfn + 1, 16, 0xffff_ffff_0000_0000 | rng.below(4));
    }
    machine.set(pfn, layout.flags, flags);
    count
}

fn healthy(rng: &mut Rng, by_number: bool, size: usize) -> Machine {
    let mut machine = Machine::new(rng, by_number, size);
    let mut pfn = 0;
    while pfn < PAGES {
        pfn += write(&mut machine, rng, pfn);
    }
    machine
}

/// Overwrites words of the page array with noise and with words of other pages.
fn damage(machine: &mut Machine, rng: &mut Rng, words: u64) {
    for _ in 0..words {
        let (pfn, offset) = (rng.below(PAGES), rng.below(machine.layout.size as u64 / 8) as usize * 8);
        let noise = rng.next();
        let value = match rng.below(7) {
            0 => 0,
            1 => u64::MAX,
            2 => BASE + rng.below(PAGES * machine.layout.size as u64) / 8 * 8 + 1,
            3 => machine.get(rng.below(PAGES), offset),
            4 => DIRECT + (noise & 0x3ff_ffff),
            5 => noise & 0xf_ffff,
            _ => noise,
        };
        machine.set(pfn, offset, value);
    }
}

fn agree(machine: &Machine, missing: &[u64], granule: usize, what: &str) -> Counts {
    let (each, counts) = scan(machine, &machine.memory(missing, granule), 5);
    let expected = Plain::classify(machine, missing);
    assert_eq!(each.len(), expected.len(), "{what}");
    for (pfn, (found, wanted)) in each.iter().zip(&expected).enumerate() {
        let found = KINDS[*found as usize].0;
        assert_eq!(
            found, *wanted,
            "{what}: page {pfn} of a machine whose struct page has {} bytes",
            machine.layout.size
        );
    }
    for (kind, name) in KINDS {
        let pages = expected.iter().filter(|k| **k == kind).count() as u64;
        assert_eq!(counts.kinds[kind as usize], pages, "{what}: {name}");
    }
    counts
}

/// Only pieces of many pages. With small ones, damaged blocks are believed unread (see
/// `blocks_are_believed_where_bytes_are_dear`).
const GRANULES: [usize; 2] = [256 << 10, 2 << 20];

#[test]
fn healthy_machines() {
    for seed in 1..=24 {
        let mut rng = Rng(seed * 0x9e37_79b9);
        let size = [64, 64, 56, 80][seed as usize % 4];
        let machine = healthy(&mut rng, seed % 2 == 0, size);
        let counts = agree(&machine, &[], GRANULES[seed as usize % 2], &format!("seed {seed}"));
        assert_eq!(counts.odd, Default::default(), "seed {seed}");
        assert_eq!(counts.kinds.iter().sum::<u64>(), PAGES);
        let looked_up = counts.identity.hits + counts.identity.misses;
        assert!(counts.identity.misses >= 5 && looked_up > 100, "seed {seed}: {:?}", counts.identity);
    }
}

#[test]
fn damaged_machines() {
    for seed in 1..=40 {
        let mut rng = Rng(seed * 0x1234_5671);
        let mut machine = healthy(&mut rng, seed % 2 == 0, 64);
        let words = 1 << rng.below(15);
        damage(&mut machine, &mut rng, words);
        let missing: Vec<u64> = (0..rng.below(20)).map(|_| rng.below(PAGES * 64 / PAGE)).collect();
        let mut missing: Vec<u64> = missing;
        missing.sort_unstable();
        missing.dedup();
        agree(&machine, &missing, GRANULES[seed as usize % 2], &format!("seed {seed}"));
    }
}

#[test]
fn noise() {
    for seed in 1..=12 {
        let mut rng = Rng(seed * 0x0bad_5eed);
        let mut machine = Machine::new(&mut rng, seed % 2 == 0, 64);
        for pfn in 0..PAGES {
            for offset in (0..64).step_by(8) {
                let word = rng.next();
                machine.set(pfn, offset, word);
            }
        }
        let counts = agree(&machine, &[], GRANULES[seed as usize % 2], &format!("seed {seed}"));
        assert!(counts.odd.nonsense + counts.odd.lost_heads > PAGES / 4);
    }
}

/// Every page is counted once, even if its part of the array need not be read.
#[test]
fn blocks_are_believed_where_bytes_are_dear() {
    let mut skipped = 0;
    for seed in 1..=12 {
        let mut rng = Rng(seed * 0x7777_7771);
        let mut machine = healthy(&mut rng, seed % 2 == 0, 64);
        let (each, counts) = scan(&machine, &machine.memory(&[], PAGE as usize), 10);
        let (wanted, _) = scan(&machine, &machine.memory(&[], GRANULES[0]), 10);
        assert_eq!(each, wanted, "seed {seed}");
        skipped += counts.skipped;
        damage(&mut machine, &mut rng, 1000);
        let (each, counts) = scan(&machine, &machine.memory(&[], PAGE as usize), 10);
        assert_eq!((each.len() as u64, counts.kinds.iter().sum::<u64>()), (PAGES, PAGES), "seed {seed}");
    }
    assert!(skipped > 0);
}

/// The first vmemmap page of a huge page may stand for all of them: then the next `struct page` names the true head.
#[test]
fn fake_heads() {
    let mut machine = Machine::new(&mut Rng(7), true, 64);
    let layout = machine.layout.clone();
    let hugetlb = page_type(&machine, Kind::Hugetlb).unwrap() | 1 << 32;
    for block in 0..8 {
        for pfn in block * 64..block * 64 + 64 {
            if pfn % 64 == 0 {
                machine.set(pfn, layout.flags, layout.compound);
                machine.set(pfn, layout.mapcount, if block == 0 { hugetlb } else { IDLE });
            } else {
                machine.set(pfn, layout.head, BASE + 1);
                machine.set(pfn, layout.mapcount, IDLE);
            }
        }
    }
    let counts = agree(&machine, &[], GRANULES[0], "fake heads");
    assert_eq!(counts.kinds[Kind::Hugetlb as usize], 512);
}

/// Lists whose links contradict each other end. What they held so far counts.
#[test]
fn lists() {
    for seed in 1..=30 {
        let mut rng = Rng(seed * 0x5bd1_e995);
        let mut machine = Machine::new(&mut rng, true, 64);
        let layout = machine.layout.clone();
        let (head, count) = (DIRECT + 0x20_0000, 2 + rng.below(200));
        let mut pfns: Vec<u64> = (0..PAGES).step_by(7).collect();
        for i in (1..pfns.len()).rev() {
            pfns.swap(i, rng.below(i as u64 + 1) as usize);
        }
        pfns.truncate(count as usize);
        let node = |pfn: u64| BASE + pfn * 64 + layout.lru as u64;
        let mut ring: Vec<u64> = vec![head];
        ring.extend(pfns.iter().map(|pfn| node(*pfn)));
        let link = |machine: &mut Machine, at: u64, next: u64, prev: u64| {
            if at == head {
                machine.put(head - DIRECT, next);
                machine.put(head - DIRECT + 8, prev);
            } else {
                let pfn = (at - BASE) / 64;
                machine.set(pfn, layout.lru, next);
                machine.set(pfn, layout.lru + 8, prev);
            }
        };
        let around = |i: usize| ring[i % ring.len()];
        for i in 0..ring.len() {
            link(&mut machine, ring[i], around(i + 1), around(i + ring.len() - 1));
        }
        let broken = rng.chance(2).then(|| 1 + rng.below(count - 1) as usize);
        if let Some(i) = broken {
            // Back to an earlier node, or to nowhere.
            let wrong = if rng.chance(2) { around(rng.below(i as u64) as usize + 1) } else { rng.next() };
            link(&mut machine, ring[i], wrong, around(i - 1));
        }
        let lists = Lists { per_cpu: vec![(head, 0)], ..Lists::default() };
        let memory = machine.memory(&[], GRANULES[0]);
        let mut space = VirtualMemory::new(&memory, machine.tables);
        let pages = ListedPages::gather(&lists, &layout, &[(0, PAGES)], &mut space, &Control::default());
        let listed = broken.unwrap_or(pfns.len());
        for (place, pfn) in pfns.iter().enumerate() {
            let wanted = (place < listed).then_some(Kind::PerCpuFree);
            assert_eq!(pages.kind(*pfn), wanted, "seed {seed}: {place} of {listed}");
        }
        assert_eq!(pages.broken, u64::from(broken.is_some()), "seed {seed}");
    }
}
