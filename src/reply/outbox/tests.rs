//! Tests of the outbox against a host that fails on request, with the real state.

mod merge;

use super::slots::{MAX_CONCURRENT, OF_ONE_REPO};
use super::*;
use crate::domain::state::{CommitStatus, Effect, NewEffect, StatusState};
use crate::domain::{CommitSha, Login, PullRequest, PullState, RepoId};
use crate::vcs::{
    Comments, GitCredentials, Host, HostComment, HostError, Hosts, Mergeability, Merging, OpenPull, PostLimit, Profile,
    Review, SourceBranch,
};
use async_trait::async_trait;
use jiff::SignedDuration;
use jiff::Timestamp;
use std::collections::VecDeque;
use std::sync::LazyLock;

const HASTE: Pace = Pace {
    retries: tidelock_retry::jittered(Duration::from_millis(1), Duration::from_millis(5)),
    marks: Duration::from_millis(1),
    gone: SignedDuration::from_hours(1),
};
const LIMIT: Duration = Duration::from_secs(20);

/// Result of the next request.
enum Fate {
    Done,
    /// It fails.
    Fails(HostError),
    /// It is done, but the response is lost.
    DoneButLost,
}

/// A host that records its requests.
#[derive(Default)]
struct Fake {
    hostname: Option<&'static str>,
    fates: Mutex<VecDeque<Fate>>,
    comments: Mutex<Vec<HostComment>>,
    log: Mutex<Vec<String>>,
    /// Age of the beginning of each search for an earlier attempt, in seconds.
    searched: Mutex<Vec<f64>>,
    /// Requests wait until this is notified.
    gate: Option<Semaphore>,
    /// Requests about pull requests of this repository never end.
    hangs: Option<&'static str>,
    post_limit: Option<PostLimit>,
    /// True if the pull request does not exist any more.
    gone: bool,
    refuses_statuses: bool,
    /// Pull request of merges.
    pull: Mutex<Option<PullRequest>>,
}

fn host_comment(id: u64, body: &str) -> HostComment {
    HostComment { id, author: "Tidelock".into(), created: Timestamp::now(), edited: false, body: body.to_owned() }
}

fn unavailable() -> HostError {
    HostError::Unavailable { what: "POST".into(), message: "503".into() }
}

impl Fake {
    async fn enter(&self, what: String) -> Result<bool, HostError> {
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
        lock(&self.log).push(what);
        match lock(&self.fates).pop_front() {
            None | Some(Fate::Done) => Ok(true),
            Some(Fate::Fails(error)) => Err(error),
            Some(Fate::DoneButLost) => Ok(false),
        }
    }

    fn comment_titles(&self) -> Vec<String> {
        lock(&self.comments).iter().map(|comment| comment.body.lines().next().unwrap_or_default().to_owned()).collect()
    }

    fn log(&self) -> Vec<String> {
        lock(&self.log).clone()
    }

    fn fail(&self, fates: impl IntoIterator<Item = Fate>) {
        lock(&self.fates).extend(fates);
    }
}

#[async_trait]
impl Host for Fake {
    fn hostname(&self) -> &str {
        self.hostname.unwrap_or("github.com")
    }
    fn bot_login(&self) -> &Login {
        static LOGIN: LazyLock<Login> = LazyLock::new(|| Login::new("tidelock"));
        &LOGIN
    }
    fn profile(&self) -> &Profile {
        static PROFILE: LazyLock<Profile> = LazyLock::new(|| tidelock_hosts::github::profile("https://api.github.com"));
        &PROFILE
    }
    async fn pull_request(&self, _: &PullId) -> Result<PullRequest, HostError> {
        let pull = lock(&self.pull).clone().ok_or_else(unavailable)?;
        self.enter("look".to_owned()).await.map(|_| pull)
    }
    async fn reviews(&self, _: &PullRequest) -> Result<Vec<Review>, HostError> {
        Err(unavailable())
    }
    async fn dismiss_approvals(&self, _: &PullRequest, _: &str) -> Result<(), HostError> {
        unreachable!("nothing here approves")
    }

