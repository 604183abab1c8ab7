//! Buttons of the pages: each is a command with the rules of comments, recorded once, answered on the pull request.

use crate::support::*;
use base64::Engine as _;
use std::collections::BTreeMap;
use tidelock_forge::Pull;

const BROWSER: [(&str, &str); 2] = [("accept", "text/html"), ("sec-fetch-site", "same-origin")];

/// A form of a page: its action, and its fields.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    pub(crate) action: String,
    fields: BTreeMap<String, String>,
}

impl Form {
    pub(crate) fn with(mut self, field: &str, value: &str) -> Form {
        self.fields.insert(field.to_owned(), value.to_owned());
        self
    }
}

/// Answer to a form.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) status: u16,
    location: String,
    text: String,
}

/// Returns the forms of the buttons for commands, by command.
fn forms(page: &str) -> BTreeMap<String, Form> {
    let page = page.replace("&#x2f;", "/").replace("&amp;", "&");
    let form = regex::Regex::new(r#"(?s)<form method="post" action="[./]*/actions/(\w+)">(.*?)</form>"#).unwrap();
    let field = regex::Regex::new(r#"<input type="hidden" name="(\w+)" value="([^"]*)">"#).unwrap();
    let fields = |text: &str| field.captures_iter(text).map(|f| (f[1].to_owned(), f[2].to_owned())).collect();
    form.captures_iter(&page)
        .map(|found| {
            (found[1].to_owned(), Form { action: format!("/actions/{}", &found[1]), fields: fields(&found[2]) })
        })
        .collect()
}

pub(crate) async fn buttons(ctx: &Ctx, path: &str, headers: &[(&str, &str)]) -> BTreeMap<String, Form> {
    let (status, page) = ctx.request("GET", path, headers).await;
    assert_eq!(status, 200, "{page}");
    forms(&page)
}

pub(crate) fn address(pull: &Pull) -> String {
    format!("/pulls/127.0.0.1/acme/infra/{}", pull.number())
}

/// Sends a form as a browser does.
pub(crate) async fn send(ctx: &Ctx, form: &Form, headers: &[(&str, &str)]) -> Posted {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&form.fields).finish();
    let request = client().post(format!("{}{}", ctx.server.url(), form.action)).body(body);
    let mut request = request.header("content-type", "application/x-www-form-urlencoded");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    let location = response.headers().get("location").map(|to| to.to_str().unwrap().to_owned()).unwrap_or_default();
    Posted { status: response.status().as_u16(), location, text: response.text().await.unwrap() }
}

/// Presses the button of a command on the page of a pull request.
pub(crate) async fn press(ctx: &Ctx, pull: &Pull, command: &str, headers: &[(&str, &str)]) -> Posted {
    let forms = buttons(ctx, &address(pull), headers).await;
    let form = forms.get(command).unwrap_or_else(|| panic!("no button {command}: {:?}", forms.keys()));
    let posted = send(ctx, form, &[&BROWSER, headers].concat()).await;
    assert_eq!(posted.status, 303, "{posted:?}");
    posted
}

fn people(login: &str) -> String {
    format!("people: [{{person: loopback, login: 127.0.0.1/{login}}}]\n")
}

#[test]
fn a_person_plans_and_applies_with_buttons_and_the_pull_request_is_told() {
    run_test(Setup::one_project().repos_yaml(&people("alice")), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let form = buttons(ctx, &address(&pull), &[]).await["plan"].clone();
        let posted = send(ctx, &form, &BROWSER).await;
        assert_eq!(posted.status, 303, "{posted:?}");
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("Requested by `loopback` on Tidelock's page.");
        let run = ctx.json(&format!("/api/runs/{}", said.marker["run"].as_str().unwrap())).await;
        assert_eq!((&run["trigger"], &run["user"]), (&"page".into(), &"alice".into()));

        // The same form again, as after a double click or a lost answer.
        let again = send(ctx, &form, &BROWSER).await;
        assert_eq!((again.status, &again.location), (303, &posted.location));
        ctx.quiet().await;
        let to = posted.location.trim_start_matches("..");
        assert!(to.starts_with("/pulls/127.0.0.1/acme/infra/1?request="), "{to}");
        let (_, page) = ctx.request("GET", to, &[]).await;
        assert!(page.contains("Your command is answered") && page.contains("its run</a> has the results"), "{page}");

        press(ctx, &pull, "apply", &[]).await;
        ctx.next(&pull).await.is("apply", "success").has("Requested by `loopback`").has("1 added");
        assert!(ctx.tmp.join("state/root.tfstate").exists());
        let audit = ctx.json("/audit.json?person=loopback").await;
        let entries = audit["entries"].as_array().unwrap();
        let mut told: Vec<_> =
            entries.iter().map(|e| (e["act"].as_str().unwrap(), e["result"].as_str().unwrap())).collect();
        told.sort_unstable();
        let asked = "asked for on a page";
        assert_eq!(told, [("apply", "applied"), ("apply", asked), ("apply", "begun"), ("plan", asked)]);
        assert!(entries.iter().all(|e| e["request"].as_str().unwrap().starts_with("page:")), "{audit:#}");
    });
}

