//! Evaluates Terragrunt's expressions as far as files alone determine them: paths, locals, and values of files that are read. Nothing is
//! run, and the environment is ignored. Values that need more are reported as unknown.

use super::super::Tree;
use super::super::hcl::text_of;
use super::budget::ReadingBudget;
use crate::config::paths::{clean, join, parent};
use hcl::edit::expr::{Expression, FuncCall, Traversal, TraversalOperator};
use hcl::edit::structure::Body;
use hcl::edit::template::{Element, Template};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Path of the repository in expressions. Its real path is not known here, and no result depends on it.
const ROOT: &str = "/\u{f8ff}repository";
/// Most expressions that are evaluated for one unit: locals can refer to each other without end.
const MAX_STEPS: u32 = 20_000;
/// Deepest chain of locals and files.
const MAX_DEPTH: u32 = 40;
/// Largest file that is read, in bytes.
const MAX_FILE: usize = 256 << 10;
/// Longest path that is computed, in bytes.
const MAX_TEXT: usize = 4096;
/// Name of Terragrunt's own file.
pub(super) const UNIT_FILE: &str = "terragrunt.hcl";

/// A value of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// Result of `read_terragrunt_config` for this file.
    Config(String),
    /// The locals of this file.
    Locals(String),
}

impl Value {
    fn text(self) -> Option<String> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Files that several units include or read, parsed once; absent ones cannot be parsed.
pub(super) type ParsedFiles = RefCell<BTreeMap<String, Option<Rc<Body>>>>;

/// Inputs for reading one unit, and its remaining budget.
pub(super) struct UnitReader<'a> {
    pub(super) tree: &'a dyn Tree,
    shared: &'a ParsedFiles,
    pub(super) budget: &'a ReadingBudget,
    /// The unit's own file, which no other unit needs.
    own: RefCell<Option<(String, Rc<Body>)>>,
    steps: Cell<u32>,
    depth: Cell<u32>,
}

impl<'a> UnitReader<'a> {
    pub(super) fn new(tree: &'a dyn Tree, shared: &'a ParsedFiles, budget: &'a ReadingBudget) -> UnitReader<'a> {
        UnitReader { tree, shared, budget, own: RefCell::default(), steps: Cell::new(0), depth: Cell::new(0) }
    }

    /// Returns the text of a file that is not too large.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        text_of(self.tree, path).filter(|text| text.len() <= MAX_FILE && self.budget.read(text.len(), path))
    }

    /// Parses a text of a file that units may share, unless it was parsed before. The error is the line.
    pub(super) fn parse(&self, path: &str, text: &str) -> Result<Rc<Body>, usize> {
        if let Some(Some(known)) = self.shared.borrow().get(path) {
            return Ok(Rc::clone(known));
        }
        if !self.budget.parse(text.len(), path) {
            return Err(1);
        }
        let parsed = parsed(text);
        self.shared.borrow_mut().insert(path.to_owned(), parsed.clone().ok());
        parsed
    }

    /// Does the same for the unit's own file, which does not count towards the budget.
    pub(super) fn parse_own(&self, path: &str, text: &str) -> Result<Rc<Body>, usize> {
        if let Some(Some(known)) = self.shared.borrow().get(path) {
            return Ok(Rc::clone(known));
        }
        let parsed = parsed(text);
        match &parsed {
            Ok(body) => *self.own.borrow_mut() = Some((path.to_owned(), Rc::clone(body))),
            Err(_) => {
                self.shared.borrow_mut().insert(path.to_owned(), None);
            }
        }
        parsed
    }

    fn body(&self, path: &str) -> Option<Rc<Body>> {
        if let Some((_, own)) = self.own.borrow().as_ref().filter(|(own, _)| own == path) {
            return Some(Rc::clone(own));
        }
        if let Some(known) = self.shared.borrow().get(path) {
            return known.clone();
        }
        self.parse(path, &self.text(path)?).ok()
    }
}

fn parsed(text: &str) -> Result<Rc<Body>, usize> {
    hcl::edit::parser::parse_body(text).map(Rc::new).map_err(|error| error.location().line())
}

