//! Claims: a typed value says what another object is.

use super::objects::{Object, Shape};
use super::spread::{Typed, MOST_AT_ONCE};
use super::types::{kind, Type};

const MOST_VALUES: usize = 1 << 20; // in variables
const TEXT_PARTS: u64 = 1 << 47;

impl Typed {
    /// Returns the object whose value begins at an address, and whether values of that type may be in it.
    pub(super) fn begins(&self, address: u64, pointers: bool) -> Option<Object> {
        let object = self.objects.find(address)?;
        let right = self.objects.value(object).0 == address && self.objects.spans[object.span].pointers == pointers;
        right.then_some(object)
    }

    pub(super) fn claim_dynamic(&mut self, first: u64, data: u64) {
        let Some(number) = self.types.dynamic(first).filter(|_| data != 0) else { return };
        let Some(one) = self.types.get(number) else { return };
        match (one.direct, one.kind) {
            (false, _) => self.claim_value(data, number),
            (true, kind::POINTER) => {
                if let Some(element) = self.types.element_of(number) {
                    self.claim_value(data, element);
                }
            }
            (true, kind::MAP) => self.claim_whole(data, Shape::Map, number, 48),
            (true, kind::CHAN) => self.claim_channel(data, number),
            (true, kind::FUNC) => self.claim_function(data, number),
            _ => {}
        }
    }

    /// Claims the object at an address: a value of the type is there.
    ///
    /// It is the whole object if its size is right, and if no type that begins with such a value has such a size.
    pub(super) fn claim_value(&mut self, address: u64, number: u32) {
        let Some(one) = self.types.get(number).cloned() else { return };
        let Some(object) = self.begins(address, one.pointers) else {
            let here = one.pointers && self.is_variable(address, one.size) && self.known.len() < MOST_VALUES;
            if here && self.known.insert((address, number)) {
                self.waiting.push((address, number));
            }
            return;
        };
        let span = &self.objects.spans[object.span];
        let header = self.objects.header(span);
        if span.size == 16 && !span.pointers && one.size < 16 {
            return; // such a value shares its object with others (mallocgc, the tiny allocator)
        }
        if one.size == 0 || one.size > span.size - header {
            return;
        }
        let key = (number, span.size, false);
        let whole = span.fits(one.size, header)
            && !*self.inner.entry(key).or_insert_with(|| {
                self.types.is_inner(number, |outer| outer.pointers == one.pointers && span.fits(outer.size, header))
            });
        self.claim(object, if whole { Shape::One } else { Shape::Begins }, number);
    }

    /// Returns whether so many bytes from an address on are variables of the program.
    pub(super) fn is_variable(&self, address: u64, size: u64) -> bool {
        let place = self.variables.partition_point(|&(start, _)| start <= address).checked_sub(1);
        place.is_some_and(|place| size < MOST_AT_ONCE && size <= self.variables[place].1.saturating_sub(address))
    }

    pub(super) fn claim_array(&mut self, address: u64, number: u32, bytes: u64) {
        let Some(one) = self.types.get(number).cloned() else { return };
        let Some(object) = self.begins(address, one.pointers) else { return };
        let span = &self.objects.spans[object.span];
        let header = self.objects.header(span);
        if span.fits(bytes, header) && !(span.size == 16 && !span.pointers && bytes < 16) {
            let inner = |outer: &Type| {
                outer.kind == kind::STRUCT && outer.pointers == one.pointers && span.fits(outer.size, header)
            };
            let whole =
                !*self.inner.entry((number, span.size, true)).or_insert_with(|| self.types.is_inner(number, inner));
            self.claim(object, if whole { Shape::Array } else { Shape::Begins }, number);
        } else {
            self.claim(object, Shape::Begins, number);
        }
    }

    pub(super) fn claim_text(&mut self, address: u64, length: u64) {
        let Some(object) = self.begins(address, false).filter(|_| length < TEXT_PARTS) else { return };
        let span = &self.objects.spans[object.span];
        if span.fits(length, 0) && !(span.size == 16 && length < 16) {
            self.claim(object, Shape::Text, 0);
        }
    }

    pub(super) fn claim_whole(&mut self, address: u64, shape: Shape, number: u32, size: u64) {
        let Some(object) = self.begins(address, true) else { return };
        let span = &self.objects.spans[object.span];
        if span.fits(size, 0) {
            self.claim(object, shape, number);
        }
    }

    /// A channel says the size of its elements (runtime/chan.go, struct hchan).
    pub(super) fn claim_channel(&mut self, address: u64, number: u32) {
        let size = self.types.element_of(number).and_then(|element| self.types.get(element)).map(|one| one.size);
        let Some(object) = self.objects.find(address).filter(|&object| self.objects.value(object).0 == address) else {
            return;
        };
        let Some([count, room, buffer, element]) = self.image.words::<4>(address, 8) else { return };
        if size == Some(element & 0xffff) && count <= room && (room == 0 || buffer != 0) {
            self.claim(object, Shape::Channel, number);
        }
    }

    pub(super) fn claim_function(&mut self, address: u64, number: u32) {
        let found = self.objects.find(address).filter(|&object| self.objects.value(object).0 == address);
        let Some(object) = found else { return };
        let code = self.image.word(address, 8).unwrap_or(0);
        if code != 0 && self.objects.find(code).is_none() {
            self.claim(object, Shape::Function, number);
        }
    }

    pub(super) fn claim(&mut self, object: Object, shape: Shape, number: u32) {
        let (before, known) = self.objects.get(object);
        let span = &self.objects.spans[object.span];
        let headed = self.objects.header(span) > 0 || (span.large && span.kind != 0);
        let wins = match (before, shape) {
            (Shape::Unknown, _) => true,
            (Shape::Disputed, _) | (_, Shape::Begins) => false,
            (Shape::Begins, _) => true,
            _ if (before, known) == (shape, number) || headed => false,
            (Shape::One | Shape::Array, Shape::One | Shape::Array) => {
                let same = known == number || self.types.begins_with(known, number);
                if !same && !self.types.begins_with(number, known) && self.types.name(known) != self.types.name(number)
                {
                    self.objects.set(object, Shape::Disputed, 0);
                }
                !same && self.types.begins_with(number, known)
            }
            // The bytes of a string were often a slice before.
            (Shape::Array | Shape::One, Shape::Text) => true,
            (Shape::Text, _) => false,
            (Shape::Function, Shape::Function) => false,
            _ => {
                self.objects.set(object, Shape::Disputed, 0);
                false
            }
        };
        if wins {
            self.objects.set(object, shape, number);
            self.queue.push(object);
        }
    }
}
