//! Decides what every page of a dead Linux machine is used for.
//!
//! * [`physical`]: the dump's bytes by physical address; [`kdump`] reads makedumpfile's compressed format.
//! * [`page_tables`]: walks the kernel's page tables; [`virtual_memory`]: the kernel's memory by virtual address.
//! * [`layout`]: offsets in this kernel's structures, from its debug information.
//! * [`classify`]: decides about one `struct page`. **This decides what memstat reports.**
//! * [`identity`]: what a file page's mapping is, looked up once for each mapping.
//! * [`listed_pages`]: what only lists say: per-CPU free pages, stacks, vmalloc.
//! * [`scan`]: reads the page array in pieces; [`shared`]: notices memory that it shows more than once.
//! * [`file_caches`]: names (dentries) and inodes, by file system.
//! * [`slabs`]: the objects of the slab allocator, and which of them leaked.

pub mod classify;
pub mod file_caches;
pub mod frame_set;
pub mod hex_lines;
pub mod identity;
pub mod kdump;
pub mod kind;
pub mod layout;
pub mod listed_pages;
pub mod own_types;
pub mod page_tables;
pub mod physical;
pub mod scan;
pub mod shared;
pub mod slabs;
pub mod virtual_memory;

pub use kind::{Kind, KINDS};
