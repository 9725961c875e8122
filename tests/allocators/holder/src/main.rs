//! Holds 40 MB in blocks of an allocator that is linked in, and dies.

#[cfg(feature = "rpmalloc")]
#[global_allocator]
static ALLOCATOR: rpmalloc::RpMalloc = rpmalloc::RpMalloc;

#[cfg(feature = "snmalloc")]
#[global_allocator]
static ALLOCATOR: snmalloc_rs::SnMalloc = snmalloc_rs::SnMalloc;

#[cfg(feature = "tcmalloc")]
#[global_allocator]
static ALLOCATOR: tcmalloc_better::TCMalloc = tcmalloc_better::TCMalloc;

fn main() {
    let held: Vec<Vec<u8>> = (0..20_000).map(|number| vec![number as u8; 2000 + number % 100]).collect();
    std::hint::black_box(&held);
    std::process::abort();
}
