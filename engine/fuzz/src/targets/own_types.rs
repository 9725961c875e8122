//! A kernel's own symbols and types.

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
    if let Some((3, rest)) = data.split_last().map(|(last, rest)| (last % 8, rest)) {
        return in_image(rest);
    }
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

/// A part of a kernel's image with a symbol table in it, damaged as the input says.
fn in_image(data: &[u8]) {
    let mut input = Input(data);
    let (count, shift, damages) =
        (257 + usize::from(input.byte()), usize::from(input.byte()), usize::from(input.byte() % 5));
    let places: [usize; 4] = std::array::from_fn(|_| input.short() as usize);
    let lengths = if input.0.is_empty() { &[1] } else { input.0 };
    let (mut names, mut markers) = (Vec::new(), Vec::new());
    for (number, &length) in lengths.iter().cycle().take(count).enumerate() {
        if number % 256 == 0 {
            markers.extend((names.len() as u32).to_le_bytes());
        }
        let length = length % 8 + 1;
        names.push(length);
        names.extend((0..length).map(|at| b'a' + at));
    }
    let (mut table, mut index) = (Vec::new(), Vec::new());
    for byte in 0..=255u8 {
        index.extend((table.len() as u16).to_le_bytes());
        table.extend([byte.clamp(b'!', b'~'), 0]);
    }
    let offsets = (0..count as i32).flat_map(|number| number.to_le_bytes()).collect();
    let parts = [offsets, START.to_le_bytes().to_vec(), (count as u32).to_le_bytes().to_vec(), names, markers];
    let mut image = vec![0; shift];
    for part in parts.iter().chain([&table, &index]) {
        image.resize(image.len().next_multiple_of(8), 0);
        image.extend(part);
    }
    for place in &places[..damages] {
        let at = place % image.len();
        image[at] ^= input.byte().max(1);
    }
    for stext in [START, START + 1] {
        // No name is `_stext`.
        assert!(!matches!(by_shape::find(&image, START, stext), Ok(Some(_))));
    }
    assert!(damages > 0 || by_shape::find(&image, START, START).is_err());
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
