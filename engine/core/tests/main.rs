//! The engine's tests, all in one program: linking a release build takes longer than most of them.

mod blocks;
mod graph;
mod hostile;
mod jemalloc;
mod kernel;
mod lines;
mod regressions;
