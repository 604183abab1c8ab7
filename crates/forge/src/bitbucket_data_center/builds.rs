//! Build statuses of commits. A key stands for one status of a commit; another one with the key replaces it.

use super::super::state::{PullState, RepoState, State, StatusState};
use super::super::timestamp;
use super::access::{self, Level};
use super::api::{Call, RepoCall, most, no_content, no_route, ok};
use super::{Refusal, Result, shapes};
use http::StatusCode;
use serde_json::{Value, json};

/// Longest key, name and description, and longest address, in characters (OpenAPI, "Store a build status").
const MAX_TEXT: usize = 255;
const MAX_URL: usize = 450;

/// States of a build, and what they are in the shared state.
const WORDS: [(&str, &str); 5] = [
    ("INPROGRESS", "pending"),
    ("SUCCESSFUL", "success"),
    ("FAILED", "failure"),
    ("CANCELLED", "error"),
    ("UNKNOWN", "error"),
];

/// Fields of a build status that the shared state lacks. The shared state has the name of the build as its context.
#[derive(Clone)]
pub(super) struct BuildFacts {
    key: String,
    name: Option<String>,
    word: &'static str,
    /// Full name of the branch that was built.
    reference: Option<String>,
    parent: Option<String>,
    number: Option<String>,
    created_at: String,
}

impl BuildFacts {
    /// Name under which the build can be required.
    fn parent(&self) -> &str {
        self.parent.as_deref().unwrap_or(&self.key)
    }
}

fn builds<'a>(
    state: &'a State,
    repo: &'a RepoState,
    commit: &'a str,
) -> impl Iterator<Item = (&'a StatusState, &'a BuildFacts)> {
    let of_commit = repo.statuses.iter().filter(move |status| status.sha == commit);
    of_commit.filter_map(|status| Some((status, state.bitbucket_data_center.builds.get(&status.id)?)))
}

/// Returns the text of the veto of builds: those of the check for a number of builds, or of required ones, which have to name the source
/// branch (OpenAPI, "Create a required builds merge check"; the context of a required status of the forge is its name).
pub(super) fn blocker(
    state: &State,
    repo: &RepoState,
    pull: &PullState,
    least: usize,
    required: &[String],
) -> Option<String> {
    let all: Vec<(&StatusState, &BuildFacts)> = builds(state, repo, &pull.head_sha).collect();
    let has = |word: &str| all.iter().any(|(_, facts)| facts.word == word);
    if least > 0 {
        let passed = all.iter().filter(|(_, facts)| facts.word == "SUCCESSFUL").count();
        if has("FAILED") {
            return Some("You cannot merge this pull request while it has failed builds.".to_owned());
        }
        if has("INPROGRESS") {
            return Some("You cannot merge this pull request while it has in-progress builds.".to_owned());
        }
        if passed < least {
            let count =
                if least == 1 { "one successful build".to_owned() } else { format!("{least} successful builds") };
            return Some(format!("You still need a minimum of {count} before this pull request can be merged."));
        }
    }
    let branch = format!("refs/heads/{}", pull.head_ref);
    let is_green = |name: &String| {
        all.iter().any(|(status, facts)| {
            facts.word == "SUCCESSFUL"
                && facts.reference.as_ref() == Some(&branch)
                && (facts.parent() == name || status.context == *name)
        })
    };
    let missing = required.iter().chain(&repo.required).find(|name| !is_green(name))?;
    Some(format!("The required build {missing} is not successful yet."))
}

