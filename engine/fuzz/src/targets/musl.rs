//! mallocng: an area of metas that the input fills, groups in the input's memory, and the heap that they make.

use dmods_engine::allocators::musl::{self, Context, Layout};
use dmods_engine::blocks::marking::Roots;
use dmods_engine::blocks::pass::Request;
use dmods_engine::blocks::runs::Owner;
use dmods_engine::image::{Image, Segment, Source};
use dmods_engine::Control;

use super::heaps::answers;
use super::{memory, width, Input, PLACES};

const AREA: u64 = 0x7000_0000_0000;
const SECRET: u64 = 0x0123_4567_89ab_cdef;
const MOST_METAS: u8 = 8;

/// Reads the groups, and makes a heap of their blocks.
pub fn musl(data: &[u8]) {
    let mut input = Input(data);
    let word = width(&mut input) as u64;
    let layout = Layout { word };
    // 32 bits do not reach the usual place of an area.
    let area_at = if word == 8 { AREA } else { 0x7000_0000 };
    let (next, seeds) = (input.word(), [input.word(), input.word()]);
    let mut area = vec![0; 4096];
    let mut put = |at: u64, size: u64, value: u64| {
        area[at as usize..(at + size) as usize].copy_from_slice(&value.to_le_bytes()[..size as usize]);
    };
    put(0, 8, SECRET);
    put(8, word, if input.byte() & 1 == 0 { 0 } else { next });
    put(8 + word, 4, if input.byte() == 0xff { input.word() } else { layout.metas() });
    for index in 0..input.byte() % MOST_METAS {
        let at = layout.area_header() + u64::from(index) * layout.meta();
        put(at + 2 * word, word, input.address() & !15);
        put(at + 3 * word, 4, input.short());
        put(at + 3 * word + 4, 4, input.short());
        // The number of slots, whether it is freeable, the size class, and the length.
        put(at + 3 * word + 8, word, input.short() | u64::from(input.byte()) << 12);
    }
    let rest = memory(&mut input, word as usize);
    let mut segments = rest.segments().to_vec();
    segments.push(Segment { start: area_at, end: area_at + 4096, source: Source::Bytes(area.into()) });
    let image = Image::new(&[], segments).expect("no file");
    let (control, inside) = (Control::default(), PLACES.map(|at| (at, at.saturating_add(0x2_0000))));
    for found in musl::find(&image, &inside, layout, &control) {
        assert!(found.secret != 0 && found.head % 4096 == 0);
    }
    let context = Context { at: PLACES[0], secret: SECRET, head: area_at, tail: area_at };
    let walked = musl::walk(&image, &context, layout, &inside, &control).expect("not cancelled");
    assert!(walked.faults.len() as u64 <= walked.fault_count);
    assert!(walked.owned().windows(2).all(|pair| pair[0].1 <= pair[1].0), "they overlap");
    for group in &walked.groups {
        let inner = walked.group_at(group.start);
        assert!(inner.is_some_and(|inner| inner.start == group.start), "the innermost group begins there");
        assert!(group.slot_end(group.count - 1) < group.end);
    }
    for block in &walked.blocks {
        let group = walked.group_at(block.start).expect("a block lies in a group");
        let slot = group.slot_of(block.start).expect("and in a slot");
        assert!(group.in_use(slot) && block.start + block.size <= group.slot_end(slot));
    }
    let (live, slots) = walked.classes().values().fold((0, 0), |sum, one| (sum.0 + one.live, sum.1 + one.slots));
    assert!(live <= slots);
    let figures = walked.figures();
    assert!(figures.asked <= figures.used);
    let slots = walked.slots();
    assert_eq!(slots.len(), walked.blocks.len());
    let request = Request {
        image: &image,
        runs: slots.runs(Owner::new(1, 3), 0),
        dead: &[],
        watch: &[],
        maps: &slots.maps,
        threads: 1,
    };
    let mut heap = dmods_engine::blocks::build(word, request, &control).expect("tables in proportion to what is there");
    let roots = Roots { ranges: &inside[1..], values: &seeds, ..Roots::default() };
    let totals = heap.mark(&image, roots, &control).expect("not cancelled").totals;
    answers(&*heap, totals.direct_count, totals.indirect_count);
}
