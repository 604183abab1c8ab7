//! Statuses, approvals and merges.

use super::*;

async fn status_of(gitlab: &GitlabForge, pull: &Pull) -> Value {
    let path = format!("/merge_requests/{}", pull.number());
    gitlab.get(&path).await;
    gitlab.get(&path).await["detailed_merge_status"].clone()
}

#[tokio::test]
async fn a_status_is_a_job_that_takes_steps() {
    let gitlab = GitlabForge::new().await;
    let pull = gitlab.pull().await;
    gitlab.forge.set_refuses_repeated_states(true);
    let path = format!("/statuses/{}", pull.head_commit().unwrap());
    let set = async |state: &str| {
        let body = json!({"state": state, "name": "atlantis/plan", "ref": "change"});
        let (status, told) = gitlab.ask(Method::POST, &path, body).await;
        (status, told["message"].as_str().unwrap_or_default().to_owned())
    };
    let refused = |event: &str, from: &str| {
        let reason = format!("(Reason(s): Status cannot transition via \"{event}\")");
        (400, format!("Cannot transition status via :{event} from :{from} {reason}"))
    };
    for (state, wanted, pipeline) in [
        ("pending", (201, String::new()), "pending"),
        ("pending", refused("enqueue", "pending"), "pending"),
        ("running", (201, String::new()), "running"),
        ("running", refused("run", "running"), "running"),
        ("pending", refused("enqueue", "running"), "running"),
        ("skipped", refused("skip", "running"), "running"),
        ("success", (201, String::new()), "success"),
        ("success", (201, String::new()), "success"),
        ("running", (201, String::new()), "running"),
        ("failed", (201, String::new()), "failed"),
    ] {
        assert_eq!(set(state).await, wanted, "{state}");
        assert_eq!(pull.head_pipeline().unwrap(), Some(pipeline), "{state}");
    }
    assert_eq!(pull.statuses().unwrap()["atlantis/plan"].state, "failure");
    let listed = gitlab.get(&format!("/repository/commits/{}/statuses", pull.head_commit().unwrap())).await;
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["status"]), (1, &json!("failed")));
    gitlab.forge.set_refuses_repeated_states(false);
    assert_eq!((set("running").await.0, set("running").await.0), (201, 201), "since 18.3");
}

#[tokio::test]
async fn a_wrong_status_is_refused() {
    let gitlab = GitlabForge::new().await;
    let pull = gitlab.pull().await;
    let head = pull.head_commit().unwrap();
    let long = "x".repeat(256);
    for (sha, body, wanted, part) in [
        (head.as_str(), json!({"name": "x"}), 400, "state is missing"),
        (&head, json!({"state": "failure"}), 400, "state does not have a valid value"),
        (&head, json!({"state": "success", "name": long}), 400, "is too long (maximum is 255 characters)"),
        (&head, json!({"state": "success", "description": long}), 400, "is too long (maximum is 255 characters)"),
        (&head, json!({"state": "success", "target_url": "javascript:x"}), 400, "Only allowed schemes"),
        (
            &head,
            json!({"state": "success", "pipeline_id": 1}),
            404,
            "404 Pipeline for pipeline_id, sha and ref Not Found",
        ),
        (&"0".repeat(40), json!({"state": "success"}), 404, "404 Commit Not Found"),
    ] {
        let (status, told) = gitlab.ask(Method::POST, &format!("/statuses/{sha}"), body).await;
        assert_eq!(status, wanted, "{told}");
        assert!(told.to_string().contains(part), "{told}");
    }
    let path = format!("{PROJECT}/statuses/{head}");
    let refused = gitlab.request(Method::POST, &path, "dave", json!({"state": "success"})).await;
    assert_eq!(refused.status, 403);
    assert!(pull.statuses().unwrap().is_empty());
}

#[tokio::test]
async fn a_status_lands_in_the_pipeline_of_its_ref() {
    let gitlab = GitlabForge::new().await;
    let pull = gitlab.pull().await;
    gitlab.repo.require_successful_pipeline(true).unwrap();
    assert_eq!(status_of(&gitlab, &pull).await, "ci_must_pass", "there is no pipeline");
    let path = format!("/statuses/{}", pull.head_commit().unwrap());
    let set = async |body: Value| gitlab.ask(Method::POST, &path, body).await.1["pipeline_id"].clone();
    let of_branch = pull.start_pipeline(false).unwrap();
    let of_request = pull.start_pipeline(true).unwrap();
    assert_eq!(gitlab.get("/merge_requests/1").await["head_pipeline"]["id"], json!(of_request));
    assert_eq!(
        set(json!({"state": "running", "name": "a", "ref": "change"})).await,
        json!(of_branch),
        "nobody looks there"
    );
    assert_eq!(set(json!({"state": "running", "name": "a", "pipeline_id": of_request})).await, json!(of_request));
    pull.end_pipeline(of_request, true).await.unwrap();
    assert_eq!(status_of(&gitlab, &pull).await, "ci_still_running", "our own status is running");
    set(json!({"state": "success", "name": "a", "pipeline_id": of_request})).await;
    assert_eq!(status_of(&gitlab, &pull).await, "mergeable");
}

