//! Symbols and types that a kernel carries: tables made by hand, and the file made of them as gimli and object read it.

use std::collections::HashMap;

use dmods_engine::kernel::own_types::btf::{name_of, Btf, Type};
use dmods_engine::kernel::own_types::dwarf;
use dmods_engine::kernel::own_types::file::{self, Kernel};
use dmods_engine::kernel::own_types::join::Joined;
use dmods_engine::kernel::own_types::kallsyms::{symbols, Arrays, Symbol};
use dmods_engine::kernel::own_types::table::Table;
use dmods_engine::kernel::own_types::variables::{functions, misplaced, variables, Declared, Elements};
use dmods_engine::kernel::own_types::{by_shape, listing, module, questions};
use object::{Object, ObjectSection, ObjectSymbol};

const KERNEL: Kernel = Kernel {
    aarch64: false,
    build_id: &[0xab; 20],
    start: 0xffff_ffff_8100_0000,
    end: 0xffff_ffff_8300_0000,
    moved: 0x100_0000,
    module: false,
};

/// Tokens: a byte stands for itself, but 1 for "_start" and 2 for "Tstart".
fn tokens() -> (Vec<u8>, Vec<u8>) {
    let (mut table, mut index) = (Vec::new(), Vec::new());
    for byte in 0..=255u8 {
        index.extend((table.len() as u16).to_le_bytes());
        match byte {
            1 => table.extend(b"_start"),
            2 => table.extend(b"Tstart"),
            _ => table.push(byte.max(b'!')),
        }
        table.push(0);
    }
    (table, index)
}

fn names(texts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for text in texts {
        if text.len() < 0x80 {
            out.push(text.len() as u8);
        } else {
            out.extend([text.len() as u8 & 0x7f | 0x80, (text.len() >> 7) as u8]);
        }
        out.extend(*text);
    }
    out
}

fn read(texts: &[&[u8]], offsets: &[i32], base: Option<u64>) -> Result<Vec<Symbol>, String> {
    let (token_table, token_index) = tokens();
    let offsets: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
    symbols(&Arrays {
        count: texts.len(),
        names: &names(texts),
        token_table: &token_table,
        token_index: &token_index,
        offsets: &offsets,
        offsets_at: 0xffff_ffff_8200_0000,
        base,
    })
}

#[test]
fn the_three_encodings_of_addresses() {
    let base = 0xffff_ffff_8100_0000;
    let long = [b"t".as_slice(), &[b'x'; 300]].concat();
    let texts: [&[u8]; 4] = [b"Aper_cpu\x01", b"\x02\x01", b"dvar", &long];
    // Per-CPU symbols are absolute: an offset that is not negative is the address.
    let found = read(&texts, &[0x1000, -1, -0x101, -0x201], Some(base)).unwrap();
    let addresses: Vec<u64> = found.iter().map(|symbol| symbol.address).collect();
    assert_eq!(addresses, [0x1000, base, base + 0x100, base + 0x200]);
    assert_eq!(found[0], Symbol { address: 0x1000, kind: b'A', name: "per_cpu_start".into(), size: 0 });
    assert_eq!((found[1].kind, found[1].name.as_str()), (b'T', "start_start"));
    assert_eq!(found[3].name.len(), 300);
    // All offsets are unsigned.
    let found = read(&texts, &[0, 0x100, 0x7eff_ffff, 0x200], Some(base)).unwrap();
    assert_eq!(found.iter().map(|symbol| symbol.address - base).collect::<Vec<_>>(), [0, 0x100, 0x7eff_ffff, 0x200]);
    // They count from their own places.
    let found = read(&texts, &[-0x100, 0, 4, 8], None).unwrap();
    let places = found.iter().map(|symbol| symbol.address.wrapping_sub(0xffff_ffff_8200_0000) as i64);
    assert_eq!(places.collect::<Vec<_>>(), [-0x100, 4, 12, 20]);
}

#[test]
fn a_broken_table_says_what_is_wrong() {
    assert!(read(&[], &[], None).unwrap_err().contains("0 symbols"));
    assert!(read(&[b"Ta", b"Tb"], &[0], None).unwrap_err().contains("offsets are cut"));
    assert!(read(&[b"Ta", b""], &[0, 0], None).unwrap_err().contains("name 1"));
    assert!(read(&[b"T"], &[0], None).unwrap_err().contains("no text"));
}

