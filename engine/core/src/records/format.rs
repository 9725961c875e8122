//! The layout of the auditor's tables. Generated from audit/format.h by scripts/audit-format: do not edit.

#![allow(missing_docs)]

pub const VERSION: u32 = 1;
pub const OFF: u32 = 0;
pub const STARTING: u32 = 1;
pub const RECORDING: u32 = 2;
pub const STOPPED: u32 = 3;
pub const NODE_TRUNCATED_BIT: u32 = 48;
pub const NODE_EXACT_BIT: u32 = 49;
pub const ALLOCATED: u32 = 1;
pub const FREED: u32 = 2;
pub const CLOCK_TICKS: u32 = 1;
pub const CLOCK_MONOTONIC: u32 = 2;
pub const RANGE_LIBRARY: u32 = 1;
pub const RANGE_RECORDS: u32 = 2;
pub const RANGE_STACKS: u32 = 3;
pub const RANGE_LOG: u32 = 4;
pub const RANGE_OTHER: u32 = 5;
pub const RANGE_BOOTSTRAP: u32 = 6;
pub const MAPPING_MMAP: u32 = 1;
pub const MAPPING_MREMAP: u32 = 2;
pub const MAPPING_BRK: u32 = 3;
pub const MAPPING_SHMAT: u32 = 4;
pub const GUARDS: u32 = 1;
pub const SAMPLED: u32 = 2;
pub const MAPS: u32 = 4;

/// The offsets of the fields of `struct dmods_audit_node`, and its size.
pub mod node {
    pub const PC_AT: usize = 0;
    pub const PARENT_AT: usize = 8;
    pub const HASH_AT: usize = 12;
    pub const SIZE: usize = 16;
}

/// The offsets of the fields of `struct dmods_audit_transaction`, and its size.
pub mod transaction {
    pub const SEQUENCE_AT: usize = 0;
    pub const ADDRESS_AT: usize = 8;
    pub const SIZE_AT: usize = 16;
    pub const TIME_AT: usize = 24;
    pub const STACK_AT: usize = 32;
    pub const THREAD_AT: usize = 36;
    pub const EVENT_AT: usize = 40;
    pub const CONTENTS_AT: usize = 44;
    pub const ALLOC_TIME_AT: usize = 48;
    pub const ALLOC_STACK_AT: usize = 56;
    pub const ALLOC_THREAD_AT: usize = 60;
    pub const SIZE: usize = 64;
}
