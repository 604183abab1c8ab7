//! Reviews, permissions, pushes and teams.

use super::*;

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn reviews_count_as_the_host_counts_them() {
    let instance = Instance::new().await;
    let bot = instance.bot().await;
    let id = instance.open("topic", "main.tf").await;
    let pull = bot.pull_request(&id).await.unwrap();
    let verdicts = async |pull: &PullRequest| -> Vec<(String, ReviewVerdict, bool)> {
        let reviews = bot.reviews(pull).await.unwrap();
        reviews.into_iter().map(|one| (one.user.to_string(), one.verdict, one.can_write)).collect()
    };
    let (bob, eve) = (instance.login("bob"), instance.login("eve"));
    assert_eq!(verdicts(&pull).await, []);
    instance.review("bob", &id, "APPROVED").await;
    instance.review("eve", &id, "APPROVED").await;
    instance.review("bob", &id, "COMMENT").await;
    let both = [(bob.clone(), ReviewVerdict::Approved, true), (eve.clone(), ReviewVerdict::Approved, false)];
    assert_eq!(verdicts(&pull).await, both);
    let review = &bot.reviews(&pull).await.unwrap()[0];
    assert_eq!(review.commit.as_ref(), Some(&pull.head.commit));
    assert!(review.at.is_some());
    let rejection = instance.review("bob", &id, "REQUEST_CHANGES").await;
    assert_eq!(verdicts(&pull).await[0], (bob.clone(), ReviewVerdict::ChangesRequested, true));
    let path = instance.at(&format!("/pulls/{}/reviews/{rejection}/dismissals", id.number));
    instance.root("POST", &path, json!({"message": "no"})).await;
    assert_eq!(verdicts(&pull).await, [(eve.clone(), ReviewVerdict::Approved, false)]);
    instance.review("bob", &id, "APPROVED").await;
    let pull = instance.push("ann", &bot, &id, "more.tf").await;
    until("the approvals to be stale", async || verdicts(&pull).await.is_empty()).await;
    instance.review("bob", &id, "APPROVED").await;
    let writer = instance.host("ann", &["write:repository"]).await;
    let error = writer.dismiss_approvals(&pull, "planned again").await.unwrap_err();
    assert!(error.is_mendable() && error.to_string().contains("administrator of the repository"), "{error}");
    bot.dismiss_approvals(&pull, "planned again").await.unwrap();
    assert_eq!(verdicts(&pull).await, []);
    bot.dismiss_approvals(&pull, "planned again").await.unwrap();
}

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn permissions_are_told_to_administrators_of_the_repository() {
    let instance = Instance::new().await;
    let (bot, repo) = (instance.bot().await, instance.repo());
    for (name, writes, admin) in [("ann", true, false), ("eve", false, false), ("bot", true, true)] {
        let login = instance.login(name);
        assert_eq!(bot.can_write(&repo, &login).await.unwrap(), Some(writes), "{name}");
        assert_eq!(bot.is_admin(&repo, &login).await.unwrap(), Some(admin), "{name}");
    }
    assert_eq!(bot.can_write(&repo, "nobody-at-all").await.unwrap(), Some(false));
    let writer = instance.host("ann", &["write:repository"]).await;
    assert_eq!(writer.can_write(&repo, &instance.login("bob")).await.unwrap(), None);
}

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn pushes_are_known_from_the_activity() {
    let instance = Instance::new().await;
    let bot = instance.bot().await;
    let id = instance.open("topic", "main.tf").await;
    let (ann, bob) = (Login::new(instance.login("ann")), Login::new(instance.login("bob")));
    let pull = bot.pull_request(&id).await.unwrap();
    until("the push to be in the activity", async || !bot.pusher(&pull).await.unwrap().is_unknown()).await;
    assert_eq!(bot.pusher(&pull).await.unwrap(), ann);
    assert_eq!(bot.contributors(&pull).await.unwrap(), std::slice::from_ref(&ann));
    let pull = instance.push("bob", &bot, &id, "more.tf").await;
    until("the push to be in the activity", async || !bot.pusher(&pull).await.unwrap().is_unknown()).await;
    assert_eq!(bot.pusher(&pull).await.unwrap(), bob);
    assert_eq!(bot.contributors(&pull).await.unwrap(), [bob.clone(), ann.clone()]);
    // Somebody who hides the own activity.
    instance.by("bob", "PATCH", "/user/settings", json!({"hide_activity": true})).await;
    assert!(bot.pusher(&pull).await.unwrap().is_unknown());
    assert!(bot.contributors(&pull).await.unwrap().contains(&Login::unknown()));
    let pull = instance.push("ann", &bot, &id, "last.tf").await;
    until("the push to be in the activity", async || !bot.pusher(&pull).await.unwrap().is_unknown()).await;
    assert!(bot.contributors(&pull).await.unwrap().contains(&Login::unknown()), "a push is missing between");
    let unknown = PullRequest {
        head: tidelock_core::domain::Head { commit: CommitSha::parse(OLD).unwrap(), ..pull.head.clone() },
        ..pull
    };
    assert!(bot.pusher(&unknown).await.unwrap().is_unknown());
}

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn teams_are_told_to_owners_of_the_organization() {
    let instance = Instance::new().await;
    let (bot, repo, org) = (instance.bot().await, instance.repo(), instance.org());
    let bob = instance.login("bob");
    let outsider = bot.is_team_member(&repo, "sre", &bob).await;
    assert!(outsider.unwrap_err().is_mendable(), "we are no member of the organization");
    let team = json!({"name": "SRE", "permission": "write", "units": ["repo.code"]});
    let team = instance.root("POST", &format!("/orgs/{org}/teams"), team).await["id"].as_u64().unwrap();
    instance.root("PUT", &format!("/teams/{team}/members/{bob}"), Value::Null).await;
    let teams = instance.root("GET", &format!("/orgs/{org}/teams"), Value::Null).await;
    let owners = teams.as_array().unwrap().iter().find(|team| team["name"] == "Owners").unwrap()["id"].clone();
    instance.root("PUT", &format!("/teams/{owners}/members/{}", instance.login("bot")), Value::Null).await;
    for (name, login, want) in [
        ("sre", &bob, true),
        (&*format!("{org}/SRE"), &bob, true),
        ("owners", &bob, false),
        ("ops", &bob, false),
        ("sre", &instance.login("eve"), false),
        ("sre", &"nobody-at-all".to_owned(), false),
        ("nobody-at-all/sre", &bob, false),
        (&*format!("{bob}/sre"), &bob, false),
    ] {
        assert_eq!(bot.is_team_member(&repo, name, login).await.unwrap(), Some(want), "{name} {login}");
    }
    assert_eq!(bot.teams_of(&repo, &bob).await.unwrap().unwrap(), ["SRE"]);
    let of_a_person = RepoId { owner: bob.clone(), ..repo.clone() };
    assert_eq!(bot.teams_of(&of_a_person, &bob).await.unwrap().unwrap(), Vec::<String>::new());
    assert!(bot.repositories().await.unwrap()[0].of_organization);
    assert_eq!(bot.organization_hooks(&org).await.unwrap(), []);
}

