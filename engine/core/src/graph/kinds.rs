//! Merges signatures into kinds of blocks.
//!
//! An object's kind is its vtable. All other blocks get a *shape*: what their first words hold. Blocks of one kind rarely
//! have one signature: a text varies, a number is small or large, an optional pointer is 0, a string is in a buffer of
//! any size. So signatures of one size class are merged, the most frequent first. Two dangers stand against each other:
//! a kind that is split in two is a nuisance, two kinds in one row are wrong. The rules lean to the split.
//!
//! 1. Zero goes with anything, and so does a pointer that an earlier use of the memory left behind. Small and large
//!    numbers go together. Four letters may be a number and go with numbers and with text. Text, code, data and pointers into the heap go only with themselves.
//! 2. Where both have the same pointers, they are one kind, unless both have texts that always begin differently.
//! 3. Where one lacks some of the pointers (they are 0), it is the same kind if the two share a link to a block of their
//!    own size, a pointer to the same function or table, or two equal pointers: the leaves of a tree, the ends of chains.
//!    Otherwise only a few blocks (under 16, or under 5 % of the other) may lack pointers.
//! 4. Pointers to blocks of different sizes are different, unless these blocks are mostly text (names have any length),
//!    or unless more than four kinds differ only in them (buffers of any size).
//! 5. Blocks that hold only zeros are a kind of their own.
//! 6. A few blocks that begin with text and fit nowhere are text: the rest of a text buffer is what was there before.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;

use crate::contents::{kind_of, of, word_kind as k, Census, Entry, Form, WORDS};

/// The detail of a pointer to a block that is mostly text.
pub const TO_TEXT: u64 = of(k::HEAP, 1);
/// The detail of a pointer to a block of any size.
pub const TO_ANY: u64 = of(k::HEAP, 0);
/// A few blocks.
const FEW: u64 = 16;
/// A part that is small: one in so many.
const SMALL_PART: u64 = 20;
/// Kinds that differ only in where their pointers lead are merged where there are more than so many.
const ALIKE: usize = 4;
/// Kinds of one size class that are kept apart while signatures are merged, and after that.
const CLUSTERS: usize = 256;
const KEPT: usize = 24;
/// Bytes of text that distinguish.
const DISTINCT: u8 = 3;

/// A kind of block.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The merged signature, with how many blocks there are in all cores, and what they have in common.
    pub entry: Entry,
    /// A number that depends on the merged signature alone.
    pub id: u64,
}

/// The kinds of one or more censuses, which are merged together. So a block of one core and a block of another have the
/// same kind if they are alike.
#[derive(Debug, Default)]
pub struct Kinds {
    /// The kinds.
    pub all: Vec<Kind>,
    /// For each census: the kind of each of its entries.
    pub of_entry: Vec<Vec<u32>>,
}

impl Kinds {
    /// Merges the signatures of several censuses.
    pub fn new(censuses: &[&Census]) -> Kinds {
        let (mut merged, place) = by_signature(censuses);
        name_text_blocks(&mut merged);
        let mut classes: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, entry) in merged.iter().enumerate() {
            classes.entry(entry.signature.class).or_default().push(at);
        }
        let mut kinds = Kinds::default();
        let mut of_merged = vec![0u32; merged.len()];
        for (class, mut members) in classes {
            members.sort_by_key(|&at| (std::cmp::Reverse(merged[at].count), at));
            let (clusters, joined) = cluster(class, &merged, &members);
            let first = kinds.all.len() as u32;
            for (&at, &cluster) in members.iter().zip(&joined) {
                of_merged[at] = first + cluster as u32;
            }
            kinds.all.extend(clusters.into_iter().map(|entry| Kind { id: id_of(&entry), entry }));
        }
        let by_entry = |places: Vec<usize>| places.into_iter().map(|at| of_merged[at]).collect();
        kinds.of_entry = place.into_iter().map(by_entry).collect();
        kinds
    }
}

