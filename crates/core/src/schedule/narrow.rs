//! `--tag` and `--except`: leave selected projects out. They never add one, and decide nothing but what a command runs on.

use super::target::{clip, is_silent, list, means, nearest_first, refuse};
use super::{Facts, NoSchedule};
use crate::config::ProjectConfig;
use crate::config::paths::{Glob, clean, is_glob};
use crate::domain::command::Command;
use crate::domain::tags::TagQuery;

/// Returns the projects that `--tag` and `--except` leave. A tag that no project has is refused, and a glob that matches nothing: either may
/// be a typing error, with which the command would run on more than is meant.
pub(super) fn narrow(
    mut projects: Vec<ProjectConfig>,
    command: &Command,
    facts: &Facts<'_>,
) -> Result<Vec<ProjectConfig>, NoSchedule> {
    if let Some(query) = &command.target.tag {
        projects = tagged(projects, query, facts)?;
    }
    if command.target.except.is_empty() {
        return Ok(projects);
    }
    let before: Vec<String> = projects.iter().map(|project| format!("`{}`", project.id.label())).collect();
    for text in &command.target.except {
        let excluded = Excluded::new(text)?;
        let selected = projects.len();
        projects.retain(|project| !excluded.means(project));
        if projects.len() == selected && !excluded.is_anywhere(facts) && !is_silent(facts) {
            return nothing_excluded(text, facts);
        }
    }
    if projects.is_empty() && !before.is_empty() {
        let text = list(command.target.except.iter().map(|text| format!("`--except {}`", clip(text))));
        return refuse(format!(
            "nothing is left with {text}; without `--except`, the projects are: {}",
            list(before.into_iter())
        ));
    }
    Ok(projects)
}

fn tagged(projects: Vec<ProjectConfig>, query: &TagQuery, facts: &Facts<'_>) -> Result<Vec<ProjectConfig>, NoSchedule> {
    let mut known: Vec<&str> = configured(facts).flat_map(|project| &project.tags).map(String::as_str).collect();
    known.sort_unstable();
    known.dedup();
    if let Some(unknown) = query.tags().into_iter().find(|tag| !known.contains(tag)) {
        if is_silent(facts) {
            return Err(NoSchedule::Silent);
        }
        let known = list(nearest_first(unknown, known.into_iter()).into_iter().map(|tag| format!("`{tag}`")));
        let there_are = match known.is_empty() {
            true => "none that is configured for this base branch has `tags`".to_owned(),
            false => format!("there are: {known}"),
        };
        return refuse(format!("no project has the tag `{unknown}` of `--tag`; {there_are}"));
    }
    let label = |project: &ProjectConfig| match project.tags.is_empty() {
        true => format!("`{}` (without tags)", project.id.label()),
        false => format!("`{}` ({})", project.id.label(), project.tags.join(", ")),
    };
    let (chosen, others): (Vec<_>, Vec<_>) = projects.into_iter().partition(|project| query.holds(&project.tags));
    match chosen.is_empty() && !others.is_empty() {
        true if is_silent(facts) => Err(NoSchedule::Silent),
        true => refuse(format!(
            "no project matches `--tag {}`; without it, the projects are: {}",
            clip(&query.to_string()),
            list(others.iter().map(label))
        )),
        false => Ok(chosen),
    }
}

fn configured<'a>(facts: &Facts<'a>) -> impl Iterator<Item = &'a ProjectConfig> + use<'a> {
    facts.repo_config.into_iter().flat_map(|config| &config.projects)
}

fn nothing_excluded<T>(text: &str, facts: &Facts<'_>) -> Result<T, NoSchedule> {
    let labels: Vec<String> = configured(facts).map(|project| project.id.label()).collect();
    let labels = nearest_first(text, labels.iter().map(String::as_str));
    let there_are = match labels.is_empty() {
        true => "give a directory of the repository".to_owned(),
        false => format!("there are: {}", list(labels.into_iter().map(|label| format!("`{label}`")))),
    };
    refuse(format!("`--except {}` matches no project; {there_are}", clip(text)))
}

/// A value of `--except`: a name or directory, or a glob of them. A glob stays one if a directory has the very name: a pull request that adds
/// such a directory must not bring back what a person leaves out.
struct Excluded {
    name: String,
    dir: String,
    glob: Option<Glob>,
}

impl Excluded {
    fn new(text: &str) -> Result<Excluded, NoSchedule> {
        let from_root = text.trim_start_matches('/').trim_start_matches("./");
        let glob = is_glob(text).then(|| Glob::new(from_root)).transpose();
        let glob = glob.or_else(|error| refuse(format!("`--except`: {error}; fix it")))?;
        Ok(Excluded { name: text.to_owned(), dir: clean(from_root), glob })
    }

    fn means(&self, project: &ProjectConfig) -> bool {
        let name = project.id.name.as_deref();
        name == Some(&self.name)
            || project.id.dir == self.dir
            || project.link.as_ref() == Some(&self.dir)
            || self
                .glob
                .as_ref()
                .is_some_and(|glob| name.is_some_and(|name| glob.matches(name)) || means(glob, project))
    }

    /// Returns true if a project that is not selected, or a directory, has the name.
    fn is_anywhere(&self, facts: &Facts<'_>) -> bool {
        let is_dir = |glob: &Glob| facts.tree.dirs().iter().any(|dir| glob.matches(dir));
        facts.tree.is_dir(&self.dir)
            || self.glob.as_ref().is_some_and(is_dir)
            || configured(facts).any(|project| self.means(project))
    }
}
