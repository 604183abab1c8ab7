//! The data of the pages, for the package's templates.

use super::super::state::{PullState, RepoState, State};
use super::super::{BOT, HostKind, PEOPLE, Shared};
use super::markdown::{diff_lines, escape, to_html};
use super::{Fields, Reaction};
use anyhow::Context;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use minijinja::Environment;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};

/// Most lines of a diff on a page.
const MAX_DIFF_LINES: usize = 3000;

/// Largest file that can be edited in the browser, in bytes.
const MAX_FILE: usize = 1 << 20;

/// Most rows of the list of deliveries.
const MAX_ROWS: usize = 200;

macro_rules! template {
    ($name:literal) => {
        ($name, include_str!(concat!("../../templates/", $name)))
    };
}

static TEMPLATES: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.add_filter("urlencode", |text: String| {
        url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>()
    });
    for (name, text) in [
        template!("layout.html"),
        template!("index.html"),
        template!("pulls.html"),
        template!("repo.html"),
        template!("pull.html"),
        template!("edit.html"),
        template!("file.html"),
        template!("commit.html"),
        template!("deliveries.html"),
        template!("problem.html"),
    ] {
        if let Err(error) = environment.add_template(name, text) {
            tracing::error!("sandbox template: {error:#}");
        }
    }
    environment
});

fn render(shared: &Shared, name: &str, mut content: Value) -> anyhow::Result<String> {
    // Origin of the server's own pages, taken from the webhook.
    let server = shared.lock().webhook.as_ref().and_then(|hook| url::Url::parse(hook).ok());
    let server = server.map(|url| url.origin().ascii_serialization());
    content["server"] = server.into();
    if let Some(full_name) = content["full_name"].as_str() {
        content["home"] = shared.kind.pages(full_name).into();
    }
    content["mark"] = shared.kind.pull_mark().to_string().into();
    content["version"] = (*shared.changes.borrow()).into();
    Ok(TEMPLATES.get_template(name)?.render(minijinja::value::Serde(content))?)
}

fn page(shared: &Shared, name: &str, content: Value) -> anyhow::Result<Reaction> {
    render(shared, name, content).map(Reaction::Page)
}

/// A page with an error.
pub(super) fn problem(shared: &Shared, status: StatusCode, text: &str) -> Response {
    let html = render(shared, "problem.html", json!({ "text": text })).unwrap_or_else(|_| escape(text));
    (status, Html(html)).into_response()
}

/// Shows the page of a path.
pub(super) async fn show(shared: &Arc<Shared>, segments: &[String], query: &Fields) -> anyhow::Result<Reaction> {
    // The content is computed before `page` is called: both lock the state.
    match segments {
        [root] if root.is_empty() => {
            let content = index(&shared.lock());
            return page(shared, "index.html", content);
        }
        [word] if word == "deliveries" => {
            let content = deliveries(&shared.lock());
            return page(shared, "deliveries.html", content);
        }
        _ => {}
    }
    let Some((full_name, rest)) = shared.kind.split(segments) else { return Ok(Reaction::NotFound) };
    match rest.as_slice() {
        [] => repo(shared, &full_name).await,
        ["commit" | "commits", sha] => commit(shared, &full_name, sha).await,
        ["new"] => edit(shared, &full_name, None, query).await,
        ["file"] => file(shared, &full_name, query).await,
        ["pull" | "pullrequest" | "merge_requests" | "pulls" | "pull-requests", number] => match number.parse() {
            Ok(number) => pull(shared, &full_name, number).await,
            Err(_) => Ok(Reaction::NotFound),
        },
        ["pull" | "pullrequest" | "merge_requests" | "pulls" | "pull-requests", number, "edit"] => match number.parse()
        {
            Ok(number) => edit(shared, &full_name, Some(number), query).await,
            Err(_) => Ok(Reaction::NotFound),
        },
        _ => Ok(Reaction::NotFound),
    }
}

/// Age of a time, for people.
fn ago(then: &str) -> String {
    let Ok(then) = then.parse::<jiff::Timestamp>() else { return String::new() };
    match jiff::Timestamp::now().as_second() - then.as_second() {
        ..60 => "just now".to_owned(),
        seconds @ 60..3600 => format!("{} min ago", seconds / 60),
        seconds => format!("{} h ago", seconds / 3600),
    }
}

fn condition(pull: &PullState) -> &'static str {
    match pull {
        PullState { merged: Some(_), .. } => "merged",
        PullState { open: false, .. } => "closed",
        PullState { draft: true, .. } => "draft",
        _ => "open",
    }
}

fn row(repo: &RepoState, pull: &PullState) -> Value {
    let statuses = repo.statuses_of_head(pull);
    let has = |word: &str| statuses.values().any(|status| status.state == word);
    let checks = match () {
        () if has("failure") || has("error") => "failure",
        () if has("pending") => "pending",
        () if statuses.is_empty() => "",
        () => "success",
    };
    json!({
    "number": pull.number, "title": pull.title, "author": pull.author, "condition": condition(pull), "checks": checks,
    "branch": pull.head_ref, "comments": pull.comments.len(), "when": ago(&pull.created_at), "labels": pull.labels
    })
}

