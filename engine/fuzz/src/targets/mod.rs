//! One function for each parser of the engine. For any input, nothing may panic, hang or grow, and the results must make
//! sense. The engine's own tests replay the inputs that once broke a target (`engine/core/tests/regressions`).

pub mod files;
pub mod golang;
pub mod graph;
pub mod heaps;
pub mod lines;
pub mod machine;
pub mod mimalloc;
pub mod musl;
pub mod own_types;
pub mod pymalloc;
pub mod recorded;
pub mod slabs;

use dmods_engine::image::{Image, Segment, Source};

pub type Target = fn(&[u8]);

pub const TARGETS: &[(&str, Target)] = &[
    ("heap", heaps::heap),
    ("search", heaps::search),
    ("dominators", graph::dominators),
    ("contents", graph::contents),
    ("jemalloc", heaps::jemalloc),
    ("musl", musl::musl),
    ("mimalloc", mimalloc::mimalloc),
    ("tcmalloc", heaps::tcmalloc),
    ("pymalloc", pymalloc::pymalloc),
    ("golang", golang::golang),
    ("unpack", files::unpack),
    ("symbols", files::symbols),
    ("section", files::section),
    ("lines", lines::lines),
    ("unwinding", files::unwinding),
    ("instruction", files::instruction),
    ("demangle", files::demangle),
    ("kdump", files::kdump),
    ("pagetables", machine::pagetables),
    ("memmap", machine::memmap),
    ("slabs", slabs::slabs),
    ("kallsyms", own_types::kallsyms),
    ("shape", own_types::shape),
    ("btf", own_types::btf),
    ("audit", recorded::audit),
    ("pprof", recorded::pprof),
];

/// Where memory begins: low, in the middle, at the sign bit, at the end of the address space.
const PLACES: [u64; 4] = [0x1000, 0x5555_0000_0000, 1 << 63, u64::MAX - 0xffff];

/// Takes numbers off the front of the input. They are 0 at its end.
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

/// Turns words whose last byte is 0xad into addresses, so that the fuzzer makes a pointer with two bytes. No address of a
/// process ends so.
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

/// Up to four pieces of memory. They may overlap and claim more bytes than they hold. The last takes the rest of the
/// input.
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
