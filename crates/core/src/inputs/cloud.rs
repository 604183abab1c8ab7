//! Workspace in the `cloud` block of a directory, with its position.

use super::Tree;
use super::hcl::{configuration_files, is_json, text_of};
use crate::config::paths::join;
use crate::domain::Distribution;
use hcl::edit::Span as _;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// `name` in `terraform { cloud { workspaces { name = "…" } } }`.
#[derive(Debug, PartialEq, Eq)]
pub struct CloudWorkspace {
    /// The workspace's name.
    pub name: String,
    /// Path of the file that names it.
    pub file: String,
    /// Line of the name, from 1.
    pub line: usize,
    /// Column of the name, in characters, from 1.
    pub column: usize,
}

/// Returns the workspace in the first file that has one.
pub fn cloud_workspace(tree: &dyn Tree, dir: &str, which: Distribution) -> Option<CloudWorkspace> {
    configuration_files(tree, dir, which).iter().find_map(|name| {
        let file = join(dir, name);
        // Parsing is slow, and most files do not have the word.
        let text = text_of(tree, &file).filter(|text| text.contains("cloud"))?;
        let (name, start) = if is_json(name) { in_json(&text) } else { in_hcl(&text) }?;
        let before = text.get(..start)?;
        let column = 1 + before.rsplit('\n').next().unwrap_or_default().chars().count();
        Some(CloudWorkspace { name, file, line: 1 + before.matches('\n').count(), column })
    })
}

/// Returns the name, and the start of its value.
fn in_hcl(text: &str) -> Option<(String, usize)> {
    let body = hcl::edit::parser::parse_body(text).ok()?;
    let clouds = body.get_blocks("terraform").flat_map(|terraform| terraform.body.get_blocks("cloud"));
    let mut workspaces = clouds.flat_map(|cloud| cloud.body.get_blocks("workspaces"));
    workspaces.find_map(|block| {
        let value = &block.body.get_attribute("name")?.value;
        Some((value.as_str()?.to_owned(), value.span()?.start))
    })
}

/// The same for JSON, where a block is an object or a list of objects.
fn in_json(text: &str) -> Option<(String, usize)> {
    let mut found = vec![serde_json::from_str::<&RawValue>(text).ok()?];
    for key in ["terraform", "cloud", "workspaces"] {
        found = found.into_iter().flat_map(|one| json_blocks(one, key)).collect();
    }
    found.into_iter().find_map(|one| {
        let value = json_member(one, "name")?.get();
        // The value is a slice of the text.
        let start = value.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
        Some((serde_json::from_str(value).ok()?, start))
    })
}

fn json_member<'a>(json: &'a RawValue, key: &str) -> Option<&'a RawValue> {
    serde_json::from_str::<HashMap<String, &RawValue>>(json.get()).ok()?.remove(key)
}

fn json_blocks<'a>(json: &'a RawValue, key: &str) -> Vec<&'a RawValue> {
    let Some(one) = json_member(json, key) else { return Vec::new() };
    serde_json::from_str(one.get()).unwrap_or_else(|_| vec![one])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::tree::MemoryTree;

    #[test]
    fn it_is_found_with_its_place_in_hcl_and_json() {
        let in_cloud = |text: &str| format!("terraform {{\n  cloud {{\n{text}  }}\n}}\n");
        let tree = MemoryTree::new([
            ("a/main.tf", "cloud {"),
            (
                "a/x.tf",
                &in_cloud("    workspaces {\n      tags = [1]\n    }\n    workspaces {\n      name = \"é\"\n    }\n"),
            ),
            ("b/x.tf.json", "{\"terraform\": [{\"cloud\": {\"workspaces\": [{\"name\": \"a\\u0062\"}]}}]}"),
            ("c/x.tf", &in_cloud("    workspaces {\n      name = var.cloud\n    }\n")),
        ]);
        let found = |dir: &str| {
            let found = cloud_workspace(&tree, dir, Distribution::Terraform);
            found.map(|one| (one.name, format!("{}:{}:{}", one.file, one.line, one.column)))
        };
        assert_eq!(found("a"), Some(("é".to_owned(), "a/x.tf:7:14".to_owned())));
        assert_eq!(found("b"), Some(("ab".to_owned(), "b/x.tf.json:1:51".to_owned())));
        assert_eq!(found("c"), None);
    }
}
