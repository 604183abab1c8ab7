//! Completes a pull request: merges it as its author and the branch's policies require.

use super::{AzureDevOps, VERSION, pull_path};
use crate::azure_devops::address::{project_path, repo_path};
use crate::azure_devops::shapes::{self, HEADS};
use crate::vcs::http::segment;
use crate::vcs::{HostError, Merging, SourceBranch};
use backon::BackoffBuilder as _;
use reqwest::Method;
use serde_json::{Value, json};
use tidelock_core::domain::PullRequest;

/// Most requests while the host merges, with the completion itself.
const POLLS: usize = 12;
/// Policy that limits how pull requests are merged (learn.microsoft.com, "Limit merge types").
const MERGE_TYPES: &str = "fa4e907d-c16b-4a4c-9dfa-4916e5d171ab";
/// Ways to merge, best first: our name, the host's name, and the policy's setting that allows it.
pub(super) const METHODS: [(&str, &str, &str); 4] = [
    ("merge", "noFastForward", "allowNoFastForward"),
    ("rebase", "rebase", "allowRebase"),
    ("squash", "squash", "allowSquash"),
    ("rebase-merge", "rebaseMerge", "allowRebaseMerge"),
];

/// Completes a pull request if its head is still the known one. The host deletes the source branch if `source` demands it,
/// unless it is a fork's or the default branch.
pub(super) async fn complete(
    host: &AzureDevOps,
    pull: &PullRequest,
    method: Option<&str>,
    source: SourceBranch,
) -> Result<Merging, HostError> {
    let path = format!("{}?{VERSION}", pull_path(&pull.id)?);
    let rejected = |message: String| HostError::Rejected { what: format!("PATCH {path}"), status: 405, message };
    let now = host.pull(&pull.id).await?;
    let policies = merge_types(host, pull, &now).await?;
    let strategy = chosen(&policies, &now["completionOptions"], method).map_err(rejected)?;
    // Options that the author set are kept: deletion of the source branch, the message, work items.
    let mut options = match &now["completionOptions"] {
        Value::Object(set) => set.clone(),
        _ => serde_json::Map::new(),
    };
    options.insert("mergeStrategy".to_owned(), json!(strategy));
    options.insert("bypassPolicy".to_owned(), json!(false));
    options.remove("squashMerge");
    if source == SourceBranch::Delete && may_delete_source(host, pull).await? {
        options.insert("deleteSourceBranch".to_owned(), json!(true));
    }
    let body = json!({
        "status": "completed",
        "lastMergeSourceCommit": { "commitId": pull.head.commit },
        "completionOptions": options,
    });
    let mut answer = host.http.send(Method::PATCH, &path, Some(body)).await?.body;
    let mut waits = host.http.waits(POLLS).build();
    loop {
        match (answer["status"].as_str(), answer["mergeStatus"].as_str()) {
            (Some("completed"), _) => return Ok(Merging::Merged(shapes::commit(&answer["lastMergeCommit"]))),
            (Some("abandoned"), _) => return Err(rejected("it was abandoned meanwhile".to_owned())),
            (_, Some(status @ ("conflicts" | "failure" | "rejectedByPolicy"))) => {
                let why = answer["mergeFailureMessage"].as_str().unwrap_or(status);
                return Err(rejected(format!("Azure DevOps did not merge it: {why}")));
            }
            _ => {}
        }
        let Some(wait) = waits.next() else {
            let message = "the merge has not ended yet".to_owned();
            return Err(HostError::Unavailable { what: format!("PATCH {path}"), message });
        };
        tokio::time::sleep(wait).await;
        answer = host.pull(&pull.id).await?;
    }
}

/// Returns true if the source branch may be deleted with the merge.
async fn may_delete_source(host: &AzureDevOps, pull: &PullRequest) -> Result<bool, HostError> {
    if pull.fork || pull.head.branch == pull.base.branch {
        return Ok(false);
    }
    let repository = host.http.get(&format!("{}?{VERSION}", repo_path(&pull.id.repo)?)).await?.body;
    let default = repository["defaultBranch"].as_str().and_then(|name| name.strip_prefix(HEADS));
    Ok(default.is_some_and(|name| name != pull.head.branch))
}

/// Returns the settings of the policies that limit the ways to merge into the target branch.
async fn merge_types(host: &AzureDevOps, pull: &PullRequest, now: &Value) -> Result<Vec<Value>, HostError> {
    let repository = now["repository"]["id"].as_str().unwrap_or_default();
    let branch = now["targetRefName"].as_str().unwrap_or_default();
    let path = format!(
        "{}/git/policy/configurations?repositoryId={}&refName={}&policyType={MERGE_TYPES}&{}",
        project_path(&pull.id.repo)?,
        segment(repository),
        segment(branch),
        super::PREVIEW
    );
    let in_force = |row: &Value| {
        row["type"]["id"] == MERGE_TYPES
            && row["isEnabled"] != false
            && row["isBlocking"] != false
            && row["isDeleted"] != true
    };
    let rows = host.rows(&path).await?;
    Ok(rows.into_iter().filter(in_force).map(|mut row| row["settings"].take()).collect())
}

/// Returns the host's name of the requested method, which the policies must allow. Without a request it is the author's choice if allowed,
/// else the first allowed one.
fn chosen(policies: &[Value], options: &Value, asked: Option<&str>) -> Result<&'static str, String> {
    let is_allowed = |key: &str| policies.iter().all(|settings| settings[key] == true);
    let allowed: Vec<_> = METHODS.into_iter().filter(|(_, _, key)| is_allowed(key)).collect();
    let names = || allowed.iter().map(|(ours, ..)| *ours).collect::<Vec<_>>().join(", ");
    let find = |name: &str| allowed.iter().find(|(ours, theirs, _)| *ours == name || *theirs == name);
    if let Some(name) = asked.filter(|name| !name.is_empty()) {
        let found = find(name).map(|(_, theirs, _)| *theirs);
        return found.ok_or_else(|| format!("merge method `{name}` is not allowed here; allowed: {}", names()));
    }
    let wanted = options["mergeStrategy"].as_str().and_then(find);
    let first = wanted.or(allowed.first()).map(|(_, theirs, _)| *theirs);
    first.ok_or_else(|| "the branch's policies allow no way to merge".to_owned())
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn the_policies_decide_how_to_merge_and_then_the_author() {
        let squash = json!({"allowNoFastForward": false, "allowSquash": true, "allowRebase": false});
        let options = json!({"mergeStrategy": "squash"});
        assert_eq!(chosen(&[], &Value::Null, None), Ok("noFastForward"));
        assert_eq!(chosen(&[], &options, None), Ok("squash"));
        assert_eq!(chosen(&[], &options, Some("rebase")), Ok("rebase"));
        assert_eq!(chosen(&[], &options, Some("rebaseMerge")), Ok("rebaseMerge"));
        assert_eq!(chosen(std::slice::from_ref(&squash), &Value::Null, None), Ok("squash"));
        assert!(
            chosen(std::slice::from_ref(&squash), &Value::Null, Some("merge")).unwrap_err().contains("allowed: squash")
        );
        assert!(chosen(&[squash, json!({"allowSquash": false})], &Value::Null, None).unwrap_err().contains("no way"));
    }
}
