//! Finds call frame information, indexes it once for each module, and turns it into rules for one pc.
//!
//! `.eh_frame` is read from the process's memory, at PT_GNU_EH_FRAME: that is what the process ran with. Where memory
//! lacks it, the module's file is read. `.debug_frame` (only in files) is used for code that `.eh_frame` does not cover.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::OnceLock;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, CommonInformationEntry, DebugFrame, EhFrame, EhFrameHdr, EndianSlice,
    FrameDescriptionEntry, LittleEndian, Pointer, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Vendor,
};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, ObjectSection};

use super::arch::Arch;
use crate::image::Image;

/// The largest `.eh_frame` that is read: several times the size of the largest browser's.
const MAX_SECTION: u64 = 256 << 20;

/// The longest instruction sequence of one CIE or FDE that is run. Real ones have a few hundred bytes.
const MAX_INSTRUCTIONS: usize = 64 << 10;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// An ELF file mapped into the process.
#[derive(Clone, Debug)]
pub struct Module {
    /// The first address.
    pub start: u64,
    /// The end.
    pub end: u64,
    /// What to add to an address in the file to get the one in the process.
    pub bias: u64,
    /// The file's path, where there is one.
    pub file: Option<PathBuf>,
}

/// How a register (or the CFA) is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Saved at CFA + this.
    At(i64),
    /// CFA + this.
    Cfa(i64),
    /// The value of a register, plus this.
    Register(usize, i64),
    /// Saved at the address that the expression computes.
    AtExpression(Box<[u8]>),
    /// The value that the expression computes.
    Expression(Box<[u8]>),
}

/// The rules at one pc.
#[derive(Clone, Debug)]
pub struct Rules {
    pub cfa: Rule,
    /// Registers that are not listed have no rule: the machine's conventions hold.
    pub registers: Vec<(usize, Rule)>,
    /// The column of the return address.
    pub return_address: usize,
    /// Augmentation 'S': this is the code that a signal handler returns to.
    pub signal: bool,
    /// The code that the entry describes, (first byte, end): a function, or the part of one that lies together.
    pub code: (u64, u64),
}

/// A module's tables, read when first needed.
#[derive(Debug)]
pub struct ModuleTables {
    module: Module,
    eh_frame: OnceLock<Option<Section>>,
    debug_frame: OnceLock<Option<Section>>,
}

impl ModuleTables {
    pub fn new(module: Module) -> ModuleTables {
        ModuleTables { module, eh_frame: OnceLock::new(), debug_frame: OnceLock::new() }
    }

    pub fn range(&self) -> (u64, u64) {
        (self.module.start, self.module.end)
    }

    /// Returns the rules at `pc`. It must lie inside the instruction (a return address less one).
    pub fn rules(&self, image: &Image, arch: &Arch, pc: u64) -> Option<Rules> {
        let module = &self.module;
        let from_memory = || eh_frame_in_memory(image, arch, module).or_else(|| section_in_file(arch, module, true));
        self.eh_frame.get_or_init(from_memory).as_ref().and_then(|section| section.rules(arch, pc)).or_else(|| {
            let from_file = || section_in_file(arch, module, false);
            self.debug_frame.get_or_init(from_file).as_ref().and_then(|section| section.rules(arch, pc))
        })
    }
}

/// One `.eh_frame` or `.debug_frame`, with an index of its FDEs.
#[derive(Debug)]
struct Section {
    bytes: Vec<u8>,
    /// Where the section is, in the address space of the code that it describes.
    address: u64,
    /// What to subtract from a pc of the process to look it up here.
    bias: u64,
    eh: bool,
    /// (first address, offset of the FDE in the section), sorted.
    index: Vec<(u64, usize)>,
}

impl Section {
    fn rules(&self, arch: &Arch, pc: u64) -> Option<Rules> {
        let pc = pc.wrapping_sub(self.bias);
        let bases = BaseAddresses::default().set_eh_frame(self.address);
        if self.eh {
            self.find(&self.eh_frame(arch), &bases, pc)
        } else {
            self.find(&self.debug_frame(arch), &bases, pc)
        }
    }