#[tokio::test]
async fn a_status_is_ended_in_each_of_its_pipelines() {
    let gitlab = GitlabForge::new().await;
    let pull = gitlab.pull().await;
    gitlab.repo.require_successful_pipeline(true).unwrap();
    let head = pull.head_commit().unwrap();
    let path = format!("/statuses/{head}");
    let set = async |body: Value| gitlab.ask(Method::POST, &path, body).await.1["pipeline_id"].as_u64().unwrap();
    // CI's pipeline comes after the first status.
    let external = set(json!({"state": "running", "name": "a/plan: x", "ref": "change"})).await;
    set(json!({"state": "running", "name": "a/plan", "ref": "change"})).await;
    let shown = pull.start_pipeline(true).unwrap();
    set(json!({"state": "success", "name": "a/plan: x", "pipeline_id": shown})).await;
    let listed = async || {
        let path =
            format!("/repository/commits/{head}/statuses?per_page=100&order_by=id&sort=desc&name=a%2Fplan%3A%20x");
        let rows = gitlab.get(&path).await;
        let told = |row: &Value| (row["pipeline_id"].as_u64().unwrap(), row["status"].as_str().unwrap().to_owned());
        rows.as_array().unwrap().iter().map(told).collect::<Vec<_>>()
    };
    let states = |of_first: &str| vec![(shown, "success".to_owned()), (external, of_first.to_owned())];
    assert_eq!(listed().await, states("running"));
    for name in ["a/plan: x", "a/plan"] {
        let ended = json!({"state": "success", "name": name, "pipeline_id": external});
        assert_eq!(set(ended).await, external);
    }
    pull.end_pipeline(shown, true).await.unwrap();
    assert_eq!(listed().await, states("success"));
    let all = gitlab.get(&format!("/repository/commits/{head}/statuses")).await;
    assert!(all.as_array().unwrap().iter().all(|row| row["status"] == "success"), "{all}");
    assert_eq!(status_of(&gitlab, &pull).await, "mergeable");
}

#[tokio::test]
async fn approvals_are_counted_and_only_bots_reset_them() {
    let gitlab = GitlabForge::new().await;
    let pull = gitlab.pull().await;
    let path = format!("/merge_requests/{}", pull.number());
    assert_eq!(gitlab.get(&format!("{path}/approvals")).await["approved"], json!(true), "none is required");
    gitlab.repo.require_approvals(1).unwrap();
    let before = gitlab.get(&format!("{path}/approvals")).await;
    assert_eq!((&before["approved"], &before["approvals_left"]), (&json!(false), &json!(1)));
    assert_eq!(status_of(&gitlab, &pull).await, "not_approved");
    let head = pull.head_commit().unwrap();
    let approve = format!("{PROJECT}{path}/approve");
    for (login, body, wanted) in [
        ("dave", json!({}), 403),
        ("bob", json!({"sha": "0".repeat(40)}), 409),
        ("bob", json!({"sha": head}), 201),
        ("bob", json!({}), 401),
    ] {
        let answer = gitlab.request(Method::POST, &approve, login, body).await;
        assert_eq!(answer.status, wanted, "{}", answer.body);
    }
    assert_eq!(status_of(&gitlab, &pull).await, "mergeable");
    let reset = format!("{path}/reset_approvals");
    assert_eq!(gitlab.ask(Method::PUT, &reset, Value::Null).await.0, 401, "a personal token");
    gitlab.forge.set_token_is_of_bot(true);
    assert_eq!(gitlab.ask(Method::PUT, &reset, Value::Null).await.0, 202);
    assert_eq!(gitlab.get(&format!("{path}/approvals")).await["approved_by"], json!([]));
    assert_eq!(gitlab.ask(Method::POST, &format!("{path}/unapprove"), Value::Null).await.0, 404);
    pull.request_changes("carol").unwrap();
    let reviewers = gitlab.get(&format!("{path}/reviewers")).await;
    let states: Vec<&Value> = reviewers.as_array().unwrap().iter().map(|reviewer| &reviewer["state"]).collect();
    assert_eq!(states, ["unapproved", "requested_changes"]);
    assert_eq!(gitlab.ask(Method::GET, &format!("{path}/approval_state"), Value::Null).await.0, 404);
    gitlab.repo.set_approval_rules(vec![json!({"name": "ops", "approvals_required": 1})]).unwrap();
    assert_eq!(gitlab.get(&format!("{path}/approval_state")).await["rules"][0]["name"], "ops");
}

