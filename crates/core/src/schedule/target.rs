//! `-d`, `-w`, `-p`: selects the projects of a targeted command, or refuses it.

use super::narrow::narrow;
use super::typed_names::Names;
use super::{Facts, NoSchedule, configured, deleted, discover};
use crate::config::paths::{Glob, clean, is_glob, parent};
use crate::config::repo::RepoConfig;
use crate::config::{DEFAULT_WORKSPACE, ProjectConfig, workspace_problem};
use crate::domain::ProjectId;
use crate::domain::command::{Command, CommandName, Target};

/// Most projects, workspaces or files that a message lists.
const MAX_LISTED: usize = 20;
/// Longest quotation of a name, in characters.
const MAX_QUOTED: usize = 120;

/// One value of `-p` or `-d`.
#[derive(Clone, Copy)]
enum TargetPart<'a> {
    Name(&'a str),
    Dir(&'a str),
}

/// Returns the parts of a target; `-w` alone is for the root.
fn parts(target: &Target) -> Vec<TargetPart<'_>> {
    let dirs = target.dirs.iter().map(|dir| TargetPart::Dir(dir));
    let parts: Vec<TargetPart<'_>> = target.projects.iter().map(|name| TargetPart::Name(name)).chain(dirs).collect();
    if parts.is_empty() { vec![TargetPart::Dir(".")] } else { parts }
}

/// Returns the projects of all parts, each once. Parts that belong to another server are skipped, unless all do.
fn together<'a>(
    parts: Vec<TargetPart<'a>>,
    mean: impl Fn(TargetPart<'a>) -> Result<Vec<ProjectConfig>, NoSchedule>,
) -> Result<Vec<ProjectConfig>, NoSchedule> {
    let (mut all, mut any): (Vec<ProjectConfig>, _) = (Vec::new(), false);
    for part in parts {
        let projects = match mean(part) {
            Err(NoSchedule::Silent) => continue,
            projects => projects?,
        };
        any = true;
        all.extend(
            projects.into_iter().filter(|project| all.iter().all(|known| known.id != project.id)).collect::<Vec<_>>(),
        );
    }
    if any { Ok(all) } else { Err(NoSchedule::Silent) }
}

/// Returns the projects that a targeted command selects in this tree.
pub(super) fn resolve(command: &Command, facts: &Facts<'_>) -> Result<Vec<ProjectConfig>, NoSchedule> {
    let projects = together(parts(&command.target), |part| configured_or_new(part, command, facts))?;
    let projects = narrow(projects, &command.target, facts)?;
    if facts.options.restrict_file_list && command.name == CommandName::Plan {
        check_file_list(&projects, &command.target, facts)?;
    }
    Ok(projects)
}

/// Returns the projects that one part selects in this tree; their directories exist.
fn configured_or_new(
    part: TargetPart<'_>,
    command: &Command,
    facts: &Facts<'_>,
) -> Result<Vec<ProjectConfig>, NoSchedule> {
    let projects = match part {
        TargetPart::Name(name) => by_name(name, command, facts)?,
        TargetPart::Dir(dir) if is_deleted(&clean(dir), facts) => deleted_in(&clean(dir), command, facts)?,
        TargetPart::Dir(glob) if is_pattern(glob, &[], facts) => by_glob(glob, command, facts)?,
        TargetPart::Dir(dir) => vec![by_dir(&clean(dir), command, facts)?],
    };
    let is_gone = |project: &&ProjectConfig| !project.deleted && !discover::is_there(facts.tree, &project.id.dir);
    if let Some(gone) = projects.iter().find(is_gone) {
        discover::real_dir(facts.tree, &gone.id.dir)?;
        let id = &gone.id;
        let of = id.name.as_ref().map(|name| format!(" of project `{name}`")).unwrap_or_default();
        return refuse(format!(
            "the directory `{}`{of} does not exist in this pull request; see what there is with {}",
            id.dir,
            plan_all(facts)
        ));
    }
    Ok(projects)
}

