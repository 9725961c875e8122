//! What the fuzz targets do with their input.

pub mod targets;
