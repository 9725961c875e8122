//! Counts the objects by type.

use std::collections::BTreeMap;

use super::objects::Shape;
use super::spread::Typed;

/// The objects of one type and shape: how many, and their bytes.
pub type Row = ((Shape, u32), (u64, u64));
/// Those whose type is not known, by (bytes of an object, whether it may have pointers).
pub type Rest = BTreeMap<(u64, bool), (u64, u64)>;

impl Typed {
    /// Returns the objects by shape and type, and those whose type is not known by (size, whether they have pointers).
    pub fn rows(&self) -> (Vec<Row>, Rest) {
        let mut rows: BTreeMap<(Shape, u32), (u64, u64)> = BTreeMap::new();
        let mut rest: Rest = BTreeMap::new();
        for object in self.objects.used() {
            let span = &self.objects.spans[object.span];
            let (shape, number) = self.objects.get(object);
            let row = match shape {
                Shape::Unknown | Shape::Begins | Shape::Disputed => rest.entry((span.size, span.pointers)).or_default(),
                _ => rows.entry((shape, number)).or_default(),
            };
            row.0 += 1;
            row.1 += span.size;
        }
        (rows.into_iter().collect(), rest)
    }

    /// Returns up to `most` objects of the shapes and types, by address: their values.
    pub fn listed(&self, wanted: &[(Shape, u32)], most: usize) -> Vec<(u64, u64)> {
        let all = self.objects.used().filter(|&object| wanted.contains(&self.objects.get(object)));
        all.take(most).map(|object| self.objects.value(object)).collect()
    }
}