    async fn mergeability(&self, _: &PullRequest) -> Result<Mergeability, HostError> {
        Err(unavailable())
    }
    async fn is_gone(&self, _: &PullId) -> Result<bool, HostError> {
        Ok(self.gone)
    }
    fn post_limit(&self) -> Option<PostLimit> {
        self.post_limit
    }
    async fn create_comment(&self, _: &PullId, body: &str) -> Result<u64, HostError> {
        let answered = self.enter("comment".into()).await?;
        let mut comments = lock(&self.comments);
        let id = comments.len() as u64 + 1;
        comments.push(host_comment(id, body));
        if answered { Ok(id) } else { Err(unavailable()) }
    }
    async fn comments(&self, pull: &PullId, since: Option<Timestamp>) -> Result<Comments, HostError> {
        if self.hangs == Some(pull.repo.name.as_str()) {
            std::future::pending::<()>().await;
        }
        self.enter("list".into()).await?;
        assert!(since.is_some_and(|since| since < Timestamp::now()), "all comments are never asked for");
        lock(&self.searched).extend(since.map(|since| Timestamp::now().duration_since(since).as_secs_f64()));
        Ok(Comments { list: lock(&self.comments).clone(), now: Timestamp::now() })
    }
    async fn open_pulls(&self, _: &RepoId) -> Result<Vec<OpenPull>, HostError> {
        Err(unavailable())
    }
    async fn is_on_branch(&self, _: &RepoId, _: &CommitSha, _: &str) -> Result<bool, HostError> {
        Err(unavailable())
    }
    async fn own_statuses(&self, _: &PullId, _: &CommitSha) -> Result<Vec<CommitStatus>, HostError> {
        Err(unavailable())
    }
    async fn delete_comment(&self, _: &PullId, id: u64) -> Result<(), HostError> {
        self.enter(format!("delete {id}")).await?;
        lock(&self.comments).retain(|comment| comment.id != id);
        Ok(())
    }
    async fn react(&self, _: &PullId, _: u64, reaction: &str) -> Result<(), HostError> {
        self.enter(format!("react {reaction}")).await.map(drop)
    }
    async fn set_status(&self, _: &PullId, _: &CommitSha, status: &CommitStatus) -> Result<(), HostError> {
        if self.refuses_statuses {
            return Err(denied());
        }
        self.enter(format!("{} {}", status.context, status.description)).await.map(drop)
    }
    async fn merge(&self, _: &PullRequest, _: Option<&str>, source: SourceBranch) -> Result<Merging, HostError> {
        let deletes = source == SourceBranch::Delete;
        let is_heard = self.enter(format!("merge, delete the branch: {deletes}")).await?;
        if let Some(pull) = &mut *lock(&self.pull) {
            pull.state = PullState::Merged { commit: None };
        }
        if is_heard { Ok(Merging::Merged(None)) } else { Err(unavailable()) }
    }
    async fn delete_source_branch(&self, _: &PullRequest) -> Result<(), HostError> {
        self.enter("delete the branch".to_owned()).await.map(drop)
    }
    async fn git_credentials(&self, _owner: &str) -> Option<GitCredentials> {
        None
    }
}

fn rendering() -> RenderOptions {
    RenderOptions {
        executable: "atlantis".to_owned(),
        url: "https://tidelock.example.com".to_owned(),
        commit_address: None,
        comment_limit: 65_536,
        html_comments: true,
        pull_mark: '#',
        style: crate::domain::reply::CommentStyle::Short,
        max_comments: 0,
        disable_folding: false,
        diff_format: true,
        hide_unchanged: false,
        hide_replaced: false,
        update_plans: false,
        offer_apply: true,
        offer_apply_all: true,
        locking: true,
        now: Timestamp::now(),
        templates: crate::render::CommentTemplates::default(),
        language: std::sync::Arc::default(),
    }
}

