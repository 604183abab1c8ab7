//! Calls of the functions that read files, in the configuration of a directory. Nothing is run. A path is known as far as it is literal,
//! begins with `path.module` or `path.root`, or is a local of that kind.

use super::super::Tree;
use super::super::hcl::{configuration_files, is_json, text_of};
use super::{FileReads, IfMissing, from};
use crate::config::paths::join;
use crate::domain::Distribution;
use hcl::edit::expr::{Expression, FuncCall, Traversal, TraversalOperator};
use hcl::edit::parser::{parse_body, parse_template};
use hcl::edit::structure::Body;
use hcl::edit::template::{Element, Template};
use hcl::edit::visit::{Visit, visit_func_call};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Functions whose first argument is a file that they read.
const READS_FILE: [&str; 10] = [
    "file",
    "fileexists",
    "filebase64",
    "filemd5",
    "filesha1",
    "filesha256",
    "filesha512",
    "filebase64sha256",
    "filebase64sha512",
    "templatefile",
];
/// Function that reads the names of files below a directory.
const FILESET: &str = "fileset";
/// Functions that hide that a file is missing.
const HIDES_ERRORS: [&str; 2] = ["try", "can"];
/// Stands for `path.module` in a text; no path of a repository begins with it.
const MODULE: &str = "\u{f8f0}";
/// Stands for `path.root` and `path.cwd`.
const ROOT: &str = "\u{f8f1}";
/// Deepest chain of locals.
const MAX_DEPTH: usize = 8;
/// Longest path that is computed, in bytes.
const MAX_TEXT: usize = 4096;
/// Most calls of one directory; one with more may read anything.
const MAX_CALLS: usize = 2_000;
/// Most expressions that are evaluated for the paths of one directory. Locals can be used again and again.
const MAX_STEPS: usize = 50_000;

/// A path in code, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CodePath {
    text: String,
    is_complete: bool,
}

/// One call of such a function.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReadCall {
    path: CodePath,
    /// The pattern of `fileset`.
    pattern: Option<CodePath>,
    is_template: bool,
    if_missing: IfMissing,
}

/// The calls of each directory, as one distribution reads it; every directory is read once.
pub(in super::super) struct ReadCalls {
    which: Distribution,
    /// Absent if a file cannot be read or parsed.
    known: BTreeMap<String, Option<Rc<Vec<ReadCall>>>>,
}

impl ReadCalls {
    pub(in super::super) fn new(which: Distribution) -> ReadCalls {
        ReadCalls { which, known: BTreeMap::new() }
    }

    /// Adds the files that the code of a module reads when `root` is planned.
    pub(super) fn add(&mut self, tree: &dyn Tree, module: &str, root: &str, reads: &mut FileReads) {
        let Some(calls) = self.calls_in(tree, module) else { return reads.anything(IfMissing::Passes) };
        for call in calls.iter() {
            add(tree, call, module, root, reads);
        }
    }

    fn calls_in(&mut self, tree: &dyn Tree, dir: &str) -> Option<Rc<Vec<ReadCall>>> {
        let which = self.which;
        self.known.entry(dir.to_owned()).or_insert_with(|| calls_of(tree, dir, which).map(Rc::new)).clone()
    }
}

fn add(tree: &dyn Tree, call: &ReadCall, module: &str, root: &str, reads: &mut FileReads) {
    let Some((base, path)) = placed(&call.path.text, module, root) else { return reads.anything(call.if_missing) };
    if path.starts_with(['/', '~']) {
        return;
    }
    if !call.path.is_complete {
        return match (path.rsplit_once('/'), path.is_empty()) {
            (Some((dir, _)), _) => reads.guess(tree, &from(base, dir), call.if_missing),
            (None, false) => reads.guess(tree, base, call.if_missing),
            (None, true) => reads.anything(call.if_missing),
        };
    }
    let path = from(base, path);
    match &call.pattern {
        None => {
            reads.file(tree, &path);
            if call.is_template {
                template(tree, &path, root, reads);
            }
        }
        Some(pattern) if ["..", MODULE, ROOT].iter().any(|part| pattern.text.contains(part)) => {
            reads.anything(IfMissing::Passes)
        }
        Some(pattern) if pattern.is_complete => reads.below(tree, &path, Some(pattern.text.clone())),
        Some(_) => reads.guess(tree, &path, IfMissing::Passes),
    }
}

