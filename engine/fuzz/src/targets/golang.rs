//! Go's objects: sound descriptions of types with words of them overwritten, spans of objects that the input fills, and
//! what the types spread to.

use std::sync::Arc;

use dmods_engine::golang::objects::{Objects, Shape, Span};
use dmods_engine::golang::spread::spread;
use dmods_engine::golang::types::{kind, Types};
use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::Control;

use super::Input;

const BASE: u64 = 0x40_0000;
/// Bytes of a description, of a table of fields, and of a name.
const TYPE: u64 = 0x80;
const FIELDS: u64 = BASE + 0x800;
const FIELD_ROOM: u64 = 0xc0;
const NAMES: u64 = BASE + 0x1800;
const TYPES_END: u64 = BASE + 0x2000;
const TABLE: u64 = BASE + 0x2000;
const VARIABLES: u64 = BASE + 0x3000;
const STACK: u64 = BASE + 0x4000;
const END: u64 = BASE + 0x4100;
const HEAP: u64 = 0xc0_0000_0000;
const SPAN: u64 = 0x2000;
const SPANS: u64 = 4;
const SIZES: [u64; 8] = [8, 16, 32, 48, 128, 208, 640, 8192];

/// Kind, size, bytes with pointers, and the type of the elements; the fields of structs are in `PARTS`.
const TYPES: [(u8, u64, u64, u64); 13] = [
    (2, 8, 0, 0),
    (kind::STRUCT, 32, 24, 0),
    (kind::POINTER, 8, 8, 1),
    (kind::SLICE, 24, 8, 1),
    (kind::STRING, 16, 8, 0),
    (kind::INTERFACE, 16, 16, 0),
    (kind::MAP, 8, 8, 0),
    (kind::STRUCT, 48, 48, 0),
    (kind::CHAN, 8, 8, 1),
    (kind::FUNC, 8, 8, 0),
    (kind::ARRAY, 128, 120, 1),
    (kind::STRUCT, 208, 208, 0),
    (kind::UINT64, 8, 0, 0),
];
/// The type of a struct, and (type, offset) of its fields.
const PARTS: [(u64, &[(u64, u64)]); 3] = [
    (1, &[(2, 0), (0, 8), (4, 16)]),
    (7, &[(12, 0), (1, 8), (2, 40)]),
    (11, &[(10, 0), (6, 128), (8, 136), (9, 144), (5, 152), (3, 168), (4, 192)]),
];

struct Memory(Vec<u8>, u64);

impl Memory {
    fn put(&mut self, at: u64, value: u64) {
        self.bytes(at, &value.to_le_bytes());
    }
    fn bytes(&mut self, at: u64, bytes: &[u8]) {
        let from = (at - self.1) as usize;
        self.0[from..from + bytes.len()].copy_from_slice(bytes);
    }
}

fn described(number: u64) -> u64 {
    BASE + number % TYPES.len() as u64 * TYPE
}

/// A word: a number, a type, the table, an address of an object, of a variable.
fn word(input: &mut Input) -> u64 {
    match input.byte() {
        number @ 0..=79 => u64::from(number),
        80..=129 => described(u64::from(input.byte())),
        130..=139 => TABLE,
        140..=209 => HEAP + input.short() % (SPANS * SPAN) / 8 * 8,
        210..=219 => VARIABLES + input.short() % 0x100,
        220..=224 => STACK + input.short() % 0x100,
        225..=234 => BASE + input.short() % 0x2000 / 8 * 8,
        235..=244 => input.short() << 16 | input.short(),
        _ => u64::from_le_bytes(std::array::from_fn(|_| input.byte())),
    }
}

