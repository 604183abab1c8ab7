//! Issues of a repository: acts of people, and what tests read.

use super::pull::Comment;
use super::repo::Repo;
use super::state::{IssueState, RepoState, State};
use super::timestamp;
use anyhow::{Context as _, bail};

/// Longest title of GitHub, in characters.
const MAX_TITLE: usize = 256;
/// Longest text of an issue or a comment, in characters.
const MAX_BODY: usize = super::comments::MAX_COMMENT;

/// An issue that is no pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Number; pull requests share the sequence.
    pub number: u64,
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: String,
    /// Login of its author.
    pub author: String,
    /// True if it is not closed.
    pub open: bool,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// Comments, oldest first.
    pub comments: Vec<Comment>,
}

impl From<&IssueState> for Issue {
    fn from(issue: &IssueState) -> Issue {
        Issue {
            number: issue.number,
            title: issue.title.clone(),
            body: issue.body.clone(),
            author: issue.author.clone(),
            open: issue.open,
            labels: issue.labels.clone(),
            comments: issue.comments.iter().map(Comment::from).collect(),
        }
    }
}

impl Repo {
    /// All issues that are no pull requests, oldest first.
    pub fn issues(&self) -> anyhow::Result<Vec<Issue>> {
        Ok(self.forge.shared.lock().repo(&self.full_name)?.issues.iter().map(Issue::from).collect())
    }

    /// Opens an issue as this person and returns its number.
    pub fn open_issue(&self, user: &str, title: &str, body: &str) -> anyhow::Result<u64> {
        self.forge.credentials(user)?;
        self.forge.shared.change(|state| open(state, &self.full_name, user, title, body, Vec::new()))
    }

    /// Closes an issue, as a person does.
    pub fn close_issue(&self, number: u64) -> anyhow::Result<()> {
        self.forge.shared.change(|state| {
            let issue = find_mut(state.repo_mut(&self.full_name)?, number).context("there is no such issue")?;
            set_open(issue, false);
            Ok(())
        })
    }

    /// Switches issues of the repository off, or on again.
    pub fn disable_issues(&self, disabled: bool) -> anyhow::Result<()> {
        self.forge.shared.change(|state| {
            state.repo_mut(&self.full_name)?.issues_disabled = disabled;
            Ok(())
        })
    }
}

/// Opens an issue and returns its number. The error is the reason of a 422.
pub(super) fn open(
    state: &mut State,
    full_name: &str,
    author: &str,
    title: &str,
    body: &str,
    labels: Vec<String>,
) -> anyhow::Result<u64> {
    check_title(title)?;
    check_body(body)?;
    let (id, now) = (state.new_id(), timestamp());
    let repo = state.repo_mut(full_name)?;
    let number = repo.new_number();
    repo.issues.push(IssueState {
        id,
        number,
        title: title.to_owned(),
        body: body.to_owned(),
        author: author.to_owned(),
        open: true,
        labels,
        comments: Vec::new(),
        created_at: now.clone(),
        updated_at: now,
        closed_at: None,
    });
    Ok(number)
}

pub(super) fn find_mut(repo: &mut RepoState, number: u64) -> Option<&mut IssueState> {
    repo.issues.iter_mut().find(|issue| issue.number == number)
}

pub(super) fn set_open(issue: &mut IssueState, open: bool) {
    let now = timestamp();
    (issue.open, issue.closed_at, issue.updated_at) = (open, (!open).then(|| now.clone()), now);
}

/// Fails if GitHub refuses the title.
pub(super) fn check_title(title: &str) -> anyhow::Result<()> {
    if title.trim().is_empty() || title.chars().count() > MAX_TITLE {
        bail!("Validation Failed: title is too long (maximum is {MAX_TITLE} characters) or blank");
    }
    Ok(())
}

/// Fails if GitHub refuses the text of an issue or a comment.
pub(super) fn check_body(body: &str) -> anyhow::Result<()> {
    if body.chars().count() > MAX_BODY {
        bail!("Validation Failed: body is too long (maximum is {MAX_BODY} characters)");
    }
    Ok(())
}
