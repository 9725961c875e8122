use std::sync::Arc;

use dmods_engine::allocators::tcmalloc::{self, Fault, Kind, List};
use dmods_engine::Control;
use pyo3::prelude::*;

use crate::address::{plain, Address, Ranges};
use crate::image::Image;
use crate::slots::Slots;

/// The heap of one tcmalloc. See `_engine.pyi`.
#[pyclass(frozen, module = "dmods._engine")]
pub struct Tcmalloc {
    pub(crate) inner: Arc<tcmalloc::Tcmalloc>,
}

fn fault_name(fault: Fault) -> &'static str {
    match fault {
        Fault::Missing => "missing",
        Fault::Pages => "pages",
        Fault::Bits => "bits",
        Fault::End => "end",
        Fault::Size => "size",
        Fault::Table => "table",
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::NotAnObject => "stray",
        Kind::AlreadyFree => "free",
        Kind::Missing => "missing",
        Kind::Count => "count",
        Kind::Slots => "slots",
    }
}

type Place = (&'static str, u64);

fn place(list: List) -> Place {
    match list {
        List::Span(record) => ("span", record),
        List::Transfer(class) => ("transfer", u64::from(class)),
        List::Cache(address) => ("cache", address),
    }
}

#[pymethods]
impl Tcmalloc {
    #[getter]
    fn central(&self) -> (u64, u64, usize) {
        (self.inner.central.base, self.inner.central.stride, self.inner.central.classes)
    }

    #[getter]
    fn sizes(&self) -> Vec<u64> {
        self.inner.sizes.bytes.clone()
    }

    #[getter]
    fn page_map(&self) -> (u64, u32, Vec<u32>) {
        (self.inner.map.root, self.inner.map.shape.shift, self.inner.map.shape.levels.clone())
    }

    #[getter]
    fn fault_count(&self) -> u64 {
        self.inner.fault_count
    }

    #[getter]
    fn faults(&self) -> Vec<(&'static str, u64, u64)> {
        self.inner.faults.iter().map(|&(fault, record, at)| (fault_name(fault), record, at)).collect()
    }

    #[getter]
    fn problem_count(&self) -> u64 {
        self.inner.problem_count
    }

    #[getter]
    fn problems(&self) -> Vec<(&'static str, Place, u8, u64, u64)> {
        let problems = self.inner.problems.iter();
        problems.map(|one| (kind_name(one.kind), place(one.list), one.class, one.from, one.to)).collect()
    }

    #[getter]
    fn caches(&self) -> Vec<(u64, u64, u64)> {
        let caches = self.inner.caches.iter();
        caches
            .map(|cache| {
                let bytes = |&(class, _, length): &(u8, u64, u64)| length * self.inner.sizes.bytes[usize::from(class)];
                let count = cache.lists.iter().map(|list| list.2).sum();
                (cache.address, count, cache.lists.iter().map(bytes).sum())
            })
            .collect()
    }

    #[getter]
    fn free(&self) -> (u64, u64, u64) {
        self.inner.free.into()
    }

    #[getter]
    fn span_bytes(&self) -> (u64, u64, u64) {
        let mut out = [0; 3];
        for span in &self.inner.spans {
            out[usize::from(span.location)] += span.size;
        }
        out.into()
    }

    #[getter]
    fn object_bytes(&self) -> u64 {
        let objects = self.inner.spans.iter().map(|span| self.inner.objects(span));
        objects.map(|(size, count)| size * count).sum()
    }

    #[getter]
    fn sampled(&self) -> u64 {
        self.inner.spans.iter().filter(|span| span.sampled && span.in_use()).count() as u64
    }

    #[getter]
    fn owned(&self) -> Vec<(u64, u64)> {
        self.inner.owned.clone()
    }

    fn span(&self, address: Address) -> Option<(u64, u64, u8, u8)> {
        self.inner.span(address.0).map(|span| (span.start, span.size, span.class, span.location))
    }

    fn holder(&self, py: Python<'_>, image: &Image, address: Address) -> Option<Place> {
        py.detach(|| self.inner.holder(&image.inner, address.0, &Control::default())).map(place)
    }

    fn free_spans(&self) -> Vec<(u64, u64)> {
        let free = self.inner.spans.iter().filter(|span| !span.in_use());
        free.map(|span| (span.start, span.end())).collect()
    }

    fn small_spans(&self, most: u64) -> Vec<(u64, u64)> {
        let small = |span: &&tcmalloc::Span| span.class != 0 && span.in_use() && self.inner.objects(span).0 <= most;
        self.inner.spans.iter().filter(small).map(|span| (span.start, span.end())).collect()
    }

    fn samples(&self, py: Python<'_>, image: &Image, ranges: Ranges) -> (Option<Sampled>, &'static str) {
        let ranges = plain(ranges);
        match py.detach(|| tcmalloc::samples(&image.inner, &self.inner, &ranges, &Control::default())) {
            Ok(found) => {
                let rows = found.all.iter().map(|one| (one.address, one.trace, one.size, one.stack)).collect();
                (Some((rows, found.stacks, found.head, found.unlisted, found.unsound, found.room)), "")
            }
            Err(check) => (None, check),
        }
    }

    fn slots(&self) -> Slots {
        Slots { inner: Arc::new(self.inner.slots()) }
    }
}

type Refused = (u64, &'static str);
type Sampled = (Vec<(u64, u64, u64, usize)>, Vec<Vec<u64>>, u64, u64, u64, Option<u64>);

#[pyfunction]
pub fn find_tcmallocs(py: Python<'_>, image: &Image, ranges: Ranges, threads: Ranges) -> (Vec<Tcmalloc>, Vec<Refused>) {
    let (ranges, threads) = (plain(ranges), plain(threads));
    let found = py.detach(|| tcmalloc::find(&image.inner, &ranges, &threads, &Control::default()));
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for one in found {
        match one {
            Ok(inner) => good.push(Tcmalloc { inner: Arc::new(inner) }),
            Err(refused) => bad.push((refused.central.base, refused.check)),
        }
    }
    (good, bad)
}
