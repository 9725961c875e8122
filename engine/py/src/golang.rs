use std::collections::HashMap;

use dmods_engine::golang::objects::{Objects, Shape, Span};
use dmods_engine::golang::spread::{spread, Typed};
use dmods_engine::golang::types::Types;
use dmods_engine::graph::labels::{self, Label};
use pyo3::prelude::*;

use crate::address::{plain, Address, Ranges};
use crate::graph::Labels;
use crate::image::Image;
use crate::watch::watched;

type Given = (Address, u64, u32, Vec<u8>, bool, bool, Address);
type Rest = (u64, bool, u64, u64);
type Row = (&'static str, String, u64, u64, u64);

/// The types of the objects in Go's heap. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct GoObjects {
    typed: Typed,
}

#[pymethods]
impl GoObjects {
    #[new]
    #[pyo3(signature = (image, spans, sections, modules, variables, stacks, progress=None))]
    fn new(
        py: Python<'_>,
        image: &Image,
        spans: Vec<Given>,
        sections: Ranges,
        modules: Ranges,
        variables: Ranges,
        stacks: Ranges,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let image = image.inner.clone();
        let types = Types::new(image.clone(), plain(sections), plain(modules));
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        let made = spans.into_iter().map(|(start, size, count, free, pointers, large, kind)| {
            let free = free.chunks(8).map(word).collect();
            Span::new(start.0, size, count, free, pointers, large, kind.0)
        });
        let objects = Objects::new(made.collect());
        let (variables, stacks) = (plain(variables), plain(stacks));
        let typed =
            watched(py, progress.as_ref(), |control| spread(&image, types, objects, &variables, &stacks, control))?;
        Ok(GoObjects { typed })
    }

    #[getter]
    fn headers(&self) -> bool {
        self.typed.objects.headers
    }

    fn rows(&self) -> (Vec<Row>, Vec<Rest>) {
        let (rows, rest) = self.typed.rows();
        let named = rows.into_iter().map(|((shape, number), (count, bytes))| {
            let one = self.typed.types.get(number).filter(|_| shape != Shape::Text);
            let name = one.and_then(|_| self.typed.types.name(number)).unwrap_or_default();
            (shown(shape), name, one.map_or(0, |one| one.size), count, bytes)
        });
        (
            named.collect(),
            rest.into_iter().map(|((size, pointers), (count, bytes))| (size, pointers, count, bytes)).collect(),
        )
    }

    fn labels(&self) -> (Labels, Vec<(&'static str, String)>) {
        let mut numbers: HashMap<(Shape, u32), u32> = HashMap::new();
        let (mut names, mut rows) = (Vec::new(), Vec::new());
        for object in self.typed.objects.used() {
            let (shape, number) = self.typed.objects.get(object);
            if matches!(shape, Shape::Unknown | Shape::Begins | Shape::Disputed) {
                continue;
            }
            let label = *numbers.entry((shape, number)).or_insert_with(|| {
                let name = self.typed.types.name(number).filter(|_| shape != Shape::Text);
                names.push((shown(shape), name.unwrap_or_default()));
                names.len() as u32 - 1
            });
            let (address, size) = self.typed.objects.place(object);
            rows.push(Label { address, label, size, counted: false, kind: 0 });
        }
        (Labels { inner: labels::Labels::new(rows, false) }, names)
    }

    fn at(&self, address: Address) -> Option<(&'static str, String, u64, u64, u64)> {
        let object = self.typed.objects.find(address.0)?;
        let (start, room) = self.typed.objects.value(object);
        let (shape, number) = self.typed.objects.get(object);
        let one = self.typed.types.get(number).filter(|_| !matches!(shown(shape), "" | "string"));
        let name = one.and_then(|_| self.typed.types.name(number)).unwrap_or_default();
        Some((shown(shape), name, one.map_or(0, |one| one.size), start, room))
    }

    fn listed(&self, shape: &str, name: &str, most: usize) -> Vec<(u64, u64)> {
        let (rows, _rest) = self.typed.rows();
        let wanted = rows.into_iter().map(|(key, _sums)| key).filter(|&(its, number)| {
            shown(its) == shape && (shape == "string" || self.typed.types.name(number).as_deref() == Some(name))
        });
        self.typed.listed(&wanted.collect::<Vec<_>>(), most)
    }
}

/// Returns the name of a shape; "" for an object whose type is not known.
fn shown(shape: Shape) -> &'static str {
    match shape {
        Shape::Unknown | Shape::Disputed => "",
        Shape::One => "one",
        Shape::Array => "array",
        Shape::Begins => "begins",
        Shape::Text => "string",
        Shape::Map => "map",
        Shape::Table => "table",
        Shape::Directory => "directory",
        Shape::Channel => "channel",
        Shape::Function => "function",
    }
}
