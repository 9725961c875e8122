//! The types of groups of leaked blocks, from some blocks of each.

use std::collections::BTreeMap;

use super::build::TypeGraph;
use super::count::{Counted, Typed};
use crate::blocks::leaks::Group;
use crate::graph::sampled::Sampled;
use crate::graph::sums::View;

/// A group of leaks: what it is counted as, and whether that was not found out of each block.
pub struct NamedGroup {
    /// The group.
    pub group: Group,
    /// What it is counted as.
    pub counted: Counted,
    /// Only some of the blocks were looked at.
    pub sampled: bool,
}

impl TypeGraph {
    /// Returns the groups by kind or type, and size. A group of which each block was looked at is divided as in
    /// [`TypeGraph::groups`]. Another one has a type if at least half of the blocks have it, and none has another.
    pub fn sampled_groups(&self, view: &View<'_>, sampled: &[Sampled]) -> Vec<NamedGroup> {
        let mut out = Vec::new();
        for one in sampled {
            if one.blocks.len() as u64 == one.group.count {
                out.extend(self.divided(view, one));
            } else {
                let counted = self.common(view, one);
                out.push(NamedGroup { group: one.group, sampled: matches!(counted, Counted::Type(_)), counted });
            }
        }
        out
    }

    fn divided(&self, view: &View<'_>, one: &Sampled) -> impl Iterator<Item = NamedGroup> {
        let mut groups: BTreeMap<Option<(u32, u8)>, (Group, Counted)> = BTreeMap::new();
        for found in &one.blocks {
            let counted = self.counted_of_kind(view, &found.block, one.kind);
            let (group, _) = groups.entry(number(counted)).or_insert((view.of_leak(found), counted));
            group.add(found);
        }
        groups.into_values().map(|(group, counted)| NamedGroup { group, counted, sampled: false })
    }

    /// Returns what all of a group are counted as.
    fn common(&self, view: &View<'_>, one: &Sampled) -> Counted {
        let mut types: BTreeMap<Option<(u32, u8)>, (usize, Typed)> = BTreeMap::new();
        for found in &one.blocks {
            if let Counted::Type(of) = self.counted_of_kind(view, &found.block, one.kind) {
                let (count, known) = types.entry(number(Counted::Type(of))).or_insert((0, of));
                *count += 1;
                known.2 = known.2.max(of.2); // the weakest evidence
            }
        }
        match types.into_values().collect::<Vec<_>>()[..] {
            [(count, of)] if 2 * count >= one.blocks.len() => Counted::Type(of),
            _ => Counted::Kind(one.kind),
        }
    }
}

/// Returns the type and whether it is an array; None for a kind.
fn number(counted: Counted) -> Option<(u32, u8)> {
    match counted {
        Counted::Kind(_) => None,
        Counted::Type((kind, shape, _)) => Some((kind, shape as u8)),
    }
}
