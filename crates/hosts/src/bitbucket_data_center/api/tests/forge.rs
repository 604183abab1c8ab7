//! Client and door against the forge, which speaks as Bitbucket Data Center over HTTP.

use super::*;
use crate::bitbucket_data_center::BitbucketDataCenterDoor;
use crate::vcs::ReviewVerdict;
use crate::webhook::Intake;
use hmac::{Hmac, KeyInit, Mac};
use std::time::Duration;
use tidelock_core::domain::state::StatusState;
use tidelock_core::domain::{Event, PullAction};
use tidelock_forge::{Forge, ForgeOptions, HostKind, OpenOptions, Pull, Repo};

/// Longest wait for something that the forge does by itself.
const LIMIT: Duration = Duration::from_secs(20);

/// A forge with one pull request of alice, and a client with the token of the server's account.
struct World {
    _dir: tempfile::TempDir,
    forge: Forge,
    repo: Repo,
    pull: Pull,
    host: BitbucketDataCenter,
}

impl World {
    async fn start() -> World {
        let dir = tempfile::tempdir().unwrap();
        let options = ForgeOptions { dir: dir.path().join("forge"), port: 0 };
        let forge = Forge::start_as(HostKind::BitbucketDataCenter, options).await.unwrap();
        let repo = forge.create_repo("PRJ/infra", &[("main.tf", "# 1\n")]).await.unwrap();
        let pull = open(&repo, "topic", OpenOptions::default()).await;
        let host = client(&forge, forge.token());
        World { _dir: dir, forge, repo, pull, host }
    }

    fn id(&self) -> PullId {
        PullId { repo: self.repo_id(), number: self.pull.number() }
    }

    fn repo_id(&self) -> RepoId {
        RepoId { host: "127.0.0.5".into(), owner: "PRJ".into(), name: "infra".into() }
    }

    async fn read(&self) -> PullRequest {
        self.host.pull_request(&self.id()).await.unwrap()
    }

    async fn set(&self, context: &str, state: StatusState) {
        let status = CommitStatus {
            context: context.into(),
            state,
            description: "words".into(),
            url: String::new(),
            waits: false,
            details: None,
        };
        self.host.set_status(&self.id(), &self.read().await.head.commit, &status).await.unwrap();
    }

    async fn judged(&self) -> Mergeability {
        self.host.mergeability(&self.read().await).await.unwrap()
    }
}

async fn open(repo: &Repo, branch: &str, options: OpenOptions) -> Pull {
    repo.open_pull(branch, "alice", "Add a bucket", &[("main.tf", Some("# 2\n"))], options).await.unwrap()
}

fn client(forge: &Forge, token: secrecy::SecretString) -> BitbucketDataCenter {
    let base = format!("{}/bitbucket", forge.url());
    let mut host = BitbucketDataCenter::new(BitbucketDataCenterOptions {
        address: BitbucketDataCenterAddress::of_base_url(&base).unwrap(),
        user: String::new(),
        token: TokenSource::Value(token),
        status_name: "atlantis".into(),
        server_url: "https://tidelock.example.com".into(),
        serves: Arc::new(|repo| repo.owner == "PRJ"),
    });
    host.http = host.http.hasty();
    host
}

