//! Maps and sets that are asked for each pointer of a heap: with a fast hash, of another seed in each process.

use foldhash::fast::RandomState;

pub(super) type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
pub(super) type HashSet<K> = std::collections::HashSet<K, RandomState>;
