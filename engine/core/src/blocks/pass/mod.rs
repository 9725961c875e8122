//! The one pass over the bytes of each run: it walks the chunks and keeps which words hold candidate pointers.
//!
//! While a block of the file is in the cache, the chunk headers are followed and every word is range-tested. After that
//! only the tables are used. A run's bytes are read with `pread` into a buffer that is reused. So there are no page
//! faults and no SIGBUS on a truncated file, and the core need not be resident.

//!
//! * [`build`]: deals the runs out to threads.
//! * [`report`]: the request, and the report on each run.
//! * `candidates`: the range test of the words.
//! * `batch`: whole runs that one thread scans one after the other.
//! * `chunks`: a run of chunks; `chunk_scan` is its state, `walk` follows the headers.
//! * `parts`: a large run of chunks, for several threads; `part`: one of them; `share`: a job's share of the tables.
//! * `headerless`: slabs and extents.

mod batch;
pub mod build;
mod candidates;
mod chunk_scan;
mod chunks;
mod headerless;
mod part;
mod parts;
pub mod report;
mod share;
mod walk;

pub use build::{build, Built};
pub(super) use candidates::{in_spans, PART};
pub use report::{Anomaly, Fault, Found, Request, RunReport};
