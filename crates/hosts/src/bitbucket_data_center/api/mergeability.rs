//! Mergeability, as the host judges it for our account: conflicts, and the vetoes of its merge checks
//! (`GET .../pull-requests/{pullRequestId}/merge`).

use super::{BitbucketDataCenter, answers, builds};
use crate::vcs::http::odd;
use crate::vcs::{HostError, Mergeability};
use backon::BackoffBuilder as _;
use serde_json::Value;
use tidelock_core::domain::PullRequest;

/// Most requests while the host tries the merge.
const POLLS: usize = 6;
/// Most vetoes that are named.
const MAX_NAMED: usize = 8;

/// Obstacles to a merge, for people.
#[derive(Default)]
pub(super) struct Obstacles {
    /// Those besides our own builds that announce something; empty if there is none.
    pub(super) list: Vec<String>,
    /// True if the host would refuse the merge now.
    pub(super) is_refused: bool,
    /// True if the host would refuse the merge because of builds in progress alone.
    pub(super) waits_for_builds: bool,
    /// True if the host has not tried the merge yet.
    pub(super) is_undecided: bool,
}

pub(super) async fn mergeability(host: &BitbucketDataCenter, pull: &PullRequest) -> Result<Mergeability, HostError> {
    let told = host.pull(&pull.id).await?;
    let obstacles = obstacles(host, pull, &told).await?.list;
    Ok(match obstacles.is_empty() {
        true => Mergeability { mergeable: true, detail: "Bitbucket Data Center would merge it".to_owned() },
        false => Mergeability { mergeable: false, detail: obstacles.join("; ") },
    })
}

/// Returns what is in the way of a merge.
pub(super) async fn obstacles(
    host: &BitbucketDataCenter,
    pull: &PullRequest,
    told: &Value,
) -> Result<Obstacles, HostError> {
    let of_one = |words: String| Obstacles { list: vec![words], is_refused: true, ..Obstacles::default() };
    if let Some(obstacle) = obstacle(pull, told) {
        return Ok(of_one(obstacle.to_owned()));
    }
    let judged = judged(host, pull).await?;
    if judged["conflicted"] == true || judged["outcome"] == "CONFLICTED" {
        return Ok(of_one(format!("it has conflicts with `{}`", pull.base.branch)));
    }
    if judged["outcome"] != "CLEAN" {
        let words = "Bitbucket Data Center has not found out yet; try again in a minute".to_owned();
        return Ok(Obstacles { is_undecided: true, ..of_one(words) });
    }
    let vetoes = judged["vetoes"].as_array().ok_or_else(|| odd(&format!("merge of {}", pull.id), "no vetoes"))?;
    let (of_builds, others): (Vec<&Value>, Vec<&Value>) = vetoes.iter().partition(|veto| builds::is_veto(veto));
    let mut found = Obstacles {
        is_refused: judged["canMerge"] == false || !of_builds.is_empty() || !others.is_empty(),
        ..Obstacles::default()
    };
    found.list.extend(others.iter().take(MAX_NAMED).map(|veto| words(veto)));
    if let Some(veto) = of_builds.first() {
        let builds = builds::judge(host, pull).await?;
        found.waits_for_builds = others.is_empty() && builds.is_running;
        if builds.obstacles.is_empty() && !builds.announces {
            found.list.push(words(veto));
        }
        found.list.extend(builds.obstacles);
    }
    if found.is_refused && of_builds.is_empty() && found.list.is_empty() {
        found.list.push("Bitbucket Data Center gives no reason".to_owned());
    }
    Ok(found)
}

/// Returns the host's judgement once it has tried the merge, or as it is after some polls.
async fn judged(host: &BitbucketDataCenter, pull: &PullRequest) -> Result<Value, HostError> {
    let path = format!("{}/merge", host.pull_path(&pull.id)?);
    let mut told = host.http.get(&path).await?.body;
    for wait in host.http.waits(POLLS).build() {
        if told["outcome"] != "UNKNOWN" {
            break;
        }
        tokio::time::sleep(wait).await;
        told = host.http.get(&path).await?.body;
    }
    Ok(told)
}

/// Returns the obstacle that the pull request itself tells.
pub(super) fn obstacle(pull: &PullRequest, told: &Value) -> Option<&'static str> {
    match told["state"].as_str() {
        Some("OPEN") if answers::head(told).as_ref() != Some(&pull.head.commit) => Some("its head has moved on"),
        Some("OPEN") if answers::branch(&told["toRef"]).as_ref() != Some(&pull.base.branch) => {
            Some("its base branch has changed")
        }
        Some("OPEN") if told["draft"] == true => Some("it is a draft"),
        Some("OPEN") => None,
        _ => Some("the pull request is closed"),
    }
}

/// Returns a veto in the host's words.
fn words(veto: &Value) -> String {
    let text = |key: &str| answers::quoted(veto[key].as_str().unwrap_or_default());
    match (text("summaryMessage"), text("detailedMessage")) {
        (summary, detail) if detail.is_empty() || summary == detail => summary,
        (summary, detail) if summary.is_empty() => detail,
        (summary, detail) => format!("{summary}: {detail}"),
    }
}

#[cfg(test)]
mod unit_tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_veto_is_told_in_the_hosts_words() {
        let of = |summary: &str, detail: &str| words(&json!({"summaryMessage": summary, "detailedMessage": detail}));
        assert_eq!(of("Requires approvals", "You need\none more."), "Requires approvals: You need one more.");
        assert_eq!((of("a", ""), of("", "b"), of("a", "a")), ("a".to_owned(), "b".to_owned(), "a".to_owned()));
    }
}
