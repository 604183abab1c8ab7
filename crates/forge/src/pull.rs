//! A pull request of the forge: actions of people, and data that tests read and wait for.

use super::app::BOT_OF_APP;
use super::kind::written;
use super::repo::{self, Repo};
use super::state::{CommentState, PullState, RepoState, ReviewState, State};
use super::statuses::{CommitStatus, statuses};
use super::{BOT, HostKind, Shared, bitbucket_cloud, bitbucket_data_center, comments, gitea, gitlab, hooks, timestamp};
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Handle to a pull request; cheap to clone.
#[derive(Clone)]
pub struct Pull {
    pub(super) repo: Repo,
    pub(super) number: u64,
}

/// A comment of a pull request's conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// Its id; grows with time.
    pub id: u64,
    /// Login of its author.
    pub author: String,
    /// Its text.
    pub body: String,
    /// Folded as outdated; on Azure DevOps its thread is closed.
    pub hidden: bool,
}

impl Pull {
    pub(super) fn shared(&self) -> &Shared {
        &self.repo.forge.shared
    }

    fn read<T>(&self, find: impl FnOnce(&PullState) -> T) -> anyhow::Result<T> {
        Ok(find(self.shared().lock().pull(&self.repo.full_name, self.number)?))
    }

    /// Number within its repository.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its number as its host writes it: `#1`, `!1`.
    pub fn reference(&self) -> String {
        format!("{}{}", self.shared().kind.pull_mark(), self.number)
    }

    /// Its repository.
    pub fn repo(&self) -> &Repo {
        &self.repo
    }

    /// Address of its page.
    pub fn url(&self) -> String {
        let shared = self.shared();
        format!("{}{}", shared.url, shared.kind.pull_page(&self.repo.full_name, self.number))
    }

    /// Its title.
    pub fn title(&self) -> anyhow::Result<String> {
        self.read(|pull| pull.title.clone())
    }

    /// Full id of its head commit.
    pub fn head_commit(&self) -> anyhow::Result<String> {
        self.read(|pull| pull.head_sha.clone())
    }

    /// Returns true if it is neither merged nor closed.
    pub fn is_open(&self) -> anyhow::Result<bool> {
        self.read(|pull| pull.open)
    }

    /// Returns true if it was merged.
    pub fn is_merged(&self) -> anyhow::Result<bool> {
        self.read(|pull| pull.merged.is_some())
    }

    /// Pushes a commit by its author to its head branch and returns the commit's id. `None` deletes the file.
    pub async fn push(&self, changes: &[(&str, Option<&str>)]) -> anyhow::Result<String> {
        let author = self.read(|pull| pull.author.clone())?;
        self.push_as(&author, &repo::subject_of(changes), changes).await
    }

    /// [`Pull::push`] by a given person, with a message.
    pub async fn push_as(
        &self,
        author: &str,
        message: &str,
        changes: &[(&str, Option<&str>)],
    ) -> anyhow::Result<String> {
        let (head_repo, head_ref) = self.read(|pull| (pull.head_repo.clone(), pull.head_ref.clone()))?;
        self.repo.forge.repo(&head_repo).push_as(author, &head_ref, message, changes).await
    }

    /// Adds a comment by this person and returns its id.
    pub fn comment(&self, user: &str, body: &str) -> anyhow::Result<u64> {
        self.repo.forge.credentials(user)?;
        let shared = self.shared();
        shared.change(|state| comments::add(state, &shared.url, &self.repo.full_name, self.number, user, body))
    }

    /// Moves the time of a comment back by this much.
    pub fn age_comment(&self, id: u64, by: jiff::SignedDuration) -> anyhow::Result<()> {
        self.shared().change(|state| {
            let pull = state.pull_mut(&self.repo.full_name, self.number)?;
            let comment = pull.comments.iter_mut().find(|comment| comment.id == id).context("no such comment")?;
            for time in [&mut comment.created_at, &mut comment.updated_at] {
                *time = written(time.parse::<jiff::Timestamp>()?.checked_sub(by)?);
            }
            Ok(())
        })
    }

    /// Edits a comment as this person.
    pub fn edit_comment(&self, user: &str, id: u64, body: &str) -> anyhow::Result<()> {
        self.repo.forge.credentials(user)?;
        let shared = self.shared();
        shared.change(|state| comments::edit(state, &shared.url, &self.repo.full_name, self.number, user, (id, body)))
    }

