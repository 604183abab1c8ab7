//! Files that are named in arguments of a workflow's steps and of comments.

use super::super::Tree;
use super::{FileReads, IfMissing, from};
use crate::config::ProjectConfig;
use crate::config::workflow::{EnvValue, Step};
use std::collections::BTreeMap;

/// Arguments of Terraform whose value is a file.
const NAMES_FILE: [&str; 2] = ["var-file", "backend-config"];
/// Variables with more arguments for Terraform.
const MORE_ARGUMENTS: &str = "TF_CLI_ARGS";

/// Adds the files that a project's steps name, relative to the project's directory.
pub(super) fn add(tree: &dyn Tree, project: &ProjectConfig, comment: &[String], reads: &mut FileReads) {
    let workflow = &project.workflow;
    for stage in [&workflow.plan, &workflow.apply, &workflow.import, &workflow.state_rm] {
        let mut known = step_variables(project);
        for step in stage {
            match step {
                Step::Init { extra_args }
                | Step::Plan { extra_args }
                | Step::Apply { extra_args }
                | Step::Import { extra_args }
                | Step::StateRm { extra_args } => files(tree, project, &Some(&known), extra_args, reads),
                Step::Env { name, value: EnvValue::Value(value) } => {
                    if name.starts_with(MORE_ARGUMENTS) {
                        let args = shlex::split(value).unwrap_or_default();
                        files(tree, project, &None, &args, reads);
                    }
                    known.insert(name.clone(), Some(value.clone()));
                }
                Step::Env { name, value: EnvValue::Command(_) } => {
                    if name.starts_with(MORE_ARGUMENTS) {
                        reads.anything(IfMissing::Fails);
                    }
                    known.insert(name.clone(), None);
                }
                _ => {}
            }
        }
    }
    files(tree, project, &None, comment, reads);
}

/// Returns the variables of steps whose values follow from the project.
fn step_variables(project: &ProjectConfig) -> BTreeMap<String, Option<String>> {
    let id = &project.id;
    let all = [
        ("WORKSPACE", id.workspace.clone()),
        ("PROJECT_NAME", id.name.clone().unwrap_or_default()),
        ("REPO_REL_DIR", id.dir.clone()),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), Some(value))).collect()
}

/// Adds the files that these arguments name. `known`: variables that they are expanded with.
fn files(
    tree: &dyn Tree,
    project: &ProjectConfig,
    known: &Option<&BTreeMap<String, Option<String>>>,
    args: &[String],
    reads: &mut FileReads,
) {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(flag) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-')) else { continue };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, None),
        };
        if !NAMES_FILE.contains(&name) {
            continue;
        }
        let Some(value) = value.or_else(|| args.next().map(String::as_str)) else { continue };
        let value = match known {
            Some(known) => expanded(value, known),
            None => Ok(value.to_owned()),
        };
        match value {
            Ok(value) if name == "backend-config" && value.contains('=') => {}
            Ok(value) if value.is_empty() || value.starts_with(['/', '~']) => {}
            Ok(value) => reads.file(tree, &from(&project.id.dir, &value)),
            Err(before) => match before.rsplit_once('/') {
                Some((dir, _)) if !before.starts_with(['/', '~']) => {
                    reads.guess(tree, &from(&project.id.dir, dir), IfMissing::Fails);
                }
                Some(_) => {}
                None => reads.anything(IfMissing::Fails),
            },
        }
    }
}

/// Expands the variables of a value. If one of them is unknown, the error has the text before it.
fn expanded(text: &str, known: &BTreeMap<String, Option<String>>) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (name, left) = match after.strip_prefix('{').and_then(|braced| braced.split_once('}')) {
            Some(found) => found,
            None => {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                after.split_at(end)
            }
        };
        match known.get(name) {
            Some(Some(value)) => out.push_str(value),
            _ if name.is_empty() => out.push('$'),
            _ => return Err(out),
        }
        rest = left;
    }
    out.push_str(rest);
    Ok(out)
}
