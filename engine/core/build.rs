//! Gives the program the hash of its sources: what one version of them has kept, no other one takes for its own.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;
use std::{env, fs};

fn main() {
    let mut hasher = DefaultHasher::new();
    add(Path::new("src"), &mut hasher);
    // A newer parser may read more. A crate that is built alone has no lock file.
    fs::read("../Cargo.lock").unwrap_or_default().hash(&mut hasher);
    // Hashes in what is kept are those of the compiler's library.
    let compiler = env::var_os("RUSTC").and_then(|rustc| Command::new(rustc).arg("-V").output().ok());
    compiler.map(|output| output.stdout).hash(&mut hasher);
    println!("cargo::rustc-env=DMODS_SOURCES={:016x}", hasher.finish());
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=../Cargo.lock");
}

fn add(path: &Path, hasher: &mut DefaultHasher) {
    let Ok(entries) = fs::read_dir(path) else {
        fs::read(path).unwrap_or_default().hash(hasher);
        return;
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        path.hash(hasher);
        add(&path, hasher);
    }
}
