use super::*;
use crate::webhook::{Intake, Verified};
use serde_json::json;
use std::sync::Arc;
use tidelock_core::domain::{PullRequest, PullVersion};

const PASSWORD: &str = "a password that is long enough";
const HEAD: &str = "4444eeee455ff5aaaaabb66ccccccccc7777cccc";
const BASE: &str = "5555ffff566aa6bbbbbcc77ddddddd888888dddd";

fn door() -> AzureDevOpsDoor {
    AzureDevOpsDoor {
        address: AzureDevOpsAddress::new("dev.azure.com", "https://dev.azure.com"),
        user: "tidelock".into(),
        password: Some(PASSWORD.into()),
        previous: None,
    }
}

fn intake() -> Intake {
    Intake::new(vec![Arc::new(door())])
}

fn headers(user: &str, password: &str) -> HeaderMap {
    let proof = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    let pairs = [
        ("content-type", "application/json; charset=utf-8".to_owned()),
        ("x-vss-activityid", "9f2c7c8e".to_owned()),
        ("authorization", format!("Basic {proof}")),
    ];
    pairs.into_iter().map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())).collect()
}

/// A pull request of the documented events, with the addresses of an organization with a former host name.
fn pull() -> Value {
    json!({
        "repository": {
            "id": "c2c2", "name": "live",
            "url": "https://acme.visualstudio.com/DefaultCollection/_apis/git/repositories/c2c2",
            "project": {"id": "d3d3", "name": "Cloud Infra", "state": "wellFormed", "visibility": "unchanged"},
            "defaultBranch": "refs/heads/main",
            "remoteUrl": "https://acme.visualstudio.com/DefaultCollection/Cloud%20Infra/_git/live"
        },
        "pullRequestId": 7, "status": "active", "isDraft": false,
        "createdBy": {"displayName": "Ann", "id": "11bb", "uniqueName": "ann@example.com"},
        "creationDate": "2026-11-17T11:22:33.456789Z", "title": "A topic",
        "sourceRefName": "refs/heads/feature/50%+more&#1", "targetRefName": "refs/heads/main",
        "mergeStatus": "succeeded",
        "lastMergeSourceCommit": {"commitId": HEAD}, "lastMergeTargetCommit": {"commitId": BASE},
        "lastMergeCommit": {"commitId": "6666aaaa677bb7cccccdd88eeeeeee999999eeee"},
        "reviewers": [{"vote": 0, "uniqueName": "vstfs:///x\\Team", "id": "22cc", "isContainer": true}],
        "url": "https://acme.visualstudio.com/DefaultCollection/_apis/git/repositories/c2c2/pullRequests/7"
    })
}

fn event(kind: &str, id: &str, resource: Value) -> Value {
    json!({
        "subscriptionId": "aaaa", "notificationId": 1, "id": id, "eventType": kind, "publisherId": "tfs",
        "message": {"text": "Ann did something"}, "resource": resource, "resourceVersion": "1.0",
        "resourceContainers": {"collection": {"id": "b1b1"}, "account": {"id": "bbbb"}, "project": {"id": "00aa"}},
        "createdDate": "2026-11-17T11:22:34Z"
    })
}

fn comment() -> Value {
    json!({
        "comment": {
            "id": 2, "parentCommentId": 1, "commentType": "text",
            "author": {"displayName": "Bob", "id": "33dd", "uniqueName": "bob@example.com"},
            "content": "atlantis plan -- -var 'a=\"<b> & c\"'",
            "publishedDate": "2026-11-17T11:30:00.32Z", "lastUpdatedDate": "2026-11-17T11:30:00.32Z",
            "lastContentUpdatedDate": "2026-11-17T11:30:00.32Z",
            "_links": {
                "self": {"href": "https://acme.visualstudio.com/_apis/git/repositories/c2c2/pullRequests/7/threads/5/comments/2"},
                "threads": {"href": "https://acme.visualstudio.com/_apis/git/repositories/c2c2/pullRequests/7/threads/5"}
            }
        },
        "pullRequest": pull()
    })
}

