use super::*;
use crate::webhook::{Intake, Verified};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use std::sync::Arc;

const SECRET: &str = "a secret token that is long enough";
const PREVIOUS: &str = "the secret token that was there before";
const SIGNING: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";
const HEAD: &str = "da1560886d4f094c3e6c9ef40349f7d38b5d27d7";
const BEFORE: &str = "6ef047571374c96a2bf13c361efd1fb008b0063e";

fn door() -> GitlabDoor {
    GitlabDoor {
        address: GitlabAddress::new("gitlab.com", "https://gitlab.com"),
        secret: Some(SECRET.into()),
        previous: Some(PREVIOUS.into()),
        signing: None,
    }
}

fn intake() -> Intake {
    Intake::new(vec![Arc::new(door())])
}

fn of_pairs(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())).collect()
}

fn headers(token: &str) -> HeaderMap {
    of_pairs(&[(EVENT, "Some Hook"), (TOKEN, token), ("idempotency-key", "f5e5f430-f57b")])
}

fn project() -> Value {
    json!({
        "id": 5, "name": "Infra", "path_with_namespace": "acme/platform/infra",
        "git_http_url": "https://evil.example/acme/infra.git", "web_url": "https://evil.example/acme/infra"
    })
}

/// An event of merge request !7, as GitLab 18 sends it.
fn merge_request(action: &str) -> Value {
    json!({
        "object_kind": "merge_request", "event_type": "merge_request",
        "user": {"id": 2, "name": "Bob", "username": "bob", "email": "[REDACTED]"},
        "project": project(),
        "object_attributes": {
            "id": 99, "iid": 7, "author_id": 1, "title": "A topic", "action": action, "state": "opened", "draft": false,
            "source_branch": "topic", "target_branch": "main", "source_project_id": 5, "target_project_id": 5,
            "source": project(), "target": project(), "last_commit": {"id": HEAD, "message": "m"},
            "updated_at": "2026-11-17 11:22:33 UTC", "created_at": "2026-11-17 11:00:00 UTC"
        },
        "labels": [{"id": 206, "title": "no-plan"}], "changes": {}
    })
}

fn note() -> Value {
    json!({
        "object_kind": "note", "event_type": "note",
        "user": {"id": 3, "name": "Ann", "username": "ann"}, "project_id": 5, "project": project(),
        "object_attributes": {
            "id": 1244, "note": "atlantis plan -- -var 'a=\"<b> & c\"'", "noteable_type": "MergeRequest", "author_id": 3,
            "created_at": "2026-11-17 11:30:00 UTC", "updated_at": "2026-11-17 11:30:00 UTC", "system": false,
            "internal": false, "action": "create"
        },
        "merge_request": {
            "id": 99, "iid": 7, "author_id": 1, "source_project_id": 5, "target_project_id": 5, "target": project()
        }
    })
}

fn push(reference: &str) -> Value {
    json!({"object_kind": "push", "event_name": "push", "ref": reference, "project_id": 5, "project": project()})
}

/// The payload with one value replaced; the place is a JSON pointer, whose last part may be new.
fn with(mut body: Value, place: &str, value: Value) -> Value {
    let (parent, key) = place.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap_or_else(|| panic!("{place}"))[key] = value;
    body
}

fn of_pull(body: Value, key: &str, value: Value) -> Value {
    with(body, &format!("/object_attributes/{key}"), value)
}

fn receive(body: &Value) -> Verified<Event> {
    intake().receive(&headers(SECRET), body.to_string().as_bytes()).unwrap()
}

fn pull_event(body: &Value) -> PullEvent {
    match receive(body).into_inner() {
        Event::Pull(event) => event,
        other => panic!("{other:?}"),
    }
}