/// Returns each signature of the censuses once, and for each census: which of them its entries have.
fn by_signature(censuses: &[&Census]) -> (Vec<Entry>, Vec<Vec<usize>>) {
    if let [census] = censuses {
        // A census has each signature once.
        return (census.entries.clone(), vec![(0..census.entries.len()).collect()]);
    }
    let mut found: HashMap<_, usize, RandomState> = HashMap::default();
    let mut merged: Vec<Entry> = Vec::new();
    let mut place: Vec<Vec<usize>> = Vec::new();
    for census in censuses {
        let mut places = Vec::with_capacity(census.entries.len());
        for entry in &census.entries {
            let s = entry.signature;
            let at = *found.entry((s.class, s.form, s.words)).or_insert_with(|| {
                merged.push(Entry { count: 0, ..*entry });
                merged.len() - 1
            });
            merged[at].add(entry.count, &entry.sample, &entry.same);
            places.push(at);
        }
        place.push(places);
    }
    (merged, place)
}

/// FNV-1a over the merged signature, and then a mixing: the first digits alone are shown where they tell kinds apart, so
/// each bit of the signature has to reach them (the finalizer of MurmurHash3).
fn id_of(entry: &Entry) -> u64 {
    let s = &entry.signature;
    let words = [s.class, s.form as u64].into_iter().chain(s.words);
    let bytes = words.flat_map(u64::to_le_bytes);
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ hash >> 33).wrapping_mul(factor);
    }
    hash ^ hash >> 33
}

/// Gives pointers to size classes whose blocks mostly begin with text one common detail: names have any length.
fn name_text_blocks(entries: &mut [Entry]) {
    let mut counts: HashMap<u64, (u64, u64)> = HashMap::new();
    for entry in entries.iter() {
        let count = counts.entry(entry.signature.class).or_default();
        count.0 += entry.count;
        if begins_with_text(entry) {
            count.1 += entry.count;
        }
    }
    for entry in entries.iter_mut() {
        let own = of(k::HEAP, entry.signature.class);
        for word in entry.signature.words.iter_mut().filter(|word| kind_of(**word) == k::HEAP && **word != own) {
            let class = *word & !of(0xff, 0);
            if counts.get(&class).is_some_and(|&(all, text)| text * 2 >= all) {
                *word = TO_TEXT;
            }
        }
    }
}

fn begins_with_text(entry: &Entry) -> bool {
    entry.signature.form == Form::Shape && is_text(entry.signature.words[0])
}

/// Merges the signatures of one size class. Returns the clusters, and the cluster of each member.
fn cluster(class: u64, entries: &[Entry], members: &[usize]) -> (Vec<Entry>, Vec<usize>) {
    let total: u64 = members.iter().map(|&at| entries[at].count).sum();
    let mut clusters: Vec<Entry> = Vec::new();
    let mut joined = Vec::with_capacity(members.len());
    for &at in members {
        let entry = &entries[at];
        let found = clusters.iter().position(|other| joins(class, entry, other));
        let found = found.or_else(|| clusters.iter().position(|other| is_text_rest(entry, other, total)));
        joined.push(match found {
            Some(index) => {
                merge(&mut clusters[index], entry);
                index
            }
            None if clusters.len() < CLUSTERS || entry.signature.form != Form::Shape => {
                clusters.push(*entry);
                clusters.len() - 1
            }
            None => various(&mut clusters, entry),
        });
    }
    let renamed = join_alike(&mut clusters);
    let renamed_again = keep_largest(&mut clusters);
    for index in &mut joined {
        *index = renamed_again[renamed[*index]];
    }
    (clusters, joined)
}

/// Puts an entry into the cluster of those that are not told apart.
fn various(clusters: &mut Vec<Entry>, entry: &Entry) -> usize {
    let signature = crate::contents::Signature { form: Form::Various, words: [0; WORDS], ..entry.signature };
    let index = clusters.iter().position(|c| c.signature.form == Form::Various).unwrap_or_else(|| {
        clusters.push(Entry { signature, count: 0, ..*entry });
        clusters.len() - 1
    });
    clusters[index].add(entry.count, &entry.sample, &entry.same);
    index
}

fn is_wild(word: u64) -> bool {
    matches!(kind_of(word), k::ZERO | k::LEFT_OVER)
}

fn is_number(word: u64) -> bool {
    matches!(kind_of(word), k::SMALL | k::NUMBER | k::SHORT)
}