const STEXT: u64 = 0xffff_ffff_8100_0000;

/// A part of a kernel's image: a symbol table as scripts/kallsyms.c writes it, with other bytes around it.
/// With `sequences`, it has seqs_of_names.
fn image(count: usize, sequences: bool) -> Vec<u8> {
    let mut texts: Vec<Vec<u8>> = (0..count).map(|number| format!("tname{number}").into_bytes()).collect();
    texts[0] = b"T_stext".to_vec();
    let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let markers: Vec<u8> =
        (0..count).step_by(256).flat_map(|number| (names(&texts[..number]).len() as u32).to_le_bytes()).collect();
    let offsets = (0..count as i32).flat_map(|number| (-1 - 16 * number).to_le_bytes()).collect();
    let (table, index) = tokens();
    let size = (count as u32).to_le_bytes().to_vec();
    let order = (0..if sequences { count as u32 } else { 0 }).flat_map(|one| one.to_be_bytes()[1..].to_vec()).collect();
    let parts = [offsets, STEXT.to_le_bytes().to_vec(), size, names(&texts), markers, order, table, index];
    let mut image = vec![0xcc; 64];
    for part in parts {
        image.resize(image.len().next_multiple_of(8), 0);
        image.extend(part);
    }
    image.extend([0xcc; 64]);
    image
}