fn ignored(body: &Value) -> String {
    match receive(body).into_inner() {
        Event::Other(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_merge_request_is_read_as_far_as_it_is_told() {
    let verified = receive(&merge_request("open"));
    let sight = verified.sight().unwrap();
    assert_eq!((sight.repo.to_string().as_str(), sight.key.as_str()), ("gitlab.com/acme/platform/infra", "5"));
    assert_eq!(verified.host_id(), "f5e5f430-f57b");
    let identity = format!("gitlab:gitlab.com/acme/platform/infra#7:open:{HEAD}:2026-11-17T11:22:33Z");
    assert_eq!(verified.identity().as_str(), identity);
    let Event::Pull(read) = verified.into_inner() else { panic!() };
    assert_eq!((read.action, read.sender.is_unknown()), (PullAction::Opened, true));
    assert_eq!(read.version, PullVersion::new("2026-11-17T11:22:33Z"));
    let DeliveredPull::Part(part) = read.pull else { panic!() };
    assert_eq!(part.id.to_string(), "gitlab.com/acme/platform/infra#7");
    assert_eq!((part.state, part.head), (PullState::Open, Some(HEAD.into())));
    assert_eq!((part.draft, part.fork, part.labels), (Some(false), Some(false), Some(vec!["no-plan".to_owned()])));
}

#[test]
fn an_update_pushes_or_makes_ready_or_does_nothing() {
    let updated = || merge_request("update");
    assert_eq!(pull_event(&of_pull(updated(), "oldrev", json!(BEFORE))).action, PullAction::Pushed);
    let ready = |changes: Value| with(updated(), "/changes", changes);
    for changes in [
        json!({"draft": {"previous": true, "current": false}, "title": {"previous": "Draft: x", "current": "x"}}),
        json!({"title": {"previous": "Draft: x", "current": "x"}}),
        json!({"title": {"previous": "[draft] x", "current": "x"}}),
    ] {
        assert_eq!(pull_event(&ready(changes)).action, PullAction::Ready);
    }
    for changes in [
        json!({}),
        json!(null),
        json!({"draft": {"previous": false, "current": true}}),
        json!({"draft": {"previous": false, "current": false}, "title": {"previous": "Draft: x", "current": "x"}}),
        json!({"title": {"previous": "x", "current": "Draft: x"}}),
        json!({"title": {"previous": "x", "current": "drafty"}}),
        json!({"labels": {"previous": [], "current": []}}),
    ] {
        assert!(ignored(&ready(changes)).contains("update"));
    }
}

#[test]
fn reopening_opens_and_a_merge_closes() {
    assert_eq!(pull_event(&merge_request("reopen")).action, PullAction::Opened);
    let closed = pull_event(&of_pull(merge_request("close"), "state", json!("closed")));
    assert_eq!((closed.action, closed.pull.state()), (PullAction::Closed { merged: false }, &PullState::Closed));
    let merged = of_pull(merge_request("merge"), "merge_commit_sha", json!(BEFORE));
    let merged = pull_event(&merged);
    let state = PullState::Merged { commit: Some(BEFORE.into()) };
    assert_eq!((merged.action, merged.pull.state()), (PullAction::Closed { merged: true }, &state));
    // A fast-forward merge creates no commit.
    assert_eq!(pull_event(&merge_request("merge")).pull.state(), &PullState::Merged { commit: None });
    assert_eq!(pull_event(&of_pull(merge_request("open"), "state", json!("locked"))).pull.state(), &PullState::Open);
}

#[test]
fn an_approval_is_a_verdict_on_its_merge_request() {
    let reset = of_pull(merge_request("update"), "system_action", json!("approvals_reset_on_push"));
    let asked = with(merge_request("update"), "/changes", json!({"reviewers": [[], [{"state": "requested_changes"}]]}));
    for body in
        ["approved", "unapproved", "approval", "unapproval"].map(merge_request).into_iter().chain([reset, asked])
    {
        let Event::Verdict(verdict) = receive(&body).into_inner() else { panic!("{body}") };
        assert_eq!((verdict.number, verdict.repo.name.as_str()), (Some(7), "infra"));
    }
    let pushed = of_pull(merge_request("update"), "system_action", json!("approvals_reset_on_push"));
    assert_eq!(pull_event(&of_pull(pushed, "oldrev", json!(BEFORE))).action, PullAction::Pushed);
}

#[test]
fn a_part_that_is_not_told_is_absent() {
    let part = |key: &str, value: Value| match pull_event(&of_pull(merge_request("open"), key, value)).pull {
        DeliveredPull::Part(part) => part,
        whole => panic!("{whole:?}"),
    };
    assert_eq!(part("last_commit", json!({"id": "da1560886d4f"})).head, None);
    assert_eq!(part("source_project_id", json!(6)).fork, Some(true));
    assert_eq!(part("source_project_id", Value::Null).fork, None);
    let old = of_pull(of_pull(merge_request("open"), "draft", Value::Null), "work_in_progress", json!(true));
    assert!(pull_event(&old).pull.is_draft());
    let unlabelled = with(merge_request("open"), "/labels", Value::Null);
    let DeliveredPull::Part(part) = pull_event(&unlabelled).pull else { panic!() };
    assert_eq!(part.labels, None);
}

#[test]
fn a_delivery_that_comes_again_is_known_and_another_one_is_not() {
    let identity = |body: &Value| receive(body).identity().to_owned();
    let pushed = |to: &str| of_pull(merge_request("update"), "oldrev", json!(to));
    // A repetition may write times otherwise.
    let again = of_pull(pushed(BEFORE), "updated_at", json!("2026-11-17T11:22:33Z"));
    assert_eq!(identity(&pushed(BEFORE)), identity(&again));
    let ready = with(merge_request("update"), "/changes", json!({"draft": {"previous": true, "current": false}}));
    let later = of_pull(pushed(BEFORE), "updated_at", json!("2026-11-17 11:22:34 UTC"));
    let all = [pushed(BEFORE), ready, later, merge_request("open"), merge_request("reopen"), merge_request("close")];
    let known: std::collections::BTreeSet<String> = all.iter().map(|body| identity(body).as_str().to_owned()).collect();
    assert_eq!(known.len(), all.len());
}

#[test]
fn a_comment_has_the_authors_text_and_our_address() {
    let verified = receive(&note());
    assert_eq!(verified.identity().as_str(), "gitlab:gitlab.com/acme/platform/infra:comment:1244");
    let Event::Comment(read) = verified.into_inner() else { panic!() };
    assert_eq!(read.clone_url, "https://gitlab.com/acme/platform/infra.git", "and not the payload's");
    assert_eq!((read.author.as_str(), read.comment_id, read.pull.number), ("ann", 1244, 7));
    assert_eq!(read.body, "atlantis plan -- -var 'a=\"<b> & c\"'");
    // Anybody may choose a name that is somebody's login.
    let named = with(with(note(), "/user/username", json!("eve")), "/user/name", json!("ann"));
    let Event::Comment(read) = receive(&named).into_inner() else { panic!() };
    assert_eq!(read.author.as_str(), "eve");
    // Earlier versions send no action: a comment that is new was not changed.
    assert!(matches!(receive(&of_pull(note(), "action", Value::Null)).get(), Event::Comment(_)));
}

#[test]
fn only_a_new_comment_of_a_person_on_a_merge_request_runs() {
    for (key, value, why) in [
        ("action", json!("update"), "edited"),
        ("action", json!("delete"), "edited"),
        ("system", json!(true), "nobody wrote"),
        ("internal", json!(true), "internal"),
        ("confidential", json!(true), "internal"),
        ("noteable_type", json!("Commit"), "Commit"),
        ("noteable_type", json!("Issue"), "Issue"),
        ("noteable_type", json!("Snippet"), "Snippet"),
        ("author_id", json!(4), "author"),
        ("id", json!(null), "id"),
    ] {
        let said = ignored(&of_pull(note(), key, value));
        assert!(said.contains(why), "{said}");
    }
    let old = of_pull(of_pull(note(), "action", Value::Null), "updated_at", json!("2026-11-17 11:31:00 UTC"));
    assert!(ignored(&old).contains("edited"));
    assert!(ignored(&with(note(), "/event_type", json!("confidential_note"))).contains("internal"));
    assert!(ignored(&with(note(), "/user/username", Value::Null)).contains("author"));
    // Drafts of a review are told when it is published.
    assert!(ignored(&with(note(), "/object_kind", json!("draft_note"))).contains("causes nothing"));
}

#[test]
fn a_merge_request_belongs_to_the_project_of_its_delivery() {
    for (place, value) in [
        ("/project/id", json!(6)),
        ("/project/path_with_namespace", json!("acme/other")),
        ("/project/path_with_namespace", json!("acme")),
        ("/project/path_with_namespace", json!("acme/../infra")),
        ("/project/path_with_namespace", json!("acme/-/infra")),
        ("/object_attributes/iid", json!(0)),
    ] {
        let said = ignored(&with(merge_request("open"), place, value));
        assert!(said.contains("project") || said.contains("iid"), "{said}");
    }
    let elsewhere = with(note(), "/merge_request/target/path_with_namespace", json!("acme/other"));
    assert!(ignored(&elsewhere).contains("another project"));
}

#[test]
fn a_project_is_at_most_twenty_groups_deep() {
    let opened = |groups: usize| {
        let path: Vec<String> = (1..=groups).map(|group| format!("g{group}")).collect();
        let path = json!(format!("{}/infra", path.join("/")));
        let opened = of_pull(merge_request("open"), "target", json!({"id": 5, "path_with_namespace": path}));
        with(opened, "/project/path_with_namespace", path)
    };
    let id = pull_event(&opened(20)).pull.id().clone();
    assert!(id.repo.owner.starts_with("g1/g2/") && id.repo.owner.ends_with("/g20") && id.repo.name == "infra");
    assert!(ignored(&opened(21)).contains("project"));
}

#[test]
fn a_push_names_its_branch_and_neither_a_tag_nor_a_deletion_is_one() {
    let Event::Push(read) = receive(&push("refs/heads/next/1")).into_inner() else { panic!() };
    assert_eq!(
        (read.repo.to_string().as_str(), read.branches),
        ("gitlab.com/acme/platform/infra", vec!["next/1".into()])
    );
    // System hooks have no other kind.
    let system = with(push("refs/heads/main"), "/object_kind", Value::Null);
    assert!(matches!(receive(&system).get(), Event::Push(_)));
    assert!(ignored(&push("refs/tags/v1")).contains("no branch"));
    let after = |commit: &str| with(push("refs/heads/next"), "/after", json!(commit));
    assert!(ignored(&after(&"0".repeat(40))).contains("deleted"));
    assert!(matches!(receive(&after(HEAD)).get(), Event::Push(_)));
}

#[test]
fn only_a_configured_token_opens_the_door() {
    let body = note().to_string();
    let receive = |headers: &HeaderMap| intake().receive(headers, body.as_bytes());
    assert_eq!(door().verify(&headers(SECRET), b"").ok(), Some(Signed::Present));
    assert_eq!(door().verify(&headers(PREVIOUS), b"").ok(), Some(Signed::Previous));
    for token in ["", "guess", &SECRET[1..], &format!("{SECRET} ")] {
        let refused = receive(&headers(token)).unwrap_err();
        assert_eq!(refused.status, 401, "{token}");
        assert!(token.is_empty() || !refused.message.contains(token), "{}", refused.message);
    }
    let unproven = receive(&of_pairs(door().unproven_headers())).unwrap_err();
    assert!(unproven.status == 401 && unproven.message.contains("--gitlab-webhook-secret"));
    // Wrong tokens of others, who send from the same addresses, do not lock it out.
    assert!(intake().is_signed(&headers(SECRET)) && !intake().is_signed(&of_pairs(&[(EVENT, "Note Hook")])));
    assert!(!door().claims(&of_pairs(&[("x-github-event", "ping")])));
    let open = GitlabDoor { secret: None, ..door() };
    assert_eq!(open.verify(&headers("any"), b"").ok(), Some(Signed::No));
    assert!(open.secrets().is_empty());
}

#[test]
fn what_is_stored_has_no_token_and_opens_without_it() {
    let body = note().to_string();
    let verified = intake().receive(&headers(SECRET), body.as_bytes()).unwrap();
    let stored = intake().stored_headers(&headers(SECRET), body.as_bytes(), verified.key());
    let names: Vec<&str> = stored.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, [EVENT, "idempotency-key", "tidelock-seal"]);
    assert!(stored.iter().all(|(_, value)| !value.contains(SECRET)));
    assert_eq!(intake().open(&stored, body.as_bytes()).unwrap().identity(), verified.identity());
    assert_eq!(intake().open(&stored, b"{}").unwrap_err().status, 401);
}

/// Headers of a delivery that is signed by Standard Webhooks.
fn signed(key: &[u8], second: i64, body: &[u8]) -> HeaderMap {
    let mut mac = <Hmac<sha2::Sha256> as KeyInit>::new_from_slice(key).unwrap();
    mac.update(format!("msg_1.{second}.").as_bytes());
    mac.update(body);
    let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    of_pairs(&[
        (EVENT, "Note Hook"),
        ("webhook-id", "msg_1"),
        ("webhook-timestamp", &second.to_string()),
        (signature::SIGNATURE, &signature),
    ])
}

/// The example of the Standard Webhooks specification.
#[test]
fn the_signature_is_that_of_standard_webhooks() {
    let headers = of_pairs(&[
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        (signature::SIGNATURE, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ]);
    let token = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".into();
    let at = |second| {
        signature::verify(&headers, br#"{"test": 2432232314}"#, &token, Timestamp::from_second(second).unwrap())
    };
    assert!(at(1_614_265_330).is_ok() && at(1_614_265_630).is_ok() && at(1_614_265_030).is_ok());
    for second in [1_614_265_631, 1_614_265_029] {
        let refused = at(second).unwrap_err();
        assert!(refused.status == 401 && refused.message.contains("5 minutes"), "{}", refused.message);
    }
}

#[test]
fn a_signature_is_required_where_there_is_one() {
    let body = note().to_string();
    let door = GitlabDoor { signing: Some(SIGNING.into()), ..door() };
    let now = Timestamp::now().as_second();
    let verify = |headers: &HeaderMap| door.verify(headers, body.as_bytes()).map_err(|refused| refused.status);
    let good = signed(KEY, now, body.as_bytes());
    assert_eq!(verify(&good), Ok(Signed::Present));
    // While tokens are changed, a delivery has a signature for each.
    let mut several = good.clone();
    let signature = format!("v1,AAAA v2,x {}", header(&good, signature::SIGNATURE));
    several.insert(signature::SIGNATURE, signature.parse().unwrap());
    assert_eq!(verify(&several), Ok(Signed::Present));
    for mut wrong in [
        signed(b"another key of thirty-two bytes!", now, body.as_bytes()),
        signed(KEY, now, b"{}"),
        signed(KEY, now - 3600, body.as_bytes()),
        signed(KEY, now + 3600, body.as_bytes()),
    ] {
        // The secret token does not make up for it.
        wrong.insert(TOKEN, SECRET.parse().unwrap());
        assert_eq!(verify(&wrong), Err(401));
    }
    for value in ["", "v1,", "v1", "%%%", "v1a,AAAA"] {
        let mut wrong = good.clone();
        wrong.insert(signature::SIGNATURE, value.parse().unwrap());
        assert_eq!(verify(&wrong), Err(401), "{value}");
    }
    assert_eq!(verify(&headers(SECRET)), Ok(Signed::Present), "a webhook without a signing token");
    let alone = GitlabDoor { secret: None, previous: None, ..door.clone() };
    assert!(alone.verify(&good, body.as_bytes()).is_ok() && alone.verify(&headers(SECRET), body.as_bytes()).is_err());
    assert!(alone.verify(&headers(""), body.as_bytes()).is_err());
}

#[test]
fn a_signed_delivery_is_stored_with_a_seal_and_opens_later() {
    let body = note().to_string();
    let intake = Intake::new(vec![Arc::new(GitlabDoor {
        secret: None,
        previous: None,
        signing: Some(SIGNING.into()),
        ..door()
    })]);
    let headers = signed(KEY, Timestamp::now().as_second(), body.as_bytes());
    let verified = intake.receive(&headers, body.as_bytes()).unwrap();
    let stored = intake.stored_headers(&headers, body.as_bytes(), verified.key());
    assert!(stored.iter().all(|(name, _)| !name.starts_with("webhook-")), "{stored:?}");
    assert_eq!(intake.open(&stored, body.as_bytes()).unwrap().identity(), verified.identity());
}

#[test]
fn any_body_of_a_proven_sender_is_taken_and_does_nothing() {
    let deep = "[".repeat(100_000);
    for body in [
        "",
        "no JSON",
        "[]",
        "1",
        "null",
        "{}",
        "{\"object_kind\":7}",
        "{\"object_kind\":\"pipeline\"}",
        &deep,
        "\u{fffd}",
    ] {
        let read = intake().receive(&headers(SECRET), body.as_bytes()).unwrap();
        assert!(matches!(read.get(), Event::Other(_)), "{body:.40}");
    }
    assert!(intake().receive(&headers(SECRET), b"\xff\xfe").is_ok());
    assert!(ignored(&json!({"object_kind": "note"})).contains("object_attributes"));
    assert!(ignored(&merge_request("\u{1b}[2J")).contains("\"?[2J\""));
}

/// Replaces every value of a payload in turn. No delivery is refused, as templates may leave out and change fields.
#[test]
fn no_odd_field_is_answered_with_an_error() {
    fn places(value: &Value, at: &str, into: &mut Vec<String>) {
        into.push(at.to_owned());
        if let Value::Object(fields) = value {
            fields.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), into));
        }
    }
    for whole in [merge_request("open"), note(), push("refs/heads/main")] {
        let mut all = Vec::new();
        places(&whole, "", &mut all);
        for place in all.iter().filter(|place| !place.is_empty()) {
            for value in [Value::Null, json!([]), json!("x"), json!(-1), json!(true)] {
                let body = with(whole.clone(), place, value).to_string();
                let read = intake().receive(&headers(SECRET), body.as_bytes());
                assert!(read.is_ok(), "{place}: {:?}", read.err());
            }
        }
    }
}

/// Directory with examples of others, which `scripts/check-payloads` fetches.
const OF_OTHERS: &str = "TIDELOCK_TEST_PAYLOADS";

/// Prints what each example of other programs is read as. None is refused.
#[test]
fn examples_of_others_are_read() {
    let Ok(dir) = std::env::var(OF_OTHERS) else { return };
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    for path in files.collect::<std::collections::BTreeSet<_>>() {
        let name = path.file_name().unwrap().to_string_lossy();
        let verified = intake().receive(&headers(SECRET), &std::fs::read(&path).unwrap());
        let read = match verified.unwrap_or_else(|refused| panic!("{name}: {}", refused.message)).into_inner() {
            Event::Pull(PullEvent { action, pull, version, .. }) => {
                let head = pull.head().map_or("no head", CommitSha::short);
                format!("{action:?} {} {head} {version:?}", pull.id())
            }
            Event::Comment(comment) => {
                format!("Comment {} on {} by {}", comment.comment_id, comment.pull, comment.author)
            }
            Event::Push(push) => format!("Push {} {}", push.repo, push.branches.join(" ")),
            Event::Verdict(verdict) => format!("Verdict {} {:?}", verdict.repo, verdict.number),
            other => format!("{other:?}"),
        };
        println!("EXAMPLE {name}: {read}");
    }
}