fn pulls(repo: &RepoState) -> Vec<Value> {
    repo.pulls.iter().rev().map(|pull| row(repo, pull)).collect()
}

fn row_of_repo(state: &State, repo: &RepoState) -> Value {
    let full_name = repo.full_name();
    json!({ "home": state.kind.pages(&full_name), "full_name": full_name, "pulls": pulls(repo) })
}

fn index(state: &State) -> Value {
    let repos: Vec<_> = state.repos.values().map(|repo| row_of_repo(state, repo)).collect();
    json!({ "repos": repos })
}

fn deliveries(state: &State) -> Value {
    let rows: Vec<_> = state
        .deliveries
        .iter()
        .rev()
        .take(MAX_ROWS)
        .map(|delivery| {
            json!({
                "id": delivery.id, "guid": delivery.guid, "event": delivery.event, "action": delivery.action,
                "done": delivery.done, "status": delivery.status, "answer": delivery.answer, "ok": delivery.succeeded(),
                "when": ago(&delivery.created_at)
        })
        })
        .collect();
    json!({ "rows": rows, "paused": state.webhooks_paused, "limit": MAX_ROWS })
}

async fn repo(shared: &Arc<Shared>, full_name: &str) -> anyhow::Result<Reaction> {
    let Ok(git) = shared.git(full_name) else { return Ok(Reaction::NotFound) };
    let files = git.files("main").await?;
    let clone_url = shared.forge().repo(full_name).clone_url_for("alice")?;
    let rows = pulls(shared.lock().repo(full_name)?);
    page(shared, "repo.html", json!({ "full_name": full_name, "files": files, "clone_url": clone_url, "pulls": rows }))
}

async fn file(shared: &Shared, full_name: &str, query: &Fields) -> anyhow::Result<Reaction> {
    let Ok(git) = shared.git(full_name) else { return Ok(Reaction::NotFound) };
    let path = query.get("path").map(String::as_str).unwrap_or_default();
    let text = git.file("main", path).await?.with_context(|| format!("there is no {path} on main"))?;
    page(shared, "file.html", json!({ "full_name": full_name, "path": path, "text": text }))
}

/// Shows the changes of one commit.
async fn commit(shared: &Shared, full_name: &str, sha: &str) -> anyhow::Result<Reaction> {
    let Ok(git) = shared.git(full_name) else { return Ok(Reaction::NotFound) };
    if sha.len() != 40 || !sha.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(Reaction::NotFound);
    }
    let changes = files_changed(&git.show(sha).await?);
    page(shared, "commit.html", json!({ "full_name": full_name, "sha": sha, "changes": changes }))
}

/// Shows the form for a new pull request, or for one more commit to an existing one.
async fn edit(shared: &Shared, full_name: &str, number: Option<u64>, query: &Fields) -> anyhow::Result<Reaction> {
    let Ok(git) = shared.git(full_name) else { return Ok(Reaction::NotFound) };
    let (commit, title, author, next) = {
        let state = shared.lock();
        let next = state.repo(full_name)?.last_number + 1;
        match number {
            Some(number) => {
                let Ok(pull) = state.pull(full_name, number) else { return Ok(Reaction::NotFound) };
                (pull.head_sha.clone(), pull.title.clone(), pull.author.clone(), next)
            }
            None => ("main".to_owned(), String::new(), "alice".to_owned(), next),
        }
    };
    let files = git.files(&commit).await?;
    let files: Vec<_> = files.into_iter().filter(|path| path.ends_with(".tf") || !path.contains('/')).collect();
    let chosen = query.get("path").cloned();
    let path = chosen.or_else(|| files.iter().find(|path| path.ends_with("main.tf")).cloned()).unwrap_or_default();
    let text = match path.is_empty() {
        true => None,
        false => git.file(&commit, &path).await?,
    };
    if text.as_ref().is_some_and(|text| text.len() > MAX_FILE) {
        anyhow::bail!("{path} is too large to be edited here; push with git instead");
    }
    let people: Vec<_> = PEOPLE.iter().filter(|(_, level)| *level != "read").map(|(login, _)| *login).collect();
    let content = json!({ "full_name": full_name, "number": number, "title": title, "author": author, "files": files, "path": path, "text": text, "people": people, "branch": format!("change-{next}") });
    page(shared, "edit.html", content)
}