fn pull(number: u64) -> PullId {
    PullId { repo: RepoId { host: "github.com".into(), owner: "o".into(), name: "n".into() }, number }
}

fn comment(run: &str) -> Effect {
    let body = format!("{run}\n\n<!-- tidelock:{{\"v\":1,\"run\":\"{run}\",\"part\":1,\"parts\":1}} -->");
    Effect::Comment { run: run.into(), part: 1, body, over: None }
}

fn status(context: &str, text: &str) -> Effect {
    let status = CommitStatus {
        context: context.into(),
        state: StatusState::Pending,
        description: text.into(),
        url: String::new(),
        waits: false,
        details: None,
    };
    Effect::Status { commit: "abc".into(), status }
}

struct Bench {
    _dir: tempfile::TempDir,
    store: Store,
    host: Arc<Fake>,
}

impl Bench {
    fn new(host: Fake) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        Bench { store: Store::open(dir.path()).unwrap(), _dir: dir, host: Arc::new(host) }
    }

    async fn record(&self, number: u64, effects: Vec<Effect>) {
        let write = move |tx: &crate::store::Tx<'_>| {
            effects.into_iter().try_for_each(|effect| tx.enqueue(&NewEffect { pull: pull(number), effect }).map(drop))
        };
        self.store.write(write).await.unwrap();
    }

    async fn start(&self) -> Outbox {
        self.start_at(HASTE).await
    }

    async fn start_at(&self, pace: Pace) -> Outbox {
        let hosts = Hosts::new(vec![Arc::clone(&self.host) as Arc<dyn Host>]);
        Outbox::with_pace(self.store.clone(), hosts, rendering(), Traces::default(), pace).await.unwrap()
    }

    async fn left(&self) -> usize {
        self.store.read(|view| view.pending_effects(None, 100)).await.unwrap().len()
    }
}

/// Returns the number of posts that may begin on the host besides those under way.
fn free(outbox: &Outbox) -> usize {
    lock(&outbox.shared.host_slots).get("github.com").map_or(MAX_CONCURRENT, |slots| slots.available_permits())
}

#[tokio::test]
async fn comments_are_posted_once_and_in_order_over_lost_answers() {
    let bench = Bench::new(Fake::default());
    bench.host.fail([Fate::Done, Fate::DoneButLost, Fate::Fails(unavailable()), Fate::Fails(unavailable())]);
    let outbox = bench.start().await;
    bench.record(1, vec![comment("a"), comment("b"), comment("c")]).await;
    outbox.wake(&pull(1));
    assert!(outbox.wait_until_idle(LIMIT).await);
    assert_eq!(bench.host.comment_titles(), ["a", "b", "c"]);
    assert_eq!(bench.left().await, 0);
}

#[tokio::test]
async fn every_try_of_a_comment_looks_for_an_earlier_one() {
    let bench = Bench::new(Fake::default());
    let outbox = bench.start().await;
    bench.record(1, vec![comment("a"), Effect::React { comment_id: 5, reaction: "eyes".into() }]).await;
    outbox.wake(&pull(1));
    assert!(outbox.wait_until_idle(LIMIT).await);
    let mut log = bench.host.log();
    log.sort();
    assert_eq!(log, ["comment", "list", "react eyes"]);
}

