//! Reads Terragrunt's files of a unit without running Terragrunt: the files that it includes and reads, the Terraform files that it runs,
//! and the units that it depends on. Parts that are unknown from the files alone are recorded with their position, for remarks to people.

mod budget;
mod expression;
mod index;
#[cfg(test)]
mod tests;

pub(super) use budget::MAX_EDGES;
use budget::ReadingBudget;
pub(super) use index::UnitIndex;

use super::Tree;
use crate::config::paths::{join, parent};
use expression::{ParsedFiles, UNIT_FILE, UnitReader, UnitScope, Value};
use hcl::edit::Span;
use hcl::edit::expr::FuncCall;
use hcl::edit::structure::{Attribute, Body};
use hcl::edit::visit::{Visit, visit_func_call};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

/// Most files that one unit includes, directly or not.
const MAX_INCLUDES: usize = 50;
/// Most unknown parts that are recorded of one unit.
const MAX_UNKNOWN: usize = 20;
/// Functions whose first argument is a file that they read.
const READS_FILE: [&str; 11] = [
    "read_terragrunt_config",
    "read_tfvars_file",
    "sops_decrypt_file",
    "mark_as_read",
    "file",
    "filebase64",
    "filemd5",
    "filesha1",
    "filesha256",
    "filesha512",
    "templatefile",
];

/// Inputs of one unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Unit {
    /// Files that it includes and reads, in and outside of its directory.
    pub(super) files: BTreeSet<String>,
    /// The directory of its Terraform files, if that is another one of this repository.
    pub(super) source: Option<String>,
    /// True if it or a file that it includes names a source, in this repository or elsewhere.
    pub(super) has_source: bool,
    /// Directories of the units that it depends on directly.
    pub(super) dependencies: BTreeSet<String>,
    /// Files that it includes.
    pub(super) includes: BTreeSet<String>,
    /// Unknown parts.
    pub(super) unknown: Vec<Unknown>,
}

impl Unit {
    /// Returns true if it may have unknown dependencies.
    pub(super) fn may_depend_on_more(&self) -> bool {
        self.unknown.iter().any(|unknown| unknown.hides == Hidden::Dependency)
    }
}

/// A part of a unit that is unknown without running Terragrunt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unknown {
    /// The file.
    file: String,
    /// Line in it, from 1.
    line: usize,
    /// Description of the part.
    what: String,
    hides: Hidden,
}

/// Content that an unknown part may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hidden {
    NoDependency,
    /// It may name units that this one depends on.
    Dependency,
}

impl fmt::Display for Unknown {
    /// Writes `live/app/terragrunt.hcl`, line 3: …
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`, line {}: {}", self.file.replace('`', "'"), self.line, self.what)
    }
}

/// Returns true if a directory has Terragrunt's file.
pub(super) fn has_file(tree: &dyn Tree, dir: &str) -> bool {
    tree.files(dir).iter().any(|name| name == UNIT_FILE)
}

/// Reads the unit of a directory that has Terragrunt's file.
pub(super) fn read(tree: &dyn Tree, dir: &str) -> Unit {
    read_with(tree, dir, &ParsedFiles::default(), &ReadingBudget::default())
}

fn read_with(tree: &dyn Tree, dir: &str, parsed: &ParsedFiles, budget: &ReadingBudget) -> Unit {
    let reader = UnitReader::new(tree, parsed, budget);
    let (mut unit, read) = (Unit::default(), RefCell::default());
    let mut waiting = vec![(join(dir, UNIT_FILE), Vec::new())];
    let mut seen = BTreeSet::new();
    while let Some((file, includes)) = waiting.pop() {
        if budget.is_spent() || seen.len() >= MAX_INCLUDES {
            break;
        }
        if !seen.insert(file.clone()) {
            continue;
        }
        let scope = UnitScope { reader: &reader, file: file.clone(), unit: dir.to_owned(), includes, read: &read };
        let mut one = OneFile { unit: &mut unit, scope, text: String::new() };
        let Some(body) = one.parse() else { continue };
        for (label, included) in one.includes(&body) {
            one.unit.includes.insert(included.clone());
            one.scope.includes.push((label, parent(&included).to_owned()));
            let mut of_included = one.scope.includes.clone();
            // Functions without a label refer to the file that calls them.
            of_included.push((String::new(), parent(&included).to_owned()));
            waiting.push((included, of_included));
        }
        one.read(&body);
    }
    unit.files.extend(seen);
    unit.files.extend(read.into_inner());
    let names = unit.files.iter().chain(&unit.dependencies).chain(&unit.includes);
    if !budget.make(names.map(String::len).sum(), &join(dir, UNIT_FILE)) {
        return Unit::default();
    }
    unit.unknown.sort();
    unit.unknown.dedup();
    unit
}

