//! The client against a real Gitea: `scripts/with-gitea cargo test -p tidelock-hosts gitea -- --ignored`.

mod instance;
mod merging;
mod people;

use super::*;
use crate::vcs::ReviewVerdict;
use instance::{Instance, until};
use tidelock_core::domain::state::StatusState;

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn the_doctor_learns_what_it_asks_for() {
    let instance = Instance::new().await;
    let bot = instance.bot().await;
    bot.prepare().await.unwrap();
    assert_eq!(bot.bot_login().as_str(), instance.login("bot"));
    assert!(!bot.account().await.unwrap().is_admin);
    let scopes = bot.token_scopes().await.unwrap().unwrap();
    assert!(scopes.contains(&"write:repository".to_owned()) && scopes.len() == 4, "{scopes:?}");
    let version = bot.version().await.unwrap();
    assert!(version.version.starts_with("1.") && !version.is_forgejo, "{version:?}");
    let found = bot.repository(&instance.repo()).await.unwrap();
    assert!(found.admin && found.push && found.has_issues && found.has_pull_requests && !found.archived);
    assert_eq!(found.clone_url, bot.clone_url(&instance.repo()).unwrap());
    assert!(found.merge_styles.contains(&found.default_merge_style.as_str()), "{found:?}");
    let config = json!({"url": "https://t.example.com/events", "content_type": "json", "secret": "s"});
    let hook = json!({"type": "gitea", "active": true, "events": ["pull_request", "push"], "config": config});
    instance.root("POST", &instance.at("/hooks"), hook).await;
    let hooks = bot.repository_hooks(&instance.repo()).await.unwrap();
    assert_eq!(hooks.len(), 1);
    assert!(hooks[0].json && hooks[0].active && hooks[0].kind == "gitea" && hooks[0].url.ends_with("/events"));
    assert!(hooks[0].events.contains(&"push".to_owned()), "{hooks:?}");
    assert!(bot.organization_hooks(&instance.org()).await.unwrap_err().is_mendable(), "we own no organization");
    let repos = bot.repositories().await.unwrap();
    assert_eq!(repos.len(), 1);
    assert!(repos[0].repo == instance.repo() && repos[0].can_write && !repos[0].of_organization);
    let narrow = instance.host("bot", &["write:issue"]).await;
    let refusal = narrow.repository(&instance.repo()).await.unwrap_err();
    assert_eq!(scopes_in(&refusal).unwrap().required, ["read:repository"]);
}

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn a_pull_request_is_read_and_listed() {
    let instance = Instance::new().await;
    let bot = instance.bot().await;
    let id = instance.open("topic", "main.tf").await;
    let pull = bot.pull_request(&id).await.unwrap();
    assert_eq!((pull.author.as_str(), pull.head.branch.as_str()), (instance.login("ann").as_str(), "topic"));
    assert!(!pull.fork && !pull.draft && pull.state == PullState::Open);
    let path = instance.at(&format!("/issues/{}", id.number));
    instance.root("PATCH", &path, json!({"title": "WIP: a bucket"})).await;
    let open = bot.open_pulls(&instance.repo()).await.unwrap();
    assert_eq!(open.len(), 1);
    assert!(open[0].pull.draft && open[0].pull.head.commit == pull.head.commit, "{open:?}");
    assert_eq!(open[0].pull.url, pull.url);
    assert!(open[0].version.moment().is_some());
    assert!(!bot.is_on_branch(&instance.repo(), &pull.head.commit, "main").await.unwrap());
    assert!(bot.is_on_branch(&instance.repo(), &pull.head.commit, "topic").await.unwrap());
    assert!(bot.is_on_branch(&instance.repo(), &pull.base.commit, "topic").await.unwrap());
    assert!(!bot.is_on_branch(&instance.repo(), &pull.base.commit, "gone").await.unwrap());
    instance.root("DELETE", &path, Value::Null).await;
    assert!(matches!(bot.pull_request(&id).await, Err(HostError::NotFound { .. })));
    assert!(bot.is_gone(&id).await.unwrap());
    assert!(matches!(bot.create_comment(&id, "x").await, Err(HostError::NotFound { .. })));
    assert!(matches!(bot.comments(&id, None).await, Err(HostError::NotFound { .. })));
}

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn comments_are_posted_folded_and_deleted() {
    let instance = Instance::new().await;
    let bot = instance.bot().await;
    let id = instance.open("topic", "main.tf").await;
    let text = "Ran Plan <details><summary>x</summary></details>\n\n<!-- tidelock:{} -->";
    let first = bot.create_comment(&id, text).await.unwrap();
    let comment = bot.comment(&id, first).await.unwrap().unwrap();
    assert_eq!((comment.author.as_str(), comment.body.as_str()), (instance.login("bot").as_str(), text));
    let path = instance.at(&format!("/issues/{}/comments", id.number));
    let theirs = instance.by("ann", "POST", &path, json!({"body": "atlantis plan"})).await["id"].as_u64().unwrap();
    let told = bot.comments(&id, None).await.unwrap();
    assert_eq!(told.list.iter().map(|one| one.id).collect::<Vec<_>>(), [first, theirs]);
    assert!(!told.list[0].edited && told.now >= comment.created);
    let later = told.now + jiff::SignedDuration::from_secs(5);
    assert_eq!(bot.comments(&id, Some(later)).await.unwrap().list, []);
    bot.react(&id, theirs, "eyes").await.unwrap();
    bot.react(&id, theirs, "eyes").await.unwrap();
    bot.react(&id, theirs, "unheard-of").await.unwrap();
    bot.react(&id, theirs + 1_000, "eyes").await.unwrap();
    let shown = bot.shown_comments(&id).await.unwrap();
    assert_eq!(shown, [ShownComment { id: first.to_string(), body: text.into(), written: shown[0].written }]);
    bot.hide_comments(&id, &shown).await.unwrap();
    assert_eq!(bot.shown_comments(&id).await.unwrap(), []);
    assert!(bot.comment(&id, first).await.unwrap().unwrap().body.ends_with("<!-- tidelock:{} -->"));
    assert!(bot.rewrite_comment(&id, &shown[0], "again").await.unwrap());
    until("the edit to show", async || bot.comment(&id, first).await.unwrap().unwrap().body == "again").await;
    bot.delete_comment(&id, first).await.unwrap();
    bot.delete_comment(&id, first).await.unwrap();
    assert_eq!(bot.comment(&id, first).await.unwrap(), None);
    assert!(!bot.rewrite_comment(&id, &shown[0], "x").await.unwrap());
    let other = instance.open("other", "other.tf").await;
    assert_eq!(bot.comment(&other, theirs).await.unwrap(), None, "it is on another pull request");
}

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn statuses_are_set_and_read() {
    let instance = Instance::new().await;
    let bot = instance.bot().await;
    let id = instance.open("topic", "main.tf").await;
    let head = bot.pull_request(&id).await.unwrap().head.commit;
    assert_eq!(bot.own_statuses(&id, &head).await.unwrap(), []);
    let status = |context: &str, state| CommitStatus {
        context: context.into(),
        state,
        description: "d".repeat(400),
        url: "https://t.example.com/jobs/1".into(),
        waits: false,
        details: None,
    };
    for state in [StatusState::Pending, StatusState::Failure, StatusState::Pending, StatusState::Success] {
        bot.set_status(&id, &head, &status("atlantis/plan", state)).await.unwrap();
    }
    bot.set_status(&id, &head, &status("atlantis/apply", StatusState::Pending)).await.unwrap();
    let theirs = json!({"state": "success", "context": "ci/build"});
    instance.by("ann", "POST", &instance.at(&format!("/statuses/{head}")), theirs).await;
    let mut own = bot.own_statuses(&id, &head).await.unwrap();
    own.sort_by(|one, other| one.context.cmp(&other.context));
    let facts: Vec<_> = own.iter().map(|one| (one.context.as_str(), one.state)).collect();
    assert_eq!(facts, [("atlantis/apply", StatusState::Pending), ("atlantis/plan", StatusState::Success)]);
    assert_eq!((own[1].description.len(), own[1].url.as_str()), (255, "https://t.example.com/jobs/1"));
    let unknown = CommitSha::parse(OLD).unwrap();
    let error = bot.set_status(&id, &unknown, &status("atlantis/plan", StatusState::Pending)).await.unwrap_err();
    assert!(matches!(error, HostError::UnknownCommit { .. }), "{error}");
}

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn issues_are_opened_edited_and_closed() {
    let instance = Instance::new().await;
    let (bot, repo) = (instance.bot().await, instance.repo());
    instance.open("topic", "main.tf").await;
    assert_eq!(bot.own_issues(&repo).await.unwrap(), []);
    let new = NewIssue { title: "Drift".into(), body: "text".into(), labels: vec!["drift".into(), "prod".into()] };
    let made = bot.create_issue(&repo, &new).await.unwrap();
    assert!(made.is_ours && made.open && made.url.ends_with(&format!("/issues/{}", made.number)), "{made:?}");
    let second = bot.create_issue(&repo, &new).await.unwrap();
    let told = instance.root("GET", &instance.at(&format!("/issues/{}", second.number)), Value::Null).await;
    assert_eq!(told["labels"].as_array().unwrap().len(), 2, "{told}");
    let own = bot.own_issues(&repo).await.unwrap();
    assert_eq!(own.iter().map(|one| one.number).collect::<Vec<_>>(), [second.number, made.number]);
    assert!(bot.edit_issue(&repo, made.number, &IssueEdit::Text("now".into())).await.unwrap());
    assert!(bot.edit_issue(&repo, made.number, &IssueEdit::Close).await.unwrap());
    let closed = bot.issue(&repo, made.number).await.unwrap().unwrap();
    assert!(!closed.open && closed.body == "now");
    assert_eq!(bot.own_issues(&repo).await.unwrap(), [second]);
    assert_eq!(bot.issue(&repo, 999).await.unwrap(), None);
    assert!(!bot.edit_issue(&repo, 999, &IssueEdit::Close).await.unwrap());
}

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn a_renamed_repository_is_followed_by_posts_alone() {
    let instance = Instance::new().await;
    let bot = instance.bot().await;
    let id = instance.open("topic", "main.tf").await;
    bot.pull_request(&id).await.unwrap();
    let key = bot.told_key(&id.repo).unwrap();
    assert_eq!(bot.present_name(&id.repo, &key).await.unwrap(), Some(id.repo.clone()));
    instance.root("PATCH", &instance.at(""), json!({"name": "moved"})).await;
    assert!(matches!(bot.pull_request(&id).await, Err(HostError::Moved { .. })));
    assert!(matches!(bot.open_pulls(&id.repo).await, Err(HostError::Moved { .. })));
    assert!(matches!(bot.own_statuses(&id, &CommitSha::parse(HEAD).unwrap()).await, Err(HostError::Moved { .. })));
    let now = RepoId { name: "moved".into(), ..id.repo.clone() };
    assert_eq!(bot.present_name(&id.repo, &key).await.unwrap(), Some(now.clone()));
    assert_eq!(bot.present_name(&id.repo, "99999999").await.unwrap(), None);
    let comment = bot.create_comment(&id, "said there").await.unwrap();
    assert_eq!(bot.comments(&id, None).await.unwrap().list[0].id, comment);
    assert_eq!(bot.shown_comments(&id).await.unwrap().len(), 1);
    bot.react(&id, comment, "rocket").await.unwrap();
    // The owner gets another name, too.
    let renamed = format!("{}-now", instance.org());
    instance.root("POST", &format!("/orgs/{}/rename", instance.org()), json!({"new_name": renamed})).await;
    assert!(matches!(bot.pull_request(&id).await, Err(HostError::Moved { .. })));
    assert!(matches!(bot.pull_request(&PullId { repo: now, ..id.clone() }).await, Err(HostError::Moved { .. })));
    bot.create_comment(&id, "and there").await.unwrap();
    let elsewhere = instance.host_that_serves("bot", Arc::new(|repo| repo.name == "infra")).await;
    assert!(matches!(elsewhere.create_comment(&id, "not there").await, Err(HostError::Moved { .. })));
    assert_eq!(bot.comments(&id, None).await.unwrap().list.len(), 2);
}