/// Returns the planned projects that the command selects. A part that selects none yields the projects that it would plan, so that the
/// refusal can name them.
pub(super) fn among(
    command: &Command,
    planned: &[ProjectId],
    facts: &Facts<'_>,
) -> Result<Vec<ProjectConfig>, NoSchedule> {
    together(parts(&command.target), |part| {
        let chosen = match part {
            TargetPart::Name(name) => planned_by_name(name, planned, facts)?,
            TargetPart::Dir(dir) => planned_by_dir(dir, command, planned, facts)?,
        };
        match chosen.is_empty() {
            true => configured_or_new(part, command, facts),
            false => Ok(chosen.into_iter().map(|id| configured(id, facts)).collect()),
        }
    })
}

fn planned_by_name<'a>(
    text: &str,
    planned: &'a [ProjectId],
    facts: &Facts<'_>,
) -> Result<Vec<&'a ProjectId>, NoSchedule> {
    let names = Names::new(text, facts)?;
    let chosen: Vec<_> = planned.iter().filter(|id| id.name.as_deref().is_some_and(|name| names.mean(name))).collect();
    names.check_count(text, chosen.len(), facts)?;
    Ok(chosen)
}

fn planned_by_dir<'a>(
    dir: &str,
    command: &Command,
    planned: &'a [ProjectId],
    facts: &Facts<'_>,
) -> Result<Vec<&'a ProjectId>, NoSchedule> {
    let workspace = workspace_of(&command.target)?.unwrap_or(DEFAULT_WORKSPACE);
    let glob = if is_pattern(dir, planned, facts) { Some(glob(dir)?) } else { None };
    let dir = clean(dir);
    let dir = dir.as_str();
    let real = facts.tree.resolve(dir).map_or_else(|| dir.to_owned(), |real| real.path);
    let in_dir = |id: &&ProjectId| match &glob {
        Some(glob) => means(glob, &configured(id, facts)),
        None => id.dir == real,
    };
    let chosen: Vec<_> = planned.iter().filter(|id| id.workspace == workspace).filter(in_dir).collect();
    if glob.is_none() && chosen.len() > 1 {
        let ids = chosen.into_iter().cloned().collect::<Vec<_>>();
        let why = format!("`{dir}` (workspace `{workspace}`) has more than one project; name one");
        return Err(several(facts, command, &ids, &why));
    }
    Ok(chosen)
}

/// Refuses a command that needs exactly one project, with the commands to choose from.
pub(super) fn ambiguous(facts: &Facts<'_>, command: &Command, projects: &[ProjectConfig], why: &str) -> NoSchedule {
    let ids: Vec<ProjectId> = projects.iter().map(|project| project.id.clone()).collect();
    several(facts, command, &ids, why)
}

fn several(facts: &Facts<'_>, command: &Command, ids: &[ProjectId], why: &str) -> NoSchedule {
    let commands = list(ids.iter().map(|id| spoken(facts, command, &flags(id))));
    NoSchedule::Target(format!("{why}: {commands}"))
}

/// Returns the flags that select a project.
fn flags(id: &ProjectId) -> String {
    let (dir, workspace) = (quoted(&id.dir), quoted(&id.workspace));
    match &id.name {
        Some(name) => format!(" -p {name}"),
        None if id.workspace == DEFAULT_WORKSPACE => format!(" -d {dir}"),
        None => format!(" -d {dir} -w {workspace}"),
    }
}

/// Returns the command as people type it, with other flags but with its own arguments.
fn spoken(facts: &Facts<'_>, command: &Command, flags: &str) -> String {
    let quoted = |words: &[String]| shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default();
    let mut text = format!("{} {}{flags}", facts.options.executable, command.name.spoken());
    for (before, words) in [(" ", &command.positional), (" -- ", &command.extra_args)] {
        if !words.is_empty() {
            text.push_str(before);
            text.push_str(&quoted(words));
        }
    }
    // A backtick would end the inline code.
    format!("`{}`", text.replace('`', "'"))
}

