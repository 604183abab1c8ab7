//! Issues (docs.github.com/rest/issues/issues). Their list has pull requests too, each with a key `pull_request`.

use super::super::state::{CommentState, IssueState};
use super::super::{issue, shapes, timestamp};
use super::{Call, NOT_FOUND, Refusal, Result, created, invalid, ok};
use http::StatusCode;

/// Answer to requests about one issue, and to new ones, if issues are disabled: "Create an issue" documents 410 Gone. The list is answered.
const DISABLED: fn() -> Refusal = || Refusal(StatusCode::GONE, "Issues are disabled for this repo".to_owned());

impl Call<'_> {
    /// Answers a request about issues that are no pull requests; `None` if it is not about one.
    pub(super) fn of_issues(&self, method: &str, rest: &[&str]) -> Option<Result> {
        match (method, rest) {
            ("GET", ["issues"]) => Some(self.issues()),
            ("POST", ["issues"]) => Some(self.create_issue()),
            (_, ["issues", number, tail @ ..]) => {
                let number = number.parse().ok().filter(|number| self.has_issue(*number))?;
                Some(match (method, tail) {
                    ("GET", []) => self.issue(number),
                    ("PATCH", []) => self.change_issue(number),
                    ("GET", ["comments"]) => self.issue_comments(number),
                    ("POST", ["comments"]) => self.comment_issue(number),
                    _ => Err(NOT_FOUND()),
                })
            }
            _ => None,
        }
    }

    fn has_issue(&self, number: u64) -> bool {
        let state = self.shared.lock();
        state.repo(&self.full_name).is_ok_and(|repo| repo.issues.iter().any(|issue| issue.number == number))
    }

    /// Fails if issues are disabled.
    fn has_issues(&self) -> Result<()> {
        let state = self.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
        if repo.issues_disabled { Err(DISABLED()) } else { Ok(()) }
    }

    /// Returns issues and pull requests, the newest first. Without issues, pull requests alone are left.
    fn issues(&self) -> Result {
        let rows = {
            let state = self.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
            let (creator, wanted) = (self.asked("creator"), self.asked("state"));
            let is_wanted = |author: &str, open: bool| {
                let in_state = match wanted.as_deref() {
                    Some("all") => true,
                    Some("closed") => !open,
                    _ => open,
                };
                in_state && creator.as_deref().is_none_or(|creator| creator.eq_ignore_ascii_case(author))
            };
            let url = &self.shared.url;
            let pulls = repo.pulls.iter().filter(|pull| is_wanted(&pull.author, pull.open));
            let mut rows: Vec<_> = pulls.map(|pull| (pull.number, shapes::issue(url, &state, repo, pull))).collect();
            let issues =
                repo.issues.iter().filter(|issue| !repo.issues_disabled && is_wanted(&issue.author, issue.open));
            rows.extend(issues.map(|issue| (issue.number, shapes::plain_issue(url, &state, repo, issue))));
            rows.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
            rows.into_iter().map(|(_, row)| row).collect()
        };
        self.page(rows, "issues")
    }

    fn issue(&self, number: u64) -> Result {
        self.has_issues()?;
        let state = self.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
        let found = repo.issues.iter().find(|issue| issue.number == number).ok_or_else(NOT_FOUND)?;
        ok(shapes::plain_issue(&self.shared.url, &state, repo, found))
    }

    /// Labels of people without push access are silently dropped.
    fn create_issue(&self) -> Result {
        self.has_issues()?;
        let title = self.text("title").ok_or_else(|| invalid("Invalid request.\n\n\"title\" wasn't supplied."))?;
        let body = self.text("body").unwrap_or_default();
        let asked = self.body.get("labels").and_then(|labels| labels.as_array()).into_iter().flatten();
        let labels: Vec<String> = asked.filter_map(|label| label.as_str().map(str::to_owned)).collect();
        let number = self.shared.change(|state| {
            let may_label = state.repo(&self.full_name).is_ok_and(|repo| repo.can_write(&self.login));
            let labels = if may_label { labels } else { Vec::new() };
            issue::open(state, &self.full_name, &self.login, &title, &body, labels)
                .map_err(|error| invalid(error.to_string()))
        })?;
        created(self.issue(number)?.1)
    }

    /// The author of an issue and people with push access can edit it.
    fn change_issue(&self, number: u64) -> Result {
        self.has_issues()?;
        let (title, body, to) = (self.text("title"), self.text("body"), self.text("state"));
        title.as_deref().map_or(Ok(()), issue::check_title).map_err(|error| invalid(error.to_string()))?;
        body.as_deref().map_or(Ok(()), issue::check_body).map_err(|error| invalid(error.to_string()))?;
        if to.as_deref().is_some_and(|to| !["open", "closed"].contains(&to)) {
            return Err(invalid("Validation Failed: state is not included in the list"));
        }
        self.shared.change(|state| {
            let repo = state.repo_mut(&self.full_name).map_err(|_| NOT_FOUND())?;
            let can_write = repo.can_write(&self.login);
            let found = issue::find_mut(repo, number).ok_or_else(NOT_FOUND)?;
            if found.author != self.login && !can_write {
                return Err(Refusal(StatusCode::FORBIDDEN, "Must have push access to Repository.".to_owned()));
            }
            found.title = title.unwrap_or_else(|| found.title.clone());
            found.body = body.unwrap_or_else(|| found.body.clone());
            found.updated_at = timestamp();
            if let Some(to) = to.filter(|to| (to == "open") != found.open) {
                issue::set_open(found, to == "open");
            }
            Ok(())
        })?;
        self.issue(number)
    }

    fn issue_comments(&self, number: u64) -> Result {
        self.has_issues()?;
        let rows = {
            let state = self.shared.lock();
            let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
            let of_issue = |issue: &&IssueState| issue.number == number;
            let comments = repo.issues.iter().filter(of_issue).flat_map(|issue| &issue.comments);
            comments.map(|comment| shapes::comment(&self.shared.url, &state, repo, number, comment)).collect()
        };
        self.page(rows, &format!("issues/{number}/comments"))
    }

    fn comment_issue(&self, number: u64) -> Result {
        self.has_issues()?;
        let body = self.text("body").filter(|body| !body.trim().is_empty());
        let body = body.ok_or_else(|| invalid("Validation Failed: body cannot be blank"))?;
        issue::check_body(&body).map_err(|error| invalid(error.to_string()))?;
        self.shared.change(|state| {
            let (id, now) = (state.new_id(), timestamp());
            let repo = state.repo_mut(&self.full_name).map_err(|_| NOT_FOUND())?;
            let found = issue::find_mut(repo, number).ok_or_else(NOT_FOUND)?;
            found.updated_at.clone_from(&now);
            found.comments.push(CommentState {
                id,
                author: self.login.clone(),
                body,
                created_at: now.clone(),
                updated_at: now,
                reactions: Vec::new(),
                hidden: false,
            });
            let repo = state.repo(&self.full_name).map_err(|_| NOT_FOUND())?;
            let mut all = repo.issues.iter().flat_map(|issue| &issue.comments);
            let comment = all.find(|comment| comment.id == id);
            created(comment.map(|comment| shapes::comment(&self.shared.url, state, repo, number, comment)).into())
        })
    }
}
