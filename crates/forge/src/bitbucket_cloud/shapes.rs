//! Bitbucket Cloud's JSON shapes of the state, as OpenAPI and go-scm have them.

use super::super::state::{CommentState, PullState, RepoState, State};
use super::super::{BOT, HostKind};
use super::reviews;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Digits of a commit in a pull request.
const SHORT: usize = 12;

/// What a comment's `updated_on` is later than its `created_on` although nobody has edited it (go-scm, prcomment.json).
const DELAY: jiff::SignedDuration = jiff::SignedDuration::from_micros(53);

/// Writes a time of the state.
pub(super) fn time(moment: &str) -> String {
    moment.replace('Z', "+00:00")
}

/// A unique id of a number, in braces.
pub(super) fn uuid(id: u64) -> String {
    format!("{{{id:08x}-b17b-4c1d-9e00-{id:012x}}}")
}

fn hashed(text: &str) -> String {
    let mut hex = hex::encode(Sha256::digest(text.to_lowercase().as_bytes()));
    hex.truncate(32);
    for at in [8, 13, 18, 23] {
        hex.insert(at, '-');
    }
    hex
}

/// A unique id of a name, in braces: of a person or a workspace.
pub(super) fn uuid_of(name: &str) -> String {
    format!("{{{}}}", hashed(name))
}

/// Account id of a person.
pub(super) fn account_id(login: &str) -> String {
    format!("712020:{}", hashed(&format!("account of {}", login.to_lowercase())))
}

/// Login of the person with this account id or unique id.
pub(super) fn login_of(state: &State, id: &str) -> Option<String> {
    let is_it = |login: &str| account_id(login) == id || uuid_of(login) == id;
    state.users.values().find(|user| is_it(&user.login)).map(|user| user.login.clone())
}

fn encoded(text: &str) -> String {
    text.replace('{', "%7B").replace('}', "%7D")
}

/// A person, or the bot of an access token (OpenAPI, `user` and `app_user`).
pub(super) fn person(url: &str, state: &State, login: &str) -> Value {
    let known = state.users.get(&login.to_lowercase());
    let login = known.map_or(login, |user| user.login.as_str());
    let names = state.bitbucket_cloud.names.get(&login.to_lowercase());
    let (nickname, shown) = names.cloned().unwrap_or_else(|| (login.to_owned(), login.to_owned()));
    let (uuid, id) = (uuid_of(login), encoded(&uuid_of(login)));
    let avatar = json!({"href": format!("{url}/avatars/{id}")});
    if login == BOT && state.bitbucket_cloud.has_access_token {
        return json!({
            "display_name": shown, "uuid": uuid, "links": {"avatar": avatar}, "type": "app_user", "account_id": account_id(login),
            "account_status": "active", "kind": "repository_access_token", "created_on": "2026-01-01T00:00:00.000000+00:00",
        });
    }
    json!({
        "display_name": shown, "uuid": uuid, "type": "user", "nickname": nickname, "account_id": account_id(login),
        "links": {"self": {"href": format!("{url}/2.0/users/{id}")}, "html": {"href": format!("{url}/{id}/")}, "avatar": avatar},
    })
}

/// The account of a token or a person, which has more than a mention of it.
pub(super) fn account(url: &str, state: &State, login: &str) -> Value {
    let mut body = person(url, state, login);
    body["created_on"] = "2026-01-01T00:00:00.000000+00:00".into();
    body["account_status"] = "active".into();
    if body["type"] == "user" {
        body["is_staff"] = false.into();
        body["location"] = Value::Null;
    }
    body
}

pub(super) fn workspace(url: &str, name: &str) -> Value {
    json!({
        "slug": name, "type": "workspace", "name": name, "uuid": uuid_of(name), "is_private": true,
        "created_on": "2026-01-01T00:00:00.000000+00:00", "links": {"self": {"href": format!("{url}/2.0/workspaces/{name}")},
            "html": {"href": format!("{url}/{name}/")}, "avatar": {"href": format!("{url}/workspaces/{name}/avatar/")},
            "members": {"href": format!("{url}/2.0/workspaces/{name}/members")}},
    })
}

