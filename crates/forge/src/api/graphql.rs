//! The few GraphQL requests of the server, recognized by names in them.

use super::super::state::{CommentState, PullState, RepoState, State};
use super::super::{Shared, app, comments, server, shapes};
use super::{NOT_FOUND, Refusal, Result, ok, teams};
use http::{StatusCode, request};
use serde_json::{Value, json};

/// Path of GraphQL, beside `v3` of the REST API.
pub(super) const PATH: &str = "/api/graphql";

/// Answers a request. GraphQL's own refusals have status 200 and errors.
pub(super) fn answer(shared: &Shared, parts: &request::Parts, body: &[u8]) -> Result {
    let login = server::principal(shared, &parts.headers)
        .map_err(|()| Refusal(StatusCode::UNAUTHORIZED, "Bad credentials".to_owned()))?
        .ok_or_else(NOT_FOUND)?;
    let asked: Value = serde_json::from_slice(body)
        .map_err(|_| Refusal(StatusCode::BAD_REQUEST, "Problems parsing JSON".to_owned()))?;
    let (query, variables) = (asked["query"].as_str().unwrap_or_default(), &asked["variables"]);
    let found = if query.contains("minimizeComment") {
        shared.change(|state| minimize(state, &login, query, variables))
    } else if query.contains("updateIssueComment") {
        shared.change(|state| rewrite(state, &shared.url, &login, variables))
    } else if query.contains("comments(last: 50)") {
        latest_comments(&shared.lock(), parts, variables)
    } else if query.contains("refUpdateRule") {
        rules(&shared.lock(), parts, variables)
    } else if query.contains("teams(first: 100") {
        Ok(teams::of_person(&shared.lock(), variables))
    } else {
        Err(("UNKNOWN", "the forge does not know this query".to_owned()))
    };
    match found {
        Ok(data) => ok(json!({ "data": data })),
        Err((kind, message)) => ok(json!({ "data": null, "errors": [{ "type": kind, "message": message }] })),
    }
}

type Found = std::result::Result<Value, (&'static str, String)>;

/// Returns the repository and the pull request that the variables name.
fn asked_for<'a>(
    state: &'a State,
    parts: &request::Parts,
    variables: &Value,
) -> std::result::Result<(&'a RepoState, &'a PullState), (&'static str, String)> {
    let text = |name: &str| variables[name].as_str().unwrap_or_default();
    let full_name = format!("{}/{}", text("owner"), text("name"));
    let none = || ("NOT_FOUND", format!("Could not resolve to a Repository with the name '{full_name}'."));
    let repo = state.repo(&full_name).map_err(|_| none())?;
    if !app::may_see(state, &parts.headers, &full_name) {
        return Err(none());
    }
    let number = variables["number"].as_u64().unwrap_or_default();
    let pull = state.pull(&full_name, number).map_err(|error| ("NOT_FOUND", error.to_string()))?;
    Ok((repo, pull))
}

fn answered(repo: &RepoState, pull: Value) -> Value {
    json!({ "repository": { "name": repo.name, "owner": { "login": repo.owner }, "pullRequest": pull } })
}

/// Rules of the base branch. The first required status is a branch protection's, the others are a ruleset's.
fn rules(state: &State, parts: &request::Parts, variables: &Value) -> Found {
    let (repo, pull) = asked_for(state, parts, variables)?;
    let (protected, ruled) = repo.required.split_at(repo.required.len().min(1));
    let ruled: Vec<Value> = ruled.iter().map(|context| json!({ "context": context })).collect();
    let statuses = repo.statuses_of_head(pull).into_values().map(|status| {
        if let Some(check) = repo.checks.iter().find(|check| check.as_status.id == status.id) {
            let conclusion = check.conclusion.as_ref().map(|word| word.to_uppercase());
            return json!({ "name": status.context, "conclusion": conclusion, "startedAt": status.created_at,
                "isRequired": repo.required.contains(&status.context) });
        }
        json!({ "context": status.context, "state": status.state.to_uppercase(), "createdAt": status.created_at,
            "isRequired": repo.required.contains(&status.context) })
    });
    let page = json!({ "hasNextPage": false, "endCursor": null });
    let contexts = json!({ "nodes": statuses.collect::<Vec<_>>(), "pageInfo": page });
    Ok(answered(
        repo,
        json!({
            "reviewDecision": null,
            "latestOpinionatedReviews": { "nodes": [] },
            "reviewThreads": { "nodes": [], "pageInfo": page },
            "baseRef": {
                "refUpdateRule": { "requiredStatusCheckContexts": protected, "requiresConversationResolution": false,
                    "requiresSignatures": false },
                "rules": { "pageInfo": page, "nodes": [
                    { "type": "REQUIRED_STATUS_CHECKS", "parameters": { "requiredStatusChecks": ruled } },
                    { "type": "DELETION", "parameters": null },
                ] },
            },
            "commits": { "nodes": [{ "commit": { "oid": pull.head_sha, "statusCheckRollup": { "contexts": contexts } } }] },
        }),
    ))
}