/// One of the files of a unit.
struct OneFile<'u, 'a> {
    unit: &'u mut Unit,
    scope: UnitScope<'a>,
    text: String,
}

impl OneFile<'_, '_> {
    fn parse(&mut self) -> Option<Rc<Body>> {
        let file = self.scope.file.clone();
        let Some(text) = self.scope.reader.text(&file) else {
            self.unknown_at(
                |_| 1,
                "the file is not there, not text, or larger than 256 KiB".to_owned(),
                Hidden::Dependency,
            );
            return None;
        };
        self.text = text;
        let reader = self.scope.reader;
        let is_own = file == join(&self.scope.unit, UNIT_FILE);
        let parsed = if is_own { reader.parse_own(&file, &self.text) } else { reader.parse(&file, &self.text) };
        match parsed {
            Ok(body) => Some(body),
            Err(line) => {
                self.unknown_at(|_| line, "it is not valid HCL".to_owned(), Hidden::Dependency);
                None
            }
        }
    }

    fn unknown(&mut self, at: &impl Span, what: String, hides: Hidden) {
        self.unknown_at(|this| this.line(at), what, hides);
    }

    /// Records an unknown part. The line is computed only for a recorded one, as that reads the file up to there.
    fn unknown_at(&mut self, line: impl FnOnce(&Self) -> usize, what: String, hides: Hidden) {
        if self.unit.unknown.len() < MAX_UNKNOWN {
            let line = line(self);
            self.unit.unknown.push(Unknown { file: self.scope.file.clone(), line, what, hides });
        }
    }

    fn line(&self, at: &impl Span) -> usize {
        let start = at.span().map_or(0, |span| span.start);
        1 + self.text.bytes().take(start).filter(|byte| *byte == b'\n').count()
    }

    /// Returns the files that its `include` blocks name, with their labels.
    fn includes(&mut self, body: &Body) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for block in body.get_blocks("include") {
            let label = block.labels.first().map(|label| label.as_str().to_owned()).unwrap_or_default();
            let Some(path) = block.body.get_attribute("path") else { continue };
            match self.scope.text(&path.value).map(|text| self.scope.place(&text)) {
                Some(Ok(file)) => found.push((label, file)),
                Some(Err(())) => self.unknown(&path.key, out_of_repository("path"), Hidden::Dependency),
                None => self.unknown(&path.key, not_told("path", "include"), Hidden::Dependency),
            }
        }
        found
    }

    /// Reads everything besides its includes.
    fn read(&mut self, body: &Body) {
        for block in body.get_blocks("dependency") {
            let is_off = block.body.get_attribute("enabled").and_then(|enabled| enabled.value.as_bool()) == Some(false);
            if let Some(path) = block.body.get_attribute("config_path").filter(|_| !is_off) {
                let value = self.scope.value(&path.value);
                self.dependency(path, value, "dependency");
            }
        }
        for block in body.get_blocks("dependencies") {
            let Some(paths) = block.body.get_attribute("paths") else { continue };
            match self.scope.value(&paths.value) {
                Some(Value::List(all)) => {
                    all.into_iter().for_each(|one| self.dependency(paths, Some(one), "dependencies"))
                }
                _ => self.dependency(paths, None, "dependencies"),
            }
        }
        for block in body.get_blocks("terraform") {
            if let Some(source) = block.body.get_attribute("source") {
                self.source(source);
            }
            for arguments in block.body.get_blocks("extra_arguments") {
                for key in ["required_var_files", "optional_var_files"] {
                    let files = arguments.body.get_attribute(key);
                    if let Some(Value::List(files)) = files.and_then(|files| self.scope.value(&files.value)) {
                        let texts = files.into_iter().filter_map(|file| match file {
                            Value::Text(text) => self.scope.place(&text).ok(),
                            _ => None,
                        });
                        self.unit.files.extend(texts);
                    }
                }
            }
        }
        let mut calls = FileCalls::default();
        calls.visit_body(body);
        for call in calls.0 {
            self.file_of(&call);
        }
    }

    fn dependency(&mut self, at: &Attribute, value: Option<Value>, block: &str) {
        let key = at.key.as_str();
        let place = match value {
            Some(Value::Text(text)) => self.scope.place(&text),
            _ => return self.unknown(&at.key, not_told(key, block), Hidden::Dependency),
        };
        match place {
            Ok(dir) => {
                let dir = dir.strip_suffix(UNIT_FILE).map_or(dir.as_str(), |dir| dir.trim_end_matches('/'));
                let dir = if dir.is_empty() { "." } else { dir };
                if dir != self.scope.unit {
                    self.unit.dependencies.insert(dir.to_owned());
                } else {
                    self.unknown(&at.key, format!("`{key}` names the unit itself"), Hidden::NoDependency);
                }
            }
            Err(()) => self.unknown(&at.key, out_of_repository(key), Hidden::NoDependency),
        }
    }

    /// Reads the directory of its Terraform files.
    fn source(&mut self, at: &Attribute) {
        self.unit.has_source = true;
        let Some(text) = self.scope.text(&at.value) else {
            return self.unknown(&at.key, not_told("source", "terraform"), Hidden::NoDependency);
        };
        let is_local = text.starts_with(['.', '/']);
        if let Some(dir) = is_local.then(|| self.scope.place(&text).ok()).flatten() {
            self.unit.source.get_or_insert(dir);
        }
    }

    /// Adds the file that a call reads.
    fn file_of(&mut self, call: &FuncCall) {
        let Some(argument) = call.args.get(0) else { return };
        match self.scope.text(argument).map(|text| self.scope.place(&text)) {
            Some(Ok(file)) => {
                self.unit.files.insert(file);
            }
            Some(Err(())) => {}
            None => {
                let what =
                    format!("which file `{}` reads cannot be told without running Terragrunt", call.name.name.as_str());
                self.unknown(call, what, Hidden::NoDependency);
            }
        }
    }
}