#[tokio::test]
#[ignore = "needs scripts/with-gitea"]
async fn a_fork_is_another_repository() {
    let instance = Instance::new().await;
    let (bot, eve) = (instance.bot().await, instance.login("eve"));
    instance.by("eve", "POST", &instance.at("/forks"), json!({})).await;
    let content = json!({"content": "Zm9v", "message": "Write it", "branch": "main"});
    instance.by("eve", "POST", &format!("/repos/{eve}/infra/contents/main.tf"), content).await;
    let pull = json!({"base": "main", "head": format!("{eve}:main"), "title": "Add a bucket"});
    let made = instance.by("eve", "POST", &instance.at("/pulls"), pull).await;
    let id = PullId { repo: instance.repo(), number: made["number"].as_u64().unwrap() };
    let pull = bot.pull_request(&id).await.unwrap();
    assert!(pull.fork && pull.head.branch == "main", "{pull:?}");
    assert_eq!((pull.head.repo_owner.as_str(), pull.head.repo_name.as_str()), (eve.as_str(), "infra"));
    assert_eq!(bot.open_pulls(&id.repo).await.unwrap()[0].pull, pull);
    until("the push to be in the activity", async || !bot.pusher(&pull).await.unwrap().is_unknown()).await;
    assert_eq!(bot.contributors(&pull).await.unwrap(), [Login::new(&eve)]);
    assert!(matches!(bot.merge(&pull, None, SourceBranch::Delete).await.unwrap(), Merging::Merged(Some(_))));
    let fork = RepoId { owner: eve.clone(), ..instance.repo() };
    assert!(bot.branch(&fork, "main").await.is_ok(), "it stays");
    instance.by("eve", "DELETE", &format!("/repos/{eve}/infra"), Value::Null).await;
    let pull = bot.pull_request(&id).await.unwrap();
    assert!(pull.fork && pull.head.repo_owner.is_empty() && pull.head.branch == "main", "{pull:?}");
}
