//! Gitea's JSON shapes of the state (modules/structs, services/convert).

use super::super::state::{CommentState, IssueState, PullState, RepoState, State};
use super::access::{is_admin, is_writer, level as level_of};
use super::merging;
use serde_json::{Value, json};

/// The time that stands for none.
pub(super) const NEVER: &str = "0001-01-01T00:00:00Z";

/// Prefixes of the titles of drafts, in any case (modules/setting/repository.go, `WorkInProgressPrefixes`).
const DRAFT_PREFIXES: [&str; 2] = ["WIP:", "[WIP]"];

/// Writes a time of the state: whole seconds, with the offset of the instance.
pub(super) fn time(state: &State, moment: &str) -> String {
    let Ok(moment) = moment.parse::<jiff::Timestamp>() else { return NEVER.to_owned() };
    match state.gitea.offset_hours {
        0 => moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        hours => {
            let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(hours));
            moment.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
        }
    }
}

/// Checks for a draft by its title.
pub(super) fn has_draft_prefix(title: &str) -> bool {
    DRAFT_PREFIXES
        .iter()
        .any(|prefix| title.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)))
}

/// The title without the prefix of a draft.
pub(super) fn without_draft_prefix(title: &str) -> &str {
    let prefix = DRAFT_PREFIXES
        .iter()
        .find(|prefix| title.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)));
    prefix.and_then(|prefix| title.get(prefix.len()..)).unwrap_or(title).trim_start()
}

/// The title of a pull request with the prefix of a draft.
pub(super) fn title(pull: &PullState) -> String {
    if pull.draft && !has_draft_prefix(&pull.title) { format!("WIP: {}", pull.title) } else { pull.title.clone() }
}

fn is_draft(pull: &PullState) -> bool {
    pull.draft || has_draft_prefix(&pull.title)
}

/// Number that stands for a name without an account.
pub(super) fn number_of(name: &str) -> u64 {
    name.bytes().fold(7, |sum: u64, byte| (sum * 31 + u64::from(byte.to_ascii_lowercase())) % 1_000_003)
}

/// A user or an organization: `toUser` of services/convert/user.go.
pub(super) fn user(url: &str, state: &State, login: &str) -> Value {
    let known = state.users.get(&login.to_lowercase());
    let (id, login) = known.map_or_else(|| (number_of(login), login), |user| (user.id, user.login.as_str()));
    let email = known.map_or_else(String::new, |_| format!("{id}+{login}@noreply.localhost"));
    json!({
        "id": id, "login": login, "login_name": "", "source_id": 0, "full_name": "", "email": email,
        "avatar_url": format!("{url}/avatars/{id}"), "html_url": format!("{url}/{login}"), "language": "", "is_admin": false,
        "last_login": NEVER, "created": "2026-01-01T00:00:00Z", "restricted": false, "active": false, "prohibit_login": false,
        "location": "", "website": "", "description": "", "visibility": "public", "followers_count": 0, "following_count": 0,
        "starred_repos_count": 0, "username": login,
    })
}

/// A user as somebody sees it: people see more of themselves.
pub(super) fn viewed(url: &str, state: &State, login: &str, viewer: &str) -> Value {
    let mut body = user(url, state, login);
    if login.eq_ignore_ascii_case(viewer) {
        body["active"] = true.into();
        body["email"] = format!("{login}@sandbox.invalid").into();
        body["last_login"] = "1970-01-01T00:00:00Z".into();
    }
    body
}

/// Address of a repository in the API.
pub(super) fn api(url: &str, repo: &RepoState) -> String {
    format!("{url}/api/v1/repos/{}", repo.full_name())
}

/// Address of a repository's page.
pub(super) fn web(url: &str, repo: &RepoState) -> String {
    format!("{url}/{}", repo.full_name())
}