/// Returns the command that plans all projects.
fn plan_all(facts: &Facts<'_>) -> String {
    format!("`{} plan`", facts.options.executable)
}

pub(super) fn list(items: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = items.collect();
    match all.len().checked_sub(MAX_LISTED) {
        None | Some(0) => all.join(", "),
        Some(more) => format!("{} and {more} more", all[..MAX_LISTED].join(", ")),
    }
}

pub(super) fn refuse<T>(message: String) -> Result<T, NoSchedule> {
    Err(NoSchedule::Target(message))
}

/// Returns true if a directory that is typed is a glob, and there is none of that very name.
fn is_pattern(dir: &str, planned: &[ProjectId], facts: &Facts<'_>) -> bool {
    let exact = clean(dir);
    let mut listed = facts.repo_config.into_iter().flat_map(|config| &config.projects);
    is_glob(dir)
        && !facts.tree.is_dir(&exact)
        && !planned.iter().any(|id| id.dir == exact)
        && !listed.any(|project| project.id.dir == exact)
}

fn by_name(text: &str, command: &Command, facts: &Facts<'_>) -> Result<Vec<ProjectConfig>, NoSchedule> {
    if !is_glob(text) || facts.options.enable_regexp_cmd {
        let gone = deleted::named(facts, |id| id.name.as_deref() == Some(text));
        let mut listed = facts.repo_config.into_iter().flat_map(|config| &config.projects);
        // A project that the head has goes first.
        let is_elsewhere = |other: &ProjectConfig| {
            other.id.name.as_deref() == Some(text) && discover::is_there(facts.tree, &other.id.dir)
        };
        if !gone.is_empty() && !listed.any(is_elsewhere) {
            return Ok(gone.into_iter().cloned().collect());
        }
    }
    let Some(config) = facts.repo_config else {
        let text = clip(text);
        return refuse(format!(
            "cannot choose the project `{text}` by name: no `atlantis.yaml` here configures projects; choose its directory: {}",
            spoken(facts, command, " -d DIR")
        ));
    };
    let names = Names::new(text, facts)?;
    let named = |project: &&ProjectConfig| project.id.name.as_deref().is_some_and(|name| names.mean(name));
    let chosen: Vec<ProjectConfig> = config.projects.iter().filter(named).cloned().collect();
    names.check_count(text, chosen.len(), facts)?;
    if !chosen.is_empty() {
        return Ok(chosen);
    }
    if is_silent(facts) {
        return Err(NoSchedule::Silent);
    }
    let known = config.projects.iter().filter_map(|project| project.id.name.as_deref());
    let known = nearest_first(text, known);
    let no_project = match names {
        Names::Glob(_) => format!("no project matches `-p {}`", clip(text)),
        _ => format!("no project with name `{}`", clip(text)),
    };
    let Some(nearest) = known.first() else {
        return refuse(format!(
            "{no_project}: none that is configured for this base branch has a name; choose a directory: {}",
            spoken(facts, command, " -d DIR")
        ));
    };
    let mut meant = command.target.clone();
    match meant.projects.iter().any(|name| name == nearest) {
        true => meant.projects.retain(|name| name != text),
        false => meant.projects.iter_mut().filter(|name| *name == text).for_each(|name| *name = (*nearest).to_owned()),
    }
    let meant: String = meant.flags().map(|(flag, value)| format!(" {flag} {}", quoted(&value))).collect();
    refuse(format!(
        "{no_project}; there are: {}; for example {}",
        list(known.iter().map(|name| format!("`{name}`"))),
        spoken(facts, command, &meant)
    ))
}

/// Sorts names, those most like the typed one first.
pub(super) fn nearest_first<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let typed = clip(typed).to_lowercase();
    let mut names: Vec<&str> = names.collect();
    names.sort_by_cached_key(|name| strsim::damerau_levenshtein(&clip(name).to_lowercase(), &typed));
    names
}

/// Quotes a word of a command if needed.
pub(super) fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.replace('\0', ""), |word| word.into_owned())
}

