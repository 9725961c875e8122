//! Follows the containers of the C++ library. Nothing is said of their blocks unless counts, links and sizes agree.

use super::blocks::{Found, Object, Rank, Shape};
use super::containers::{Container, Links};
use super::nodes::Node;
use super::propagate::{fits, Spread};
use crate::dwarf::model::Id;

/// Blocks of one deque, and elements of one bucket array: more are not in one dump.
const MOST: u64 = 1 << 32;

impl Spread<'_, '_> {
    /// Follows a container at an address.
    pub(super) fn container(&mut self, at: u64, container: &Container) {
        // None: something does not agree.
        let _ = match *container {
            Container::Vector { begin, end, limit, element } => self.vector(at, begin, end, limit, element),
            Container::Bits { begin, limit, counted, element } => self.bits(at, begin, limit, counted, element),
            Container::Text { pointer, length, local, element } => self.text(at, pointer, length, local, element),
            Container::ShortOrLong { pointer, length, flag, mask, element } => {
                self.long_text(at, pointer, length, (flag, mask), element)
            }
            Container::Deque { map, slots, first, last, element, each } => {
                self.deque(at, (map, slots), (first, last), element, each)
            }
            Container::SplitDeque { map, first, last, limit, element, each } => {
                self.split_deque(at, map, (first, last), limit, element, each)
            }
            Container::Chain { head, ring, count, node } => self.chain(at, head, ring, count, node),
            Container::Tree { root, header, count, links, node } => self.tree(at, (root, header), count, links, node),
            Container::Table { buckets, slots, first, count, single, node } => {
                self.table(at, (buckets, slots), (first, count), single, node)
            }
            Container::Shared { object, control, element, base, many } => match object.filter(|_| many) {
                Some(object) => self.shared_array(at, object, control, (element, base)),
                None => self.shared(at, object, control, element, base),
            },
            Container::Owned { element } => self.read(at).and_then(|value| self.owned_array(value, element, at)),
            Container::Any { manager, pointer } => self.any(at, manager, pointer),
            Container::Optional { flag, at: value, element } => self.optional(at, flag, value, element),
            Container::Variant { index, width, at: data, ref elements } => {
                self.variant(at, (index, width), data, elements)
            }
            Container::Storage { element } => {
                let plan = self.plans.of(self.debug, element);
                self.follow(at, &plan);
                Some(())
            }
            Container::Rust(ref container) => self.rust(at, container),
            Container::Opaque => None,
        };
    }

    /// Returns whether the memory may be a container of this kind. Cheap checks only.
    pub(super) fn plausible_container(&mut self, at: u64, container: &Container) -> bool {
        let pointers: &[u64] = match container {
            Container::Vector { begin, end, limit, .. } => &[*begin, *end, *limit],
            Container::Text { pointer, .. } => &[*pointer],
            Container::Deque { map, .. } | Container::SplitDeque { map, .. } => &[*map],
            Container::Chain { head, .. } => &[*head],
            Container::Tree { root, .. } => &[*root],
            Container::Table { buckets, first, .. } => &[*buckets, *first],
            Container::Shared { control, .. } => &[*control],
            Container::Owned { .. } => &[0],
            Container::Any { manager, .. } => &[*manager],
            Container::Rust(container) => return self.plausible_rust(at, container),
            _ => &[],
        };
        let fine = pointers
            .iter()
            .all(|offset| self.read(at.saturating_add(*offset)).is_some_and(|value| self.may_point(value)));
        match container {
            Container::Vector { begin, end, limit, .. } if fine => {
                let words = [begin, end, limit].map(|offset| self.read(at.saturating_add(*offset)).unwrap_or(0));
                words[0] <= words[1] && words[1] <= words[2]
            }
            Container::Text { pointer, .. } if fine => self.read(at.saturating_add(*pointer)).unwrap_or(0) != 0,
            _ => fine,
        }
    }

    pub(super) fn held(&mut self, found: Found, kind: Id, from: u64, shape: Shape) -> bool {
        let rank = if self.rank >= Rank::Frame { Rank::Frame } else { Rank::Container };
        self.propose(found, self.claim(kind, from, rank, shape))
    }