/// A repository with the permissions of somebody of this level: `ToRepo` of services/convert/repository.go.
pub(super) fn repo(url: &str, state: &State, repo: &RepoState, level: &str) -> Value {
    let (api, web, host) = (api(url, repo), web(url, repo), url.split("://").nth(1).unwrap_or_default());
    let host = host.split(':').next().unwrap_or_default();
    let open_issues = repo.issues.iter().filter(|issue| issue.open).count();
    let open_pulls = repo.pulls.iter().filter(|pull| pull.open).count();
    let mut body = json!({
        "id": repo.id, "owner": user(url, state, &repo.owner), "name": repo.name, "full_name": repo.full_name(), "description": "",
        "empty": false, "private": true, "fork": repo.parent.is_some(), "template": false, "mirror": false, "size": repo.size_kib,
        "language": "", "languages_url": format!("{api}/languages"), "html_url": web, "url": api, "link": "",
        "ssh_url": format!("git@{host}:{}.git", repo.full_name()), "clone_url": format!("{web}.git"), "original_url": "", "website": "",
        "stars_count": 0, "open_issues_count": open_issues, "open_pr_counter": open_pulls, "release_counter": 0, "default_branch": "main",
        "archived": false, "created_at": time(state, &repo.created_at), "updated_at": time(state, &repo.created_at),
        "archived_at": "1970-01-01T00:00:00Z",
        "permissions": {"admin": is_admin(level), "push": is_writer(level), "pull": level != "none"},
    });
    let settings = json!({
        "has_code": true, "has_issues": !repo.issues_disabled, "has_pull_requests": true, "ignore_whitespace_conflicts": false,
        "allow_merge_commits": repo.allow_merge_commit, "allow_rebase": repo.allow_rebase_merge,
        "allow_rebase_explicit": repo.allow_rebase_merge, "allow_squash_merge": repo.allow_squash_merge,
        "allow_fast_forward_only_merge": repo.allow_rebase_merge, "allow_rebase_update": true, "allow_manual_merge": false,
        "autodetect_manual_merge": false, "default_delete_branch_after_merge": false, "default_merge_style": "merge",
        "default_allow_maintainer_edit": true, "avatar_url": "", "internal": false, "mirror_interval": "",
        "object_format_name": "sha1", "mirror_updated": NEVER, "topics": [], "licenses": [],
    });
    if let (Some(body), Value::Object(settings)) = (body.as_object_mut(), settings) {
        body.extend(settings);
    }
    if let Some(parent) = repo.parent.as_deref().and_then(|parent| state.repo(parent).ok()) {
        body["parent"] = self::repo(url, state, parent, level);
    }
    body
}

/// A label: `ToLabel` of services/convert/issue.go.
fn label(url: &str, of: &RepoState, name: &str) -> Value {
    let id = number_of(name);
    json!({"id": id, "name": name, "exclusive": false, "is_archived": false, "color": "ededed", "description": "",
        "url": format!("{}/labels/{id}", api(url, of))})
}

fn labels(url: &str, repo: &RepoState, names: &[String]) -> Vec<Value> {
    names.iter().map(|name| label(url, repo, name)).collect()
}

/// Address of a pull request's page.
pub(super) fn page(url: &str, repo: &RepoState, pull: &PullState) -> String {
    format!("{}/pulls/{}", web(url, repo), pull.number)
}

fn state_word(is_open: bool) -> &'static str {
    if is_open { "open" } else { "closed" }
}

/// A pull request as somebody sees it: `ToAPIPullRequest` of services/convert/pull.go. The address `url` is that of the page.
pub(super) fn pull(url: &str, state: &State, repo: &RepoState, pull: &PullState, viewer: &str) -> Value {
    let facts = state.gitea.pulls.get(&pull.id);
    let measure = facts.map(|facts| &facts.measure);
    let page = page(url, repo, pull);
    let (merge_commit, merged_by) = pull.merged.clone().unzip();
    let closed_at = pull.closed_at.as_deref().map(|at| time(state, at));
    let base_tip = merge_commit.as_ref().or(measure.map(|measure| &measure.base)).unwrap_or(&pull.base_sha);
    let mut body = json!({
        "id": pull.id, "url": page, "number": pull.number, "user": viewed(url, state, &pull.author, viewer), "title": title(pull), "body": pull.body,
        "labels": labels(url, repo, &pull.labels), "milestone": null, "assignee": null, "assignees": [],
        "state": state_word(pull.open), "draft": is_draft(pull), "is_locked": false,
        "comments": pull.comments.len(), "html_url": page, "diff_url": format!("{page}.diff"), "patch_url": format!("{page}.patch"),
        "mergeable": merging::is_mergeable(state, pull), "merged": pull.merged.is_some(),
        "merged_at": closed_at.as_ref().filter(|_| pull.merged.is_some()), "merge_commit_sha": merge_commit,
        "merged_by": merged_by.map(|login| user(url, state, &login)), "allow_maintainer_edit": true, "due_date": null,
        "created_at": time(state, &pull.created_at), "updated_at": time(state, &pull.updated_at), "closed_at": closed_at, "pin_order": 0,
        "base": {"label": pull.base_ref, "ref": pull.base_ref, "sha": base_tip, "repo_id": repo.id,
            "repo": self::repo(url, state, repo, level_of(repo, viewer))},
        "head": head(url, state, pull, viewer),
    });
    if let Some(measure) = measure {
        body["merge_base"] = json!(measure.merge_base);
    }
    // Without the head's repository there are no counts.
    if let Some(measure) = measure.filter(|_| state.repo(&pull.head_repo).is_ok()) {
        body["additions"] = measure.additions.into();
        body["deletions"] = measure.deletions.into();
        body["changed_files"] = measure.changed_files.into();
    }
    body
}