async fn pull(shared: &Shared, full_name: &str, number: u64) -> anyhow::Result<Reaction> {
    let (git, base, head, head_repo) = {
        let state = shared.lock();
        let Ok(pull) = state.pull(full_name, number) else { return Ok(Reaction::NotFound) };
        let repo = state.repo(full_name)?;
        (repo.git.clone(), pull.base_sha.clone(), pull.head_sha.clone(), pull.head_repo.clone())
    };
    let commits = git.log(&base, &head).await?;
    let changes = files_changed(&git.diff(&base, &head).await?);
    let content = {
        let state = shared.lock();
        let (repo, pull) = (state.repo(full_name)?, state.pull(full_name, number)?);
        let (mergeable, mergeable_state) = repo.mergeability(pull);
        let mergeable_text = match mergeable_state.as_str() {
            "clean" => "This branch has no conflicts with its base.",
            "unstable" => "This branch can be merged; not every check has passed.",
            "dirty" => "This branch has conflicts with its base; push a merge to it first.",
            "draft" => "This is a draft; say that it is ready first.",
            _ => "Merging is blocked.",
        };
        let can_merge = mergeable == Some(true) && matches!(mergeable_state.as_str(), "clean" | "unstable");
        json!({
            "full_name": full_name, "pull": row(repo, pull), "body": to_html(shared.kind, &pull.body), "base": pull.base_ref, "head": pull.head_ref,
            "fork": (head_repo != full_name).then_some(head_repo), "head_sha": pull.head_sha, "commits": commits, "changes": changes,
            "timeline": timeline(shared.kind, repo, pull), "statuses": statuses(repo, pull), "people": people(), "can_merge": can_merge,
            "mergeable_text": mergeable_text, "open": pull.open, "can_reopen": shared.kind != HostKind::BitbucketCloud, "merged_by": pull.merged.as_ref().map(|(_, by)| by), "author": pull.author,
        })
    };
    page(shared, "pull.html", content)
}

fn people() -> Vec<Value> {
    PEOPLE.iter().map(|(login, level)| json!({ "login": login, "level": level })).collect()
}

/// Comments and reviews in the order of their creation.
fn timeline(kind: HostKind, repo: &RepoState, pull: &PullState) -> Vec<Value> {
    let comments = pull.comments.iter().map(|comment| {
        let reactions: Vec<_> = comment.reactions.iter().map(|r| json!({ "user": r.user, "sign": sign(&r.content) })).collect();
        let value = json!({
            "kind": "comment", "id": comment.id, "user": comment.author, "bot": comment.author == BOT,
            "html": to_html(kind, &comment.body), "reactions": reactions, "when": ago(&comment.created_at), "at": comment.created_at
        });
        (comment.id, value)
    });
    let reviews = pull.reviews.iter().filter(|review| review.vote != 0).map(|review| {
        let value = json!({
            "kind": "review", "id": review.id, "user": review.user, "approved": review.state == "APPROVED",
            "earlier_head": (review.commit != pull.head_sha).then(|| review.commit.get(..7)),
            "counts": repo.can_write(&review.user), "body": review.body, "when": ago(&review.submitted_at),
        });
        (review.id, value)
    });
    let mut all: Vec<_> = comments.chain(reviews).collect();
    all.sort_by_key(|(id, _)| *id);
    all.into_iter().map(|(_, value)| value).collect()
}

fn sign(reaction: &str) -> &str {
    match reaction {
        "+1" | "thumbsup" => "👍",
        "-1" | "thumbsdown" => "👎",
        "laugh" | "laughing" => "😄",
        "confused" => "😕",
        "heart" => "❤️",
        "hooray" | "tada" => "🎉",
        "rocket" => "🚀",
        "eyes" => "👀",
        other => other,
    }
}

fn statuses(repo: &RepoState, pull: &PullState) -> Vec<Value> {
    let latest = repo.statuses_of_head(pull);
    let shape = |(name, status): (&str, &super::super::state::StatusState)| {
        let check = repo.checks.iter().find(|check| check.as_status.id == status.id);
        // GitHub shows buttons once a check run is completed, and its own one below each.
        let buttons = check.filter(|check| check.status == "completed").map(|check| check.actions.clone());
        let summary = check.map(|check| to_html(HostKind::Github, &check.summary));
        json!({ "name": name, "state": status.state, "description": status.description, "url": status.target_url,
            "check": check.map(|_| status.id), "buttons": buttons, "summary": summary })
    };
    latest.into_iter().map(shape).collect()
}

/// One entry per file of a diff: path, counts, the diff as HTML.
fn files_changed(text: &str) -> Vec<Value> {
    let shown = text.lines().take(MAX_DIFF_LINES).collect::<Vec<_>>().join("\n");
    let mut files = Vec::new();
    for file in format!("\n{shown}").split("\ndiff --git ").skip(1) {
        let (header, body) = file.split_once("\n@@").map_or((file, String::new()), |(h, b)| (h, format!("@@{b}")));
        let named = |mark: &str| header.lines().find_map(|line| line.strip_prefix(mark)).map(str::to_owned);
        let path = named("+++ b/").or_else(|| named("--- a/")).or_else(|| named("rename to "));
        let path =
            path.or_else(|| header.lines().next().and_then(|line| line.split_once(" b/")).map(|(_, b)| b.to_owned()));
        let count = |sign: char| body.lines().filter(|line| line.starts_with(sign)).count();
        files.push(json!({
            "path": path, "added": count('+'), "removed": count('-'), "html": diff_lines(&body),
            "gone": header.contains("\ndeleted file")
        }));
    }
    files
}
