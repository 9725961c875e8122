//! The types of the objects in Go's heap, without debug information.
//!
//! Since Go 1.22 an object of more than 512 bytes that has pointers begins with the address of its type, and the record
//! of a large one has it. Other types are told by interface values, which have a type beside a pointer. A type of Go
//! says what its fields are: so one typed object tells the types of the objects that it points to.
//!
//! * [`types`]: the runtime's descriptions of types (internal/abi/type.go, runtime/type.go of 1.19 to 1.27).
//! * [`objects`]: the spans, and what is known of each object.
//! * [`spread`]: how types spread.
//! * `claims`: what a typed value says of another object.
//! * `containers`: maps and channels.
//! * [`count`]: the objects of each type.

mod claims;
mod containers;
pub mod count;
pub mod objects;
pub mod spread;
pub mod types;