#[test]
fn one_key_applies_once_however_often_it_comes() {
    run_test(Setup::one_project().steps(&[PLANNED], &["echo x >> {tmp}/applied"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let form = buttons(ctx, &address(&pull), &[]).await["apply"].clone();
        let four = futures::future::join_all((0..4).map(|_| send(ctx, &form, &BROWSER))).await;
        assert!(four.iter().all(|posted| posted.status == 303 && posted.location == four[0].location), "{four:?}");
        ctx.next(&pull).await.is("apply", "success");
        ctx.quiet().await;
        assert_eq!(ctx.lines("applied"), 1);
    });
}

fn login(name: &str) -> String {
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(format!("{name}:a long secret")))
}

/// Two projects and these rules, and pages for the user `ada`.
fn guarded(rules: &str, more: &str) -> Setup {
    let rules = workflow(rules, &[PLANNED], &["echo applied >> {tmp}/applied"]);
    Setup::projects(&["net", "db"])
        .repos_yaml(&format!("{more}{rules}"))
        .flags(&["--web-basic-auth"])
        .variable("ATLANTIS_WEB_PASSWORD", "a long secret")
        .variable("ATLANTIS_WEB_USERNAME", "ada")
}

#[test]
fn a_button_gives_no_right_that_a_comment_does_not_give() {
    let rules = "allowed_users: ['*:plan', 'ada:plan', 'bob:apply:net']\nallowed_teams: ['sre:apply']";
    let map = |login: &str| format!("people: [{{person: Ada, login: 127.0.0.1/{login}}}]\n");
    for (people, offered, applied) in [
        // Without a login, teams do not count: nobody is asked.
        (String::new(), false, &[][..]),
        (map("mallory"), true, &[]),
        (map("bob"), true, &["net"]),
        (map("carol"), true, &["db", "net"]),
    ] {
        run_test(guarded(rules, &people), async |ctx| {
            ctx.forge.set_team("acme", "sre", &["carol", "ada"]);
            let pull = ctx.open_dirs("change", &["net", "db"]).await;
            ctx.next(&pull).await.is("plan", "success");
            let ada = login("ada");
            let headers = [("authorization", ada.as_str())];
            let forms = buttons(ctx, &address(&pull), &headers).await;
            assert_eq!(forms.contains_key("apply"), offered, "{people}: {:?}", forms.keys());
            // The form of the other button, as a person may send what the page does not offer.
            let form = Form { action: "/actions/apply".into(), ..forms["plan"].clone() };
            let posted = send(ctx, &form, &[&BROWSER[..], &headers].concat()).await;
            assert_eq!(posted.status, 303, "{posted:?}");
            let said = ctx.next(&pull).await;
            said.has("Requested by `ada` on Tidelock's page.");
            let outcomes = said.outcomes();
            let mut succeeded: Vec<_> =
                outcomes.iter().filter(|(_, end)| end == "success").map(|(dir, _)| dir).collect();
            succeeded.sort();
            assert_eq!(succeeded, applied, "{people}");
            assert_eq!(ctx.lines("applied"), applied.len(), "{people}");
            if applied.is_empty() {
                said.is("apply", "error").because("not_permitted").has("may not use `apply`");
            }
            if people.is_empty() {
                assert!(ctx.forge.requests().iter().all(|request| !request.path.contains("/memberships/")));
            }
        });
    }
}

