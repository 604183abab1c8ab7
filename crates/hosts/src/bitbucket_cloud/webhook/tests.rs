use super::*;
use crate::webhook::{Intake, Verified};
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use tidelock_core::domain::PartialPull;

const SECRET: &str = "a secret that is long enough";
const PREVIOUS: &str = "the secret that was there before";
const HEAD: &str = "da1560886d4f";
const WHOLE: &str = "da1560886d4f094c3e6c9ef40349f7d38b5d27d7";
const ANN: &str = "557058:2a6349dc-4346-4805-bd84-3abdd0812d17";
const KINDS: [&str; 12] = [
    "pullrequest:created",
    "pullrequest:updated",
    "pullrequest:push",
    "pullrequest:fulfilled",
    "pullrequest:rejected",
    "pullrequest:comment_created",
    "pullrequest:approved",
    "pullrequest:unapproved",
    "pullrequest:changes_request_created",
    "repo:push",
    "repo:commit_status_updated",
    "issue:created",
];

fn door() -> BitbucketCloudDoor {
    BitbucketCloudDoor { secret: Some(SECRET.into()), previous: Some(PREVIOUS.into()), ..BitbucketCloudDoor::default() }
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
        ("content-type", "application/json"),
        ("x-event-key", kind),
        ("x-hook-uuid", "{d53603cc-3f67-45ea-b310-aaa5ef6ec061}"),
        ("x-request-uuid", "f5e5f430-f57b"),
        ("x-attempt-number", "1"),
        ("x-hub-signature", signature),
    ])
}

fn signed(kind: &str, body: &[u8]) -> Verified<Event> {
    intake().receive(&headers(kind, &tag(body, SECRET)), body).unwrap_or_else(|refused| panic!("{}", refused.message))
}

fn receive(kind: &str, body: &Value) -> Verified<Event> {
    signed(kind, body.to_string().as_bytes())
}

fn repository() -> Value {
    json!({"type": "repository", "full_name": "acme/infra", "uuid": "{bc771cbf-829e-4c4b-b71f-a0eb3ac2b860}", "is_private": true})
}

fn ann() -> Value {
    json!({"display_name": "Ann", "nickname": "bob", "account_id": ANN, "uuid": "{87bb15eb-47c1-49b3-9f16-ca824a2979a4}"})
}

/// An event of pull request #7.
fn pull() -> Value {
    json!({
        "actor": ann(), "repository": repository(),
        "pullrequest": {
            "type": "pullrequest", "id": 7, "title": "A topic", "state": "OPEN", "draft": false, "author": ann(),
            "comment_count": 2, "created_on": "2026-11-17T11:00:00.100000+00:00", "updated_on": "2026-11-17T11:22:33.123456+00:00",
            "merge_commit": null, "participants": [], "reviewers": [],
            "source": {"commit": {"hash": HEAD}, "branch": {"name": "topic"}, "repository": repository()},
            "destination": {"commit": {"hash": "6ef047571374"}, "branch": {"name": "main"}, "repository": repository()},
        }
    })
}

