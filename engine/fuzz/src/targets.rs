//! One function for each parser of the engine: any input may come, nothing may panic, hang or grow, and what comes back must make
//! sense. The engine's own tests replay with them what once broke it (`engine/core/tests/regressions`).

use dmods_engine::heap::bins::Bin;
use dmods_engine::heap::lists::List;
use dmods_engine::heap::model::{self, State};
use dmods_engine::heap::pass::Request;
use dmods_engine::heap::space::{Kind, Run, SLOTS};
use dmods_engine::heap::watch::Watch;
use dmods_engine::heap::{find, Control};
use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::symbols::{self, Symbols};
use dmods_engine::unwind::{Module, Unwinder, UNKNOWN};
use dmods_engine::{disassemble, tcb, unwind};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::Arc;

pub type Target = fn(&[u8]);

pub const TARGETS: [(&str, Target); 7] = [
    ("heap", heap),
    ("search", search),
    ("symbols", symbols),
    ("section", section),
    ("unwinding", unwinding),
    ("instruction", instruction),
    ("demangle", demangle),
];

/// Where memory begins: low, in the middle, at the sign bit, at the end of the address space.
const PLACES: [u64; 4] = [0x1000, 0x5555_0000_0000, 1 << 63, u64::MAX - 0xffff];

/// Takes numbers off the front of the input; 0 when there is none left.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }
    fn short(&mut self) -> u64 {
        u64::from(u16::from_le_bytes([self.byte(), self.byte()]))
    }
    fn take(&mut self, most: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        first
    }
    /// An address in or near some memory.
    fn address(&mut self) -> u64 {
        PLACES[usize::from(self.byte()) % PLACES.len()].saturating_add(self.short())
    }
    fn word(&mut self) -> u64 {
        if self.byte() % 4 == 0 {
            u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
        } else {
            self.address()
        }
    }
}

/// Words whose last byte is 0xad (which no address of a process has) become addresses, so that a pointer is two bytes away for the fuzzer.
fn with_pointers(data: &[u8], word: usize) -> Vec<u8> {
    let mut out = data.to_vec();
    for piece in out.chunks_exact_mut(word) {
        if piece[word - 1] == 0xad {
            let place = PLACES[usize::from(piece[word - 2]) % PLACES.len()];
            let value = place.saturating_add(u64::from(u16::from_le_bytes([piece[0], piece[1]])));
            piece.copy_from_slice(&value.to_le_bytes()[..word]);
        }
    }
    out
}

/// Up to four pieces of memory, which may overlap and promise more than they hold; the last takes what is left of the input.
fn memory(input: &mut Input, word: usize) -> Image {
    let mut segments = Vec::new();
    for _ in 0..1 + input.byte() % 4 {
        let (start, promised) = (input.address() & !7, input.short());
        let size = usize::try_from(input.short()).unwrap_or(0);
        let data = with_pointers(input.take(size), word);
        let end = start.saturating_add(data.len() as u64).saturating_add(promised & 0xf00);
        segments.push(Segment { start, end, source: Source::Bytes(data.into()) });
    }
    Image::new(&[], segments).expect("no file is named")
}

fn width(input: &mut Input) -> usize {
    if input.byte() % 3 == 0 {
        4
    } else {
        8
    }
}

/// Words of a slab's bitmap at most.
const MAP: u32 = SLOTS as u32 / 64;

