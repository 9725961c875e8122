//! Replays the inputs that once broke a fuzz target (`regressions/TARGET/NAME`).

#[path = "../../fuzz/src/targets/mod.rs"]
mod targets;

use std::path::Path;

#[test]
fn what_once_broke_stays_mended() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions");
    let mut replayed = 0;
    for (name, target) in targets::TARGETS {
        for entry in std::fs::read_dir(folder.join(name)).into_iter().flatten() {
            let path = entry.expect("listed").path();
            target(&std::fs::read(&path).expect("there"));
            replayed += 1;
        }
    }
    assert!(replayed > 0);
}