#[tokio::test]
async fn a_search_does_not_cost_more_the_more_was_said_before() {
    let bench = Bench::new(Fake::default());
    let outbox = bench.start().await;
    for run in ["a", "b", "c"] {
        bench.record(1, vec![comment(run)]).await;
        outbox.wake(&pull(1));
        assert!(outbox.wait_until_idle(LIMIT).await);
    }
    bench.host.fail([Fate::Done, Fate::DoneButLost]);
    bench.record(1, vec![comment("d")]).await;
    outbox.wake(&pull(1));
    assert!(outbox.wait_until_idle(LIMIT).await);
    assert_eq!(bench.host.comment_titles(), ["a", "b", "c", "d"]);
    // The host's clock is unknown before its first response, and a comment that was tried may exist there.
    let far: Vec<bool> = lock(&bench.host.searched).iter().map(|seconds| *seconds > 590.0).collect();
    assert_eq!(far, [true, false, false, false, true]);
}

#[tokio::test]
async fn what_an_earlier_process_left_is_looked_for_and_duplicates_go() {
    let bench = Bench::new(Fake::default());
    bench.record(1, vec![comment("a"), comment("b")]).await;
    let Effect::Comment { body, .. } = comment("a") else { unreachable!() };
    for id in [1, 2] {
        lock(&bench.host.comments).push(host_comment(id, &body));
    }
    let outbox = bench.start().await;
    assert!(outbox.wait_until_idle(LIMIT).await);
    assert_eq!(bench.host.comment_titles(), ["a", "b"]);
    assert_eq!(bench.host.log(), ["list", "delete 2", "list", "comment"]);
}

#[tokio::test]
async fn what_cannot_succeed_is_given_up_and_the_next_goes_on() {
    let bench = Bench::new(Fake::default());
    bench.host.fail([
        Fate::Done,
        Fate::Fails(HostError::Rejected { what: "POST".into(), status: 403, message: "issue is locked".into() }),
        Fate::Done,
        Fate::Fails(HostError::Rejected { what: "POST".into(), status: 422, message: "body is invalid".into() }),
    ]);
    let outbox = bench.start().await;
    bench.record(1, vec![comment("a"), comment("b"), comment("c")]).await;
    outbox.wake(&pull(1));
    assert!(outbox.wait_until_idle(LIMIT).await);
    assert_eq!((bench.host.comment_titles(), bench.left().await), (vec!["c".to_owned()], 0));
}

#[tokio::test]
async fn what_only_passes_is_given_up_after_all() {
    let bench = Bench::new(Fake::default());
    bench.host.fail((0..100).map(|_| Fate::Fails(unavailable())));
    let outbox = bench.start().await;
    bench.record(1, vec![status("plan", "x")]).await;
    outbox.wake(&pull(1));
    assert!(outbox.wait_until_idle(LIMIT).await);
    assert_eq!((bench.host.log().len(), bench.left().await), (MAX_TRIES as usize, 0));
}

/// Returns the error of a repository that was renamed, or of a proxy that wants a login.
fn moved() -> HostError {
    HostError::Moved { what: "POST".into(), to: "acme/new".into() }
}

fn denied() -> HostError {
    HostError::Denied { what: "POST".into(), message: "Bad credentials".into() }
}

fn not_found() -> HostError {
    HostError::NotFound { what: "POST".into() }
}

fn result(context: &str) -> Effect {
    let Effect::Status { commit, status } = status(context, "done") else { unreachable!() };
    Effect::Status { commit, status: CommitStatus { state: StatusState::Success, ..status } }
}

/// Waits until the condition is true.
async fn until(so: impl AsyncFn() -> bool) {
    let looking = async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LIMIT, looking).await.expect("it does not come");
}

#[tokio::test]
async fn what_somebody_can_mend_is_kept_and_told_until_it_is_mended() {
    for error in [denied, not_found, moved] {
        let bench = Bench::new(Fake::default());
        // More than any limit of attempts.
        bench.host.fail((0..3 * MAX_TRIES).map(|_| Fate::Fails(error())));
        bench.record(1, vec![comment("a"), comment("b")]).await;
        let outbox = bench.start().await;
        until(async || outbox.refused_posts().is_some_and(|refused| refused.waiting == 2)).await;
        assert!(outbox.wait_until_idle(LIMIT).await);
        assert_eq!(bench.host.comment_titles(), ["a", "b"]);
        assert_eq!((outbox.refused_posts(), bench.left().await), (None, 0));
    }
}

