//! Heap profiles: samples out of records and out of the dominator tree, and pprof's file.

use dmods_engine::graph::owned_heap::OwnedHeap;
use dmods_engine::graph::sums::View;
use dmods_engine::profile::pprof;
use dmods_engine::profile::samples::{samples, Asked, MOST};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::graph::Kinds;
use crate::heap_rows::state_number;
use crate::marks::Marks;
use crate::owners::Owners;
use crate::records::Records;
use crate::watch::watched;

/// (stack, thread, size, state, kind, owners, count, bytes, likely count, likely bytes)
type SampleRow = (u32, u32, u64, Option<u8>, u32, u32, u64, u64, f64, f64);
/// (parent + 1, what), (node, size, count, bytes), whether there were too many nodes
type ReferenceRows = (Vec<(u32, u32)>, Vec<(u32, u64, u64, u64)>, bool);

#[pyfunction]
#[pyo3(signature = (records, marks=None, kinds=None, owners=None, progress=None))]
pub fn group_records(
    py: Python<'_>,
    records: PyRef<'_, Records>,
    marks: Option<PyRef<'_, Marks>>,
    kinds: Option<PyRef<'_, Kinds>>,
    owners: Option<PyRef<'_, Owners>>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Vec<SampleRow>> {
    let (records, kinds) = (records.inner(), kinds.as_deref());
    let blocks = marks.as_ref().map(|marks| marks.blocks()).transpose()?;
    let owners = owners.as_ref().map(|owners| &owners.inner);
    let found = watched(py, progress.as_ref(), |control| {
        let guard = blocks.map(|blocks| blocks.lock());
        let asked = guard.as_ref().map(|guard| {
            let heap = &***guard;
            let view = kinds.and_then(|kinds| Some(View::new(heap, kinds.censuses.first()?, &kinds.inner, 0)));
            Asked { heap, kinds: view, owners }
        });
        samples(records, asked, MOST, control)
    })?;
    let row = |(key, sum): &(dmods_engine::profile::samples::Key, dmods_engine::profile::samples::Sum)| {
        let state = key.state.map(state_number);
        let sums = (sum.count, sum.bytes, sum.likely_count, sum.likely_bytes);
        (key.stack, key.thread, key.size, state, key.kind, key.owners, sums.0, sums.1, sums.2, sums.3)
    };
    Ok(found.iter().map(row).collect())
}

#[pyfunction]
#[pyo3(signature = (owners, kinds, progress=None))]
pub fn reference_stacks(
    py: Python<'_>,
    owners: PyRef<'_, Owners>,
    kinds: PyRef<'_, Kinds>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<ReferenceRows> {
    let (owners, kinds) = (&*owners, &*kinds);
    let census = kinds.censuses.first().ok_or_else(|| PyValueError::new_err("there is no census"))?;
    let found = watched(py, progress.as_ref(), |_control| {
        let guard = owners.blocks.lock();
        let view = View::new(&**guard, census, &kinds.inner, 0);
        Ok(OwnedHeap::new(&**guard, &owners.inner).reference(&|number| view.kind(number).unwrap_or(u32::MAX)))
    })?;
    Ok((
        found.nodes.iter().map(|node| (node.parent, node.what)).collect(),
        found.held.iter().map(|held| (held.node, held.size, held.count, held.bytes)).collect(),
        found.full,
    ))
}

/// (name, text or None, number, unit)
type Label = (usize, Option<usize>, i64, usize);
/// (type, unit)
type ValueType = (usize, usize);
/// (locations, leaf first, values, labels)
type Sample = (Vec<u64>, Vec<i64>, Vec<Label>);
/// (start, end, offset, file, build-id, functions, files, lines, inlined functions)
type Mapping = (u64, u64, u64, usize, usize, bool, bool, bool, bool);
/// (mapping or 0, address, (function, line), innermost first)
type Location = (u64, u64, Vec<(u64, i64)>);
/// (name, system name, file)
type Function = (usize, usize, usize);
/// (sample types, samples, mappings, locations, functions, strings, time, (period type, period), comments, default)
type Profile = (
    Vec<ValueType>,
    Vec<Sample>,
    Vec<Mapping>,
    Vec<Location>,
    Vec<Function>,
    Vec<String>,
    i64,
    (ValueType, i64),
    Vec<usize>,
    usize,
);

