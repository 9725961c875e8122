//! The spans of Go's heap, and what is known of each object in them.

/// Bytes of the size classes of Go 1.19 to 1.27 (runtime/sizeclasses.go).
const CLASSES: [u64; 67] = [
    8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320, 352, 384, 416, 448, 480,
    512, 576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792, 2048, 2304, 2688, 3072, 3200, 3456, 4096, 4864,
    5376, 6144, 6528, 6784, 6912, 8192, 9472, 9728, 10240, 10880, 12288, 13568, 14336, 16384, 18432, 19072, 20480,
    21760, 24576, 27264, 28672, 32768,
];
const PAGE: u64 = 8192;
const MOST_OBJECTS: u64 = 1 << 28;
/// Objects with pointers that are larger have a header, since 1.22.
pub const SMALL: u64 = 512;
/// Bytes of the header.
pub const HEADER: u64 = 8;

/// What an object is. A number of a type goes with most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Shape {
    /// Not known.
    Unknown,
    /// A value of the type.
    One,
    /// An array of values of the type.
    Array,
    /// It begins with a value of the type. It may be a larger value.
    Begins,
    /// The bytes of a string.
    Text,
    /// A map of the type.
    Map,
    /// A table of a map of the type (1.24).
    Table,
    /// The list of the tables of a map of the type (1.24).
    Directory,
    /// A channel of the type.
    Channel,
    /// A closure of the type.
    Function,
    /// Two types claim it.
    Disputed,
}

/// A span of objects of one size.
#[derive(Clone, Debug)]
pub struct Span {
    /// The first object.
    pub start: u64,
    /// Bytes of an object.
    pub size: u64,
    /// How many there are.
    pub count: u32,
    /// Which ones are free: bit `i` of the words.
    pub free: Vec<u64>,
    /// Whether objects may have pointers.
    pub pointers: bool,
    /// Whether there is one object with its own size.
    pub large: bool,
    /// The type of a large object, if its record says so.
    pub kind: u64,
    /// The number of the first object.
    first: usize,
}

impl Span {
    /// Makes a span.
    pub fn new(start: u64, size: u64, count: u32, free: Vec<u64>, pointers: bool, large: bool, kind: u64) -> Span {
        Span { start, size: size.max(8), count, free, pointers, large, kind, first: 0 }
    }

    /// Returns whether an object is free.
    pub fn is_free(&self, index: u32) -> bool {
        self.free.get(index as usize / 64).is_some_and(|word| word >> (index % 64) & 1 != 0)
    }

    /// Returns whether a value of that size would be in such an object.
    pub fn fits(&self, size: u64, header: u64) -> bool {
        if size == 0 {
            return false;
        }
        if self.large {
            return size.div_ceil(PAGE).checked_mul(PAGE) == Some(self.size);
        }
        let size = size.saturating_add(header);
        let class = CLASSES.partition_point(|&class| class < size);
        CLASSES.get(class).is_some_and(|&class| class == self.size)
    }
}

/// An object: its span, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The index of the span.
    pub span: usize,
    /// Its index in the span.
    pub index: u32,
}

/// All objects.
#[derive(Debug)]
pub struct Objects {
    /// The spans by address.
    pub spans: Vec<Span>,
    /// Whether larger objects with pointers have headers.
    pub headers: bool,
    shapes: Vec<Shape>,
    kinds: Vec<u32>,
}

impl Objects {
    /// Sorts the spans. Those beyond the bound of memory are left out.
    pub fn new(mut spans: Vec<Span>) -> Objects {
        spans.sort_by_key(|span| span.start);
        spans.retain(|span| span.start.checked_add(span.size.saturating_mul(u64::from(span.count))).is_some());
        let mut total = 0u64;
        let mut end = 0;
        spans.retain_mut(|span| {
            let keeps = span.start >= end && total + u64::from(span.count) <= MOST_OBJECTS;
            if keeps {
                span.first = total as usize;
                total += u64::from(span.count);
                end = span.start + span.size * u64::from(span.count);
            }
            keeps
        });
        Objects { spans, headers: false, shapes: vec![Shape::Unknown; total as usize], kinds: vec![0; total as usize] }
    }

    /// Returns the object in use that an address lies in.
    pub fn find(&self, address: u64) -> Option<Object> {
        let span = self.spans.partition_point(|span| span.start <= address).checked_sub(1)?;
        let found = &self.spans[span];
        let index = (address - found.start) / found.size;
        let inside = index < u64::from(found.count) && !found.is_free(index as u32);
        inside.then_some(Object { span, index: index as u32 })
    }

    /// Returns the number of bytes before the value in objects of a span.
    pub fn header(&self, span: &Span) -> u64 {
        if self.headers && span.pointers && !span.large && span.size > SMALL {
            HEADER
        } else {
            0
        }
    }

    /// Returns where the value of an object begins, and how many bytes it may have.
    pub fn value(&self, object: Object) -> (u64, u64) {
        let span = &self.spans[object.span];
        let header = self.header(span);
        (span.start + span.size * u64::from(object.index) + header, span.size - header)
    }

    /// Returns the address and the bytes of an object, with its header.
    pub fn place(&self, object: Object) -> (u64, u64) {
        let span = &self.spans[object.span];
        (span.start + span.size * u64::from(object.index), span.size)
    }

    fn number(&self, object: Object) -> usize {
        self.spans[object.span].first + object.index as usize
    }

    /// Returns what is known of an object.
    pub fn get(&self, object: Object) -> (Shape, u32) {
        let number = self.number(object);
        (self.shapes[number], self.kinds[number])
    }

    /// Notes what an object is.
    pub fn set(&mut self, object: Object, shape: Shape, kind: u32) {
        let number = self.number(object);
        self.shapes[number] = shape;
        self.kinds[number] = kind;
    }

    /// Returns all objects in use.
    pub fn used(&self) -> impl Iterator<Item = Object> + '_ {
        (0..self.spans.len()).flat_map(|span| self.used_in(span))
    }

    /// Returns the objects in use of a span.
    pub fn used_in(&self, span: usize) -> impl Iterator<Item = Object> + '_ {
        let found = &self.spans[span];
        (0..found.count).filter(|&index| !found.is_free(index)).map(move |index| Object { span, index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fit_their_class_alone() {
        let span = |size, large| Span::new(0x10000, size, 1, vec![0], true, large, 0);
        assert!(span(48, false).fits(33, 0) && span(48, false).fits(48, 0));
        assert!(!span(48, false).fits(32, 0) && !span(48, false).fits(49, 0) && !span(48, false).fits(0, 0));
        assert!(span(576, false).fits(568, 8) && !span(576, false).fits(569, 8));
        assert!(span(40960, true).fits(32769, 0) && !span(40960, true).fits(32768, 0));
        assert!(!span(50, false).fits(50, 0) && !span(u64::MAX, true).fits(u64::MAX, 8));
    }

    #[test]
    fn lies_do_no_harm() {
        let spans = vec![
            Span::new(u64::MAX - 8, u64::MAX, u32::MAX, vec![], true, false, 0),
            Span::new(0x1000, 16, 4, vec![0b10], true, false, 0),
            Span::new(0x1010, 16, 4, vec![], true, false, 0),
            Span::new(0x9000, 0, u32::MAX, vec![], true, false, 0),
        ];
        let objects = Objects::new(spans);
        assert_eq!(objects.spans.len(), 1);
        assert_eq!(objects.used().count(), 3);
        assert_eq!(objects.find(0x1018), None);
        assert_eq!(objects.find(0x103f), Some(Object { span: 0, index: 3 }));
        assert_eq!(objects.find(0x1040), None);
    }
}