fn is_text(word: u64) -> bool {
    matches!(kind_of(word), k::TEXT | k::SHORT)
}

fn is_pointer(word: u64) -> bool {
    (k::CODE..=k::ELSEWHERE).contains(&kind_of(word))
}

fn agree(a: u64, b: u64) -> bool {
    a == b || is_wild(a) || is_wild(b) || (is_number(a) && is_number(b)) || (is_text(a) && is_text(b))
}

/// Returns whether an entry belongs to a cluster.
fn joins(class: u64, entry: &Entry, cluster: &Entry) -> bool {
    let (a, b) = (&entry.signature, &cluster.signature);
    if a == b {
        return true;
    }
    if a.form != Form::Shape || b.form != Form::Shape {
        return false;
    }
    // Nearly all pairs of signatures end here.
    for i in 0..WORDS {
        if !agree(a.words[i], b.words[i]) {
            return false;
        }
    }
    let pairs = || a.words.iter().copied().zip(b.words.iter().copied());
    let empty = |words: &[u64; WORDS]| words.iter().all(|&word| is_wild(word));
    if empty(&a.words) || empty(&b.words) {
        return empty(&a.words) && empty(&b.words);
    }
    if different_text(entry, cluster) {
        return false;
    }
    let shared = pairs().any(|(x, y)| !is_wild(x) && !is_wild(y));
    let missing = pairs().filter(|&(x, y)| is_pointer(y) && !is_pointer(x)).count();
    let more = pairs().filter(|&(x, y)| is_pointer(x) && !is_pointer(y)).count();
    if missing == 0 && more == 0 {
        return shared;
    }
    let equal = || pairs().filter(|&(x, y)| is_pointer(x) && x == y);
    let own = of(k::HEAP, class);
    let telling = |(word, _)| word == own || matches!(kind_of(word), k::CODE | k::TABLE | k::VTABLE);
    if equal().any(telling) || equal().count() >= 2 {
        return true;
    }
    let few = entry.count < FEW || entry.count < cluster.count / SMALL_PART;
    few && shared && (missing == 0 || more == 0)
}

/// Returns whether both have a text at one place that always begins in the same way, and differently in the other.
fn different_text(a: &Entry, b: &Entry) -> bool {
    a.count >= 8
        && b.count >= 8
        && (0..WORDS).any(|i| {
            let both = is_text(a.signature.words[i]) && is_text(b.signature.words[i]);
            let common = ((a.sample[i] ^ b.sample[i]).trailing_zeros() / 8) as u8;
            both && a.same[i].min(b.same[i]) >= DISTINCT && common < DISTINCT
        })
}

/// Returns whether an entry is the rest of the text buffers in a cluster: rule 6.
fn is_text_rest(entry: &Entry, cluster: &Entry, total: u64) -> bool {
    let few = entry.count < FEW || entry.count < total / SMALL_PART;
    few && begins_with_text(entry)
        && begins_with_text(cluster)
        && !cluster.signature.words.iter().any(|&w| is_pointer(w))
}

fn merge(cluster: &mut Entry, entry: &Entry) {
    let stray = entry.count < cluster.count / SMALL_PART;
    cluster.add(entry.count, &entry.sample, &entry.same);
    let text_rest = begins_with_text(cluster) && !joinable(cluster, entry);
    for (word, &other) in cluster.signature.words.iter_mut().zip(&entry.signature.words) {
        if text_rest {
            continue;
        }
        *word = match (kind_of(*word), kind_of(other)) {
            // What nearly all blocks lack is not theirs. (Small numbers are told apart by value: each one is rare.)
            (k::ZERO, kind) if stray && !matches!(kind, k::SMALL | k::SHORT) => *word,
            (k::ZERO, _) => other,
            (k::LEFT_OVER, kind) if kind != k::ZERO => other,
            (k::LEFT_OVER, _) => 0,
            (k::SMALL, k::NUMBER) | (k::SHORT, k::NUMBER | k::TEXT) => other,
            (k::SMALL, k::SHORT) | (k::SHORT, k::SMALL) => of(k::NUMBER, 0),
            _ => *word,
        };
    }
    // Where it was left over in some of the blocks, it says nothing.
    for word in &mut cluster.signature.words {
        if kind_of(*word) == k::LEFT_OVER {
            *word = 0;
        }
    }
}