fn value_type((kind, unit): ValueType) -> pprof::ValueType {
    pprof::ValueType { r#type: kind as i64, unit: unit as i64 }
}

#[pyfunction]
pub fn encode_pprof<'py>(py: Python<'py>, profile: Profile) -> Bound<'py, PyBytes> {
    let (types, samples, mappings, locations, functions, strings, time, (period_type, period), comments, default) =
        profile;
    let file = py.detach(|| {
        let label = |(key, text, num, unit): Label| pprof::Label {
            key: key as i64,
            str: text.unwrap_or(0) as i64,
            num,
            num_unit: unit as i64,
        };
        let sample = |(location_id, value, labels): Sample| pprof::Sample {
            location_id,
            value,
            label: labels.into_iter().map(label).collect(),
        };
        let mapping = |(index, m): (usize, Mapping)| pprof::Mapping {
            id: index as u64 + 1,
            memory_start: m.0,
            memory_limit: m.1,
            file_offset: m.2,
            filename: m.3 as i64,
            build_id: m.4 as i64,
            has_functions: m.5,
            has_filenames: m.6,
            has_line_numbers: m.7,
            has_inline_frames: m.8,
        };
        let location = |(index, (mapping_id, address, lines)): (usize, Location)| pprof::Location {
            id: index as u64 + 1,
            mapping_id,
            address,
            line: lines.into_iter().map(|(function_id, line)| pprof::Line { function_id, line }).collect(),
        };
        let function = |(index, (name, system_name, filename)): (usize, Function)| pprof::Function {
            id: index as u64 + 1,
            name: name as i64,
            system_name: system_name as i64,
            filename: filename as i64,
            start_line: 0,
        };
        pprof::encode(&pprof::Profile {
            sample_type: types.into_iter().map(value_type).collect(),
            sample: samples.into_iter().map(sample).collect(),
            mapping: mappings.into_iter().enumerate().map(mapping).collect(),
            location: locations.into_iter().enumerate().map(location).collect(),
            function: functions.into_iter().enumerate().map(function).collect(),
            string_table: strings,
            time_nanos: time,
            period_type: Some(value_type(period_type)),
            period,
            comment: comments.into_iter().map(|comment| comment as i64).collect(),
            default_sample_type: default as i64,
        })
    });
    PyBytes::new(py, &file)
}

#[pyfunction]
pub fn decode_pprof(py: Python<'_>, file: &[u8], most: u64) -> PyResult<Profile> {
    let found = py.detach(|| pprof::decode(file, most)).map_err(PyValueError::new_err)?;
    renumbered(found).ok_or_else(|| PyValueError::new_err("a number in it names nothing"))
}

/// Returns the profile with places in the lists instead of ids. None: an id or a string that is not there.
fn renumbered(found: pprof::Profile) -> Option<Profile> {
    let strings = found.string_table;
    let count = strings.len();
    let text = |index: i64| usize::try_from(index).ok().filter(|&index| index < count || index == 0);
    let place = |ids: Vec<u64>| -> std::collections::HashMap<u64, u64> {
        ids.into_iter().zip(1..).filter(|&(id, _)| id != 0).collect()
    };
    let of_mapping = place(found.mapping.iter().map(|one| one.id).collect());
    let of_location = place(found.location.iter().map(|one| one.id).collect());
    let of_function = place(found.function.iter().map(|one| one.id).collect());
    let kind = |one: &pprof::ValueType| Some((text(one.r#type)?, text(one.unit)?));
    let types = found.sample_type.iter().map(kind).collect::<Option<Vec<_>>>()?;
    let samples = found.sample.into_iter().map(|one| {
        let stack = one.location_id.iter().map(|id| of_location.get(id).copied()).collect::<Option<Vec<_>>>()?;
        let label = |label: &pprof::Label| {
            let words = if label.str == 0 { None } else { Some(text(label.str)?) };
            Some((text(label.key)?, words, label.num, text(label.num_unit)?))
        };
        let labels = one.label.iter().map(label).collect::<Option<Vec<_>>>()?;
        (one.value.len() == types.len()).then_some((stack, one.value, labels))
    });
    let samples = samples.collect::<Option<Vec<_>>>()?;
    let mapping = |m: &pprof::Mapping| {
        let flags = (m.has_functions, m.has_filenames, m.has_line_numbers, m.has_inline_frames);
        let (file, id) = (text(m.filename)?, text(m.build_id)?);
        Some((m.memory_start, m.memory_limit, m.file_offset, file, id, flags.0, flags.1, flags.2, flags.3))
    };
    let location = |one: &pprof::Location| {
        let line = |line: &pprof::Line| Some((*of_function.get(&line.function_id)?, line.line));
        let mapping = if one.mapping_id == 0 { 0 } else { *of_mapping.get(&one.mapping_id)? };
        Some((mapping, one.address, one.line.iter().map(line).collect::<Option<Vec<_>>>()?))
    };
    let function = |one: &pprof::Function| Some((text(one.name)?, text(one.system_name)?, text(one.filename)?));
    let period_type = kind(&found.period_type.unwrap_or_default())?;
    Some((
        types,
        samples,
        found.mapping.iter().map(mapping).collect::<Option<Vec<_>>>()?,
        found.location.iter().map(location).collect::<Option<Vec<_>>>()?,
        found.function.iter().map(function).collect::<Option<Vec<_>>>()?,
        if strings.is_empty() { vec![String::new()] } else { strings },
        found.time_nanos,
        (period_type, found.period),
        found.comment.iter().map(|&comment| text(comment)).collect::<Option<Vec<_>>>()?,
        text(found.default_sample_type)?,
    ))
}
