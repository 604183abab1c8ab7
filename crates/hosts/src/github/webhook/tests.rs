use super::{GithubDoor, KnownChecks};
use crate::webhook::{Intake, MAX_BODY, Rejection, Verified};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue};
use insta::assert_debug_snapshot;
use proptest::prelude::*;
use tidelock_core::domain::command::CommandName;
use tidelock_core::domain::*;

const SECRET: &str = "It's a Secret to Everybody";

/// Test vector of GitHub's documentation.
#[test]
fn the_documented_signature_is_accepted() {
    let tag = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let headers = headers("push", "application/json", &[("x-hub-signature-256", tag)]);
    assert_eq!(receive(&headers, b"Hello, World!", &door()).unwrap().get(), &Event::Other("push".into()));
}

#[test]
fn the_previous_secret_is_taken_too_and_what_was_kept_verifies_again() {
    let both = GithubDoor { secret: Some("the new one".into()), previous: Some(SECRET.into()), ..door() };
    let body = fixture("issue_comment_created");
    for (secret, accepted) in [("the new one", true), (SECRET, true), ("another", false)] {
        let more = [("x-hub-signature-256", &*sha256(&body, secret)), ("authorization", "Basic x"), ("cookie", "y")];
        let headers = headers("issue_comment", "application/json", &more);
        assert_eq!(receive(&headers, &body, &both).is_ok(), accepted, "{secret}");
        let verified = receive(&headers, &body, &both);
        let key = verified.as_ref().ok().and_then(|event| event.key().map(str::to_owned));
        let kept = intake(&both).stored_headers(&headers, &body, key.as_deref());
        assert_eq!(kept.len(), 4 + usize::from(accepted), "{kept:?}");
        let again = intake(&both).open(&kept, &body);
        assert_eq!(again.map(|event| event.identity().clone()), verified.map(|event| event.identity().clone()));
    }
}

#[test]
fn a_sealed_delivery_needs_no_signature_and_nothing_of_it_can_be_changed() {
    let body = fixture("issue_comment_created");
    let signature = sha256(&body, SECRET);
    let headers = headers("issue_comment", "application/json", &[("x-hub-signature-256", &signature)]);
    let of = |secret: &str| intake(&GithubDoor { secret: Some(secret.into()), ..door() });
    let verified = of(SECRET).receive(&headers, &body).unwrap();
    let whole = of(SECRET).stored_headers(&headers, &body, verified.key());
    // Earlier versions stored no seal. They can read a delivery that has one.
    let without = |name: &str| whole.iter().filter(|(kept, _)| kept != name).cloned().collect::<Vec<_>>();
    assert!(of(SECRET).open(&without("tidelock-seal"), &body).is_ok());
    let mut unsigned = headers.clone();
    unsigned.remove("x-hub-signature-256");
    let sealed = of(SECRET).stored_headers(&unsigned, &body, verified.key());
    assert_eq!(of(SECRET).open(&sealed, &body).unwrap().identity(), verified.identity());
    let rotated = GithubDoor { secret: Some("the new one".into()), previous: Some(SECRET.into()), ..door() };
    assert_eq!(intake(&rotated).open(&sealed, &body).unwrap().key(), verified.key());
    let refused = |intake: Intake, headers: &[(String, String)], body: &[u8]| {
        assert_eq!(intake.open(headers, body).unwrap_err().status, 401, "{headers:?}");
    };
    refused(of("another"), &sealed, &body);
    refused(of(SECRET), &sealed, b"{}");
    refused(of(SECRET), &without("x-hub-signature-256")[..3], &body);
    let mut other_event = sealed.clone();
    other_event[0].1 = "pull_request".into();
    refused(of(SECRET), &other_event, &body);
    // Only the secret that proved the delivery can seal it.
    assert!(of(SECRET).stored_headers(&unsigned, &body, None).iter().all(|(name, _)| name != "tidelock-seal"));
}

