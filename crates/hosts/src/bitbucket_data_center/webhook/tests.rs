use super::*;
use crate::webhook::{Intake, Verified};
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use tidelock_core::domain::{CommitSha, PartialPull};

const SECRET: &str = "a secret that is long enough";
const PREVIOUS: &str = "the secret that was there before";
const HEAD: &str = "da1560886d4f094c3e6c9ef40349f7d38b5d27d7";
const KINDS: [&str; 14] = [
    "pr:opened",
    "pr:from_ref_updated",
    "pr:to_ref_updated",
    "pr:modified",
    "pr:merged",
    "pr:declined",
    "pr:deleted",
    "pr:comment:added",
    "pr:reviewer:approved",
    "pr:reviewer:updated",
    "pr:reviewer:needs_work",
    "repo:refs_changed",
    "repo:modified",
    "diagnostics:ping",
];

fn address() -> BitbucketDataCenterAddress {
    BitbucketDataCenterAddress::of_base_url("https://git.example.com/bb").unwrap()
}

fn door() -> BitbucketDataCenterDoor {
    BitbucketDataCenterDoor { address: address(), secret: Some(SECRET.into()), previous: Some(PREVIOUS.into()) }
}

fn intake() -> Intake {
    Intake::new(vec![Arc::new(door())])
}

fn of_pairs(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())).collect()
}

