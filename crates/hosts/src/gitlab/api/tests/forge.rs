//! Client and door against the forge, which speaks as GitLab over HTTP.

use super::*;
use crate::gitlab::GitlabDoor;
use crate::vcs::ReviewVerdict;
use crate::webhook::Intake;
use axum::http::HeaderMap as Received;
use std::time::Duration;
use tidelock_core::domain::state::StatusState;
use tidelock_core::domain::{Event, PullAction};
use tidelock_forge::{Forge, ForgeOptions, HostKind, OpenOptions, Pull, Repo};

/// Longest wait for deliveries.
const LIMIT: Duration = Duration::from_secs(20);

/// A forge with one merge request of alice, and a client with the token of the server's account.
struct World {
    _dir: tempfile::TempDir,
    forge: Forge,
    repo: Repo,
    pull: Pull,
    host: Gitlab,
}

impl World {
    async fn start() -> World {
        let dir = tempfile::tempdir().unwrap();
        let options = ForgeOptions { dir: dir.path().join("forge"), port: 0 };
        let forge = Forge::start_as(HostKind::Gitlab, options).await.unwrap();
        let repo = forge.create_repo("acme/platform/live", &[("main.tf", "# 1\n")]).await.unwrap();
        let changes = [("main.tf", Some("# 2\n"))];
        let pull = repo.open_pull("topic", "alice", "Add a bucket", &changes, OpenOptions::default()).await.unwrap();
        let host = client(&forge, String::new());
        World { _dir: dir, forge, repo, pull, host }
    }

    fn id(&self) -> PullId {
        let repo = address(&self.forge).repository("acme/platform/live").unwrap();
        PullId { repo, number: self.pull.number() }
    }

    async fn read(&self) -> PullRequest {
        self.host.pull_request(&self.id()).await.unwrap()
    }

    async fn set(&self, context: &str, state: StatusState, waits: bool) {
        let status = CommitStatus {
            context: context.into(),
            state,
            description: "words".into(),
            url: String::new(),
            waits,
            details: None,
        };
        self.host.set_status(&self.id(), &self.read().await.head.commit, &status).await.unwrap();
    }

    async fn judged(&self) -> Mergeability {
        self.host.mergeability(&self.read().await).await.unwrap()
    }

    async fn merge(&self) -> Result<Merging, HostError> {
        self.host.merge(&self.read().await, None, SourceBranch::Delete).await
    }

    /// States of all jobs of a name, in every pipeline of the head.
    async fn states_of(&self, name: &str) -> Vec<String> {
        let project = self.host.address.project_path(&self.id().repo).unwrap();
        let path = format!("{project}/repository/commits/{}/statuses", self.pull.head_commit().unwrap());
        let rows = self.host.http.get(&path).await.unwrap().body;
        let of_name = rows.as_array().unwrap().iter().filter(|row| row["name"] == name);
        of_name.map(|row| row["status"].as_str().unwrap().to_owned()).collect()
    }
}

fn address(forge: &Forge) -> GitlabAddress {
    let url = url::Url::parse(forge.url()).unwrap();
    GitlabAddress::new(url.host_str().unwrap(), forge.url())
}

fn client(forge: &Forge, events_url: String) -> Gitlab {
    let mut host = Gitlab::new(GitlabOptions {
        address: address(forge),
        user: None,
        token: TokenSource::Value(forge.token()),
        status_name: "atlantis".into(),
        groups: vec!["acme".into(), "acme/platform".into()],
        events_url,
    });
    host.http = host.http.hasty();
    host
}

#[tokio::test]
async fn our_statuses_leave_no_pipeline_running() {
    let world = World::start().await;
    world.repo.require_successful_pipeline(true).unwrap();
    // Before 18.3, a state cannot be set again.
    world.forge.set_refuses_repeated_states(true);
    for _ in 0..2 {
        world.set("atlantis/plan", StatusState::Pending, false).await;
        assert_eq!(world.pull.head_pipeline().unwrap(), Some("running"));
    }
    world.set("atlantis/plan", StatusState::Success, false).await;
    assert_eq!(world.pull.head_pipeline().unwrap(), Some("success"));
    // An apply of some projects, which waits for people.
    world.set("atlantis/apply", StatusState::Pending, true).await;
    assert_eq!(world.pull.head_pipeline().unwrap(), Some("canceled"));
    assert!(world.judged().await.mergeable, "{:?}", world.judged().await);
    assert!(matches!(world.merge().await, Err(HostError::Rejected { status: 405, .. })));
    world.set("atlantis/apply", StatusState::Success, false).await;
    assert_eq!(world.pull.head_pipeline().unwrap(), Some("success"));
    assert!(matches!(world.merge().await, Ok(Merging::Merged(Some(_)))));
    assert!(world.repo.tip("topic").await.is_err(), "its branch is deleted");
}

