//! Debug information that a kernel carries in its own memory, and the file that debuggers read, made of it.
//!
//! * [`kallsyms`]: the names and addresses of functions and variables.
//! * [`btf`]: the types, without the names of variables, macros and lines.
//! * [`dwarf`]: the same types in the debuggers' format, with the variables whose type the caller knows.
//! * [`variables`]: which variables there are, and of what types.
//! * [`file`]: an ELF file of both, as vmlinux is one.

pub mod btf;
pub mod dwarf;
pub mod file;
pub mod kallsyms;
mod shapes;
pub mod variables;
