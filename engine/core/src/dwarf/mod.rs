//! Types and variables from debug information (DWARF 2 to 5).
//!
//! * [`model`]: types as data.
//! * [`DebugTypes`]: what is asked of the modules of a process.
//! * `file`: the sections of one module, and its entries.
//! * `units`: its units, also those in the file that dwz made and in .dwo and .dwp files.
//! * `die`: one entry.
//! * `walk`: the entries below one.
//! * `index`: one pass over the entries of a unit.
//! * `names`: names with what stands before them.
//! * `read`: makes types of entries.
//! * `identity`: tells types apart.
//! * `places`: where variables and functions are.
//! * `table`: what a module says as a whole.
//! * `packed`: types as bytes.
//! * `kept`: tables that the next command finds in the cache folder.
//! * `simple`: names of templates whose arguments the file leaves out.
//! * `spelling`: how names are written.
//! * [`short`]: how people write the names of the C++ library.
//! * `locals`: the variables of a frame.
//!
//! All of it is read through `lines::Bounded`: a damaged file cannot make the work larger than its size justifies.

mod die;
mod file;
mod identity;
mod index;
mod kept;
mod locals;
pub mod model;
mod module;
mod names;
mod packed;
mod places;
mod read;
pub mod short;
mod simple;
pub(crate) mod spelling;
mod table;
mod units;
mod walk;

pub use kept::Folder;
pub use locals::FrameAt;
pub use module::{DebugTypes, Place, Variable};