fn joinable(cluster: &Entry, entry: &Entry) -> bool {
    cluster.signature.words.iter().zip(&entry.signature.words).all(|(&a, &b)| agree(a, b))
        && !entry.signature.words.iter().zip(&cluster.signature.words).any(|(&a, &b)| is_pointer(a) && !is_pointer(b))
}

/// Joins clusters that differ only in the sizes of the blocks that they point to, or in functions: rule 4. Returns the
/// new number of each cluster.
fn join_alike(clusters: &mut Vec<Entry>) -> Vec<usize> {
    let general = |words: [u64; WORDS]| {
        words.map(|word| match kind_of(word) {
            k::HEAP => TO_ANY,
            k::CODE => of(k::CODE, 0),
            k::SMALL | k::SHORT => of(k::NUMBER, 0),
            _ => word,
        })
    };
    let mut groups: HashMap<[u64; WORDS], Vec<usize>> = HashMap::new();
    for (index, cluster) in clusters.iter().enumerate() {
        if cluster.signature.form == Form::Shape {
            groups.entry(general(cluster.signature.words)).or_default().push(index);
        }
    }
    let mut leader: Vec<usize> = (0..clusters.len()).collect();
    for members in groups.into_values().filter(|members| members.len() > ALIKE) {
        let first = members[0];
        for &other in &members[1..] {
            let entry = clusters[other];
            clusters[first].add(entry.count, &entry.sample, &entry.same);
            for (word, &theirs) in clusters[first].signature.words.iter_mut().zip(&entry.signature.words) {
                if *word != theirs {
                    *word = general([*word; WORDS])[0];
                }
            }
            leader[other] = first;
        }
    }
    let mut number = vec![0; clusters.len()];
    let mut kept = Vec::new();
    for index in 0..clusters.len() {
        if leader[index] == index {
            number[index] = kept.len();
            kept.push(clusters[index]);
        }
    }
    for index in 0..clusters.len() {
        number[index] = number[leader[index]];
    }
    *clusters = kept;
    number
}