    /// Returns the block that begins at an address and is as large as what it is to hold.
    pub(super) fn exact(&self, address: u64, bytes: u64) -> Option<Found> {
        let found = self.blocks.at(address)?;
        (found.block.address == address && fits(bytes, found.block.size)).then_some(found)
    }

    fn vector(&mut self, at: u64, begin: u64, end: u64, limit: u64, element: Id) -> Option<()> {
        let from = at + begin;
        let (begin, end, limit) = (self.read(from)?, self.read(at + end)?, self.read(at + limit)?);
        let size = self.types().size(element);
        if begin == 0 || begin > end || end > limit || size == 0 || (end - begin) % size != 0 {
            return None;
        }
        let found = self.exact(begin, limit - begin)?;
        self.elements(found, element, from, end - begin)
    }

    /// Says that a block holds elements, of which only the first bytes are in use.
    pub(super) fn elements(&mut self, found: Found, element: Id, from: u64, used: u64) -> Option<()> {
        let size = self.types().size(element);
        let plan = self.plans.of(self.debug, element);
        let count = used.checked_div(size)?;
        if count > 0 && !self.plausible(found.block.address, size, count, &plan) {
            return None;
        }
        // What lies behind the last element was left there. So the block itself is not followed.
        if self.held(found, element, from, Shape::Many) && self.forget_last(found) {
            self.areas.push((found.block.address, size, count, plan));
        }
        Some(())
    }

    fn bits(&mut self, at: u64, begin: u64, limit: u64, counted: bool, element: Id) -> Option<()> {
        let from = at + begin;
        let (begin, limit) = (self.read(from)?, self.read(at + limit)?);
        let bytes = if counted { limit.div_ceil(8) } else { limit.checked_sub(begin)? };
        let found = self.blocks.at(begin).filter(|found| found.block.address == begin)?;
        (bytes <= found.block.size && begin != 0).then(|| self.held(found, element, from, Shape::Many))?;
        Some(())
    }

    fn text(&mut self, at: u64, pointer: u64, length: u64, local: u64, element: Id) -> Option<()> {
        let from = at + pointer;
        let (pointer, length) = (self.read(from)?, self.read(at + length)?);
        if pointer == at + local {
            return None;
        }
        let room = self.read(at + local)?;
        self.characters(pointer, length, room, element, from)
    }

    fn characters(&mut self, at: u64, length: u64, room: u64, element: Id, from: u64) -> Option<()> {
        let size = self.types().size(element).max(1);
        let found = self.exact(at, room.checked_add(1)?.checked_mul(size)?)?;
        (length <= room).then(|| self.held(found, element, from, Shape::Many))?;
        self.forget_last(found);
        Some(())
    }

    fn long_text(&mut self, at: u64, pointer: u64, length: u64, flag: (u64, u8), element: Id) -> Option<()> {
        let word = self.read((at + flag.0) & !(self.word - 1))?;
        let byte = (word >> (8 * ((at + flag.0) & (self.word - 1)))) as u8;
        if byte & flag.1 == 0 {
            return None;
        }
        let from = at + pointer;
        let (pointer, length) = (self.read(from)?, self.read(at + length)?);
        let found = self.blocks.at(pointer).filter(|found| found.block.address == pointer)?;
        let size = self.types().size(element).max(1);
        (length.checked_mul(size)? < found.block.size).then(|| self.held(found, element, from, Shape::Many))?;
        self.forget_last(found);
        Some(())
    }

    fn deque(&mut self, at: u64, map: (u64, u64), nodes: (u64, u64), element: Id, each: u64) -> Option<()> {
        let from = at + map.0;
        let (map, slots) = (self.read(from)?, self.read(at + map.1)?);
        let (first, last) = (self.read(at + nodes.0)?, self.read(at + nodes.1)?);
        let word = self.word;
        let bytes = slots.checked_mul(word)?;
        let inside = map <= first && first <= last && last < map.checked_add(bytes)?;
        if !inside || (last - first) / word > MOST || (first - map) % word != 0 {
            return None;
        }
        let found = self.exact(map, bytes)?;
        self.map_of_deque(found, (first, last + word), element, each, from)
    }

