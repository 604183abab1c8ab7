//! Facts of a directory's code that show in another directory if its resources or its state have moved there.

use super::super::Tree;
use super::super::files::INDICATOR_SUFFIXES;
use super::{blocks, is_json, json_blocks, text_of};
use crate::config::paths::join;
use hcl::{Block, Body};
use serde_json::Value;
use std::collections::BTreeSet;

/// Facts of the files of one directory, whether Terraform or OpenTofu reads them.
#[derive(Debug, Default)]
pub struct DirectoryCode {
    /// `backend` and `cloud` blocks.
    pub states: Vec<StatePlace>,
    /// States that `terraform_remote_state` data sources read.
    pub reads: Vec<StatePlace>,
    /// Addresses of resources and modules, such as `aws_vpc.this` and `module.net`.
    pub addresses: BTreeSet<String>,
    /// Number of `import` blocks.
    pub imports: usize,
}

/// A `backend` or `cloud` block in one form, without literals of one element in lists.
#[derive(Debug, Clone, PartialEq)]
pub struct StatePlace {
    kind: String,
    arguments: Value,
}

/// Data source that reads the outputs of another state.
const REMOTE_STATE: &str = "terraform_remote_state";
/// Arguments of backends that name the state.
const NAMES: [&str; 7] = ["key", "prefix", "path", "address", "workspaces", "schema_name", "secret_suffix"];
/// Arguments that name its place. States in two places are different ones.
const PLACES: [&str; 9] = [
    "bucket",
    "container_name",
    "storage_account_name",
    "organization",
    "hostname",
    "conn_str",
    "endpoint",
    "namespace",
    "table",
];

impl StatePlace {
    /// Returns true if the block names the state. If not, arguments of `init` do, which the code does not show.
    pub fn names_state(&self) -> bool {
        NAMES.iter().any(|name| self.arguments.get(name).is_some())
    }

    /// Returns true if both blocks may be of the same state. The text is compared; no expression is evaluated.
    pub fn may_be(&self, other: &StatePlace) -> bool {
        let (own, others) = (&self.arguments, &other.arguments);
        let is_elsewhere = |place: &&str| own.get(place).zip(others.get(place)).is_some_and(|(one, two)| one != two);
        self.kind == other.kind
            && NAMES.iter().all(|name| own.get(name) == others.get(name))
            && !PLACES.iter().any(is_elsewhere)
    }
}

/// Returns the facts of a directory's files. The error is the path of a file that cannot be read, or is no valid code.
pub fn code(tree: &dyn Tree, dir: &str, budget: &mut usize) -> Result<DirectoryCode, String> {
    let mut found = DirectoryCode::default();
    let names = tree.names(dir).unwrap_or_default();
    for name in names.iter().filter(|name| INDICATOR_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))) {
        let path = join(dir, name);
        let text = text_of(tree, &path).ok_or(path.as_str())?;
        *budget = budget.checked_sub(text.len()).ok_or(path.as_str())?;
        match is_json(name) {
            true => found.add_json(&serde_json::from_str(&text).map_err(|_| path)?),
            false => found.add(&hcl::parse(&text).map_err(|_| path)?),
        }
    }
    Ok(found)
}

impl DirectoryCode {
    fn add(&mut self, body: &Body) {
        let label = |block: &Block, at: usize| block.labels().get(at).map(|label| label.as_str().to_owned());
        self.imports += blocks(body, "import").count();
        self.addresses.extend(blocks(body, "module").filter_map(|block| Some(format!("module.{}", label(block, 0)?))));
        let resources = blocks(body, "resource");
        self.addresses.extend(resources.filter_map(|block| Some(format!("{}.{}", label(block, 0)?, label(block, 1)?))));
        let is_read = |block: &&Block| label(block, 0).as_deref() == Some(REMOTE_STATE);
        for block in blocks(body, "data").filter(is_read) {
            self.reads
                .extend(read_state(&serde_json::to_value(hcl::Value::from(block.body().clone())).unwrap_or_default()));
        }
        for block in blocks(body, "terraform").flat_map(|block| block.body().blocks()) {
            let kind = match block.identifier() {
                "backend" => label(block, 0).unwrap_or_default(),
                "cloud" => "cloud".to_owned(),
                _ => continue,
            };
            let arguments = serde_json::to_value(hcl::Value::from(block.body().clone())).unwrap_or_default();
            self.states.push(StatePlace { kind, arguments: single(arguments) });
        }
    }

    fn add_json(&mut self, file: &Value) {
        self.imports += json_blocks(file, "import").len();
        let modules = json_blocks(file, "module").into_iter().flat_map(names);
        self.addresses.extend(modules.map(|name| format!("module.{name}")));
        for (kind, resources) in json_blocks(file, "resource").into_iter().filter_map(Value::as_object).flatten() {
            let resources = match resources {
                Value::Array(all) => all.iter().collect(),
                one => vec![one],
            };
            self.addresses.extend(resources.into_iter().flat_map(names).map(|name| format!("{kind}.{name}")));
        }
        for data in json_blocks(file, "data") {
            for named in json_blocks(data, REMOTE_STATE).into_iter().filter_map(Value::as_object) {
                self.reads.extend(named.values().filter_map(|block| read_state(&single(block.clone()))));
            }
        }
        for terraform in json_blocks(file, "terraform") {
            for (kind, arguments) in
                json_blocks(terraform, "backend").into_iter().filter_map(Value::as_object).flatten()
            {
                self.states.push(StatePlace { kind: kind.clone(), arguments: single(arguments.clone()) });
            }
            for cloud in json_blocks(terraform, "cloud") {
                self.states.push(StatePlace { kind: "cloud".to_owned(), arguments: single(cloud.clone()) });
            }
        }
    }
}

/// Returns the state that a `terraform_remote_state` reads.
fn read_state(block: &Value) -> Option<StatePlace> {
    let kind = block.get("backend")?.as_str()?.to_owned();
    Some(StatePlace { kind, arguments: single(block.get("config")?.clone()) })
}

/// Returns the keys of a JSON object.
fn names(value: &Value) -> impl Iterator<Item = &String> {
    value.as_object().into_iter().flat_map(|map| map.keys())
}

/// Returns the value with each list of one element replaced by the element: in JSON, a block may be written as such a list.
fn single(value: Value) -> Value {
    match value {
        Value::Array(mut all) if all.len() == 1 => single(all.remove(0)),
        Value::Array(all) => Value::Array(all.into_iter().map(single).collect()),
        Value::Object(map) => Value::Object(map.into_iter().map(|(key, value)| (key, single(value))).collect()),
        other => other,
    }
}
