//! Whether GitHub would merge, and merging.

use super::{Github, moved, repo_path};
use crate::domain::PullRequest;
use crate::vcs::{HostError, Mergeability};
use backon::BackoffBuilder as _;
use reqwest::Method;
use serde_json::{Value, json};

/// How often GitHub is asked while it still computes whether a pull request can be merged.
const POLLS: usize = 5;
/// Ways to merge, best first, with the repository's key that allows each.
const METHODS: [(&str, &str); 3] =
    [("merge", "allow_merge_commit"), ("rebase", "allow_rebase_merge"), ("squash", "allow_squash_merge")];

pub(super) async fn mergeability(github: &Github, pull: &PullRequest) -> Result<Mergeability, HostError> {
    let mut body = github.pull(&pull.id).await?;
    for wait in github.http.waits(POLLS).build() {
        let known = body["mergeable"].is_boolean() && body["mergeable_state"] != "unknown";
        if known || body["state"] != "open" {
            break;
        }
        tokio::time::sleep(wait).await;
        body = github.pull(&pull.id).await?;
    }
    Ok(judged(&body))
}

fn judged(pull: &Value) -> Mergeability {
    let branch = pull["base"]["ref"].as_str().unwrap_or("the base branch");
    let (mergeable, detail) = match pull["mergeable_state"].as_str() {
        _ if pull["state"] != "open" => (false, "the pull request is closed".to_owned()),
        Some("draft") => (false, "it is a draft".to_owned()),
        _ if pull["draft"] == true => (false, "it is a draft".to_owned()),
        Some("clean" | "unstable" | "has_hooks") => (true, "GitHub would merge it".to_owned()),
        Some("blocked") => (false, "blocked by branch protection: reviews or required checks are missing".to_owned()),
        Some("dirty") => (false, format!("it has conflicts with `{branch}`")),
        Some("behind") => (false, format!("it is behind `{branch}`, which has to be merged into it first")),
        Some("unknown") | None => (false, "GitHub has not found out yet; try again in a minute".to_owned()),
        Some(other) => (false, format!("GitHub says `{other}`")),
    };
    Mergeability { mergeable, detail }
}

pub(super) async fn merge(github: &Github, pull: &PullRequest, method: Option<&str>) -> Result<(), HostError> {
    let repo_path = repo_path(&pull.id.repo)?;
    let repo = github.http.get(&repo_path).await?.body;
    moved::is_asked_for(&pull.id.repo, &format!("GET {repo_path}"), &repo)?;
    let what = format!("PUT {repo_path}/pulls/{}/merge", pull.id.number);
    let method = chosen(&repo, method).map_err(|message| HostError::Rejected { what, status: 405, message })?;
    let body = json!({ "merge_method": method, "sha": pull.head.commit });
    github.http.send(Method::PUT, &format!("{repo_path}/pulls/{}/merge", pull.id.number), Some(body)).await.map(drop)
}

/// The asked-for method if the repository allows it, else the first allowed one. What GitHub does not tell counts as allowed.
fn chosen<'a>(repo: &Value, asked: Option<&'a str>) -> Result<&'a str, String> {
    let allowed: Vec<_> = METHODS.into_iter().filter(|(_, key)| repo[key] != false).map(|(name, _)| name).collect();
    match asked.filter(|name| !name.is_empty()) {
        None => allowed.first().copied().ok_or_else(|| "the repository allows no way to merge".to_owned()),
        Some(name) if allowed.contains(&name) => Ok(name),
        Some(name) => Err(format!("merge method `{name}` is not allowed here; allowed: {}", allowed.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_states_are_judged_and_worded() {
        for (state, mergeable, words) in [
            ("clean", true, "would merge"),
            ("unstable", true, "would merge"),
            ("has_hooks", true, "would merge"),
            ("blocked", false, "branch protection"),
            ("dirty", false, "conflicts with `main`"),
            ("behind", false, "behind `main`"),
            ("draft", false, "draft"),
            ("unknown", false, "not found out"),
            ("brand_new", false, "`brand_new`"),
        ] {
            let got = judged(&json!({"state": "open", "mergeable_state": state, "base": {"ref": "main"}}));
            assert!(got.mergeable == mergeable && got.detail.contains(words), "{state}: {got:?}");
        }
        assert!(!judged(&json!({"state": "closed", "mergeable_state": "clean"})).mergeable);
        assert!(!judged(&json!("odd")).mergeable);
    }

    #[test]
    fn the_repository_decides_how_to_merge() {
        let no_merge = json!({"allow_merge_commit": false, "allow_rebase_merge": true, "allow_squash_merge": false});
        assert_eq!(chosen(&json!({}), None), Ok("merge"));
        assert_eq!(chosen(&no_merge, None), Ok("rebase"));
        assert_eq!(chosen(&json!({}), Some("squash")), Ok("squash"));
        assert!(chosen(&no_merge, Some("squash")).unwrap_err().contains("allowed: rebase"));
        assert!(chosen(&no_merge, Some("octopus")).is_err());
    }
}
