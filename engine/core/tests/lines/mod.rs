//! Source lines and inlined functions, compared with binutils' `addr2line`.

mod oracle;
mod programs;

mod damage;
mod plain;
mod separate;