#[tokio::test]
async fn pull_requests_are_read_and_listed() {
    let world = World::start().await;
    world.forge.set_project_name("PRJ", "OTHER");
    world.host.prepare().await.unwrap();
    assert_eq!(world.host.bot_login().as_str(), world.forge.bot());
    let read = world.read().await;
    assert_eq!((read.title.as_str(), read.author.as_str()), ("Add a bucket", "alice"));
    assert_eq!((read.head.branch.as_str(), read.base.branch.as_str(), read.fork), ("topic", "main", false));
    assert_eq!(read.head.commit.as_str(), world.pull.head_commit().unwrap());
    assert_eq!(
        (read.url.as_str(), read.clone_url.as_str()),
        (world.pull.url().as_str(), world.repo.clone_url().as_str())
    );
    let fork =
        open(&world.repo, "forked", OpenOptions { fork: Some("bob".into()), draft: true, ..OpenOptions::default() })
            .await;
    let listed = world.host.open_pulls(&world.repo_id()).await.unwrap();
    let numbers: Vec<u64> = listed.iter().map(|one| one.pull.id.number).collect();
    assert_eq!(numbers, [world.pull.number(), fork.number()]);
    assert!(listed[1].pull.fork && listed[1].pull.draft && listed[1].pull.head.repo_owner == "~bob");
    assert_eq!(listed[0].pull, read);
    let before = listed[0].version.clone();
    world.pull.comment("bob", "a comment").unwrap();
    let after = world.host.open_pulls(&world.repo_id()).await.unwrap();
    assert_eq!(after[0].version, before, "a comment makes no other version");
    world.pull.push(&[("main.tf", Some("# 3\n"))]).await.unwrap();
    let after = world.host.open_pulls(&world.repo_id()).await.unwrap();
    assert!(before.is_before(&after[0].version), "and a push does");
    let repositories = world.host.repositories().await.unwrap();
    assert!(repositories.iter().any(|one| one.repo == world.repo_id() && one.of_organization && one.can_write));
    let key = world.host.told_key(&world.repo_id()).unwrap();
    assert_eq!(world.host.present_name(&world.repo_id(), &key).await.unwrap(), Some(world.repo_id()));
    assert!(!world.host.is_gone(&world.id()).await.unwrap());
    assert!(world.host.is_gone(&PullId { number: 99, ..world.id() }).await.unwrap());
}

#[tokio::test]
async fn a_head_is_compared_with_branches() {
    let world = World::start().await;
    let read = world.read().await;
    let is_on = async |commit: &CommitSha, branch: &str| {
        world.host.is_on_branch(&world.repo_id(), commit, branch).await.unwrap()
    };
    assert!(is_on(&read.base.commit, "main").await && is_on(&read.head.commit, "topic").await);
    assert!(!is_on(&read.head.commit, "main").await && !is_on(&read.base.commit, "gone").await);
    assert!(!is_on(&"0".repeat(40).as_str().into(), "main").await);
}

#[tokio::test]
async fn a_conversation_is_read_and_written() {
    let world = World::start().await;
    let (host, id) = (&world.host, world.id());
    let asked = world.pull.comment("bob", "atlantis plan").unwrap();
    let ours = host.create_comment(&id, "**planned**").await.unwrap();
    let answer = world.pull.reply("carol", ours, "atlantis apply").unwrap();
    let task = world.pull.add_task("carol", "a task").unwrap();
    let other = host.create_comment(&id, "again").await.unwrap();
    world.pull.edit_comment("bob", asked, "atlantis apply").unwrap();
    let list = host.comments(&id, None).await.unwrap().list;
    let facts: Vec<_> = list.iter().map(|one| (one.id, one.author.as_str(), one.body.as_str(), one.edited)).collect();
    let bot = world.forge.bot();
    let want = [
        (asked, "bob", "atlantis apply", true),
        (ours, bot, "**planned**", false),
        (answer, "carol", "atlantis apply", false),
        (task, "carol", "a task", false),
        (other, bot, "again", false),
    ];
    assert_eq!(facts, want);
    assert_eq!(host.comment(&id, answer).await.unwrap().unwrap().body, "atlantis apply");
    assert_eq!(host.comment(&id, 999_999).await.unwrap(), None);
    let shown = host.shown_comments(&id).await.unwrap();
    assert_eq!(shown.len(), 2);
    let planned = shown.iter().find(|one| one.id == ours.to_string()).unwrap();
    assert!(host.rewrite_comment(&id, planned, "**rewritten**").await.unwrap());
    assert!(host.rewrite_comment(&id, planned, "**twice**").await.unwrap(), "at its new version");
    host.hide_comments(&id, &shown).await.unwrap();
    assert!(host.shown_comments(&id).await.unwrap().is_empty());
    host.delete_comment(&id, other).await.unwrap();
    host.delete_comment(&id, other).await.unwrap();
    host.delete_comment(&id, ours).await.unwrap();
    let left: Vec<u64> = host.comments(&id, None).await.unwrap().list.iter().map(|one| one.id).collect();
    assert_eq!(left, [asked, ours, answer, task], "one with a reply stays");
    host.react(&id, asked, "eyes").await.unwrap();
    assert_eq!(world.pull.reactions(asked).unwrap(), [(bot.to_owned(), "eyes".to_owned())]);
    let error = host.create_comment(&id, &"ä".repeat(COMMENT_LIMIT + 1)).await.unwrap_err();
    assert!(matches!(error, HostError::TooLong { .. }), "{error}");
}

