//! Build statuses of commits. A key stands for one status of a commit; another one with the key replaces it.

use super::super::state::{RepoState, State, StatusState};
use super::super::timestamp;
use super::api::{RepoCall, created, no_route, ok};
use super::{Refusal, Result, shapes};
use serde_json::{Value, json};

/// Longest key, in characters (github.com/buildbot/buildbot/issues/7049).
const MAX_KEY: usize = 40;

/// What Bitbucket knows of a build status besides the shared state, which has its name as the context.
#[derive(Clone)]
pub(super) struct BuildFacts {
    key: String,
    name: Option<String>,
    /// Branch that it belongs to.
    refname: Option<String>,
    word: &'static str,
    created_at: String,
}

/// States of a build, and what they are in the shared state.
const WORDS: [(&str, &str); 4] =
    [("INPROGRESS", "pending"), ("SUCCESSFUL", "success"), ("FAILED", "failure"), ("STOPPED", "error")];

/// The build statuses of a commit, by the time of their creation.
pub(super) fn builds<'a>(
    state: &'a State,
    repo: &'a RepoState,
    commit: &'a str,
) -> impl Iterator<Item = (&'a StatusState, &'a BuildFacts)> {
    let of_commit = repo.statuses.iter().filter(move |status| status.sha == commit);
    of_commit.filter_map(|status| Some((status, state.bitbucket_cloud.builds.get(&status.id)?)))
}

/// Checks for enough successful builds of a commit, and none that has failed or is in progress
/// (bitbucket.org/blog/more-reliable-merge-checks).
pub(super) fn are_passing(state: &State, repo: &RepoState, commit: &str, least: usize) -> bool {
    let words: Vec<&str> = builds(state, repo, commit).map(|(_, facts)| facts.word).collect();
    words.iter().filter(|word| **word == "SUCCESSFUL").count() >= least
        && !words.iter().any(|word| matches!(*word, "FAILED" | "INPROGRESS"))
}

/// Lists the statuses of a pull request: those of its head that name its source branch, or none (OpenAPI, `refname`).
pub(super) fn of_pull(call: &RepoCall<'_>, number: u64) -> Result {
    let rows = call.of_pull(number, |state, repo, pull| {
        let of_branch = |facts: &BuildFacts| facts.refname.as_deref() == Some(&pull.head_ref);
        let all = builds(state, repo, &pull.head_sha).filter(|(_, facts)| of_branch(facts));
        all.map(|(status, facts)| shaped(call.url(), repo, status, facts)).collect()
    })?;
    call.call.page(rows, 100)
}

impl RepoCall<'_> {
    pub(super) async fn of_statuses(&self, method: &str, name: &str, rest: &[&str]) -> Result {
        let commit = self.any_commit(name).await?;
        match (method, rest) {
            ("GET", []) => self.list(&commit),
            ("POST", ["build"]) => {
                let key = self.field("key")?;
                self.set_status(&commit, &key)?;
                created(self.shaped_status(&commit, &key)?)
            }
            ("GET", ["build", key]) => ok(self.shaped_status(&commit, key)?),
            ("PUT", ["build", key]) => {
                self.shaped_status(&commit, key)?;
                self.set_status(&commit, key)?;
                ok(self.shaped_status(&commit, key)?)
            }
            _ => Err(no_route()),
        }
    }

    fn list(&self, commit: &str) -> Result {
        let rows = {
            let state = self.call.shared.lock();
            let repo = self.repo_in(&state)?;
            let asked = self.call.asked("refname");
            let is_wanted =
                |facts: &BuildFacts| asked.is_none() || facts.refname.is_none() || facts.refname.as_deref() == asked;
            let all = builds(&state, repo, commit).filter(|(_, facts)| is_wanted(facts));
            all.map(|(status, facts)| shaped(self.url(), repo, status, facts)).collect()
        };
        self.call.page(rows, 100)
    }

    fn shaped_status(&self, commit: &str, key: &str) -> Result<Value> {
        let state = self.call.shared.lock();
        let repo = self.repo_in(&state)?;
        let found = builds(&state, repo, commit).find(|(_, facts)| facts.key == key);
        let found = found.map(|(status, facts)| shaped(self.url(), repo, status, facts));
        found.ok_or_else(|| Refusal::not_found("Build status not found"))
    }

    /// Returns a text of the body that must be there. The texts are those of Django's forms, which the host's refusals come from.
    fn field(&self, name: &str) -> Result<String> {
        let text = self.call.text(&format!("/{name}")).filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or_else(|| Refusal::field(name, "This field is required."))
    }

    /// Sets a status of a commit as a person who may write.
    fn set_status(&self, commit: &str, key: &str) -> Result<()> {
        self.check_writer()?;
        let count = key.chars().count();
        if count > MAX_KEY {
            let text = format!("Ensure this value has at most {MAX_KEY} characters (it has {count}).");
            return Err(Refusal::field("key", &text));
        }
        let (word, address) = (self.field("state")?, self.field("url")?);
        let unknown = || format!("Select a valid choice. {word} is not one of the available choices.");
        let known = WORDS.iter().find(|(known, _)| *known == word);
        let (word, plain) = known.ok_or_else(|| Refusal::field("state", &unknown()))?;
        let is_web = url::Url::parse(&address).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        if !is_web {
            return Err(Refusal::field("url", "Enter a valid URL."));
        }
        let text = |name: &str| self.call.text(name).map(str::to_owned);
        let (name, refname, description) = (text("/name"), text("/refname"), text("/description"));
        let login = self.call.login.clone();
        self.call.shared.change(|state| {
            let (id, now) = (state.new_id(), timestamp());
            let known = {
                let repo = self.repo_in(state)?;
                let found = builds(state, repo, commit).find(|(_, facts)| facts.key == key);
                found.map(|(status, facts)| (status.id, facts.clone()))
            };
            let before = known.as_ref().map(|(_, facts)| facts);
            let facts = BuildFacts {
                key: key.to_owned(),
                name: name.or_else(|| before?.name.clone()),
                refname: refname.or_else(|| before?.refname.clone()),
                word,
                created_at: before.map_or_else(|| now.clone(), |facts| facts.created_at.clone()),
            };
            let context = facts.name.clone().unwrap_or_else(|| key.to_owned());
            state.bitbucket_cloud.builds.insert(id, facts);
            let repo = state.repo_mut(&self.full_name).map_err(|error| Refusal::broken(&error))?;
            repo.statuses.retain(|status| known.as_ref().is_none_or(|(id, _)| status.id != *id));
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

/// A build status (go-scm, status.json).
fn shaped(url: &str, repo: &RepoState, status: &StatusState, facts: &BuildFacts) -> Value {
    let commit = format!("{}/commit/{}", shapes::api(url, &repo.full_name()), status.sha);
    json!({
        "type": "build", "key": facts.key, "name": facts.name, "state": facts.word, "url": status.target_url,
        "description": status.description.as_deref().unwrap_or_default(), "refname": facts.refname,
        "created_on": shapes::time(&facts.created_at), "updated_on": shapes::time(&status.created_at),
        "uuid": shapes::uuid(status.id), "repository": shapes::repo_brief(url, repo),
        "commit": shapes::commit_brief(url, &repo.full_name(), &status.sha),
        "links": {"self": {"href": format!("{commit}/statuses/build/{}", facts.key)}, "commit": {"href": commit}},
    })
}
