//! The search for leaked slab objects, and what it leaves.

use std::collections::HashMap;
use std::sync::Arc;

use dmods_engine::kernel::slabs::freelists::{state, States};
use dmods_engine::kernel::slabs::leaks::{self, Leaks};
use dmods_engine::kernel::slabs::marking;
use dmods_engine::kernel::slabs::sweep::{sweep, Pointers};
use dmods_engine::kernel::slabs::table::Node;
use dmods_engine::kernel::virtual_memory::VirtualMemory;
use dmods_engine::{Control, Stopped};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::slabs::{lock, stopped, Slabs};
use crate::slabs_rows::{cache_of, Found, MatchRow, Pattern};

impl Slabs {
    /// Returns the states of all objects, all pointers, and the leaks.
    pub(crate) fn searched(
        &self,
        registers: &[u64],
        unsure: bool,
        space: &mut VirtualMemory,
        control: &Control,
    ) -> Result<(States, Pointers, Leaks), Stopped> {
        let mut states = States::new(&self.table, &self.reserves, space.physical, control)?;
        let what = self.memory(registers);
        let mut pointers = sweep(&self.table, &states, space, &what, false, control)?;
        marking::strong(&mut states, &pointers, control)?;
        if pointers.overflow && states.of.contains(&state::LEAKED) {
            let again = sweep(&self.table, &states, space, &what, true, control)?;
            (pointers.unaligned, pointers.physical) = (again.unaligned, again.physical);
            pointers.bytes += again.bytes;
        }
        marking::weak(&mut states, &pointers, control)?;
        marking::unsure(&self.table, &self.reserves, &mut states, &pointers, unsure, control)?;
        let leaks = leaks::find(&self.table, &states, &pointers, control)?;
        Ok((states, pointers, leaks))
    }

    pub(crate) fn search(
        &self,
        py: Python<'_>,
        registers: &[u64],
        unsure: bool,
        progress: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (states, found) = self.work(py, progress, |space, control| {
            let (states, pointers, leaks) = self.searched(registers, unsure, space, control)?;
            let (bytes, missing, only_paged) = (pointers.bytes, pointers.missing, pointers.only_paged(&self.table));
            Ok((states, Found { leaks, pointers: Some(pointers), bytes, missing, only_paged }))
        })?;
        *lock(&self.states) = Some(Arc::new(states));
        *lock(&self.found) = Some(Arc::new(found));
        Ok(())
    }

    pub(crate) fn without(&self, py: Python<'_>, addresses: &[u64]) -> PyResult<()> {
        let (states, found) = (lock(&self.states).take(), lock(&self.found).take());
        let (Some(states), Some(found)) = (states, found) else {
            return Err(PyValueError::new_err("find_leaks() comes first"));
        };
        let (mut states, mut found) = match (Arc::try_unwrap(states), Arc::try_unwrap(found)) {
            (Ok(states), Ok(found)) => (states, found),
            _ => return Err(PyValueError::new_err("another thread uses the objects")),
        };
        let nodes: Vec<Node> = addresses.iter().filter_map(|a| self.table.exactly(*a)).map(|(_, node)| node).collect();
        let pointers = found.pointers.take().ok_or_else(|| PyValueError::new_err("set_aside() was called before"))?;
        if !nodes.is_empty() {
            let leaks = self.work(py, None, |_, control| {
                marking::set_aside(&mut states, &pointers, &nodes, control)?;
                leaks::find(&self.table, &states, &pointers, control)
            })?;
            found.leaks = leaks;
        }
        *lock(&self.states) = Some(Arc::new(states));
        *lock(&self.found) = Some(Arc::new(found));
        Ok(())
    }

    pub(crate) fn totals(&self) -> PyResult<HashMap<&'static str, u64>> {
        let found = self.found()?;
        let kept: u64 = found.leaks.direct.iter().map(|d| d.kept_bytes).sum();
        let large = self.table.slabs[self.table.slab_count..].iter();
        let large = large.filter(|slab| found.only_paged.binary_search(&slab.first).is_err());
        Ok(HashMap::from([
            ("leaked_count", found.leaks.all.len() as u64),
            ("leaked_bytes", found.leaks.bytes),
            ("direct_count", found.leaks.direct.len() as u64),
            ("direct_bytes", found.leaks.bytes - kept),
            ("read", found.bytes),
            ("missing_slab_pages", found.missing[0]),
            ("missing_pages", found.missing[1]),
            ("large_blocks", large.clone().count() as u64),
            ("large_pages", large.map(|slab| u64::from(slab.pages)).sum()),
        ]))
    }

    /// The direct leaks that match each pattern: (bytes at least, [(offset, lowest, highest)]).
    pub(crate) fn matches(&self, py: Python<'_>, patterns: &[Pattern]) -> PyResult<Vec<MatchRow>> {
        let found = self.found()?;
        self.work(py, None, |space, control| {
            let mut rows = Vec::new();
            for direct in &found.leaks.direct {
                stopped(control)?;
                let (address, size, cache) = self.table.describe(direct.node);
                let physical = self.table.physical(address);
                let matches = |pattern: &Pattern| {
                    u64::from(pattern.0) <= size
                        && pattern.1.iter().all(|(offset, low, high)| {
                            let mut word = [0; 8];
                            space.physical.read(physical + u64::from(*offset), &mut word) == 8
                                && (*low..=*high).contains(&u64::from_le_bytes(word))
                        })
                };
                if let Some(pattern) = patterns.iter().position(matches) {
                    rows.push((address, size, cache_of(cache), pattern, direct.kept, direct.kept_bytes));
                }
            }
            Ok(rows)
        })
    }
}
