use dmods_engine::kernel::file_caches::{self, CachedFile, Inodes, Names};
use pyo3::prelude::*;

use crate::kernel::Memmap;

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct NamesArgument {
    hash: u64,
    inode: u64,
    superblock: u64,
    count: u64,
    table: u64,
    buckets: u64,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct InodesArgument {
    list: u64,
    pages: u64,
    number: u64,
}

/// The names of each superblock, those of others, buckets that the dump lacks, and (chains, dentry) that are broken.
type NamesAnswer = (Vec<(u64, u64, u64)>, u64, u64, (u64, u64));
/// The inodes of each superblock, and the largest files.
type InodesAnswer = (Vec<(u64, u64, Option<u64>)>, Vec<CachedFile>);

/// Counts the names in the hash table of dentries. See `_engine.pyi`.
#[pyfunction]
#[pyo3(signature = (memmap, layout, superblocks, progress = None))]
pub fn count_names(
    py: Python<'_>,
    memmap: &Memmap,
    layout: NamesArgument,
    superblocks: Vec<u64>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<NamesAnswer> {
    let NamesArgument { hash, inode, superblock, count, table, buckets } = layout;
    let layout = Names { hash, inode, superblock, count, table, buckets };
    let found =
        memmap.work(py, progress, |memory, control| file_caches::names(&layout, &superblocks, memory, control))?;
    let of = found.of.iter().map(|counts| (counts.names, counts.negative, counts.unused)).collect();
    Ok((of, found.unknown, found.missing, found.broken))
}

/// Counts the inodes of superblocks. See `_engine.pyi`.
#[pyfunction]
#[pyo3(signature = (memmap, layout, heads, top, progress = None))]
pub fn count_inodes(
    py: Python<'_>,
    memmap: &Memmap,
    layout: InodesArgument,
    heads: Vec<u64>,
    top: usize,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<InodesAnswer> {
    let InodesArgument { list, pages, number } = layout;
    let layout = Inodes { list, pages, number };
    let found =
        memmap.work(py, progress, |memory, control| file_caches::inodes(&layout, &heads, top, memory, control))?;
    Ok((found.of, found.top))
}