/// The access of an account to a workspace.
pub(super) fn workspace_access(url: &str, name: &str) -> Value {
    json!({
        "type": "workspace_access", "administrator": false, "workspace": {
            "type": "workspace_base", "slug": name, "uuid": uuid_of(name),
            "links": {"self": {"href": format!("{url}/2.0/workspaces/{name}")}}},
    })
}

/// Address of a repository in the API.
pub(super) fn api(url: &str, full_name: &str) -> String {
    format!("{url}/2.0/repositories/{full_name}")
}

/// A repository as other resources mention it.
pub(super) fn repo_brief(url: &str, repo: &RepoState) -> Value {
    let full_name = repo.full_name();
    json!({
        "type": "repository", "name": repo.name, "full_name": full_name, "uuid": uuid(repo.id),
        "links": {"self": {"href": api(url, &full_name)}, "html": {"href": format!("{url}/{full_name}")},
            "avatar": {"href": format!("{url}/ravatar/{}", encoded(&uuid(repo.id)))}},
    })
}

/// A repository as deliveries have it (go-scm, pr_comment_created.json).
pub(super) fn repo_event(url: &str, state: &State, repo: &RepoState) -> Value {
    let mut body = repo_brief(url, repo);
    let owner = &repo.owner;
    body["scm"] = "git".into();
    body["website"] = Value::Null;
    body["is_private"] = true.into();
    body["owner"] = match state.users.get(&owner.to_lowercase()) {
        Some(user) => person(url, state, &user.login),
        None => json!({
            "display_name": owner, "uuid": uuid_of(owner), "type": "team", "username": owner,
            "links": {"self": {"href": format!("{url}/2.0/workspaces/{owner}")}, "html": {"href": format!("{url}/{owner}/")},
                "avatar": {"href": format!("{url}/account/{owner}/avatar/")}},
        }),
    };
    body["workspace"] = workspace(url, owner);
    body["project"] = json!({
        "type": "project", "name": owner, "key": "MAIN", "uuid": uuid_of(&format!("{owner} MAIN")),
        "links": {"self": {"href": format!("{url}/2.0/workspaces/{owner}/projects/MAIN")},
            "html": {"href": format!("{url}/{owner}/workspace/projects/MAIN")},
            "avatar": {"href": format!("{url}/account/user/{owner}/projects/MAIN/avatar/32")}},
    });
    body
}

/// A repository of the API.
pub(super) fn repo(url: &str, state: &State, repo: &RepoState) -> Value {
    let mut body = repo_event(url, state, repo);
    let (full_name, address) = (repo.full_name(), api(url, &repo.full_name()));
    let host = url.split("://").nth(1).unwrap_or_default();
    for name in ["watchers", "commits", "hooks", "forks", "downloads", "pullrequests"] {
        body["links"][name] = json!({"href": format!("{address}/{name}")});
    }
    body["links"]["branches"] = json!({"href": format!("{address}/refs/branches")});
    body["links"]["tags"] = json!({"href": format!("{address}/refs/tags")});
    body["links"]["source"] = json!({"href": format!("{address}/src")});
    body["links"]["clone"] = json!([
        {"name": "https", "href": format!("{url}/{full_name}.git")},
        {"name": "ssh", "href": format!("git@{host}:{full_name}.git")},
    ]);
    let more = json!({
        "slug": repo.name, "description": "", "language": "", "has_issues": !repo.issues_disabled, "has_wiki": false,
        "fork_policy": "allow_forks", "mainbranch": {"type": "branch", "name": "main"}, "size": repo.size_kib * 1024,
        "created_on": time(&repo.created_at), "updated_on": time(&repo.created_at),
        "parent": repo.parent.as_deref().and_then(|parent| state.repo(parent).ok()).map(|parent| repo_brief(url, parent)),
    });
    if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
        body.extend(more);
    }
    body
}

