//! Lists as tables, and the deletion of a lock.

use super::super::say;
use super::call::{ApiClient, printable, turns_text};
use crate::web::api::records::{ProjectRecord, PullsAnswer, RunRecord, RunsAnswer};
use anyhow::{Context as _, Result};
use clap::ArgMatches;
use http::Method;
use serde_json::{Value, json};
use std::process::ExitCode;
use url::form_urlencoded;

/// Widest column but the first, whose names other commands take; a longer text is cut. In characters.
const MAX_WIDTH: usize = 60;

/// Prints rows with aligned columns.
fn table(head: &[&str], rows: &[Vec<String>]) -> ExitCode {
    let clean = |text: &String| printable(text).replace(['\n', '\t'], " ");
    let cut = |text: String| match text.char_indices().nth(MAX_WIDTH) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    };
    let cells = |row: &[String]| {
        let shown = row.iter().enumerate();
        shown.map(|(place, cell)| if place == 0 { clean(cell) } else { cut(clean(cell)) }).collect()
    };
    let head = head.iter().map(|title| (*title).to_owned()).collect();
    let all: Vec<Vec<String>> = std::iter::once(head).chain(rows.iter().map(|row| cells(row))).collect();
    let columns = all.first().map_or(0, Vec::len);
    let width_of = |place: usize| all.iter().filter_map(|row| row.get(place)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|place| width_of(place).unwrap_or_default()).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    say(&all.iter().map(line).collect::<String>())
}

/// Returns the query of an address with the flags that are given.
fn query(matches: &ArgMatches, names: &[&str]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for name in names {
        if let Some(value) = matches.get_one::<String>(name) {
            query.append_pair(name, value);
        }
    }
    query.finish()
}

fn is_json(matches: &ArgMatches) -> bool {
    matches.get_flag("json")
}

fn printed(value: &impl serde::Serialize) -> Result<ExitCode> {
    let text = serde_json::to_string_pretty(value).context("the answer")? + "\n";
    let escaped = |c: char| match c {
        '\n' => "\n".to_owned(),
        _ if c.is_control() || turns_text(c) => format!("\\u{:04x}", u32::from(c)),
        _ => c.to_string(),
    };
    Ok(say(&text.chars().map(escaped).collect::<String>()))
}

/// Returns `owner/name#number`; the number of a drift run is left out.
fn pull_name(repository: &str, number: u64) -> String {
    let name = repository.split_once('/').map_or(repository, |(_, name)| name);
    if number == 0 { format!("{name} (drift)") } else { format!("{name}#{number}") }
}

/// Returns date and time without fractions of a second.
fn time(at: &str) -> String {
    at.get(..19).unwrap_or(at).replace('T', " ")
}

pub(super) async fn runs(client: &ApiClient, matches: &ArgMatches) -> Result<ExitCode> {
    let limit = usize::from(matches.get_one::<u16>("limit").copied().unwrap_or(20));
    let filters = query(matches, &["repository", "pull", "project", "person", "command", "result"]);
    let mut address = Some(format!("api/runs?{filters}"));
    let mut runs: Vec<RunRecord> = Vec::new();
    while let Some(path) = address.filter(|_| runs.len() < limit) {
        let RunsAnswer { runs: more, next } = client.get(&path).await?;
        address = next.filter(|_| !more.is_empty());
        runs.extend(more);
    }
    runs.truncate(limit);
    if is_json(matches) {
        return printed(&json!({ "runs": runs }));
    }
    let row = |run: &RunRecord| {
        vec![
            run.run.clone(),
            time(&run.started),
            run.command.clone(),
            run.result.clone(),
            pull_name(&run.repository, run.pull),
            run.user.clone(),
            run.projects.join(" "),
        ]
    };
    let rows: Vec<_> = runs.iter().map(row).collect();
    Ok(table(&["RUN", "STARTED (UTC)", "COMMAND", "RESULT", "PULL REQUEST", "PERSON", "PROJECTS"], &rows))
}

