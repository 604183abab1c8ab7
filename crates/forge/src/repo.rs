//! A repository of the forge: pushes, new pull requests, permissions, and the updates after a push.

use super::git::GitRepo;
use super::pull::Pull;
use super::state::{PullState, PushState, RepoState};
use super::statuses::{CommitStatus, statuses_of};
use super::{BOT, Forge, HostKind, Shared, bitbucket_cloud, bitbucket_data_center, gitea, hooks, lfs, timestamp};
use anyhow::{Context, bail};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// Handle to a repository; cheap to clone.
#[derive(Clone)]
pub struct Repo {
    pub(super) forge: Forge,
    pub(super) full_name: String,
}

/// Options of a new pull request. By default it is ready for review, into `main`, from a branch of the same repository.
#[derive(Default, Clone)]
pub struct OpenOptions {
    /// True to open it as a draft.
    pub draft: bool,
    /// Branch to merge into; `main` if absent.
    pub base: Option<String>,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// Account whose fork has the head branch; on Azure DevOps, collection and project, on GitLab a group, on Bitbucket Data Center a
    /// person or a project's key. The fork is created if there is none.
    pub fork: Option<String>,
    /// Name of that fork, if it differs from the repository's name, as inside the same organization.
    pub fork_name: Option<String>,
    /// Text under the title.
    pub body: String,
}

impl Repo {
    /// The forge of this repository.
    pub fn forge(&self) -> &Forge {
        &self.forge
    }

    /// `owner/name`.
    pub fn full_name(&self) -> &str {
        &self.full_name
    }

    /// Address for git, without credentials.
    pub fn clone_url(&self) -> String {
        let shared = &self.forge.shared;
        format!("{}{}", shared.url, shared.kind.clone_path(&self.full_name))
    }

    /// Address for git with this person's user name and token in it.
    pub fn clone_url_for(&self, login: &str) -> anyhow::Result<String> {
        let (user, token) = self.forge.credentials(login)?;
        let bare = self.clone_url();
        Ok(bare.replacen("http://", &format!("http://{user}:{}@", token.expose_secret()), 1))
    }

    /// Handle to a pull request; its methods fail if there is none.
    pub fn pull(&self, number: u64) -> Pull {
        Pull { repo: self.clone(), number }
    }

    /// All pull requests, oldest first.
    pub fn pulls(&self) -> anyhow::Result<Vec<Pull>> {
        let state = self.forge.shared.lock();
        Ok(state.repo(&self.full_name)?.pulls.iter().map(|pull| self.pull(pull.number)).collect())
    }

    /// The latest status of each context on a commit.
    pub fn statuses_of(&self, commit: &str) -> anyhow::Result<BTreeMap<String, CommitStatus>> {
        statuses_of(&self.forge.shared.lock(), &self.full_name, commit)
    }

    /// Sets a person's permission: `admin`, `write`, `read` or `none`.
    pub fn set_permission(&self, login: &str, level: &str) -> anyhow::Result<()> {
        self.forge.credentials(login)?;
        self.forge.shared.change(|state| {
            state.repo_mut(&self.full_name)?.permissions.insert(login.to_lowercase(), level.to_owned());
            Ok(())
        })
    }

    /// Sets the statuses that every pull request needs to be merged.
    pub fn require_statuses(&self, contexts: &[&str]) -> anyhow::Result<()> {
        self.forge.shared.change(|state| {
            state.repo_mut(&self.full_name)?.required = contexts.iter().map(|context| (*context).to_owned()).collect();
            Ok(())
        })
    }

    /// Stores a file as Git LFS does, and returns the pointer to it.
    pub fn put_large_file(&self, content: &[u8]) -> anyhow::Result<String> {
        let hash = hex::encode(Sha256::digest(content));
        self.forge.shared.change(|state| {
            state.repo_mut(&self.full_name)?.large_files.insert(hash, content.to_vec());
            Ok(lfs::pointer(content))
        })
    }

    /// Allows rebase merges, which repeat each commit of a pull request.
    pub fn allow_rebase_merges(&self) -> anyhow::Result<()> {
        self.forge.shared.change(|state| {
            state.repo_mut(&self.full_name)?.allow_rebase_merge = true;
            Ok(())
        })
    }

    /// Sets whether merge commits and squash merges are allowed.
    pub fn set_merge_methods(&self, merge: bool, squash: bool) -> anyhow::Result<()> {
        self.forge.shared.change(|state| {
            let repo = state.repo_mut(&self.full_name)?;
            (repo.allow_merge_commit, repo.allow_squash_merge) = (merge, squash);
            Ok(())
        })
    }

    /// Sets the size in KiB that the API answers with. Servers fetch large repositories without the contents of old files.
    pub fn set_size_kib(&self, size_kib: u64) -> anyhow::Result<()> {
        self.forge.shared.change(|state| {
            state.repo_mut(&self.full_name)?.size_kib = size_kib;
            Ok(())
        })
    }

