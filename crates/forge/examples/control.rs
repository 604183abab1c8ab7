//! Serves a forge to a program in another language: `control HOST DIR` speaks as that host, reads one command as a line of JSON from
//! standard input, and writes its result as a line of JSON. It ends with its input. `scripts/conformance` plays its cases on it.

use anyhow::{Context, bail};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use tidelock_forge::{Forge, ForgeOptions, HostKind, OpenOptions, Pull};

/// A command, with the repository that it is about.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Command {
    /// Settings and secrets of a server for this forge.
    Server,
    /// Copies a repository of this machine, with write access for these people.
    Import { repo: String, from: PathBuf, people: Vec<String> },
    /// Gives a person access to a repository: `admin`, `write`, `read` or `none`.
    Permit { repo: String, login: String, level: String },
    /// Address for git as this person, with the token in it.
    CloneUrl { repo: String, login: String },
    /// Delivers events to this address from now on.
    Webhook { url: String },
    /// Opens a pull request from a branch, which gets an empty commit.
    Open {
        repo: String,
        branch: String,
        author: String,
        title: String,
        base: String,
        draft: bool,
        labels: Vec<String>,
        fork: Option<String>,
    },
    /// Adds a comment.
    Comment { repo: String, number: u64, login: String, body: String },
    /// Approves, closes, merges, reopens a pull request, or marks it as ready.
    Act { repo: String, number: u64, login: String, act: String },
    /// Sets the statuses that a merge requires.
    Require { repo: String, contexts: Vec<String> },
    /// Forces the host's answer about a merge: `clean`, or a reason against it in the host's words.
    Mergeable { repo: String, number: u64, state: String },
    /// Comments, statuses, head and state of a pull request.
    Look { repo: String, number: u64 },
    /// Counts of requests and deliveries so far.
    Signs,
    /// Method, path and status of each request so far.
    Requests,
    /// Event, action and status of each delivery so far.
    Deliveries,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let [_, host, dir] = std::env::args().collect::<Vec<_>>().try_into().ok().context("usage: control HOST DIR")?;
    let kind = HostKind::ALL.into_iter().find(|kind| kind.name() == host).context("no such host")?;
    let forge = Forge::start_as(kind, ForgeOptions { dir: dir.into(), port: 0 }).await?;
    let mut lines = std::io::stdin().lines();
    while let Some(line) = tokio::task::block_in_place(|| lines.next()).transpose()? {
        let result = match obey(&forge, &line).await {
            Ok(value) => json!({"ok": value}),
            Err(error) => json!({"error": format!("{error:#}")}),
        };
        writeln!(std::io::stdout(), "{result}")?;
    }
    Ok(())
}

/// Runs a command and returns its result.
async fn obey(forge: &Forge, line: &str) -> anyhow::Result<Value> {
    let pull = |repo: &str, number| forge.repo(repo).pull(number);
    match serde_json::from_str(line).context("not a command")? {
        Command::Server => Ok(server(forge)),
        Command::Import { repo, from, people } => {
            let repo = forge.import_repo(&repo, &from).await?;
            people.iter().try_for_each(|login| repo.set_permission(login, "write"))?;
            Ok(Value::Null)
        }
        Command::Permit { repo, login, level } => done(forge.repo(&repo).set_permission(&login, &level)),
        Command::CloneUrl { repo, login } => Ok(forge.repo(&repo).clone_url_for(&login)?.into()),
        Command::Webhook { url } => {
            forge.set_webhook(&url);
            Ok(Value::Null)
        }
        Command::Open { repo, branch, author, title, base, draft, labels, fork } => {
            let options = OpenOptions { draft, base: Some(base), labels, fork, ..OpenOptions::default() };
            let opened = forge.repo(&repo).open_pull(&branch, &author, &title, &[], options).await?;
            Ok(opened.number().into())
        }
        Command::Comment { repo, number, login, body } => Ok(pull(&repo, number).comment(&login, &body)?.into()),
        Command::Act { repo, number, login, act } => self::act(&pull(&repo, number), &login, &act).await,
        Command::Require { repo, contexts } => {
            done(forge.repo(&repo).require_statuses(&contexts.iter().map(String::as_str).collect::<Vec<_>>()))
        }
        Command::Mergeable { state, .. } if forge.kind() == HostKind::AzureDevOps => {
            // The host says it by policies.
            let configuration = json!({"isEnabled": true, "isBlocking": true, "type": {"displayName": "Build"}});
            let refused = json!({"status": "rejected", "configuration": configuration});
            forge.set_policy_evaluations(if state == "clean" { Vec::new() } else { vec![refused] });
            Ok(Value::Null)
        }
        Command::Mergeable { repo, number, state } => done(pull(&repo, number).set_mergeable_state(&state)),
        Command::Look { repo, number } => look(&pull(&repo, number)),
        Command::Signs => {
            let deliveries = forge.deliveries();
            let pending = deliveries.iter().filter(|delivery| !delivery.done).count();
            Ok(json!({"requests": forge.requests().len(), "deliveries": deliveries.len(), "pending": pending}))
        }
        Command::Requests => {
            let requests = forge.requests();
            Ok(requests.iter().map(|request| json!([request.method, request.path, request.status])).collect())
        }
        Command::Deliveries => {
            let deliveries = forge.deliveries();
            Ok(deliveries.iter().map(|one| json!([one.event, one.action, one.status])).collect())
        }
    }
}

/// An empty result.
fn done(result: anyhow::Result<()>) -> anyhow::Result<Value> {
    result.map(|()| Value::Null)
}

/// Names and values for the server's environment.
fn server(forge: &Forge) -> Value {
    let secrets = forge.server_secrets().map(|(name, secret)| (name.to_owned(), secret.expose_secret().to_owned()));
    json!({
        "url": forge.url(), "bot": forge.bot(),
        "flags": forge.server_settings().into_iter().collect::<std::collections::BTreeMap<_, _>>(),
        "secrets": std::collections::BTreeMap::from(secrets),
    })
}

async fn act(pull: &Pull, login: &str, act: &str) -> anyhow::Result<Value> {
    match act {
        "approve" => done(pull.approve(login)),
        "merge" => Ok(pull.merge_as(login, "merge").await?.into()),
        "close" => done(pull.close()),
        "reopen" => done(pull.reopen()),
        "ready" => done(pull.ready()),
        other => bail!("unknown act {other}"),
    }
}

fn look(pull: &Pull) -> anyhow::Result<Value> {
    let statuses =
        pull.statuses()?.into_iter().map(|(context, status)| (context, json!([status.state, status.description])));
    Ok(json!({
        "head": pull.head_commit()?,
        "state": if pull.is_merged()? { "merged" } else if pull.is_open()? { "open" } else { "closed" },
        "comments": pull.bot_comments()?.into_iter().map(|comment| comment.body).collect::<Vec<_>>(),
        "statuses": statuses.collect::<serde_json::Map<_, _>>(),
    }))
}