pub(super) async fn pulls(client: &ApiClient, matches: &ArgMatches) -> Result<ExitCode> {
    let mut address = Some(format!("api/pulls?{}", query(matches, &["repository"])));
    let mut pulls = Vec::new();
    while let Some(path) = address {
        let PullsAnswer { pulls: more, next } = client.get(&path).await?;
        address = next.filter(|_| !more.is_empty());
        pulls.extend(more);
    }
    if is_json(matches) {
        return printed(&json!({ "pulls": pulls }));
    }
    let mut rows = Vec::new();
    for pull in &pulls {
        let name = pull_name(&pull.repository, pull.pull);
        let row = |state: &str, project: &str| {
            vec![name.clone(), pull.author.clone(), state.to_owned(), project.to_owned(), pull.title.clone()]
        };
        if let Some(fault) = &pull.fault {
            rows.push(row("plan failed", fault));
        }
        rows.extend(pull.projects.iter().map(|status| {
            let ProjectRecord { label, .. } = &status.project;
            row(&status.state.replace('_', " "), label)
        }));
        if pull.projects.is_empty() && pull.fault.is_none() {
            rows.push(row("no project", ""));
        }
    }
    Ok(table(&["PULL REQUEST", "AUTHOR", "STATE", "PROJECT", "TITLE"], &rows))
}

/// Returns the text of a field.
fn field(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub(super) async fn locks(client: &ApiClient, matches: &ArgMatches) -> Result<ExitCode> {
    let answer: Value = client.get("api/locks").await?;
    if is_json(matches) {
        return printed(&answer);
    }
    let row = |lock: &Value| {
        let waiting = lock.get("Waiting").and_then(Value::as_array).into_iter().flatten();
        let waiting: Vec<String> = waiting.filter_map(Value::as_str).map(|number| format!("#{number}")).collect();
        vec![
            field(lock, "Name"),
            format!("{}#{}", field(lock, "ProjectRepo"), field(lock, "PullID")),
            field(lock, "State"),
            field(lock, "User"),
            time(&field(lock, "Time")),
            waiting.join(" "),
        ]
    };
    let rows: Vec<_> = answer.get("Locks").and_then(Value::as_array).into_iter().flatten().map(row).collect();
    Ok(table(&["LOCK", "PULL REQUEST", "STATE", "PERSON", "SINCE (UTC)", "WAITING"], &rows))
}

pub(super) async fn unlock(client: &ApiClient, matches: &ArgMatches) -> Result<ExitCode> {
    let name = matches.get_one::<String>("name").map(String::as_str).unwrap_or_default();
    let mut address = client.address("api/locks")?;
    address.query_pairs_mut().append_pair("id", name);
    let said = client.text(Method::DELETE, address).await?;
    Ok(say(&(printable(said.trim()) + "\n")))
}

pub(super) async fn drift(client: &ApiClient, matches: &ArgMatches) -> Result<ExitCode> {
    let answer: Value = client.get(&format!("api/drift/status?{}", query(matches, &["repository", "type"]))).await?;
    if is_json(matches) {
        return printed(&answer);
    }
    let row = |found: &Value| {
        let has_drift = found.get("has_drift").and_then(Value::as_bool) == Some(true);
        let error = field(found, "error");
        let summary = found.pointer("/drift/summary").and_then(Value::as_str).unwrap_or_default().to_owned();
        let (state, because) = match (has_drift, error.is_empty()) {
            (true, _) => ("drift", summary),
            (false, true) => ("clean", String::new()),
            (false, false) => ("unknown", error),
        };
        let [name, directory, workspace] = ["project_name", "directory", "workspace"].map(|name| field(found, name));
        let project = if name.is_empty() { format!("{directory}/{workspace}") } else { name };
        vec![project, field(found, "base_branch"), time(&field(found, "last_checked")), state.to_owned(), because]
    };
    let projects = answer.pointer("/data/projects").and_then(Value::as_array);
    let rows: Vec<_> = projects.into_iter().flatten().map(row).collect();
    Ok(table(&["PROJECT", "BRANCH", "CHECKED (UTC)", "STATE", ""], &rows))
}