    /// Pushes a commit by alice to a branch and returns its id. A missing branch is created from `main`. `None` deletes the file.
    pub async fn push(&self, branch: &str, changes: &[(&str, Option<&str>)]) -> anyhow::Result<String> {
        self.push_as("alice", branch, &subject_of(changes), changes).await
    }

    /// [`Repo::push`] by a given person, with a message.
    pub async fn push_as(
        &self,
        author: &str,
        branch: &str,
        message: &str,
        changes: &[(&str, Option<&str>)],
    ) -> anyhow::Result<String> {
        self.forge.credentials(author)?;
        let shared = &self.forge.shared;
        let _refs = shared.refs.lock().await;
        let git = shared.git(&self.full_name)?;
        let heads = git.heads().await?;
        let parent = heads.get(branch).or_else(|| heads.get("main"));
        let sha = git.commit(branch, parent.map(String::as_str), author, message, changes).await?;
        follow_refs(shared, &self.full_name, author).await?;
        Ok(sha)
    }

    /// Pushes the changes to a new branch as the author and opens a pull request for it.
    pub async fn open_pull(
        &self,
        branch: &str,
        author: &str,
        title: &str,
        changes: &[(&str, Option<&str>)],
        options: OpenOptions,
    ) -> anyhow::Result<Pull> {
        let head_repo = match &options.fork {
            Some(account) => self.fork(account, options.fork_name.as_deref()).await?,
            None => self.clone(),
        };
        let base_ref = options.base.clone().unwrap_or_else(|| "main".to_owned());
        let taken = |pull: &PullState| pull.open && pull.head_repo == head_repo.full_name && pull.head_ref == branch;
        if self.forge.shared.lock().repo(&self.full_name)?.pulls.iter().any(taken) {
            bail!("a pull request for {branch} is open already; push to it or take another branch name");
        }
        if branch == base_ref && options.fork.is_none() {
            bail!("a pull request cannot merge {branch} into itself; take another branch name");
        }
        let head_sha = head_repo.push_as(author, branch, title, changes).await?;
        self.open_from(&head_repo, branch, &head_sha, author, title, base_ref, options).await
    }

    /// Opens a second pull request for the branch of another one, into another base branch. GitHub lets a branch have one for each base
    /// (docs.github.com/rest/pulls/pulls, "Create a pull request": 422 for a second one into the same base).
    pub async fn open_again(&self, first: &Pull, author: &str, base: &str) -> anyhow::Result<Pull> {
        let (head_repo, branch, head_sha) = {
            let state = self.forge.shared.lock();
            let pull = state.pull(&self.full_name, first.number())?;
            if pull.base_ref == base {
                bail!("a pull request already exists for {} into {base}", pull.head_ref);
            }
            (self.forge.repo(&pull.head_repo), pull.head_ref.clone(), pull.head_sha.clone())
        };
        let title = format!("The same into {base}");
        self.open_from(&head_repo, &branch, &head_sha, author, &title, base.to_owned(), OpenOptions::default()).await
    }

    #[expect(clippy::too_many_arguments, reason = "the second half of open_pull")]
    async fn open_from(
        &self,
        head_repo: &Repo,
        branch: &str,
        head_sha: &str,
        author: &str,
        title: &str,
        base_ref: String,
        options: OpenOptions,
    ) -> anyhow::Result<Pull> {
        let shared = &self.forge.shared;
        let _refs = shared.refs.lock().await;
        let git = shared.git(&self.full_name)?;
        let base_sha =
            git.heads().await?.remove(&base_ref).with_context(|| format!("there is no branch {base_ref}"))?;
        if head_repo.full_name != self.full_name {
            git.fetch(&shared.git(&head_repo.full_name)?, head_sha).await?;
        }
        let conflicts = git.merge_tree(&base_sha, head_sha).await?.is_none();
        let measure = match shared.kind {
            HostKind::Gitea => Some(gitea::measure(&git, &base_sha, head_sha, None).await?),
            _ => None,
        };
        let number = shared.change(|state| Ok::<_, anyhow::Error>(state.repo_mut(&self.full_name)?.new_number()))?;
        if let Some(reference) = shared.kind.pull_ref(number) {
            git.update_ref(&reference, head_sha, None).await?;
        }
        shared.change(|state| {
            let now = timestamp();
            let pull = PullState {
                id: state.new_id(),
                number,
                title: title.to_owned(),
                body: options.body,
                author: author.to_owned(),
                draft: options.draft,
                open: true,
                labels: options.labels,
                head_repo: head_repo.full_name.clone(),
                head_ref: branch.to_owned(),
                head_sha: head_sha.to_owned(),
                pushes: vec![PushState { commit: head_sha.to_owned(), author: author.to_owned(), at: now.clone() }],
                base_ref,
                tried_with: base_sha.clone(),
                base_sha,
                merged: None,
                conflicts,
                forced_mergeable_state: None,
                comments: Vec::new(),
                reviews: Vec::new(),
                created_at: now.clone(),
                updated_at: now,
                closed_at: None,
            };
            state.repo_mut(&self.full_name)?.pulls.push(pull);
            if let Some(measure) = measure {
                gitea::note(state, &self.full_name, number, measure)?;
            }
            hooks::emit_pull(state, &shared.url, &self.full_name, number, "opened", author)
        })?;
        Ok(self.pull(number))
    }