#[tokio::test]
async fn reviews_permissions_and_groups_are_those_of_the_host() {
    let world = World::start().await;
    world.repo.set_permission("dave", "read").unwrap();
    world.pull.add_reviewer("bob").unwrap();
    world.pull.approve("bob").unwrap();
    world.pull.approve("dave").unwrap();
    world.pull.request_changes("carol").unwrap();
    let facts = async || {
        let pull = world.read().await;
        let mut all: Vec<_> = world.host.reviews(&pull).await.unwrap();
        all.sort_by(|one, other| one.user.cmp(&other.user));
        assert!(all.iter().all(|one| (one.verdict == ReviewVerdict::Approved) == one.at.is_some()), "{all:?}");
        let is_of_head = |one: &Review| one.commit.as_ref() == Some(&pull.head.commit);
        all.into_iter()
            .map(|one| (one.user.as_str().to_owned(), one.verdict, one.can_write, is_of_head(&one)))
            .collect::<Vec<_>>()
    };
    let want = |of_head: bool| {
        [
            ("bob".to_owned(), ReviewVerdict::Approved, true, of_head),
            ("carol".to_owned(), ReviewVerdict::ChangesRequested, true, of_head),
            ("dave".to_owned(), ReviewVerdict::Approved, false, of_head),
        ]
    };
    assert_eq!(facts().await, want(true));
    world.pull.push(&[("main.tf", Some("# 3\n"))]).await.unwrap();
    assert_eq!(facts().await, want(false), "an approval of an earlier head");
    assert!(world.host.dismiss_approvals(&world.read().await, "changed").await.is_err());
    let repo = world.repo_id();
    for (login, can_write, is_admin) in
        [("alice", true, true), ("bob", true, false), ("dave", false, false), ("o", false, false)]
    {
        assert_eq!(world.host.can_write(&repo, login).await.unwrap(), Some(can_write), "{login}");
        assert_eq!(world.host.is_admin(&repo, login).await.unwrap(), Some(is_admin), "{login}");
    }
    world.forge.set_team("PRJ", "ops", &["bob"]);
    assert_eq!(world.host.is_team_member(&repo, "PRJ/ops", "bob").await.unwrap(), Some(true));
    assert_eq!(world.host.is_team_member(&repo, "ops", "carol").await.unwrap(), Some(false));
    world.pull.push_as("carol", "more", &[("main.tf", Some("# 4\n"))]).await.unwrap();
    assert_eq!(world.host.pusher(&world.read().await).await.unwrap().as_str(), "carol");
    let people = world.host.contributors(&world.read().await).await.unwrap();
    assert!(people.contains(&Login::new("carol")) && people.contains(&Login::unknown()), "{people:?}");
}

