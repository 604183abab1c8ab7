//! `/api/plan` and `/api/apply` through the front door: the same commands, requirements, locks and records as by comment, for a program.

use crate::support::*;
use serde_json::{Value, json};
use tidelock_forge::Pull;

const TOKEN: (&str, &str) = ("X-Atlantis-Token", "s3cret-of-the-api");

fn quick() -> Setup {
    let setup =
        Setup::projects(&["net", "db"]).steps(&[PLANNED], &["echo $PROJECT_NAME $DIR >> {tmp}/applied; echo applied"]);
    setup.flags(&["--api-secret=s3cret-of-the-api", "--disable-autoplan"])
}

async fn post(ctx: &Ctx, path: &str, headers: &[(&str, &str)], body: String) -> (u16, String) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = client.post(format!("{}{path}", ctx.server.url())).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

pub(crate) async fn call(ctx: &Ctx, path: &str, body: &Value) -> (u16, Value) {
    let (status, text) = post(ctx, path, &[TOKEN], body.to_string()).await;
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {status} {text}")))
}

pub(crate) fn request(pull: &Pull, more: Value) -> Value {
    let mut body = json!({"Repository": "acme/infra", "Ref": "first", "Type": "Github", "PR": pull.number()});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[test]
fn a_program_plans_and_applies_as_by_comment_and_the_pull_request_is_told() {
    run_test(quick(), async |ctx| {
        let pull = ctx.open_dirs("first", &["net", "db"]).await;
        let (status, answer) =
            call(ctx, "/api/plan", &request(&pull, json!({"Paths": [{"Directory": "net", "Workspace": "default"}]})))
                .await;
        ctx.next(&pull).await.is("plan", "success").has("net");
        assert_eq!((status, &answer["Error"]), (200, &Value::Null), "{answer:#}");
        let [result] = answer["ProjectResults"].as_array().unwrap().as_slice() else { panic!("{answer:#}") };
        assert_eq!(
            json!([result["Command"], result["RepoRelDir"], result["Workspace"], result["Failure"]]),
            json!([1, "net", "default", ""])
        );
        let success = &result["PlanSuccess"];
        assert!(success["TerraformOutput"].as_str().unwrap().contains("1 to add"), "{answer:#}");
        assert_eq!(success["ApplyCmd"], "atlantis apply -d net");
        assert!(success["LockURL"].as_str().unwrap().starts_with("http://tidelock.test/lock?id="), "{answer:#}");
        assert_eq!(ctx.locks().await, ["acme/infra/net/default/"], "a plan locks its project, and the lock stays");
        let run = ctx.json(&format!("/api/runs/{}", answer["Runs"][0].as_str().unwrap())).await;
        assert_eq!(json!([run["trigger"], run["user"], run["command"]]), json!(["api", "api", "plan"]));

        let both = json!({"paths": [{"directory": "net"}, {"directory": "db"}]});
        let (status, answer) = call(ctx, "/api/apply", &request(&pull, both)).await;
        for _ in 0..2 {
            ctx.next(&pull).await.is("plan", "success");
        }
        for _ in 0..2 {
            ctx.next(&pull).await.is("apply", "success");
        }
        assert_eq!(status, 200, "{answer:#}");
        let commands: Vec<_> =
            answer["ProjectResults"].as_array().unwrap().iter().map(|r| r["Command"].clone()).collect();
        assert_eq!(commands, [1, 1, 0, 0], "{answer:#}");
        assert!(answer["ProjectResults"][2]["ApplySuccess"].as_str().unwrap().contains("applied"), "{answer:#}");
        assert_eq!(ctx.lines("applied"), 2);
        ctx.status(&pull, "atlantis/apply", "success", "").await;
    });
}

#[test]
fn a_program_selects_projects_by_tags_and_leaves_some_out() {
    let listed = "version: 3\nprojects:\n- {name: net, dir: net, tags: [prod]}\n- {name: db, dir: db, tags: [prod, slow]}\n\
                  - {name: web, dir: web}\n";
    let setup = Setup::projects(&["net", "db", "web"]).file("atlantis.yaml", listed);
    let setup = setup.steps(&[PLANNED], &["echo $PROJECT_NAME >> {tmp}/applied; echo applied"]);
    let setup = setup.flags(&["--api-secret=s3cret-of-the-api", "--disable-autoplan"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("first", &["net", "db", "web"]).await;
        let names = |answer: &Value| {
            let results = answer["ProjectResults"].as_array().unwrap();
            let mut names: Vec<String> = results
                .iter()
                .map(|result| format!("{}/{}", result["Command"], result["ProjectName"].as_str().unwrap()))
                .collect();
            names.sort();
            names
        };
        let (status, answer) = call(ctx, "/api/plan", &request(&pull, json!({"tag": "prod"}))).await;
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!((status, names(&answer)), (200, vec!["1/db".to_owned(), "1/net".to_owned()]), "{answer:#}");
        let but_db = json!({"Tag": "prod", "Except": ["db"]});
        let (status, answer) = call(ctx, "/api/apply", &request(&pull, but_db)).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.next(&pull).await.is("apply", "success");
        assert_eq!((status, names(&answer)), (200, vec!["0/net".to_owned(), "1/net".to_owned()]), "{answer:#}");
        assert_eq!(ctx.lines("applied"), 1);
        let globs = json!({"Projects": ["*"], "Except": ["w*"]});
        let (status, answer) = call(ctx, "/api/plan", &request(&pull, globs)).await;
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!((status, names(&answer)), (200, vec!["1/db".to_owned(), "1/net".to_owned()]), "{answer:#}");
        let (status, answer) = call(ctx, "/api/plan", &request(&pull, json!({"Tag": "typo"}))).await;
        ctx.next(&pull).await.has("No project has the tag `typo`");
        assert!(status == 500 && answer["ProjectResults"] == json!([]), "{status} {answer:#}");
    });
}

#[test]
fn requirements_locks_and_failed_plans_stop_an_apply() {
    let rules = workflow("apply_requirements: [approved]", &["[ $DIR != bad ]", PLANNED], &["echo x >> {tmp}/applied"]);
    run_test(quick().repos_yaml(&rules), async |ctx| {
        let first = ctx.open_dirs("first", &["net"]).await;
        let net = json!({"Paths": [{"directory": "net"}]});
        let (status, answer) = call(ctx, "/api/apply", &request(&first, net.clone())).await;
        ctx.next(&first).await.is("plan", "success");
        ctx.next(&first).await.is("apply", "failure").because("requirement");
        assert_eq!(status, 500, "{answer:#}");
        assert!(answer["ProjectResults"][1]["Failure"].as_str().unwrap().contains("requirement"), "{answer:#}");
        let second = ctx.open_as("bob", "second", &[("net/main.tf", &terraform("net", "3"))], Default::default()).await;
        let (status, answer) = call(ctx, "/api/plan", &{
            let mut body = request(&second, net);
            body["Ref"] = json!("second");
            body
        })
        .await;
        ctx.next(&second).await.is("plan", "failure").because("locked");
        assert_eq!(status, 500, "{answer:#}");
        assert_eq!(answer["ProjectResults"][0]["Failure"], "locked, pull request 1", "{answer:#}");
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn what_cannot_be_meant_is_refused_and_leaves_nothing() {
    run_test(quick(), async |ctx| {
        let pull = ctx.open_dirs("first", &["net"]).await;
        let net = json!({"Paths": [{"directory": "net"}]});
        let with = |key: &str, value: Value| {
            let mut body = request(&pull, net.clone());
            body[key] = value;
            body
        };
        for (body, status, said) in [
            (with("Paths", json!([])), 400, "Projects and Paths are empty"),
            (with("Tag", json!("a and")), 400, "--tag"),
            (with("Tag", json!("")), 400, "--tag QUERY has an empty value"),
            (with("Except", json!(["net/../db"])), 400, "may not contain .."),
            (with("Except", json!([""])), 400, "--except GLOB has an empty value"),
            (with("Except", json!(vec!["db"; 51])), 400, "50 times --except at most"),
            (with("Except", json!("db")), 400, "invalid type"),
            (with("Paths", json!([{"workspace": "default"}])), 400, "neither directory nor project"),
            (with("Paths", json!([{"directory": "../.."}])), 400, "leads out of the repository"),
            (with("Paths", json!([{"directory": "net", "workspace": "a/b"}])), 400, "no valid workspace"),
            (with("PR", json!(0)), 400, "PR is missing"),
            (with("PR", json!(99)), 502, "could not be read"),
            (with("Type", json!("Bitbucket")), 400, "Type is none of Github"),
            (with("Repository", json!("infra")), 400, "owner/name"),
            (with("Repository", json!(7)), 400, "invalid type"),
            (with("Ref", json!("main")), 409, "neither the branch nor the head"),
            (json!({}), 400, "missing field"),
        ] {
            let (got, answer) = call(ctx, "/api/plan", &body).await;
            assert!(got == status && answer["error"].as_str().unwrap().contains(said), "{body}: {got} {answer}");
        }
        let (status, text) = post(ctx, "/api/plan", &[TOKEN], "{".to_owned()).await;
        assert!(status == 400 && text.contains("not JSON"), "{text}");
        let body = request(&pull, net).to_string();
        for (headers, wanted) in [
            (&[][..], 401),
            (&[("X-Atlantis-Token", "wrong")][..], 401),
            (&[TOKEN, ("Origin", "https://evil.example")][..], 403),
            (&[TOKEN, ("Sec-Fetch-Site", "cross-site")][..], 403),
        ] {
            for path in ["/api/plan", "/api/apply"] {
                assert_eq!(post(ctx, path, headers, body.clone()).await.0, wanted, "{path} {headers:?}");
            }
        }
        assert!(pull.bot_comments().unwrap().is_empty() && ctx.locks().await.is_empty());
        pull.close().unwrap();
        let (status, answer) = call(ctx, "/api/plan", &serde_json::from_str(&body).unwrap()).await;
        assert!(status == 409 && answer["error"].as_str().unwrap().contains("not open"), "{answer}");
    });
}

#[test]
fn without_a_secret_or_without_apply_nothing_is_taken() {
    run_test(Setup::projects(&["net"]).flags(&["--disable-autoplan"]), async |ctx| {
        let (status, answer) = call(ctx, "/api/plan", &json!({})).await;
        assert!(status == 503 && answer["error"].as_str().unwrap().contains("no api-secret"), "{answer}");
    });
    run_test(quick().flags(&["--allow-commands=plan"]), async |ctx| {
        let pull = ctx.open_dirs("first", &["net"]).await;
        let (status, answer) = call(ctx, "/api/apply", &request(&pull, json!({"Paths": [{"directory": "net"}]}))).await;
        assert!(status == 403 && answer["error"].as_str().unwrap().contains("--allow-commands"), "{answer}");
    });
}

#[test]
fn what_was_accepted_goes_on_after_a_kill() {
    let waits = "while [ ! -e {tmp}/go ]; do sleep 0.1; done";
    let setup = quick().steps(&["touch {tmp}/begun", waits, PLANNED], &[]).own_process();
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("first", &["net"]).await;
        let body = request(&pull, json!({"Paths": [{"directory": "net"}]})).to_string();
        let (url, client) =
            (format!("{}/api/plan", ctx.server.url()), reqwest::Client::builder().no_proxy().build().unwrap());
        let asked = tokio::spawn(client.post(url).header(TOKEN.0, TOKEN.1).body(body).send());
        ctx.until("the plan has begun", async || ctx.tmp.join("begun").exists()).await;
        ctx.server.kill().await;
        assert!(asked.await.unwrap().is_err(), "the caller hears nothing");
        std::fs::write(ctx.tmp.join("go"), "").unwrap();
        ctx.server.start().await;
        ctx.next(&pull).await.is("plan", "success");
    });
}

#[test]
fn a_command_is_for_the_head_that_the_program_asked_about() {
    let waits = "while [ ! -e {tmp}/go ]; do sleep 0.1; done";
    run_test(quick().steps(&["touch {tmp}/begun", waits, PLANNED], &[]), async |ctx| {
        let pull = ctx.open_dirs("first", &["net", "db"]).await;
        pull.comment("alice", "atlantis plan -d net").unwrap();
        ctx.until("a plan runs", async || ctx.tmp.join("begun").exists()).await;
        let body = request(&pull, json!({"Paths": [{"directory": "db"}]}));
        let queued = async {
            ctx.until("both wait", async || ctx.json("/status").await["in_progress_operations"] == 2).await;
            ctx.push(&pull, "net/main.tf", &terraform("net", "7")).await;
        };
        let ((status, answer), ()) = tokio::join!(call(ctx, "/api/plan", &body), queued);
        assert_eq!(status, 500, "{answer:#}");
        assert!(answer["Error"]["text"].as_str().unwrap().contains(pull.url().as_str()), "{answer:#}");
        for _ in 0..2 {
            ctx.next(&pull).await.is_message("superseded");
        }
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn a_lock_is_deleted_by_a_program() {
    run_test(quick(), async |ctx| {
        let pull = ctx.open_dirs("first", &["net"]).await;
        ctx.say(&pull, "atlantis plan -d net").await.is("plan", "success");
        let path = format!("/api/locks?id={}", ctx.locks().await[0]);
        assert_eq!(ctx.request("DELETE", &path, &[TOKEN, ("Origin", "https://evil.example")]).await.0, 403);
        let (status, text) = ctx.request("DELETE", &path, &[TOKEN]).await;
        assert!(status == 200 && text.contains("Deleted lock id"), "{status} {text}");
        ctx.next(&pull).await.is_message("discarded");
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn the_document_has_every_route_and_is_valid() {
    let wake = ["--wake-url=https://tide.example/wake", "--wake-account=wake@acme.iam.gserviceaccount.com"];
    let sign_in = [
        "--oidc-issuer=http://127.0.0.1:9",
        "--oidc-client-id=tide",
        "--oidc-client-secret=of-a-client-here",
        "--web-viewers=*",
    ];
    let flags = [&wake[..], &sign_in, &["--atlantis-url=https://tide.example"]].concat();
    run_test(quick().flags(&flags), async |ctx| {
        let document = ctx.json("/openapi.json").await;
        assert_eq!(document["openapi"], "3.1.0");
        let described: Vec<String> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| {
                item.as_object().unwrap().keys().map(move |method| format!("{} {path}", method.to_uppercase()))
            })
            .collect();
        for (method, path, _) in tidelock::web::routes() {
            assert!(
                described.contains(&format!("{method} {}", path.replace("{*", "{"))),
                "{method} {path} is not in the document"
            );
        }
        // Every reference resolves, every operation has a response, and each part of a path is a parameter.
        let mut left = vec![&document];
        while let Some(value) = left.pop() {
            if let Some(reference) = value["$ref"].as_str() {
                let found = document.pointer(reference.trim_start_matches('#'));
                assert!(found.is_some(), "{reference} leads nowhere");
            }
            left.extend(value.as_object().into_iter().flat_map(|map| map.values()));
            left.extend(value.as_array().into_iter().flatten());
        }
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let answers = operation["responses"].as_object().unwrap();
                assert!(answers.keys().any(|status| status.starts_with(['2', '3'])), "{method} {path}: {answers:?}");
                let parts = path.matches('{').count();
                let parameters = operation["parameters"].as_array().into_iter().flatten();
                assert_eq!(parameters.filter(|parameter| parameter["in"] == "path").count(), parts, "{method} {path}");
            }
        }
    });
}