/// The pass, the free lists, the bins, marking, leaks, and questions to the tables.
pub fn heap(data: &[u8]) {
    let mut input = Input(data);
    let word = width(&mut input);
    let kinds = [Kind::Main, Kind::Thread, Kind::Mmapped, Kind::Slab, Kind::Extent];
    let runs: Vec<Run> = (0..1 + u32::from(input.byte() % 4))
        .map(|arena| {
            let start = input.address();
            let end = if input.byte() == 0xff { input.word() } else { start.saturating_add(input.short()) };
            let kind = kinds[usize::from(input.byte()) % kinds.len()];
            Run { start, end, kind, arena: arena % 3, usable: input.short(), map: arena % 2 * MAP }
        })
        .collect();
    let heads: Vec<u64> = (0..4).map(|_| input.word()).collect();
    let sizes = (16 * input.short(), 16 * input.short());
    let flags = input.byte();
    let roots = [(input.address(), input.address()), (input.address(), u64::MAX)];
    let dead = [(input.address() & !15, input.address())];
    let maps = [[u64::MAX; MAP as usize], [0x5555_5555_5555_5555; MAP as usize]].concat();
    let image = memory(&mut input, word);
    let control = Control::default();
    let watch = [Watch { chunk: 0x290, bins: 64, width: 2 }, Watch { chunk: 0x40, bins: 2, width: 2 }];
    let request = Request { image: &image, runs, dead: &dead, watch: &watch, maps: &maps, threads: 1 };
    let mut heap = model::build(word as u64, request, &control).expect("tables in proportion to what is there");
    for (n, &head) in heads.iter().enumerate() {
        let (to_user, protected) = (flags & 1 != 0, flags & 2 != 0);
        let list = List { head, to_user, protected, least: sizes.0, most: sizes.1 };
        let (seen, set) = (heap.follow(&image, list, false, true), n % 2 == 0);
        assert_eq!(seen.count as usize, seen.blocks.len());
        heap.follow(&image, list, set, false);
        heap.release_orphans(&image, list, (flags & 4 != 0).then_some(head));
    }
    let bins: Vec<Bin> = heads
        .iter()
        .zip(0u32..)
        .map(|(&head, arena)| Bin { head, arena: arena % 3, least: sizes.0, most: sizes.1, sorted: flags & 8 != 0 })
        .collect();
    let followed = heap.bins(&image, &bins, &control).expect("not cancelled");
    assert_eq!(followed.held.len(), bins.len());
    heap.mark(&image, &roots, &heads, &control).expect("not cancelled");
    let totals = heap.find_leaks(&control).expect("not cancelled");
    answers(&*heap, totals.direct_count, totals.indirect_count);
}

/// Every question gives the same answer as the others.
fn answers(heap: &dyn model::Heap, direct: u64, indirect: u64) {
    let states = [State::Live, State::Free, State::LeakedDirectly, State::LeakedIndirectly, State::Own];
    let blocks = heap.blocks(&states, 0, 1 << 20);
    let of = |state: State| blocks.iter().filter(|(_, s, _, _)| *s == state).count() as u64;
    assert_eq!((of(State::LeakedDirectly), of(State::LeakedIndirectly)), (direct, indirect));
    assert_eq!(heap.groups().iter().map(|group| group.count).sum::<u64>(), direct);
    let counted = heap.sizes(None).iter().map(|s| s.live + s.free + s.leaked).sum::<u64>();
    assert_eq!(counted, blocks.len() as u64 - of(State::Own));
    for pair in blocks.windows(2) {
        assert!(pair[0].0.address < pair[1].0.address, "blocks in the order of their addresses");
    }
    for (block, state, _, _) in blocks.iter().take(64) {
        if let Some((found, same, _, _)) = heap.find(block.address) {
            assert_eq!((found.address, same), (block.address, *state));
        }
    }
    heap.find(u64::MAX);
}