    fn split_deque(&mut self, at: u64, map: u64, nodes: (u64, u64), limit: u64, element: Id, each: u64) -> Option<()> {
        let from = at + map;
        let (map, limit) = (self.read(from)?, self.read(at + limit)?);
        let (first, last) = (self.read(at + nodes.0)?, self.read(at + nodes.1)?);
        if !(map <= first && first <= last && last <= limit) || map == 0 {
            return None;
        }
        let found = self.exact(map, limit - map)?;
        self.map_of_deque(found, (first, last), element, each, from)
    }

    fn map_of_deque(&mut self, map: Found, nodes: (u64, u64), element: Id, each: u64, from: u64) -> Option<()> {
        let (size, word) = (self.types().size(element), self.word);
        let mut blocks = Vec::new();
        let mut at = nodes.0;
        while at < nodes.1 && !self.enough(blocks.len()) {
            let block = self.read(at)?;
            blocks.push((self.exact(block, size.checked_mul(each)?)?, at));
            at += word;
            self.budget = self.budget.checked_sub(1)?;
        }
        let pointer = self.pointer_to(element);
        if self.held(map, pointer, from, Shape::Many) {
            self.forget_last(map);
        }
        let plan = self.plans.of(self.debug, element);
        let (begin, end) = (0, blocks.len());
        for (i, (found, at)) in blocks.into_iter().enumerate() {
            if self.held(found, element, at, Shape::Many) && self.forget_last(found) {
                // The first and the last block are in use only in part.
                if i > begin && i + 1 < end {
                    self.areas.push((found.block.address, size, each, plan.clone()));
                } else {
                    self.each_plausible(found.block.address, size, each, &plan);
                }
            }
        }
        Some(())
    }

    /// Follows those elements that may be in use.
    fn each_plausible(&mut self, address: u64, size: u64, count: u64, plan: &std::rc::Rc<super::plan::Plan>) {
        for i in 0..count {
            let at = address + i * size;
            if self.plausible(at, size, 1, plan) {
                self.areas.push((at, size, 1, plan.clone()));
            }
        }
    }

    fn chain(&mut self, at: u64, head: u64, ring: bool, count: Option<u64>, node: Node) -> Option<()> {
        let from = at + head;
        let header = at + head - node.next;
        let first = self.read(from)?;
        let size = self.types().size(node.kind);
        let mut nodes = Vec::new();
        let mut next = first;
        while next != 0 && !(ring && next == header) {
            if self.enough(nodes.len()) {
                return self.nodes(nodes, node, from);
            }
            nodes.push(self.exact(next, size)?);
            self.budget = self.budget.checked_sub(1)?;
            next = self.read(next.checked_add(node.next)?)?;
        }
        // A ring ends where it began; and a list knows how many nodes it has.
        if ring != (next == header) || nodes.is_empty() {
            return None;
        }
        if let Some(count) = count {
            let count = self.read(at + count)?;
            // The thread may have died between the link and the count.
            (count.abs_diff(nodes.len() as u64) <= 1).then_some(())?;
        }
        self.nodes(nodes, node, from)
    }

    fn nodes(&mut self, nodes: Vec<Found>, node: Node, from: u64) -> Option<()> {
        let plan = self.plans.of(self.debug, node.kind);
        let sample = nodes.len().div_ceil(64);
        for found in nodes.iter().step_by(sample) {
            self.plausible(found.block.address, 0, 1, &plan).then_some(())?;
        }
        for found in nodes {
            self.held(found, node.kind, from, Shape::One);
        }
        Some(())
    }