#[tokio::test]
async fn statuses_follow_the_pipeline_that_ci_starts_later() {
    let world = World::start().await;
    world.repo.require_successful_pipeline(true).unwrap();
    world.set("atlantis/plan", StatusState::Pending, false).await;
    let pipeline = world.pull.start_pipeline(true).unwrap();
    world.set("atlantis/plan", StatusState::Success, false).await;
    assert_eq!(world.states_of("atlantis/plan").await, ["success", "success"], "in both pipelines");
    assert_eq!(world.judged().await.detail, "`build` is running");
    let own = world.host.own_statuses(&world.id(), &world.read().await.head.commit).await.unwrap();
    let told: Vec<_> = own.iter().map(|one| (one.context.as_str(), one.state, one.description.as_str())).collect();
    assert_eq!(told, [("atlantis/plan", StatusState::Success, "words")]);
    world.pull.end_pipeline(pipeline, false).await.unwrap();
    assert_eq!(world.judged().await.detail, "`build` is failed");
}

#[tokio::test]
async fn a_merge_waits_for_the_pipeline() {
    let world = World::start().await;
    world.repo.require_successful_pipeline(true).unwrap();
    let pipeline = world.pull.start_pipeline(false).unwrap();
    assert_eq!(world.merge().await.unwrap(), Merging::Queued);
    assert!(world.read().await.is_open());
    world.pull.end_pipeline(pipeline, true).await.unwrap();
    let tip = world.repo.tip("main").await.unwrap();
    assert_eq!(world.read().await.state, PullState::Merged { commit: Some(tip.as_str().into()) });
}

#[tokio::test]
async fn a_merge_train_takes_what_can_be_merged() {
    let world = World::start().await;
    world.repo.enable_merge_trains(true).unwrap();
    world.pull.set_mergeable_state("not_approved").unwrap();
    assert!(matches!(world.merge().await, Err(HostError::Rejected { status: 400, .. })));
    world.pull.set_mergeable_state("mergeable").unwrap();
    for _ in 0..2 {
        assert_eq!(world.merge().await.unwrap(), Merging::Queued);
        assert!(world.read().await.is_open());
    }
    world.pull.arrive().await.unwrap();
    assert!(matches!(world.read().await.state, PullState::Merged { commit: Some(_) }));
}

#[tokio::test]
async fn approvals_are_counted_removed_by_a_push_and_reset_by_a_bot() {
    let world = World::start().await;
    world.repo.require_approvals(2).unwrap();
    let missing = async || world.host.missing_approvals(&world.read().await).await.unwrap();
    assert_eq!(missing().await.as_deref(), Some("GitLab requires 2 more approvals"));
    world.pull.approve("bob").unwrap();
    assert_eq!(missing().await.as_deref(), Some("GitLab requires 1 more approval"));
    world.pull.approve("carol").unwrap();
    assert_eq!(missing().await, None);
    let read = world.read().await;
    let reviews = world.host.reviews(&read).await.unwrap();
    let is_counted = |review: &Review| {
        review.verdict == ReviewVerdict::Approved
            && review.can_write
            && review.at.is_some()
            && review.commit.as_ref() == Some(&read.head.commit)
    };
    assert!(reviews.len() == 2 && reviews.iter().all(is_counted), "{reviews:?}");

    world.repo.reset_approvals_on_push(true).unwrap();
    world.pull.push_as("alice", "More", &[("main.tf", Some("# 3\n"))]).await.unwrap();
    assert_eq!(world.host.reviews(&world.read().await).await.unwrap(), []);
    assert_eq!(world.host.pusher(&world.read().await).await.unwrap().as_str(), "alice");

    world.pull.approve("bob").unwrap();
    let error = world.host.dismiss_approvals(&world.read().await, "a new plan").await.unwrap_err();
    assert!(matches!(error, HostError::Denied { .. }), "{error}");
    world.forge.set_token_is_of_bot(true);
    world.host.dismiss_approvals(&world.read().await, "a new plan").await.unwrap();
    assert_eq!(world.host.reviews(&world.read().await).await.unwrap(), []);
    world.pull.request_changes("carol").unwrap();
    let reviews = world.host.reviews(&world.read().await).await.unwrap();
    assert!(matches!(&reviews[..], [one] if one.verdict == ReviewVerdict::ChangesRequested), "{reviews:?}");
}

#[tokio::test]
async fn open_threads_block_a_merge_and_our_comments_open_none() {
    let world = World::start().await;
    world.repo.require_resolved_threads(true).unwrap();
    let id = world.host.create_comment(&world.id(), "Output:\n/close\n/merge").await.unwrap();
    assert!(world.pull.is_open().unwrap(), "no quick action is carried out");
    world.host.react(&world.id(), id, "eyes").await.unwrap();
    world.host.react(&world.id(), id, "eyes").await.unwrap();
    assert!(world.judged().await.mergeable);
    world.pull.set_open_threads(1).unwrap();
    assert_eq!(world.judged().await.detail, "threads are not resolved");
    let shown = world.host.shown_comments(&world.id()).await.unwrap();
    world.host.hide_comments(&world.id(), &shown).await.unwrap();
    assert!(world.host.shown_comments(&world.id()).await.unwrap().is_empty());
    world.host.delete_comment(&world.id(), id).await.unwrap();
    world.host.delete_comment(&world.id(), id).await.unwrap();
    assert!(world.host.comments(&world.id(), None).await.unwrap().list.is_empty());
}