#[tokio::test]
async fn a_result_is_told_however_long_the_host_is_away() {
    let bench = Bench::new(Fake::default());
    bench.host.fail((0..3 * MAX_TRIES).map(|_| Fate::Fails(unavailable())));
    let outbox = bench.start().await;
    bench.record(1, vec![result("apply")]).await;
    outbox.wake(&pull(1));
    assert!(outbox.wait_until_idle(LIMIT).await);
    assert_eq!((bench.host.log().len(), bench.left().await), (3 * MAX_TRIES as usize + 1, 0));
}

#[tokio::test]
async fn what_is_refused_of_one_kind_does_not_hold_up_others() {
    let bench = Bench::new(Fake { refuses_statuses: true, ..Fake::default() });
    bench.record(1, vec![result("plan"), result("apply"), comment("a")]).await;
    bench.record(2, vec![comment("b")]).await;
    let outbox = bench.start().await;
    until(async || bench.left().await == 2 && outbox.refused_posts().is_some_and(|all| all.waiting == 2)).await;
    assert_eq!(bench.host.comment_titles().len(), 2);
    outbox.stop();
}

#[tokio::test]
async fn what_a_pull_request_that_is_gone_was_to_be_told_is_given_up() {
    let bench = Bench::new(Fake { gone: true, ..Fake::default() });
    bench.host.fail([Fate::Done, Fate::Fails(not_found()), Fate::Fails(not_found()), Fate::Fails(not_found())]);
    let outbox = bench.start().await;
    bench.record(1, vec![comment("a")]).await;
    outbox.wake(&pull(1));
    assert!(outbox.wait_until_idle(LIMIT).await);
    assert_eq!((bench.host.comment_titles().len(), bench.left().await, outbox.refused_posts()), (0, 0, None));
    assert_eq!(bench.host.log(), ["list", "comment"]);
}

#[tokio::test]
async fn a_host_that_is_not_served_now_may_be_served_later() {
    let bench = Bench::new(Fake::default());
    let mut other = pull(1);
    other.repo.host = "gitlab.com".into();
    let effect = NewEffect { pull: other.clone(), effect: comment("a") };
    bench.store.write(move |tx| tx.enqueue(&effect)).await.unwrap();
    let outbox = bench.start().await;
    until(async || outbox.refused_posts().is_some_and(|refused| refused.waiting == 1)).await;
    assert_eq!(bench.left().await, 1);
    outbox.stop();
}

#[tokio::test]
async fn a_repository_whose_requests_hang_does_not_hold_up_others() {
    let bench = Bench::new(Fake { hangs: Some("hangs"), ..Fake::default() });
    for number in 0..3 * MAX_CONCURRENT as u64 {
        let mut other = pull(number);
        other.repo.name = "hangs".into();
        bench.store.write(move |tx| tx.enqueue(&NewEffect { pull: other, effect: comment("a") })).await.unwrap();
    }
    let outbox = bench.start().await;
    until(async || free(&outbox) == MAX_CONCURRENT - OF_ONE_REPO).await;
    bench.record(1, vec![comment("b")]).await;
    outbox.wake(&pull(1));
    until(async || bench.host.comment_titles() == ["b"]).await;
    outbox.stop();
}

