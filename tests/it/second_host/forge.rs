//! A VCS host that differs from all that the server knows: basic auth for deliveries, comments in threads, no times of changes, no word on
//! what has changed, repositories of three-part names, pull requests written `!7`. Its state is here; git is served by the test's forge.

use async_trait::async_trait;
use base64::Engine as _;
use http::HeaderMap;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;
use tidelock::app::JoinedHost;
use tidelock_core::domain::state::{CommitStatus, StatusState};
use tidelock_core::domain::{
    Base, CommentEvent, CommitSha, DeliveryId, Event, Head, Login, OwnersLanguage, PullAction, PullEvent, PullId,
    PullRequest, PullState, PullVersion, RepoId,
};
use tidelock_forge::{Forge, Repo};
use tidelock_hosts::vcs::{
    Comments, GitCredentials, Host, HostComment, HostError, Mergeability, Merging, OpenPull, Profile, RepoAccess,
    Review, ReviewVerdict, SourceBranch,
};
use tidelock_hosts::webhook::{Delivered, Door, Rejection, Signed};

pub(super) const NAME: &str = "second.test";
const EVENT: &str = "x-second-event";
const BOT: &str = "Robot";
const LOGIN: &str = "hooks";
pub(super) const PASSWORD: &str = "a password that is long enough";

/// The repository that this host has.
pub(super) fn repository() -> RepoId {
    RepoId { host: NAME.into(), owner: "org/project".into(), name: "infra".into() }
}

#[derive(Clone)]
struct Kept {
    title: String,
    branch: String,
    head: String,
    base: String,
    state: PullState,
    draft: bool,
    created: Timestamp,
    /// Threads of comments.
    threads: Vec<Vec<HostComment>>,
    statuses: BTreeMap<(String, String), CommitStatus>,
    reviews: Vec<Review>,
    refuses_merge: bool,
}

#[derive(Default)]
struct State {
    pulls: Vec<Kept>,
    /// Address of the server's front door; empty if deliveries are lost.
    deliver_to: String,
    git: Option<(Repo, GitCredentials)>,
    /// Event and body of the latest delivery.
    last: (String, String),
    is_down: bool,
}

/// Handle to the host; cheap to clone.
#[derive(Clone)]
pub(crate) struct Second {
    state: Arc<Mutex<State>>,
    profile: Arc<Profile>,
}

impl Second {
    pub(crate) fn new() -> Second {
        let profile = Profile {
            api_type: "Second",
            owner_files: &["CODEOWNERS"],
            owner_language: OwnersLanguage::LastRule,
            comment_limit: 9000,
            folds: false,
            html_comments: false,
            pull_mark: '!',
            versions_cover_comments: false,
            reactions: false,
            statuses_of_commits: false,
            status_details: false,
            issues: false,
            deliveries_tell_labels: true,
            deliveries_prove_comments: true,
            merge_methods: vec!["merge"],
            commit_address: None,
        };
        Second { state: Arc::default(), profile: Arc::new(profile) }
    }

