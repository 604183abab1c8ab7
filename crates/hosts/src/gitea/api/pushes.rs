//! Pushes to the branch of a pull request, from the activity of its repository. Commits carry e-mail addresses only, which anybody can
//! claim.

use super::{Gitea, answers};
use crate::vcs::HostError;
use jiff::Timestamp;
use serde_json::Value;
use tidelock_core::domain::{CommitSha, Login, PullRequest, RepoId};

/// Most pages of a repository's activity that are searched, newest first.
const FEED_PAGES: u32 = 12;
/// Most pages of commits of one pull request.
const COMMIT_PAGES: u32 = 60;

/// One push to a branch.
struct BranchPush {
    author: Login,
    /// Head of the branch before; absent for its first push, and if the host does not report it.
    before: Option<CommitSha>,
    /// Head of the branch after; absent if the host does not report it.
    after: Option<CommitSha>,
}

/// Pushes to a branch.
struct BranchPushes {
    /// Newest first.
    list: Vec<BranchPush>,
    /// True if the list goes back to the beginning of the branch or of its repository.
    is_whole: bool,
}

/// Returns the login that pushed the head; unknown if the activity does not say so.
pub(super) async fn pusher(host: &Gitea, pull: &PullRequest) -> Result<Login, HostError> {
    let pushes = pushes(host, pull, Some(&pull.head.commit)).await?;
    let found = pushes.list.into_iter().find(|push| push.after.as_ref() == Some(&pull.head.commit));
    Ok(found.map_or_else(Login::unknown, |push| push.author))
}

/// Returns everybody who has pushed to the branch since its beginning, and authors and committers with an account. An unknown login stands for
/// pushes that the host does not report: those before the pages that are searched, and those of people who hide their activity.
pub(super) async fn contributors(host: &Gitea, pull: &PullRequest) -> Result<Vec<Login>, HostError> {
    let pushes = pushes(host, pull, None).await?;
    let heads: Vec<&CommitSha> = pushes.list.iter().filter_map(|push| push.after.as_ref()).collect();
    // Each push but the first one continues another.
    let continues = |push: &&BranchPush| push.before.as_ref().is_some_and(|before| heads.contains(&before));
    let beginnings = pushes.list.iter().filter(|push| !continues(push)).count();
    let is_known = pushes.is_whole && beginnings <= 1 && heads.contains(&&pull.head.commit);
    let mut all: Vec<Login> = pushes.list.iter().map(|push| push.author.clone()).collect();
    let path = format!("{}/commits?verification=false&files=false", host.pull_path(&pull.id)?);
    for commit in host.rows(&path, COMMIT_PAGES).await? {
        let people = ["author", "committer"].map(|who| answers::login(&commit[who]));
        all.extend(people.into_iter().filter(|login| !login.is_unknown()));
    }
    if !is_known {
        all.push(Login::unknown());
    }
    let mut once: Vec<Login> = Vec::new();
    for login in all {
        if !once.contains(&login) {
            once.push(login);
        }
    }
    Ok(once)
}

/// Returns the pushes to the branch of a pull request, back to its beginning, or to the push of `until`.
async fn pushes(host: &Gitea, pull: &PullRequest, until: Option<&CommitSha>) -> Result<BranchPushes, HostError> {
    let mut pushes = BranchPushes { list: Vec::new(), is_whole: false };
    let Some(source) = source_of(pull) else { return Ok(pushes) };
    let path = format!("{}/activities/feeds", host.address.repo_path(&source)?);
    let branch = format!("refs/heads/{}", pull.head.branch);
    let (mut largest, mut began): (u64, Option<Timestamp>) = (0, None);
    for page in 1..=FEED_PAGES {
        let (rows, is_last) = match host.page(&path, page, &mut largest).await {
            // Our token may not read a fork.
            Err(HostError::NotFound { .. } | HostError::Denied { .. }) => return Ok(pushes),
            found => found?,
        };
        for row in rows {
            let at = answers::moment(&row["created"]);
            // What happened within the same second is in no order.
            if began.zip(at).is_some_and(|(began, at)| at < began) {
                pushes.is_whole = true;
                return Ok(pushes);
            }
            let is_push = row["op_type"] == "commit_repo" && row["ref_name"] == branch.as_str();
            let content = row["content"].as_str().unwrap_or_default();
            // A new branch has an activity of its own, without content (services/feed/notifier.go, `CreateRef`). Those of a new fork do
            // not.
            let is_new_fork = pull.fork && row["op_type"] == "create_repo";
            if is_new_fork || is_push && content.is_empty() {
                began = at.or(began);
            } else if is_push {
                pushes.list.push(push(answers::login(&row["act_user"]), content));
            }
        }
        let is_found = until.is_some() && pushes.list.iter().any(|push| push.after.as_ref() == until);
        if is_last || is_found {
            pushes.is_whole = began.is_some();
            break;
        }
    }
    Ok(pushes)
}

/// Returns the repository that has the branch; absent if it is hidden or deleted.
fn source_of(pull: &PullRequest) -> Option<RepoId> {
    let (owner, name) = (pull.head.repo_owner.clone(), pull.head.repo_name.clone());
    (!owner.is_empty()).then(|| RepoId { host: pull.id.repo.host.clone(), owner, name })
}

/// Reads what the host keeps of a push (modules/repository/commits.go, `PushCommits`); a long one is cut to `{}`.
fn push(author: Login, content: &str) -> BranchPush {
    let content: Value = serde_json::from_str(content).unwrap_or_default();
    let compared = content["CompareURL"].as_str().and_then(|url| url.rsplit_once("/compare/")?.1.split_once("..."));
    BranchPush {
        author,
        before: compared.and_then(|(before, _)| CommitSha::parse(before).ok()),
        after: answers::sha(&content["HeadCommit"]["Sha1"]),
    }
}
