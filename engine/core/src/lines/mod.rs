//! Source lines and inlined functions of code addresses, from DWARF debug information.
//!
//! * [`Lines`]: answers for one program or library. It opens files when it is first asked.
//! * `locate`: finds the file that has the debug information (build-id, debuglink, dwz's supplementary file).
//! * `elf`: one ELF file: its build-id, its links to other files, its sections, decompressed.
//! * `dwarf`: the parsed debug information.
//! * `split`: the parts of it that lie in .dwo and .dwp files.
//! * `reader`: bounds what the parser may do with hostile debug information.
//!
//! The `addr2line` crate does the lookup.

mod dwarf;
mod elf;
mod locate;
mod lookup;
mod reader;
mod split;

pub(crate) use elf::{Bytes, ElfFile};
pub(crate) use locate::{find as find_debug_file, Wanted};
pub(crate) use reader::{describe, Bounded, Limits};
pub(crate) use split::{package_of, parse_package, DwoFile, MAX_SPLIT, OTHER_BUILD};

pub use dwarf::Frame;
pub use lookup::Lines;