/// Returns the beginning of a typed text, without backticks, which would end inline code.
pub(super) fn clip(text: &str) -> String {
    let shown: String = text.chars().take(MAX_QUOTED).map(|char| if char == '`' { '\'' } else { char }).collect();
    if text.chars().nth(MAX_QUOTED).is_some() { shown + "…" } else { shown }
}

/// Returns true under `--silence-no-projects` in a repository with projects, where a target without a match belongs to another server.
pub(super) fn is_silent(facts: &Facts<'_>) -> bool {
    facts.options.silence_no_projects && facts.repo_config.is_some_and(|config| !config.projects.is_empty())
}

fn glob(text: &str) -> Result<Glob, NoSchedule> {
    Glob::new(text).or_else(|error| refuse(format!("`-d`: {error}; quote or fix it")))
}

/// Returns the configured projects that a glob matches.
fn by_glob(text: &str, command: &Command, facts: &Facts<'_>) -> Result<Vec<ProjectConfig>, NoSchedule> {
    let workspace = workspace_of(&command.target)?.unwrap_or(DEFAULT_WORKSPACE);
    let glob = glob(text)?;
    let configured = facts.repo_config.into_iter().flat_map(|config| &config.projects);
    let configured = configured.filter(|project| project.id.workspace == workspace);
    let chosen: Vec<ProjectConfig> = configured.clone().filter(|project| means(&glob, project)).cloned().collect();
    match chosen.is_empty() {
        false => Ok(chosen),
        true if is_silent(facts) => Err(NoSchedule::Silent),
        true => {
            let mut dirs = nearest_first(text, configured.map(|project| project.id.dir.as_str()));
            dirs.dedup();
            let there_are = list(dirs.into_iter().map(|dir| format!("`{}`", clip(dir))));
            let there_are = if there_are.is_empty() { there_are } else { format!(" there are: {there_are};") };
            refuse(format!(
                "`-d {}` matches no configured project in workspace `{workspace}`;{there_are} a glob chooses among the projects of \
                 `atlantis.yaml`; for one directory: {}",
                clip(text),
                spoken(facts, command, " -d DIR")
            ))
        }
    }
}

fn workspace_of(target: &Target) -> Result<Option<&str>, NoSchedule> {
    let Some(workspace) = target.workspace.as_deref().filter(|name| !name.is_empty()) else { return Ok(None) };
    match workspace_problem(workspace) {
        Some(problem) => refuse(format!("`-w {workspace:?}` is not a valid workspace name: {problem}")),
        None => Ok(Some(workspace)),
    }
}

/// Returns true if a glob matches a project: its directory, or the path for it in its repo config.
fn means(glob: &Glob, project: &ProjectConfig) -> bool {
    glob.matches(&project.id.dir) || project.link.as_ref().is_some_and(|link| glob.matches(link))
}

/// Returns true if the pull request deletes this directory, as far as that is looked for.
fn is_deleted(dir: &str, facts: &Facts<'_>) -> bool {
    facts.deletions.is_some_and(|deletions| deletions.tell_of(dir))
}

/// Returns the deleted project in a directory, in the workspace of the target.
fn deleted_in(dir: &str, command: &Command, facts: &Facts<'_>) -> Result<Vec<ProjectConfig>, NoSchedule> {
    let here = deleted::named(facts, |id| id.dir == dir);
    let mut kept = facts.deletions.into_iter().flat_map(|deletions| &deletions.kept);
    if let Some(kept) = kept.find(|kept| here.is_empty() && kept.dir == dir) {
        return refuse(kept.because.clone());
    }
    let asked = workspace_of(&command.target)?;
    let is_meant = |id: &ProjectId| asked.is_none_or(|workspace| id.workspace == workspace);
    let meant: Vec<&ProjectConfig> = here.iter().copied().filter(|project| is_meant(&project.id)).collect();
    match meant.as_slice() {
        [one] => Ok(vec![(*one).clone()]),
        _ => {
            let ids: Vec<ProjectId> = here.iter().map(|project| project.id.clone()).collect();
            Err(several(facts, command, &ids, &format!("this pull request deletes `{dir}`; name one of its projects")))
        }
    }
}