    /// Returns the host as a server gets it.
    pub(super) fn joined(&self) -> JoinedHost {
        JoinedHost {
            api: Some(Arc::new(self.clone())),
            door: Arc::new(SecondDoor { state: self.clone(), password: PASSWORD.into() }),
            profile: (*self.profile).clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Has this forge serve git.
    pub(super) async fn serve(&self, forge: &Forge, files: &[(&str, &str)]) {
        let repo = forge.create_repo("second/infra", files).await.unwrap();
        let (username, password) = forge.credentials(forge.bot()).unwrap();
        self.lock().git = Some((repo, GitCredentials { username, password }));
    }

    /// Directs deliveries to this server from now on; if empty, they are lost.
    pub(super) fn deliver_to(&self, server: &str) {
        self.lock().deliver_to = if server.is_empty() { String::new() } else { format!("{server}/events") };
    }

    /// Makes every request to its API fail from now on, or work again.
    pub(super) fn goes_down(&self, is_down: bool) {
        self.lock().is_down = is_down;
    }

    pub(super) fn git(&self) -> (Repo, GitCredentials) {
        self.lock().git.clone().unwrap()
    }

    /// Opens a pull request that writes this file. Returns its number.
    pub(super) async fn open(&self, branch: &str, file: (&str, &str)) -> u64 {
        let repo = self.git().0;
        let base = repo.tip("main").await.unwrap();
        let head = repo.push(branch, &[(file.0, Some(file.1))]).await.unwrap();
        let number = {
            let mut state = self.lock();
            state.pulls.push(Kept {
                title: format!("Change by {branch}"),
                branch: branch.to_owned(),
                head,
                base,
                state: PullState::Open,
                draft: false,
                created: Timestamp::now(),
                threads: Vec::new(),
                statuses: BTreeMap::new(),
                reviews: Vec::new(),
                refuses_merge: false,
            });
            state.pulls.len() as u64
        };
        self.deliver("created", number, json!({})).await;
        number
    }

    pub(super) async fn push(&self, number: u64, file: (&str, &str)) {
        let (repo, branch) = (self.git().0, self.pull(number).branch);
        let head = repo.push(&branch, &[(file.0, Some(file.1))]).await.unwrap();
        self.change(number, |pull| pull.head = head).await;
    }

    pub(super) async fn close(&self, number: u64) {
        self.change(number, |pull| pull.state = PullState::Closed).await;
    }

    pub(super) async fn merge(&self, number: u64) {
        self.change(number, |pull| pull.state = PullState::Merged { commit: Some(sha(&pull.head)) }).await;
    }

    /// Reviews the present head as a person.
    pub(super) fn review(&self, number: u64, who: &str, verdict: ReviewVerdict) {
        let mut state = self.lock();
        let pull = state.kept(number);
        pull.reviews.retain(|review| review.user.as_str() != who);
        let commit = Some(sha(&pull.head));
        pull.reviews.push(Review { user: Login::new(who), can_write: true, verdict, commit, at: None });
    }

    /// Refuses its merge from now on.
    pub(super) fn refuse_merge(&self, number: u64) {
        self.lock().kept(number).refuses_merge = true;
    }

    pub(super) fn is_merged(&self, number: u64) -> bool {
        matches!(self.pull(number).state, PullState::Merged { .. })
    }

    pub(super) async fn has_branch(&self, branch: &str) -> bool {
        self.git().0.tip(branch).await.is_ok()
    }

    /// Sends the latest delivery with this text replaced and another password. Returns the status of the answer.
    pub(super) async fn forged(&self, text: &str, other: &str) -> u16 {
        let (to, (event, body)) = {
            let state = self.lock();
            (state.deliver_to.clone(), state.last.clone())
        };
        assert!(body.contains(text), "{body}");
        deliver(&to, &event, &body.replace(text, other), "a guess").await
    }

    /// Makes a change that has no effect on the server.
    pub(super) async fn vote(&self, number: u64) {
        self.change(number, |pull| pull.title.push_str(" (voted)")).await;
    }

    async fn change(&self, number: u64, change: impl FnOnce(&mut Kept)) {
        change(self.lock().kept(number));
        self.deliver("updated", number, json!({})).await;
    }

    /// Comments in a new thread.
    pub(super) async fn say(&self, number: u64, author: &str, body: &str) {
        let id = self.lock().kept(number).put(author, body);
        self.deliver("commented", number, json!({"id": id, "author": author, "text": body})).await;
    }

    fn pull(&self, number: u64) -> Kept {
        self.lock().kept(number).clone()
    }

    /// Returns the texts of the server's comments.
    pub(super) fn comment_texts(&self, number: u64) -> Vec<String> {
        let mut all = self.pull(number).comments();
        all.retain(|comment| comment.author.as_str() == BOT);
        all.into_iter().map(|comment| comment.body).collect()
    }

    /// Returns the state of a status on the present head.
    pub(super) fn status(&self, number: u64, context: &str) -> Option<StatusState> {
        let pull = self.pull(number);
        pull.statuses.get(&(pull.head, context.to_owned())).map(|status| status.state)
    }

    /// Returns the description of a status on the present head.
    pub(super) fn description(&self, number: u64, context: &str) -> Option<String> {
        let pull = self.pull(number);
        pull.statuses.get(&(pull.head, context.to_owned())).map(|status| status.description.clone())
    }

    /// Sends a delivery, if anybody listens.
    async fn deliver(&self, event: &str, number: u64, comment: Value) {
        let body = json!({"number": number, "comment": comment}).to_string();
        let to = {
            let mut state = self.lock();
            state.last = (event.to_owned(), body.clone());
            state.deliver_to.clone()
        };
        if !to.is_empty() {
            let answer = deliver(&to, event, &body, PASSWORD).await;
            assert!(matches!(answer, 200 | 202), "{event}: {answer}");
        }
    }

    /// Sends the latest delivery again.
    pub(super) async fn redeliver(&self) {
        let (to, (event, body)) = {
            let state = self.lock();
            (state.deliver_to.clone(), state.last.clone())
        };
        assert_eq!(deliver(&to, &event, &body, PASSWORD).await, 200);
    }

    fn up(&self, what: &str) -> Result<MutexGuard<'_, State>, HostError> {
        let state = self.lock();
        if state.is_down {
            return Err(HostError::Unavailable { what: what.to_owned(), message: "503".to_owned() });
        }
        Ok(state)
    }
}

fn sha(commit: &str) -> CommitSha {
    CommitSha::parse(commit).unwrap()
}

/// Returns the headers of a delivery.
pub(super) fn headers(event: &str, password: &str) -> HeaderMap {
    let proof = base64::engine::general_purpose::STANDARD.encode(format!("{LOGIN}:{password}"));
    let pairs = [(EVENT, event.to_owned()), ("authorization", format!("Basic {proof}"))];
    pairs.into_iter().map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())).collect()
}