impl RepoCall<'_> {
    pub(super) async fn of_builds(&self, method: &str, commit: &str) -> Result {
        if commit.len() != 40 || !commit.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(Refusal::invalid(format!("'{commit}' is not a valid commit hash")));
        }
        self.known_commit(commit).await?;
        let key = || self.call.asked("key").ok_or_else(|| Refusal::field("key", "A key is required."));
        match method {
            "GET" => {
                let state = self.call.shared.lock();
                let repo = self.repo_in(&state)?;
                let key = key()?;
                let found = builds(&state, repo, commit).find(|(_, facts)| facts.key == key);
                ok(found.map(|(status, facts)| shaped(status, facts)).ok_or_else(|| {
                    // bb: a 404 without an exception.
                    let text = format!("Build status {key} does not exist.");
                    Refusal(StatusCode::NOT_FOUND, json!({"context": null, "message": text, "exceptionName": null}))
                })?)
            }
            "POST" => {
                self.set_build(commit)?;
                no_content()
            }
            "DELETE" => {
                self.check_level(Level::Admin)?;
                let key = key()?;
                self.call.shared.change(|state| {
                    let repo = self.repo_in(state)?;
                    let gone: Vec<u64> = builds(state, repo, commit)
                        .filter(|(_, facts)| facts.key == key)
                        .map(|(status, _)| status.id)
                        .collect();
                    let repo = state.repo_mut(&self.full_name).map_err(|error| Refusal::broken(&error))?;
                    repo.statuses.retain(|status| !gone.contains(&status.id));
                    Ok(())
                })?;
                no_content()
            }
            _ => Err(no_route()),
        }
    }

    /// Returns a text of the body that must be there, of at most this length.
    fn needed(&self, name: &str, most: usize) -> Result<String> {
        let text = self.call.text(&format!("/{name}")).filter(|text| !text.trim().is_empty());
        let text = text.ok_or_else(|| Refusal::field(name, format!("A {name} is required.")))?;
        check_length(name, text, most)?;
        Ok(text.to_owned())
    }

    fn optional(&self, name: &str) -> Result<Option<String>> {
        let Some(text) = self.call.text(&format!("/{name}")) else { return Ok(None) };
        check_length(name, text, MAX_TEXT)?;
        Ok(Some(text.to_owned()))
    }

    /// Sets a status of a commit as anybody who may read.
    fn set_build(&self, commit: &str) -> Result<()> {
        let (key, word, address) =
            (self.needed("key", MAX_TEXT)?, self.needed("state", MAX_TEXT)?, self.needed("url", MAX_URL)?);
        let known = WORDS.iter().find(|(known, _)| *known == word);
        let (word, plain) = known.ok_or_else(|| Refusal::field("state", format!("{word} is no state of a build.")))?;
        let is_web = url::Url::parse(&address).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        if !is_web {
            return Err(Refusal::field("url", "The url is invalid."));
        }
        let (name, description) = (self.optional("name")?, self.optional("description")?);
        let reference = self.optional("ref")?;
        if reference.as_ref().is_some_and(|name| !name.starts_with("refs/")) {
            return Err(Refusal::field("ref", "The ref must be fully qualified, such as refs/heads/master."));
        }
        let (parent, number) = (self.optional("parent")?, self.optional("buildNumber")?);
        let login = self.call.login.clone();
        self.call.shared.change(|state| {
            let (id, now) = (state.new_id(), timestamp());
            let before = {
                let repo = self.repo_in(state)?;
                let found = builds(state, repo, commit).find(|(_, facts)| facts.key == key);
                found.map(|(status, facts)| (status.id, facts.created_at.clone()))
            };
            let context = name.clone().unwrap_or_else(|| key.clone());
            let created_at = before.as_ref().map_or_else(|| now.clone(), |(_, at)| at.clone());
            let facts = BuildFacts { key, name, word, reference, parent, number, created_at };
            state.bitbucket_data_center.builds.insert(id, facts);
            let repo = state.repo_mut(&self.full_name).map_err(|error| Refusal::broken(&error))?;
            repo.statuses.retain(|status| before.as_ref().is_none_or(|(id, _)| status.id != *id));
            repo.statuses.push(StatusState {
                id,
                sha: commit.to_owned(),
                creator: login,
                state: (*plain).to_owned(),
                context,
                description,
                target_url: Some(address),
                created_at: now,
                of_push: None,
            });
            Ok(())
        })
    }
}

impl Call<'_> {
    /// Lists the statuses of a commit in all repositories that the account reads. It is the only such list, and deprecated (OpenAPI).
    pub(super) fn builds_of_commit(&self, commit: &str) -> Result {
        if self.method != http::Method::GET {
            return Err(no_route());
        }
        let rows = {
            let state = self.shared.lock();
            let seen = state.repos.values().filter(|repo| access::level(repo, &self.login) > Level::None);
            let all = seen.flat_map(|repo| builds(&state, repo, commit));
            let row = |(status, facts): (&StatusState, &BuildFacts)| {
                json!({
                    "state": facts.word, "key": facts.key, "name": facts.name, "url": status.target_url,
                    "description": status.description, "dateAdded": shapes::millis(&status.created_at),
                })
            };
            all.map(row).collect()
        };
        self.page(rows, most::COMMITS)
    }
}

fn check_length(name: &str, text: &str, most: usize) -> Result<()> {
    match text.chars().count() > most {
        true => Err(Refusal::field(name, format!("The {name} must be at most {most} characters long."))),
        false => Ok(()),
    }
}

/// A build status (OpenAPI, `RestBuildStatus`).
fn shaped(status: &StatusState, facts: &BuildFacts) -> Value {
    json!({
        "key": facts.key, "name": facts.name, "state": facts.word, "url": status.target_url, "description": status.description,
        "ref": facts.reference, "parent": facts.parent, "buildNumber": facts.number, "duration": null, "testResults": null,
        "createdDate": shapes::millis(&facts.created_at), "updatedDate": shapes::millis(&status.created_at),
    })
}