/// The permission of a person in a repository (OpenAPI, `repository_permission`).
pub(super) fn permission(url: &str, state: &State, repo: &RepoState, login: &str, level: &str) -> Value {
    json!({
        "type": "repository_permission", "permission": level, "user": person(url, state, login), "repository": repo_brief(url, repo),
    })
}

/// The first digits of a commit.
pub(super) fn short(commit: &str) -> &str {
    commit.get(..SHORT).unwrap_or(commit)
}

/// A commit as other resources mention it, in full or with the first digits.
pub(super) fn commit_brief(url: &str, full_name: &str, commit: &str) -> Value {
    json!({
        "hash": commit, "type": "commit", "links": {"self": {"href": format!("{}/commit/{commit}", api(url, full_name))},
            "html": {"href": format!("{url}/{full_name}/commits/{commit}")}},
    })
}

/// A commit with the addresses of its parts.
pub(super) fn commit_links(url: &str, full_name: &str, commit: &str) -> Value {
    let mut body = commit_brief(url, full_name, commit);
    let address = api(url, full_name);
    for name in ["comments", "approve", "statuses"] {
        body["links"][name] = json!({"href": format!("{address}/commit/{commit}/{name}")});
    }
    for name in ["diff", "patch"] {
        body["links"][name] = json!({"href": format!("{address}/{name}/{commit}")});
    }
    body
}

/// A text, and its HTML, in which the tags of the text are text.
pub(super) fn rendered(raw: &str) -> Value {
    let escaped = raw.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let html = if raw.is_empty() { String::new() } else { format!("<p>{escaped}</p>") };
    json!({"raw": raw, "markup": "markdown", "html": html, "type": "rendered"})
}

/// Address of a pull request's page.
fn page(url: &str, full_name: &str, number: u64) -> String {
    format!("{url}{}", HostKind::BitbucketCloud.pull_page(full_name, number))
}

/// A pull request as comments mention it.
pub(super) fn pull_brief(url: &str, repo: &RepoState, pull: &PullState) -> Value {
    let (full_name, number) = (repo.full_name(), pull.number);
    json!({
        "type": "pullrequest", "id": number, "title": pull.title,
        "links": {"self": {"href": format!("{}/pullrequests/{number}", api(url, &full_name))},
            "html": {"href": page(url, &full_name, number)}},
    })
}

/// A word for the state of a pull request.
pub(super) fn state_word(pull: &PullState) -> &'static str {
    match pull {
        PullState { merged: Some(_), .. } => "MERGED",
        PullState { open: true, .. } => "OPEN",
        _ => "DECLINED",
    }
}

/// The head of a pull request. The repository is null if it is gone (runatlantis/atlantis, server/events/event_parser.go), and so may be
/// the commit (github.com/jenkinsci/bitbucket-branch-source-plugin/issues/322).
pub(super) fn source(url: &str, state: &State, pull: &PullState, commit: &str) -> Value {
    let repo = state.repo(&pull.head_repo).ok();
    let repo = repo.filter(|repo| repo.full_name().eq_ignore_ascii_case(&pull.head_repo));
    let facts = state.bitbucket_cloud.pulls.get(&pull.id);
    let commit =
        facts.is_none_or(|facts| !facts.has_no_head).then(|| commit_brief(url, &pull.head_repo, short(commit)));
    json!({
        "commit": commit, "branch": {"name": pull.head_ref},
        "repository": repo.map(|repo| repo_brief(url, repo)),
    })
}

pub(super) fn destination(url: &str, repo: &RepoState, pull: &PullState) -> Value {
    json!({
        "commit": commit_brief(url, &repo.full_name(), short(&pull.tried_with)), "branch": {"name": pull.base_ref},
        "repository": repo_brief(url, repo),
    })
}

fn links(url: &str, full_name: &str, pull: &PullState) -> Value {
    let own = format!("{}/pullrequests/{}", api(url, full_name), pull.number);
    let mut links = json!({"self": {"href": own}, "html": {"href": page(url, full_name, pull.number)}});
    for name in ["decline", "commits", "comments", "merge", "activity", "request-changes", "approve", "statuses"] {
        links[name] = json!({"href": format!("{own}/{name}")});
    }
    for name in ["diff", "diffstat"] {
        let spec = spec(full_name, pull);
        links[name] = json!({"href": format!("{}/{name}/{spec}", api(url, full_name))});
    }
    links
}

