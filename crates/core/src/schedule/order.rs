//! Order of projects within a group. Dependencies come first, by Terragrunt's files or, in mode `strict` and of deleted projects, by name.

use super::NoSchedule;
use super::discover::config_error;
use crate::config::{LockMode, ProjectConfig};
use crate::domain::ProjectId;
use crate::inputs::{Dependencies, InputGraph, MAX_EDGES};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most projects that an error names.
const MAX_NAMED: usize = 5;
/// Most remarks on unknown dependencies.
const MAX_REMARKS: usize = 10;

/// Returns the dependencies of each of these units. Units that depend on each other are refused.
pub(super) fn units(
    graph: &InputGraph<'_>,
    units: impl Iterator<Item = ProjectId>,
) -> Result<BTreeMap<ProjectId, Dependencies>, NoSchedule> {
    let mut found = BTreeMap::new();
    for unit in units {
        if let Some(circle) = graph.circle(&unit.dir) {
            let way = circle.iter().map(|dir| format!("`{}`", dir.replace('`', "'"))).collect::<Vec<_>>().join(" → ");
            return Err(config_error(format!(
                "units of Terragrunt depend on each other in a cycle: {way}; remove one of these dependencies"
            )));
        }
        let of = graph.dependencies(&unit.dir);
        if let Some(why) = graph.units_exceed() {
            return Err(config_error(why));
        }
        found.insert(unit, of);
    }
    Ok(found)
}

/// Returns the units here that each one depends on, directly or not. A unit is unclear if its files do not name all its dependencies. An
/// unclear unit, or one that depends on one, is assumed to depend on all units that are neither.
pub(super) fn dependencies(
    units: &BTreeMap<ProjectId, Dependencies>,
) -> Result<BTreeMap<ProjectId, BTreeSet<ProjectId>>, NoSchedule> {
    let unclear: BTreeSet<&str> =
        units.iter().filter(|(_, of)| of.may_be_more).map(|(id, _)| id.dir.as_str()).collect();
    let is_clear = |id: &ProjectId, of: &Dependencies| {
        !unclear.contains(id.dir.as_str()) && of.on.iter().all(|on| !unclear.contains(on.as_str()))
    };
    let clear: BTreeSet<&str> =
        units.iter().filter(|(id, of)| is_clear(id, of)).map(|(id, _)| id.dir.as_str()).collect();
    let mut by_dir: HashMap<&str, Vec<&ProjectId>> = HashMap::new();
    for id in units.keys() {
        by_dir.entry(&id.dir).or_default().push(id);
    }
    let (mut found, mut edges) = (BTreeMap::new(), 0);
    for (id, of) in units {
        let mut dirs: BTreeSet<&str> = of.on.iter().map(String::as_str).collect();
        if !is_clear(id, of) {
            dirs.extend(clear.iter().copied());
        }
        let there = dirs.iter().filter_map(|dir| by_dir.get(dir));
        let on: BTreeSet<ProjectId> = there.flat_map(|there| meant(there, id)).cloned().collect();
        edges += on.len();
        if edges > MAX_EDGES {
            return Err(config_error(format!(
                "units of Terragrunt have more than {MAX_EDGES} dependencies between each other, at `{}`; plan fewer of them at once",
                id.dir.replace('`', "'")
            )));
        }
        if !on.is_empty() {
            found.insert(id.clone(), on);
        }
    }
    Ok(found)
}

