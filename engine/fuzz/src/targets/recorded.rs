//! The auditor's tables.

use dmods_engine::records::audit::{self, Bits, Clock, Layout, Ring, Shadow, Table};
use dmods_engine::records::groups::{self, Leak, Split};
use dmods_engine::Control;

use super::{memory, Input};

/// Records, stacks and the log, with a layout that the root in the dump may claim, and lookups in them.
pub fn audit(data: &[u8]) {
    let mut input = Input(data);
    let layout = layout(&mut input);
    let leaks: Vec<Leak> = (0..input.byte() % 4)
        .map(|_| Leak { address: input.address(), size: input.short(), mmapped: false, kept_count: 1, kept_bytes: 9 })
        .collect();
    let image = memory(&mut input, 8);
    let (records, _damage) = audit::read(&image, &layout, &Control::default()).expect("not cancelled");
    let all = records.all();
    assert!(all.windows(2).all(|pair| pair[0].address < pair[1].address));
    for record in all.iter().take(32) {
        assert_eq!(records.of_block(record.address), Some(record));
        assert_eq!(records.at(record.at).map(|same| same.at), Some(record.at));
        assert!(records.stacks.stack(record.stack).frames.len() <= layout.frames);
    }
    assert_eq!(records.from(0, usize::MAX, None).len(), all.len());
    for split in [Split::None, Split::Thread, Split::Size] {
        let users = groups::users(&records, split);
        assert_eq!(users.iter().map(|user| user.count).sum::<u64>(), all.len() as u64);
    }
    let grouped = groups::group(&[&records], &leaks);
    assert_eq!(grouped.iter().map(|group| group.count).sum::<u64>(), leaks.len() as u64);
    let log = records.log.all();
    assert!(log.windows(2).all(|pair| pair[0].sequence <= pair[1].sequence));
    for one in log.iter().take(32) {
        assert!(records.log.of_block(one.address).any(|same| same == one));
        assert!(records.log.holding(one.address).is_some());
        assert_eq!(records.log.at(one.at).map(|same| same.at), Some(one.at));
    }
    assert!(records.log.before(u64::MAX, 7, Some(true), None).len() <= 7);
}

fn layout(input: &mut Input) -> Layout {
    let how = input.byte();
    let (leaf, middle) = (u32::from(input.byte() % 8), u32::from(input.byte() % 4));
    let granule = 3 + u32::from(how % 4);
    let middle_shift = granule + leaf;
    let mut shadow = Shadow {
        top: input.address(),
        top_shift: middle_shift + middle,
        top_count: input.short() as u32,
        middle_shift,
        middle_count: 1 << middle,
        granule_shift: granule,
        leaf_records: 1 << leaf,
        record_size: 16,
        offset_shift: 3,
        live: Bits { word: 0, shift: 0, width: 1 },
        freed: Bits { word: 0, shift: 48, width: 1 },
        offset: Bits { word: 0, shift: 1, width: 5 },
        stack: Bits { word: 0, shift: 6, width: 26 },
        thread: Bits { word: 0, shift: 32, width: 16 },
        size: Bits { word: 1, shift: 0, width: 24 },
        time: Bits { word: 1, shift: 24, width: 40 },
    };
    if how & 16 != 0 {
        // All other values of a root.
        let bits = |input: &mut Input| Bits { word: input.byte(), shift: input.byte(), width: input.byte() };
        for field in [&mut shadow.live, &mut shadow.freed, &mut shadow.offset, &mut shadow.stack, &mut shadow.size] {
            *field = bits(input);
        }
        shadow.top_shift = input.byte().into();
        shadow.middle_shift = input.byte().into();
        shadow.record_size = input.short() as u32;
        shadow.leaf_records = input.short() as u32;
        shadow.middle_count = input.short() as u32;
        shadow.offset_shift = input.byte().into();
        shadow.top_count = input.word() as u32;
    }
    let stacks = Table {
        chunks: input.address(),
        chunk_shift: u32::from(input.byte() % 40),
        chunk_count: u32::from(input.byte()),
        entry_size: if how & 32 != 0 { input.short() as u32 } else { 16 },
        count: if how & 64 != 0 { input.word() } else { input.byte().into() },
    };
    let entries = input.address();
    let ring = Ring { entries, capacity: input.byte().into(), entry_size: 64 };
    let capacity = if how & 128 != 0 { input.word() } else { input.byte().into() };
    Layout {
        shadow,
        stacks,
        log: Ring { entry_size: if how & 32 != 0 { input.short() as u32 } else { 64 }, ..ring },
        contents: Ring { entries: input.address(), capacity, entry_size: input.short() as u32 },
        clock: Clock {
            start: input.word(),
            shift: input.byte().into(),
            numerator: input.word(),
            denominator: input.byte().into(),
        },
        frames: input.byte().into(),
        mean: if how & 8 != 0 { input.word() } else { 0 },
    }
}

/// A file of pprof. What is read comes back as it was.
pub fn pprof(data: &[u8]) {
    let _ = dmods_engine::profile::pprof::decode(data, 1 << 16);
    if let Ok(profile) = dmods_engine::profile::pprof::parse(data) {
        let again = dmods_engine::profile::pprof::decode(&dmods_engine::profile::pprof::encode(&profile), 1 << 24);
        assert_eq!(again, Ok(profile));
    }
}
