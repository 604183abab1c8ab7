//! Notifications of all events to all kinds of receivers, which refuse what the services refuse. What pull requests say is shown as it is.

use crate::receivers::mail::MailServer;
use crate::receivers::{Services, Taken};
use crate::support::*;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tidelock_forge::{OpenOptions, Pull};

/// Title that tries to be a mention, a link, Markdown, HTML and a header field.
const HOSTILE: &str =
    "<at>all</at> <users/all> <!channel> [x](https://evil.test) **b**\r\nBcc: all@acme.test\u{202e} & more";

/// The services, the mail server, and a server with these webhooks.
struct World {
    services: Services,
    mail: MailServer,
    listeners: Option<(std::net::TcpListener, std::net::TcpListener)>,
    _dir: tempfile::TempDir,
}

impl World {
    /// `{services}` in the config file is the address of the services.
    fn new(webhooks: &str, setup: Setup) -> (World, Setup) {
        let bind = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (services, mail) = (bind(), bind());
        let url = format!("http://{}", services.local_addr().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("settings.yaml");
        std::fs::write(&config, webhooks.replace("{services}", &url)).unwrap();
        let flags = [
            format!("--config={}", config.display()),
            format!("--slack-api-url={url}/slack"),
            format!("--pubsub-endpoint={url}"),
            "--smtp-host=127.0.0.1".to_owned(),
            format!("--smtp-port={}", mail.local_addr().unwrap().port()),
            "--smtp-from=Tidelock <tidelock@acme.test>".to_owned(),
        ];
        let setup = setup.flags(&flags.each_ref().map(String::as_str));
        let listeners = Some((services, mail));
        (World { services: Services::default(), mail: MailServer::default(), listeners, _dir: dir }, setup)
    }

    fn serve(&mut self) {
        let (services, mail) = self.listeners.take().unwrap();
        self.services.serve(services);
        self.mail.serve(mail);
    }
}

/// Returns entries of webhooks for an event, one for each kind.
fn every_kind(event: &str) -> String {
    [
        "kind: slack, channel: ops",
        "kind: http, url: '{services}/hook'",
        "kind: teams, url: '{services}/workflows/SECRET'",
        "kind: google_chat, url: '{services}/v1/spaces/AAA/messages?key=K&token=SECRETTOKEN'",
        "kind: pubsub, topic: projects/acme-infra/topics/tide",
        "kind: email, to: 'Ops <ops@acme.test>, b@acme.test'",
    ]
    .map(|address| format!("- {{event: {event}, {address}}}\n"))
    .concat()
}

const NO_TLS: &[&str] = &["--smtp-tls=none"];

async fn open_titled(ctx: &Ctx, title: &str) -> Pull {
    let changes = [("main.tf", Some("# 2\n"))];
    ctx.repo.open_pull("change", "alice", title, &changes, OpenOptions::default()).await.unwrap()
}

/// Returns the data of a request to Pub/Sub.
fn data(request: &Value) -> Value {
    let data = BASE64_STANDARD.decode(request["messages"][0]["data"].as_str().unwrap()).unwrap();
    serde_json::from_slice(&data).unwrap()
}

fn only(taken: Vec<Taken>) -> Value {
    assert_eq!(taken.len(), 1, "{taken:#?}");
    taken[0].body.clone()
}

#[test]
fn every_kind_is_told_of_a_failed_plan_and_nothing_in_it_is_read_as_markup() {
    let setup = Setup::one_project().steps(&["echo broken; false"], &[]).flags(NO_TLS).own_process();
    let (mut world, setup) = World::new(&format!("slack-token: xoxb-1\nwebhooks:\n{}", every_kind("failure")), setup);
    run_test(setup, async |ctx| {
        world.serve();
        let pull = open_titled(ctx, HOSTILE).await;
        ctx.next(&pull).await.is("plan", "error");
        ctx.until("all are told", async || world.services.taken().len() == 5 && world.mail.got().len() == 1).await;
        ctx.quiet().await;
        let url = pull_url(ctx, &pull);
        let http = only(world.services.by("http"));
        assert_eq!(http["event"], "failure");
        assert_eq!((&http["command"], &http["repository"]), (&json!("plan"), &json!("acme/infra")));
        assert_eq!(
            (&http["pull_request"]["number"], &http["pull_request"]["url"]),
            (&json!(pull.number()), &json!(url))
        );
        assert_eq!(http["projects"], json!([{"project_name": "", "directory": ".", "workspace": "default"}]));
        assert!(http["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{http:#}");
        let title = http["pull_request"]["title"].as_str().unwrap();
        assert!(!title.contains(['\r', '\n', '\u{202e}']), "{title}");
        // Pub/Sub gets the same, and attributes for filters.
        let request = only(world.services.by("pubsub"));
        assert_eq!(data(&request), http);
        let message = &request["messages"][0];
        assert_eq!(
            (&message["attributes"]["event"], &message["attributes"]["repository"]),
            (&json!("failure"), &json!("acme/infra"))
        );
        // Slack escapes three characters.
        let slack = only(world.services.by("slack"));
        let text = slack.to_string();
        assert!(text.contains("&lt;!channel&gt;") && !text.contains("<!channel>"), "{text}");
        let headline = format!("<{url}|Plan failed in acme/infra>");
        assert_eq!(
            (&slack["attachments"][0]["text"], &slack["attachments"][0]["color"]),
            (&json!(headline), &json!("danger"))
        );
        // Teams shows text runs as they are.
        let card = only(world.services.by("teams"))["attachments"][0]["content"].clone();
        assert_eq!(card["body"][0]["inlines"][0]["text"], "Plan failed in acme/infra");
        assert_eq!(card["body"][1]["inlines"][1]["text"], format!("{}: {title}", pull.number()));
        assert_eq!(card["actions"][0]["url"], url);
        // Cards of Google Chat are HTML, in the thread of the pull request.
        let chat = &world.services.by("google_chat")[0];
        let card = &chat.body["cardsV2"][0]["card"];
        assert_eq!(card["header"]["title"], "Plan failed in acme/infra");
        let shown = card["sections"][0]["widgets"][0]["decoratedText"]["text"].as_str().unwrap();
        assert!(
            shown.contains("&lt;users/all&gt;") && shown.ends_with("&amp; more") && !shown.contains('<'),
            "{shown}"
        );
        assert!(
            chat.body["thread"]["threadKey"].as_str().unwrap().ends_with(&format!("#{}", pull.number())),
            "{}",
            chat.body
        );
        assert_eq!(chat.query["messageReplyOption"], "REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD");
        let mail = world.mail.got()[0].clone();
        assert_eq!(mail.header("Subject"), "[Tidelock] Plan failed in acme/infra");
        assert_eq!((mail.to.len(), mail.header("Bcc")), (2, String::new()), "{}", mail.text);
        assert!(mail.header("Message-ID").ends_with("@acme.test>") && !mail.header("References").is_empty());
        assert!(!ctx.server.log().contains("SECRET"), "{}", ctx.server.log());
    });
}

fn pull_url(ctx: &Ctx, pull: &Pull) -> String {
    format!("{}/acme/infra/pull/{}", ctx.forge.url(), pull.number())
}

#[test]
fn a_failed_apply_is_a_failure_and_the_end_of_an_apply() {
    let webhooks = format!(
        "webhooks:\n{}{}",
        "- {event: failure, kind: http, url: '{services}/hook'}\n",
        "- {event: apply, kind: email, to: ops@acme.test}\n- {event: apply, kind: teams, url: '{services}/workflows/SECRET'}\n\
         - {event: apply, kind: google_chat, url: '{services}/v1/spaces/AAA/messages?key=K&token=T'}\n"
    );
    let setup = Setup::one_project().steps(&[PLANNED], &["false"]).flags(NO_TLS);
    let (mut world, setup) = World::new(&webhooks, setup);
    run_test(setup, async |ctx| {
        world.serve();
        // A title of any length is shown in part.
        let pull = open_titled(ctx, &"&".repeat(5000)).await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "error");
        ctx.until("all are told", async || world.services.taken().len() == 3 && world.mail.got().len() == 1).await;
        let failure = only(world.services.by("http"));
        assert_eq!((&failure["event"], &failure["command"]), (&json!("failure"), &json!("apply")));
        let card = only(world.services.by("teams")).to_string();
        assert!(card.contains("Apply failed in acme/infra"), "{card}");
        let chat = only(world.services.by("google_chat"));
        let shown = &chat["cardsV2"][0]["card"]["sections"][0]["widgets"][0]["decoratedText"]["text"];
        assert!(shown.as_str().is_some_and(|text| text.ends_with("&amp;…") && text.len() < 1600), "{shown}");
        assert!(world.mail.got()[0].text.contains("Apply failed in acme/infra"), "{:?}", world.mail.got());
        // There is no plan any more: a refusal is no failure.
        ctx.say(&pull, "atlantis apply").await;
        ctx.quiet().await;
        assert_eq!(world.services.seen(), 3);
    });
}

#[test]
fn a_turn_is_told_once_to_each_receiver_over_a_kill() {
    let webhooks = "webhooks:\n- {event: turn, kind: google_chat, url: '{services}/v1/spaces/AAA/messages?key=K&token=T'}\n\
                    - {event: turn, kind: http, url: '{services}/other', workspace-regex: '^staging$'}\n";
    let rules = workflow("repo_locks: {mode: on_plan}", &[PLANNED], &["true"]);
    let setup = Setup::projects(&["a", "b"]).repos_yaml(&rules).flags(NO_TLS).own_process();
    let (mut world, setup) = World::new(webhooks, setup);
    run_test(setup, async |ctx| {
        world.services.answers(503);
        world.serve();
        let first = ctx.planned_own("first", &["a"]).await;
        let second = ctx.open_own("second", &["a", "b"]).await;
        ctx.next(&second).await;
        ctx.quiet().await;
        assert_eq!(world.services.seen(), 0, "nobody has a turn");
        ctx.say(&first, "atlantis unlock").await.is_message("unlocked").has("#2");
        ctx.next(&second).await.is_replan("success");
        ctx.until("it was tried", async || world.services.seen() > 0).await;
        ctx.server.kill().await;
        world.services.answers(0);
        ctx.server.start().await;
        ctx.until("it is told", async || world.services.taken().len() == 1).await;
        ctx.quiet().await;
        let message = only(world.services.by("google_chat")).to_string();
        assert!(message.contains("Projects are free for a pull request of acme/infra"), "{message}");
        assert!(message.contains("dir `a`") || message.contains("\"text\":\"a"), "{message}");
    });
}

#[test]
fn a_lock_that_is_held_for_long_is_told_once_over_a_restart() {
    let webhooks = "webhooks:\n- {event: lock_overdue, kind: pubsub, topic: projects/acme-infra/topics/tide}\n\
                    - {event: lock_overdue, kind: email, to: ops@acme.test, branch-regex: '^release$'}\n";
    let rules = workflow("repo_locks: {mode: on_plan}", &[PLANNED], &["true"]);
    let setup = Setup::projects(&["a", "b"]).repos_yaml(&rules).flags(NO_TLS).flags(&["--lock-overdue-after=2s"]);
    let (mut world, setup) = World::new(webhooks, setup.own_process());
    run_test(setup, async |ctx| {
        world.serve();
        let pull = ctx.planned_own("first", &["a", "b"]).await;
        ctx.until("it is told", async || world.services.taken().len() == 1).await;
        let data = data(&only(world.services.by("pubsub")));
        assert_eq!((&data["event"], &data["projects"].as_array().unwrap().len()), (&json!("lock_overdue"), &2));
        assert!(data["locked_since"].is_string() && data["pull_request"]["number"] == pull.number());
        ctx.server.restart().await;
        // A later lock is told by itself.
        let other = ctx.open_own("other", &["b"]).await;
        ctx.next(&other).await.is("plan", "failure").because("locked");
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
        ctx.next(&other).await.is_replan("success");
        ctx.until("the next is told", async || world.services.taken().len() == 2).await;
        ctx.quiet().await;
        assert_eq!((world.services.by("pubsub").len(), world.mail.got().len()), (2, 0));
    });
}

#[test]
fn approvals_that_a_new_plan_dismisses_are_told() {
    let webhooks = "webhooks:\n- {event: approval_lapsed, kind: http, url: '{services}/hook'}\n";
    let rules = workflow("apply_requirements: [approved]", &[PLANNED], &["true"]);
    let setup = Setup::one_project().repos_yaml(&rules).flags(NO_TLS).flags(&["--discard-approval-on-plan"]);
    let (mut world, setup) = World::new(webhooks, setup);
    run_test(setup, async |ctx| {
        world.serve();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.quiet().await;
        assert_eq!(world.services.seen(), 0, "there was no approval");
        pull.approve("bob").unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.until("it is told", async || world.services.taken().len() == 1).await;
        let told = only(world.services.by("http"));
        assert_eq!((&told["event"], &told["approvals"]), (&json!("approval_lapsed"), &json!(["bob"])));
        assert_eq!(told["reason"], "alice asked for a new plan");
    });
}

#[test]
fn mail_goes_over_tls_with_a_password_and_waits_for_a_server_that_defers() {
    let webhooks = "webhooks:\n- {event: failure, kind: email, to: ops@acme.test}\n";
    let setup = Setup::one_project().steps(&["false"], &[]).own_process();
    let setup = setup.flags(&["--smtp-user=robot"]).variable("ATLANTIS_SMTP_PASSWORD", "mail-password");
    let setup = setup.variable("SSL_CERT_FILE", tidelock_storage_double::CERTIFICATE_FILE);
    let (mut world, setup) = World::new(webhooks, setup);
    run_test(setup, async |ctx| {
        world.mail = MailServer::default().with_tls();
        world.mail.replies("451 later");
        world.serve();
        let (code, said) = ctx.server.command("doctor", &[]).await;
        assert!(said.contains("ok       email      127.0.0.1 takes mail of the server"), "{code:?} {said}");
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "error");
        ctx.until("it was deferred", async || ctx.server.log().contains("is tried again")).await;
        world.mail.replies("");
        ctx.until("it is told", async || world.mail.got().len() == 1).await;
        let mail = world.mail.got()[0].clone();
        assert!(mail.secured);
        assert_eq!(mail.signed_in, ":robot:mail-password");
        assert!(!ctx.server.log().contains("mail-password"));
    });
}

