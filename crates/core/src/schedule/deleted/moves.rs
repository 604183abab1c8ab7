//! Signs that a deleted directory has moved: its state, or resources of it, may be needed elsewhere.

use super::super::Facts;
use super::super::names;
use super::super::target::clip;
use super::name_of;
use crate::config::ProjectConfig;
use crate::config::paths::{join, parent};
use crate::inputs::{DirectoryCode, StatePlace, code, has_terraform, is_project_file, module_dirs};
use std::collections::BTreeSet;

/// Most directories with code that are compared.
const MAX_DIRS: usize = 10_000;
/// Most bytes of code of changed directories that are compared. Beyond it, every deleted directory is kept.
const MAX_BYTES: usize = 8 << 20;
/// Most bytes of code that are read in all other directories.
const MAX_BYTES_ELSEWHERE: usize = 256 << 20;

/// DirectoryCode beside the deleted directories.
pub(super) struct MoveSearch<'a> {
    head: &'a Facts<'a>,
    base: &'a Facts<'a>,
    /// Directories of the head with code that the pull request changes.
    changed: Vec<ChangedDirectory<'a>>,
    /// States that the directories of the repository name, as the head will have them.
    states: Vec<(String, StatePlace)>,
    /// States that they read.
    reads: Vec<(String, StatePlace)>,
    /// All directories of the base branch.
    dirs: Vec<String>,
    /// Reason to keep every directory: something could not be compared.
    unknown: Option<String>,
}

/// A directory that the pull request changes.
struct ChangedDirectory<'a> {
    dir: &'a str,
    before: DirectoryCode,
    now: DirectoryCode,
}

impl<'a> MoveSearch<'a> {
    pub(super) fn new(head: &'a Facts<'a>, base: &'a Facts<'a>) -> MoveSearch<'a> {
        let files = head.modified.iter().filter(|file| is_project_file(name_of(file)));
        let touched: BTreeSet<&str> = files.map(|file| parent(file)).collect();
        let dirs = base.tree.dirs();
        let mut moves =
            MoveSearch { head, base, changed: Vec::new(), states: Vec::new(), reads: Vec::new(), dirs, unknown: None };
        if moves.dirs.len() + touched.len() > MAX_DIRS {
            moves.unknown = Some(format!("the repository has more than {MAX_DIRS} directories to compare it with"));
            return moves;
        }
        let mut budget = MAX_BYTES;
        for dir in touched.iter().copied().filter(|dir| has_terraform(head.tree, dir)) {
            let now = code(head.tree, dir, &mut budget);
            match now.and_then(|now| Ok((now, code(base.tree, dir, &mut budget)?))) {
                Ok((now, before)) => moves.changed.push(ChangedDirectory { dir, before, now }),
                Err(file) => {
                    moves.unknown = Some(unreadable(&file));
                    return moves;
                }
            }
        }
        moves.read_states();
        moves
    }

    /// Reads the states of all directories: the unchanged ones in the base's tree, which is whole.
    fn read_states(&mut self) {
        let mut budget = MAX_BYTES_ELSEWHERE;
        let is_changed = |dir: &&String| self.changed.iter().any(|changed| changed.dir == dir.as_str());
        for dir in self.dirs.iter().filter(|dir| !is_changed(dir)) {
            match code(self.base.tree, dir, &mut budget) {
                Ok(found) => {
                    self.states.extend(found.states.into_iter().map(|state| (dir.clone(), state)));
                    self.reads.extend(found.reads.into_iter().map(|state| (dir.clone(), state)));
                }
                Err(_) if !may_name_state(self.base, dir) => {}
                Err(file) => {
                    self.unknown = Some(unreadable(&file));
                    return;
                }
            }
        }
        for changed in &self.changed {
            self.states.extend(changed.now.states.iter().map(|state| (changed.dir.to_owned(), state.clone())));
            self.reads.extend(changed.now.reads.iter().map(|state| (changed.dir.to_owned(), state.clone())));
        }
    }

    /// Returns the reason to keep a deleted project with this code; `None` if nothing suggests that it was moved.
    pub(super) fn reason(&self, project: &ProjectConfig, own: &DirectoryCode) -> Option<String> {
        let (id, dir) = (&project.id, project.id.dir.as_str());
        let mut listed = names::listed(self.head);
        if let Some(other) = listed.find(|other| id.name.is_some() && other.id.name == id.name && other.id.dir != dir) {
            return Some(format!("its name is that of `{}` now, so the state may be the same", clip(&other.id.dir)));
        }
        if let Some(unknown) = &self.unknown {
            return Some(unknown.clone());
        }
        let is_own = |state: &StatePlace| own.states.iter().any(|one| one.names_state() && one.may_be(state));
        if let Some((other, _)) = self.states.iter().find(|(other, state)| other != dir && is_own(state)) {
            return Some(format!("`{}` has the same backend, so its state may be the same", clip(other)));
        }
        if let Some((other, _)) = self.reads.iter().find(|(other, state)| other != dir && is_own(state)) {
            return Some(format!("`{}` reads its state", clip(other)));
        }
        for changed in &self.changed {
            let other = clip(changed.dir);
            let is_taken = |state: &StatePlace| own.states.iter().any(|one| one.may_be(state));
            if changed.now.states.iter().any(|state| is_taken(state) && !changed.before.states.contains(state)) {
                return Some(format!("`{other}` has the same backend now, so its state may be the same"));
            }
            let mut gained = changed.now.addresses.difference(&changed.before.addresses);
            if let Some(address) = gained.find(|address| own.addresses.contains(*address)) {
                return Some(format!("it may have moved to `{other}`, which has `{}` now", clip(address)));
            }
            if changed.now.imports > changed.before.imports {
                return Some(format!("its resources may have moved to `{other}`, which has new `import` blocks"));
            }
        }
        let mut listed = names::listed(self.base);
        if listed.any(|listed| listed.id == *id) {
            return None;
        }
        let which = self.base.options.default_distribution;
        let user =
            self.dirs.iter().find(|user| module_dirs(self.base.tree, user, which).iter().any(|used| used == dir));
        user.map(|user| format!("`{}` uses it as a module on the base branch", clip(user)))
    }
}

/// Returns true if a directory whose files cannot all be parsed may have a `backend` or `cloud` block.
fn may_name_state(facts: &Facts<'_>, dir: &str) -> bool {
    let names = facts.tree.names(dir).unwrap_or_default().into_iter().filter(|name| is_project_file(name));
    let mut texts = names.map(|name| facts.tree.read(&join(dir, &name)));
    texts.any(|text| text.is_none_or(|text| text.contains("backend") || text.contains("cloud")))
}

/// Returns the reason to keep a directory if this file cannot be compared.
pub(super) fn unreadable(file: &str) -> String {
    format!("`{}` cannot be compared with it, as it is too large or no valid code", clip(file))
}

/// Returns a Terraform file of a directory of the base branch that the pull request does not delete.
pub(super) fn left_file(dir: &str, head: &Facts<'_>, base: &Facts<'_>) -> Option<String> {
    let files = base.tree.names(dir).unwrap_or_default().into_iter().filter(|name| is_project_file(name));
    let mut paths = files.map(|name| join(dir, &name));
    let deleted: BTreeSet<&str> = head.modified.iter().map(String::as_str).collect();
    paths.find(|path| !deleted.contains(path.as_str()))
}