fn types(memory: &mut Memory) {
    for (number, &(kind, size, pointers, element)) in TYPES.iter().enumerate() {
        let (number, at) = (number as u64, described(number as u64));
        memory.put(at, size);
        memory.put(at + 8, pointers);
        memory.put(at + 16, 0x1000 + number);
        memory.bytes(at + 20, &[0, 8, 8, kind]);
        memory.put(at + 24, BASE);
        memory.put(at + 32, BASE);
        memory.put(at + 40, NAMES - BASE + 8 * number);
        memory.put(at + 48, described(element));
        memory.put(at + 64, described(7)); // the buckets of a map
        memory.bytes(NAMES + 8 * number, &[1, 2, b'a' + number as u8, b'x']);
    }
    for (place, &(number, parts)) in PARTS.iter().enumerate() {
        let fields = FIELDS + place as u64 * FIELD_ROOM;
        memory.put(described(number) + 56, fields);
        memory.put(described(number) + 64, parts.len() as u64);
        for (index, &(part, offset)) in parts.iter().enumerate() {
            memory.put(fields + 24 * index as u64 + 8, described(part));
            memory.put(fields + 24 * index as u64 + 16, offset);
        }
    }
    for (offset, value) in [(0, described(5)), (8, described(2)), (16, 0x1002)] {
        memory.put(TABLE + offset, value);
    }
}

/// Finds the types of objects, and asks for all answers.
pub fn golang(data: &[u8]) {
    let mut input = Input(data);
    let mut memory = Memory(vec![0; (END - BASE) as usize], BASE);
    types(&mut memory);
    for _ in 0..input.byte() % 8 {
        let at = BASE + input.short() % (VARIABLES - BASE) / 8 * 8;
        let value = word(&mut input);
        memory.put(at, value);
    }
    for start in [VARIABLES, STACK] {
        for at in (start..start + 0x100).step_by(8).take(usize::from(input.byte() % 32)) {
            memory.put(at, word(&mut input));
        }
    }
    let mut heap = Memory(vec![0; (SPANS * SPAN) as usize], HEAP);
    let mut spans = Vec::new();
    for number in 0..SPANS {
        let start = HEAP + number * SPAN;
        let (size, how) = (SIZES[usize::from(input.byte() % 8)], input.byte());
        let count = if how == 0xff { input.word() as u32 } else { (SPAN / size) as u32 };
        let kind = if how & 4 != 0 { word(&mut input) } else { 0 };
        let free = vec![input.word() & input.word()];
        let at = if how == 0xfe { input.word() } else { start };
        spans.push(Span::new(at, size, count, free, how & 1 != 0, how & 2 != 0 || size == 8192, kind));
        for at in (start..start + SPAN).step_by(8).take(usize::from(input.byte())) {
            heap.put(at, word(&mut input));
        }
    }
    let pieces = [(BASE, END, memory.0), (HEAP, HEAP + SPANS * SPAN, heap.0)];
    let segments =
        pieces.into_iter().map(|(start, end, data)| Segment { start, end, source: Source::Bytes(data.into()) });
    let image = Arc::new(Image::new(&[], segments.collect()).expect("no file"));
    check(&image, spans, input.word());
}

fn check(image: &Arc<Image>, spans: Vec<Span>, seed: u64) {
    // The target does not look at this many objects one by one: the engine's own bounds are for its users' memory.
    if spans.iter().map(|span| u64::from(span.count)).sum::<u64>() > 1 << 16 {
        return;
    }
    let types = Types::new(image.clone(), vec![(BASE, TYPES_END)], vec![(BASE, END)]);
    let objects = Objects::new(spans);
    let used = objects.used().count() as u64;
    let (variables, stacks) = ([(VARIABLES, VARIABLES + 0x100)], [(STACK, STACK + 0x100)]);
    let typed = spread(image, types, objects, &variables, &stacks, &Control::default()).expect("not cancelled");
    let (rows, rest) = typed.rows();
    let counted = rows.iter().map(|(_, sums)| sums.0).chain(rest.values().map(|sums| sums.0)).sum::<u64>();
    assert_eq!(counted, used, "objects in use");
    for &((shape, number), (count, _)) in &rows {
        let listed = typed.listed(&[(shape, number)], usize::MAX);
        assert_eq!(listed.len() as u64, count);
        for (at, room) in listed {
            let object = typed.objects.find(at).expect("it is an object");
            assert_eq!(typed.objects.value(object), (at, room));
            let size = typed.types.get(number).map_or(0, |one| one.size);
            assert!(!matches!(shape, Shape::One | Shape::Array) || size <= room, "larger than its object");
        }
        assert!(shape == Shape::Text || typed.types.name(number).is_some(), "a type without a name");
    }
    if let Some(object) = typed.objects.find(seed) {
        assert!(typed.objects.value(object).0 <= seed || typed.objects.header(&typed.objects.spans[object.span]) > 0);
    }
}