/// Keeps the largest shapes and all objects. The other shapes are not told apart. Returns the new numbers.
fn keep_largest(clusters: &mut Vec<Entry>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..clusters.len()).collect();
    order.sort_by_key(|&index| (std::cmp::Reverse(clusters[index].count), index));
    let mut kept: Vec<Entry> = Vec::new();
    let mut number = vec![0; clusters.len()];
    let mut shapes = 0;
    for &index in &order {
        let shape = clusters[index].signature.form == Form::Shape;
        shapes += usize::from(shape);
        number[index] = if (shape && shapes > KEPT) || clusters[index].signature.form == Form::Various {
            various(&mut kept, &clusters[index])
        } else {
            kept.push(clusters[index]);
            kept.len() - 1
        };
    }
    *clusters = kept;
    number
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contents::Signature;

    const NEXT: u64 = of(k::HEAP, 72);
    const TEXT: u64 = of(k::TEXT, 0);
    const NUMBER: u64 = of(k::NUMBER, 0);
    const SMALL: u64 = of(k::SMALL, 0);

    fn entry(count: u64, first: &[u64]) -> Entry {
        let mut words = [0; WORDS];
        words[..first.len()].copy_from_slice(first);
        Entry {
            signature: Signature { class: 72, form: Form::Shape, words },
            count,
            sample: [0; WORDS],
            same: [0; WORDS],
            sum: Default::default(),
        }
    }

    fn kinds(entries: Vec<Entry>) -> Vec<u32> {
        let census = Census { entries, ..Census::default() };
        Kinds::new(&[&census]).of_entry.remove(0)
    }

    fn number(kinds: &[u32]) -> usize {
        kinds.iter().collect::<std::collections::HashSet<_>>().len()
    }

    #[test]
    fn the_nodes_of_a_tree_are_one_kind() {
        let found = kinds(vec![
            entry(500, &[SMALL, NEXT, 0, 0, NUMBER]),
            entry(250, &[SMALL, NEXT, NEXT, NEXT, NUMBER]),
            entry(120, &[SMALL, NEXT, NEXT, 0, NUMBER]),
            entry(130, &[SMALL, NEXT, 0, NEXT, SMALL]),
        ]);
        assert_eq!(number(&found), 1);
    }

    #[test]
    fn two_kinds_of_one_size_are_not_mixed() {
        let found = kinds(vec![
            entry(2000, &[TEXT, TEXT, NUMBER, NEXT]),
            entry(800, &[TEXT, TEXT, NUMBER, 0]),
            entry(700, &[NUMBER, TEXT, NUMBER, NEXT]),
            entry(600, &[of(k::HEAP, 40), NUMBER, of(k::HEAP, 24)]),
            entry(600, &[of(k::HEAP, 56), NUMBER, of(k::HEAP, 24)]),
            entry(90, &[0, 0]),
        ]);
        assert_eq!(number(&found), 6);
    }

    #[test]
    fn a_few_blocks_without_the_optional_pointer_join() {
        let found = kinds(vec![entry(2000, &[TEXT, NUMBER, NEXT]), entry(12, &[TEXT, SMALL, 0]), entry(3, &[TEXT])]);
        assert_eq!(number(&found), 1);
    }

    #[test]
    fn a_stray_block_does_not_name_the_kind() {
        let leaves = entry(6000, &[0, 0, NUMBER]);
        let entries = vec![leaves, entry(1, &[NUMBER, of(k::DATA, 0), NUMBER])];
        let found = Kinds::new(&[&Census { entries, ..Census::default() }]);
        assert_eq!(number(&found.of_entry[0]), 1);
        assert_eq!(found.all[0].entry.signature.words, leaves.signature.words);
    }

    #[test]
    fn texts_that_begin_differently_are_two_kinds() {
        let with = |text: &[u8; 8]| {
            let mut made = entry(100, &[TEXT, NUMBER]);
            made.sample[0] = u64::from_le_bytes(*text);
            made.same[0] = 5;
            made
        };
        let mut other = with(b"order-23");
        other.signature.words[1] = SMALL;
        assert_eq!(number(&kinds(vec![with(b"user-123"), other])), 2);
        let mut same = with(b"user-999");
        same.signature.words[1] = SMALL;
        assert_eq!(number(&kinds(vec![with(b"user-123"), same])), 1);
    }

    #[test]
    fn pointers_to_buffers_of_any_size_are_one_kind() {
        let sizes = (0..10).map(|i| entry(50, &[of(k::HEAP, 104 + 16 * i), NUMBER, SMALL])).collect();
        assert_eq!(number(&kinds(sizes)), 1);
    }

    #[test]
    fn ids_do_not_collide() {
        let all: Vec<u64> = (0..50_000).map(|i| id_of(&entry(1, &[of(k::HEAP, 16 * i), NUMBER]))).collect();
        let short: std::collections::HashSet<u64> = all.iter().map(|id| id >> 24).collect();
        // 40 bits: one pair in 880 runs of this size is expected.
        assert_eq!(short.len(), all.len());
        // Each bit of the first digit is set in about half of them.
        for bit in 60..64 {
            let set = all.iter().filter(|&&id| id >> bit & 1 == 1).count();
            assert!((24_000..26_000).contains(&set), "{bit}: {set}");
        }
    }

    #[test]
    fn two_cores_are_merged_together() {
        let first = Census { entries: vec![entry(10, &[0, NUMBER]), entry(100, &[NEXT, NUMBER])], ..Census::default() };
        let second = Census { entries: vec![entry(300, &[NEXT, SMALL])], ..Census::default() };
        let kinds = Kinds::new(&[&first, &second]);
        assert_eq!(kinds.of_entry[0][1], kinds.of_entry[1][0]);
        assert_eq!(kinds.all[kinds.of_entry[0][1] as usize].entry.count, 410);
    }

    #[test]
    fn there_are_never_many_kinds() {
        let mut seed = 7u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 40
        };
        let some = (0..512).map(|_| {
            let words: Vec<u64> = (0..WORDS).map(|_| of((random() % 12) as u8, 16 * (random() % 30))).collect();
            entry(random() % 50 + 1, &words)
        });
        assert!(number(&kinds(some.collect())) <= KEPT + 1);
    }
}
