//! Comments, replies, tasks and activities, each with versions.

use super::{API, DataCenterForge, error};
use http::Method;
use serde_json::{Value, json};

const ALL: &str = "/pull-requests/1/comments";

/// Action, and text of the comment, of each activity.
fn actions(page: &Value) -> Vec<(&str, &str)> {
    let rows = page["values"].as_array().unwrap().iter();
    rows.map(|row| (row["action"].as_str().unwrap(), row["comment"]["text"].as_str().unwrap_or_default())).collect()
}

#[tokio::test]
async fn a_change_names_the_version() {
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    let before = host.get("/pull-requests/1").await;
    let (status, own) = host.ask(Method::POST, ALL, json!({"text": "Planned.\n\n<details>x</details>"})).await;
    assert_eq!((status, &own["version"], &own["author"]["name"]), (201, &json!(0), &json!("tidelock-bot")));
    assert_eq!((&own["severity"], &own["state"]), (&json!("NORMAL"), &json!("OPEN")));
    let after = host.get("/pull-requests/1").await;
    assert_eq!((&before["updatedDate"], &before["version"]), (&after["updatedDate"], &after["version"]), "no change");
    assert_eq!(after["properties"]["commentCount"], 1);
    let path = format!("{ALL}/{}", own["id"]);
    let text = "You are attempting to modify a comment based on out-of-date information.";
    for (body, expected) in [(json!({"text": "x"}), -1), (json!({"text": "x", "version": 7}), 7)] {
        let (status, told) = host.ask(Method::PUT, &path, body).await;
        assert_eq!((status, error(&told)), (409, (text, "CommentOutOfDateException")));
        let known = &told["errors"][0];
        assert_eq!((&known["currentVersion"], &known["expectedVersion"]), (&json!(0), &json!(expected)));
    }
    let (status, edited) = host.ask(Method::PUT, &path, json!({"text": "Planned again.", "version": 0})).await;
    assert_eq!((status, &edited["version"], &edited["text"]), (200, &json!(1), &json!("Planned again.")));
    let theirs = pull.comment("bob", "atlantis plan").unwrap();
    let theirs = format!("{ALL}/{theirs}");
    let refused = host.ask(Method::PUT, &theirs, json!({"text": "atlantis apply", "version": 0})).await;
    assert_eq!((refused.0, error(&refused.1).1), (401, "AuthorisationException"), "another's text");
    let folded = host.ask(Method::PUT, &theirs, json!({"threadResolved": true, "version": 0})).await;
    assert_eq!((folded.0, &folded.1["threadResolved"], &folded.1["version"]), (200, &json!(true), &json!(1)));
    assert!(pull.comments().unwrap()[1].hidden);
    assert_eq!(host.ask_as("carol", Method::PUT, &path, json!({"threadResolved": true, "version": 1})).await.0, 401);
    for (login, version, wanted) in
        [("dave", "?version=1", 401), ("tidelock-bot", "", 409), ("tidelock-bot", "?version=0", 409)]
    {
        let told = host.ask_as(login, Method::DELETE, &format!("{path}{version}"), Value::Null).await;
        assert_eq!(told.0, wanted, "{login} {version}: {}", told.1);
    }
    assert_eq!(host.ask(Method::DELETE, &format!("{path}?version=1"), Value::Null).await.0, 204);
    let gone = host.ask(Method::GET, &path, Value::Null).await;
    assert_eq!((gone.0, error(&gone.1).1), (404, "NoSuchCommentException"));
    assert_eq!(host.ask(Method::DELETE, &format!("{theirs}?version=1"), Value::Null).await.0, 204, "an administrator");
}

#[tokio::test]
async fn a_text_has_a_length() {
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    let post = async |text: Value| host.ask(Method::POST, ALL, json!({"text": text})).await;
    assert_eq!(post(json!("ä".repeat(32_768))).await.0, 201);
    for text in [json!("ä".repeat(32_769)), json!(""), json!(" \n"), Value::Null, json!(7)] {
        let (status, told) = post(text).await;
        assert_eq!((status, &told["errors"][0]["context"]), (400, &json!("text")));
    }
    assert!(pull.comment("bob", &"x".repeat(32_769)).is_err());
    let (status, _) = host.ask(Method::POST, "/pull-requests/9/comments", json!({"text": "x"})).await;
    assert_eq!(status, 404);
    let (status, told) = host.ask(Method::GET, ALL, Value::Null).await;
    assert_eq!((status, &told["errors"][0]["context"]), (400, &json!("path")), "there is no list of all");
    pull.close().unwrap();
    assert_eq!(post(json!("also when declined")).await.0, 201);
}

