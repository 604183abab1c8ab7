//! `--tag` and `--except`: leave selected projects out. They never add one, and decide nothing but what a command runs on.

use super::target::{clip, is_silent, list, nearest_first, refuse};
use super::{Facts, NoSchedule};
use crate::config::ProjectConfig;
use crate::config::excluded::Excluded;
use crate::domain::command::Target;
use crate::domain::tags::TagQuery;

/// Returns the projects that `--tag` and `--except` leave. A tag that no project has is refused, and a glob that matches nothing: either may
/// be a typing error, with which the command would run on more than is meant.
pub(super) fn narrow(
    mut projects: Vec<ProjectConfig>,
    target: &Target,
    facts: &Facts<'_>,
) -> Result<Vec<ProjectConfig>, NoSchedule> {
    if let Some(query) = &target.tag {
        projects = tagged(projects, query, facts)?;
    }
    if target.except.is_empty() {
        return Ok(projects);
    }
    let before: Vec<String> = projects.iter().map(|project| format!("`{}`", project.id.label())).collect();
    for text in &target.except {
        let real_dir = |dir: &str| facts.tree.resolve(dir).map(|real| real.path);
        let excluded = Excluded::new(text, real_dir).or_else(|error| refuse(format!("`--except`: {error}; fix it")))?;
        let selected = projects.len();
        projects.retain(|project| !excluded.means(&project.id, project.link.as_deref()));
        if projects.len() == selected && !is_anywhere(&excluded, facts) {
            return if is_silent(facts) { Err(NoSchedule::Silent) } else { nothing_excluded(text, facts) };
        }
    }
    if projects.is_empty() && !before.is_empty() {
        let text = list(target.except.iter().map(|text| format!("`--except {}`", clip(text))));
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

/// Returns true if a project that is not selected, or a directory, is meant.
fn is_anywhere(excluded: &Excluded, facts: &Facts<'_>) -> bool {
    configured(facts).any(|project| excluded.means(&project.id, project.link.as_deref()))
        || facts.tree.dirs().iter().any(|dir| excluded.covers(dir))
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