fn commented(resource: Value) -> Value {
    event("ms.vss-code.git-pullrequest-comment-event", "e1", resource)
}

fn receive(body: &Value) -> Verified<Event> {
    intake().receive(&headers("tidelock", PASSWORD), body.to_string().as_bytes()).unwrap()
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

/// The payload with one value replaced; the place is a JSON pointer.
fn with(mut body: Value, place: &str, value: Value) -> Value {
    *body.pointer_mut(place).unwrap_or_else(|| panic!("{place}")) = value;
    body
}

#[test]
fn a_new_pull_request_is_read_and_the_old_host_name_is_the_new_one() {
    let read = pull_event(&event("git.pullrequest.created", "e1", pull()));
    assert_eq!(read.action, PullAction::Opened);
    let PullRequest { id, url, clone_url, author, head, base, draft, fork, .. } = read.pull.whole().unwrap().clone();
    assert_eq!(id.to_string(), "dev.azure.com/acme/Cloud Infra/live#7");
    assert_eq!(clone_url, "https://dev.azure.com/acme/Cloud%20Infra/_git/live");
    assert_eq!(url, format!("{clone_url}/pullrequest/7"));
    assert_eq!((author.as_str(), draft, fork), ("ann@example.com", false, false));
    assert_eq!((head.branch.as_str(), head.commit.as_str()), ("feature/50%+more&#1", HEAD));
    assert_eq!((base.branch.as_str(), base.commit.as_str()), ("main", BASE));
    assert_eq!(read.version, PullVersion::new(format!("{HEAD} active main")));
    let renamed =
        with(pull(), "/repository/remoteUrl", json!("https://acme@dev.azure.com/acme/Cloud%20Infra/_git/live"));
    assert_eq!(pull_event(&event("git.pullrequest.created", "e1", renamed)).pull.id(), &id);
}

/// Names of organizations are case-insensitive; addresses have them as somebody typed them.
#[test]
fn an_organization_is_the_same_in_every_form_and_every_case() {
    let ids = ["https://Acme.visualstudio.com/x", "https://dev.azure.com/Acme/x", "https://me@dev.azure.com/ACME/x"]
        .map(|to| {
            let named = with(pull(), "/repository/remoteUrl", json!(to));
            pull_event(&event("git.pullrequest.created", "e1", named)).pull.id().to_string()
        });
    assert_eq!(ids, ["dev.azure.com/acme/Cloud Infra/live#7"; 3].map(str::to_owned));
}

#[test]
fn the_author_of_a_comment_is_its_own_and_its_text_is_as_it_was_typed() {
    let verified = receive(&commented(comment()));
    assert_eq!(verified.identity().as_str(), "azuredevops:dev.azure.com/acme/Cloud Infra/live#7:comment:327682");
    let Event::Comment(read) = verified.into_inner() else { panic!() };
    assert_eq!(read.author, "bob@example.com", "and not the pull request's");
    assert_eq!(read.body, "atlantis plan -- -var 'a=\"<b> & c\"'");
    assert_eq!((read.comment_id, read.pull.number), ((5 << 16) + 2, 7));
}

#[test]
fn an_edited_comment_and_one_that_nobody_wrote_run_nothing() {
    let edited = with(comment(), "/comment/lastContentUpdatedDate", json!("2026-11-17T16:58:33.12Z"));
    assert!(ignored(&commented(edited)).contains("was edited"));
    let system = with(comment(), "/comment/commentType", json!("system"));
    assert!(ignored(&commented(system)).contains("nobody wrote"));
    // Only the text counts: a like is no edit.
    let liked = with(comment(), "/comment/lastUpdatedDate", json!("2026-11-17T16:58:33.12Z"));
    assert!(matches!(receive(&commented(liked)).get(), Event::Comment(_)));
}

#[test]
fn an_update_is_told_as_such_whatever_the_title_says_and_a_closing_is_one_in_both_events() {
    let voted = with(pull(), "/title", json!("approved pull request: voted, reviewer list"));
    let updated = pull_event(&event("git.pullrequest.updated", "e1", voted));
    assert_eq!((updated.action, updated.sender), (PullAction::Updated, Login::unknown()), "and not its author");
    assert_eq!(pull_event(&event("git.pullrequest.merged", "e1", pull())).action, PullAction::Updated);
    let mut closed = with(pull(), "/status", json!("completed"));
    closed["closedDate"] = json!("2026-11-17T12:00:00Z");
    let both =
        ["updated", "merged"].map(|kind| receive(&event(&format!("git.pullrequest.{kind}"), kind, closed.clone())));
    assert_eq!(both[0].identity(), both[1].identity());
    let Event::Pull(read) = both[0].get() else { panic!() };
    let commit = Some("6666aaaa677bb7cccccdd88eeeeeee999999eeee".into());
    assert_eq!((read.action, read.pull.state()), (PullAction::Closed { merged: true }, &PullState::Merged { commit }));
    let abandoned = with(pull(), "/status", json!("abandoned"));
    let read = pull_event(&event("git.pullrequest.updated", "e1", abandoned));
    assert_eq!(read.action, PullAction::Closed { merged: false });
}

#[test]
fn a_delivery_that_comes_again_is_known_and_another_one_is_not() {
    let identity = |kind: &str, id: &str, pull: Value| receive(&event(kind, id, pull)).identity().to_owned();
    let updated = "git.pullrequest.updated";
    assert_eq!(identity(updated, "e1", pull()), identity(updated, "e1", pull()));
    // Closed and reopened without a push: only the events differ.
    assert_ne!(identity(updated, "e1", pull()), identity(updated, "e2", pull()));
    // A pull request is created once, independent of the event's id.
    let created = "git.pullrequest.created";
    assert_eq!(identity(created, "e1", pull()), identity(created, "e2", pull()));
}

#[test]
fn only_the_configured_user_and_password_open_the_door() {
    let body = commented(comment()).to_string();
    let status = |headers: &HeaderMap| intake().receive(headers, body.as_bytes()).map_err(|wrong| wrong.status).err();
    assert_eq!(status(&headers("tidelock", PASSWORD)), None);
    for (user, password) in [("tidelock", "guess"), ("other", PASSWORD), ("", PASSWORD), ("tidelock", "")] {
        assert_eq!(status(&headers(user, password)), Some(401), "{user}:{password}");
    }
    for value in ["", "Bearer x", "Basic", "Basic %%%", "Basic bm9jb2xvbg=="] {
        let mut headers = headers("tidelock", PASSWORD);
        headers.insert("authorization", value.parse().unwrap());
        assert_eq!(status(&headers), Some(401), "{value}");
    }
    // Wrong passwords of others, who send from the same addresses, do not lock it out.
    assert!(intake().is_signed(&headers("tidelock", PASSWORD)));
    assert!(!intake().is_signed(&HeaderMap::from_iter([("request-id".parse().unwrap(), "1".parse().unwrap())])));
}

#[test]
fn the_password_before_opens_the_door_while_it_is_being_changed() {
    const BEFORE: &str = "the password that was there before";
    let door = AzureDevOpsDoor { previous: Some(BEFORE.into()), ..door() };
    let verified = |password: &str| door.verify(&headers("tidelock", password), b"").ok();
    assert_eq!((verified(PASSWORD), verified(BEFORE)), (Some(Signed::Present), Some(Signed::Previous)));
    assert_eq!(verified("a password that is a guess"), None);
    assert!(door.verify(&headers("other", BEFORE), b"").is_err());
    assert_eq!(door.secrets().len(), 2, "what either has sealed can be opened");
    let alone = AzureDevOpsDoor { password: None, ..door };
    assert!(alone.secrets().is_empty());
}

#[test]
fn what_is_stored_has_no_password_and_opens_without_it() {
    let (headers, body) = (headers("tidelock", PASSWORD), commented(comment()).to_string());
    let verified = intake().receive(&headers, body.as_bytes()).unwrap();
    let stored = intake().stored_headers(&headers, body.as_bytes(), verified.key());
    let names: Vec<&str> = stored.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x-vss-activityid", "tidelock-seal"]);
    assert_eq!(intake().open(&stored, body.as_bytes()).unwrap().identity(), verified.identity());
    assert_eq!(intake().open(&stored, b"{}").unwrap_err().status, 401);
}

#[test]
fn a_delivery_of_another_host_is_left_to_its_own_door() {
    let mut github = headers("tidelock", PASSWORD);
    assert!(door().claims(&github));
    github.insert("x-github-event", "ping".parse().unwrap());
    assert!(!door().claims(&github), "although a proxy adds a request id");
    assert!(!door().claims(&HeaderMap::new()));
    for header in OURS {
        let headers = HeaderMap::from_iter([(header.parse::<http::HeaderName>().unwrap(), "1".parse().unwrap())]);
        assert!(door().claims(&headers), "{header}");
    }
}

fn pushed() -> Value {
    let updates = json!([{"name": "refs/heads/main"}, {"name": "refs/tags/v1"}, {"name": "refs/heads/next"}]);
    event("git.push", "e1", json!({"refUpdates": updates, "repository": pull()["repository"]}))
}

#[test]
fn a_push_names_its_branches() {
    let body = pushed().to_string();
    let read = intake().receive(&headers("tidelock", PASSWORD), body.as_bytes()).unwrap().into_inner();
    let Event::Push(push) = read else { panic!("{read:?}") };
    let created = event("git.pullrequest.created", "e1", pull()).to_string();
    let created = intake().receive(&headers("tidelock", PASSWORD), created.as_bytes()).unwrap().into_inner();
    assert_eq!(Some(&push.repo), created.pull_id().map(|pull| &pull.repo));
    assert_eq!(push.branches, ["main", "next"]);
}

#[test]
fn what_is_not_for_us_is_taken_and_ignored() {
    assert!(ignored(&event("git.push", "e1", json!({}))).contains("git.push"));
    assert!(ignored(&json!({})).contains("an event"));
    let elsewhere = with(pull(), "/repository/remoteUrl", json!("https://evil.example/acme/x/_git/live"));
    let elsewhere = with(elsewhere, "/repository/url", json!("https://evil.example/acme"));
    assert!(ignored(&event("git.pullrequest.created", "e1", elsewhere)).contains("--azuredevops-hostname"));
    let unmerged = with(pull(), "/lastMergeSourceCommit", Value::Null);
    assert!(ignored(&event("git.pullrequest.updated", "e1", unmerged)).contains("lastMergeSourceCommit"));
    let odd = with(pull(), "/repository/name", json!("../../x"));
    assert!(ignored(&event("git.pullrequest.created", "e1", odd)).contains("a name that no repository can have"));
}

/// Removes every value of a payload in turn. No delivery is refused, as a subscription may leave out fields.
#[test]
fn no_missing_field_is_answered_with_an_error() {
    fn places(value: &Value, at: &str, into: &mut Vec<String>) {
        into.push(at.to_owned());
        match value {
            Value::Object(fields) => fields.iter().for_each(|(key, value)| places(value, &format!("{at}/{key}"), into)),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(n, one)| places(one, &format!("{at}/{n}"), into))
            }
            _ => {}
        }
    }
    let wholes = [event("git.pullrequest.created", "e1", pull()), commented(comment()), pushed()];
    for whole in wholes {
        let mut all = Vec::new();
        places(&whole, "", &mut all);
        assert!(all.len() > 20);
        for place in all {
            for value in [Value::Null, json!([]), json!("x"), json!(-1)] {
                let body = with(whole.clone(), &place, value).to_string();
                let read = intake().receive(&headers("tidelock", PASSWORD), body.as_bytes());
                assert!(read.is_ok(), "{place}: {:?}", read.err());
            }
        }
    }
}