/// Posts a delivery. Returns the status of the answer.
pub(super) async fn deliver(to: &str, event: &str, body: &str, password: &str) -> u16 {
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap();
    let request = client.post(to).headers(headers(event, password));
    request.body(body.to_owned()).send().await.unwrap().status().as_u16()
}

impl State {
    fn kept(&mut self, number: u64) -> &mut Kept {
        &mut self.pulls[number as usize - 1]
    }

    fn find(&self, id: &PullId) -> Result<&Kept, HostError> {
        let found = (id.repo == repository()).then(|| self.pulls.get(id.number as usize - 1)).flatten();
        found.ok_or_else(|| HostError::NotFound { what: id.to_string() })
    }

    fn described(&self, number: u64) -> PullRequest {
        let pull = &self.pulls[number as usize - 1];
        PullRequest {
            id: PullId { repo: repository(), number },
            title: pull.title.clone(),
            url: format!("http://{NAME}/org/project/infra/changes/{number}"),
            author: Login::new("ann"),
            head: Head {
                branch: pull.branch.clone(),
                commit: sha(&pull.head),
                repo_owner: "org/project".into(),
                repo_name: "infra".into(),
                clone_url: None,
            },
            base: Base { branch: "main".into(), commit: sha(&pull.base) },
            draft: pull.draft,
            state: pull.state.clone(),
            fork: false,
            labels: Vec::new(),
            repo_size_kib: None,
            clone_url: self.git.as_ref().unwrap().0.clone_url(),
        }
    }

    /// Returns a version made of the observable state: the host has no times.
    fn version(&self, number: u64) -> PullVersion {
        let pull = &self.pulls[number as usize - 1];
        PullVersion::new(format!("{} {:?} {}", pull.head, pull.state, pull.draft))
    }
}

