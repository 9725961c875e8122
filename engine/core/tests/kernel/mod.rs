//! Compares the page classifier with a slow and plain model, on made-up machines: sound ones, damaged ones, and noise.

mod bounds;
mod file_caches;
mod kdump;
mod machine;
mod own_types;
mod plain;
mod properties;
mod retained;
mod slabs;
mod tables;
