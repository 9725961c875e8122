//! An ELF file as vmlinux is one, without its code: symbols, types and variables.

use object::elf::{
    EM_AARCH64, EM_X86_64, ET_EXEC, NT_GNU_BUILD_ID, PF_R, PF_X, PT_LOAD, SHF_ALLOC, SHF_EXECINSTR, SHN_ABS,
    SHT_NOBITS, SHT_NOTE, SHT_PROGBITS, SHT_STRTAB, SHT_SYMTAB, STB_GLOBAL, STB_LOCAL, STB_WEAK, STT_FUNC, STT_NOTYPE,
    STT_OBJECT,
};
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, Writer};
use object::Endianness;

use super::dwarf::Sections;
use super::kallsyms::Symbol;

/// Symbols at one address.
const MOST_ALIASES: usize = 4096;
/// A symbol has no more bytes. (The last of the per-CPU offsets lies far below the next symbol.)
const LARGEST: u64 = 64 << 20;

/// The number of the section of the code.
const TEXT: u32 = 1;
/// Elf64_Sym
const ENTRY: u64 = 24;

/// What the file says beside its symbols and types.
pub struct Kernel<'a> {
    /// The machine: AArch64, else x86-64.
    pub aarch64: bool,
    /// The build-id of vmlinux.
    pub build_id: &'a [u8],
    /// The first address of the kernel's image, as vmlinux has it.
    pub start: u64,
    /// The first address behind the image.
    pub end: u64,
    /// How much higher the kernel ran (KASLR).
    pub moved: u64,
    /// Whether the file is that of a module.
    pub module: bool,
}

impl Kernel<'_> {
    /// The address that vmlinux has for an address of the running kernel. Others (per-CPU offsets) stay.
    pub fn linked(&self, address: u64) -> u64 {
        let there = address.wrapping_sub(self.moved);
        if (self.start..self.end).contains(&there) {
            there
        } else {
            address
        }
    }
}

/// A section of the file.
struct Section<'a> {
    name: &'static [u8],
    kind: u32,
    data: &'a [u8],
    /// The section of its strings, the number of its first entry that is not local, and the size of an entry.
    table: (u32, u32, u64),
}

/// Returns the file.
pub fn write(kernel: &Kernel, symbols: &[Symbol], types: &Sections) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut file = Writer::new(Endianness::Little, true, &mut out);
    let note = build_id_note(kernel.build_id);
    let (entries, names) = symbol_table(kernel, symbols);
    if names.len() >= 1 << 32 {
        return Err("its symbols are too many".to_string());
    }
    let locals = symbols.iter().filter(|symbol| is_local(symbol.kind)).count() as u32;

    file.reserve_file_header();
    file.reserve_program_headers(1);
    file.reserve_null_section_index();
    let text_name = file.add_section_name(b".text");
    file.reserve_section_index();
    // drgn takes a file with this section for a vmlinux.
    let init_name = (!kernel.module).then(|| {
        file.reserve_section_index();
        file.add_section_name(b".init.text")
    });
    let first = if kernel.module { TEXT + 1 } else { TEXT + 2 };
    let plain = |name, data| Section { name, kind: SHT_PROGBITS, data, table: (0, 0, 0) };
    let parts = [
        Section { name: b".strtab", kind: SHT_STRTAB, data: &names, table: (0, 0, 0) },
        Section { name: b".symtab", kind: SHT_SYMTAB, data: &entries, table: (first, locals + 1, ENTRY) },
        Section { name: b".note.gnu.build-id", kind: SHT_NOTE, data: &note, table: (0, 0, 0) },
        plain(b".debug_info", &types.info),
        plain(b".debug_abbrev", &types.abbreviations),
        plain(b".debug_str", &types.strings),
    ];
    let mut placed = Vec::new();
    for part in &parts {
        let name = file.add_section_name(part.name);
        file.reserve_section_index();
        placed.push((name, file.reserve(part.data.len(), 8)));
    }
    file.reserve_shstrtab_section_index();
    file.reserve_shstrtab();
    file.reserve_section_headers();

    let machine = if kernel.aarch64 { EM_AARCH64 } else { EM_X86_64 };
    file.write_file_header(&FileHeader {
        os_abi: 0,
        abi_version: 0,
        e_type: ET_EXEC,
        e_machine: machine,
        e_entry: kernel.start,
        e_flags: 0,
    })
    .map_err(|error| error.to_string())?;
    file.write_align_program_headers();
    let span = kernel.end.saturating_sub(kernel.start);
    file.write_program_header(&ProgramHeader {
        p_type: PT_LOAD,
        p_flags: PF_R | PF_X,
        p_offset: 0,
        p_vaddr: kernel.start,
        p_paddr: kernel.start,
        p_filesz: 0,
        p_memsz: span,
        p_align: 4096,
    });
    for (part, (_, offset)) in parts.iter().zip(&placed) {
        file.pad_until(*offset);
        file.write(part.data);
    }
    file.write_shstrtab();
    file.write_null_section_header();
    let code = u64::from(SHF_ALLOC | SHF_EXECINSTR);
    file.write_section_header(&header(text_name, SHT_NOBITS, code, kernel.start, 0, span));
    if let Some(name) = init_name {
        file.write_section_header(&header(name, SHT_PROGBITS, code, kernel.start, 0, 0));
    }
    for (part, (name, offset)) in parts.iter().zip(placed) {
        let (sh_link, sh_info, sh_entsize) = part.table;
        let plain = header(name, part.kind, 0, 0, offset as u64, part.data.len() as u64);
        file.write_section_header(&SectionHeader { sh_link, sh_info, sh_entsize, ..plain });
    }
    file.write_shstrtab_section_header();
    Ok(out)
}

