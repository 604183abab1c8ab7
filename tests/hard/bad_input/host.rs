//! GitHub that refuses, limits, breaks, resets and stalls.

use crate::place::{CODE, Place, answer, marker};
use std::time::Duration;
use tidelock_forge::Fault;

fn refusal(status: u16) -> Fault {
    Fault::Status(status, format!("{{\"message\":\"said {status}\"}}"), Vec::new())
}

fn rate_limit(seconds: u64) -> Fault {
    let headers = vec![("retry-after".to_owned(), seconds.to_string())];
    Fault::Status(403, "{\"message\":\"You have exceeded a secondary rate limit\"}".to_owned(), headers)
}

#[tokio::test]
async fn what_may_pass_is_tried_again_until_the_comment_is_there_once() {
    let place = Place::new(&[]).await;
    let faults = [
        ("a rate limit", rate_limit(1)),
        ("500", refusal(500)),
        ("502", refusal(502)),
        ("a reset", Fault::Reset),
        ("a reset after it was done", Fault::AppliedThenReset),
        ("a stall", Fault::Stall(Duration::from_secs(2))),
    ];
    for (at, (what, fault)) in faults.into_iter().enumerate() {
        place.forge.fail_next("POST", "/api/v3/repos/acme/infra/issues/*/comments", fault.clone(), 1).unwrap();
        place.forge.fail_next("POST", "/api/v3/repos/acme/infra/statuses/*", fault, 1).unwrap();
        let file = format!("d{at}/main.tf");
        let pull = place.open(what, &[(&file, Some(CODE))]).await;
        let comment = answer(&pull, 0).await;
        assert!(comment.body.contains("1 to add"), "{what}: {}", comment.body);
        let limit = crate::place::LIMIT;
        pull.wait_for_status("atlantis/plan", |status| status.state == "success", limit).await.unwrap();
        pull.close().unwrap();
        answer(&pull, 1).await;
        assert_eq!(pull.bot_comments().unwrap().len(), 2, "{what}: posted twice");
    }
    place.still_works().await;
    place.stop().await;
}

#[tokio::test]
async fn a_command_that_cannot_read_its_pull_request_says_why() {
    let place = Place::new(&[]).await;
    let pull = place.open("A change", &[("a/main.tf", Some(CODE))]).await;
    answer(&pull, 0).await;
    // As many failures as attempts: 401 and 422 are not retried, 404 for a second, 500 for half a minute.
    for (at, (status, times)) in [(401, 1), (422, 1), (404, 3), (500, 15)].into_iter().enumerate() {
        place.forge.fail_next("GET", "/api/v3/repos/acme/infra/pulls/*", refusal(status), times).unwrap();
        pull.comment("alice", "atlantis plan").unwrap();
        let comment = answer(&pull, at + 1).await;
        assert!(!comment.body.contains("1 to add"), "{status} was not met: {}", comment.body);
        let told = if status == 404 { "not found".to_owned() } else { format!("said {status}") };
        assert!(comment.body.contains(&told), "{status}: {}", comment.body);
        assert!(!comment.body.contains("was not completed"), "{status}: {}", comment.body);
        assert_eq!(marker(&comment.body)["results"][0]["reason"], "internal", "{status}");
    }
    place.still_works().await;
    place.stop().await;
}

#[tokio::test]
async fn a_comment_that_is_refused_for_good_holds_nothing_up() {
    for status in [401, 404, 422] {
        let place = Place::new(&[]).await;
        place.forge.fail_next("POST", "/api/v3/repos/acme/infra/issues/1/comments", refusal(status), 1).unwrap();
        let pull = place.open("A change", &[("a/main.tf", Some(CODE))]).await;
        let limit = crate::place::LIMIT;
        pull.wait_for_status("atlantis/plan", |status| status.state == "success", limit).await.unwrap();
        place.still_works().await;
        pull.comment("alice", "atlantis plan -d a").unwrap();
        let comment = answer(&pull, 0).await;
        assert!(comment.body.contains("1 to add"), "{status}: {}", comment.body);
        place.stop().await;
    }
}

#[tokio::test]
async fn a_fetch_that_fails_is_told_and_the_next_one_goes() {
    let place = Place::new(&[]).await;
    for (at, fault) in [refusal(401), refusal(403), refusal(404), refusal(500), Fault::Reset].into_iter().enumerate() {
        let what = format!("{fault:?}");
        place.forge.fail_next("*", "/acme/infra.git/*", fault, 1).unwrap();
        let file = format!("d{at}/main.tf");
        let pull = place.open(&what, &[(&file, Some(CODE))]).await;
        let first = answer(&pull, 0).await;
        if !first.body.contains("1 to add") {
            assert!(first.body.contains("git fetch failed"), "{what}: {}", first.body);
            pull.comment("alice", "atlantis plan").unwrap();
            assert!(answer(&pull, 1).await.body.contains("1 to add"), "{what}");
        }
        pull.close().unwrap();
    }
    place.still_works().await;
    place.stop().await;
}
