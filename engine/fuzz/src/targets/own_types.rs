//! A kernel's own symbols and types.

use std::sync::OnceLock;

use dmods_engine::kernel::own_types::btf::{Btf, Tag};
use dmods_engine::kernel::own_types::by_shape;
use dmods_engine::kernel::own_types::dwarf;
use dmods_engine::kernel::own_types::file::{self, Kernel};
use dmods_engine::kernel::own_types::join::Joined;
use dmods_engine::kernel::own_types::kallsyms::{self, Arrays, Symbol};
use dmods_engine::kernel::own_types::questions;
use dmods_engine::kernel::own_types::table::Table;
use dmods_engine::kernel::own_types::variables::{functions, variables, Declared, Elements};

use super::Input;

const START: u64 = 0xffff_ffff_8100_0000;
const KERNEL: Kernel =
    Kernel { aarch64: false, build_id: &[1; 20], start: START, end: START + (1 << 24), moved: 0, module: false };

/// The arrays of a symbol table. Their sizes come from the input.
pub fn kallsyms(data: &[u8]) {
    let mut input = Input(data);
    let (count, how) = (usize::from(input.byte()), input.byte());
    let token_index = input.take(512);
    let sizes = [input.short() as usize % 1024, input.short() as usize % 1024];
    let (token_table, offsets) = (input.take(sizes[0]), input.take(sizes[1]));
    let base = (how % 2 == 0).then_some(START);
    let arrays = Arrays { count, names: input.0, token_table, token_index, offsets, offsets_at: START, base };
    let Ok(found) = kallsyms::symbols(&arrays) else { return };
    assert_eq!(found.len(), count);
    assert!(found.iter().all(|symbol| !symbol.name.is_empty()));
    if let Ok(types) = Btf::parse(&EMPTY) {
        let sections = dwarf::sections(&types, &[], &[], true).expect("there are no types");
        file::write(&KERNEL, &found, &sections).expect("the file is small");
    }
}

/// A part of a kernel's image with a symbol table in it, damaged as the input says. No name is `_stext`, whose address is
/// that of the first symbol, or of none.
pub fn shape(data: &[u8]) {
    let mut input = Input(data);
    // Two markers: the second is that of name 256. More names cost time, and add nothing but names.
    let count = 257 + usize::from(input.byte() % 32);
    let (shift, how) = (usize::from(input.byte()), usize::from(input.byte()));
    let (damages, stext) = (how % 5, START + (how / 128) as u64);
    // Three bytes a symbol stand before the tokens since 6.2.
    let sequences = if how & 64 == 0 { 0 } else { 3 * count };
    let places: [usize; 4] = std::array::from_fn(|_| input.short() as usize);
    let lengths = if input.0.is_empty() { &[1] } else { input.0 };
    let (mut names, mut markers) = (Vec::with_capacity(9 * count), Vec::new());
    for (number, &length) in lengths.iter().cycle().take(count).enumerate() {
        if number % 256 == 0 {
            markers.extend((names.len() as u32).to_le_bytes());
        }
        let length = length % 8 + 1;
        names.push(length);
        names.extend_from_slice(&b"abcdefgh"[..usize::from(length)]);
    }
    let Fixed { offsets, order, table, index } = fixed();
    let mut image = vec![0; shift];
    let (start, number) = (START.to_le_bytes(), (count as u32).to_le_bytes());
    for part in [&offsets[..4 * count], &start, &number, &names, &markers, &order[..sequences], table, index] {
        image.resize(image.len().next_multiple_of(8), 0);
        image.extend_from_slice(part);
    }
    for place in &places[..damages] {
        let at = place % image.len();
        image[at] ^= input.byte().max(1);
    }
    let found = by_shape::find(&image, START, stext);
    assert!(!matches!(found, Ok(Some(_))), "no name is _stext");
    assert!(damages > 0 || found.is_err(), "the table is found");
}

/// The arrays that are the same for every input. `order` has the symbols by name.
struct Fixed {
    offsets: Vec<u8>,
    order: Vec<u8>,
    table: Vec<u8>,
    index: Vec<u8>,
}

fn fixed() -> &'static Fixed {
    static FIXED: OnceLock<Fixed> = OnceLock::new();
    FIXED.get_or_init(|| Fixed {
        offsets: (0..288i32).flat_map(i32::to_le_bytes).collect(),
        order: (0..288u16).flat_map(|number| [0, (number >> 8) as u8, number as u8]).collect(),
        table: (0..=255u8).flat_map(|byte| [byte.clamp(b'!', b'~'), 0]).collect(),
        index: (0..256u16).flat_map(|token| (2 * token).to_le_bytes()).collect(),
    })
}

const EMPTY: [u8; 25] = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];

/// BTF whose types and strings come from the input, with symbols of some of its names.
pub fn btf(data: &[u8]) {
    let mut input = Input(data);
    let size = input.short() as usize;
    let (types, strings) = (input.take(size).to_vec(), input.0);
    let sizes = [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32];
    let mut whole = vec![0x9f, 0xeb, 1, 0];
    whole.extend(sizes.iter().flat_map(|word| word.to_le_bytes()));
    whole.extend([types.as_slice(), strings].concat());
    let Ok(btf) = Btf::parse(&whole) else { return };
    let names = strings.split(|&byte| byte == 0).filter_map(|name| std::str::from_utf8(name).ok()).take(64);
    let symbols: Vec<Symbol> = names
        .enumerate()
        .map(|(number, name)| Symbol {
            address: START + 64 * number as u64,
            kind: b'D',
            name: name.to_string(),
            size: 0,
        })
        .collect();
    let types = btf.by_name();
    let declared: Vec<Declared> = symbols
        .iter()
        .zip(types.keys())
        .map(|(symbol, of)| Declared {
            name: symbol.name.clone(),
            of: in_words(of),
            pointers: 0,
            elements: Elements::Fill,
        })
        .collect();
    let (table, none) = (Table::new(symbols), Table::new(Vec::new()));
    let variables = variables(&KERNEL, &table, &btf, &declared);
    let functions = functions(&KERNEL, &table, &none, &btf);
    let sections = dwarf::sections(&btf, &variables, &functions, false).expect("the types are few");
    assert!(sections.info.len() < 64 * whole.len() + 65536);
    file::write(&KERNEL, table.symbols(), &sections).expect("the file is small");
    questions::answers(&btf, &["SIZE(a)", "OFFSET(a.b)", "LENGTH(a.b)", "NUMBER(a)"]);
    // The same bytes as the types of two modules.
    for kernel in [&EMPTY[..], &whole] {
        let mut joined = Joined::new(kernel).expect("it was read before");
        let added = (0..2).filter(|_| joined.add(&whole).is_ok()).count();
        let bytes = joined.bytes();
        let count = Btf::parse(&bytes).expect("the types were read before").types().len();
        let of_kernel = Btf::parse(kernel).expect("it was read before").types().len();
        assert_eq!(count, of_kernel + added * (btf.types().len() - 1));
    }
}

fn in_words(&(tag, name): &(Tag, &[u8])) -> String {
    let tag = match tag {
        Tag::None => "",
        Tag::Struct => "struct ",
        Tag::Union => "union ",
        Tag::Enum => "enum ",
    };
    format!("{tag}{}", String::from_utf8_lossy(name))
}