/// Everything that looks for structures without knowing where.
pub fn search(data: &[u8]) {
    let mut input = Input(data);
    let word = width(&mut input) as u64;
    let mut ranges: Vec<(u64, u64)> = (0..input.byte() % 4).map(|_| (input.address(), input.address())).collect();
    ranges.push((0, u64::MAX));
    let (top, low, high) = (input.word(), input.word(), input.word());
    let image = memory(&mut input, word as usize);
    let _ = find::bins(&image, &ranges, word, &Control::default());
    for deep in [false, true] {
        for mapped in find::mapped(&image, &ranges, word, 4096, deep) {
            assert!(mapped.base <= mapped.chunk && mapped.chunk < mapped.end);
        }
    }
    assert!(find::stretches(&image, &ranges, word, 4096, top).iter().all(|s| s.0 < s.1));
    let found = find::pointers(&image, &ranges, word, &[(low, high)], 7, &Control::default());
    assert!(found.is_ok_and(|found| found[0].len() <= 7));
    assert!(tcb::find_self_pointers(&image, &ranges, 4, 9, || false).len() <= 9);
    assert!(tcb::find_self_pointers(&image, &ranges, 8, 9, || false).len() <= 9);
    assert!(tcb::find_dtv_pointers(&image, &ranges, 9, || false).len() <= 9);
    let (start, end) = (low.min(high), low.max(high));
    for (from, to) in image.covered(start, end) {
        assert!(start <= from && from < to && to <= end);
    }
}

/// The symbol tables of an ELF file.
pub fn symbols(data: &[u8]) {
    let symbols = Symbols::load(&[] as &[&str], &[data]);
    for address in [0, 1, 0x1000, 0x1040, 1 << 40, u64::MAX] {
        if let Some(found) = symbols.at(address) {
            assert!(found.address <= address, "a symbol above the address that it names");
        }
    }
    symbols.lookup(b"main");
    symbols.tls(b"errno");
    assert!(symbols.len() <= data.len(), "more symbols than bytes");
}

/// A named section of an ELF file, compressed or not.
pub fn section(data: &[u8]) {
    let file = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut file = std::fs::File::from(file);
    file.write_all(data).expect("room");
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    for name in [&b".gnu_debugdata"[..], b".symtab", b".debug_str", b""] {
        assert!(symbols::section(&path, name).map_or(0, |bytes| bytes.len()) <= 64 << 20);
    }
}

/// Unwinding with tables, signal frames and code that are all the input's.
pub fn unwinding(data: &[u8]) {
    let mut input = Input(data);
    let name = ["x86_64", "aarch64", "i386"][usize::from(input.byte()) % 3];
    let arch = unwind::Arch::by_name(name).expect("known");
    let mut registers = UNKNOWN;
    for register in registers.iter_mut() {
        *register = (input.byte() % 8 != 0).then(|| input.word());
    }
    let (start, bias) = (PLACES[usize::from(input.byte()) % 3], input.short());
    let end = start + 0x4000;
    let named = input.byte() % 2 == 0;
    let stack = input.take(512).to_vec();
    let text = with_pointers(input.0, 8);
    let stack_at = PLACES[1] + 0x8000;
    let stack_end = stack_at + stack.len() as u64;
    let segments = vec![
        Segment { start, end, source: Source::Bytes(text.into()) },
        Segment { start: stack_at, end: stack_end, source: Source::Bytes(with_pointers(&stack, 8).into()) },
    ];
    let image = Arc::new(Image::new(&[], segments).expect("no file is named"));
    let modules = if named { vec![Module { start, end, bias: start.wrapping_add(bias), file: None }] } else { vec![] };
    let unwinder = Unwinder::new(image, arch, modules, vec![(start, end)]);
    let (frames, _end) = unwinder.unwind(&registers, 64);
    assert!(frames.len() <= 64);
}

pub fn instruction(data: &[u8]) {
    let mut input = Input(data);
    let (arch, address) = (["x86_64", "aarch64", "i386", "mips"][usize::from(input.byte()) % 4], input.word());
    if let Some((text, length)) = disassemble::instruction(arch, input.0, address) {
        assert!(!text.is_empty() && 0 < length && length <= input.0.len().min(16));
    }
}

pub fn demangle(data: &[u8]) {
    if let Some(text) = symbols::demangle(&String::from_utf8_lossy(data)) {
        assert!(text.len() <= 1 << 20);
    }
}