#[tokio::test]
async fn activities_are_the_list_of_comments() {
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    let first = pull.comment("bob", "one").unwrap();
    let reply = pull.reply("carol", first, "atlantis apply").unwrap();
    let deeper = pull.reply("bob", reply, "two").unwrap();
    let gone = pull.comment("bob", "gone").unwrap();
    pull.delete_comment("bob", gone).unwrap();
    let inline = pull.comment_on_line("dave", "main.tf", 1, "here").unwrap();
    pull.push(&[("main.tf", Some("a = 3\n"))]).await.unwrap();
    pull.approve("bob").unwrap();
    let page = host.get("/pull-requests/1/activities").await;
    let expected = [("APPROVED", ""), ("RESCOPED", ""), ("COMMENTED", "here"), ("COMMENTED", "one"), ("OPENED", "")];
    assert_eq!(actions(&page), expected, "the latest first");
    let shown = &page["values"][3]["comment"];
    assert_eq!(
        (&shown["comments"][0]["id"], &shown["comments"][0]["comments"][0]["id"]),
        (&json!(reply), &json!(deeper))
    );
    assert_eq!(
        (&page["values"][2]["commentAnchor"]["path"], &page["values"][2]["commentAction"]),
        (&json!("main.tf"), &json!("ADDED"))
    );
    let part = host.get("/pull-requests/1/activities?start=2&limit=2").await;
    assert_eq!(actions(&part), expected[2..4]);
    assert_eq!((&part["isLastPage"], &part["nextPageStart"]), (&json!(false), &json!(4)));
    let of_file = host.get(&format!("{ALL}?path=main.tf")).await;
    assert_eq!((&of_file["size"], &of_file["values"][0]["id"]), (&json!(1), &json!(inline)));
    let refused = host.ask(Method::DELETE, &format!("{ALL}/{first}?version=0"), Value::Null).await;
    let text = "This comment has replies which must be deleted first.";
    assert_eq!((refused.0, error(&refused.1)), (409, (text, "CommentDeletionException")));
    assert_eq!(host.ask(Method::DELETE, &format!("{ALL}/{deeper}?version=0"), Value::Null).await.0, 204);
    assert_eq!(host.ask(Method::DELETE, &format!("{ALL}/{reply}?version=0"), Value::Null).await.0, 204);
    assert_eq!(host.ask(Method::DELETE, &format!("{ALL}/{first}?version=0"), Value::Null).await.0, 204);
    let answer = host.ask(Method::POST, ALL, json!({"text": "x", "parent": {"id": first}})).await;
    assert_eq!(answer.0, 404, "its parent is gone");
    let (status, told) = host.ask(Method::POST, ALL, json!({"text": "Why?", "parent": {"id": inline}})).await;
    assert_eq!(status, 201, "{told}");
    assert_eq!(host.get(&format!("{ALL}/{inline}")).await["comments"][0]["id"], told["id"]);
}

#[tokio::test]
async fn tasks_are_comments_of_another_severity() {
    let host = DataCenterForge::new().await;
    host.pull().await;
    let (status, task) = host.ask(Method::POST, ALL, json!({"text": "Do it.", "severity": "BLOCKER"})).await;
    assert_eq!((status, &task["severity"], &task["state"]), (201, &json!("BLOCKER"), &json!("OPEN")));
    assert_eq!(host.get("/pull-requests/1").await["properties"]["openTaskCount"], 1);
    let own = format!("{ALL}/{}", task["id"]);
    assert_eq!(host.ask(Method::PUT, &own, json!({"state": "DONE", "version": 0})).await.0, 400);
    let (status, done) = host.ask(Method::PUT, &own, json!({"state": "RESOLVED", "version": 0})).await;
    assert_eq!((status, &done["state"], &done["version"]), (200, &json!("RESOLVED"), &json!(1)));
    let counts = host.get("/pull-requests/1").await["properties"].clone();
    assert_eq!((&counts["openTaskCount"], &counts["resolvedTaskCount"]), (&json!(0), &json!(1)));
}

#[tokio::test]
async fn people_react_by_emoticons() {
    let host = DataCenterForge::new().await;
    let pull = host.pull().await;
    let id = pull.comment("bob", "atlantis plan").unwrap();
    let path = |emoticon: &str| {
        let base = API.replace("/api/", "/comment-likes/");
        format!("{base}/projects/ACME/repos/infra/pull-requests/1/comments/{id}/reactions/{emoticon}")
    };
    let put = async |emoticon: &str| host.request(Method::PUT, &path(emoticon), "tidelock-bot", Value::Null).await;
    let told = put("eyes").await;
    assert_eq!((told.status, &told.body["emoticon"]["shortcut"]), (200, &json!("eyes")));
    assert_eq!(put("eyes").await.status, 200, "once");
    assert_eq!(pull.reactions(id).unwrap(), [("tidelock-bot".to_owned(), "eyes".to_owned())]);
    assert_eq!(put("%F0%9F%91%8D").await.status, 400, "a name");
    let shown = host.get(&format!("{ALL}/{id}")).await;
    assert_eq!(shown["properties"]["reactions"][0]["users"][0]["name"], "tidelock-bot");
    assert_eq!(host.request(Method::DELETE, &path("eyes"), "tidelock-bot", Value::Null).await.status, 204);
    assert!(pull.reactions(id).unwrap().is_empty());
}
