use super::*;
use crate::webhook::{Intake, Verified};
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;
use tidelock_core::domain::{DeliveredPull, PartialPull, PullState};

const SECRET: &str = "a secret that is long enough";
const PREVIOUS: &str = "the secret that was there before";
const HEAD: &str = "da1560886d4f094c3e6c9ef40349f7d38b5d27d7";
const BASE: &str = "6ef047571374c96a2bf13c361efd1fb008b0063e";
const MERGED: &str = "0ab96a1c4c79225d27d7da1560886d4f094c3e6c";

fn door() -> GiteaDoor {
    GiteaDoor {
        address: GiteaAddress::new("git.example.com", "https://git.example.com/gitea"),
        secret: Some(SECRET.into()),
        previous: Some(PREVIOUS.into()),
    }
}

fn intake() -> Intake {
    Intake::new(vec![Arc::new(door())])
}

fn of_pairs(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())).collect()
}

fn tag(json: &[u8], secret: &str) -> String {
    let mut mac = <Hmac<sha2::Sha256> as KeyInit>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(json);
    hex::encode(mac.finalize().into_bytes())
}

/// Headers of a delivery as Gitea 1.26 sends them.
fn headers(kind: &str, signature: &str) -> HeaderMap {
    of_pairs(&[
        ("content-type", "application/json"),
        ("x-gitea-delivery", "f5e5f430-f57b"),
        ("x-gitea-event", kind),
        ("x-gitea-event-type", "pull_request_comment"),
        ("x-gitea-signature", signature),
        ("x-gogs-event", kind),
        ("x-github-event", kind),
        ("x-hub-signature-256", &format!("sha256={signature}")),
    ])
}

fn signed(kind: &str, body: &[u8]) -> Verified<Event> {
    intake().receive(&headers(kind, &tag(body, SECRET)), body).unwrap_or_else(|refused| panic!("{}", refused.message))
}

fn receive(kind: &str, body: &Value) -> Verified<Event> {
    signed(kind, body.to_string().as_bytes())
}

fn repository() -> Value {
    json!({
        "id": 5, "name": "infra", "full_name": "acme/infra", "size": 2048, "owner": {"login": "acme"},
        "html_url": "http://other.example:3000/acme/infra", "clone_url": "http://other.example:3000/acme/infra.git"
    })
}

/// An event of pull request #7.
fn pull(action: &str) -> Value {
    json!({
        "action": action, "number": 7, "repository": repository(), "sender": {"login": "bob", "username": "bob"},
        "commit_id": "", "review": null, "requested_reviewer": null,
        "pull_request": {
            "id": 99, "number": 7, "user": {"login": "ann"}, "title": "A topic", "state": "open", "draft": false,
            "labels": [{"id": 1, "name": "no-plan"}], "html_url": "http://other.example:3000/acme/infra/pulls/7",
            "merged": false, "merge_commit_sha": null, "updated_at": "2026-11-17T12:22:33+01:00",
            "head": {"label": "topic", "ref": "topic", "sha": HEAD, "repo_id": 5, "repo": repository()},
            "base": {"label": "main", "ref": "main", "sha": BASE, "repo_id": 5, "repo": repository()}
        }
    })
}

fn comment() -> Value {
    json!({
        "action": "created", "is_pull": true, "repository": repository(), "sender": {"login": "ann"},
        "issue": {"id": 98, "number": 7, "pull_request": {"merged": false}},
        "comment": {"id": 1244, "user": {"login": "ann"}, "body": "atlantis plan -- -var 'a=\"<b> & c\"'"}
    })
}

/// The payload with one value replaced; the place is a JSON pointer, whose last part may be new.
fn with(mut body: Value, place: &str, value: Value) -> Value {
    let (parent, key) = place.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap_or_else(|| panic!("{place}"))[key] = value;
    body
}

fn of_pull(body: Value, key: &str, value: Value) -> Value {
    with(body, &format!("/pull_request/{key}"), value)
}

fn pull_event(body: &Value) -> PullEvent {
    match receive("pull_request", body).into_inner() {
        Event::Pull(event) => event,
        other => panic!("{other:?}"),
    }
}