    fn tree(&mut self, at: u64, (root, header): (u64, u64), count: u64, links: Links, node: Node) -> Option<()> {
        let from = at + root;
        let (first, count) = (self.read(from)?, self.read(at + count)?);
        let size = self.types().size(node.kind);
        if first == 0 || count == 0 {
            return None;
        }
        let mut open = vec![(first, at + header)];
        let mut nodes = Vec::new();
        while let Some((next, parent)) = open.pop() {
            if self.enough(nodes.len()) {
                return self.nodes(nodes, node, from);
            }
            let found = self.exact(next, size)?;
            if nodes.len() as u64 > count {
                return None;
            }
            self.budget = self.budget.checked_sub(1)?;
            (self.read(next.checked_add(links.parent)?)? == parent).then_some(())?;
            for link in [links.right, links.left] {
                let child = self.read(next.checked_add(link)?)?;
                if child != 0 {
                    open.push((child, next));
                }
            }
            nodes.push(found);
        }
        (count.abs_diff(nodes.len() as u64) <= 1).then_some(())?;
        self.nodes(nodes, node, from)
    }

    fn table(
        &mut self,
        at: u64,
        (buckets, slots): (u64, u64),
        (first, count): (u64, u64),
        single: Option<u64>,
        node: Node,
    ) -> Option<()> {
        let holder = at + buckets;
        let (buckets, slots) = (self.read(holder)?, self.read(at + slots)?);
        let from = at + first;
        let (mut next, count) = (self.read(from)?, self.read(at + count)?);
        let size = self.types().size(node.kind);
        let mut nodes = Vec::new();
        while next != 0 && !self.enough(nodes.len()) {
            nodes.push(self.exact(next, size)?);
            self.budget = self.budget.checked_sub(1)?;
            (nodes.len() as u64 <= count.saturating_add(1)).then_some(())?;
            next = self.read(next)?;
        }
        (self.enough(nodes.len()) || count.abs_diff(nodes.len() as u64) <= 1).then_some(())?;
        // The one bucket of a small table is in the table itself.
        if buckets != 0 && single.is_none_or(|single| buckets != at + single) {
            let found = self.exact(buckets, slots.checked_mul(self.word)?)?;
            let link = self.bucket_kind(node.kind);
            if self.held(found, link, holder, Shape::Many) {
                self.forget_last(found);
            }
        }
        if nodes.is_empty() {
            return None;
        }
        self.nodes(nodes, node, from)
    }

    fn shared(&mut self, at: u64, object: Option<u64>, control: u64, element: Id, base: Id) -> Option<()> {
        let block = self.read(at + control)?;
        if block == 0 {
            return None;
        }
        self.point(block, base, at + control);
        let object = at + object?;
        let value = self.read(object)?;
        // libc++'s make_shared keeps the object in raw bytes behind the control block.
        let found = self.blocks.at(value)?;
        let inside = found.block.address == block && value > block;
        let kind = self.blocks.claim(found.number).kind;
        if inside && self.types().get(kind).name.contains("__shared_ptr_emplace<") {
            let plan = self.plans.of(self.debug, element);
            let size = self.types().size(element);
            let made = Object { kind: self.canonical(element), size, from: object, proofs: 0 };
            if self.placed.insert(value, made).is_none() && self.plausible(value, 0, 1, &plan) {
                self.areas.push((value, self.word, 1, plan));
            }
            return Some(());
        }
        self.point(value, element, object);
        Some(())
    }

    fn optional(&mut self, at: u64, flag: u64, value: u64, element: Id) -> Option<()> {
        let byte = self.byte(at + flag)?;
        if byte == 1 {
            let plan = self.plans.of(self.debug, element);
            self.follow(at + value, &plan);
        }
        Some(())
    }

    fn variant(&mut self, at: u64, (index, width): (u64, u64), data: u64, elements: &[Id]) -> Option<()> {
        let mut number = 0u64;
        for i in 0..width.min(4) {
            number |= u64::from(self.byte(at + index + i)?) << (8 * i);
        }
        let element = *elements.get(usize::try_from(number).ok()?)?;
        let plan = self.plans.of(self.debug, element);
        self.follow(at + data, &plan);
        Some(())
    }

    pub(super) fn byte(&mut self, at: u64) -> Option<u8> {
        let word = self.read(at & !(self.word - 1))?;
        Some((word >> (8 * (at & (self.word - 1)))) as u8)
    }
}