#[test]
fn without_a_rule_that_names_a_person_the_host_has_to_confirm_write_access() {
    let map = |login: &str| format!("people: [{{person: ada, login: 127.0.0.1/{login}}}]\n");
    for (people, offered, status) in
        [(String::new(), false, "error"), (map("eve"), true, "error"), (map("dave"), true, "success")]
    {
        run_test(guarded("", &people), async |ctx| {
            ctx.repo.set_permission("eve", "read").unwrap();
            ctx.repo.set_permission("dave", "write").unwrap();
            let pull = ctx.open_dirs("change", &["net", "db"]).await;
            ctx.next(&pull).await.is("plan", "success");
            let ada = login("ada");
            let headers = [("authorization", ada.as_str())];
            let forms = buttons(ctx, &address(&pull), &headers).await;
            assert_eq!(forms.contains_key("apply"), offered, "{people}: {:?}", forms.keys());
            // As a person may send what the page does not offer.
            let head = pull.head_commit().unwrap();
            let fields =
                [("pull", "127.0.0.1/acme/infra/1"), ("key", "0123456789abcdef0123456789abcdef"), ("head", &head)];
            let mut form = Form { action: "/actions/apply".into(), fields: BTreeMap::new() };
            for (field, value) in fields {
                form = form.with(field, value);
            }
            let posted = send(ctx, &form, &[&BROWSER[..], &headers].concat()).await;
            assert_eq!(posted.status, 303, "{posted:?}");
            let said = ctx.next(&pull).await;
            if status == "success" {
                assert_eq!(ctx.lines("applied"), 2, "{people}");
            } else {
                said.is("apply", "error").because("not_permitted").has("may not use `apply`");
                assert_eq!(ctx.lines("applied"), 0, "{people}");
            }
        });
    }
}