impl Kept {
    fn put(&mut self, author: &str, body: &str) -> u64 {
        self.threads.push(Vec::new());
        let id = (self.threads.len() as u64) << 16;
        let (created, edited) = (Timestamp::now(), false);
        let comment = HostComment { id, author: Login::new(author), created, edited, body: body.to_owned() };
        self.threads.last_mut().unwrap().push(comment);
        id
    }

    fn comments(&self) -> Vec<HostComment> {
        self.threads.concat()
    }
}

/// Its deliveries carry a password, and no signature.
struct SecondDoor {
    state: Second,
    password: SecretString,
}

impl Door for SecondDoor {
    fn kind(&self) -> &'static str {
        "second"
    }

    fn hostname(&self) -> &str {
        NAME
    }

    fn claims(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(EVENT)
    }

    fn is_signed(&self, _: &HeaderMap) -> bool {
        false
    }

    fn verify(&self, headers: &HeaderMap, _: &[u8]) -> Result<Signed, Rejection> {
        let wanted =
            base64::engine::general_purpose::STANDARD.encode(format!("{LOGIN}:{}", self.password.expose_secret()));
        let given = headers.get("authorization").and_then(|value| value.to_str().ok());
        match given {
            Some(given) if given == format!("Basic {wanted}") => Ok(Signed::Present),
            _ => Err(Rejection::new(401, "The password is wrong")),
        }
    }

    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Delivered, Rejection> {
        let body: Value = serde_json::from_slice(body).map_err(|error| Rejection::new(400, error.to_string()))?;
        let number = body["number"].as_u64().ok_or_else(|| Rejection::new(400, "no number"))?;
        let event = headers[EVENT].to_str().unwrap().to_owned();
        let state = self.state.lock();
        let pull = state.described(number);
        if event == "commented" {
            let id = body["comment"]["id"].as_u64().ok_or_else(|| Rejection::new(400, "no comment"))?;
            let text = |key: &str| body["comment"][key].as_str().unwrap_or_default().to_owned();
            let identity = self.comment_identity(&pull.id, id);
            let (author, body) = (Login::new(text("author")), text("text"));
            let event = CommentEvent { pull: pull.id, clone_url: pull.clone_url, comment_id: id, author, body };
            return Ok(Delivered {
                event: Event::Comment(event),
                identity: Some(identity),
                host_id: String::new(),
                sight: None,
            });
        }
        let action = if event == "created" { PullAction::Opened } else { PullAction::Updated };
        let version = state.version(number);
        let identity = DeliveryId::new(format!("second:{}:{event}:{version:?}", pull.id));
        let event = PullEvent { action, pull: pull.into(), sender: Login::new("ann"), version };
        Ok(Delivered { event: Event::Pull(event), identity: Some(identity), host_id: String::new(), sight: None })
    }

    /// Ids of comments are unique within a pull request only.
    fn comment_identity(&self, pull: &PullId, comment_id: u64) -> DeliveryId {
        DeliveryId::new(format!("second:{pull}:comment:{comment_id}"))
    }

    fn event_headers(&self) -> &'static [&'static str] {
        &[EVENT]
    }

    fn other_headers(&self) -> &'static [&'static str] {
        &[]
    }

    fn secrets(&self) -> Vec<&SecretString> {
        vec![&self.password]
    }

    fn unproven_headers(&self) -> &'static [(&'static str, &'static str)] {
        &[(EVENT, "updated")]
    }
}

#[async_trait]
impl Host for Second {
    fn hostname(&self) -> &str {
        NAME
    }