/// Splits a path into the directory that it begins at, and the rest.
fn placed<'a>(text: &'a str, module: &'a str, root: &'a str) -> Option<(&'a str, &'a str)> {
    let (base, rest) = match (text.strip_prefix(MODULE), text.strip_prefix(ROOT)) {
        (Some(rest), _) => (module, rest),
        (_, Some(rest)) => (root, rest),
        _ => return (!text.contains(MODULE) && !text.contains(ROOT)).then_some((root, text)),
    };
    if rest.contains(MODULE) || rest.contains(ROOT) {
        return None;
    }
    match rest.strip_prefix('/') {
        Some(path) => Some((base, path.trim_start_matches('/'))),
        None => rest.is_empty().then_some((base, ".")),
    }
}

/// Adds the files that a template reads: it can call functions as well. Its paths are relative to the root module.
fn template(tree: &dyn Tree, path: &str, root: &str, reads: &mut FileReads) {
    let Some(text) = text_of(tree, path).filter(|text| mentions(text)) else { return };
    let Ok(parsed) = parse_template(&text) else { return reads.anything(IfMissing::Passes) };
    let paths = CodePaths::default();
    let mut found = FoundCalls::new(&paths);
    found.visit_template(&parsed);
    let Some(calls) = found.read() else { return reads.anything(IfMissing::Passes) };
    for call in calls {
        // A template does not call `templatefile`.
        add(tree, &ReadCall { is_template: false, ..call }, root, root, reads);
    }
}

/// Returns true if a text may call one of the functions: all of their names include this word.
fn mentions(text: &str) -> bool {
    text.contains("file")
}

/// Returns the calls of a directory; absent if a file of it cannot be read or parsed.
fn calls_of(tree: &dyn Tree, dir: &str, which: Distribution) -> Option<Vec<ReadCall>> {
    let (mut bodies, mut json) = (Vec::new(), Vec::new());
    for name in configuration_files(tree, dir, which) {
        let text = text_of(tree, &join(dir, &name))?;
        match is_json(&name) {
            // Strings of JSON can be written with escapes.
            true if mentions(&text) || text.contains("\\u") => json.push(serde_json::from_str(&text).ok()?),
            // A file without a call may have locals for the calls of another.
            false if mentions(&text) || text.contains("locals") => match parse_body(&text) {
                Ok(body) => bodies.push(body),
                Err(_) if mentions(&text) => return None,
                Err(_) => {}
            },
            _ => {}
        }
    }
    let paths = CodePaths::new(&bodies);
    let mut found = FoundCalls::new(&paths);
    bodies.iter().for_each(|body| found.visit_body(body));
    json.iter().try_for_each(|value| found.json(value))?;
    found.read()
}

/// Collector of calls.
struct FoundCalls<'p> {
    paths: &'p CodePaths<'p>,
    found: Vec<ReadCall>,
    /// Number of enclosing calls that hide errors.
    hiding: usize,
}

impl Visit for FoundCalls<'_> {
    fn visit_func_call(&mut self, call: &FuncCall) {
        let name = name_of(call).unwrap_or_default();
        let is_read = name == FILESET || READS_FILE.contains(&name);
        if is_read && self.found.len() <= MAX_CALLS {
            let argument = |at: usize| call.args.get(at).map_or_else(CodePath::unknown, |one| self.paths.path(one, 0));
            let is_hidden = self.hiding > 0 || name == FILESET || name == "fileexists";
            self.found.push(ReadCall {
                path: argument(0),
                pattern: (name == FILESET).then(|| argument(1)),
                is_template: name == "templatefile",
                if_missing: if is_hidden { IfMissing::Passes } else { IfMissing::Fails },
            });
        }
        let hides = usize::from(HIDES_ERRORS.contains(&name));
        self.hiding += hides;
        visit_func_call(self, call);
        self.hiding -= hides;
    }
}

/// Returns the name of a function of Terraform's own.
fn name_of(call: &FuncCall) -> Option<&str> {
    let namespace: Vec<&str> = call.name.namespace.iter().map(|one| one.as_str()).collect();
    matches!(namespace.as_slice(), [] | ["core"]).then(|| call.name.name.as_str())
}

