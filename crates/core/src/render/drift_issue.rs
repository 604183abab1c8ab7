//! Text of issues about drift: title, text and closing comment, with their markers.

use super::{RenderOptions, markdown, marker};
use crate::domain::command::CommandName;
use crate::domain::drift::ProjectDrift;
use crate::domain::drift_issue::{DriftIssue, subject_key};
use crate::domain::outcome::PlanSummary;
use crate::domain::{CommitSha, ProjectId, RepoId};
use crate::wording::command_line;
use jiff::Timestamp;

/// Longest plan in an issue, in characters; the rest is in the log.
const MAX_PLAN: usize = 20_000;
/// Longest name of a project, a workspace or a branch in a title, in characters. Titles of hosts have at least 250.
const MAX_IN_TITLE: usize = 60;

/// Reason for which the server closes an issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssueEnd<'a> {
    /// A check has found no drift.
    NoDrift(&'a ProjectDrift),
    /// The branch does not have the project any more.
    ProjectGone,
    /// The schedule leaves the project out now.
    NotIncluded,
    /// The schedule is for another branch now.
    OtherBranch,
    /// The repository has no schedule with issues any more.
    SwitchedOff,
}

/// Returns the title of the issue about a project on a branch, at most 250 characters.
pub fn title(branch: &str, project: &ProjectId) -> String {
    let ProjectId { dir, workspace, name } = project;
    let of_workspace = match workspace.as_str() {
        "default" => String::new(),
        workspace => format!(" (workspace {})", in_title(workspace)),
    };
    format!("Drift: {}{of_workspace} on {}", in_title(name.as_ref().unwrap_or(dir)), in_title(branch))
}

/// Returns a name as inline code for a title, where HTML and escapes are shown as they are.
fn in_title(name: &str) -> String {
    let flat = markdown::clean(name).replace('`', "'").split_whitespace().collect::<Vec<_>>().join(" ");
    format!("`{}`", markdown::shorten(&flat, MAX_IN_TITLE))
}

/// Returns the text of the issue about a drift that was first found at `since`. `output` is the text of the plan.
pub fn body(found: &ProjectDrift, output: &str, since: Timestamp, options: &RenderOptions) -> String {
    let ProjectDrift { repo, branch, project, .. } = found;
    let place = match project.workspace.as_str() {
        "default" => markdown::code(&project.dir),
        workspace => format!("{}, workspace {}", markdown::code(&project.dir), markdown::code(workspace)),
    };
    let named = project.name.as_ref().map(|name| format!("{}, in ", markdown::code(name))).unwrap_or_default();
    let totals = found.finding.summary().map(totals).unwrap_or_default();
    let plan = markdown::output(&first_lines(output, options), "", "Plan", options.folding());
    let apply = command_line(&options.executable, CommandName::Apply.as_str(), Some(project), &[], &[]);
    format!(
        "The real resources of the project {named}{place} do not match the code of {}: **{totals}**.\n\n\
         {}\n\n{plan}\n\n\
         **What to do:** to keep the resources as they are, open a pull request that changes the code of the project to match them. To \
         make them match the code again, open a pull request that touches the project, and apply it there: {}\n\n\
         First found {}. This text is of the check of {} at commit {}. The server updates it if the drift changes, and closes the issue \
         when a check finds no drift.\n\n{}",
        markdown::code(branch),
        links(found, options),
        markdown::code(&apply),
        time(since),
        time(found.checked),
        commit(repo, &found.commit, options),
        marker::of_drift_issue(&subject_key(branch, project)),
    )
}

/// Returns the comment with which the server closes an issue.
pub fn closing(issue: &DriftIssue, end: IssueEnd<'_>, options: &RenderOptions) -> String {
    let text = match end {
        IssueEnd::NoDrift(found) => format!(
            "There is no drift any more: the check of {} at commit {} found none.",
            time(found.checked),
            commit(&found.repo, &found.commit, options)
        ),
        IssueEnd::ProjectGone => {
            format!("The branch {} does not have this project any more.", markdown::code(&issue.branch))
        }
        IssueEnd::NotIncluded => "`drift.projects` in `repos.yaml` does not include this project any more.".to_owned(),
        IssueEnd::OtherBranch => "`drift` in `repos.yaml` is about another branch now.".to_owned(),
        IssueEnd::SwitchedOff => {
            "`repos.yaml` does not ask for issues about the drift of this repository any more.".to_owned()
        }
    };
    format!("{text}\n\n{}", marker::of_closing(&issue.id))
}