/// What the addresses of a pull request's differences end with (go-scm, pr_comment_created.json).
pub(super) fn spec(full_name: &str, pull: &PullState) -> String {
    let (head, base) = (short(&pull.head_sha), short(&pull.tried_with));
    format!("{full_name}:{head}%0D{base}?from_pullrequest_id={}&topic=true", pull.number)
}

/// A pull request. Lists leave out participants and reviewers (khbb).
pub(super) fn listed_pull(url: &str, state: &State, repo: &RepoState, pull: &PullState) -> Value {
    let full_name = repo.full_name();
    let facts = state.bitbucket_cloud.pulls.get(&pull.id);
    let merge_commit = pull.merged.as_ref().map(|(commit, _)| commit_brief(url, &full_name, short(commit)));
    let closed_by = facts.and_then(|facts| facts.closed_by.as_deref()).map(|login| person(url, state, login));
    json!({
        "type": "pullrequest", "id": pull.number, "title": pull.title, "description": pull.body, "summary": rendered(&pull.body),
        "rendered": {"title": rendered(&pull.title), "description": rendered(&pull.body)}, "state": state_word(pull),
        "draft": pull.draft, "queued": facts.is_some_and(|facts| facts.is_queued), "author": person(url, state, &pull.author),
        "source": source(url, state, pull, &pull.head_sha), "destination": destination(url, repo, pull),
        "merge_commit": merge_commit, "closed_by": closed_by,
        "close_source_branch": facts.is_some_and(|facts| facts.closes_branch),
        "reason": facts.map_or("", |facts| facts.reason.as_str()), "comment_count": pull.comments.len(),
        "task_count": facts.map_or(0, |facts| facts.open_tasks), "created_on": time(&pull.created_at),
        "updated_on": time(&pull.updated_at), "links": links(url, &full_name, pull),
    })
}

/// A pull request with participants and reviewers.
pub(super) fn pull(url: &str, state: &State, repo: &RepoState, pull: &PullState) -> Value {
    let mut body = listed_pull(url, state, repo, pull);
    body["participants"] = reviews::participants(url, state, pull).into();
    body["reviewers"] = json!([]);
    body
}

/// A comment. Its `updated_on` is a little later than its `created_on` also if nobody has edited it.
pub(super) fn comment(url: &str, state: &State, repo: &RepoState, pull: &PullState, comment: &CommentState) -> Value {
    let (full_name, number, id) = (repo.full_name(), pull.number, comment.id);
    let facts = state.bitbucket_cloud.pulls.get(&pull.id);
    let is_deleted = facts.is_some_and(|facts| facts.deleted.iter().any(|deleted| deleted.id == id));
    let mut updated = comment.updated_at.clone();
    if comment.updated_at == comment.created_at {
        let later = updated.parse::<jiff::Timestamp>().ok().and_then(|at| at.checked_add(DELAY).ok());
        updated = later.map_or(updated, super::super::kind::written);
    }
    let mut body = json!({
        "type": "pullrequest_comment", "id": id, "content": rendered(if is_deleted { "" } else { &comment.body }),
        "user": person(url, state, &comment.author), "created_on": time(&comment.created_at), "updated_on": time(&updated),
        "deleted": is_deleted, "pending": false, "pullrequest": pull_brief(url, repo, pull),
        "links": {"self": {"href": format!("{}/pullrequests/{number}/comments/{id}", api(url, &full_name))},
            "html": {"href": format!("{}/_/diff#comment-{id}", page(url, &full_name, number))}},
    });
    let place = facts.and_then(|facts| facts.places.get(&id)).cloned();
    if let Some(body) = body.as_object_mut() {
        body.extend(place.unwrap_or_default());
    }
    body
}