/// Context of an expression.
pub(super) struct UnitScope<'a> {
    pub(super) reader: &'a UnitReader<'a>,
    /// The file, for its locals.
    pub(super) file: String,
    /// Directory of the unit: functions in an included file refer to the unit that includes it.
    pub(super) unit: String,
    /// Directories of included files, by label; the last one without a label is the file's own.
    pub(super) includes: Vec<(String, String)>,
    /// Files that were read during evaluation.
    pub(super) read: &'a RefCell<BTreeSet<String>>,
}

impl UnitScope<'_> {
    /// Returns the value; absent if it is unknown.
    pub(super) fn value(&self, expression: &Expression) -> Option<Value> {
        let reader = self.reader;
        if reader.steps.get() >= MAX_STEPS || reader.depth.get() >= MAX_DEPTH || !reader.budget.step(&self.file) {
            return None;
        }
        reader.steps.set(reader.steps.get() + 1);
        reader.depth.set(reader.depth.get() + 1);
        let value = self.any(expression);
        reader.depth.set(reader.depth.get() - 1);
        let is_small = match &value {
            Some(Value::Text(text)) => text.len() <= MAX_TEXT && reader.budget.make(text.len(), &self.file),
            _ => true,
        };
        value.filter(|_| is_small)
    }

    /// Returns the value as a text.
    pub(super) fn text(&self, expression: &Expression) -> Option<String> {
        self.value(expression)?.text()
    }

    /// Returns a path relative to the repository's root; `Err` if it leads out of the repository.
    pub(super) fn place(&self, path: &str) -> Result<String, ()> {
        let place = match path.strip_prefix('/') {
            None => join(&self.unit, path),
            Some(_) => {
                let cleaned = clean(path);
                let below = cleaned.strip_prefix(ROOT).filter(|rest| rest.is_empty() || rest.starts_with('/'));
                clean(below.ok_or(())?.trim_start_matches('/'))
            }
        };
        if place == ".." || place.starts_with("../") {
            return Err(());
        }
        let real = self.reader.tree.resolve(&place).ok_or(())?;
        self.read.borrow_mut().extend(real.links);
        Ok(real.path)
    }

    fn any(&self, expression: &Expression) -> Option<Value> {
        match expression {
            Expression::String(text) => (text.value().len() <= MAX_TEXT).then(|| Value::Text(text.value().clone())),
            Expression::Number(number) => Some(Value::Text(number.value().to_string())),
            Expression::StringTemplate(template) => self.template(template),
            Expression::HeredocTemplate(heredoc) => self.template(&heredoc.template),
            Expression::Parenthesis(inner) => self.value(inner.inner()),
            Expression::Array(array) => array.iter().map(|one| self.value(one)).collect::<Option<_>>().map(Value::List),
            Expression::FuncCall(call) => self.call(call),
            Expression::Traversal(traversal) => self.traversal(traversal),
            _ => None,
        }
    }

    fn template(&self, template: &Template) -> Option<Value> {
        let mut text = String::new();
        for element in template {
            match element {
                Element::Literal(literal) if literal.len() > MAX_TEXT => return None,
                Element::Literal(literal) => text.push_str(literal),
                Element::Interpolation(interpolation) => text.push_str(&self.text(&interpolation.expr)?),
                Element::Directive(_) => return None,
            }
            if text.len() > MAX_TEXT {
                return None;
            }
        }
        Some(Value::Text(text))
    }

    /// Evaluates `local.x`, and `local.x.locals.y` where `x` is another file.
    fn traversal(&self, traversal: &Traversal) -> Option<Value> {
        let mut value = match &traversal.expr {
            Expression::Variable(name) if name.as_str() == "local" => Value::Locals(self.file.clone()),
            other => self.value(other)?,
        };
        for operator in &traversal.operators {
            let TraversalOperator::GetAttr(name) = operator.value() else { return None };
            value = match value {
                Value::Config(file) if name.as_str() == "locals" => Value::Locals(file),
                Value::Locals(file) => self.local(&file, name.as_str())?,
                _ => return None,
            };
        }
        Some(value)
    }

    fn local(&self, file: &str, name: &str) -> Option<Value> {
        let body = self.reader.body(file)?;
        let attribute = body.get_blocks("locals").find_map(|block| block.body.get_attribute(name))?;
        if file == self.file {
            return self.value(&attribute.value);
        }
        // Functions in a file that is read refer to that file.
        let scope = UnitScope {
            reader: self.reader,
            file: file.to_owned(),
            unit: parent(file).to_owned(),
            includes: Vec::new(),
            read: self.read,
        };
        scope.value(&attribute.value)
    }

    fn call(&self, call: &FuncCall) -> Option<Value> {
        if call.name.is_namespaced() {
            return None;
        }
        let argument = |at: usize| call.args.get(at).and_then(|argument| self.text(argument));
        let text = match call.name.name.as_str() {
            "find_in_parent_folders" => self.in_parents(call)?,
            "get_terragrunt_dir" | "get_original_terragrunt_dir" => absolute(&self.unit),
            "get_parent_terragrunt_dir" => absolute(self.included(call)?),
            "path_relative_to_include" => relative(self.included(call)?, &self.unit),
            "path_relative_from_include" => relative(&self.unit, self.included(call)?),
            "get_repo_root" => ROOT.to_owned(),
            "get_path_to_repo_root" => relative(&self.unit, "."),
            "get_path_from_repo_root" => relative(".", &self.unit),
            "dirname" => parent_path(&argument(0)?),
            "basename" => clean(&argument(0)?).rsplit('/').next()?.to_owned(),
            "abspath" => absolute(&self.place(&argument(0)?).ok()?),
            "read_terragrunt_config" => {
                let file = self.place(&argument(0)?).ok()?;
                self.read.borrow_mut().insert(file.clone());
                return Some(Value::Config(file));
            }
            _ => return None,
        };
        (text.len() <= MAX_TEXT).then_some(Value::Text(text))
    }

    /// Returns the directory of the included file that a call names, or of the file that the call is in. Without an include it is the
    /// unit's own.
    fn included(&self, call: &FuncCall) -> Option<&str> {
        let label = match call.args.get(0) {
            Some(argument) => Some(self.text(argument)?),
            None => None,
        };
        match label {
            Some(label) => self.includes.iter().find(|(known, _)| *known == label).map(|(_, dir)| dir.as_str()),
            None => Some(self.includes.last().map_or(self.unit.as_str(), |(_, dir)| dir)),
        }
    }

    /// Returns the first file or directory of this name above the unit, or the fallback.
    fn in_parents(&self, call: &FuncCall) -> Option<String> {
        let name = match call.args.get(0) {
            Some(argument) => self.text(argument)?,
            None => UNIT_FILE.to_owned(),
        };
        let mut dir = self.unit.clone();
        while dir != "." && !name.is_empty() {
            dir = parent(&dir).to_owned();
            let found = join(&dir, &name);
            if found.starts_with("..") {
                break;
            }
            let (above, file) = (parent(&found), found.rsplit('/').next().unwrap_or(&found));
            if self.reader.tree.files(above).iter().any(|known| known == file) || self.reader.tree.is_dir(&found) {
                return Some(absolute(&found));
            }
        }
        call.args.get(1).and_then(|fallback| self.text(fallback))
    }
}

/// Returns a path of the repository as an absolute one.
fn absolute(place: &str) -> String {
    if place == "." { ROOT.to_owned() } else { format!("{ROOT}/{place}") }
}

/// Implements Terraform's `dirname`.
fn parent_path(path: &str) -> String {
    match clean(path).rsplit_once('/') {
        Some(("", _)) => "/".to_owned(),
        Some((dir, _)) => dir.to_owned(),
        None => ".".to_owned(),
    }
}

/// Returns the relative path from one directory of the repository to another.
fn relative(from: &str, to: &str) -> String {
    let parts = |dir: &str| dir.split('/').filter(|part| *part != ".").map(str::to_owned).collect::<Vec<_>>();
    let (from, to) = (parts(from), parts(to));
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let up = from.iter().skip(common).map(|_| "..".to_owned());
    clean(&up.chain(to.into_iter().skip(common)).collect::<Vec<_>>().join("/"))
}
