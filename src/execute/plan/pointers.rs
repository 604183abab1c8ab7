//! Git LFS pointers among the inputs of planned projects: Terraform would read the pointer instead of the file.

use super::super::command_run::CommandRun;
use super::super::context::Context;
use super::super::prepare::{self, Prepared};
use crate::checkout::disk::DiskTree;
use crate::checkout::{LeftPointers, PointersLeft};
use crate::config::ProjectConfig;
use crate::inputs::InputGraph;
use crate::inputs::patterns::Patterns;
use crate::inputs::recorded::are_touched;
use crate::schedule::Schedule;
use std::collections::BTreeSet;

/// Maximum number of files that the remark names.
const MAX_NAMED: usize = 10;

/// Returns the remark that names the pointers; `None` if there are none.
pub(super) async fn remark(
    ctx: &Context,
    work: &CommandRun,
    prepared: &Prepared,
    schedule: &Schedule,
) -> Option<String> {
    let LeftPointers { why, paths } = prepared.tree.pointers.clone()?;
    let configs: Vec<ProjectConfig> = schedule.groups.iter().flatten().cloned().collect();
    let (options, rules, root) = (prepare::options(ctx), work.rules.clone(), prepared.tree.root.clone());
    let looking = move || {
        let tree = DiskTree { root };
        let graph = InputGraph::new(&tree, options.input_rules(&rules));
        let mut read = BTreeSet::new();
        let Ok(no_list) = Patterns::new::<&str>(&[]) else { return Vec::new() };
        for config in &configs {
            let inputs = graph.inputs_of(config).map(|inputs| inputs.recorded()).unwrap_or_default();
            let mut dirs = BTreeSet::from([config.id.dir.clone()]);
            dirs.extend(inputs.modules.iter().chain(&inputs.units).cloned());
            let is_read = |path: &String| {
                let path_alone = std::slice::from_ref(path);
                let is_named = || !inputs.everything && are_touched(&config.id, &inputs, &no_list, path_alone);
                dirs.iter().any(|dir| is_below(path, dir)) || is_named()
            };
            read.extend(paths.iter().filter(|path| is_read(path)).cloned());
        }
        read.into_iter().collect::<Vec<String>>()
    };
    // The plan itself reports a tree that cannot be read.
    let read = tokio::task::spawn_blocking(looking).await.unwrap_or_default();
    describe(&read, why, &ctx.rendering.executable)
}

fn is_below(path: &str, dir: &str) -> bool {
    dir == "." || path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

fn describe(read: &[String], why: PointersLeft, executable: &str) -> Option<String> {
    if read.is_empty() {
        return None;
    }
    let shown: Vec<String> = read
        .iter()
        .take(MAX_NAMED)
        .map(|path| format!("`{}`", path.replace(|c: char| c == '`' || c.is_control(), "'")))
        .collect();
    let more = match read.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (blocker, next) = match why {
        PointersLeft::NotInstalled => (
            "git-lfs is not installed on this server",
            format!("Ask an operator to install git-lfs on the server, then comment `{executable} plan`."),
        ),
        PointersLeft::TooMany => (
            "the checkout has more than 2,000 of them or more than 2 GiB",
            "With `--sparse-checkout` a checkout has only the files of its projects.".to_owned(),
        ),
        PointersLeft::NotOverHttp => (
            "the repository is not cloned over HTTPS",
            "Ask an operator to let the server clone it over HTTPS.".to_owned(),
        ),
        PointersLeft::Failed => (
            "git-lfs could not fetch them",
            format!(
                "Push the missing files with `git lfs push --all`, or see the server's log; then comment `{executable} plan`."
            ),
        ),
    };
    Some(format!(
        "Terraform reads pointers of Git LFS instead of the files that they stand for: {}{more}, as {blocker}. {next}",
        shown.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_are_named_as_people_read() {
        assert_eq!(describe(&[], PointersLeft::Failed, "atlantis"), None);
        let paths: Vec<String> = (0..12).map(|at| format!("a/{at}`\n.bin")).collect();
        let said = describe(&paths, PointersLeft::NotInstalled, "atlantis").unwrap();
        assert!(said.contains("`a/0''.bin`, `a/1''.bin`") && said.contains("`a/9''.bin` and 2 more, as"), "{said}");
        assert!(said.contains("install git-lfs"), "{said}");
        let said = describe(&paths[..1], PointersLeft::Failed, "atlantis").unwrap();
        assert!(said.contains("`a/0''.bin`, as git-lfs could not fetch them. "), "{said}");
    }

    #[test]
    fn a_directory_has_what_is_below_it() {
        for (path, dir, expected) in [("a/x", "a", true), ("ab/x", "a", false), ("x", ".", true), ("a/b/x", "a", true)]
        {
            assert_eq!(is_below(path, dir), expected, "{path} {dir}");
        }
    }
}
