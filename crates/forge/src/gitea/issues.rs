//! Issues (routers/api/v1/repo/issue.go). Pull requests are issues too.

use super::super::{issue, timestamp};
use super::api::{RepoCall, created, no_route, ok};
use super::{Refusal, Result, access, shapes};
use http::StatusCode;

impl RepoCall<'_> {
    pub(super) fn of_issues(&self, method: &str, rest: &[&str]) -> Result {
        match (method, rest) {
            ("GET", []) => self.issues(),
            ("POST", []) => self.create_issue(),
            (method, ["comments", id, rest @ ..]) => self.of_comment(method, id, rest),
            (method, [number, rest @ ..]) => {
                let number = number.parse().map_err(|_| Refusal::not_found())?;
                match (method, rest) {
                    ("GET", []) => ok(self.shaped_issue(number, true)?),
                    ("PATCH", []) => self.change_issue(number),
                    ("GET", ["comments"]) => self.comments(number),
                    ("POST", ["comments"]) => self.create_comment(number),
                    _ => Err(no_route()),
                }
            }
            _ => Err(no_route()),
        }
    }

    /// Refuses requests about issues where there are none: `CanRead` of their unit fails.
    fn check_issues(&self) -> Result<()> {
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
        if repo.issues_disabled { Err(Refusal::not_found()) } else { Ok(()) }
    }

    /// Lists issues and pull requests, the newest first, or those of one `type`.
    fn issues(&self) -> Result {
        let kind = self.call.asked("type").unwrap_or_default();
        if kind == "issues" {
            self.check_issues()?;
        }
        let (creator, wanted) = (self.call.asked("created_by"), self.call.asked("state").unwrap_or("open"));
        let viewer = &self.call.login;
        let rows = {
            let state = self.call.shared.lock();
            if let Some(login) = creator.filter(|login| !state.users.contains_key(&login.to_lowercase())) {
                return Err(Refusal::absent(Some(format!("user does not exist [uid: 0, name: {login}]"))));
            }
            let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
            let is_wanted = |author: &str, open: bool| {
                let in_state = wanted == "all" || (wanted == "open") == open;
                in_state && creator.is_none_or(|creator| creator.eq_ignore_ascii_case(author))
            };
            let pulls = repo.pulls.iter().filter(|pull| kind != "issues" && is_wanted(&pull.author, pull.open));
            let mut rows: Vec<_> = pulls
                .map(|pull| (pull.number, shapes::pull_as_issue(self.url(), &state, repo, pull, viewer)))
                .collect();
            let has_issues = kind != "pulls" && !repo.issues_disabled;
            let issues = repo.issues.iter().filter(|issue| has_issues && is_wanted(&issue.author, issue.open));
            rows.extend(issues.map(|issue| (issue.number, shapes::issue(self.url(), &state, repo, issue, viewer))));
            rows.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
            rows.into_iter().map(|(_, row)| row).collect()
        };
        self.call.page(rows)
    }

    /// An issue or a pull request. Issues of a repository without issues are shown only to those who have changed them.
    fn shaped_issue(&self, number: u64, is_hidden: bool) -> Result<serde_json::Value> {
        let viewer = &self.call.login;
        let state = self.call.shared.lock();
        let repo = state.repo(&self.full_name).map_err(|_| Refusal::not_found())?;
        if let Some(pull) = repo.pulls.iter().find(|pull| pull.number == number) {
            return Ok(shapes::pull_as_issue(self.url(), &state, repo, pull, viewer));
        }
        let issue =
            repo.issues.iter().find(|issue| issue.number == number).filter(|_| !(repo.issues_disabled && is_hidden));
        issue.map(|issue| shapes::issue(self.url(), &state, repo, issue, viewer)).ok_or_else(Refusal::not_found)
    }

    /// Opens an issue, as an administrator also in a repository without issues: `reqRepoReader` of routers/api/v1/api.go lets them pass.
    /// Labels are numbers here, and the forge has none.
    fn create_issue(&self) -> Result {
        let title = self.call.required("title", "Title")?;
        if self.check_issues().is_err() && !access::is_admin(&self.level()) {
            let text = "user should have specific read permission or be a repo admin or a site admin";
            return Err(Refusal::forbidden(text));
        }
        let body = self.call.text("body").unwrap_or_default();
        let number = self.call.shared.change(|state| {
            issue::open(state, &self.full_name, &self.call.login, &title, &body, Vec::new())
                .map_err(|error| Refusal::broken(&error))
        })?;
        created(self.shaped_issue(number, false)?)
    }

    /// Changes an issue as its author or somebody who may write; others get 403 without a body (`EditIssue`).
    fn change_issue(&self, number: u64) -> Result {
        let can_write = access::is_writer(&self.level());
        let (title, body, to) = (self.call.text("title"), self.call.text("body"), self.call.text("state"));
        self.call.shared.change(|state| {
            let repo = state.repo_mut(&self.full_name).map_err(|_| Refusal::not_found())?;
            let found = issue::find_mut(repo, number).ok_or_else(Refusal::not_found)?;
            if found.author != self.call.login && !can_write {
                return Err(Refusal::bare(StatusCode::FORBIDDEN));
            }
            found.title = title.filter(|title| !title.is_empty()).unwrap_or_else(|| found.title.clone());
            found.body = body.unwrap_or_else(|| found.body.clone());
            found.updated_at = timestamp();
            if let Some(to) = to.filter(|to| (to == "open") != found.open) {
                issue::set_open(found, to == "open");
            }
            Ok(())
        })?;
        created(self.shaped_issue(number, false)?)
    }
}