    /// Approves the present head as this person.
    pub fn approve(&self, user: &str) -> anyhow::Result<()> {
        self.vote(user, 10)
    }

    /// Requests changes as this person.
    pub fn request_changes(&self, user: &str) -> anyhow::Result<()> {
        self.vote(user, -10)
    }

    /// Reviews it as this person, by a vote of Azure DevOps: 10 or 5 approves, -5 or -10 requests changes, 0 takes a former vote back.
    pub fn vote(&self, user: &str, vote: i64) -> anyhow::Result<()> {
        self.repo.forge.credentials(user)?;
        let shared = self.shared();
        shared.change(|state| self::vote(state, &shared.url, &self.repo.full_name, self.number, user, vote))
    }

    /// Merges it as alice, with a merge commit.
    pub async fn merge(&self) -> anyhow::Result<String> {
        self.merge_as("alice", "merge").await
    }

    /// Merges it as this person by `merge`, `squash` or `rebase`. Returns the new tip of the base branch.
    pub async fn merge_as(&self, actor: &str, method: &str) -> anyhow::Result<String> {
        merge(self.shared(), &self.repo.full_name, self.number, actor, method).await
    }

    /// Closes it as alice without a merge.
    pub fn close(&self) -> anyhow::Result<()> {
        let shared = self.shared();
        shared.change(|state| repo::close(state, &shared.url, &self.repo.full_name, self.number, "alice"))
    }

    /// Reopens it as alice.
    pub fn reopen(&self) -> anyhow::Result<()> {
        let shared = self.shared();
        shared.change(|state| reopen(state, &shared.url, &self.repo.full_name, self.number, "alice"))
    }

    /// Marks the draft as ready for review, as alice.
    pub fn ready(&self) -> anyhow::Result<()> {
        self.alter("ready_for_review", |pull| {
            if !std::mem::take(&mut pull.draft) {
                bail!("#{} is no draft", pull.number);
            }
            gitea::take_prefix(pull);
            Ok(json!({}))
        })
    }

    /// Changes the base branch as alice. The event's action is `edited`.
    pub async fn retarget(&self, branch: &str) -> anyhow::Result<()> {
        let base = self.repo.tip(branch).await?;
        if self.shared().kind == HostKind::Gitea {
            gitea::retarget(self.shared(), &self.repo.full_name, self.number, &base).await?;
        }
        self.alter("edited", |pull| {
            let (before, from) = (std::mem::replace(&mut pull.base_ref, branch.to_owned()), pull.base_sha.clone());
            pull.base_sha = base;
            Ok(json!({"changes": {"base": {"ref": {"from": before}, "sha": {"from": from}}}}))
        })
    }

    /// Changes it as alice. The change returns more fields of the event, in GitHub's form.
    pub(super) fn alter(
        &self,
        action: &str,
        act: impl FnOnce(&mut PullState) -> anyhow::Result<Value>,
    ) -> anyhow::Result<()> {
        let shared = self.shared();
        shared.change(|state| {
            let pull = state.pull_mut(&self.repo.full_name, self.number)?;
            let extra = act(pull)?;
            pull.updated_at = timestamp();
            hooks::emit_pull_with(state, &shared.url, &self.repo.full_name, self.number, action, "alice", extra)
        })
    }

    /// Makes the API answer with this `mergeable_state` (`blocked`, `unknown`, `behind`, …), on GitLab with this `detailed_merge_status`.
    /// On Gitea and both Bitbuckets the rules of the base branch or the repository change: `blocked` means a missing approval.
    pub fn set_mergeable_state(&self, mergeable_state: &str) -> anyhow::Result<()> {
        self.shared().change(|state| {
            let name = &self.repo.full_name;
            match state.kind {
                HostKind::Gitea => return gitea::force(state, name, self.number, mergeable_state),
                HostKind::BitbucketCloud => return bitbucket_cloud::force(state, name, self.number, mergeable_state),
                HostKind::BitbucketDataCenter => {
                    return bitbucket_data_center::force(state, name, self.number, mergeable_state);
                }
                HostKind::Github | HostKind::AzureDevOps | HostKind::Gitlab => {}
            }
            let pull = state.pull_mut(&self.repo.full_name, self.number)?;
            pull.forced_mergeable_state = Some(mergeable_state.to_owned());
            Ok(())
        })
    }