#[tokio::test]
async fn groups_are_inherited_and_are_not_projects() {
    let world = World::start().await;
    world.forge.set_group("acme", &[("erin", 30)]).unwrap();
    let repo = world.id().repo;
    for (group, login, is_member) in [
        ("acme", "erin", true),
        ("acme/platform", "erin", true),
        // A member of the project alone.
        ("acme/platform", "bob", false),
        ("acme/platform/live", "bob", false),
        ("acme/platform/live", "erin", false),
    ] {
        assert_eq!(world.host.is_team_member(&repo, group, login).await.unwrap(), Some(is_member), "{group} {login}");
    }
    assert_eq!(world.host.teams_of(&repo, "erin").await.unwrap().unwrap(), ["acme", "acme/platform"]);
    assert_eq!(world.host.can_write(&repo, "erin").await.unwrap(), Some(true));
}

#[tokio::test]
async fn a_token_is_judged_by_what_it_may() {
    let world = World::start().await;
    world.forge.set_webhook("http://127.0.0.1:1/events");
    let hooks = world.host.project_hooks(&world.id().repo).await.unwrap();
    assert!(matches!(&hooks[..], [hook] if hook.merge_requests && hook.notes && hook.pushes), "{hooks:?}");
    world.forge.set_token_limits(&["read_api"], Some("2026-12-31"));
    let token = world.host.access_token().await.unwrap();
    assert_eq!((token.scopes, token.expires), (vec!["read_api".to_owned()], "2026-12-31".parse().ok()));
    let error = world.host.create_comment(&world.id(), "text").await.unwrap_err();
    assert!(matches!(error, HostError::Denied { .. }), "{error}");
}

/// Starts a receiver of deliveries, which refuses the first ones. Returns its address and what it gets.
async fn receiver(refusals: usize) -> (String, Arc<Mutex<Vec<(Received, Bytes)>>>) {
    let got = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&got);
    let app = Router::new().fallback(move |headers: Received, body: Bytes| {
        let mut kept = kept.lock().unwrap();
        kept.push((headers, body));
        let status = if kept.len() <= refusals { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
        std::future::ready(status)
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/events", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, got)
}

#[tokio::test]
async fn signed_deliveries_are_read_as_what_happened() {
    let world = World::start().await;
    let signing = world.forge.sign_deliveries().unwrap();
    let (url, got) = receiver(0).await;
    world.forge.set_webhook(&url);
    world.pull.push(&[("main.tf", Some("# 3\n"))]).await.unwrap();
    world.pull.comment("bob", "atlantis plan").unwrap();
    world.pull.approve("bob").unwrap();
    world.pull.merge().await.unwrap();
    world.forge.wait_for_deliveries(LIMIT).await.unwrap();
    let door =
        |signing| GitlabDoor { address: address(&world.forge), secret: None, previous: None, signing: Some(signing) };
    let intake = Intake::new(vec![Arc::new(door(signing))]);
    let other = Intake::new(vec![Arc::new(door("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=".into()))]);
    let words: Vec<String> = got
        .lock()
        .unwrap()
        .iter()
        .map(|(headers, body)| {
            assert_eq!(other.receive(headers, body).err().map(|refused| refused.status), Some(401));
            match intake.receive(headers, body).unwrap().into_inner() {
                Event::Pull(pull) => format!("{:?} {}", pull.action, pull.pull.id()),
                Event::Comment(comment) => format!("{} says {}", comment.author, comment.body),
                Event::Push(push) => format!("push {}", push.branches.join(" ")),
                Event::Verdict(verdict) => format!("verdict {:?}", verdict.number),
                other => format!("{other:?}"),
            }
        })
        .collect();
    for want in [
        format!("{:?} {}", PullAction::Pushed, world.id()),
        format!("{:?} {}", PullAction::Closed { merged: true }, world.id()),
        "bob says atlantis plan".to_owned(),
        "push topic".to_owned(),
        format!("verdict {:?}", Some(world.pull.number())),
    ] {
        assert!(words.contains(&want), "{want}: {words:#?}");
    }
}

#[tokio::test]
async fn a_failed_delivery_is_requested_again() {
    let world = World::start().await;
    let (url, got) = receiver(1).await;
    world.forge.set_webhook(&url);
    world.pull.comment("bob", "atlantis plan").unwrap();
    world.forge.wait_for_deliveries(LIMIT).await.unwrap();
    let host = client(&world.forge, url);
    host.pull_request(&world.id()).await.unwrap();
    assert_eq!(host.redeliver_missed().await.unwrap(), 1);
    let keys: Vec<_> = got.lock().unwrap().iter().map(|(headers, _)| headers.get("idempotency-key").cloned()).collect();
    assert!(keys.len() == 2 && keys[0].is_some() && keys[0] == keys[1], "{keys:?}");
}