fn tag(body: &[u8], secret: &str) -> String {
    let mut mac = <Hmac<sha2::Sha256> as KeyInit>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

/// Headers of a delivery as the host sends them.
fn headers(kind: &str, signature: &str) -> HeaderMap {
    of_pairs(&[
        ("content-type", "application/json; charset=utf-8"),
        ("x-event-key", kind),
        ("x-request-id", "f5e5f430-f57b"),
        ("x-hub-signature", signature),
    ])
}

fn signed(kind: &str, body: &[u8]) -> Verified<Event> {
    intake().receive(&headers(kind, &tag(body, SECRET)), body).unwrap_or_else(|refused| panic!("{}", refused.message))
}

/// Receives a body whose event is this one.
fn receive(kind: &str, body: &Value) -> Verified<Event> {
    signed(kind, with(body.clone(), "/eventKey", json!(kind)).to_string().as_bytes())
}

/// A repository, whose project has the name of another one's key.
fn repository() -> Value {
    json!({"slug": "infra", "id": 12, "name": "Another name", "public": false,
        "project": {"key": "PRJ", "id": 2, "name": "OTHER", "type": "NORMAL"}})
}

fn ann() -> Value {
    json!({"name": "ann", "id": 1, "displayName": "admin", "slug": "ann", "emailAddress": "ann@example.com", "type": "NORMAL"})
}

/// An event of pull request #7.
fn pull() -> Value {
    json!({
        "eventKey": "pr:opened", "date": "2026-11-17T11:22:33+0000", "actor": ann(),
        "pullRequest": {
            "id": 7, "version": 2, "title": "A topic", "state": "OPEN", "open": true, "closed": false, "draft": false,
            "createdDate": 1_530_818_490_848_i64, "updatedDate": 1_530_819_200_099_i64, "author": {"user": ann(), "role": "AUTHOR"},
            "fromRef": {"id": "refs/heads/topic", "displayId": "topic", "latestCommit": HEAD, "repository": repository()},
            "toRef": {"id": "refs/heads/main", "displayId": "main", "latestCommit": "6ef047571374094c3e6c9ef40349f7d38b5d27d7", "repository": repository()},
            "reviewers": [], "participants": [],
        }
    })
}

fn comment() -> Value {
    with(
        pull(),
        "/comment",
        json!({
            "properties": {"repositoryId": 12}, "id": 1244, "version": 0, "text": "atlantis plan -- -var 'a=\"<b> & c\"'", "author": ann(),
            "createdDate": 1_530_819_200_099_i64, "updatedDate": 1_530_819_200_099_i64, "severity": "NORMAL", "state": "OPEN",
            "comments": [], "tasks": [],
        }),
    )
}

/// The payload with one value replaced; the place is a JSON pointer, whose last part may be new.
fn with(mut body: Value, place: &str, value: Value) -> Value {
    let (parent, key) = place.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap_or_else(|| panic!("{place}"))[key] = value;
    body
}

fn of_pull(key: &str, value: Value) -> Value {
    with(pull(), &format!("/pullRequest/{key}"), value)
}

fn pull_event(kind: &str, body: &Value) -> PullEvent {
    match receive(kind, body).into_inner() {
        Event::Pull(event) => event,
        other => panic!("{other:?}"),
    }
}

fn part(body: &Value) -> PartialPull {
    match pull_event("pr:opened", body).pull {
        DeliveredPull::Part(part) => part,
        DeliveredPull::Whole(pull) => panic!("{pull:?}"),
    }
}

fn ignored(kind: &str, body: &Value) -> String {
    match receive(kind, body).into_inner() {
        Event::Other(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_opened_pull_request_tells_what_decides_about_work() {
    let verified = receive("pr:opened", &pull());
    let sight = verified.sight().unwrap();
    assert_eq!((sight.repo.to_string().as_str(), sight.key.as_str()), ("git.example.com/PRJ/infra", "12"));
    assert_eq!(verified.host_id(), "f5e5f430-f57b");
    let version = "2018-07-05T19:33:20.099000002Z";
    let identity = format!("bitbucketdatacenter:git.example.com/PRJ/infra#7:OPEN:{HEAD}:{version}");
    assert_eq!(verified.identity().as_str(), identity);
    let Event::Pull(read) = verified.into_inner() else { panic!() };
    assert_eq!((read.action, read.sender.is_unknown()), (PullAction::Opened, true), "the host is asked who pushed");
    assert_eq!(read.version, PullVersion::new(version));
    let told = part(&pull());
    assert_eq!((told.head, told.head_start, told.draft), (Some(HEAD.into()), None, Some(false)));
    assert_eq!((told.labels, told.state, told.fork), (Some(Vec::new()), PullState::Open, Some(false)));
    assert_eq!(part(&of_pull("draft", Value::Null)).draft, Some(false), "older versions have none");
    assert_eq!(part(&of_pull("draft", json!(true))).draft, Some(true));
}

#[test]
fn only_a_whole_commit_is_a_head() {
    for odd in
        [json!(&HEAD[..12]), json!(HEAD.to_uppercase()), json!("../../../../x"), json!(format!("{HEAD}0")), Value::Null]
    {
        assert_eq!(part(&with(pull(), "/pullRequest/fromRef/latestCommit", odd)).head, None::<CommitSha>);
    }
}

#[test]
fn the_body_decides_what_a_pull_request_has_come_to() {
    for kind in ["pr:from_ref_updated", "pr:to_ref_updated", "pr:modified"] {
        assert_eq!(pull_event(kind, &pull()).action, PullAction::Updated);
    }
    for (state, merged) in [("MERGED", true), ("DECLINED", false)] {
        for kind in ["pr:opened", "pr:modified", "pr:merged", "pr:declined"] {
            let read = pull_event(kind, &of_pull("state", json!(state)));
            assert_eq!(read.action, PullAction::Closed { merged }, "{kind} {state}");
            assert!(!read.pull.is_open());
        }
    }
    for kind in ["pr:merged", "pr:declined"] {
        assert!(ignored(kind, &pull()).contains("open"), "{kind}");
    }
    for state in [json!("open"), json!("SUPERSEDED"), Value::Null] {
        assert!(ignored("pr:opened", &of_pull("state", state)).contains("state"));
    }
    // It is told with the state before.
    let deleted = pull_event("pr:deleted", &pull());
    assert_eq!((deleted.action, deleted.pull.state()), (PullAction::Closed { merged: false }, &PullState::Closed));
    let identity = receive("pr:deleted", &pull()).identity().clone();
    assert!(identity.as_str().contains("#7:DELETED:"), "{identity}");
}

#[test]
fn the_header_makes_nothing_else_of_a_body() {
    let body = comment().to_string();
    for kind in KINDS.into_iter().filter(|kind| *kind != PING) {
        let read = signed(kind, body.as_bytes());
        assert!(matches!(read.get(), Event::Pull(read) if read.action == PullAction::Opened), "{kind}");
    }
    assert_eq!(signed(PING, body.as_bytes()).get(), &Event::Ping);
    for kind in [
        "pr:comment:edited",
        "pr:comment:deleted",
        "repo:modified",
        "repo:comment:added",
        "mirror:repo_synchronized",
        "",
    ] {
        assert!(ignored(kind, &comment()).contains("causes nothing"), "{kind}");
    }
}

#[test]
fn a_ping_comes_unsigned_and_does_nothing() {
    for body in [json!({"test": true}).to_string(), comment().to_string(), "no JSON".to_owned()] {
        let read = intake().receive(&headers(PING, ""), body.as_bytes()).unwrap();
        assert_eq!((read.get(), read.key(), read.sight()), (&Event::Ping, None, None), "{body}");
        let read = intake().receive(&of_pairs(&[("x-event-key", PING)]), body.as_bytes()).unwrap();
        assert_eq!(read.get(), &Event::Ping);
    }
    assert!(!intake().is_signed(&headers(PING, "")));
    let refused = intake().receive(&headers(PING, "sha256=00"), b"{}").unwrap_err();
    assert_eq!(refused.status, 401, "a wrong signature is one");
    // What is stored of it opens as what it is.
    let stored = intake().stored_headers(&headers(PING, ""), comment().to_string().as_bytes(), None);
    assert_eq!(intake().open(&stored, comment().to_string().as_bytes()).unwrap().get(), &Event::Ping);
}

#[test]
fn a_delivery_that_is_replayed_is_known_and_another_one_is_not() {
    let body = pull().to_string();
    let mut later = headers("pr:modified", &tag(body.as_bytes(), SECRET));
    later.insert("x-request-id", "another".parse().unwrap());
    let one = signed("pr:opened", body.as_bytes()).identity().clone();
    assert_eq!(&one, intake().receive(&later, body.as_bytes()).unwrap().identity());
    let of_comment = receive("pr:comment:added", &comment()).identity().clone();
    assert_eq!(of_comment.as_str(), "bitbucketdatacenter:git.example.com/PRJ/infra:comment:1244");
    let identity = |body: &Value| receive("pr:modified", body).identity().as_str().to_owned();
    let all = [
        pull(),
        of_pull("state", json!("MERGED")),
        of_pull("state", json!("DECLINED")),
        of_pull("updatedDate", json!(1_530_819_200_100_i64)),
        of_pull("version", json!(3)),
        with(pull(), "/pullRequest/fromRef/latestCommit", json!("6ef047571374094c3e6c9ef40349f7d38b5d27d7")),
        of_pull("id", json!(8)),
        with(pull(), "/pullRequest/toRef/repository/slug", json!("other")),
        with(pull(), "/pullRequest/toRef/repository/project/key", json!("OTHER")),
    ];
    let known: std::collections::BTreeSet<String> = all.iter().map(identity).collect();
    assert_eq!(known.len(), all.len());
}

#[test]
fn a_head_in_another_repository_is_a_forks() {
    let is_fork = |repository: Value| part(&with(pull(), "/pullRequest/fromRef/repository", repository)).fork.unwrap();
    assert!(is_fork(with(repository(), "/project/key", json!("~ann"))) && is_fork(Value::Null), "a deleted one");
    assert!(is_fork(json!({})) && is_fork(with(repository(), "/slug", json!("other"))));
    assert!(is_fork(with(repository(), "/project/key", json!("OTHER"))), "the key counts, and not the name");
    assert!(!is_fork(with(repository(), "/project/key", json!("prj"))));
    assert_eq!(part(&of_pull("fromRef", Value::Null)).fork, None);
}

#[test]
fn a_review_is_a_verdict_on_its_pull_request() {
    for kind in ["approved", "unapproved", "needs_work", "changes_request", "changes_requested", "updated"] {
        let read = receive(&format!("pr:reviewer:{kind}"), &with(pull(), "/participant", json!({"user": ann()})));
        if kind == "changes_request" {
            assert!(matches!(read.get(), Event::Other(_)));
            continue;
        }
        let Event::Verdict(verdict) = read.into_inner() else { panic!("{kind}") };
        assert_eq!((verdict.number, verdict.repo.full_name().as_str(), verdict.commit), (Some(7), "PRJ/infra", None));
    }
}

#[test]
fn a_repository_has_a_sound_name() {
    for (place, value) in [
        ("project/key", json!("..")),
        ("project/key", json!("A/B")),
        ("project/key", Value::Null),
        ("project", Value::Null),
        ("slug", json!("a.git")),
        ("slug", json!("../x")),
        ("slug", Value::Null),
    ] {
        for (kind, body) in [("pr:opened", pull()), ("pr:comment:added", comment())] {
            let verified = receive(kind, &with(body, &format!("/pullRequest/toRef/repository/{place}"), value.clone()));
            assert!(matches!(verified.get(), Event::Other(_)) && verified.sight().is_none(), "{place} {value}");
        }
    }
}

#[test]
fn a_comment_has_the_authors_text_and_our_address() {
    let Event::Comment(read) = receive("pr:comment:added", &comment()).into_inner() else { panic!() };
    assert_eq!(read.clone_url, "https://git.example.com/bb/scm/prj/infra.git");
    assert_eq!((read.author.as_str(), read.comment_id, read.pull.number), ("ann", 1244, 7));
    assert_eq!(read.body, "atlantis plan -- -var 'a=\"<b> & c\"'");
    // Replies and tasks are comments as well.
    let reply = with(with(comment(), "/commentParentId", json!(3)), "/comment/severity", json!("BLOCKER"));
    assert!(matches!(receive("pr:comment:added", &reply).into_inner(), Event::Comment(_)));
    let nobody = with(comment(), "/comment/author", json!({"displayName": "ann", "slug": "ann"}));
    assert!(ignored("pr:comment:added", &nobody).contains("author"), "a name that people see is no login");
}

#[test]
fn only_a_new_comment_of_a_person_in_the_conversation_runs() {
    for (place, value, why) in [
        ("/comment/state", json!("PENDING"), "not submitted"),
        ("/comment/anchor", json!({"path": "main.tf", "line": 3}), "line of a file"),
        ("/comment/updatedDate", json!(1_530_819_200_100_i64), "edited"),
        ("/comment/updatedDate", Value::Null, "edited"),
        ("/comment/version", json!(1), "edited"),
        ("/comment/id", Value::Null, "comment.id"),
        ("/comment/author", Value::Null, "author"),
        ("/pullRequest/id", json!(0), "pullRequest.id"),
        ("/comment", Value::Null, "no comment"),
        ("/pullRequest", Value::Null, "no pullRequest"),
    ] {
        let said = ignored("pr:comment:added", &with(comment(), place, value));
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_push_names_its_branches_and_neither_a_tag_nor_a_deletion_is_one() {
    let change = |kind: &str, name: &str| json!({"refId": name, "type": kind, "ref": {"id": name}, "fromHash": HEAD, "toHash": HEAD});
    let push = |changes: Value| json!({"actor": ann(), "repository": repository(), "changes": changes});
    let body = push(json!([
        change("UPDATE", "refs/heads/next/1"),
        change("ADD", "refs/tags/v1"),
        change("DELETE", "refs/heads/old"),
        change("ADD", "refs/heads/main")
    ]));
    let verified = receive("repo:refs_changed", &body);
    assert_eq!(verified.sight().unwrap().key, "12");
    let Event::Push(read) = verified.into_inner() else { panic!() };
    assert_eq!(
        (read.repo.to_string().as_str(), read.branches),
        ("git.example.com/PRJ/infra", vec!["next/1".into(), "main".into()])
    );
    for changes in
        [json!([]), json!([change("DELETE", "refs/heads/a")]), json!([change("ADD", "refs/heads/")]), Value::Null]
    {
        assert!(ignored("repo:refs_changed", &push(changes)).contains("no branch"));
    }
    let many: Vec<Value> = (0..1000).map(|number| change("ADD", &format!("refs/heads/{number}"))).collect();
    let Event::Push(read) = receive("repo:refs_changed", &push(json!(many))).into_inner() else { panic!() };
    assert_eq!(read.branches.len(), MAX_BRANCHES);
}

#[test]
fn only_a_signature_with_a_configured_secret_opens_the_door() {
    let body = comment().to_string();
    let verify = |signature: &str| door().verify(&headers("pr:comment:added", signature), body.as_bytes());
    let good = tag(body.as_bytes(), SECRET);
    assert_eq!(verify(&good).ok(), Some(Signed::Present));
    assert_eq!(verify(&tag(body.as_bytes(), PREVIOUS)).ok(), Some(Signed::Previous));
    for (signature, why) in [
        ("", "not signed"),
        ("sha256=", "not signed"),
        ("sha256=00", "wrong"),
        (&good[..good.len() - 2], "wrong"),
        (&good[..good.len() - 1], "malformed"),
        (&good["sha256=".len()..], "does not begin"),
        (&good.replace("sha256", "sha1"), "does not begin"),
        (&format!("sha256={good}"), "malformed"),
        (&tag(body.as_bytes(), ""), "wrong"),
        (&tag(body.as_bytes(), "another secret"), "wrong"),
        (&tag(b"{}", SECRET), "wrong"),
    ] {
        let refused = verify(signature).unwrap_err();
        assert!(refused.status == 401 && refused.message.contains(why), "{signature}: {}", refused.message);
        assert!(!refused.message.contains(SECRET));
    }
    let missing = of_pairs(&[("x-event-key", "repo:refs_changed")]);
    assert!(door().verify(&missing, body.as_bytes()).unwrap_err().message.contains("--bitbucket-webhook-secret"));
    // An empty secret would make the signatures of everybody.
    let empty = BitbucketDataCenterDoor { secret: Some("".into()), previous: Some("".into()), ..door() };
    assert!(empty.verify(&headers("repo:refs_changed", ""), b"").is_err());
    let unproven = intake().receive(&of_pairs(door().unproven_headers()), b"").unwrap_err();
    assert!(unproven.status == 401 && unproven.message.contains("--bitbucket-webhook-secret"));
    assert!(intake().is_signed(&headers("pr:opened", "sha256=00")) && !intake().is_signed(&headers("pr:opened", "")));
    let open = BitbucketDataCenterDoor { secret: None, ..door() };
    assert_eq!(open.verify(&headers("pr:opened", ""), b"").ok(), Some(Signed::No));
    assert!(open.secrets().is_empty());
}

#[test]
fn a_delivery_of_another_host_is_not_for_this_door() {
    let mut of_cloud = headers("pullrequest:created", "sha256=00");
    of_cloud.insert("x-hook-uuid", "{d53603cc}".parse().unwrap());
    assert!(!door().claims(&of_cloud));
    let refused = intake().receive(&of_cloud, b"{}").unwrap_err();
    assert_eq!((refused.status, refused.message.as_str()), (400, "Bitbucket Cloud is not configured here"));
    assert!(!door().claims(&of_pairs(&[("x-github-event", "push"), ("x-hub-signature", "sha1=00")])));
    assert!(!door().claims(&of_pairs(&[("x-gitea-event", "push"), ("x-hub-signature-256", "sha256=00")])));
    // A body of Bitbucket Cloud says nothing here, although both may have one secret.
    let body =
        json!({"repository": {"full_name": "acme/infra"}, "pullrequest": {"id": 7, "state": "OPEN"}}).to_string();
    assert!(matches!(signed("pullrequest:created", body.as_bytes()).get(), Event::Other(_)));
}

#[test]
fn what_is_stored_opens_without_its_signature() {
    let body = with(comment(), "/eventKey", json!("pr:comment:added")).to_string();
    let headers = headers("pr:comment:added", &tag(body.as_bytes(), SECRET));
    let verified = intake().receive(&headers, body.as_bytes()).unwrap();
    let stored = intake().stored_headers(&headers, body.as_bytes(), verified.key());
    let names: Vec<&str> = stored.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x-event-key", "x-request-id", "tidelock-seal"]);
    assert_eq!(intake().open(&stored, body.as_bytes()).unwrap().identity(), verified.identity());
    assert_eq!(intake().open(&stored, b"{}").unwrap_err().status, 401);
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
        "{\"pullRequest\":7}",
        "{\"eventKey\":\"pr:opened\"}",
        &deep,
        "\u{fffd}",
    ] {
        for kind in KINDS {
            assert!(matches!(signed(kind, body.as_bytes()).get(), Event::Other(_) | Event::Ping), "{kind}: {body:.40}");
        }
    }
    assert!(matches!(signed("repo:refs_changed", b"\xff\xfe").get(), Event::Other(_)));
}

/// Replaces every value of a payload in turn. No delivery is refused.
#[test]
fn no_odd_field_is_answered_with_an_error() {
    fn places(value: &Value, at: &str, into: &mut Vec<String>) {
        into.push(at.to_owned());
        if let Value::Object(fields) = value {
            fields.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), into));
        }
    }
    for (kind, body) in [("pr:opened", pull()), ("pr:comment:added", comment())] {
        let body = with(body, "/eventKey", json!(kind));
        let mut all = Vec::new();
        places(&body, "", &mut all);
        for place in all.iter().filter(|place| !place.is_empty()) {
            for value in [Value::Null, json!([]), json!("x"), json!(-1), json!(true)] {
                let body = with(body.clone(), place, value).to_string();
                let read = intake().receive(&headers(kind, &tag(body.as_bytes(), SECRET)), body.as_bytes());
                assert!(read.is_ok(), "{place}: {:?}", read.err());
            }
        }
    }
}

proptest! {
    #[test]
    fn no_cut_or_changed_payload_makes_it_panic(at in 0usize..2500, byte in any::<u8>(), cut in any::<bool>(), kind in 0usize..14) {
        let body = if kind % 2 == 0 { comment() } else { pull() };
        let mut body = with(body, "/eventKey", json!(KINDS[kind])).to_string().into_bytes();
        let at = at.min(body.len() - 1);
        body[at] = byte;
        if cut { body.truncate(at); }
        _ = signed(KINDS[kind], &body);
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
        let read = match signed("pr:opened", &std::fs::read(&path).unwrap()).into_inner() {
            Event::Pull(PullEvent { action, pull: DeliveredPull::Part(pull), version, .. }) => {
                let head = pull.head.as_ref().map(CommitSha::as_str).unwrap_or_default();
                format!("{action:?} {} {head} {version:?}", pull.id)
            }
            Event::Comment(comment) => {
                format!("Comment {} on {} by {}", comment.comment_id, comment.pull, comment.author.as_str())
            }
            Event::Push(push) => format!("Push {} {}", push.repo, push.branches.join(" ")),
            Event::Verdict(verdict) => format!("Verdict {} {:?} {:?}", verdict.repo, verdict.number, verdict.commit),
            other => format!("{other:?}"),
        };
        println!("EXAMPLE {name}: {read}");
    }
}