impl<'p> FoundCalls<'p> {
    fn new(paths: &'p CodePaths<'p>) -> FoundCalls<'p> {
        FoundCalls { paths, found: Vec::new(), hiding: 0 }
    }

    /// Visits all strings, which are templates.
    fn json(&mut self, value: &Value) -> Option<()> {
        match value {
            Value::String(text) if mentions(text) && text.contains(['$', '%']) => {
                self.visit_template(&parse_template(text).ok()?);
            }
            Value::Array(all) => all.iter().try_for_each(|one| self.json(one))?,
            Value::Object(all) => all.values().try_for_each(|one| self.json(one))?,
            _ => {}
        }
        Some(())
    }

    /// Returns all calls; absent if there are too many.
    fn read(self) -> Option<Vec<ReadCall>> {
        (self.found.len() <= MAX_CALLS).then_some(self.found)
    }
}

impl CodePath {
    fn unknown() -> CodePath {
        CodePath { text: String::new(), is_complete: false }
    }

    fn complete(text: &str) -> CodePath {
        CodePath { text: text.to_owned(), is_complete: true }
    }
}

/// Locals of one directory, to resolve paths with.
#[derive(Default)]
struct CodePaths<'b> {
    locals: BTreeMap<&'b str, &'b Expression>,
    steps: Cell<usize>,
}

impl<'b> CodePaths<'b> {
    fn new(bodies: &'b [Body]) -> CodePaths<'b> {
        let blocks = bodies.iter().flat_map(|body| body.get_blocks("locals"));
        let locals = blocks.flat_map(|block| block.body.attributes()).map(|one| (one.key.as_str(), &one.value));
        CodePaths { locals: locals.collect(), steps: Cell::new(0) }
    }

    /// Returns the path that an expression evaluates to, as far as it is known.
    fn path(&self, expression: &Expression, depth: usize) -> CodePath {
        self.steps.set(self.steps.get() + 1);
        if depth > MAX_DEPTH || self.steps.get() > MAX_STEPS {
            return CodePath::unknown();
        }
        match expression {
            Expression::String(text) if text.value().len() <= MAX_TEXT => CodePath::complete(text.value()),
            Expression::StringTemplate(parts) => self.joined(parts, depth),
            Expression::HeredocTemplate(heredoc) => self.joined(&heredoc.template, depth),
            Expression::Parenthesis(inner) => self.path(inner.inner(), depth + 1),
            Expression::FuncCall(call) if name_of(call) == Some("abspath") => {
                call.args.get(0).map_or_else(CodePath::unknown, |argument| self.path(argument, depth + 1))
            }
            Expression::Traversal(traversal) => match two_part_path(traversal) {
                Some(("path", "module")) => CodePath::complete(MODULE),
                Some(("path", "root" | "cwd")) => CodePath::complete(ROOT),
                Some(("local", name)) => {
                    self.locals.get(name).map_or_else(CodePath::unknown, |value| self.path(value, depth + 1))
                }
                _ => CodePath::unknown(),
            },
            _ => CodePath::unknown(),
        }
    }

    fn joined(&self, template: &Template, depth: usize) -> CodePath {
        let mut text = String::new();
        for element in template {
            let part = match element {
                Element::Literal(literal) => CodePath::complete(literal.value()),
                Element::Interpolation(interpolation) => self.path(&interpolation.expr, depth + 1),
                Element::Directive(_) => CodePath::unknown(),
            };
            if text.len() + part.text.len() > MAX_TEXT {
                return CodePath { text, is_complete: false };
            }
            text.push_str(&part.text);
            if !part.is_complete {
                return CodePath { text, is_complete: false };
            }
        }
        CodePath { text, is_complete: true }
    }
}

/// Returns `a` and `b` of `a.b`, but of nothing longer.
fn two_part_path(traversal: &Traversal) -> Option<(&str, &str)> {
    let Expression::Variable(name) = &traversal.expr else { return None };
    match traversal.operators.as_slice() {
        [operator] => match operator.value() {
            TraversalOperator::GetAttr(attribute) => Some((name.as_str(), attribute.as_str())),
            _ => None,
        },
        _ => None,
    }
}