fn comment() -> Value {
    with(
        pull(),
        "/comment",
        json!({
            "type": "pullrequest_comment", "id": 1244, "deleted": false, "pending": false, "user": ann(),
            "content": {"raw": "atlantis plan -- -var 'a=\"<b> & c\"'", "markup": "markdown", "html": "<p>atlantis apply</p>"},
            "created_on": "2026-11-17T11:22:33.123400+00:00", "updated_on": "2026-11-17T11:22:33.123456+00:00",
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
    with(pull(), &format!("/pullrequest/{key}"), value)
}

fn pull_event(kind: &str, body: &Value) -> PullEvent {
    match receive(&format!("pullrequest:{kind}"), body).into_inner() {
        Event::Pull(event) => event,
        other => panic!("{other:?}"),
    }
}

fn part(body: &Value) -> PartialPull {
    match pull_event("created", body).pull {
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
    let verified = receive("pullrequest:created", &pull());
    let sight = verified.sight().unwrap();
    assert_eq!(sight.repo.to_string(), "bitbucket.org/acme/infra");
    assert_eq!(sight.key, "{bc771cbf-829e-4c4b-b71f-a0eb3ac2b860}");
    assert_eq!(verified.host_id(), "f5e5f430-f57b");
    let identity = format!("bitbucketcloud:bitbucket.org/acme/infra#7:OPEN:{HEAD}:2026-11-17T11:22:33.123456002Z");
    assert_eq!(verified.identity().as_str(), identity);
    let Event::Pull(read) = verified.into_inner() else { panic!() };
    assert_eq!((read.action, read.sender.is_unknown()), (PullAction::Opened, true), "the host is asked who pushed");
    assert_eq!(read.version, PullVersion::new("2026-11-17T11:22:33.123456002Z"));
    let told = part(&pull());
    assert_eq!((told.head, told.head_start.as_deref(), told.draft), (None, Some(HEAD), Some(false)));
    assert_eq!((told.labels, told.state, told.fork), (Some(Vec::new()), PullState::Open, Some(false)));
}

#[test]
fn the_beginning_of_a_head_is_never_taken_for_a_commit() {
    let read = pull_event("updated", &pull()).pull;
    assert!(read.head().is_none() && read.may_have_head(&WHOLE.into()));
    assert!(!read.may_have_head(&WHOLE.replace("da15", "da16").as_str().into()));
    let whole = part(&with(pull(), "/pullrequest/source/commit/hash", json!(WHOLE)));
    assert_eq!((whole.head, whole.head_start), (Some(WHOLE.into()), None));
    for odd in [json!("da1560"), json!("DA1560886D4F"), json!("../../../../x"), Value::Null] {
        let told = part(&with(pull(), "/pullrequest/source/commit/hash", odd));
        assert_eq!((told.head, told.head_start), (None, None));
    }
}

#[test]
fn the_body_decides_what_a_pull_request_has_come_to() {
    assert_eq!(pull_event("updated", &pull()).action, PullAction::Updated);
    assert_eq!(pull_event("push", &pull()).action, PullAction::Updated);
    for (state, merged) in [("MERGED", true), ("DECLINED", false), ("SUPERSEDED", false)] {
        for kind in ["created", "updated", "fulfilled", "rejected"] {
            let read = pull_event(kind, &of_pull("state", json!(state)));
            assert_eq!(read.action, PullAction::Closed { merged }, "{kind} {state}");
            assert!(!read.pull.is_open());
        }
    }
    for kind in ["fulfilled", "rejected"] {
        assert!(ignored(&format!("pullrequest:{kind}"), &pull()).contains("open"), "{kind}");
    }
    for state in [json!("OPEN|MERGED|DECLINED"), json!("open"), Value::Null] {
        assert!(ignored("pullrequest:created", &of_pull("state", state)).contains("state"));
    }
}

#[test]
fn the_name_of_the_event_is_not_signed_and_makes_nothing_else_of_a_body() {
    let approval = with(pull(), "/approval", json!({"date": "2026-11-17T11:22:33+00:00", "user": ann()}));
    let changes = with(pull(), "/changes_request", json!({"user": ann()}));
    for body in [approval, changes, comment()] {
        for kind in ["created", "updated", "push", "fulfilled", "rejected"] {
            assert!(ignored(&format!("pullrequest:{kind}"), &body).contains("another event"), "{kind}");
        }
    }
    assert!(ignored("pullrequest:comment_created", &pull()).contains("no comment"));
    for kind in ["repo:push", "repo:commit_status_updated", "issue:created", "pullrequest:comment_updated", ""] {
        ignored(kind, &pull());
    }
    // Whatever the name, one body has one identity, so that what was handled is not handled again.
    let identities =
        ["created", "updated", "push"].map(|kind| receive(&format!("pullrequest:{kind}"), &pull()).identity().clone());
    assert!(identities.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_delivery_that_is_replayed_is_known_and_another_one_is_not() {
    let body = pull().to_string();
    let mut later = headers("pullrequest:updated", &tag(body.as_bytes(), SECRET));
    later.insert("x-request-uuid", "another".parse().unwrap());
    later.insert("x-attempt-number", "3".parse().unwrap());
    let one = signed("pullrequest:updated", body.as_bytes()).identity().clone();
    assert_eq!(&one, intake().receive(&later, body.as_bytes()).unwrap().identity());
    assert_eq!(
        receive("pullrequest:comment_created", &comment()).identity().as_str(),
        "bitbucketcloud:bitbucket.org/acme/infra:comment:1244"
    );
    let identity = |body: &Value| receive("pullrequest:updated", body).identity().as_str().to_owned();
    let all = [
        pull(),
        of_pull("state", json!("MERGED")),
        of_pull("state", json!("DECLINED")),
        of_pull("updated_on", json!("2026-11-17T11:22:33.123457+00:00")),
        of_pull("comment_count", json!(3)),
        with(pull(), "/pullrequest/source/commit/hash", json!("6ef047571374")),
        of_pull("id", json!(8)),
        with(pull(), "/repository/full_name", json!("acme/other")),
    ];
    let known: std::collections::BTreeSet<String> = all.iter().map(identity).collect();
    assert_eq!(known.len(), all.len());
    assert_eq!(identity(&pull()), identity(&of_pull("updated_on", json!("2026-11-17T12:22:33.123456+01:00"))));
}

#[test]
fn a_head_in_another_repository_is_a_forks() {
    let is_fork = |repository: Value| part(&with(pull(), "/pullrequest/source/repository", repository)).fork.unwrap();
    assert!(is_fork(with(repository(), "/full_name", json!("bob/infra"))) && is_fork(Value::Null), "a deleted one");
    assert!(is_fork(json!({})) && is_fork(with(repository(), "/full_name", json!("acme/../infra"))));
    assert!(!is_fork(with(repository(), "/full_name", json!("Acme/Infra"))));
    assert_eq!(part(&of_pull("source", Value::Null)).fork, None);
    assert_eq!(part(&of_pull("draft", Value::Null)).draft, None);
    assert_eq!(part(&of_pull("draft", json!(true))).draft, Some(true));
}

#[test]
fn an_approval_is_a_verdict_on_its_pull_request() {
    for kind in ["approved", "unapproved", "changes_request_created", "changes_request_removed"] {
        let read = receive(&format!("pullrequest:{kind}"), &with(pull(), "/approval", json!({"user": ann()})));
        let Event::Verdict(verdict) = read.into_inner() else { panic!("{kind}") };
        assert_eq!((verdict.number, verdict.repo.name.as_str(), verdict.commit), (Some(7), "infra", None));
    }
}

#[test]
fn a_build_status_is_a_verdict_on_its_commit() {
    let href = format!("https://api.bitbucket.org/2.0/repositories/acme/infra/commit/{WHOLE}");
    let status = json!({"repository": repository(), "commit_status": {"state": "SUCCESSFUL", "links": {"commit": {"href": href}}}});
    for kind in ["created", "updated"] {
        let Event::Verdict(verdict) = receive(&format!("repo:commit_status_{kind}"), &status).into_inner() else {
            panic!()
        };
        assert_eq!((verdict.number, verdict.commit), (None, Some(WHOLE.into())));
    }
    let cut = with(status, "/commit_status/links/commit/href", json!("https://x/commit/da1560886d4f"));
    assert!(ignored("repo:commit_status_updated", &cut).contains("no commit"));
    let told = with(cut, "/commit_status/commit", json!({"hash": WHOLE}));
    assert!(matches!(receive("repo:commit_status_updated", &told).into_inner(), Event::Verdict(_)));
}

#[test]
fn a_repository_has_a_sound_name() {
    for name in ["acme", "acme/../infra", "acme/infra/x", "../infra", "acme/a.git", "", "a b/infra", "{}/infra"] {
        for (kind, body) in [("pullrequest:created", pull()), ("pullrequest:comment_created", comment())] {
            let body = with(body, "/repository/full_name", json!(name));
            let verified = receive(kind, &body);
            assert!(matches!(verified.get(), Event::Other(_)) && verified.sight().is_none(), "{name}");
        }
    }
}

#[test]
fn a_comment_has_the_authors_text_and_our_address() {
    let Event::Comment(read) = receive("pullrequest:comment_created", &comment()).into_inner() else { panic!() };
    assert_eq!(read.clone_url, "https://bitbucket.org/acme/infra.git");
    assert_eq!((read.author.as_str(), read.comment_id, read.pull.number), (ANN, 1244, 7));
    assert_eq!(read.body, "atlantis plan -- -var 'a=\"<b> & c\"'");
    // A reply is one as well.
    let reply = with(comment(), "/comment/parent", json!({"id": 3}));
    assert!(matches!(receive("pullrequest:comment_created", &reply).into_inner(), Event::Comment(_)));
}

#[test]
fn an_author_is_an_id_and_never_a_name() {
    let author = |user: Value| match receive("pullrequest:comment_created", &with(comment(), "/comment/user", user))
        .into_inner()
    {
        Event::Comment(read) => read.author,
        other => panic!("{other:?}"),
    };
    // Somebody has called themself by the id of an administrator.
    let eve = json!({"nickname": ANN, "display_name": ANN, "username": ANN, "uuid": "{bad0bad0-47c1-49b3-9f16-ca824a2979a4}"});
    assert_eq!(author(eve).as_str(), "{bad0bad0-47c1-49b3-9f16-ca824a2979a4}");
    assert_eq!(author(Value::Null).as_str(), ANN, "older payloads name the actor only");
    let nobody = json!({"nickname": ANN, "display_name": ANN});
    assert!(ignored("pullrequest:comment_created", &with(comment(), "/comment/user", nobody)).contains("author"));
}

#[test]
fn only_a_new_comment_of_a_person_in_the_conversation_runs() {
    for (place, value, why) in [
        ("/comment/deleted", json!(true), "deleted"),
        ("/comment/pending", json!(true), "not submitted"),
        ("/comment/inline", json!({"path": "main.tf", "to": 3}), "line of a file"),
        ("/comment/updated_on", json!("2026-11-17T11:22:34+00:00"), "edited"),
        ("/comment/updated_on", Value::Null, "edited"),
        ("/comment/created_on", json!("yesterday"), "edited"),
        ("/comment/id", Value::Null, "comment.id"),
        ("/pullrequest/id", json!(0), "pullrequest.id"),
        ("/comment", Value::Null, "no comment"),
        ("/pullrequest", Value::Null, "no pullrequest"),
    ] {
        let said = ignored("pullrequest:comment_created", &with(comment(), place, value));
        assert!(said.contains(why), "{said}");
    }
    for kind in ["comment_updated", "comment_deleted", "comment_resolved", "comment_reopened"] {
        assert!(ignored(&format!("pullrequest:{kind}"), &comment()).contains("causes nothing"));
    }
}

#[test]
fn a_comment_on_a_commit_an_issue_or_a_snippet_is_on_no_pull_request() {
    let written = comment()["comment"].take();
    for (kind, place, about) in [
        ("repo:commit_comment_created", "commit", json!({"type": "commit", "hash": WHOLE})),
        ("issue:comment_created", "issue", json!({"type": "issue", "id": 7, "state": "new"})),
        ("issue:updated", "issue", json!({"type": "issue", "id": 7, "state": "new"})),
        ("snippet:comment_created", "snippet", json!({"type": "snippet", "id": "kypj", "owner": ann()})),
    ] {
        let body = json!({"actor": ann(), "repository": repository(), "comment": written, place: about});
        assert!(ignored(kind, &body).contains("causes nothing"), "{kind}");
        // The name of the event is not signed.
        assert!(ignored("pullrequest:comment_created", &body).contains("no pullrequest"), "{kind}");
        assert!(ignored("pullrequest:approved", &body).contains("no pullrequest"), "{kind}");
    }
}

#[test]
fn a_push_names_its_branches_and_neither_a_tag_nor_a_deletion_is_one() {
    let change =
        |kind: &str, name: &str| json!({"new": {"type": kind, "name": name, "target": {"hash": WHOLE}}, "old": null});
    let push = |changes: Value| json!({"actor": ann(), "repository": repository(), "push": {"changes": changes}});
    let body = push(json!([change("branch", "next/1"), change("tag", "v1"), {"new": null}, change("branch", "main")]));
    let Event::Push(read) = receive("repo:push", &body).into_inner() else { panic!() };
    assert_eq!(
        (read.repo.to_string().as_str(), read.branches),
        ("bitbucket.org/acme/infra", vec!["next/1".into(), "main".into()])
    );
    for changes in
        [json!([]), json!([{"new": null}]), json!([change("tag", "v1")]), json!([change("branch", "")]), Value::Null]
    {
        assert!(ignored("repo:push", &push(changes)).contains("no branch"));
    }
    let many: Vec<Value> = (0..1000).map(|number| change("branch", &number.to_string())).collect();
    let Event::Push(read) = receive("repo:push", &push(json!(many))).into_inner() else { panic!() };
    assert_eq!(read.branches.len(), MAX_BRANCHES);
}

#[test]
fn only_a_signature_with_a_configured_secret_opens_the_door() {
    let body = comment().to_string();
    let verify = |signature: &str| door().verify(&headers("pullrequest:comment_created", signature), body.as_bytes());
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
    let missing = of_pairs(&[("x-event-key", "repo:push"), ("x-hook-uuid", "{x}")]);
    assert!(door().verify(&missing, body.as_bytes()).unwrap_err().message.contains("--bitbucket-webhook-secret"));
    // An empty secret would make the signatures of everybody.
    let empty = BitbucketCloudDoor { secret: Some("".into()), previous: Some("".into()), ..door() };
    assert!(empty.verify(&headers("repo:push", ""), b"").is_err());
    let unproven = intake().receive(&of_pairs(door().unproven_headers()), b"").unwrap_err();
    assert!(unproven.status == 401 && unproven.message.contains("--bitbucket-webhook-secret"));
    assert!(intake().is_signed(&headers("repo:push", "sha256=00")) && !intake().is_signed(&headers("repo:push", "")));
    let open = BitbucketCloudDoor { secret: None, ..door() };
    assert_eq!(open.verify(&headers("repo:push", ""), b"").ok(), Some(Signed::No));
    assert!(open.secrets().is_empty());
}

#[test]
fn a_delivery_of_data_center_is_not_for_this_door() {
    let body = comment().to_string();
    let mut headers = headers("pr:comment:added", &tag(body.as_bytes(), SECRET));
    headers.remove("x-hook-uuid");
    headers.insert("x-request-id", "f5e5".parse().unwrap());
    assert!(!door().claims(&headers));
    let refused = intake().receive(&headers, body.as_bytes()).unwrap_err();
    assert_eq!((refused.status, refused.message.as_str()), (400, "Bitbucket Data Center is not configured here"));
    let elsewhere = Intake::new(Vec::new()).receive(&self::headers("repo:push", ""), b"{}").unwrap_err();
    assert_eq!(elsewhere.message, "Bitbucket Cloud is not configured here");
    assert!(!door().claims(&of_pairs(&[("x-github-event", "push"), ("x-hub-signature", "sha1=00")])));
}

#[test]
fn what_is_stored_opens_without_its_signature() {
    let body = comment().to_string();
    let headers = headers("pullrequest:comment_created", &tag(body.as_bytes(), SECRET));
    let verified = intake().receive(&headers, body.as_bytes()).unwrap();
    let stored = intake().stored_headers(&headers, body.as_bytes(), verified.key());
    let names: Vec<&str> = stored.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x-event-key", "x-hook-uuid", "x-request-uuid", "tidelock-seal"]);
    assert_eq!(intake().open(&stored, body.as_bytes()).unwrap().identity(), verified.identity());
    assert_eq!(intake().open(&stored, b"{}").unwrap_err().status, 401);
}

#[test]
fn any_body_of_a_proven_sender_is_taken_and_does_nothing() {
    let deep = "[".repeat(100_000);
    for body in
        ["", "no JSON", "[]", "1", "null", "{}", "{\"pullrequest\":7}", "{\"repository\":[]}", &deep, "\u{fffd}"]
    {
        for kind in KINDS {
            assert!(matches!(signed(kind, body.as_bytes()).get(), Event::Other(_)), "{kind}: {body:.40}");
        }
    }
    assert!(matches!(signed("repo:push", b"\xff\xfe").get(), Event::Other(_)));
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
    for (kind, body) in [("pullrequest:created", pull()), ("pullrequest:comment_created", comment())] {
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
    fn no_cut_or_changed_payload_makes_it_panic(at in 0usize..2000, byte in any::<u8>(), cut in any::<bool>(), kind in 0usize..12) {
        let mut body = if kind % 2 == 0 { comment() } else { pull() }.to_string().into_bytes();
        let at = at.min(body.len() - 1);
        body[at] = byte;
        if cut { body.truncate(at); }
        _ = signed(KINDS[kind], &body);
    }
}

/// Directory with examples of others, which `scripts/check-payloads` fetches.
const OF_OTHERS: &str = "TIDELOCK_TEST_PAYLOADS";

/// Returns the event of an example, whose headers nobody has kept, by the name of its file.
fn kind_of_example(name: &str) -> &'static str {
    let is = |part: &str| name.replace('_', "-").replace("pull-request", "pr").contains(part);
    match () {
        () if is("-pr-comment-created") => "pullrequest:comment_created",
        () if is("-pr-comment-") => "pullrequest:comment_updated",
        () if is("-pr-approv") => "pullrequest:approved",
        () if is("-pr-created") => "pullrequest:created",
        () if is("-pr-updated") => "pullrequest:updated",
        () if is("-pr-fulfilled") || is("-pr-merged") => "pullrequest:fulfilled",
        () if is("-pr-declined") => "pullrequest:rejected",
        () if is("-push") => "repo:push",
        () if is("-commit-status-") => "repo:commit_status_updated",
        () => "another",
    }
}

/// Prints what each example of other programs is read as. None is refused.
#[test]
fn examples_of_others_are_read() {
    let Ok(dir) = std::env::var(OF_OTHERS) else { return };
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    for path in files.collect::<std::collections::BTreeSet<_>>() {
        let name = path.file_name().unwrap().to_string_lossy();
        let read = match signed(kind_of_example(&name), &std::fs::read(&path).unwrap()).into_inner() {
            Event::Pull(PullEvent { action, pull: DeliveredPull::Part(pull), version, .. }) => {
                format!("{action:?} {} {} {version:?}", pull.id, pull.head_start.unwrap_or_default())
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