    /// All comments, oldest first.
    pub fn comments(&self) -> anyhow::Result<Vec<Comment>> {
        self.read(|pull| pull.comments.iter().map(Comment::from).collect())
    }

    /// Comments of the server's account, oldest first.
    pub fn bot_comments(&self) -> anyhow::Result<Vec<Comment>> {
        self.read(bot_comments)
    }

    /// The latest status of each context on the head commit.
    pub fn statuses(&self) -> anyhow::Result<BTreeMap<String, CommitStatus>> {
        statuses(&self.shared().lock(), &self.repo.full_name, self.number)
    }

    /// Reactions on a comment: login and content, such as `eyes`.
    pub fn reactions(&self, comment_id: u64) -> anyhow::Result<Vec<(String, String)>> {
        self.read(|pull| {
            let found = pull.comments.iter().filter(|comment| comment.id == comment_id);
            found.flat_map(|comment| &comment.reactions).map(|r| (r.user.clone(), r.content.clone())).collect()
        })
    }

    /// Waits for the server's comment number `after`, counted from 0. Fails at the limit.
    pub async fn wait_for_comment(&self, after: usize, limit: Duration) -> anyhow::Result<Comment> {
        let find = |state: &State| {
            let pull = state.pull(&self.repo.full_name, self.number).ok()?;
            bot_comments(pull).into_iter().nth(after)
        };
        let found = self.shared().wait_for(limit, find).await;
        found.with_context(|| format!("waiting for the server's comment {} on #{}", after + 1, self.number))
    }

    /// Waits until `accept` returns true for the status of this context, and returns it. Fails at the limit.
    pub async fn wait_for_status(
        &self,
        context: &str,
        accept: impl Fn(&CommitStatus) -> bool,
        limit: Duration,
    ) -> anyhow::Result<CommitStatus> {
        let find = |state: &State| {
            let mut all = statuses(state, &self.repo.full_name, self.number).ok()?;
            all.remove(context).filter(&accept)
        };
        let found = self.shared().wait_for(limit, find).await;
        found.with_context(|| {
            let present = self.statuses().ok().and_then(|mut all| all.remove(context));
            format!("waiting for status {context} on #{}, which is {present:?}", self.number)
        })
    }
}

impl From<&CommentState> for Comment {
    fn from(comment: &CommentState) -> Comment {
        let (author, body) = (comment.author.clone(), comment.body.clone());
        Comment { id: comment.id, author, body, hidden: comment.hidden }
    }
}

fn bot_comments(pull: &PullState) -> Vec<Comment> {
    let is_ours = |comment: &&CommentState| comment.author == BOT || comment.author.ends_with(BOT_OF_APP);
    pull.comments.iter().filter(is_ours).map(Comment::from).collect()
}

/// Reviews a pull request: [`Pull::vote`].
pub(super) fn vote(
    state: &mut State,
    url: &str,
    full_name: &str,
    number: u64,
    user: &str,
    vote: i64,
) -> anyhow::Result<()> {
    match state.kind {
        HostKind::Gitea => return gitea::vote(state, url, full_name, number, user, vote),
        HostKind::BitbucketCloud => return bitbucket_cloud::vote(state, url, full_name, number, user, vote),
        HostKind::BitbucketDataCenter => {
            return bitbucket_data_center::vote(state, url, full_name, number, user, vote);
        }
        HostKind::Github | HostKind::AzureDevOps | HostKind::Gitlab => {}
    }
    let (verdict, body) = match vote {
        5 | 10 => ("APPROVED", ""),
        0 => ("DISMISSED", ""),
        -5 | -10 => ("CHANGES_REQUESTED", "Not like this."),
        _ => bail!("there is no vote {vote}"),
    };
    let (id, kind) = (state.new_id(), state.kind);
    let pull = state.pull_mut(full_name, number)?;
    if kind == HostKind::Github && pull.author.eq_ignore_ascii_case(user) {
        bail!("{user} opened #{number} and cannot review it; choose somebody else");
    }
    pull.reviews.push(ReviewState {
        id,
        user: user.to_owned(),
        state: verdict,
        vote,
        body: body.to_owned(),
        commit: pull.head_sha.clone(),
        submitted_at: timestamp(),
    });
    hooks::emit_review(state, url, full_name, number)
}