fn door() -> GithubDoor {
    GithubDoor {
        secret: Some(SECRET.into()),
        previous: None,
        hostname: "github.example.com".into(),
        checks: KnownChecks::None,
    }
}

fn intake(door: &GithubDoor) -> Intake {
    Intake::new(vec![std::sync::Arc::new(door.clone())])
}

fn receive(headers: &HeaderMap, body: &[u8], door: &GithubDoor) -> Result<Verified<Event>, Rejection> {
    intake(door).receive(headers, body)
}

fn headers(event: &str, content_type: &str, more: &[(&str, &str)]) -> HeaderMap {
    let fixed = [("x-github-event", event), ("content-type", content_type), ("x-github-delivery", "72d3162e")];
    fixed
        .iter()
        .chain(more)
        .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap()))
        .collect()
}

fn sha256(body: &[u8], secret: &str) -> String {
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    format!("sha256={}", hex::encode(mac.finalize().into_bytes()))
}

fn sha1(body: &[u8], secret: &str) -> String {
    let mut mac = Hmac::<sha1::Sha1>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    format!("sha1={}", hex::encode(mac.finalize().into_bytes()))
}

fn signed(event: &str, body: &[u8]) -> Result<Verified<Event>, Rejection> {
    receive_at(&door(), event, body)
}

/// Receives a signed delivery at a door.
fn receive_at(door: &GithubDoor, event: &str, body: &[u8]) -> Result<Verified<Event>, Rejection> {
    receive(&headers(event, "application/json", &[("x-hub-signature-256", &sha256(body, SECRET))]), body, door)
}

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../../tests/fixtures/webhooks/github/{name}.json", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn pull(name: &str) -> PullEvent {
    match signed("pull_request", &fixture(name)).unwrap().into_inner() {
        Event::Pull(event) => event,
        other => panic!("{other:?}"),
    }
}