    /// Returns the account's fork of this repository, and creates it if there is none.
    async fn fork(&self, account: &str, name: Option<&str>) -> anyhow::Result<Repo> {
        let shared = &self.forge.shared;
        let (_, own_name) = self.full_name.rsplit_once('/').context("a repository without an owner")?;
        let name = name.unwrap_or(own_name);
        let (owner, account) = shared.kind.fork_owner(account);
        let owner = owner.as_str();
        if !shared.kind.is_owner(owner) || !shared.kind.is_part(name) {
            bail!("not a name of an account and its fork: {account:?}, {name:?}");
        }
        let full_name = format!("{owner}/{name}");
        if shared.lock().repo(&full_name).is_err() {
            self.forge.credentials(account)?;
            let git = GitRepo::init(&shared.dir.join("repos").join(owner).join(format!("{name}.git"))).await?;
            git.fetch_branches(&shared.git(&self.full_name)?).await?;
            shared.change(|state| {
                let id = state.new_id();
                let mut fork = RepoState::new(id, owner, name, git, Some(self.full_name.clone()));
                fork.permissions.insert(account.to_lowercase(), "admin".to_owned());
                match shared.kind {
                    // A fork does not inherit the members of its source (docs.gitlab.com/user/project/repository/forking_workflow).
                    HostKind::Gitlab => drop(fork.permissions.remove(BOT)),
                    HostKind::Gitea => gitea::make_fork(&mut fork),
                    HostKind::BitbucketCloud => bitbucket_cloud::make_fork(&mut fork),
                    HostKind::BitbucketDataCenter => bitbucket_data_center::make_fork(&mut fork, account),
                    HostKind::Github | HostKind::AzureDevOps => {}
                }
                state.repos.insert(full_name.to_lowercase(), fork);
            });
        }
        Ok(self.forge.repo(&full_name))
    }

    /// Text of a file on a branch or of a commit; `None` when the file does not exist.
    pub async fn file(&self, commit: &str, path: &str) -> anyhow::Result<Option<String>> {
        self.forge.shared.git(&self.full_name)?.file(commit, path).await
    }

    /// Pushes a commit by alice to a branch without updating pull requests, as if the host had not noticed it.
    pub async fn push_unnoticed(&self, branch: &str, changes: &[(&str, Option<&str>)]) -> anyhow::Result<String> {
        let shared = &self.forge.shared;
        let _refs = shared.refs.lock().await;
        let git = shared.git(&self.full_name)?;
        let tip = self.tip(branch).await?;
        git.commit(branch, Some(&tip), "alice", &subject_of(changes), changes).await
    }

    /// First line of the message of a branch's tip.
    pub async fn subject(&self, branch: &str) -> anyhow::Result<String> {
        let git = self.forge.shared.git(&self.full_name)?;
        let newest = git.log(&format!("{branch}~1"), branch).await?.pop();
        Ok(newest.context("the branch has one commit alone")?.subject)
    }

    /// Deletes a branch, and closes the open pull requests from it.
    pub async fn delete_branch(&self, branch: &str) -> anyhow::Result<()> {
        delete_branch(&self.forge.shared, &self.full_name, branch, "alice").await
    }

    /// Tip of a branch.
    pub async fn tip(&self, branch: &str) -> anyhow::Result<String> {
        let mut heads = self.forge.shared.git(&self.full_name)?.heads().await?;
        heads.remove(branch).with_context(|| format!("there is no branch {branch}"))
    }
}

/// Deletes a branch as this person.
pub(super) async fn delete_branch(shared: &Shared, full_name: &str, branch: &str, actor: &str) -> anyhow::Result<()> {
    let _refs = shared.refs.lock().await;
    shared.git(full_name)?.delete_branch(branch).await?;
    follow_refs(shared, full_name, actor).await
}

/// Message of a commit, such as "Change a, b".
pub(super) fn subject_of(changes: &[(&str, Option<&str>)]) -> String {
    let paths: Vec<_> = changes.iter().map(|(path, _)| *path).collect();
    format!("Change {}", paths.join(", "))
}