/// Reopens a pull request that is closed without a merge. Bitbucket Cloud has no way to do that.
pub(super) fn reopen(state: &mut State, url: &str, full_name: &str, number: u64, actor: &str) -> anyhow::Result<()> {
    let is_final = state.kind == HostKind::BitbucketCloud;
    let pull = state.pull_mut(full_name, number)?;
    if pull.open || pull.merged.is_some() || is_final {
        bail!("#{number} is open, merged or declined for good; only a closed one can be reopened");
    }
    (pull.open, pull.closed_at, pull.updated_at) = (true, None, timestamp());
    hooks::emit_pull(state, url, full_name, number, "reopened", actor)
}

/// Fails with the reason for which a pull request cannot be merged by this method.
fn check(state: &State, repo: &RepoState, pull: &PullState, method: &str) -> anyhow::Result<()> {
    let allowed = match method {
        "merge" => repo.allow_merge_commit,
        "squash" => repo.allow_squash_merge,
        "rebase" | "rebase-merge" | "fast-forward-only" => repo.allow_rebase_merge,
        _ => false,
    };
    if !allowed {
        bail!("{method} merges are not allowed on this repository.");
    }
    match state.kind {
        HostKind::Gitlab => return gitlab::check(state, repo, pull),
        HostKind::Gitea => return gitea::check(state, repo, pull),
        HostKind::BitbucketCloud => return bitbucket_cloud::check(state, repo, pull),
        HostKind::BitbucketDataCenter => return bitbucket_data_center::check(state, repo, pull),
        HostKind::Github | HostKind::AzureDevOps => {}
    }
    match repo.mergeability(pull).1.as_str() {
        "clean" | "unstable" | "has_hooks" => Ok(()),
        "draft" => bail!("Pull Request is still a draft"),
        "blocked" => bail!("At least 1 approving review is required by reviewers with write access."),
        _ => bail!("Pull Request is not mergeable"),
    }
}

/// Merges in git and returns the new tip of the base branch. Fails with the reason if GitHub would answer 405.
pub(super) async fn merge(
    shared: &Shared,
    full_name: &str,
    number: u64,
    actor: &str,
    method: &str,
) -> anyhow::Result<String> {
    merge_with(shared, full_name, number, actor, method, None).await
}

/// Merges with this message, or the usual one.
pub(super) async fn merge_with(
    shared: &Shared,
    full_name: &str,
    number: u64,
    actor: &str,
    method: &str,
    message: Option<&str>,
) -> anyhow::Result<String> {
    let _refs = shared.refs.lock().await;
    let (git, title, base_ref, head_ref, head_sha) = {
        let state = shared.lock();
        let repo = state.repo(full_name)?;
        let pull = state.pull(full_name, number)?;
        check(&state, repo, pull, method)?;
        (repo.git.clone(), pull.title.clone(), pull.base_ref.clone(), pull.head_ref.clone(), pull.head_sha.clone())
    };
    let base = git.heads().await?.remove(&base_ref).context("the base branch is gone")?;
    let tree = git.merge_tree(&base, &head_sha).await?.context("Pull Request is not mergeable")?;
    let new = match method {
        "rebase" => git.rebase(&base, &head_sha).await?,
        "rebase-merge" => {
            let tip = git.rebase(&base, &head_sha).await?;
            git.commit_tree(&tree, &[&base, &tip], actor, message.unwrap_or(&title)).await?
        }
        "fast-forward-only" if git.merge_base(&base, &head_sha).await.as_ref() == Some(&base) => head_sha.clone(),
        "fast-forward-only" => bail!("the base branch has commits that the head does not have"),
        "squash" => git.commit_tree(&tree, &[&base], actor, &format!("{title} (#{number})")).await?,
        _ => {
            let usual = format!("Merge pull request #{number} from {head_ref}\n\n{title}");
            git.commit_tree(&tree, &[&base, &head_sha], actor, message.unwrap_or(&usual)).await?
        }
    };
    git.update_ref(&format!("refs/heads/{base_ref}"), &new, Some(&base)).await?;
    shared.change(|state| {
        let pull = state.pull_mut(full_name, number)?;
        let now = timestamp();
        pull.merged = Some((new.clone(), actor.to_owned()));
        (pull.open, pull.base_sha) = (false, base);
        (pull.closed_at, pull.updated_at) = (Some(now.clone()), now);
        hooks::emit_pull(state, &shared.url, full_name, number, "closed", actor)
    })?;
    repo::follow_refs(shared, full_name, actor).await?;
    Ok(new)
}