#[tokio::test]
async fn a_merge_is_refused_for_its_reasons() {
    let gitlab = GitlabForge::new().await;
    let pull = gitlab.open(OpenOptions { draft: true, ..OpenOptions::default() }).await;
    let merge = format!("/merge_requests/{}/merge", pull.number());
    let head = pull.head_commit().unwrap();
    assert_eq!(gitlab.get("/merge_requests/1").await["title"], "Draft: Change a");
    assert_eq!(gitlab.ask(Method::PUT, &merge, json!({"sha": head})).await.0, 405, "a draft");
    pull.ready().unwrap();
    let stranger = gitlab.request(Method::PUT, &format!("{PROJECT}{merge}"), "bob", json!({})).await;
    assert_eq!(stranger.status, 401, "main is protected");
    let (status, told) = gitlab.ask(Method::PUT, &merge, json!({"sha": "0".repeat(40)})).await;
    assert_eq!(
        (status, told["message"].as_str().unwrap().split(':').next()),
        (409, Some("SHA does not match HEAD of source branch"))
    );
    let auto = json!({"sha": head, "auto_merge": true});
    assert_eq!(gitlab.ask(Method::PUT, &merge, auto.clone()).await.0, 405, "nothing to wait for");
    gitlab.repo.require_resolved_threads(true).unwrap();
    pull.set_open_threads(1).unwrap();
    assert_eq!(status_of(&gitlab, &pull).await, "discussions_not_resolved");
    pull.set_open_threads(0).unwrap();
    gitlab.repo.push("main", &[("main.tf", Some("a = 9\n"))]).await.unwrap();
    let (status, told) = gitlab.ask(Method::PUT, &merge, json!({"sha": head})).await;
    assert_eq!((status, told), (422, json!({"message": "Branch cannot be merged"})));
    pull.set_mergeable_state("not_approved").unwrap();
    assert_eq!(gitlab.ask(Method::PUT, &merge, json!({"sha": head})).await.0, 405);
    assert!(!pull.is_merged().unwrap());
}

#[tokio::test]
async fn a_merge_squashes_deletes_the_branch_and_waits_for_the_pipeline() {
    let gitlab = GitlabForge::new().await;
    let pull = gitlab.pull().await;
    gitlab.repo.require_successful_pipeline(true).unwrap();
    let pipeline = pull.start_pipeline(true).unwrap();
    let head = pull.head_commit().unwrap();
    let how =
        json!({"sha": head, "auto_merge": true, "should_remove_source_branch": true, "merge_commit_message": "By us"});
    let (status, told) = gitlab.ask(Method::PUT, "/merge_requests/1/merge", how).await;
    assert_eq!((status, &told["merge_when_pipeline_succeeds"], &told["state"]), (200, &json!(true), &json!("opened")));
    pull.end_pipeline(pipeline, true).await.unwrap();
    assert!(pull.is_merged().unwrap() && gitlab.repo.tip("change").await.is_err());
    assert_eq!(gitlab.repo.subject("main").await.unwrap(), "By us");
    let merged = gitlab.get("/merge_requests/1").await;
    assert_eq!((&merged["state"], &merged["merge_user"]["username"]), (&json!("merged"), &json!("tidelock-bot")));
    assert_eq!(merged["merge_commit_sha"], json!(gitlab.repo.tip("main").await.unwrap()));
    gitlab.repo.require_successful_pipeline(false).unwrap();
    let changes = [("b.tf", Some("b"))];
    let second = gitlab.repo.open_pull("second", "alice", "Add b", &changes, OpenOptions::default()).await.unwrap();
    let how = json!({"sha": second.head_commit().unwrap(), "squash": true});
    let (_, told) = gitlab.ask(Method::PUT, "/merge_requests/2/merge", how).await;
    assert_eq!(told["squash_commit_sha"], json!(gitlab.repo.tip("main").await.unwrap()));
    assert_eq!(told["merge_commit_sha"], Value::Null);
}

#[tokio::test]
async fn a_merge_train_merges_when_it_arrives() {
    let gitlab = GitlabForge::new().await;
    let pull = gitlab.pull().await;
    let train = "/merge_trains/merge_requests/1";
    let how = json!({"sha": pull.head_commit().unwrap()});
    assert_eq!(gitlab.ask(Method::POST, train, how.clone()).await.0, 403, "there are none");
    gitlab.repo.enable_merge_trains(true).unwrap();
    assert_eq!(gitlab.get("").await["merge_trains_enabled"], json!(true));
    assert_eq!(gitlab.ask(Method::GET, train, Value::Null).await.0, 404);
    assert_eq!(gitlab.ask(Method::POST, train, json!({"sha": "0".repeat(40)})).await.0, 409);
    pull.set_mergeable_state("not_approved").unwrap();
    assert_eq!(gitlab.ask(Method::POST, train, how.clone()).await.0, 400);
    pull.set_mergeable_state("mergeable").unwrap();
    let (status, cars) = gitlab.ask(Method::POST, train, how).await;
    assert_eq!((status, &cars[0]["status"], pull.is_merged().unwrap()), (201, &json!("fresh"), false));
    pull.arrive().await.unwrap();
    assert_eq!(gitlab.get(train).await["status"], "merged");
    assert!(pull.is_merged().unwrap());
}