fn by_dir(asked: &str, command: &Command, facts: &Facts<'_>) -> Result<ProjectConfig, NoSchedule> {
    let real = discover::real_dir(facts.tree, asked)?;
    let found = by_real_dir(&real, command, facts)?;
    let link = if asked == real { found.link.clone() } else { Some(asked.to_owned()) };
    Ok(ProjectConfig { link, ..found })
}

fn by_real_dir(dir: &str, command: &Command, facts: &Facts<'_>) -> Result<ProjectConfig, NoSchedule> {
    let asked = workspace_of(&command.target)?;
    let here: Vec<&ProjectConfig> = facts
        .repo_config
        .into_iter()
        .flat_map(|config| &config.projects)
        .filter(|project| project.id.dir == dir)
        .collect();
    if here.is_empty() {
        return unlisted(dir, asked, command, facts);
    }
    let workspace = asked.unwrap_or(DEFAULT_WORKSPACE);
    let ids: Vec<ProjectId> = here.iter().map(|project| project.id.clone()).collect();
    let mut matching = here.into_iter().filter(|project| project.id.workspace == workspace);
    match (matching.next(), matching.next()) {
        (Some(one), None) => Ok(one.clone()),
        (None, _) => {
            let why = format!("`{dir}` is not configured for the workspace `{workspace}`; there are");
            Err(several(facts, command, &ids, &why))
        }
        (Some(_), Some(_)) => {
            let same: Vec<ProjectId> = ids.into_iter().filter(|id| id.workspace == workspace).collect();
            let why = format!("`{dir}` (workspace `{workspace}`) has more than one project; name one");
            Err(several(facts, command, &same, &why))
        }
    }
}

/// Returns the project of a directory that no config lists, with the rules' defaults, if that is allowed.
fn unlisted(
    dir: &str,
    workspace: Option<&str>,
    command: &Command,
    facts: &Facts<'_>,
) -> Result<ProjectConfig, NoSchedule> {
    if is_silent(facts) || discover::is_ignored(facts, dir)? {
        return Err(NoSchedule::Silent);
    }
    if facts.repo_config.is_some_and(|config: &RepoConfig| config.other_branch_dirs.iter().any(|other| other == dir)) {
        return refuse(format!(
            "`{dir}` has projects for other base branches only, says `branch` in its configuration"
        ));
    }
    if !facts.tree.is_dir(dir) {
        return refuse(format!(
            "the directory `{dir}` does not exist in this pull request; give one that does: {}",
            spoken(facts, command, " -d DIR")
        ));
    }
    discover::unlisted(facts, dir, workspace)
}

/// `--restrict-file-list`: checks that the pull request changes files of the projects to plan.
fn check_file_list(projects: &[ProjectConfig], target: &Target, facts: &Facts<'_>) -> Result<(), NoSchedule> {
    if target.projects.is_empty() {
        let untouched = |project: &&ProjectConfig| !facts.modified.iter().any(|file| parent(file) == project.id.dir);
        return match projects.iter().find(untouched) {
            None => Ok(()),
            Some(project) => refuse(format!(
                "`{}` has no changed file in this pull request, and this server plans only directories that have \
                 (--restrict-file-list); plan what changed: {}",
                project.id.dir,
                plan_all(facts)
            )),
        };
    }
    let inside = |file: &str, dir: &str| dir == "." || file.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
    let elsewhere: Vec<&String> =
        facts.modified.iter().filter(|file| !projects.iter().any(|project| inside(file, &project.id.dir))).collect();
    if elsewhere.is_empty() {
        return Ok(());
    }
    let files = list(elsewhere.into_iter().map(|file| format!("`{file}`")));
    refuse(format!(
        "this pull request changes files outside of the chosen project, which this server refuses (--restrict-file-list): \
         {files}; plan everything: {}",
        plan_all(facts)
    ))
}