    fn eh_frame(&self, arch: &Arch) -> EhFrame<Slice<'_>> {
        let mut section = EhFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(arch.word as u8);
        section.set_vendor(vendor(arch));
        section
    }

    fn debug_frame(&self, arch: &Arch) -> DebugFrame<Slice<'_>> {
        let mut section = DebugFrame::new(&self.bytes, LittleEndian);
        section.set_address_size(arch.word as u8);
        section.set_vendor(vendor(arch));
        section
    }

    fn find<'a, S>(&'a self, section: &S, bases: &BaseAddresses, pc: u64) -> Option<Rules>
    where
        S: UnwindSection<Slice<'a>>,
        S::Offset: gimli::UnwindOffset<usize>,
    {
        let at = self.index.partition_point(|&(start, _)| start <= pc).checked_sub(1)?;
        let offset = S::Offset::from(self.index[at].1);
        let fde = section.fde_from_offset(bases, offset, S::cie_from_offset).ok()?;
        if !fde.contains(pc) || fde.entry_len() > MAX_INSTRUCTIONS || fde.cie().entry_len() > MAX_INSTRUCTIONS {
            return None;
        }
        let mut context = UnwindContext::new();
        let row = fde.unwind_info_for_address(section, bases, &mut context, pc).ok()?;
        let bytes = |e: &UnwindExpression<usize>| e.get(section).ok().map(|e| Box::<[u8]>::from(e.0.slice()));
        let mut registers = Vec::new();
        for (register, rule) in row.registers() {
            let number = usize::from(register.0);
            let rule = match rule {
                RegisterRule::SameValue => Rule::Register(number, 0),
                RegisterRule::Offset(n) => Rule::At(*n),
                RegisterRule::ValOffset(n) => Rule::Cfa(*n),
                RegisterRule::Register(other) => Rule::Register(usize::from(other.0), 0),
                RegisterRule::Expression(e) => Rule::AtExpression(bytes(e)?),
                RegisterRule::ValExpression(e) => Rule::Expression(bytes(e)?),
                _ => continue,
            };
            registers.push((number, rule));
        }
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => Rule::Register(usize::from(register.0), *offset),
            CfaRule::Expression(e) => Rule::Expression(bytes(e)?),
        };
        let return_address = usize::from(fde.cie().return_address_register().0);
        let start = fde.initial_address().wrapping_add(self.bias);
        let code = (start, start.wrapping_add(fde.len()));
        Some(Rules { cfa, registers, return_address, signal: fde.is_signal_trampoline(), code })
    }

    /// Reads every entry, for a section that has no search table.
    fn index_entries<'a, S>(section: &S, bases: &BaseAddresses) -> Vec<(u64, usize)>
    where
        S: UnwindSection<Slice<'a>>,
        S::Offset: gimli::UnwindOffset<usize>,
    {
        let mut index = Vec::new();
        // A CIE is parsed once, however many FDEs name it. Its augmentation string may be as long as the section.
        let mut cies: HashMap<usize, gimli::Result<CommonInformationEntry<Slice<'a>>>> = HashMap::new();
        let mut entries = section.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let fde: gimli::Result<FrameDescriptionEntry<Slice<'a>>> = partial.parse(|section, bases, offset| {
                let number: usize = gimli::UnwindOffset::into(offset);
                cies.entry(number).or_insert_with(|| section.cie_from_offset(bases, offset)).clone()
            });
            if let Ok(fde) = fde {
                index.push((fde.initial_address(), partial.offset()));
            }
        }
        index
    }

    /// Fills in the index. Returns None if the section has no entries.
    fn indexed(mut self, arch: &Arch, index: Option<Vec<(u64, usize)>>) -> Option<Section> {
        let bases = BaseAddresses::default().set_eh_frame(self.address);
        let mut index = index.filter(|index| !index.is_empty()).unwrap_or_else(|| {
            if self.eh {
                Section::index_entries(&self.eh_frame(arch), &bases)
            } else {
                Section::index_entries(&self.debug_frame(arch), &bases)
            }
        });
        if index.windows(2).any(|pair| pair[0].0 > pair[1].0) {
            index.sort_unstable();
        }
        self.index = index;
        (!self.index.is_empty()).then_some(self)
    }
}

fn vendor(arch: &Arch) -> Vendor {
    // DW_CFA_AARCH64_negate_ra_state shares its number with DW_CFA_GNU_window_save.
    if arch.name == "aarch64" {
        Vendor::AArch64
    } else {
        Vendor::Default
    }
}