#[test]
fn a_table_is_found_by_its_shape() {
    let at = 0xffff_ffff_8180_0000;
    for (count, sequences) in (257..=1030).flat_map(|count| [(count, false), (count, true)]) {
        let found = by_shape::find(&image(count, sequences), at, STEXT).unwrap().unwrap();
        assert_eq!(found.len(), count);
        assert_eq!(found[0], symbol(STEXT, b'T', "_stext"));
        assert_eq!(found[256], symbol(STEXT + 16 * 256, b't', "name256"));
    }
    // The digits alone are no table, and the table of another kernel is not this one's.
    assert!(by_shape::find(b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\0", at, STEXT).unwrap().is_none());
    assert!(by_shape::find(&image(300, false), at, STEXT + 1).unwrap_err().contains("no _stext"));
}

#[test]
fn a_damaged_table_is_not_found() {
    let at = 0xffff_ffff_8180_0000;
    for whole in [image(257, false), image(257, true)] {
        for end in 0..whole.len() - 64 {
            assert!(!matches!(by_shape::find(&whole[..end], at, STEXT), Ok(Some(_))), "{end}");
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0x81;
            if let Ok(Some(found)) = by_shape::find(&damaged, at, STEXT) {
                assert_eq!(found.len(), 257, "{place}");
            }
        }
    }
}

/// Types in BTF's format, as they are added.
#[derive(Default)]
struct Made {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
    /// Bytes of the kernel's strings, for the types of a module.
    before: u32,
}

impl Made {
    fn name(&mut self, text: &str) -> u32 {
        if self.strings.is_empty() {
            self.strings.push(0);
        }
        if text.is_empty() {
            return 0;
        }
        self.strings.extend(text.as_bytes());
        self.strings.push(0);
        self.before + (self.strings.len() - text.len() - 1) as u32
    }

    /// Adds a type: its kind, flag, size or type, and the words of its list.
    fn add(&mut self, name: &str, kind: u32, flag: bool, count: usize, value: u32, words: &[u32]) -> u32 {
        let name = self.name(name);
        for word in [name, u32::from(flag) << 31 | kind << 24 | count as u32, value].iter().chain(words) {
            self.types.extend(word.to_le_bytes());
        }
        self.count += 1;
        self.count
    }

    fn bytes(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut out = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types, types, strings] {
            out.extend(u32::to_le_bytes(word));
        }
        out.extend(&self.types);
        out.extend(&self.strings);
        out
    }
}

/// A structure with all that members can be, an enumeration of each kind, a function, and per-CPU variables.
fn made() -> Vec<u8> {
    let mut made = Made::default();
    let int = made.add("int", 1, false, 0, 4, &[1 << 24 | 32]);
    let byte = made.add("char", 1, false, 0, 1, &[8]);
    let void_pointer = made.add("", 2, false, 0, 0, &[]);
    let array = made.add("", 3, false, 0, 0, &[byte, int, 16]);
    let next = made.count + 2;
    let names = ["flag", "text", "next", "inner"].map(|name| made.name(name));
    let outer = made.count + 1;
    let members = [
        (names[0], int, 3 << 24 | 5),
        (names[1], array, 4 * 8),
        (names[2], next, 24 * 8),
        (names[3], void_pointer, 32 * 8),
    ];
    let words: Vec<u32> = members.iter().flat_map(|&(name, of, offset)| [name, of, offset]).collect();
    assert_eq!(made.add("outer", 4, true, 4, 40, &words), outer);
    assert_eq!(made.add("", 2, false, 0, outer, &[]), next);
    let tagged = made.add("user", 18, false, 0, outer, &[]);
    let to_tagged = made.add("", 2, false, 0, tagged, &[]);
    made.add("outer_t", 8, false, 0, to_tagged, &[]);
    let values = ["LOW", "HIGH", "WIDE"].map(|name| made.name(name));
    made.add("small", 6, true, 2, 4, &[values[0], -7i32 as u32, values[1], 9]);
    made.add("wide", 19, false, 1, 8, &[values[2], 1, 2]);
    let prototype = made.add("", 13, false, 2, int, &[0, next, 0, 0]);
    made.add("start_kernel", 12, false, 1, prototype, &[]);
    let seq = made.name("seq");
    made.add("", 4, false, 1, 4, &[seq, int, 0]);
    let variable = made.add("counter", 14, false, 0, int, &[1]);
    made.add(".data..percpu", 15, false, 1, 4, &[variable, 0x40, 4]);
    made.bytes()
}

fn symbol(address: u64, kind: u8, name: &str) -> Symbol {
    Symbol { address, kind, name: name.to_string(), size: 0 }
}

fn table() -> Vec<Symbol> {
    let start = KERNEL.start + KERNEL.moved;
    vec![
        symbol(0, b'A', "__per_cpu_start"),
        symbol(0x40, b'D', "counter"),
        symbol(start, b'T', "_text"),
        symbol(start + 0x100, b'T', "start_kernel"),
        symbol(start + 0x180, b't', "twice"),
        symbol(start + 0x190, b't', "twice"),
        symbol(start + 0x1000, b'd', "list"),
        symbol(start + 0x1020, b'D', "keeper"),
        symbol(start + 0x1024, b'D', "last"),
        symbol(start + 0x2000, b't', "late"),
    ]
}

fn declared() -> Vec<Declared> {
    let one = |name: &str, of: &str, pointers, elements| Declared {
        name: name.to_string(),
        of: of.to_string(),
        pointers,
        elements,
    };
    vec![
        one("list", "struct outer", 1, Elements::Fill),
        one("keeper", "struct {seq}", 0, Elements::One),
        one("twice", "int", 0, Elements::One),
        one("absent", "int", 0, Elements::One),
        one("start_kernel", "function", 0, Elements::One),
        one("late", "function", 0, Elements::One),
        one("last", "struct unknown", 0, Elements::One),
    ]
}

/// The file, made of the tables above.
fn whole() -> Vec<u8> {
    let bytes = made();
    let btf = Btf::parse(&bytes).unwrap();
    let (symbols, of_modules) = (Table::new(table()), Table::new(Vec::new()));
    let variables = variables(&KERNEL, &symbols, &btf, &declared());
    let functions = functions(&KERNEL, &symbols, &of_modules, &btf);
    file::write(&KERNEL, symbols.symbols(), &dwarf::sections(&btf, &variables, &functions, true).unwrap()).unwrap()
}

#[test]
fn the_sizes_of_types() {
    let bytes = made();
    let btf = Btf::parse(&bytes).unwrap();
    let names = btf.by_name();
    assert_eq!(btf.size(names[&name_of("struct outer")]), Some(40));
    assert_eq!(btf.size(names[&name_of("outer_t")]), Some(8));
    assert_eq!(btf.size(4), Some(16)); // char[16]
    assert_eq!(btf.size(0), None);
    assert!(matches!(btf.types()[2], Type::Int { size: 1, .. }));
    assert_eq!(btf.unnamed(&[b"seq"]), Some(14));
}

#[test]
fn the_symbols_are_where_vmlinux_has_them() {
    let whole = whole();
    let file = object::File::parse(&*whole).unwrap();
    assert_eq!(file.build_id().unwrap(), Some([0xab; 20].as_slice()));
    let found: HashMap<&str, (u64, u64)> =
        file.symbols().map(|one| (one.name().unwrap(), (one.address(), one.size()))).collect();
    assert_eq!(found["_text"], (KERNEL.start, 0x100));
    assert_eq!(found["start_kernel"], (KERNEL.start + 0x100, 0x80));
    assert_eq!(found["counter"].0, 0x40);
    assert_eq!(file.symbols().count(), table().len());
}

#[test]
fn debuggers_read_the_types() {
    let whole = whole();
    let file = object::File::parse(&*whole).unwrap();
    let section = |name: &str| file.section_by_name(name).unwrap().data().unwrap();
    let read = |bytes| gimli::EndianSlice::new(bytes, gimli::LittleEndian);
    let (info, strings) = (gimli::DebugInfo::from(read(section(".debug_info"))), read(section(".debug_str")));
    let strings = gimli::DebugStr::from(strings);
    let unit = info.units().next().unwrap().unwrap();
    let abbreviations = unit.abbreviations(&gimli::DebugAbbrev::from(read(section(".debug_abbrev")))).unwrap();
    // Each entry as its tag and attributes, those that name other entries as the tag of the other.
    let mut lines = Vec::new();
    let mut entries = unit.entries(&abbreviations);
    let mut depth = 0;
    while let Some((delta, entry)) = entries.next_dfs().unwrap() {
        depth += delta;
        let mut line = format!("{}{}", " ".repeat(depth as usize), &entry.tag().static_string().unwrap()[7..]);
        let mut attributes = entry.attrs();
        while let Some(attribute) = attributes.next().unwrap() {
            if attribute.name() == gimli::DW_AT_sibling {
                continue; // the last one leads behind all entries
            }
            let value = match attribute.value() {
                gimli::AttributeValue::DebugStrRef(at) => strings.get_str(at).unwrap().to_string_lossy().into_owned(),
                gimli::AttributeValue::UnitRef(at) => {
                    let other = unit.entry(&abbreviations, at).unwrap();
                    other.tag().static_string().unwrap()[7..].to_string()
                }
                gimli::AttributeValue::Exprloc(code) => format!("{:x?}", code.0.slice()),
                gimli::AttributeValue::Addr(address) => format!("{address:x}"),
                other => attribute.udata_value().map_or_else(
                    || attribute.sdata_value().map_or_else(|| format!("{other:?}"), |value| value.to_string()),
                    |value| value.to_string(),
                ),
            };
            line += &format!(" {}={value}", &attribute.name().static_string().unwrap()[6..]);
        }
        lines.push(line);
    }
    let has = |wanted: &str| assert!(lines.iter().any(|line| line.trim() == wanted), "{wanted}\n{}", lines.join("\n"));
    has("structure_type name=outer byte_size=40");
    has("member name=flag type=base_type data_bit_offset=5 bit_size=3");
    has("member name=text type=array_type data_member_location=4");
    has("member name=next type=pointer_type data_member_location=24");
    has("base_type name=char byte_size=1 encoding=6");
    has("subrange_type count=16");
    has("typedef name=outer_t type=pointer_type");
    has("enumerator name=LOW const_value=-7");
    has("enumerator name=WIDE const_value=8589934593");
    has("unspecified_parameters");
    has("subprogram name=start_kernel type=base_type prototyped=Flag(true) low_pc=ffffffff81000100");
    has("variable name=counter type=base_type location=[3, 40, 0, 0, 0, 0, 0, 0, 0]");
    has("variable name=list type=array_type location=[3, 0, 10, 0, 81, ff, ff, ff, ff]");
    has("subrange_type count=4"); // 32 bytes of pointers
    has("variable name=keeper type=structure_type location=[3, 20, 10, 0, 81, ff, ff, ff, ff]");
    has("subprogram name=late prototyped=Flag(true) low_pc=ffffffff81002000");
    assert_eq!(lines.iter().filter(|line| line.contains("variable name=")).count(), 3);
    assert_eq!(lines.iter().filter(|line| line.contains("subprogram name=")).count(), 2);
    // Who passes over children finds the same entries of the unit.
    let mut entries = unit.entries(&abbreviations);
    entries.next_dfs().unwrap();
    let (_, first) = entries.next_dfs().unwrap().unwrap();
    let mut tags = vec![first.tag()];
    while let Some(next) = entries.next_sibling().unwrap() {
        tags.push(next.tag());
    }
    let tags: Vec<String> = tags.iter().map(|tag| tag.static_string().unwrap()[7..].to_string()).collect();
    let outer = lines.iter().filter(|line| line.starts_with(' ') && !line.starts_with("  "));
    assert_eq!(tags, outer.map(|line| line.split_whitespace().next().unwrap()).collect::<Vec<_>>());
}

#[test]
fn symbols_by_name() {
    let found = Table::new(table());
    let addresses = |name: &'static str| found.named(name).map(|one| one.address).collect::<Vec<_>>();
    for one in table() {
        let expected: Vec<u64> = table().iter().filter(|other| other.name == one.name).map(|one| one.address).collect();
        assert_eq!(found.named(&one.name).map(|one| one.address).collect::<Vec<_>>(), expected);
        assert_eq!(found.only(&one.name).is_some(), expected.len() == 1);
    }
    assert_eq!(addresses("twice").len(), 2);
    assert_eq!(addresses("absent"), []);
    assert_eq!(Table::new(Vec::new()).named("any").count(), 0);
}

#[test]
fn damaged_types_are_told() {
    let whole = made();
    for end in 0..whole.len() {
        assert!(Btf::parse(&whole[..end]).is_err(), "{end}");
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        let Ok(btf) = Btf::parse(&damaged) else { continue };
        let (symbols, of_modules) = (Table::new(table()), Table::new(Vec::new()));
        let variables = variables(&KERNEL, &symbols, &btf, &declared());
        let functions = functions(&KERNEL, &symbols, &of_modules, &btf);
        dwarf::sections(&btf, &variables, &functions, false).unwrap();
    }
}

#[test]
fn questions_in_the_words_of_vmcoreinfo() {
    let bytes = made();
    let btf = Btf::parse(&bytes).unwrap();
    let asked =
        ["SIZE(outer)", "SIZE(outer_t)", "OFFSET(outer.next)", "LENGTH(outer.text)", "NUMBER(LOW)", "NUMBER(HIGH)"];
    let found = questions::answers(&btf, &asked);
    assert_eq!(found, [Some(40), Some(8), Some(24), Some(16), Some(-7), Some(9)]);
    let absent =
        ["SIZE(absent)", "OFFSET(outer.absent)", "LENGTH(outer.next)", "NUMBER(absent)", "outer", "SIZE(outer"];
    assert_eq!(questions::answers(&btf, &absent), [None; 6]);
}

#[test]
fn a_variable_that_the_types_have_elsewhere() {
    let bytes = made();
    let btf = Btf::parse(&bytes).unwrap();
    let mut symbols = table();
    assert_eq!(misplaced(&Table::new(symbols.clone()), &btf), None);
    symbols[1].address = 0x48;
    assert_eq!(misplaced(&Table::new(symbols), &btf), Some(("counter".to_string(), 0x40, 0x48)));
}

#[test]
fn listings_of_symbols() {
    let many: String = (1..2000).map(|number| format!("ffffffff8100{number:04x} t name{number}\n")).collect();
    let text =
        format!("{many}ffffffffc0000000 t of_module\t[loop]\nffffffff81000000 t $x\n0000000000000040 A counter\n");
    let found = listing::symbols(text.as_bytes()).unwrap();
    assert_eq!(found.len(), 2000);
    assert_eq!(found[0], symbol(0x40, b'A', "counter"));
    assert_eq!(found[1], symbol(0xffff_ffff_8100_0001, b't', "name1"));
    let wrong = |text: &str| listing::symbols(text.as_bytes()).unwrap_err();
    let stub = "ffffffffffffffff B The real System.map is in the linux-image-<version>-dbg package\n";
    assert!(wrong(stub).contains("one symbol, The real System.map is in"));
    let zero: String = (0..2000).map(|number| format!("0000000000000000 t name{number}\n")).collect();
    assert!(wrong(&zero).contains("all its addresses are 0"));
    assert!(wrong(&format!("{many}some text\n")).contains("line 2000"));
    assert!(wrong("").contains("0 symbols"));
}

#[test]
fn the_symbols_of_a_module() {
    let entry = |name: u32, info: u8, value: u64, size: u64| {
        let mut out = name.to_le_bytes().to_vec();
        out.extend([info, 0, 1, 0]);
        out.extend([value, size].iter().flat_map(|word| word.to_le_bytes()));
        out
    };
    let strings = b"\0init\0data\0";
    let rows = [
        entry(0, 0, 0, 0),
        entry(6, 1 << 4 | 1, 0x2000, 8),
        entry(1, 2, 0x1000, 0x20),
        entry(1, 3, 0x1000, 0), // a section
        entry(99, 2, 0x1000, 0),
        entry(1, 2, 0, 0),
    ];
    let found = module::symbols(&[rows.concat(), vec![1, 2, 3]].concat(), strings, false);
    let one = |address, kind, name: &str, size| Symbol { address, kind, name: name.to_string(), size };
    assert_eq!(found, [one(0x1000, b't', "init", 0x20), one(0x2000, b'D', "data", 8)]);
    assert_eq!(module::symbols(&entry(1, b'r', 0x1000, 4), strings, true), [one(0x1000, b'r', "init", 4)]);
}

/// A module's structure, with a member of a type of the kernel and one of its own.
fn of_module(name: &str) -> Vec<u8> {
    let whole = made();
    let kernel = Btf::parse(&whole).unwrap();
    let count = kernel.types().len() as u32 - 1;
    let mut made = Made { count, before: kernel.strings().len() as u32, ..Made::default() };
    let names = ["number", "self"].map(|name| made.name(name));
    let pointer = made.count + 2;
    let outer = kernel.by_name()[&name_of("struct outer")];
    let words = [names[0], outer, 0, names[1], pointer, 40 * 8];
    let structure = made.add(name, 4, false, 2, 48, &words);
    made.add("", 2, false, 0, structure, &[]);
    made.bytes()
}

#[test]
fn types_of_modules_stand_behind_those_of_the_kernel() {
    let mut joined = Joined::new(&made()).unwrap();
    for name in ["first", "second"] {
        joined.add(&of_module(name)).unwrap();
    }
    let bytes = joined.bytes();
    let btf = Btf::parse(&bytes).unwrap();
    let names = btf.by_name();
    for name in ["first", "second"] {
        let number = names[&name_of(&format!("struct {name}"))];
        let Type::Composite { members, count, bit_fields, size: 48, .. } = btf.types()[number as usize] else {
            panic!("{name} is no structure of 48 bytes");
        };
        let found: Vec<_> = btf.members(members, count, bit_fields).collect();
        assert_eq!(found.iter().map(|one| btf.string(one.name)).collect::<Vec<_>>(), [b"number".as_slice(), b"self"]);
        assert_eq!(found[0].of, names[&name_of("struct outer")]);
        assert_eq!(btf.types()[found[1].of as usize], Type::Pointer { to: number });
    }
    assert_eq!(names[&name_of("struct outer")], Btf::parse(&made()).unwrap().by_name()[&name_of("struct outer")]);
}

#[test]
fn damaged_types_of_a_module_are_left_out() {
    let module = of_module("first");
    for at in 0..module.len() {
        let mut damaged = module.clone();
        damaged[at] ^= 0xff;
        let mut joined = Joined::new(&made()).unwrap();
        let alone = joined.bytes();
        if joined.add(&damaged).is_err() {
            assert_eq!(joined.bytes(), alone);
        }
        let bytes = joined.bytes();
        let btf = Btf::parse(&bytes).unwrap();
        dwarf::sections(&btf, &[], &[], false).unwrap();
    }
    let mut joined = Joined::new(&made()).unwrap();
    assert!(joined.add(&module[..module.len() - 1]).unwrap_err().contains("strings are cut"));
}
