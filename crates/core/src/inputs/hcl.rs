//! Reads the few facts of Terraform's files that are needed before Terraform runs. A file that does not parse is skipped: Terraform reports
//! it.

mod code;

pub use code::{DirectoryCode, StatePlace, code};

use super::Tree;
use crate::config::paths::join;
use crate::domain::Distribution;
use hcl::{Block, Body, Expression};
use serde_json::Value;

/// One configuration file of Terraform or OpenTofu.
enum ConfigurationFile {
    Hcl(Body),
    Json(Value),
}

/// Returns the names of the configuration files of a directory that this distribution reads, in alphabetical order. Terraform reads no
/// `.tofu` files. For OpenTofu, one replaces the `.tf` file of the same name.
pub(super) fn configuration_files(tree: &dyn Tree, dir: &str, which: Distribution) -> Vec<String> {
    let mut names = tree.files(dir);
    names.sort();
    let in_place = |name: &str, ending: &str, tofu: &str| {
        let stem = name.strip_suffix(ending)?;
        let other = format!("{stem}{tofu}");
        Some(which == Distribution::Terraform || names.binary_search(&other).is_err())
    };
    let is_read = |name: &&String| {
        let terraform = in_place(name, ".tf", ".tofu").or_else(|| in_place(name, ".tf.json", ".tofu.json"));
        let tofu = || which == Distribution::OpenTofu && (name.ends_with(".tofu") || name.ends_with(".tofu.json"));
        terraform.unwrap_or_else(tofu)
    };
    names.iter().filter(is_read).cloned().collect()
}

pub(super) fn is_json(name: &str) -> bool {
    name.ends_with(".json")
}

/// Returns the text of a file, without the byte order mark that some editors write, as Terraform reads it.
pub(crate) fn text_of(tree: &dyn Tree, path: &str) -> Option<String> {
    let text = tree.read(path)?;
    Some(match text.strip_prefix('\u{feff}') {
        Some(rest) => rest.to_owned(),
        None => text,
    })
}

/// Returns the contents of a directory's configuration files that mention `word`.
fn sources(tree: &dyn Tree, dir: &str, which: Distribution, word: &str) -> Vec<ConfigurationFile> {
    let read = |name: &String| {
        // Parsing is slow, and most files do not have the word.
        let text = text_of(tree, &join(dir, name)).filter(|text| text.contains(word))?;
        match is_json(name) {
            true => serde_json::from_str(&text).ok().map(ConfigurationFile::Json),
            false => hcl::parse(&text).ok().map(ConfigurationFile::Hcl),
        }
    };
    configuration_files(tree, dir, which).iter().filter_map(read).collect()
}

/// Returns the `source` of the `module` blocks in a directory, as written.
pub(super) fn module_sources(tree: &dyn Tree, dir: &str, which: Distribution) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources(tree, dir, which, "module") {
        match source {
            ConfigurationFile::Hcl(body) => {
                found.extend(blocks(&body, "module").filter_map(|block| text(block.body(), "source")));
            }
            ConfigurationFile::Json(json) => {
                for module in json_blocks(&json, "module").into_iter().flat_map(json_labelled) {
                    found.extend(json_text(module, "source"));
                }
            }
        }
    }
    found
}

/// Returns the `required_version` of the `terraform` blocks in a directory.
pub fn required_versions(tree: &dyn Tree, dir: &str, which: Distribution) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources(tree, dir, which, "required_version") {
        match source {
            ConfigurationFile::Hcl(body) => {
                found.extend(blocks(&body, "terraform").filter_map(|block| text(block.body(), "required_version")));
            }
            ConfigurationFile::Json(json) => {
                found.extend(
                    json_blocks(&json, "terraform").into_iter().filter_map(|one| json_text(one, "required_version")),
                );
            }
        }
    }
    found
}

/// Returns sources and versions of a dependency lock file; absent if it does not parse.
pub(crate) fn locked_providers(text: &str) -> Option<Vec<(String, String)>> {
    let body = hcl::parse(text).ok()?;
    let found = blocks(&body, "provider").map(|block| {
        let source = block.labels().first().map(|label| label.as_str().to_owned());
        source.zip(self::text(block.body(), "version"))
    });
    found.collect()
}

/// Returns true if a directory's files name a provider, a resource of one, or a module from elsewhere. Also true for JSON, and for files
/// that do not parse.
pub(super) fn needs_installing(tree: &dyn Tree, dir: &str, which: Distribution) -> bool {
    configuration_files(tree, dir, which).iter().any(|name| {
        if is_json(name) {
            return true;
        }
        let body = text_of(tree, &join(dir, name)).and_then(|text| hcl::parse(&text).ok());
        body.is_none_or(|body| body.blocks().any(installs))
    })
}

fn installs(block: &Block) -> bool {
    let kind = block.labels().first().map(|label| label.as_str()).unwrap_or_default();
    match block.identifier() {
        "provider" => true,
        "resource" | "data" | "ephemeral" => !kind.starts_with("terraform_"),
        "terraform" => blocks(block.body(), "required_providers").next().is_some(),
        "module" => !text(block.body(), "source").is_some_and(|source| source.starts_with('.')),
        _ => false,
    }
}

fn blocks<'a>(body: &'a Body, identifier: &'a str) -> impl Iterator<Item = &'a Block> {
    body.blocks().filter(move |block| block.identifier() == identifier)
}

/// Returns a literal string attribute; expressions are not evaluated.
fn text(body: &Body, key: &str) -> Option<String> {
    body.attributes().find(|attribute| attribute.key() == key).and_then(|attribute| match attribute.expr() {
        Expression::String(text) => Some(text.clone()),
        _ => None,
    })
}

/// Returns the blocks of a key. In JSON a block is an object or a list of objects.
fn json_blocks<'a>(json: &'a Value, key: &str) -> Vec<&'a Value> {
    match json.get(key) {
        Some(Value::Array(all)) => all.iter().collect(),
        Some(one) => vec![one],
        None => Vec::new(),
    }
}

/// Returns the blocks below their label: `{"name": {…}}` or `{"name": [{…}]}`.
fn json_labelled(json: &Value) -> Vec<&Value> {
    let Value::Object(labelled) = json else { return Vec::new() };
    labelled
        .values()
        .flat_map(|value| match value {
            Value::Array(all) => all.iter().collect(),
            one => vec![one],
        })
        .collect()
}

fn json_text(json: &Value, key: &str) -> Option<String> {
    json.get(key)?.as_str().map(str::to_owned)
}