#[tokio::test]
async fn a_host_whose_requests_hang_does_not_hold_up_the_others() {
    let bench = Bench::new(Fake::default());
    let hanging = Arc::new(Fake { hangs: Some("hangs"), hostname: Some("down.example.com"), ..Fake::default() });
    for number in 0..2 * MAX_CONCURRENT as u64 {
        let mut other = pull(number);
        other.repo = RepoId { host: "down.example.com".into(), owner: number.to_string(), name: "hangs".into() };
        bench.store.write(move |tx| tx.enqueue(&NewEffect { pull: other, effect: comment("a") })).await.unwrap();
    }
    let hosts = Hosts::new(vec![hanging.clone(), bench.host.clone()]);
    let outbox = Outbox::with_pace(bench.store.clone(), hosts, rendering(), Traces::default(), HASTE).await.unwrap();
    let of_hanging = |outbox: &Outbox| {
        lock(&outbox.shared.host_slots).get("down.example.com").map(|slots| slots.available_permits())
    };
    until(async || of_hanging(&outbox) == Some(0)).await;
    bench.record(1, vec![comment("b")]).await;
    outbox.wake(&pull(1));
    until(async || bench.host.comment_titles() == ["b"]).await;
    outbox.stop();
}

#[tokio::test]
async fn a_host_that_limits_posts_gets_comments_first_and_no_burst() {
    let bench = Bench::new(Fake { post_limit: Some(PostLimit::PostsPerHour(500)), ..Fake::default() });
    let mut effects: Vec<Effect> = (0..150).map(|number| result(&number.to_string())).collect();
    effects.push(comment("a"));
    bench.record(1, effects).await;
    let outbox = bench.start().await;
    until(async || bench.host.comment_titles() == ["a"] && bench.host.log().len() > 40).await;
    // The rest is posted within minutes; a stopping server does not wait for it.
    assert!(!outbox.wait_until_idle(Duration::from_millis(500)).await);
    outbox.stop();
    assert!(bench.host.log().len() < 70, "{} posts", bench.host.log().len());
}

/// Runs the outbox of a server that has lost the lead without knowing it.
async fn deposed(host: Fake, effects: Vec<Effect>) -> Vec<String> {
    use crate::vault::memory::{Memory, vault};
    let dir = tempfile::tempdir().unwrap();
    let bucket = Memory::new();
    let (first, clock) = vault(&bucket, &"a".repeat(32));
    let lease = first.acquire().await.unwrap();
    let (leader, chain) = first.lead(lease).await.unwrap().unwrap();
    Store::restore(dir.path(), &chain).await.unwrap();
    let store = Store::lead(dir.path(), leader.clone()).await.unwrap();
    let bench = Bench { _dir: dir, store, host: Arc::new(host) };
    bench.record(1, effects).await;
    // It was suspended, and another server took the lease.
    clock.advance(Duration::from_secs(3600));
    let (second, _) = vault(&bucket, &"b".repeat(32));
    second.acquire().await.unwrap();
    let outbox = bench.start().await;
    assert!(outbox.wait_until_idle(LIMIT).await);
    bench.host.log()
}

#[tokio::test]
async fn a_server_that_lost_the_lead_posts_no_comment() {
    assert_eq!(deposed(Fake::default(), vec![comment("a")]).await, ["list"]);
}

#[tokio::test]
async fn a_server_that_lost_the_lead_sets_no_status_and_does_not_react() {
    let react = Effect::React { comment_id: 5, reaction: "eyes".into() };
    assert_eq!(deposed(Fake::default(), vec![result("plan")]).await, [""; 0]);
    assert_eq!(deposed(Fake::default(), vec![react]).await, [""; 0]);
}

#[tokio::test]
async fn a_server_that_lost_the_lead_deletes_no_duplicate() {
    let host = Fake::default();
    let Effect::Comment { body, .. } = comment("a") else { unreachable!() };
    lock(&host.comments).extend([host_comment(1, &body), host_comment(2, &body)]);
    assert_eq!(deposed(host, vec![comment("a")]).await, ["list"]);
}