/// An open pull request whose head or base branch lies in a repository whose refs have changed.
struct TouchedPull {
    base_name: String,
    git: GitRepo,
    number: u64,
    /// True if its head lies there.
    own_head: bool,
    head_ref: String,
    head_sha: String,
}

fn touched_by(shared: &Shared, full_name: &str) -> Vec<TouchedPull> {
    let state = shared.lock();
    let all = state.repos.values().flat_map(|repo| repo.pulls.iter().map(move |pull| (repo, pull)));
    let row = |(repo, pull): (&RepoState, &PullState)| {
        let own_head = pull.head_repo.eq_ignore_ascii_case(full_name);
        (pull.open && (own_head || repo.full_name().eq_ignore_ascii_case(full_name))).then(|| TouchedPull {
            base_name: repo.full_name(),
            git: repo.git.clone(),
            number: pull.number,
            own_head,
            head_ref: pull.head_ref.clone(),
            head_sha: pull.head_sha.clone(),
        })
    };
    all.filter_map(row).collect()
}

/// Updates pull requests after refs of `full_name` changed (push, merge). Those whose head moved get a webhook; those whose base moved are
/// checked again for conflicts. Of pushes, only those to base branches of open pull requests cause a push event. The caller holds
/// `shared.refs`.
pub(super) async fn follow_refs(shared: &Shared, full_name: &str, actor: &str) -> anyhow::Result<()> {
    let moved = shared.git(full_name)?;
    let heads = moved.heads().await?;
    if shared.kind == HostKind::Gitea {
        shared.change(|state| gitea::follow_heads(state, full_name, &heads, actor));
    }
    let mut announced = BTreeSet::new();
    for touched in touched_by(shared, full_name) {
        let TouchedPull { base_name, git, number, own_head, head_ref, head_sha } = touched;
        let tip = if own_head { heads.get(&head_ref) } else { Some(&head_sha) };
        let Some(tip) = tip else {
            shared.change(|state| close(state, &shared.url, &base_name, number, actor))?;
            continue;
        };
        if *tip != head_sha {
            if base_name != full_name {
                git.fetch(&moved, tip).await?;
            }
            if let Some(reference) = shared.kind.pull_ref(number) {
                git.update_ref(&reference, tip, None).await?;
            }
        }
        let (base_ref, tried_with) = {
            let state = shared.lock();
            let pull = state.pull(&base_name, number)?;
            (pull.base_ref.clone(), pull.tried_with.clone())
        };
        let base_tip = match base_name.eq_ignore_ascii_case(full_name) {
            true => heads.get(&base_ref).cloned(),
            false => git.heads().await?.remove(&base_ref),
        };
        let Some(base_tip) = base_tip else { continue };
        if *tip == head_sha && base_tip == tried_with {
            continue;
        }
        if base_tip != tried_with && announced.insert((base_name.clone(), base_ref.clone())) {
            let moved = (base_ref.as_str(), tried_with.as_str(), base_tip.as_str());
            shared.change(|state| hooks::emit_push(state, &shared.url, &base_name, moved, actor))?;
        }
        let conflicts = git.merge_tree(&base_tip, tip).await?.is_none();
        let measure = match shared.kind {
            HostKind::Gitea => Some(gitea::measure(&git, &base_tip, tip, Some(&head_sha)).await?),
            _ => None,
        };
        shared.change(|state| {
            let pull = state.pull_mut(&base_name, number)?;
            (pull.conflicts, pull.tried_with) = (conflicts, base_tip.clone());
            let is_push = pull.head_sha != *tip;
            if is_push {
                // As on GitHub, the base commit of a pull request changes only with a push to its head.
                (pull.head_sha, pull.base_sha, pull.updated_at) = (tip.clone(), base_tip, timestamp());
                pull.pushes.push(PushState { commit: tip.clone(), author: actor.to_owned(), at: timestamp() });
            }
            if let Some(measure) = measure {
                gitea::note(state, &base_name, number, measure)?;
            }
            if !is_push {
                return Ok(());
            }
            let extra = serde_json::json!({"before": head_sha, "after": tip});
            hooks::emit_pull_with(state, &shared.url, &base_name, number, "synchronize", actor, extra)
        })?;
    }
    Ok(())
}

/// Closes a pull request without a merge, and queues the webhook.
pub(super) fn close(
    state: &mut super::state::State,
    url: &str,
    full_name: &str,
    number: u64,
    actor: &str,
) -> anyhow::Result<()> {
    let pull = state.pull_mut(full_name, number)?;
    if !pull.open {
        bail!("#{number} is closed already");
    }
    let now = timestamp();
    (pull.open, pull.closed_at, pull.updated_at) = (false, Some(now.clone()), now);
    hooks::emit_pull(state, url, full_name, number, "closed", actor)
}