/// The head of a pull request. Without its branch it is the ref of the pull request, without its fork also the repository is missing.
fn head(url: &str, state: &State, pull: &PullState, viewer: &str) -> Value {
    let is_gone = state.gitea.pulls.get(&pull.id).is_some_and(|facts| facts.is_branch_gone);
    let source = state.repo(&pull.head_repo).ok();
    let own_ref = state.kind.pull_ref(pull.number).filter(|_| source.is_none() || is_gone);
    let reference = own_ref.unwrap_or_else(|| pull.head_ref.clone());
    let repo_id = source.map_or(-1, |source| i64::try_from(source.id).unwrap_or_default());
    let repo = source.map(|source| repo(url, state, source, level_of(source, viewer)));
    json!({"label": pull.head_ref, "ref": reference, "sha": pull.head_sha, "repo_id": repo_id, "repo": repo})
}

/// Fields that an issue and a pull request share: `toIssue` of services/convert/issue.go.
fn thread(url: &str, repo: &RepoState, (id, number, is_pull): (u64, u64, bool)) -> Value {
    let word = if is_pull { "pulls" } else { "issues" };
    json!({
        "id": id, "url": format!("{}/issues/{number}", api(url, repo)), "html_url": format!("{}/{word}/{number}", web(url, repo)),
        "number": number, "original_author": "", "original_author_id": 0, "ref": "", "assets": [], "milestone": null, "assignee": null,
        "assignees": null, "is_locked": false, "due_date": null, "time_estimate": 0, "pin_order": 0,
        "repository": {"id": repo.id, "name": repo.name, "owner": repo.owner, "full_name": repo.full_name()},
    })
}

/// A pull request as an issue.
pub(super) fn pull_as_issue(url: &str, state: &State, repo: &RepoState, pull: &PullState, viewer: &str) -> Value {
    let mut body = thread(url, repo, (pull.id, pull.number, true));
    let closed_at = pull.closed_at.as_deref().map(|at| time(state, at));
    body["user"] = viewed(url, state, &pull.author, viewer);
    body["title"] = title(pull).into();
    body["body"] = pull.body.clone().into();
    body["labels"] = labels(url, repo, &pull.labels).into();
    body["state"] = state_word(pull.open).into();
    body["comments"] = pull.comments.len().into();
    body["created_at"] = time(state, &pull.created_at).into();
    body["updated_at"] = time(state, &pull.updated_at).into();
    body["pull_request"] = json!({"merged": pull.merged.is_some(), "merged_at": closed_at.as_ref().filter(|_| pull.merged.is_some()),
        "draft": is_draft(pull), "html_url": page(url, repo, pull)});
    body["closed_at"] = json!(closed_at);
    body
}

/// An issue that is no pull request.
pub(super) fn issue(url: &str, state: &State, repo: &RepoState, issue: &IssueState, viewer: &str) -> Value {
    let mut body = thread(url, repo, (issue.id, issue.number, false));
    body["user"] = viewed(url, state, &issue.author, viewer);
    body["title"] = issue.title.clone().into();
    body["body"] = issue.body.clone().into();
    body["labels"] = labels(url, repo, &issue.labels).into();
    body["state"] = state_word(issue.open).into();
    body["comments"] = issue.comments.len().into();
    body["created_at"] = time(state, &issue.created_at).into();
    body["updated_at"] = time(state, &issue.updated_at).into();
    body["pull_request"] = Value::Null;
    body["closed_at"] = json!(issue.closed_at.as_deref().map(|at| time(state, at)));
    body
}

/// A comment: `ToAPIComment` of services/convert/issue_comment.go.
pub(super) fn comment(
    url: &str,
    state: &State,
    repo: &RepoState,
    (number, is_pull): (u64, bool),
    comment: &CommentState,
) -> Value {
    let word = if is_pull { "pulls" } else { "issues" };
    let page = format!("{}/{word}/{number}", web(url, repo));
    let (of_pull, of_issue) = if is_pull { (page.as_str(), "") } else { ("", page.as_str()) };
    json!({
        "id": comment.id, "html_url": format!("{page}#issuecomment-{}", comment.id), "pull_request_url": of_pull, "issue_url": of_issue,
        "user": user(url, state, &comment.author), "original_author": "", "original_author_id": 0, "body": comment.body, "assets": [],
        "created_at": time(state, &comment.created_at), "updated_at": time(state, &comment.updated_at),
    })
}
