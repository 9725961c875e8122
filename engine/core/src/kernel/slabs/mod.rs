//! The objects of the kernel's slab allocator (SLUB): which are allocated, and which nothing points to.
//!
//! * [`layout`]: offsets in this kernel's structures, and what its caches are.
//! * [`heads`]: the slabs and other compound pages that the pass over the page array meets.
//! * [`table`]: all objects by number, and the object at an address.
//! * [`reserves`]: free objects that CPUs and nodes keep apart: per-CPU freelists, sheaves, barns.
//! * [`freelists`]: free objects by the freelists of slabs. **This decides which objects are allocated.**
//! * [`plan`]: which pages hold pointers; [`sweep`]: the one pass over them, which collects the pointers; [`batch`]
//!   reads for it. [`device_address`]: which numbers are physical addresses of objects. [`code`]: pointers in instructions.
//! * [`marking`]: which objects the pointers hold, and by what evidence; [`leaks`]: direct and indirect ones.
//! * [`retained`]: what objects keep alive alone, by the dominator tree.
//! * [`tracks`]: who allocated and freed an object (slub_debug=U).
//! * [`holders`]: where pointers into some memory lie.
//! * [`check`]: red zones, poison, and counts that contradict each other. [`slab_bytes`]: a slab of which pages may be lost.

mod batch;
pub mod check;
pub mod code;
pub mod device_address;
pub mod freelists;
pub mod heads;
pub mod holders;
pub mod layout;
pub mod leaks;
pub mod marking;
pub mod node_set;
pub mod plan;
pub mod reserves;
pub mod retained;
pub mod slab_bytes;
pub mod sweep;
pub mod table;
pub mod tracks;