#[tokio::test]
async fn our_own_builds_do_not_hide_those_of_others() {
    let world = World::start().await;
    world.repo.require_successful_builds(1).unwrap();
    world.set("atlantis/apply", StatusState::Pending).await;
    let own = world.host.own_statuses(&world.id(), &world.read().await.head.commit).await.unwrap();
    assert_eq!((own.len(), own[0].context.as_str(), own[0].state), (1, "atlantis/apply", StatusState::Pending));
    assert!(world.judged().await.mergeable, "{:?}", world.judged().await);
    world.set("ci", StatusState::Failure).await;
    assert_eq!(world.judged().await.detail, "`ci` is failed");
    world.set("ci", StatusState::Success).await;
    world.repo.require_build_parents(&["scan"]).unwrap();
    assert_eq!(world.judged().await.detail, "the required build `scan` is missing");
    world.set("scan", StatusState::Success).await;
    assert!(world.judged().await.mergeable);
    world.repo.require_statuses(&["atlantis/apply", "audit"]).unwrap();
    assert_eq!(world.judged().await.detail, "the required build `audit` is missing");
    world.set("audit", StatusState::Success).await;
    world.repo.veto_merges("No merges on Fridays", "It is Friday.").unwrap();
    assert_eq!(world.judged().await.detail, "No merges on Fridays: It is Friday.");
}

#[tokio::test]
async fn a_pull_request_is_merged_at_its_version_and_its_branch_deleted() {
    let world = World::start().await;
    world.pull.touch_version().unwrap();
    let pull = world.read().await;
    let Merging::Merged(Some(commit)) = world.host.merge(&pull, Some("merge"), SourceBranch::Delete).await.unwrap()
    else {
        panic!("no commit")
    };
    assert_eq!(world.repo.tip("main").await.unwrap(), commit.as_str());
    assert_eq!(world.read().await.state, PullState::Merged { commit: Some(commit.clone()) });
    assert_eq!(world.host.merge(&pull, None, SourceBranch::Keep).await.unwrap(), Merging::Merged(Some(commit)));
    world.repo.push("topic", &[("main.tf", Some("# 9\n"))]).await.unwrap();
    world.host.delete_source_branch(&pull).await.unwrap();
    assert!(world.repo.tip("topic").await.is_ok(), "it has moved since");
    let moved = PullRequest {
        head: tidelock_core::domain::Head {
            commit: world.repo.tip("topic").await.unwrap().as_str().into(),
            ..pull.head.clone()
        },
        ..pull
    };
    world.host.delete_source_branch(&moved).await.unwrap();
    assert!(world.repo.tip("topic").await.is_err());
}

#[tokio::test]
async fn a_merge_that_is_vetoed_says_why_or_waits_for_builds() {
    let world = World::start().await;
    world.repo.require_successful_builds(1).unwrap();
    world.set("ci", StatusState::Pending).await;
    let pull = world.read().await;
    let merge = async || world.host.merge(&pull, None, SourceBranch::Keep).await;
    let refused = merge().await.unwrap_err();
    assert!(
        matches!(&refused, HostError::Rejected { status: 405, message, .. } if message == "`ci` is inprogress"),
        "{refused}"
    );
    world.repo.enable_auto_merge().unwrap();
    assert_eq!(merge().await.unwrap(), Merging::Queued);
    assert!(world.pull.waits_for_merge().unwrap());
    world.set("ci", StatusState::Success).await;
    let merged = tokio::time::timeout(LIMIT, async {
        while world.read().await.is_open() {
            tokio::task::yield_now().await;
        }
    });
    merged.await.unwrap();
    let other = open(&world.repo, "second", OpenOptions::default()).await;
    let id = PullId { number: other.number(), ..world.id() };
    let before = world.host.pull_request(&id).await.unwrap();
    other.push(&[("main.tf", Some("# 5\n"))]).await.unwrap();
    let refused = world.host.merge(&before, None, SourceBranch::Keep).await.unwrap_err();
    assert!(refused.to_string().contains("its head has moved on"), "{refused}");
    assert!(other.is_open().unwrap());
}