#[test]
fn mail_is_not_sent_in_the_clear_where_tls_is_wanted() {
    let webhooks = "webhooks:\n- {event: failure, kind: email, to: ops@acme.test}\n";
    let (mut world, setup) = World::new(webhooks, Setup::one_project().steps(&["false"], &[]).own_process());
    run_test(setup, async |ctx| {
        // This mail server does not offer STARTTLS.
        world.serve();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "error");
        ctx.until("it was refused", async || ctx.server.log().contains("is tried again")).await;
        assert_eq!(world.mail.got().len(), 0);
    });
}

#[test]
fn policy_approvals_that_a_new_plan_ends_are_told() {
    let policies =
        "policies:\n  policy_sets:\n    - name: gate\n      path: '{tmp}/policies'\n      owners: {users: [olga]}\n";
    let webhooks = "webhooks:\n- {event: approval_lapsed, kind: pubsub, topic: projects/acme-infra/topics/tide}\n";
    let setup = Setup::one_project().own_process().repos_yaml(policies).flags(NO_TLS);
    let (mut world, setup) = World::new(webhooks, setup.flags(&["--enable-policy-checks"]));
    run_test(setup, async |ctx| {
        world.serve();
        std::fs::create_dir_all(ctx.tmp.join("policies")).unwrap();
        let deny = "package main\n\ndeny contains \"never\" if input.resource_changes\n";
        std::fs::write(ctx.tmp.join("policies/gate.rego"), deny).unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.next(&pull).await.is("policy_check", "failure");
        ctx.say_as("olga", &pull, "atlantis approve_policies").await.is("approve_policies", "success");
        ctx.quiet().await;
        assert_eq!(world.services.seen(), 0);
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.next(&pull).await.is("policy_check", "failure");
        ctx.until("it is told", async || world.services.taken().len() == 1).await;
        let told = data(&only(world.services.by("pubsub")));
        assert_eq!(told["approvals"], json!(["olga of policy set gate"]));
        assert_eq!(told["projects"][0]["directory"], ".");
    });
}