    fn bot_login(&self) -> &Login {
        static LOGIN: LazyLock<Login> = LazyLock::new(|| Login::new(BOT));
        &LOGIN
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn pull_request(&self, pull: &PullId) -> Result<PullRequest, HostError> {
        let state = self.up("pull request")?;
        state.find(pull)?;
        Ok(state.described(pull.number))
    }

    async fn dismiss_approvals(&self, pull: &PullRequest, _: &str) -> Result<(), HostError> {
        self.up("reviews")?.find(&pull.id)?;
        self.up("reviews")?.kept(pull.id.number).reviews.retain(|review| review.verdict != ReviewVerdict::Approved);
        Ok(())
    }

    async fn reviews(&self, pull: &PullRequest) -> Result<Vec<Review>, HostError> {
        Ok(self.up("reviews")?.find(&pull.id)?.reviews.clone())
    }

    async fn mergeability(&self, _: &PullRequest) -> Result<Mergeability, HostError> {
        Ok(Mergeability { mergeable: true, detail: String::new() })
    }

    async fn create_comment(&self, pull: &PullId, body: &str) -> Result<u64, HostError> {
        Ok(self.up("comment")?.kept(pull.number).put(BOT, body))
    }

    async fn comments(&self, pull: &PullId, since: Option<Timestamp>) -> Result<Comments, HostError> {
        let mut list = self.up("comments")?.find(pull)?.comments();
        list.retain(|comment| since.is_none_or(|since| comment.created >= since));
        Ok(Comments { list, now: Timestamp::now() })
    }

    async fn is_on_branch(&self, _: &RepoId, _: &CommitSha, _: &str) -> Result<bool, HostError> {
        Ok(false)
    }

    async fn open_pulls(&self, repo: &RepoId) -> Result<Vec<OpenPull>, HostError> {
        let state = self.up("open pull requests")?;
        if *repo != repository() {
            return Err(HostError::NotFound { what: repo.to_string() });
        }
        let numbers = (1..).zip(&state.pulls).filter(|(_, pull)| pull.state == PullState::Open);
        let open = numbers.map(|(number, pull)| OpenPull {
            pull: state.described(number),
            created: pull.created,
            version: state.version(number),
        });
        Ok(open.collect())
    }

    async fn repositories(&self) -> Result<Vec<RepoAccess>, HostError> {
        drop(self.up("repositories")?);
        Ok(vec![RepoAccess { repo: repository(), of_organization: true, archived: false, can_write: true }])
    }

    async fn own_statuses(&self, pull: &PullId, commit: &CommitSha) -> Result<Vec<CommitStatus>, HostError> {
        let statuses = &self.up("statuses")?.kept(pull.number).statuses.clone();
        Ok(statuses.iter().filter(|((of, _), _)| of == commit.as_str()).map(|(_, status)| status.clone()).collect())
    }

    async fn delete_comment(&self, pull: &PullId, id: u64) -> Result<(), HostError> {
        for thread in &mut self.up("delete")?.kept(pull.number).threads {
            thread.retain(|comment| comment.id != id);
        }
        Ok(())
    }

    async fn react(&self, _: &PullId, _: u64, _: &str) -> Result<(), HostError> {
        panic!("this host has no reactions")
    }

    async fn set_status(&self, pull: &PullId, commit: &CommitSha, status: &CommitStatus) -> Result<(), HostError> {
        let key = (commit.to_string(), status.context.clone());
        self.up("status")?.kept(pull.number).statuses.insert(key, status.clone());
        Ok(())
    }

    async fn merge(&self, pull: &PullRequest, _: Option<&str>, source: SourceBranch) -> Result<Merging, HostError> {
        if self.up("merge")?.find(&pull.id)?.refuses_merge {
            let message = "people merge here".to_owned();
            return Err(HostError::Rejected { what: "merge".to_owned(), status: 400, message });
        }
        if source == SourceBranch::Delete {
            self.git().0.delete_branch(&pull.head.branch).await.unwrap();
        }
        Second::merge(self, pull.id.number).await;
        Ok(Merging::Merged(Some(pull.head.commit.clone())))
    }

    async fn git_credentials(&self, _owner: &str) -> Option<GitCredentials> {
        Some(self.git().1)
    }
}