fn latest_comments(state: &State, parts: &request::Parts, variables: &Value) -> Found {
    let (repo, pull) = asked_for(state, parts, variables)?;
    let author = |login: &str| match login.strip_suffix("[bot]") {
        Some(slug) => json!({ "__typename": "Bot", "login": slug }),
        None => json!({ "__typename": "User", "login": login }),
    };
    let node = |comment: &CommentState| {
        let edited = (comment.updated_at != comment.created_at).then(|| shapes::seconds(&comment.updated_at));
        json!({ "id": format!("IC_{}", comment.id), "isMinimized": comment.hidden, "body": comment.body,
            "createdAt": shapes::seconds(&comment.created_at), "lastEditedAt": edited, "author": author(&comment.author) })
    };
    let latest = &pull.comments[pull.comments.len().saturating_sub(50)..];
    let nodes: Vec<Value> = latest.iter().map(node).collect();
    Ok(answered(repo, json!({ "comments": { "nodes": nodes } })))
}

/// Folds comments for everybody. Each variable is the id of a comment.
fn minimize(state: &mut State, login: &str, query: &str, variables: &Value) -> Found {
    if !query.contains("classifier: OUTDATED") {
        return Err(("INVALID", "the reason is none that the server gives".to_owned()));
    }
    for id in variables.as_object().into_iter().flat_map(|all| all.values()) {
        let id = id.as_str().unwrap_or_default();
        let gone = || ("NOT_FOUND", format!("Could not resolve to a node with the global id of '{id}'"));
        let repo = state.repos.values_mut().find(|repo| {
            repo.pulls.iter().flat_map(|pull| &pull.comments).any(|comment| format!("IC_{}", comment.id) == id)
        });
        let repo = repo.ok_or_else(gone)?;
        if !repo.can_write(login) {
            return Err((
                "FORBIDDEN",
                format!("{login} does not have the correct permissions to execute `MinimizeComment`"),
            ));
        }
        for comment in repo.pulls.iter_mut().flat_map(|pull| &mut pull.comments) {
            comment.hidden |= format!("IC_{}", comment.id) == id;
        }
    }
    Ok(json!({}))
}

/// Replaces the text of a comment (docs.github.com/graphql, `updateIssueComment`).
fn rewrite(state: &mut State, url: &str, login: &str, variables: &Value) -> Found {
    let text = |name: &str| variables[name].as_str().unwrap_or_default().to_owned();
    let (node, body) = (text("id"), text("body"));
    let mut all = state.repos.values().flat_map(|repo| repo.pulls.iter().map(move |pull| (repo, pull)));
    let found = all.find_map(|(repo, pull)| {
        let comment = pull.comments.iter().find(|comment| format!("IC_{}", comment.id) == node)?;
        let may = comment.author == login || repo.can_write(login);
        Some((format!("{}/{}", repo.owner, repo.name), pull.number, comment.id, may))
    });
    let gone = || ("NOT_FOUND", format!("Could not resolve to a node with the global id of '{node}'"));
    let (full_name, number, id, may) = found.ok_or_else(gone)?;
    if !may {
        let message = format!("{login} does not have the correct permissions to execute `UpdateIssueComment`");
        return Err(("FORBIDDEN", message));
    }
    comments::edit(state, url, &full_name, number, login, (id, &body))
        .map_err(|error| ("UNPROCESSABLE", error.to_string()))?;
    Ok(json!({ "updateIssueComment": { "clientMutationId": null } }))
}