fn other(event: &str, name: &str) -> String {
    match signed(event, &fixture(name)).unwrap().into_inner() {
        Event::Other(text) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_opened_pull_request_is_read_whole() {
    let verified = signed("pull_request", &fixture("pull_request_opened")).unwrap();
    assert_eq!(verified.host_id(), "72d3162e");
    assert_eq!(
        verified.identity().as_str(),
        "github:github.example.com/acme/infra#7:opened:3f2c1ab0d9e77c41d2c5b6a7980f1e2d3c4b5a69:2026-04-01T10:05:00Z"
    );
    assert_debug_snapshot!(verified.get(), @r#"
    Pull(
        PullEvent {
            action: Opened,
            pull: Whole(
                PullRequest {
                    id: PullId {
                        repo: RepoId {
                            host: "github.example.com",
                            owner: "acme",
                            name: "infra",
                        },
                        number: 7,
                    },
                    title: "Open SSH through \"IAP\" — überall",
                    url: "https://github.example.com/acme/infra/pull/7",
                    author: "alice",
                    head: Head {
                        branch: "feature/ssh \"x\"",
                        commit: "3f2c1ab0d9e77c41d2c5b6a7980f1e2d3c4b5a69",
                        repo_owner: "acme",
                        repo_name: "infra",
                        clone_url: None,
                    },
                    base: Base {
                        branch: "main",
                        commit: "9d0e77cf2c1ab0d941d2c5b6a7980f1e2d3c4b5a",
                    },
                    draft: false,
                    state: Open,
                    fork: false,
                    labels: [
                        "no-autoplan",
                        "infra",
                    ],
                    repo_size_kib: Some(
                        2048,
                    ),
                    clone_url: "https://github.example.com/acme/infra.git",
                },
            ),
            sender: "bob",
            version: PullVersion(
                "2026-04-01T10:05:00Z",
            ),
        },
    )
    "#);
}

#[test]
fn actions_on_pull_requests_become_ours() {
    let pushed = pull("pull_request_synchronize_deleted_fork");
    assert_eq!((pushed.action, pushed.pull.is_draft(), pushed.pull.is_fork()), (PullAction::Pushed, true, true));
    assert_eq!(pushed.pull.whole().unwrap().head.repo_owner, "");
    let ready = pull("pull_request_ready_for_review_fork");
    assert_eq!((ready.action, ready.pull.is_fork()), (PullAction::Ready, true));
    let closed = pull("pull_request_closed_merged");
    assert_eq!((closed.action, closed.pull.is_open()), (PullAction::Closed { merged: true }, false));
}

#[test]
fn a_new_comment_on_a_pull_request_is_read() {
    let verified = signed("issue_comment", &fixture("issue_comment_created")).unwrap();
    assert_eq!(verified.identity().as_str(), "github:github.example.com/acme/infra:comment:501");
    let Event::Comment(comment) = verified.into_inner() else { panic!("no comment") };
    assert_eq!((comment.pull.number, comment.comment_id, comment.author.as_str()), (7, 501, "alice"));
    assert_eq!(comment.body, "atlantis plan -d \"a b\"\r\n");
    assert_eq!(comment.clone_url, "https://github.example.com/acme/infra.git");
}

#[test]
fn what_we_do_not_act_on_is_named_only() {
    assert_eq!(other("pull_request", "pull_request_labeled"), "pull_request labeled");
    assert_eq!(other("issue_comment", "issue_comment_edited"), "issue_comment edited");
    assert_eq!(other("issue_comment", "issue_comment_on_an_issue"), "issue_comment on an issue");
    assert_eq!(other("check_run", "ping"), "check_run");
    assert_eq!(signed("ping", &fixture("ping")).unwrap().get(), &Event::Ping);
    assert_eq!(
        signed("pull_request", br#"{"action":"locked"}"#).unwrap().get(),
        &Event::Other("pull_request locked".into())
    );
}

/// Event of a delivery about a check run of the App `app`, at a door whose App is 5.
fn of_check(event: &str, action: &str, app: u64, more: &str) -> Event {
    let door = GithubDoor { checks: KnownChecks::OfApp(5), ..door() };
    let sha = "a".repeat(40);
    let body = format!(
        r#"{{"action": "{action}", "sender": {{"login": "bob"}}, {more}
            "check_run": {{"name": "atlantis/plan: net", "head_sha": "{sha}", "external_id": "7:99", "app": {{"id": {app}}}}},
            "check_suite": {{"head_sha": "{sha}", "app": {{"id": {app}}}, "pull_requests": [{{"number": 8}}]}},
            "repository": {{"full_name": "acme/infra", "clone_url": "https://github.example.com/acme/infra.git"}}}}"#
    );
    receive_at(&door, event, body.as_bytes()).unwrap().get().clone()
}

#[test]
fn buttons_of_our_own_checks_are_commands_and_all_others_are_not() {
    let pressed = |word: &str| format!(r#""requested_action": {{"identifier": "{word}"}},"#);
    let Event::Check(event) = of_check("check_run", "requested_action", 5, &pressed("apply")) else { panic!() };
    assert_eq!((event.number, event.command, event.sender.as_str()), (Some(7), CommandName::Apply, "bob"));
    assert_eq!((event.check.as_deref(), event.head.as_str()), (Some("atlantis/plan: net"), &*"a".repeat(40)));
    let Event::Check(event) = of_check("check_run", "rerequested", 5, "") else { panic!() };
    assert_eq!((event.number, event.command), (Some(7), CommandName::Plan));
    let Event::Check(event) = of_check("check_suite", "rerequested", 5, "") else { panic!() };
    assert_eq!((event.number, event.command, event.check), (None, CommandName::Plan, None));
    let other = |name: &str| Event::Other(name.to_owned());
    for word in ["unlock", "force_unlock", "PLAN", " "] {
        assert_eq!(of_check("check_run", "requested_action", 5, &pressed(word)), other("check_run"), "{word}");
    }
    // The check run of another App, which chooses its name and external id.
    assert_eq!(of_check("check_run", "requested_action", 6, &pressed("apply")), other("check_run"));
    assert_eq!(of_check("check_run", "rerequested", 6, ""), other("check_run"));
    assert_eq!(of_check("check_run", "completed", 5, ""), other("check_run"));
    for (action, app) in [("completed", 6), ("rerequested", 6)] {
        assert!(matches!(of_check("check_suite", action, app, ""), Event::Verdict(_)), "{action} {app}");
    }
    // Our own suite says nothing of other tools, and one that has just begun neither.
    for (action, app) in [("completed", 5), ("requested", 5), ("requested", 6)] {
        assert_eq!(of_check("check_suite", action, app, ""), other("check_suite"), "{action} {app}");
    }
    // Without check runs of ours.
    assert_eq!(signed("check_run", br#"{"action": "rerequested"}"#).unwrap().get(), &other("check_run"));
}

#[test]
fn a_door_without_an_app_passes_presses_on() {
    let at = |event: &str, action: &str| {
        let door = GithubDoor { checks: KnownChecks::OfAll, ..door() };
        let sha = "a".repeat(40);
        let body = format!(
            r#"{{"action": "{action}", "sender": {{"login": "bob"}}, "requested_action": {{"identifier": "apply"}},
                "check_run": {{"name": "atlantis/plan: net", "head_sha": "{sha}", "app": {{"id": 6}}}},
                "check_suite": {{"head_sha": "{sha}", "app": {{"id": 6}}}},
                "repository": {{"full_name": "acme/infra", "clone_url": "https://github.example.com/acme/infra.git"}}}}"#
        );
        receive_at(&door, event, body.as_bytes()).unwrap().get().clone()
    };
    for (event, action) in
        [("check_run", "requested_action"), ("check_run", "rerequested"), ("check_suite", "rerequested")]
    {
        assert!(matches!(at(event, action), Event::Check(_)), "{event} {action}");
    }
    assert_eq!(at("check_run", "completed"), Event::Other("check_run".to_owned()));
    assert!(matches!(at("check_suite", "completed"), Event::Verdict(_)));
}

#[test]
fn a_press_is_known_by_its_body() {
    let door = GithubDoor { checks: KnownChecks::OfApp(5), ..door() };
    let identity = |at: &str| {
        let sha = "a".repeat(40);
        let body = format!(
            r#"{{"action": "rerequested", "sender": {{"login": "bob"}}, "check_run": {{"name": "x", "head_sha": "{sha}",
                "external_id": "7:99", "app": {{"id": 5}}, "check_suite": {{"updated_at": "{at}"}}}},
                "repository": {{"full_name": "acme/infra", "clone_url": "https://github.example.com/acme/infra.git"}}}}"#
        );
        receive_at(&door, "check_run", body.as_bytes()).unwrap().identity().clone()
    };
    assert_eq!(identity("1"), identity("1"));
    assert_ne!(identity("1"), identity("2"));
}

