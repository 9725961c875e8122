//! Debug information that a kernel carries in its own memory, and the file that debuggers read, made of it.
//!
//! * [`kallsyms`]: the names and addresses of functions and variables.
//! * [`by_shape`]: where they are, in kernels that do not say it.
//! * [`table`]: the symbols by name.
//! * [`listing`]: the same, out of a System.map.
//! * [`module`]: the same of a module.
//! * [`btf`]: the types, without the names of variables, macros and lines.
//! * [`join`]: the types of modules behind those of their kernel.
//! * [`questions`]: sizes and offsets in the words of VMCOREINFO.
//! * [`dwarf`]: the same types in the debuggers' format, with the variables whose type the caller knows.
//! * [`variables`]: which variables there are, and of what types.
//! * [`file`]: an ELF file of both, as vmlinux is one.

pub mod btf;
pub mod by_shape;
pub mod dwarf;
pub mod file;
pub mod join;
pub mod kallsyms;
pub mod listing;
pub mod module;
pub mod questions;
mod shapes;
pub mod table;
pub mod variables;