/// Adds the `depends_on` of projects in mode `strict` and of deleted ones, with indirect dependencies. A cycle is refused, as none of its projects could be
/// applied first.
pub(super) fn add_named(
    projects: &[ProjectConfig],
    dependencies: &mut BTreeMap<ProjectId, BTreeSet<ProjectId>>,
) -> Result<(), NoSchedule> {
    let is_ordered = |project: &&ProjectConfig| project.deleted || matches!(project.repo_locks, LockMode::Strict(_));
    let ordered = projects.iter().filter(is_ordered);
    let ordered: Vec<&ProjectConfig> = ordered.filter(|project| !project.depends_on.is_empty()).collect();
    if ordered.is_empty() {
        return Ok(());
    }
    let by_name: HashMap<&str, &ProjectId> =
        projects.iter().filter_map(|project| Some((project.id.name.as_deref()?, &project.id))).collect();
    for project in &ordered {
        let named = project.depends_on.iter().filter_map(|name| by_name.get(name.as_str()).copied().cloned());
        dependencies.entry(project.id.clone()).or_default().extend(named);
    }
    let direct = dependencies.clone();
    for (id, on) in dependencies.iter_mut() {
        let mut left: Vec<&ProjectId> = direct[id].iter().collect();
        while let Some(next) = left.pop() {
            let further = direct.get(next).into_iter().flatten();
            left.extend(further.filter(|further| on.insert((*further).clone())));
        }
        if on.contains(id) {
            return Err(config_error(format!(
                "`depends_on` has a cycle: `{}` depends on itself, by way of {}; remove one of these names",
                id.label(),
                direct[id].iter().take(MAX_NAMED).map(|on| format!("`{}`", on.label())).collect::<Vec<_>>().join(", ")
            )));
        }
    }
    dependencies.retain(|_, on| !on.is_empty());
    if dependencies.values().map(BTreeSet::len).sum::<usize>() > MAX_EDGES {
        return Err(config_error(format!(
            "`depends_on` has more than {MAX_EDGES} dependencies between projects that are planned together, with those of their \
             dependencies; plan fewer of them at once"
        )));
    }
    Ok(())
}

/// Returns the projects in a directory that a unit depends on: those in its own workspace, otherwise all.
fn meant<'a>(there: &[&'a ProjectId], unit: &ProjectId) -> Vec<&'a ProjectId> {
    let same: Vec<&ProjectId> = there.iter().copied().filter(|other| other.workspace == unit.workspace).collect();
    let meant = if same.is_empty() { there.to_vec() } else { same };
    meant.into_iter().filter(|other| *other != unit).collect()
}

/// Returns remarks on dependencies that are unknown without running Terragrunt, each once.
pub(super) fn remarks(graph: &InputGraph<'_>, units: &BTreeMap<ProjectId, Dependencies>) -> Vec<String> {
    let unknown: BTreeSet<_> = units.keys().flat_map(|unit| graph.unknown(&unit.dir)).collect();
    let more = unknown.len().saturating_sub(MAX_REMARKS);
    let mut remarks: Vec<String> = unknown
        .iter()
        .take(MAX_REMARKS)
        .map(|unknown| {
            format!(
                "{unknown}. The units that use it are not planned for changes there. They run after the others if it could hide a \
                 dependency, and count as diverged after every move of the base branch."
            )
        })
        .collect();
    if more > 0 {
        let ending = if more == 1 { "" } else { "s" };
        remarks.push(format!("{more} more place{ending} cannot be determined without running Terragrunt."));
    }
    remarks
}

/// Splits a group into layers: each project in the first one after all its dependencies. A unit that may depend on more has a layer of its
/// own, so that no dependency of it is applied beside it.
pub(super) fn layers(
    group: Vec<ProjectConfig>,
    dependencies: &BTreeMap<ProjectId, BTreeSet<ProjectId>>,
    units: &BTreeMap<ProjectId, Dependencies>,
) -> Vec<Vec<ProjectConfig>> {
    let own: BTreeSet<&ProjectId> = group.iter().map(|project| &project.id).collect();
    let before = |id: &ProjectId| -> Vec<&ProjectId> {
        let on = dependencies.get(id).into_iter().flatten();
        on.filter(|on| own.contains(on)).collect()
    };
    let mut waits: Vec<(ProjectId, Vec<&ProjectId>)> =
        group.iter().map(|project| (project.id.clone(), before(&project.id))).collect();
    // A dependent project has more dependencies than each project that it depends on.
    waits.sort_by_key(|(_, on)| on.len());
    let mut layer_of: HashMap<ProjectId, usize> = HashMap::new();
    for (id, on) in waits {
        let layer = on.iter().filter_map(|on| layer_of.get(*on)).max().map_or(0, |layer| layer + 1);
        layer_of.insert(id, layer);
    }
    let mut layers: BTreeMap<usize, Vec<ProjectConfig>> = BTreeMap::new();
    for project in group {
        layers.entry(layer_of.get(&project.id).copied().unwrap_or_default()).or_default().push(project);
    }
    let may_be_more = |project: &ProjectConfig| units.get(&project.id).is_some_and(|of| of.may_be_more);
    let divided = layers.into_values().flat_map(|layer| {
        let (unclear, clear): (Vec<_>, Vec<_>) = layer.into_iter().partition(may_be_more);
        std::iter::once(clear).chain(unclear.into_iter().map(|project| vec![project]))
    });
    divided.filter(|layer| !layer.is_empty()).collect()
}