/// Returns links to the log and to the server's pages about the project.
fn links(found: &ProjectDrift, options: &RenderOptions) -> String {
    let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let repo = found.repo.to_string();
    let path: Vec<String> = repo.split('/').map(|part| encoded(part).replace('+', "%20")).collect();
    let ProjectId { dir, workspace, .. } = &found.project;
    let project =
        format!("{}/projects/{}?dir={}&workspace={}", options.url, path.join("/"), encoded(dir), encoded(workspace));
    let log = found.job.as_ref().map(|job| markdown::link("Log of the plan", &format!("{}/jobs/{job}", options.url)));
    let pages = [
        markdown::link("Project", &project),
        markdown::link("Drift of the repository", &format!("{}/drift?repository={}", options.url, encoded(&repo))),
    ];
    log.into_iter().chain(pages).collect::<Vec<_>>().join(" · ")
}

/// Returns the first lines of a plan, as many as an issue has room for.
fn first_lines(output: &str, options: &RenderOptions) -> String {
    let most = MAX_PLAN.min(options.comment_limit / 3);
    let clean = markdown::clean(output);
    match clean.char_indices().nth(most) {
        None => clean,
        Some((end, _)) => {
            let first = clean.get(..end).unwrap_or_default();
            let whole = first.rsplit_once('\n').map_or(first, |(lines, _)| lines);
            format!("{whole}\n… the rest is in the log")
        }
    }
}

fn totals(summary: &PlanSummary) -> String {
    let PlanSummary { add, change, destroy, import, forget, no_changes: _, changes_outside, outputs_only } = *summary;
    let counts =
        [(import, "to import"), (add, "to add"), (change, "to change"), (destroy, "to destroy"), (forget, "to forget")];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}"));
    let outputs = outputs_only.then(|| "changes of outputs".to_owned());
    let outside = changes_outside.then(|| "changed outside of Terraform".to_owned());
    counts.chain(outputs).chain(outside).collect::<Vec<_>>().join(", ")
}

fn commit(repo: &RepoId, commit: &CommitSha, options: &RenderOptions) -> String {
    let url = options.commit_address.as_ref().and_then(|address| address.url_of(repo, commit));
    url.map_or_else(|| markdown::code(commit.short()), |url| markdown::link(commit.short(), &url))
}

fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_short_line_without_markup() {
        let of = |dir: &str, workspace: &str, name: Option<&str>| {
            let project = ProjectId { dir: dir.into(), workspace: workspace.into(), name: name.map(str::to_owned) };
            title("main", &project)
        };
        assert_eq!(of("net", "default", None), "Drift: `net` on `main`");
        assert_eq!(of("net", "prod", Some("network")), "Drift: `network` (workspace `prod`) on `main`");
        assert_eq!(of("a`b\n#1 @x\u{202e}", "default", None), "Drift: `a'b #1 @x` on `main`");
        let long = "x".repeat(5000);
        let longest = title(&long, &ProjectId { dir: long.clone(), workspace: long.clone(), name: None });
        assert!(longest.chars().count() <= 250, "{longest}");
    }

    #[test]
    fn totals_name_all_that_differs() {
        let none = PlanSummary::default();
        assert_eq!(totals(&PlanSummary { add: 1, destroy: 2, ..none }), "1 to add, 2 to destroy");
        assert_eq!(totals(&PlanSummary { outputs_only: true, ..none }), "changes of outputs");
        assert_eq!(
            totals(&PlanSummary { changes_outside: true, no_changes: true, ..none }),
            "changed outside of Terraform"
        );
    }
}