#[test]
fn one_project_is_chosen_by_its_place() {
    run_test(guarded("allowed_users: ['*', 'ada']", ""), async |ctx| {
        let pull = ctx.open_dirs("change", &["net", "db"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let ada = login("ada");
        let headers = [("authorization", ada.as_str())];
        let (_, page) = ctx.request("GET", &address(&pull), &headers).await;
        assert!(page.contains(r#"<option value="dir=net&amp;workspace=default">net&#x2f;default</option>"#), "{page}");
        let form = forms(&page)["apply"].clone().with("project", "dir=net&workspace=default");
        let posted = send(ctx, &form, &[&BROWSER[..], &headers].concat()).await;
        assert_eq!(posted.status, 303, "{posted:?}");
        assert_eq!(ctx.next(&pull).await.outcomes(), [("net".to_owned(), "success".to_owned())]);
        // The page of the other project has its buttons for that project alone.
        let of_db = buttons(ctx, "/projects/127.0.0.1/acme/infra?dir=db&workspace=default", &headers).await;
        let posted = send(ctx, &of_db["plan"], &[&BROWSER[..], &headers].concat()).await;
        assert_eq!(posted.status, 303, "{posted:?}");
        assert_eq!(ctx.next(&pull).await.outcomes(), [("db".to_owned(), "success".to_owned())]);
    });
}

#[test]
fn a_form_that_cannot_be_meant_does_nothing() {
    let setup = Setup::one_project().steps(&[PLANNED], &["echo x >> {tmp}/applied"]);
    run_test(setup.flags(&["--allow-commands=plan,apply", "--allow-unauthenticated-pages"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let form = buttons(ctx, &address(&pull), &[]).await["apply"].clone();
        let elsewhere = |action: &str| Form { action: format!("/actions/{action}"), ..form.clone() };
        for (form, status, said) in [
            (form.clone().with("key", ""), 400, "has no key"),
            (form.clone().with("key", "0"), 400, "has no key"),
            (form.clone().with("head", ""), 400, "names no commit"),
            (form.clone().with("head", "main"), 400, "names no commit"),
            (form.clone().with("pull", ""), 400, "names no pull request"),
            (form.clone().with("pull", "127.0.0.1/acme/infra/0"), 400, "names no pull request"),
            (form.clone().with("pull", "127.0.0.1/acme/infra/99"), 404, "knows no such pull request"),
            (form.clone().with("pull", "127.0.0.1/acme/other/1"), 404, "knows no such pull request"),
            (form.clone().with("pull", "github.com/acme/infra/1"), 404, "knows no such pull request"),
            (form.clone().with("project", "net"), 400, "names no project"),
            (form.clone().with("project", "dir=../..&workspace=default"), 400, "leads out of the repository"),
            (form.clone().with("project", "dir=.&workspace=a/b"), 400, "no valid workspace"),
            (form.clone().with("reason", &"x".repeat(20_000)), 413, "larger than"),
            (elsewhere("import"), 404, "no such action"),
            (elsewhere("help"), 404, "no such action"),
            (elsewhere("unlock"), 403, "--allow-commands"),
        ] {
            let posted = send(ctx, &form, &BROWSER).await;
            let text = posted.text.replace("&#x2f;", "/");
            assert!(posted.status == status && text.contains(said), "{form:?}: {posted:?}");
        }
        // Other sites, and people whose identity nothing proves.
        for (headers, said) in [
            (&[("sec-fetch-site", "cross-site")][..], "of another site"),
            (&[("origin", "https://evil.example")], "of another site"),
            (&[("sec-fetch-site", "same-origin"), ("x-forwarded-for", "192.0.2.7")], "identity is proved"),
        ] {
            let posted = send(ctx, &form, headers).await;
            assert!(posted.status == 403 && posted.text.contains(said), "{headers:?}: {posted:?}");
        }
        let nobody = buttons(ctx, &address(&pull), &[("x-forwarded-for", "192.0.2.7")]).await;
        assert!(nobody.is_empty(), "{nobody:?}");
        ctx.quiet().await;
        assert_eq!((pull.bot_comments().unwrap().len(), ctx.lines("applied")), (1, 0));
        assert_eq!(ctx.json("/audit.json?person=loopback").await["entries"].as_array().unwrap().len(), 0);
    });
}

#[test]
fn what_a_person_saw_before_a_push_is_not_applied_after_it() {
    run_test(Setup::one_project().steps(&[PLANNED], &["echo x >> {tmp}/applied"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let form = buttons(ctx, &address(&pull), &[]).await["apply"].clone();
        ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!(send(ctx, &form, &BROWSER).await.status, 303);
        ctx.next(&pull).await.is_message("superseded").has("Requested by `loopback`");
        ctx.quiet().await;
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn a_running_plan_is_cancelled_and_what_it_left_is_unlocked_with_a_reason() {
    run_test(Setup::one_project().steps(&[PLANNED, &gate("plan")], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        let (_, page) = ctx.request("GET", &address(&pull), &[]).await;
        assert!(page.contains("a command of the pull request runs"), "{page}");
        let (_, overview) = ctx.request("GET", "/", &[]).await;
        let running = regex::Regex::new("jobs/([0-9a-f]{32})").unwrap().captures(&overview).unwrap()[1].to_owned();
        let on_job = buttons(ctx, &format!("/jobs/{running}"), &[]).await;
        assert_eq!(on_job.keys().collect::<Vec<_>>(), ["cancel"]);
        assert_eq!(send(ctx, &on_job["cancel"], &BROWSER).await.status, 303);
        // The answer, and the plan's own end, in any order.
        let both = [ctx.next(&pull).await, ctx.next(&pull).await];
        let (answers, ends): (Vec<_>, Vec<_>) = both.iter().partition(|said| said.marker["message"] == "cancelled");
        let ([answer], [end]) = (answers.as_slice(), ends.as_slice()) else {
            panic!("{} {}", both[0].text, both[1].text)
        };
        answer.has("Requested by `loopback`").has("the running `plan`");
        end.has("was cancelled");
        ctx.quiet().await;
        ctx.open_gate("plan");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        let form = buttons(ctx, &address(&pull), &[]).await["unlock"].clone();
        let posted = send(ctx, &form.with("reason", "<script>alert(1)</script>\nsecond line"), &BROWSER).await;
        assert_eq!(posted.status, 303, "{posted:?}");
        let said = ctx.next(&pull).await;
        said.is_message("unlocked").has("&#60;script&#62;").has_not("<script>").has("second line");
        assert!(ctx.locks().await.is_empty());
        let (_, audit) = ctx.request("GET", "/audit?act=unlock", &[]).await;
        assert!(audit.contains("&lt;script&gt;") && !audit.contains("<script>alert"), "{audit}");
    });
}

#[test]
fn a_deleted_lock_names_the_reason() {
    run_test(Setup::one_project().steps(&[PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let id = ctx.locks().await[0].clone();
        let fields = BTreeMap::from([("id".to_owned(), id), ("reason".to_owned(), "left <b>behind</b>".to_owned())]);
        let form = Form { action: "/locks/delete".into(), fields };
        let long = send(ctx, &form.clone().with("reason", &"x".repeat(301)), &BROWSER).await;
        assert!(long.status == 400 && long.text.contains("more than 300 characters"), "{long:?}");
        assert_eq!(send(ctx, &form, &BROWSER).await.status, 303);
        ctx.next(&pull).await.is_message("discarded").has("Why: left &#60;b&#62;behind");
    });
}

#[test]
fn what_a_button_asked_for_goes_on_after_a_kill() {
    run_test(Setup::one_project().steps(&[&gate("plan"), PLANNED], &[]).own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.open_gate("plan");
        ctx.next(&pull).await.is("plan", "success");
        std::fs::remove_file(ctx.tmp.join("plan.open")).unwrap();
        press(ctx, &pull, "plan", &[]).await;
        ctx.reached("plan", 2).await;
        ctx.server.kill().await;
        ctx.open_gate("plan");
        ctx.server.start().await;
        ctx.next(&pull).await.is("plan", "success").has("Requested by `loopback`");
    });
}

#[test]
fn a_repository_is_frozen_by_those_who_may() {
    let rules = "allowed_users: ['*', 'loopback:freeze', 'loopback:unfreeze']";
    let setup = Setup::one_project().repos_yaml(&workflow(rules, &[PLANNED], &["echo x >> {tmp}/applied"]));
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let before = buttons(ctx, &address(&pull), &[]).await;
        let without = send(ctx, &before["freeze"], &BROWSER).await;
        assert!(without.status == 400 && without.text.contains("a freeze needs a reason"), "{without:?}");
        assert_eq!(send(ctx, &before["freeze"].clone().with("reason", "release"), &BROWSER).await.status, 303);
        ctx.next(&pull).await.is_message("frozen").has("Requested by `loopback`").has("release");
        let (_, page) = ctx.request("GET", &address(&pull), &[]).await;
        assert!(page.contains("froze the repository (release)") && !forms(&page).contains_key("apply"), "{page}");
        // Sent all the same, it meets the freeze as a comment does.
        assert_eq!(send(ctx, &before["apply"], &BROWSER).await.status, 303);
        ctx.next(&pull).await.is("apply", "failure").because("frozen");
        press(ctx, &pull, "unfreeze", &[]).await;
        ctx.next(&pull).await.is_message("unfrozen");
        press(ctx, &pull, "apply", &[]).await;
        ctx.next(&pull).await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn a_map_of_people_that_is_wrong_stops_the_start() {
    let setup = Setup::one_project().repos_yaml("repos: []\n").own_process();
    run_test(setup, async |ctx| {
        ctx.rewrite_repos_yaml("people: [{person: ada@example.com, login: github.com/ada}]\n");
        let (code, said) = ctx.server.command("server", &[]).await;
        assert!(code.is_some_and(|code| code != 0), "{code:?} {said}");
        // Only the file is wrong.
        ctx.rewrite_repos_yaml(&people("ada"));
        ctx.server.restart().await;
    });
}