#[test]
fn the_doctor_says_what_it_cannot_reach() {
    let webhooks = format!("slack-token: xoxb-1\nwebhooks:\n{}", every_kind("turn"));
    let (mut world, setup) = World::new(&webhooks, Setup::one_project().flags(NO_TLS));
    run_test(setup, async |ctx| {
        world.serve();
        world.services.answers(403);
        let closed = ctx.server.command("doctor", &["--smtp-port=1"]).await.1;
        world.services.answers(0);
        let open = ctx.server.command("doctor", &[]).await.1;
        let topic = "projects/acme-infra/topics/tide";
        for said in [
            format!("ok       pubsub     the server may publish to {topic}"),
            "ok       email      127.0.0.1 takes mail of the server".to_owned(),
            "2 entries of webhooks for teams or google_chat are not checked".to_owned(),
        ] {
            assert!(open.contains(&said), "{said}\n{open}");
        }
        assert!(closed.contains("no mail can be sent by 127.0.0.1"), "{closed}");
        assert!(closed.contains(&format!("the server cannot publish to {topic}")), "{closed}");
        assert!(world.services.taken().is_empty() && world.mail.got().is_empty());
    });
}

#[test]
fn the_owner_of_a_project_in_mode_strict_is_told_of_its_overdue_lock_too() {
    let webhooks = "webhooks:\n- {event: lock_overdue, kind: http, url: '{services}/hook'}\n";
    let rules = workflow("repo_locks: {mode: strict}", &[PLANNED], &["true"]);
    let setup = Setup::projects(&["a"]).repos_yaml(&rules).flags(NO_TLS).flags(&["--lock-overdue-after=2s"]);
    let (mut world, setup) = World::new(webhooks, setup.own_process());
    run_test(setup, async |ctx| {
        world.serve();
        let pull = ctx.planned_own("first", &["a"]).await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        ctx.until("it is told", async || world.services.taken().len() == 1).await;
        let told = only(world.services.by("http"));
        assert_eq!((&told["event"], &told["projects"][0]["directory"]), (&json!("lock_overdue"), &json!("a")));
        ctx.server.restart().await;
        ctx.quiet().await;
        assert_eq!(world.services.seen(), 1);
    });
}