/// Returns the entries of the symbols, and their names. They are written here because a writer that looks for names
/// with the same end sorts all of them.
fn symbol_table(kernel: &Kernel, symbols: &[Symbol]) -> (Vec<u8>, Vec<u8>) {
    let mut entries = Vec::with_capacity((symbols.len() + 1) * ENTRY as usize);
    entries.resize(ENTRY as usize, 0);
    let mut names = Vec::with_capacity(32 * symbols.len());
    names.push(0);
    for place in ordered(symbols) {
        let symbol = &symbols[place];
        let address = kernel.linked(symbol.address);
        let inside = (kernel.start..kernel.end).contains(&address);
        let section = if inside { TEXT as u16 } else { SHN_ABS };
        entries.extend((names.len() as u32).to_le_bytes());
        entries.extend([info(symbol.kind), 0]);
        entries.extend(section.to_le_bytes());
        entries.extend(address.to_le_bytes());
        entries.extend(size(symbols, place).to_le_bytes());
        names.extend_from_slice(symbol.name.as_bytes());
        names.push(0);
    }
    (entries, names)
}

fn header(name: object::write::StringId, kind: u32, flags: u64, address: u64, offset: u64, size: u64) -> SectionHeader {
    SectionHeader {
        name: Some(name),
        sh_type: kind,
        sh_flags: flags,
        sh_addr: address,
        sh_offset: offset,
        sh_size: size,
        sh_link: 0,
        sh_info: 0,
        sh_addralign: 1,
        sh_entsize: 0,
    }
}

fn build_id_note(id: &[u8]) -> Vec<u8> {
    let mut note: Vec<u8> = [4, id.len() as u32, NT_GNU_BUILD_ID].iter().flat_map(|word| word.to_le_bytes()).collect();
    note.extend(b"GNU\0");
    note.extend(id);
    note.resize(note.len().next_multiple_of(4), 0);
    note
}

/// The places of the symbols, the local ones first as ELF has them. Of several names of an address, debuggers take the
/// first. A system call has three, and the machine's own is meant (`__x64_`, where 32-bit programs use `__ia32_`).
fn ordered(symbols: &[Symbol]) -> impl Iterator<Item = usize> + '_ {
    let order = |symbol: &Symbol| (!is_local(symbol.kind), symbol.name.starts_with("__ia32_"));
    let orders = [(false, false), (false, true), (true, false), (true, true)];
    let those = move |wanted| (0..symbols.len()).filter(move |&place| order(&symbols[place]) == wanted);
    orders.into_iter().flat_map(those)
}

fn is_local(kind: u8) -> bool {
    kind.is_ascii_lowercase() && !matches!(kind, b'w' | b'v')
}

/// The binding and the type of a symbol, as `nm`'s letter says them.
fn info(kind: u8) -> u8 {
    let binding = match kind {
        b'w' | b'v' | b'W' | b'V' => STB_WEAK,
        _ if is_local(kind) => STB_LOCAL,
        _ => STB_GLOBAL,
    };
    let of = match kind.to_ascii_lowercase() {
        b't' | b'w' => STT_FUNC,
        b'a' => STT_NOTYPE,
        _ => STT_OBJECT,
    };
    binding << 4 | of
}

/// A symbol whose size is not known ends where the next one begins.
fn size(symbols: &[Symbol], place: usize) -> u64 {
    let Symbol { address, size, .. } = symbols[place];
    if size > 0 {
        return size;
    }
    let next = symbols[place..].iter().take(MOST_ALIASES).find(|next| next.address > address);
    next.map_or(0, |next| next.address - address).min(LARGEST)
}
