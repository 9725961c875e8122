//! The page classifier against a slow and plain model, on made-up machines: healthy ones, damaged ones, and plain noise.

mod bounds;
mod kdump;
mod machine;
mod plain;
mod properties;
mod tables;
