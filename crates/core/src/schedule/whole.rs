//! The projects of a branch, without any pull request.

use super::narrow::narrow;
use super::{Facts, NoSchedule, Schedule, ScheduleOptions, discover, schedule};
use crate::config::{DEFAULT_WORKSPACE, ProjectConfig, workspace_problem};
use crate::domain::ProjectId;
use crate::domain::command::{BranchTargets, Target};
use crate::inputs::{has_terraform, is_project_file};
use std::collections::HashSet;

/// Selects the projects of a branch. All projects are those that are listed and whose directory exists, and those that would be discovered
/// if every file changed. `facts.modified` and `--silence-no-projects` are ignored.
pub fn for_branch(wanted: &BranchTargets, facts: &Facts<'_>) -> Result<Schedule, NoSchedule> {
    let options = ScheduleOptions { silence_no_projects: false, ..facts.options.clone() };
    let facts = &Facts { options: &options, ..*facts };
    let mut projects = match wanted.named.as_slice() {
        [] => all(facts)?,
        targets => targets.iter().map(|target| named(target, facts)).collect::<Result<Vec<_>, _>>()?.concat(),
    };
    let mut seen: HashSet<ProjectId> = HashSet::new();
    projects.retain(|project| seen.insert(project.id.clone()));
    schedule(narrow(projects, &wanted.narrowing, facts)?, facts)
}

fn all(facts: &Facts<'_>) -> Result<Vec<ProjectConfig>, NoSchedule> {
    let listed = facts.repo_config.into_iter().flat_map(|config| &config.projects);
    let mut projects: Vec<ProjectConfig> =
        listed.filter(|project| discover::is_there(facts.tree, &project.id.dir)).cloned().collect();
    if !discover::is_on(facts) {
        return Ok(projects);
    }
    let files = |dir: String| {
        let names = facts.tree.files(&dir).into_iter().filter(|name| is_project_file(name));
        names.map(|name| if dir == "." { name } else { format!("{dir}/{name}") }).collect::<Vec<_>>()
    };
    let modified: Vec<String> = facts.tree.dirs().into_iter().flat_map(files).collect();
    let as_if_changed = Facts { modified: &modified, ..*facts };
    let discovered = discover::projects(&as_if_changed, &as_if_changed.graph())?;
    projects.extend(discovered.into_iter().filter(|project| has_terraform(facts.tree, &project.id.dir)));
    Ok(projects)
}

fn named(target: &Target, facts: &Facts<'_>) -> Result<Vec<ProjectConfig>, NoSchedule> {
    let refuse = |text: String| Err(NoSchedule::Target(text));
    let listed = || facts.repo_config.into_iter().flat_map(|config| &config.projects);
    if let Some(name) = target.projects.first() {
        let found: Vec<_> = listed().filter(|project| project.id.name.as_ref() == Some(name)).cloned().collect();
        return match found.iter().find(|project| !discover::is_there(facts.tree, &project.id.dir)) {
            _ if found.is_empty() => refuse(format!("no project is called {name:?} on this branch")),
            Some(gone) => refuse(format!("the directory {:?} of {name:?} is not there at this commit", gone.id.dir)),
            None => Ok(found),
        };
    }
    let dir = discover::real_dir(facts.tree, target.dirs.first().map_or(".", String::as_str))?;
    let dir = dir.as_str();
    let workspace = target.workspace.as_deref();
    if let Some(problem) = workspace.and_then(workspace_problem) {
        return refuse(format!("the workspace of {dir:?} is not valid: {problem}"));
    }
    if !facts.tree.is_dir(dir) {
        return refuse(format!("the directory {dir:?} is not there at this commit"));
    }
    let mut here = listed().filter(|project| project.id.dir == dir).peekable();
    if here.peek().is_none() {
        if !has_terraform(facts.tree, dir) {
            return refuse(format!("the directory {dir:?} has no files for Terraform at this commit"));
        }
        return discover::unlisted(facts, dir, workspace).map(|project| vec![project]);
    }
    let wanted = workspace.unwrap_or(DEFAULT_WORKSPACE);
    let found: Vec<_> = here.filter(|project| project.id.workspace == wanted).cloned().collect();
    match found.is_empty() {
        true => refuse(format!("the directory {dir:?} is not configured for the workspace {wanted:?}")),
        false => Ok(found),
    }
}
