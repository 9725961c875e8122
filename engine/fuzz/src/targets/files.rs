//! Files: symbols and sections of ELF, unwind tables, names, compressed dumps. Also instructions.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::kernel::kdump::Kdump;
use dmods_engine::kernel::physical::Physical;
use dmods_engine::symbols::{self, Symbols};
use dmods_engine::unpack::{Form, Stream};
use dmods_engine::unwind::{Module, Unwinder, UNKNOWN};
use dmods_engine::{disassemble, unwind};

use super::{with_pointers, Input, PLACES};

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

thread_local! {
    /// A file in memory that is rewritten for each input.
    static SCRATCH: File = {
        let file = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).expect("a file in memory");
        file.into()
    };
}

/// Writes a file of those pieces, each at its place, and returns its path.
pub(super) fn scratch(pieces: &[(u64, &[u8])]) -> PathBuf {
    SCRATCH.with(|file| {
        file.set_len(0).expect("shorter");
        for (at, bytes) in pieces {
            file.write_all_at(bytes, *at).expect("room");
        }
        format!("/proc/self/fd/{}", file.as_raw_fd()).into()
    })
}

/// A named section of an ELF file, compressed or not; the first byte chooses the name.
pub fn section(data: &[u8]) {
    let mut input = Input(data);
    let names = [&b".gnu_debugdata"[..], b".symtab", b".debug_str", b""];
    let name = names[usize::from(input.byte()) % names.len()];
    let path = scratch(&[(0, input.0)]);
    assert!(symbols::section(path, name).map_or(0, |bytes| bytes.len()) <= 64 << 20);
}

/// A file that was compressed as a whole: in each form, unpacked in pieces of different sizes.
pub fn unpack(data: &[u8]) {
    let mut input = Input(data);
    let names = ["gzip", "xz", "zstd", "bzip2", "lz4"];
    let form = Form::named(names[usize::from(input.byte()) % names.len()]).expect("known");
    let mut piece = vec![0; 1 + usize::from(input.byte()) * 300];
    let (packed, size) = (input.0.to_vec(), input.0.len() as u64);
    let Ok(mut stream) = Stream::new(form, std::io::Cursor::new(packed)) else { return };
    for _ in 0..200 {
        let (count, error) = stream.fill(&mut piece);
        assert!(count <= piece.len() && stream.packed() <= size);
        if count < piece.len() || error.is_some() {
            break;
        }
    }
}

/// Unwinds with tables, signal frames and code from the input.
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

/// A compressed kernel dump. Its header, bitmap and descriptors come from the input, each at the place that the header
/// says. Reading at once, in parts, and again must give the same bytes.
pub fn kdump(data: &[u8]) {
    let mut input = Input(data);
    let how = input.byte();
    let path = if how == 0 { scratch(&[(0, input.0)]) } else { dump(&mut input, how) };
    let Ok(dump) = Kdump::open(&path) else { return };
    let mut whole = [0; 3 << 14];
    for pfn in [0, 1, 9, u64::from(how), 1 << 15, (1 << 40) - 1] {
        let at = pfn.wrapping_mul(4096).wrapping_add(u64::from(how & 3) << 10);
        let size = 1 + usize::from(how) % 7 * 3000;
        let got = dump.read(at, &mut whole[..size]);
        assert!(got <= size);
        let mut part = [0; 100];
        for from in [0, got / 2, got] {
            let most = part.len().min(got - from);
            assert_eq!(dump.read(at + from as u64, &mut part[..most]), most);
            assert_eq!(part[..most], whole[from..from + most]);
        }
    }
}

fn dump(input: &mut Input, how: u8) -> PathBuf {
    let block = [4096u32, 4096, 4096, 8192, 65536, 4095][usize::from(how >> 2) % 6];
    let (sub_blocks, bitmap_blocks) =
        (u32::from(input.byte() % 4), u32::from(input.byte()) * if how & 1 != 0 { 2 } else { 1 });
    let mut head = [0; 464];
    let mut put = |at: usize, value: u32| head[at..at + 4].copy_from_slice(&value.to_le_bytes());
    put(8, u32::from(input.byte()));
    put(428, block);
    put(432, sub_blocks);
    put(436, if input.byte() == 0xff { u32::MAX } else { bitmap_blocks });
    put(440, input.short() as u32);
    head[..8].copy_from_slice(if how & 2 != 0 { b"KDUMP   " } else { b"DISKDUMP" });
    let mut sub = [0; 104];
    sub[96..].copy_from_slice(&input.word().to_le_bytes());
    sub[12] = u8::from(input.byte() == 0xff);
    let bitmaps = u64::from(1 + sub_blocks) * u64::from(block);
    let bits_at = bitmaps + u64::from(bitmap_blocks / 2) * u64::from(block);
    let descriptors_at = bitmaps + u64::from(bitmap_blocks) * u64::from(block);
    let count = usize::from(input.byte() % 8);
    let mut descriptors = Vec::new();
    let data_at = descriptors_at + 24 * count as u64;
    for _ in 0..count {
        let offset = if input.byte() == 0xff { input.word() } else { data_at + u64::from(input.byte()) };
        descriptors.extend(offset.to_le_bytes());
        descriptors.extend((input.short() as u32).to_le_bytes());
        descriptors.extend([0u32, 1, 2, 4, 32, 33][usize::from(input.byte()) % 6].to_le_bytes());
        descriptors.extend([0; 8]);
    }
    let bits = input.take(16);
    scratch(&[(0, &head), (block.into(), &sub), (bits_at, bits), (descriptors_at, &descriptors), (data_at, input.0)])
}