#[tokio::test]
async fn the_doctor_reads_webhooks_and_permissions() {
    let world = World::start().await;
    world.forge.set_data_center_version("8.19.1");
    assert_eq!(world.host.instance().await.unwrap().version, "8.19.1");
    world.forge.set_webhook("http://127.0.0.1:1/events");
    let (_, token) = world.forge.credentials("alice").unwrap();
    let admin = client(&world.forge, token);
    let may = async |host: &BitbucketDataCenter| {
        let told = host.repository(&world.repo_id()).await.unwrap();
        (told.can_write, told.can_administer)
    };
    assert_eq!(may(&admin).await, (true, true));
    world.repo.set_permission("dave", "read").unwrap();
    for (login, want) in [("bob", (true, false)), ("dave", (false, false))] {
        let (_, token) = world.forge.credentials(login).unwrap();
        assert_eq!(may(&client(&world.forge, token)).await, want, "{login}");
    }
    let hooks = admin.repository_hooks(&world.repo_id()).await.unwrap();
    assert_eq!(
        (hooks[0].url.as_str(), hooks[0].active, hooks[0].has_secret),
        ("http://127.0.0.1:1/events", true, Some(true))
    );
    world.pull.comment("bob", "nobody listens").unwrap();
    world.forge.wait_for_deliveries(LIMIT).await.unwrap();
    let deliveries = admin.deliveries(&world.repo_id(), hooks[0].id).await.unwrap();
    assert!(deliveries.failing().is_some() && deliveries.unsuccessful > 0, "{deliveries:?}");
}

#[tokio::test]
async fn deliveries_are_read_as_what_happened() {
    let world = World::start().await;
    world.forge.set_webhook("http://127.0.0.1:1/events");
    world.pull.push(&[("main.tf", Some("# 3\n"))]).await.unwrap();
    world.pull.comment("bob", "atlantis plan").unwrap();
    world.pull.approve("bob").unwrap();
    world.pull.merge().await.unwrap();
    let secret = world.forge.webhook_secret();
    let base = format!("{}/bitbucket", world.forge.url());
    let address = BitbucketDataCenterAddress::of_base_url(&base).unwrap();
    let door = BitbucketDataCenterDoor { address, secret: Some(secret.clone()), previous: None };
    let intake = Intake::new(vec![Arc::new(door)]);
    let read = |body: &str, event: &str| {
        let mut mac = <Hmac<sha2::Sha256> as KeyInit>::new_from_slice(secret.expose_secret().as_bytes()).unwrap();
        mac.update(body.as_bytes());
        let mut headers = http::HeaderMap::new();
        headers.insert("x-event-key", event.parse().unwrap());
        headers
            .insert("x-hub-signature", format!("sha256={}", hex::encode(mac.finalize().into_bytes())).parse().unwrap());
        intake.receive(&headers, body.as_bytes()).unwrap()
    };
    let words: Vec<String> = world
        .forge
        .deliveries()
        .iter()
        .map(|one| match read(&one.body, &one.event).into_inner() {
            Event::Pull(pull) => format!("{:?} {}", pull.action, pull.pull.id()),
            Event::Comment(comment) => format!("{} says {}", comment.author, comment.body),
            Event::Push(push) => format!("push {}", push.branches.join(" ")),
            Event::Verdict(verdict) => format!("verdict {:?}", verdict.number),
            other => format!("{other:?}"),
        })
        .collect();
    let name = world.id().to_string();
    for want in [
        format!("{:?} {name}", PullAction::Updated),
        format!("{:?} {name}", PullAction::Closed { merged: true }),
        "bob says atlantis plan".to_owned(),
        "push topic".to_owned(),
        format!("verdict {:?}", Some(world.pull.number())),
    ] {
        assert!(words.contains(&want), "{want}: {words:#?}");
    }
    let listed = world.forge.deliveries();
    let closed = listed.iter().find(|one| one.event == "pr:merged").unwrap();
    let Event::Pull(read) = read(&closed.body, &closed.event).into_inner() else { panic!() };
    assert_eq!(read.pull.head().unwrap().as_str(), world.pull.head_commit().unwrap());
}