fn part(body: &Value) -> PartialPull {
    match pull_event(body).pull {
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
    let verified = receive("pull_request", &pull("opened"));
    let sight = verified.sight().unwrap();
    assert_eq!((sight.repo.to_string().as_str(), sight.key.as_str()), ("git.example.com/acme/infra", "5"));
    assert_eq!(verified.host_id(), "f5e5f430-f57b");
    let identity = format!("gitea:git.example.com/acme/infra#7:opened:{HEAD}:2026-11-17T11:22:33Z");
    assert_eq!(verified.identity().as_str(), identity);
    let Event::Pull(read) = verified.into_inner() else { panic!() };
    assert_eq!((read.action, read.sender.is_unknown()), (PullAction::Opened, true), "the host is asked who pushed");
    assert_eq!(read.version, PullVersion::new("2026-11-17T11:22:33Z"));
    let told = part(&pull("opened"));
    assert_eq!((told.head, told.draft, told.fork), (Some(HEAD.into()), Some(false), Some(false)));
    assert_eq!((told.labels, told.state), (Some(vec!["no-plan".to_owned()]), PullState::Open));
}

#[test]
fn actions_on_pull_requests_become_ours() {
    assert_eq!(pull_event(&pull("reopened")).action, PullAction::Opened);
    assert_eq!(
        pull_event(&pull("synchronized")).action,
        PullAction::Updated,
        "a host that is asked soon tells a push of before, too"
    );
    let closed = pull_event(&of_pull(pull("closed"), "state", json!("closed")));
    assert_eq!((closed.action, closed.pull.state()), (PullAction::Closed { merged: false }, &PullState::Closed));
    let merged = of_pull(of_pull(pull("closed"), "merged", json!(true)), "merge_commit_sha", json!(MERGED));
    let merged = pull_event(&of_pull(merged, "state", json!("closed")));
    let state = PullState::Merged { commit: Some(MERGED.into()) };
    assert_eq!((merged.action, merged.pull.state()), (PullAction::Closed { merged: true }, &state));
    // A deleted pull request is described as it was.
    let deleted = pull_event(&pull("deleted"));
    assert_eq!((deleted.action, deleted.pull.state()), (PullAction::Closed { merged: false }, &PullState::Closed));
    for action in [
        "edited",
        "label_updated",
        "label_cleared",
        "assigned",
        "unassigned",
        "milestoned",
        "demilestoned",
        "review_requested",
        "review_request_removed",
        "synchronize",
        "",
        "\u{1b}[2J",
    ] {
        assert!(ignored("pull_request", &pull(action)).contains("action"), "{action}");
    }
}

#[test]
fn a_title_that_changes_may_make_it_ready_and_the_former_state_decides() {
    let titled = with(pull("edited"), "/changes", json!({"title": {"from": "WIP: A topic"}}));
    assert_eq!(pull_event(&titled).action, PullAction::Updated);
    for (key, value) in [("draft", json!(true)), ("state", json!("closed")), ("draft", Value::Null)] {
        assert!(ignored("pull_request", &of_pull(titled.clone(), key, value)).contains("edited"));
    }
    for changes in [json!({"ref": {"from": "main"}}), json!({"body": {"from": "x"}}), json!({"title": null})] {
        assert!(ignored("pull_request", &with(pull("edited"), "/changes", changes)).contains("edited"));
    }
}

#[test]
fn a_review_is_a_verdict_on_its_pull_request_and_its_text_is_no_command() {
    for kind in ["approved", "rejected", "comment"] {
        let review = json!({"type": format!("pull_request_review_{kind}"), "content": "atlantis apply"});
        let body = with(pull("reviewed"), "/review", review);
        let read = receive(&format!("pull_request_{kind}"), &body).into_inner();
        let Event::Verdict(verdict) = read else { panic!("{read:?}") };
        assert_eq!((verdict.number, verdict.repo.name.as_str(), verdict.commit), (Some(7), "infra", None));
    }
}

#[test]
fn a_status_is_a_verdict_on_its_commit() {
    let status = json!({"sha": HEAD, "state": "success", "context": "ci", "repository": repository()});
    let Event::Verdict(verdict) = receive("status", &status).into_inner() else { panic!() };
    assert_eq!((verdict.number, verdict.commit), (None, Some(HEAD.into())));
    assert!(ignored("status", &with(status, "/sha", json!("main"))).contains("no commit"));
}

#[test]
fn a_head_that_readers_can_push_is_a_forks() {
    let is_fork = |label: Value, repo: Value| {
        let body = with(pull("opened"), "/pull_request/head/label", label);
        part(&with(body, "/pull_request/head/repo", repo)).fork.unwrap()
    };
    assert!(is_fork(json!("topic"), with(repository(), "/full_name", json!("bob/infra"))));
    assert!(is_fork(json!("topic"), Value::Null), "a deleted one");
    // `git push origin HEAD:refs/for/main` needs no right to write, and its head is in the base repository.
    assert!(is_fork(json!(""), repository()) && is_fork(Value::Null, repository()));
    assert!(!is_fork(json!("topic"), with(repository(), "/full_name", json!("Acme/Infra"))));
    // A branch that was deleted.
    let deleted = with(pull("opened"), "/pull_request/head/ref", json!("refs/pull/7/head"));
    assert_eq!(part(&deleted).fork, Some(false));
}

#[test]
fn what_a_delivery_lacks_is_absent() {
    let cut = part(&with(pull("opened"), "/pull_request/head/sha", json!("da1560886d4f")));
    assert_eq!((cut.head, cut.fork, cut.draft), (None, Some(false), Some(false)));
    assert_eq!(part(&of_pull(pull("opened"), "labels", Value::Null)).labels, None);
    assert_eq!(part(&of_pull(pull("opened"), "draft", Value::Null)).draft, None);
    assert_eq!(part(&of_pull(pull("opened"), "head", Value::Null)).fork, None);
    let lacks = |place: &str, value: Value| ignored("pull_request", &with(pull("opened"), place, value));
    assert!(lacks("/pull_request/updated_at", Value::Null).contains("updated_at"));
    assert!(lacks("/pull_request", Value::Null).contains("no pull_request"));
    assert!(lacks("/number", json!(0)).contains("no number"));
}

#[test]
fn a_repository_has_a_sound_name() {
    for name in ["acme", "acme/../infra", "acme/infra/x", "../infra", "acme/a.git", "", "a b/infra"] {
        for (kind, body) in [("pull_request", pull("opened")), ("issue_comment", comment())] {
            let body = with(body, "/repository/full_name", json!(name));
            let verified = receive(kind, &body);
            assert!(matches!(verified.get(), Event::Other(_)) && verified.sight().is_none(), "{name}");
        }
    }
}

#[test]
fn a_delivery_that_is_replayed_is_known_and_another_one_is_not() {
    let body = pull("synchronized").to_string();
    let signature = tag(body.as_bytes(), SECRET);
    // A signature has no time, and a replay from the page of the webhook has another id.
    let mut later = headers("pull_request", &signature);
    later.insert("x-gitea-delivery", "another".parse().unwrap());
    let [one, two] = [headers("pull_request", &signature), later]
        .map(|headers| intake().receive(&headers, body.as_bytes()).unwrap().identity().clone());
    assert_eq!(one, two);
    let known = receive("issue_comment", &comment()).identity().clone();
    assert_eq!(known.as_str(), "gitea:git.example.com/acme/infra:comment:1244");
    // The header with the name of the event is not signed. Another one makes nothing else of a payload that has an effect.
    for kind in ["issue_comment", "push", "status", "release"] {
        assert!(ignored(kind, &pull("opened")).contains(kind));
    }
    for kind in ["pull_request", "pull_request_approved", "push", "status"] {
        assert!(ignored(kind, &with(comment(), "/pull_request", pull("x")["pull_request"].clone())).contains(kind));
    }
    let merged = of_pull(pull("closed"), "merged", json!(true));
    let pushed = with(pull("synchronized"), "/pull_request/head/sha", json!(BASE));
    let later = of_pull(pull("synchronized"), "updated_at", json!("2026-11-17T11:22:34Z"));
    let same = of_pull(pull("synchronized"), "updated_at", json!("2026-11-17T11:22:33Z"));
    let identity = |body: &Value| receive("pull_request", body).identity().as_str().to_owned();
    assert_eq!(identity(&pull("synchronized")), identity(&same), "the offset of the server may change");
    let all = [pull("opened"), pull("reopened"), pull("synchronized"), pull("closed"), merged, pushed, later];
    let known: std::collections::BTreeSet<String> = all.iter().map(identity).collect();
    assert_eq!(known.len(), all.len());
}

#[test]
fn a_comment_has_the_authors_text_and_our_address() {
    let Event::Comment(read) = receive("issue_comment", &comment()).into_inner() else { panic!() };
    assert_eq!(read.clone_url, "https://git.example.com/gitea/acme/infra.git", "and not the payload's");
    assert_eq!((read.author.as_str(), read.comment_id, read.pull.number), ("ann", 1244, 7));
    assert_eq!(read.body, "atlantis plan -- -var 'a=\"<b> & c\"'");
}

/// Anybody may choose a full name that is somebody's login.
#[test]
fn a_full_name_is_no_login() {
    let user = json!({"login": "eve", "full_name": "ann"});
    let named = with(with(comment(), "/comment/user", user.clone()), "/sender", user);
    let Event::Comment(read) = receive("issue_comment", &named).into_inner() else { panic!() };
    assert_eq!(read.author.as_str(), "eve");
}

#[test]
fn only_a_new_comment_of_a_person_on_a_pull_request_runs() {
    for (place, value, why) in [
        ("/action", json!("edited"), "edited"),
        ("/action", json!("deleted"), "deleted"),
        ("/action", Value::Null, "action"),
        ("/is_pull", json!(false), "on an issue"),
        ("/is_pull", Value::Null, "on an issue"),
        ("/issue/number", json!(0), "issue.number"),
        ("/comment/id", Value::Null, "comment.id"),
        ("/comment/user/login", json!(""), "author"),
        ("/comment/user", Value::Null, "author"),
        ("/comment", Value::Null, "no comment"),
    ] {
        let said = ignored("issue_comment", &with(comment(), place, value));
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_push_names_its_branch_and_neither_a_tag_nor_a_deletion_is_one() {
    let push = |reference: &str, after: &str| json!({"ref": reference, "after": after, "repository": repository()});
    let Event::Push(read) = receive("push", &push("refs/heads/next/1", HEAD)).into_inner() else { panic!() };
    assert_eq!((read.repo.to_string().as_str(), read.branches), ("git.example.com/acme/infra", vec!["next/1".into()]));
    assert!(ignored("push", &push("refs/tags/v1", HEAD)).contains("no branch"));
    assert!(ignored("push", &push("refs/heads/", HEAD)).contains("no branch"));
    assert!(ignored("push", &push("refs/heads/next", &"0".repeat(40))).contains("deleted"));
    for kind in ["create", "delete", "issues", "release", "repository", "wiki", "pull_request_review_request"] {
        assert!(ignored(kind, &push("refs/heads/main", HEAD)).contains("causes nothing"));
    }
}

#[test]
fn only_a_signature_with_a_configured_secret_opens_the_door() {
    let body = comment().to_string();
    let verify = |signature: &str| door().verify(&headers("issue_comment", signature), body.as_bytes());
    assert_eq!(verify(&tag(body.as_bytes(), SECRET)).ok(), Some(Signed::Present));
    assert_eq!(verify(&tag(body.as_bytes(), SECRET).to_uppercase()).ok(), Some(Signed::Present));
    assert_eq!(verify(&tag(body.as_bytes(), PREVIOUS)).ok(), Some(Signed::Previous));
    let good = tag(body.as_bytes(), SECRET);
    for (signature, why) in [
        ("", "not signed"),
        ("00", "wrong"),
        (&good[..62], "wrong"),
        (&good[..63], "malformed"),
        (&format!("sha256={good}"), "malformed"),
        (&tag(body.as_bytes(), ""), "wrong"),
        (&tag(body.as_bytes(), "another secret"), "wrong"),
        (&tag(b"{}", SECRET), "wrong"),
    ] {
        let refused = verify(signature).unwrap_err();
        assert!(refused.status == 401 && refused.message.contains(why), "{signature}: {}", refused.message);
        assert!(!refused.message.contains(SECRET));
    }
    // Gitea's own headers alone count.
    let of_github = of_pairs(&[("x-gitea-event", "issue_comment"), ("x-hub-signature-256", "sha256=")]);
    assert_eq!(door().verify(&of_github, body.as_bytes()).unwrap_err().status, 401);
    // An empty secret would make the signatures of everybody.
    let empty = GiteaDoor { secret: Some("".into()), previous: Some("".into()), ..door() };
    assert!(empty.verify(&headers("push", ""), b"").is_err());
    let unproven = intake().receive(&of_pairs(door().unproven_headers()), b"").unwrap_err();
    assert!(unproven.status == 401 && unproven.message.contains("--gitea-webhook-secret"));
    assert!(intake().is_signed(&headers("push", "00")) && !intake().is_signed(&headers("push", "")));
    let open = GiteaDoor { secret: None, ..door() };
    assert_eq!(open.verify(&headers("push", ""), b"").ok(), Some(Signed::No));
    assert!(open.secrets().is_empty());
}

#[test]
fn forgejos_own_headers_are_read() {
    let body = comment().to_string();
    let headers = of_pairs(&[
        ("content-type", "application/json"),
        ("x-forgejo-event", "issue_comment"),
        ("x-forgejo-delivery", "f5e5"),
        ("x-forgejo-signature", &tag(body.as_bytes(), SECRET)),
        ("x-github-event", "issue_comment"),
    ]);
    let verified = intake().receive(&headers, body.as_bytes()).unwrap();
    assert!(matches!(verified.get(), Event::Comment(_)) && verified.host_id() == "f5e5");
}

#[test]
fn each_door_claims_its_own_deliveries_only() {
    assert!(door().claims(&headers("push", "")) && door().claims(&of_pairs(&[("x-forgejo-event", "push")])));
    assert!(!door().claims(&of_pairs(&[("x-github-event", "push"), ("x-hub-signature-256", "sha256=00")])));
    assert!(!door().claims(&of_pairs(&[("x-gogs-event", "push")])));
}

#[test]
fn the_signature_of_a_form_is_that_of_its_json() {
    let body = comment().to_string();
    let form = url::form_urlencoded::Serializer::new(String::new()).append_pair("payload", &body).finish();
    let send = |form: &str, signature: &str| {
        let mut headers = headers("issue_comment", signature);
        headers.insert("content-type", "application/x-www-form-urlencoded; charset=utf-8".parse().unwrap());
        let verified = intake().receive(&headers, form.as_bytes());
        let stored = verified.as_ref().ok().map(|verified| {
            let stored = intake().stored_headers(&headers, form.as_bytes(), verified.key());
            intake().open(&stored, form.as_bytes()).unwrap().identity().clone()
        });
        verified.map(|verified| (verified, stored)).map_err(|refused| refused.status)
    };
    let (read, stored) = send(&form, &tag(body.as_bytes(), SECRET)).unwrap();
    assert_eq!(read.get(), receive("issue_comment", &comment()).get());
    assert_eq!(stored.as_ref(), Some(read.identity()));
    assert_eq!(send(&form, &tag(form.as_bytes(), SECRET)).err(), Some(401), "the bytes of the form are not signed");
    assert_eq!(send("a=b", &tag(b"a=b", SECRET)).err(), Some(401));
}

#[test]
fn what_is_stored_opens_without_its_signature() {
    let body = comment().to_string();
    let headers = headers("issue_comment", &tag(body.as_bytes(), SECRET));
    let verified = intake().receive(&headers, body.as_bytes()).unwrap();
    let stored = intake().stored_headers(&headers, body.as_bytes(), verified.key());
    let names: Vec<&str> = stored.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x-gitea-event", "content-type", "x-gitea-delivery", "tidelock-seal"]);
    assert_eq!(intake().open(&stored, body.as_bytes()).unwrap().identity(), verified.identity());
    assert_eq!(intake().open(&stored, b"{}").unwrap_err().status, 401);
}

#[test]
fn any_body_of_a_proven_sender_is_taken_and_does_nothing() {
    let deep = "[".repeat(100_000);
    for body in ["", "no JSON", "[]", "1", "null", "{}", "{\"action\":7}", "{\"repository\":[]}", &deep, "\u{fffd}"] {
        for kind in ["pull_request", "pull_request_approved", "issue_comment", "push", "status", "wiki"] {
            assert!(matches!(signed(kind, body.as_bytes()).get(), Event::Other(_)), "{kind}: {body:.40}");
        }
    }
    assert!(matches!(signed("push", b"\xff\xfe").get(), Event::Other(_)));
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
    for (kind, body) in [("pull_request", pull("opened")), ("issue_comment", comment())] {
        let mut all = Vec::new();
        places(&body, "", &mut all);
        for place in all.iter().filter(|place| !place.is_empty()) {
            for value in [Value::Null, json!([]), json!("x"), json!(-1), json!(true)] {
                let body = with(body.clone(), place, value).to_string();
                let headers = headers(kind, &tag(body.as_bytes(), SECRET));
                let read = intake().receive(&headers, body.as_bytes());
                assert!(read.is_ok(), "{place}: {:?}", read.err());
            }
        }
    }
}

proptest! {
    #[test]
    fn no_cut_or_changed_payload_makes_it_panic(at in 0usize..2000, byte in any::<u8>(), cut in any::<bool>(), kind in "pull_request|issue_comment|push|status") {
        let mut body = if kind == "issue_comment" { comment() } else { pull("opened") }.to_string().into_bytes();
        let at = at.min(body.len() - 1);
        body[at] = byte;
        if cut { body.truncate(at); }
        _ = signed(&kind, &body);
    }
}

/// Deliveries of Gitea 1.26.0, with the names of their events and their signatures by [`SECRET`].
const REAL: [(&str, &str, &str); 6] = [
    ("pull_request_edited_title", "pull_request", "533606b6aa426a13c3416b10fe61a5f1eda47397d147685d4a499288a179145a"),
    (
        "issue_comment_created_by_another_address",
        "issue_comment",
        "49b7bb1191a5b2a4b90ecd2f0658a5a0ca370c1a899fc1831241760c4457297b",
    ),
    (
        "pull_request_approved",
        "pull_request_approved",
        "2c33632f0ca69f6b55945d1faa8c7ad1999cd9d7cc12fe521429129f3eb83f76",
    ),
    ("pull_request_opened_by_agit", "pull_request", "379291aaa67df5c84f02668a6ad35cef8b426f634cfd802873d5545f44f5e33c"),
    ("pull_request_closed_merged", "pull_request", "f7097ba0a6689ff5815fb99c5a42a3ee3ac9384e82a04fd843f86d7cb2830e8d"),
    ("push", "push", "cec7df77baddda488a76ea8d9c2ae67eb5466174f882658168e0eb9928075bc3"),
];

#[test]
fn deliveries_of_a_real_gitea_are_taken() {
    let read = REAL.map(|(name, kind, signature)| {
        let path = format!("{}/../../tests/fixtures/webhooks/gitea/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let local = GiteaDoor { address: GiteaAddress::new("127.0.0.1", "http://127.0.0.1:23456"), ..door() };
        let intake = Intake::new(vec![Arc::new(local)]);
        let verified = intake.receive(&headers(kind, signature), &std::fs::read(path).unwrap());
        let verified = verified.unwrap_or_else(|refused| panic!("{name}: {}", refused.message));
        assert_eq!(verified.sight().map(|sight| sight.key.as_str()), Some("1"), "{name}");
        verified.into_inner()
    });
    let [
        Event::Pull(edited),
        Event::Comment(said),
        Event::Verdict(approved),
        Event::Pull(agit),
        Event::Pull(merged),
        Event::Push(push),
    ] = read
    else {
        panic!("{read:?}")
    };
    assert_eq!((edited.action, edited.pull.is_ready()), (PullAction::Updated, true));
    assert_eq!((said.author.as_str(), said.pull.number, said.body.as_str()), ("bob", 1, "atlantis plan"));
    assert_eq!(
        said.clone_url, "http://127.0.0.1:23456/acme/infra.git",
        "bob's request had the header `Host: evil.example`"
    );
    assert_eq!(approved.number, Some(1));
    assert_eq!((agit.action, agit.pull.is_fork()), (PullAction::Opened, true));
    assert_eq!(merged.action, PullAction::Closed { merged: true });
    assert!(matches!(merged.pull.state(), PullState::Merged { commit: Some(_) }));
    assert_eq!(push.branches, ["topic"]);
}

/// Directory with examples of others, which `scripts/check-payloads` fetches.
const OF_OTHERS: &str = "TIDELOCK_TEST_PAYLOADS";

/// Returns the event of an example, whose headers nobody has kept, by the name of its file.
fn kind_of_example(name: &str) -> &'static str {
    let is = |part: &str| name.replace('_', "-").contains(part);
    match () {
        () if is("-comment-") => "issue_comment",
        () if is("-review-approved") || is("-request-review") => "pull_request_approved",
        () if is("-pull-request-") => "pull_request",
        () if is("-push") => "push",
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