fn not_told(key: &str, block: &str) -> String {
    format!("`{key}` of `{block}` cannot be told without running Terragrunt")
}

fn out_of_repository(key: &str) -> String {
    format!("`{key}` leads out of the repository")
}

/// Calls of functions that read a file.
#[derive(Default)]
struct FileCalls(Vec<FuncCall>);

impl Visit for FileCalls {
    fn visit_func_call(&mut self, call: &FuncCall) {
        if READS_FILE.contains(&call.name.name.as_str()) {
            self.0.push(call.clone());
        }
        visit_func_call(self, call);
    }
}

/// The units of a repository, each read once, on first use.
#[derive(Default)]
pub(super) struct Units {
    known: RefCell<BTreeMap<String, Option<Rc<Unit>>>>,
    parsed: ParsedFiles,
    pub(super) budget: ReadingBudget,
    /// Units from which no cycle can be reached.
    without_circle: RefCell<BTreeSet<String>>,
}

impl Units {
    /// Returns the contents of the directory's Terragrunt file; absent if there is none.
    pub(super) fn unit_in(&self, tree: &dyn Tree, dir: &str) -> Option<Rc<Unit>> {
        if let Some(known) = self.known.borrow().get(dir) {
            return known.clone();
        }
        let unit = has_file(tree, dir).then(|| Rc::new(read_with(tree, dir, &self.parsed, &self.budget)));
        self.known.borrow_mut().insert(dir.to_owned(), unit.clone());
        unit
    }

    /// Returns the directories of the units that this one depends on, directly or not, without itself.
    pub(super) fn dependencies(&self, tree: &dyn Tree, dir: &str) -> BTreeSet<String> {
        let (mut found, mut waiting) = (BTreeSet::new(), vec![dir.to_owned()]);
        while let Some(next) = waiting.pop() {
            let Some(unit) = self.unit_in(tree, &next) else { continue };
            for dependency in &unit.dependencies {
                if dependency == dir || found.len() >= MAX_UNITS || found.contains(dependency) {
                    continue;
                }
                if !self.budget.edge(&join(dir, UNIT_FILE)) {
                    return BTreeSet::new();
                }
                if found.insert(dependency.clone()) {
                    waiting.push(dependency.clone());
                }
            }
        }
        found
    }

    /// Returns a cycle of dependencies that begins and ends with this unit or one that it depends on: `a`, `b`, `a`.
    pub(super) fn circle(&self, tree: &dyn Tree, dir: &str) -> Option<Vec<String>> {
        let mut done = self.without_circle.borrow_mut();
        if done.contains(dir) {
            return None;
        }
        let mut on_way = BTreeSet::from([dir.to_owned()]);
        let dependencies =
            |dir: &str| self.unit_in(tree, dir).map(|unit| unit.dependencies.clone()).unwrap_or_default();
        // The path to the present unit, with its dependencies that are left to search.
        let mut way = vec![(dir.to_owned(), dependencies(dir).into_iter())];
        while let Some((here, rest)) = way.last_mut() {
            let Some(next) = rest.next() else {
                on_way.remove(here);
                done.insert(here.clone());
                way.pop();
                continue;
            };
            if on_way.contains(&next)
                && let Some(from) = way.iter().position(|(dir, _)| *dir == next)
            {
                return Some(way.into_iter().skip(from).map(|(dir, _)| dir).chain([next]).collect());
            }
            if !done.contains(&next) && done.len() + way.len() < MAX_UNITS {
                let rest = dependencies(&next).into_iter();
                on_way.insert(next.clone());
                way.push((next, rest));
            }
        }
        None
    }
}

/// Most units of a repository; further ones are ignored.
pub(super) const MAX_UNITS: usize = 5_000;
