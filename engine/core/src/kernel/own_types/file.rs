//! An ELF file as vmlinux is one, without its code: symbols, types and variables.

use object::elf::{
    EM_AARCH64, EM_X86_64, ET_EXEC, NT_GNU_BUILD_ID, PF_R, PF_X, PT_LOAD, SHF_ALLOC, SHF_EXECINSTR, SHN_ABS,
    SHT_NOBITS, SHT_NOTE, SHT_PROGBITS, STB_GLOBAL, STB_LOCAL, STB_WEAK, STT_FUNC, STT_NOTYPE, STT_OBJECT,
};
use object::write::elf::{FileHeader, ProgramHeader, SectionHeader, Sym, Writer};
use object::Endianness;

use super::dwarf::Sections;
use super::kallsyms::Symbol;

/// Symbols at one address.
const MOST_ALIASES: usize = 4096;
/// A symbol has no more bytes. (The last of the per-CPU offsets lies far below the next symbol.)
const LARGEST: u64 = 64 << 20;

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

/// Returns the file.
pub fn write(kernel: &Kernel, symbols: &[Symbol], types: &Sections) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut file = Writer::new(Endianness::Little, true, &mut out);
    let note = build_id_note(kernel.build_id);

    file.reserve_file_header();
    file.reserve_program_headers(1);
    file.reserve_null_section_index();
    let text_name = file.add_section_name(b".text");
    let text = file.reserve_section_index();
    // drgn takes a file with this section for a vmlinux.
    let init_name = (!kernel.module).then(|| {
        file.reserve_section_index();
        file.add_section_name(b".init.text")
    });
    let parts: [(&[u8], &[u8]); 4] = [
        (b".note.gnu.build-id", &note),
        (b".debug_info", &types.info),
        (b".debug_abbrev", &types.abbreviations),
        (b".debug_str", &types.strings),
    ];
    let mut placed = Vec::new();
    for (name, data) in parts {
        let name = file.add_section_name(name);
        file.reserve_section_index();
        placed.push((name, data, file.reserve(data.len(), 4)));
    }
    let ordered = ordered(symbols);
    file.reserve_null_symbol_index();
    let mut names = Vec::with_capacity(ordered.len());
    for &place in &ordered {
        file.reserve_symbol_index(Some(text));
        names.push(file.add_string(symbols[place].name.as_bytes()));
    }
    file.reserve_symtab_section_index();
    file.reserve_symtab();
    file.reserve_strtab_section_index();
    file.reserve_strtab();
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
    file.write_program_header(&ProgramHeader {
        p_type: PT_LOAD,
        p_flags: PF_R | PF_X,
        p_offset: 0,
        p_vaddr: kernel.start,
        p_paddr: kernel.start,
        p_filesz: 0,
        p_memsz: kernel.end.saturating_sub(kernel.start),
        p_align: 4096,
    });
    for (_, data, offset) in &placed {
        file.pad_until(*offset);
        file.write(data);
    }
    file.write_null_symbol();
    for (&place, name) in ordered.iter().zip(names) {
        let symbol = &symbols[place];
        let address = kernel.linked(symbol.address);
        let inside = (kernel.start..kernel.end).contains(&address);
        file.write_symbol(&Sym {
            name: Some(name),
            section: inside.then_some(text),
            st_info: info(symbol.kind),
            st_other: 0,
            st_shndx: if inside { 0 } else { SHN_ABS },
            st_value: address,
            st_size: size(symbols, place),
        });
    }
    file.write_strtab();
    file.write_shstrtab();
    file.write_null_section_header();
    let code = u64::from(SHF_ALLOC | SHF_EXECINSTR);
    let span = kernel.end.saturating_sub(kernel.start);
    file.write_section_header(&header(text_name, SHT_NOBITS, code, kernel.start, 0, span));
    if let Some(name) = init_name {
        file.write_section_header(&header(name, SHT_PROGBITS, code, kernel.start, 0, 0));
    }
    for (place, (name, data, offset)) in placed.iter().enumerate() {
        let kind = if place == 0 { SHT_NOTE } else { SHT_PROGBITS };
        file.write_section_header(&header(*name, kind, 0, 0, *offset as u64, data.len() as u64));
    }
    let locals = symbols.iter().filter(|symbol| is_local(symbol.kind)).count();
    file.write_symtab_section_header(locals as u32 + 1);
    file.write_strtab_section_header();
    file.write_shstrtab_section_header();
    Ok(out)
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
fn ordered(symbols: &[Symbol]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..symbols.len()).collect();
    places.sort_by_key(|&place| (!is_local(symbols[place].kind), symbols[place].name.starts_with("__ia32_")));
    places
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