fn eh_frame_in_memory(image: &Image, arch: &Arch, module: &Module) -> Option<Section> {
    let segments = program_headers(image, arch, module.start)?;
    let inside = |at: u64| segments.iter().find(|s| !s.eh_frame_hdr && s.start <= at && at < s.end);
    let hdr = segments.iter().find(|s| s.eh_frame_hdr)?;
    let hdr_start = hdr.start.checked_add(module.bias)?;
    let hdr_bytes = read_range(image, hdr_start, hdr.end.checked_add(module.bias)?)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(hdr_start);
    let parsed = EhFrameHdr::new(&hdr_bytes, LittleEndian).parse(&bases, arch.word as u8).ok()?;
    let Pointer::Direct(start) = parsed.eh_frame_ptr() else { return None };
    let end = inside(start.wrapping_sub(module.bias))?.end.checked_add(module.bias)?;
    let bytes = read_range(image, start, end)?;
    let index = parsed.table().map(|table| {
        let mut index = Vec::new();
        let mut rows = table.iter(&bases);
        while let Ok(Some((Pointer::Direct(pc), Pointer::Direct(fde)))) = rows.next() {
            if let Some(offset) = fde.checked_sub(start).filter(|&offset| offset < bytes.len() as u64) {
                index.push((pc, offset as usize));
            }
        }
        index
    });
    Section { bytes, address: start, bias: 0, eh: true, index: Vec::new() }.indexed(arch, index)
}

/// Returns what memory has of `[start, end)`, from its beginning on.
fn read_range(image: &Image, start: u64, end: u64) -> Option<Vec<u8>> {
    let &(first, covered_end) = image.covered(start, end.min(start.saturating_add(MAX_SECTION))).first()?;
    if first != start {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(covered_end - start).ok()?];
    let n = image.read(start, &mut bytes);
    bytes.truncate(n);
    (n > 0).then_some(bytes)
}

struct SegmentRange {
    start: u64,
    end: u64,
    eh_frame_hdr: bool,
}

/// Returns PT_LOAD and PT_GNU_EH_FRAME of the ELF file whose header is at `start`, without bias.
fn program_headers(image: &Image, arch: &Arch, start: u64) -> Option<Vec<SegmentRange>> {
    let mut head = [0; 4096];
    let n = image.read(start, &mut head);
    if arch.word == 8 {
        parse_headers::<object::elf::FileHeader64<object::LittleEndian>>(&head[..n])
    } else {
        parse_headers::<object::elf::FileHeader32<object::LittleEndian>>(&head[..n])
    }
}

fn parse_headers<H: FileHeader<Endian = object::LittleEndian>>(bytes: &[u8]) -> Option<Vec<SegmentRange>> {
    let endian = object::LittleEndian;
    let header = H::parse(bytes).ok()?;
    let mut out = Vec::new();
    for segment in header.program_headers(endian, bytes).ok()? {
        let kind = segment.p_type(endian);
        if kind == object::elf::PT_LOAD || kind == object::elf::PT_GNU_EH_FRAME {
            let start: u64 = segment.p_vaddr(endian).into();
            let end = start.checked_add(segment.p_memsz(endian).into())?;
            out.push(SegmentRange { start, end, eh_frame_hdr: kind == object::elf::PT_GNU_EH_FRAME });
        }
    }
    Some(out)
}

/// Returns the bias of the ELF file whose header is at `start`, for a file that is not listed as a module (the vdso).
pub fn bias_of_header(image: &Image, arch: &Arch, start: u64) -> Option<u64> {
    let segments = program_headers(image, arch, start)?;
    let first = segments.iter().find(|segment| !segment.eh_frame_hdr)?;
    Some(start.wrapping_sub(first.start))
}

fn section_in_file(arch: &Arch, module: &Module, eh: bool) -> Option<Section> {
    let file = File::open(module.file.as_ref()?).ok()?;
    let cache = object::ReadCache::new(file);
    let elf = object::File::parse(&cache).ok()?;
    let section = elf.section_by_name(if eh { ".eh_frame" } else { ".debug_frame" })?;
    if section.size() > MAX_SECTION {
        return None;
    }
    let bytes = section.uncompressed_data().ok()?.into_owned();
    Section { bytes, address: section.address(), bias: module.bias, eh, index: Vec::new() }.indexed(arch, None)
}