#[test]
fn a_push_names_its_branch() {
    let push = |reference: &str| {
        let repository = r#"{"full_name": "acme/infra", "clone_url": "https://github.example.com/acme/infra.git"}"#;
        let body = format!(r#"{{"ref": "{reference}", "after": "x", "repository": {repository}}}"#);
        signed("push", body.as_bytes()).unwrap().get().clone()
    };
    let repo = RepoId { host: "github.example.com".into(), owner: "acme".into(), name: "infra".into() };
    let branches = vec!["release/1.x".to_owned()];
    assert_eq!(push("refs/heads/release/1.x"), Event::Push(PushEvent { repo, branches }));
    for reference in ["refs/tags/v1", "main", ""] {
        assert_eq!(push(reference), Event::Other("push".into()), "{reference}");
    }
}

#[test]
fn what_people_and_checks_say_of_a_commit_is_a_hint() {
    let sha = "a".repeat(40);
    let hint = |event: &str, fields: String| {
        let repository = r#"{"full_name": "acme/infra", "clone_url": "https://github.example.com/acme/infra.git"}"#;
        signed(event, format!(r#"{{"repository": {repository}, {fields}}}"#).as_bytes()).unwrap().get().clone()
    };
    let repo = RepoId { host: "github.example.com".into(), owner: "acme".into(), name: "infra".into() };
    let commit = CommitSha::parse(&sha).ok();
    let of_commit = Event::Verdict(VerdictEvent { repo: repo.clone(), number: None, commit });
    let of_pull = Event::Verdict(VerdictEvent { repo, number: Some(7), commit: None });
    assert_eq!(hint("status", format!(r#""state": "success", "sha": "{sha}""#)), of_commit);
    assert_eq!(
        hint("check_suite", format!(r#""action": "completed", "check_suite": {{"head_sha": "{sha}"}}"#)),
        of_commit
    );
    assert_eq!(hint("pull_request_review", r#""action": "submitted", "pull_request": {"number": 7}"#.into()), of_pull);
    assert_eq!(hint("status", r#""sha": "main""#.into()), Event::Other("status".into()));
}

#[test]
fn a_delivery_is_known_by_what_is_signed() {
    let body = fixture("pull_request_opened");
    let tag = sha256(&body, SECRET);
    let with_id = |id: &str| {
        let mut headers = headers("pull_request", "application/json", &[("x-hub-signature-256", &tag)]);
        headers.insert("x-github-delivery", id.parse().unwrap());
        receive(&headers, &body, &door()).unwrap()
    };
    assert_eq!(with_id("a").identity(), with_id("b").identity());
    let ping = signed("ping", &fixture("ping")).unwrap();
    assert_eq!(ping.identity(), signed("ping", &fixture("ping")).unwrap().identity());
    assert_ne!(ping.identity(), signed("ping", b"{}").unwrap().identity());
}

#[test]
fn a_form_is_read_like_json() {
    let json = String::from_utf8(fixture("issue_comment_created")).unwrap();
    let body = url::form_urlencoded::Serializer::new(String::new()).append_pair("payload", &json).finish();
    let tag = sha256(body.as_bytes(), SECRET);
    let headers = headers("issue_comment", "application/x-www-form-urlencoded", &[("x-hub-signature-256", &tag)]);
    let from_form = receive(&headers, body.as_bytes(), &door()).unwrap();
    assert_eq!(from_form.get(), signed("issue_comment", json.as_bytes()).unwrap().get());
    let tag = sha256(b"a=b", SECRET);
    let headers = self::headers("issue_comment", "application/x-www-form-urlencoded", &[("x-hub-signature-256", &tag)]);
    assert_eq!(receive(&headers, b"a=b", &door()).unwrap_err().message, "The form has no payload");
}

#[test]
fn signatures_that_do_not_hold_are_refused() {
    let body = fixture("ping");
    let good = sha256(&body, SECRET);
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[], "not signed"),
        (&[("x-hub-signature-256", "")], "malformed"),
        (&[("x-hub-signature-256", &good[7..])], "malformed"),
        (&[("x-hub-signature-256", "sha256=zz")], "malformed"),
        (&[("x-hub-signature-256", "sha256=")], "wrong"),
        (&[("x-hub-signature-256", &good[..good.len() - 2])], "wrong"),
        (&[("x-hub-signature-256", &sha256(&body, "other"))], "wrong"),
        (&[("x-hub-signature", &sha1(&body, "other"))], "wrong"),
        (&[("x-hub-signature", &sha1(&body, SECRET)), ("x-hub-signature-256", "sha256=00")], "wrong"),
    ];
    for (signature, why) in cases {
        let rejection = receive(&headers("ping", "application/json", signature), &body, &door()).unwrap_err();
        assert_eq!(rejection.status, 401, "{signature:?}");
        assert!(rejection.message.contains(why) && !rejection.message.contains(SECRET), "{rejection:?}");
    }
    let old = headers("ping", "application/json", &[("x-hub-signature", &sha1(&body, SECRET))]);
    assert!(receive(&old, &body, &door()).is_ok());
    let mut tampered = body.clone();
    tampered.push(b' ');
    let headers = headers("ping", "application/json", &[("x-hub-signature-256", &good)]);
    assert_eq!(receive(&headers, &tampered, &door()).unwrap_err().status, 401);
}

#[test]
fn without_a_secret_unsigned_deliveries_are_taken() {
    let open = GithubDoor { secret: None, ..door() };
    let headers = headers("issue_comment", "application/json; charset=utf-8", &[]);
    assert!(matches!(receive(&headers, &fixture("issue_comment_created"), &open).unwrap().get(), Event::Comment(_)));
}

#[test]
fn deliveries_of_the_wrong_kind_are_refused() {
    let rejected = |headers: &HeaderMap, body: &[u8]| {
        let rejection = receive(headers, body, &door()).unwrap_err();
        (rejection.status, rejection.message)
    };
    assert_eq!(rejected(&headers("ping", "text/plain", &[]), b"{}").0, 415);
    let mut untyped = headers("ping", "text/plain", &[]);
    untyped.remove("content-type");
    assert_eq!(rejected(&untyped, b"{}").0, 415);
    assert_eq!(rejected(&headers("ping", "application/json", &[]), &vec![b' '; MAX_BODY + 1]).0, 413);
    assert_eq!(rejected(&HeaderMap::new(), b"{}").0, 400);
    let gitea = headers("push", "application/json", &[("x-gitea-event", "push")]);
    assert_eq!(rejected(&gitea, b"{}"), (400, "Gitea is not configured here".to_owned()));
    let forgejo = headers("push", "application/json", &[("x-forgejo-event", "push"), ("x-gitea-event", "push")]);
    assert_eq!(rejected(&forgejo, b"{}"), (400, "Forgejo is not configured here".to_owned()));
    let gitlab =
        HeaderMap::from_iter([(HeaderName::from_static("x-gitlab-event"), HeaderValue::from_static("Note Hook"))]);
    assert_eq!(rejected(&gitlab, b"{}"), (400, "GitLab is not configured here".to_owned()));
}

/// The payload with one value replaced, or removed.
fn changed(name: &str, pointer: &str, value: Option<serde_json::Value>) -> Vec<u8> {
    let mut payload: serde_json::Value = serde_json::from_slice(&fixture(name)).unwrap();
    match value {
        Some(value) => *payload.pointer_mut(pointer).unwrap() = value,
        None => {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            payload.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        }
    }
    serde_json::to_vec(&payload).unwrap()
}

#[test]
fn missing_fields_are_named() {
    let fields = [
        ("pull_request_opened", "pull_request", "/action"),
        ("pull_request_opened", "pull_request", "/number"),
        ("pull_request_opened", "pull_request", "/pull_request"),
        ("pull_request_opened", "pull_request", "/repository"),
        ("pull_request_opened", "pull_request", "/repository/full_name"),
        ("pull_request_opened", "pull_request", "/repository/clone_url"),
        ("pull_request_opened", "pull_request", "/pull_request/head"),
        ("pull_request_opened", "pull_request", "/pull_request/head/sha"),
        ("pull_request_opened", "pull_request", "/pull_request/head/ref"),
        ("pull_request_opened", "pull_request", "/pull_request/base/ref"),
        ("pull_request_opened", "pull_request", "/pull_request/user/login"),
        ("pull_request_opened", "pull_request", "/pull_request/updated_at"),
        ("pull_request_opened", "pull_request", "/sender/login"),
        ("issue_comment_created", "issue_comment", "/issue"),
        ("issue_comment_created", "issue_comment", "/issue/number"),
        ("issue_comment_created", "issue_comment", "/comment"),
        ("issue_comment_created", "issue_comment", "/comment/id"),
        ("issue_comment_created", "issue_comment", "/comment/user/login"),
    ];
    for (name, event, pointer) in fields {
        let rejection = signed(event, &changed(name, pointer, None)).unwrap_err();
        let field = pointer[1..].replace('/', ".");
        assert_eq!(rejection, Rejection { status: 400, message: format!("The payload has no {field}") });
    }
}

#[test]
fn values_that_could_lead_astray_are_refused() {
    let cases = [
        ("/repository/full_name", "acme"),
        ("/repository/full_name", "acme/infra/x"),
        ("/repository/full_name", "../infra"),
        ("/repository/full_name", "acme/.."),
        ("/repository/full_name", "-acme/infra"),
        ("/repository/clone_url", "https://evil.example.com/acme/infra.git"),
        ("/repository/clone_url", "https://github.example.com/acme/other.git"),
        ("/repository/clone_url", "https://x:y@github.example.com/acme/infra.git"),
        ("/repository/clone_url", "http://github.example.com/acme/infra.git"),
        ("/repository/clone_url", "file:///acme/infra.git"),
        ("/repository/clone_url", "--upload-pack=x"),
        ("/pull_request/head/sha", "--help"),
        ("/pull_request/head/sha", "3f2c1ab"),
        ("/pull_request/head/repo/full_name", "x"),
    ];
    for (pointer, value) in cases {
        let rejection =
            signed("pull_request", &changed("pull_request_opened", pointer, Some(value.into()))).unwrap_err();
        assert_eq!(rejection.status, 400, "{value}");
        assert!(rejection.message.contains(&pointer[1..].replace('/', ".")), "{rejection:?}");
    }
}

#[test]
fn a_local_forge_may_speak_plain_http() {
    let body =
        changed("issue_comment_created", "/repository/clone_url", Some("http://127.0.0.1:4000/acme/infra.git".into()));
    let local = GithubDoor { hostname: "127.0.0.1".into(), ..door() };
    let headers = headers("issue_comment", "application/json", &[("x-hub-signature-256", &sha256(&body, SECRET))]);
    assert!(receive(&headers, &body, &local).is_ok());
}

#[test]
fn json_that_is_broken_or_deep_is_refused() {
    let whole = fixture("pull_request_opened");
    let deep_object = format!("{}1{}", r#"{"pull_request":"#.repeat(100_000), "}".repeat(100_000));
    let unclosed = format!(r#"{{"action":"opened","x":{}"#, "[".repeat(1_000_000));
    let cases: &[&[u8]] = &[
        b"",
        b"{",
        b"[]",
        b"null",
        b"{\"action\":1}",
        &whole[..whole.len() / 2],
        deep_object.as_bytes(),
        unclosed.as_bytes(),
    ];
    for case in cases {
        let rejection = signed("pull_request", case).unwrap_err();
        assert_eq!(rejection.status, 400);
        assert!(rejection.message.len() < 300, "{rejection:?}");
    }
}

proptest! {
    #[test]
    fn no_body_makes_it_panic(body in prop::collection::vec(any::<u8>(), 0..200), event in prop_oneof!["pull_request", "issue_comment", "push", "ping"]) {
        _ = signed(&event, &body);
    }

    #[test]
    fn no_cut_or_changed_payload_makes_it_panic(at in 0usize..5000, byte in any::<u8>(), cut in any::<bool>()) {
        let mut body = fixture("pull_request_opened");
        let at = at.min(body.len() - 1);
        body[at] = byte;
        if cut { body.truncate(at); }
        _ = signed("pull_request", &body);
    }
}
