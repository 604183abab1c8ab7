//! `/api/drift/*` through the front door: differences from the code of a branch are found, and locks and plans of pull requests are left
//! alone.

mod applies;
mod executors;
mod issues;
mod schedule;

use crate::support::*;
use serde_json::{Value, json};

const TOKEN: (&str, &str) = ("X-Atlantis-Token", "s3cret-of-the-api");
pub(crate) const FLAGS: [&str; 3] =
    ["--api-secret=s3cret-of-the-api", "--enable-drift-detection", "--disable-autoplan"];

async fn post(ctx: &Ctx, path: &str, headers: &[(&str, &str)], body: String) -> (u16, Value) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut request = client.post(format!("{}{path}", ctx.server.url())).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {status} {text}")))
}

fn request(more: Value) -> Value {
    let mut body = json!({"repository": "acme/infra", "ref": "main", "type": "Github"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// Detects drift on `main`. Returns the status and `data`.
pub(crate) async fn detect(ctx: &Ctx, more: Value) -> (u16, Value) {
    let (status, answer) = post(ctx, "/api/drift/detect", &[TOKEN], request(more).to_string()).await;
    assert_eq!((&answer["success"], &answer["error"]), (&json!(true), &Value::Null), "{status} {answer:#}");
    (status, answer["data"].clone())
}

async fn drift_status(ctx: &Ctx, query: &str) -> Value {
    let path = format!("/api/drift/status?repository=acme/infra&type=Github{query}");
    let (status, text) = ctx.request("GET", &path, &[TOKEN]).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["data"].clone()
}

/// Returns `directory: drift | same | ERROR` of each project.
pub(crate) fn found(data: &Value) -> Vec<String> {
    let word = |project: &Value| match (project["error"].as_str().unwrap(), project["has_drift"].as_bool().unwrap()) {
        ("", true) => "drift".to_owned(),
        ("", false) => "same".to_owned(),
        (error, false) => error.to_owned(),
        (error, true) => panic!("drift and {error}"),
    };
    let projects = data["projects"].as_array().unwrap();
    projects.iter().map(|project| format!("{}: {}", project["directory"].as_str().unwrap(), word(project))).collect()
}

/// Gives a commit of the repository a tag.
fn tag_commit(ctx: &Ctx, tag: &str, more: &[&str], commit: &str) {
    let mut git = std::process::Command::new("git");
    git.args(["-c", "user.name=alice", "-c", "user.email=alice@example.com", "-C"]);
    git.arg(ctx.forge.dir().join("repos/acme/infra.git")).arg("tag").args(more).args([tag, commit]);
    assert!(git.status().unwrap().success());
}

fn change_state(ctx: &Ctx, dir: &str, from: &str, to: &str) {
    let file = ctx.tmp.join(format!("state/{dir}.tfstate"));
    let state = std::fs::read_to_string(&file).unwrap();
    assert!(state.contains(from), "{state}");
    std::fs::write(file, state.replace(from, to)).unwrap();
}

#[test]
fn what_was_changed_by_hand_is_found_and_stays_known() {
    let setup = Setup::projects(&["net", "db"]).file("modules/m/main.tf", "").flags(&FLAGS).own_process();
    run_test(setup, async |ctx| {
        let old = ctx.repo.tip("main").await.unwrap();
        let pull = ctx.open_dirs("first", &["net", "db"]).await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        pull.merge().await.unwrap();
        ctx.next(&pull).await;
        ctx.until("the locks are free", async || ctx.locks().await.is_empty()).await;
        let (status, data) = detect(ctx, json!({})).await;
        assert_eq!((status, found(&data)), (200, vec!["db: same".to_owned(), "net: same".to_owned()]), "{data:#}");

        change_state(ctx, "net", "\"first\"", "\"by hand\"");
        let (status, data) = detect(ctx, json!({"include_plan_output": true})).await;
        assert_eq!((status, found(&data)), (200, vec!["db: same".to_owned(), "net: drift".to_owned()]), "{data:#}");
        let net = &data["projects"][1];
        assert_eq!((&net["drift"]["to_change"], &net["drift"]["total_changes"]), (&json!(1), &json!(1)));
        assert_eq!(
            (&net["ref"], &net["base_branch"], &net["workspace"]),
            (&json!("main"), &json!("main"), &json!("default"))
        );
        assert_eq!(net["resolved_commit"], ctx.repo.tip("main").await.unwrap());
        assert!(net["plan_output"].as_str().unwrap().contains("by hand"), "{net:#}");
        assert_eq!(data["summary"]["projects_with_drift"], 1);
        let page = net["job_url"].as_str().unwrap().strip_prefix("http://tidelock.test").unwrap();
        let (status, page) = ctx.request("GET", page, &[]).await;
        assert!(
            status == 200 && page.contains("drift") && page.contains("acme&#x2f;infra") && !page.contains("infra#0"),
            "{page}"
        );
        let (_, log) = ctx
            .request(
                "GET",
                &format!("{}/log", net["job_url"].as_str().unwrap().strip_prefix("http://tidelock.test").unwrap()),
                &[],
            )
            .await;
        assert!(log.contains("by hand"), "{log}");

        // An older commit of the branch, of one project.
        let of_old = json!({"ref": old, "base_branch": "main", "paths": [{"directory": "db"}]});
        let (status, data) = detect(ctx, of_old).await;
        assert_eq!((status, found(&data)), (200, vec!["db: drift".to_owned()]));
        assert_eq!(data["projects"][0]["resolved_commit"], old);

        let before = drift_status(ctx, "").await;
        assert_eq!(found(&before), ["db: drift", "net: drift"], "{before:#}");
        // The same commit by tags of both kinds, whose names need a base branch.
        for (tag, more) in [("v1", &[][..]), ("v2/noted", &["-a", "-m", "noted"][..])] {
            tag_commit(ctx, tag, more, &old);
            let of_tag = json!({"ref": tag, "base_branch": "main", "paths": [{"directory": "db"}]});
            let (status, data) = detect(ctx, of_tag).await;
            assert_eq!((status, &data["projects"][0]["resolved_commit"]), (200, &json!(old)), "{tag}");
        }
        let before = drift_status(ctx, "").await;
        assert_eq!(found(&drift_status(ctx, "&ref=main").await), ["net: drift"]);
        assert_eq!(found(&drift_status(ctx, "&path=net&workspace=default&base_branch=main").await), ["net: drift"]);
        assert_eq!(found(&drift_status(ctx, "&base_branch=other").await), Vec::<String>::new());
        ctx.server.kill().await;
        ctx.server.start().await;
        assert_eq!(drift_status(ctx, "").await["projects"], before["projects"]);
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn what_a_pull_request_has_locked_is_left_alone_and_named() {
    run_test(
        Setup::projects(&["net", "db"]).steps(&["echo $DIR >> {tmp}/planned", PLANNED], &[]).flags(&FLAGS),
        async |ctx| {
            let pull = ctx.open_dirs("first", &["net"]).await;
            ctx.say(&pull, "atlantis plan").await.is("plan", "success");
            let (locks, planned) = (ctx.locks().await, ctx.lines("planned"));
            let (status, data) = detect(ctx, json!({})).await;
            assert_eq!((status, data["projects"].as_array().unwrap().len()), (207, 2), "{data:#}");
            assert_eq!(found(&data)[0], "db: drift");
            let net = &data["projects"][1];
            let said = net["error"].as_str().unwrap();
            assert!(said.starts_with("skipped: #1 has locked it") && said.contains("`atlantis unlock`"), "{said}");
            assert_eq!((&net["skipped"], &net["skipped_for"], &net["job_url"]), (&json!(true), &json!(1), &json!("")));
            assert_eq!(
                (&data["summary"]["projects_skipped"], &data["summary"]["projects_with_errors"]),
                (&json!(1), &json!(0))
            );
            assert_eq!((ctx.locks().await, ctx.lines("planned")), (locks, planned + 1), "db alone was planned");
            assert_eq!(drift_status(ctx, "&path=net").await["summary"]["projects_skipped"], 1);

            ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
            assert_eq!(detect(ctx, json!({})).await.0, 200);
            assert!(drift_status(ctx, "").await["summary"]["projects_skipped"] == 0 && ctx.locks().await.is_empty());
        },
    );
}

#[test]
fn what_is_applied_or_merged_by_half_is_left_alone() {
    let rules = workflow("repo_locks: {mode: strict}\napply_scope: selected", &[PLANNED], &["true"]);
    run_test(Setup::projects(&["a", "b", "c"]).repos_yaml(&rules).flags(&FLAGS), async |ctx| {
        let first = ctx.open_dirs("first", &["a"]).await;
        ctx.say(&first, "atlantis plan").await.is("plan", "success");
        assert_eq!(detect(ctx, json!({})).await.0, 200, "in this mode a plan holds nothing");
        ctx.say(&first, "atlantis apply").await.is("apply", "success");
        let second = ctx.open_dirs("second", &["b"]).await;
        ctx.say(&second, "atlantis plan").await.is("plan", "success");
        second.merge().await.unwrap();
        ctx.next(&second).await.is_message("owes");
        let (status, data) = detect(ctx, json!({})).await;
        let [a, b, c] = found(&data).try_into().unwrap();
        assert_eq!((status, c.as_str()), (207, "c: drift"), "{data:#}");
        assert!(
            a.contains("#1 owns it (applied, not merged)") && a.contains("`atlantis unlock --accept-drift -m \"why\"`"),
            "{a}"
        );
        assert!(b.contains("#2 owns it (merged, not applied)") && b.contains("`atlantis apply`"), "{b}");
        ctx.say(&second, "atlantis unlock --accept-drift -m \"as it is\"").await.is_message("unlocked");
        assert!(found(&detect(ctx, json!({"paths": [{"directory": "b"}]})).await.1)[0] == "b: drift");
    });
}

#[test]
fn what_is_locked_while_it_is_planned_is_not_told_as_drift() {
    let setup = Setup::projects(&["net"]).steps(&[&gate("plan"), PLANNED], &[]).flags(&FLAGS);
    run_test(setup, async |ctx| {
        let looking = detect(ctx, json!({}));
        let locking = async {
            ctx.reached("plan", 1).await;
            let pull = ctx.open_dirs("first", &["net"]).await;
            pull.comment("alice", "atlantis plan").unwrap();
            ctx.reached("plan", 2).await;
            ctx.open_gate("plan");
            ctx.next(&pull).await.is("plan", "success");
        };
        let ((status, data), ()) = tokio::join!(looking, locking);
        assert_eq!((status, &data["projects"][0]["skipped_for"]), (207, &json!(1)), "{data:#}");
        assert_eq!(ctx.locks().await, ["acme/infra/net/default/"]);
    });
}

#[test]
fn a_killed_run_leaves_nothing_behind_and_locks_no_state() {
    let says = "printenv COMMENT_ARGS >> {tmp}/args";
    let setup = Setup::projects(&["net"]).steps(&[says, &gate("plan"), PLANNED], &[]).flags(&FLAGS).own_process();
    run_test(setup, async |ctx| {
        let url = format!("{}/api/drift/detect", ctx.server.url());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let asked = client.post(url).header(TOKEN.0, TOKEN.1).body(request(json!({})).to_string()).send();
        let asked = tokio::spawn(asked);
        ctx.reached("plan", 1).await;
        assert_eq!(ctx.json("/status").await["in_progress_operations"], 1);
        ctx.server.kill().await;
        assert!(asked.await.unwrap().is_err());
        ctx.open_gate("plan");
        ctx.server.start().await;
        assert_eq!(found(&drift_status(ctx, "").await), Vec::<String>::new());
        ctx.quiet().await;
        let (_, page) = ctx.request("GET", "/", &[]).await;
        assert!(page.contains("interrupted") && !page.contains("drift running"), "{page}");
        assert_eq!(found(&detect(ctx, json!({})).await.1), ["net: drift"]);
        let args = std::fs::read_to_string(ctx.tmp.join("args")).unwrap();
        assert_eq!(args.lines().last().unwrap().replace('\\', ""), "-lock=false");
    });
}

#[test]
fn a_plan_that_fails_is_told_and_the_others_are_looked_at() {
    let setup = Setup::projects(&["a", "b"]).steps(&["[ $(basename $DIR) != a ]", PLANNED], &[]).flags(&FLAGS);
    run_test(setup, async |ctx| {
        let (status, data) = detect(ctx, json!({})).await;
        assert_eq!((status, &data["summary"]["projects_with_errors"]), (207, &json!(1)), "{data:#}");
        let [a, b] = found(&data).try_into().unwrap();
        assert!(a.contains("exit status 1") && b == "b: drift", "{a} {b}");
    });
}

#[test]
fn what_cannot_be_meant_is_refused_in_the_form_of_these_routes() {
    run_test(Setup::projects(&["net"]).flags(&FLAGS), async |ctx| {
        let none = "0123456789012345678901234567890123456789";
        for (more, status, code, said) in [
            (json!({"repository": "infra"}), 400, "VALIDATION_ERROR", "owner/name"),
            (json!({"repository": "other/infra"}), 502, "INTERNAL_ERROR", "could not be fetched"),
            (json!({"type": "Bitbucket"}), 400, "VALIDATION_ERROR", "Type is none of"),
            (json!({"ref": "gone"}), 404, "NOT_FOUND", "no branch \"gone\""),
            (json!({"ref": "a..b"}), 404, "NOT_FOUND", "no branch"),
            (json!({"ref": ""}), 400, "VALIDATION_ERROR", "ref is empty"),
            (json!({"ref": none}), 400, "VALIDATION_ERROR", "base_branch has to say"),
            (json!({"ref": none, "base_branch": "main"}), 404, "NOT_FOUND", "no commit of the branch"),
            (json!({"ref": "other", "base_branch": "main"}), 404, "NOT_FOUND", "no tag \"other\""),
            (json!({"ref": "a..b", "base_branch": "main"}), 404, "NOT_FOUND", "no tag"),
            (json!({"projects": ["a"], "paths": [{"directory": "net"}]}), 400, "VALIDATION_ERROR", "not both"),
            (json!({"projects": ["a"]}), 400, "VALIDATION_ERROR", "no project is called \"a\""),
            (json!({"paths": [{"directory": "gone"}]}), 400, "VALIDATION_ERROR", "is not there"),
            (json!({"paths": [{"directory": "../x"}]}), 400, "VALIDATION_ERROR", "leads out"),
            (json!({"paths": [{"directory": "."}]}), 400, "VALIDATION_ERROR", "no files for Terraform"),
            (json!({"paths": 7}), 400, "VALIDATION_ERROR", "invalid type"),
            (json!({"tag": "a or"}), 400, "VALIDATION_ERROR", "--tag"),
            (json!({"tag": ""}), 400, "VALIDATION_ERROR", "empty value"),
            (json!({"tag": "prod"}), 400, "VALIDATION_ERROR", "no project has the tag `prod`"),
            (json!({"except": ["gone"]}), 400, "VALIDATION_ERROR", "`--except gone` matches no project"),
        ] {
            let (got, answer) = post(ctx, "/api/drift/detect", &[TOKEN], request(more.clone()).to_string()).await;
            let error = &answer["error"];
            assert!(got == status && error["code"] == code, "{more}: {got} {answer:#}");
            assert!(error["message"].as_str().unwrap().contains(said), "{more}: {answer:#}");
            assert_eq!((&answer["success"], &answer["data"]), (&json!(false), &Value::Null));
        }
        let named = [("X-Request-ID", "mine-7")];
        let (status, answer) = post(ctx, "/api/drift/detect", &named, request(json!({})).to_string()).await;
        assert_eq!((status, &answer["error"]["code"]), (401, &json!("UNAUTHORIZED")));
        assert_eq!(answer["request_id"], "mine-7");
        let (status, text) = ctx.request("GET", "/api/drift/status?type=Github", &[TOKEN]).await;
        assert!(status == 400 && text.contains("VALIDATION_ERROR") && text.contains("repository"), "{text}");
    });
    run_test(Setup::projects(&["net"]).flags(&FLAGS[..1]), async |ctx| {
        let (status, answer) = post(ctx, "/api/drift/detect", &[TOKEN], request(json!({})).to_string()).await;
        assert_eq!((status, &answer["error"]["code"]), (503, &json!("SERVICE_UNAVAILABLE")));
        assert!(answer["error"]["message"].as_str().unwrap().contains("--enable-drift-detection"), "{answer}");
    });
}

#[test]
fn tags_and_exceptions_select_what_is_looked_at() {
    let listed = "version: 3\nprojects:\n- {dir: db, tags: [prod]}\n- {dir: net, tags: [prod]}\n- {dir: web}\n";
    let setup = Setup::projects(&["net", "db", "web"]).file("atlantis.yaml", listed).flags(&FLAGS);
    run_test(setup, async |ctx| {
        let (status, data) = detect(ctx, json!({})).await;
        assert_eq!(
            (status, found(&data)),
            (200, vec!["db: drift".to_owned(), "net: drift".into(), "web: drift".into()])
        );
        let (status, data) = detect(ctx, json!({"Tag": "prod"})).await;
        assert_eq!((status, found(&data)), (200, vec!["db: drift".to_owned(), "net: drift".into()]), "{data:#}");
        let (status, data) = detect(ctx, json!({"tag": "prod", "except": ["d*"]})).await;
        assert_eq!((status, found(&data)), (200, vec!["net: drift".to_owned()]), "{data:#}");
        assert_eq!(found(&drift_status(ctx, "").await).len(), 3, "what was not looked at stays known");
        let (status, data) = remediate(ctx, json!({"except": ["net", "w*"]})).await;
        let planned: Vec<_> = data["projects"].as_array().unwrap().iter().map(|one| one["directory"].clone()).collect();
        assert_eq!((status, planned), (200, vec![json!("db")]), "{data:#}");
    });
}

async fn remediate(ctx: &Ctx, more: Value) -> (u16, Value) {
    let (status, answer) = post(ctx, "/api/drift/remediate", &[TOKEN], request(more).to_string()).await;
    (status, if answer["data"].is_null() { answer["error"].clone() } else { answer["data"].clone() })
}

async fn remediations(ctx: &Ctx, id: &str) -> Value {
    let path = format!("/api/drift/remediate{id}?repository=acme/infra&type=Github");
    let (status, text) = ctx.request("GET", &path, &[TOKEN]).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["data"].clone()
}

#[test]
fn plans_that_would_put_things_right_are_kept_and_nothing_is_applied() {
    let plan = "case $DIR in *a) echo 'No changes. All is well.' ;; *) echo 'Plan: 1 to add, 0 to change, 0 to destroy.' ;; esac";
    let setup = Setup::projects(&["a", "b", "c"])
        .steps(&[plan], &["echo applied >> {tmp}/applied"])
        .flags(&FLAGS)
        .own_process();
    run_test(setup, async |ctx| {
        let (status, data) = remediate(ctx, json!({"drift_only": true})).await;
        assert_eq!((status, &data["summary"]["total_projects"]), (200, &json!(0)), "nothing is known yet: {data:#}");
        detect(ctx, json!({})).await;
        let pull = ctx.open_dirs("first", &["c"]).await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        let (status, data) =
            remediate(ctx, json!({"drift_only": true, "workspaces": ["default"], "action": "plan"})).await;
        assert_eq!(
            (status, &data["status"], &data["summary"]["success_count"]),
            (207, &json!("partial"), &json!(1)),
            "{data:#}"
        );
        let [b, c] = data["projects"].as_array().unwrap().as_slice() else { panic!("{data:#}") };
        assert_eq!(
            (&b["directory"], &b["status"], &b["drift_before"]["to_add"]),
            (&json!("b"), &json!("success"), &json!(1))
        );
        assert!(b["plan_output"].as_str().unwrap().contains("1 to add"), "{b:#}");
        assert!(c["error"].as_str().unwrap().contains("#1 has locked it"), "{c:#}");
        let (status, other) = remediate(ctx, json!({"workspaces": ["other"]})).await;
        assert_eq!((status, &other["projects"]), (200, &json!([])));

        ctx.server.kill().await;
        ctx.server.start().await;
        let id = data["id"].as_str().unwrap();
        assert_eq!(remediations(ctx, &format!("/{id}")).await, data);
        let all = remediations(ctx, "").await["remediations"].as_array().unwrap().clone();
        assert_eq!((all.len(), &all[1]["id"], &all[1]["projects"][0]["plan_output"]), (3, &json!(id), &json!("")));
        let other = format!("/api/drift/remediate/{id}?repository=acme/other&type=Github");
        assert_eq!(ctx.request("GET", &other, &[TOKEN]).await.0, 404);
        let (status, error) = remediate(ctx, json!({"action": "apply"})).await;
        assert_eq!((status, &error["code"]), (403, &json!("FORBIDDEN")), "{error:#}");
        assert_eq!(remediate(ctx, json!({"action": "destroy"})).await.0, 400);
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn a_remediation_that_a_kill_cuts_is_told_as_failed() {
    let setup = Setup::projects(&["net"]).steps(&[&gate("plan"), PLANNED], &[]).flags(&FLAGS).own_process();
    run_test(setup, async |ctx| {
        let url = format!("{}/api/drift/remediate", ctx.server.url());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let asked = client.post(url).header(TOKEN.0, TOKEN.1).body(request(json!({})).to_string()).send();
        let asked = tokio::spawn(asked);
        ctx.reached("plan", 1).await;
        assert_eq!(remediations(ctx, "").await["remediations"][0]["status"], "running");
        ctx.server.kill().await;
        assert!(asked.await.unwrap().is_err());
        ctx.server.start().await;
        let found = remediations(ctx, "").await["remediations"][0].clone();
        assert_eq!((&found["status"], &found["completed_at"]), (&json!("failed"), &Value::Null), "{found:#}");
        assert!(found["error"].as_str().unwrap().contains("ended before"), "{found:#}");
    });
}