#[tokio::test]
async fn a_comment_that_is_too_long_for_the_host_is_cut() {
    let bench = Bench::new(Fake::default());
    let message = "Validation Failed; body is too long (maximum is 65536 characters)".to_owned();
    bench.host.fail([Fate::Done, Fate::Fails(HostError::TooLong { what: "POST".into(), message })]);
    let outbox = bench.start().await;
    let Effect::Comment { run, part, body, over } = comment("a") else { unreachable!() };
    bench.record(1, vec![Effect::Comment { run, part, body: format!("{}{body}", "line\n".repeat(1000)), over }]).await;
    outbox.wake(&pull(1));
    assert!(outbox.wait_until_idle(LIMIT).await);
    let comments = lock(&bench.host.comments).clone();
    assert!(
        comments.len() == 1
            && comments[0].body.len() < 4000
            && crate::render::marker::is_of(&comments[0].body, &"a".into(), 1)
    );
}

#[tokio::test]
async fn a_status_that_is_replaced_while_it_waits_is_not_sent() {
    let bench = Bench::new(Fake { gate: Some(Semaphore::new(0)), ..Fake::default() });
    let outbox = bench.start().await;
    bench.record(1, vec![status("plan", "1")]).await;
    outbox.wake(&pull(1));
    while free(&outbox) == MAX_CONCURRENT {
        tokio::task::yield_now().await;
    }
    bench.record(1, vec![status("plan", "2"), status("plan", "3"), status("apply", "1")]).await;
    outbox.wake(&pull(1));
    assert!(!outbox.wait_until_idle(Duration::from_millis(10)).await, "the host does not answer yet");
    bench.host.gate.as_ref().unwrap().add_permits(10);
    assert!(outbox.wait_until_idle(LIMIT).await);
    let mut log = bench.host.log();
    log[1..].sort();
    assert_eq!(log, ["plan 1", "apply 1", "plan 3"]);
}

#[tokio::test]
async fn a_rate_limit_pauses_the_whole_host() {
    let bench = Bench::new(Fake::default());
    bench.host.fail([Fate::Fails(HostError::RateLimited { what: "POST".into(), wait: Duration::from_millis(300) })]);
    let outbox = bench.start().await;
    bench.record(1, vec![comment("a")]).await;
    outbox.wake(&pull(1));
    while lock(&outbox.shared.pauses).is_empty() {
        tokio::task::yield_now().await;
    }
    let until = *lock(&outbox.shared.pauses).values().next().unwrap();
    bench.record(2, vec![comment("b")]).await;
    outbox.wake(&pull(2));
    while bench.host.comment_titles().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(Instant::now() >= until, "the other pull request waits too");
    assert!(outbox.wait_until_idle(LIMIT).await);
    let mut said = bench.host.comment_titles();
    said.sort();
    assert_eq!(said, ["a", "b"]);
}

#[tokio::test]
async fn many_pull_requests_go_at_once_but_not_all() {
    let bench = Bench::new(Fake { gate: Some(Semaphore::new(0)), ..Fake::default() });
    let outbox = bench.start().await;
    for number in 0..20 {
        bench.record(number, vec![comment(&format!("{number}"))]).await;
        outbox.wake(&pull(number));
    }
    while free(&outbox) > MAX_CONCURRENT - OF_ONE_REPO {
        tokio::task::yield_now().await;
    }
    assert!(bench.host.comment_titles().is_empty());
    bench.host.gate.as_ref().unwrap().add_permits(40);
    assert!(outbox.wait_until_idle(LIMIT).await);
    assert_eq!((bench.host.comment_titles().len(), bench.left().await), (20, 0));
}

#[tokio::test]
async fn what_a_deleted_repository_was_to_be_told_ends() {
    let bench = Bench::new(Fake::default());
    bench.host.fail((0..9).map(|_| Fate::Fails(not_found())));
    bench.record(1, vec![comment("a"), comment("b")]).await;
    let outbox = bench.start_at(Pace { gone: SignedDuration::ZERO, ..HASTE }).await;
    outbox.idle().await;
    assert_eq!(bench.left().await, 0);
    assert!(outbox.refused_posts().is_none());
}
