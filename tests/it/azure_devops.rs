//! Azure DevOps and GitHub in one server: the story of the front door on a fake Azure DevOps Server over HTTP, with real git, and the
//! pitfalls of that host.

mod fake;
mod replaced;

use crate::flow::FlowHost;
use crate::support::*;
pub(crate) use fake::AzureDevOpsFake;
use fake::{BOT, FULL_NAME, HOOK_USER};
use secrecy::ExposeSecret as _;
use serde_json::json;
use tidelock_forge::{Fault, Gate, OpenOptions};

const GENRE: &str = "Atlantis Bot/atlantis";
const APPLY: &str = "echo $BASE_REPO_OWNER/$BASE_REPO_NAME $PULL_NUM $USER_NAME >> {tmp}/applied";

impl FlowHost for AzureDevOpsFake {
    const MARK: char = '!';

    fn full_name(&self) -> &'static str {
        FULL_NAME
    }

    fn served(&self, setup: Setup) -> Setup {
        let flags = self.flags();
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        setup.flags(&flags).flags(&["--repo-allowlist=127.0.0.1/acme/*,localhost/DefaultCollection/*"])
    }

    async fn connect(&self, ctx: &Ctx) {
        AzureDevOpsFake::connect(self, ctx).await;
    }

    fn hear(&self, ctx: &Ctx, heard: bool) {
        self.deliver_to(&if heard { ctx.server.url() } else { String::new() });
    }

    async fn open_one(&self, _: &Ctx, branch: &str, file: (&str, &str)) -> u64 {
        self.open(branch, file).await
    }

    async fn push_to(&self, _: &Ctx, number: u64, file: (&str, &str)) {
        self.push(number, file).await;
    }

    async fn comment_on(&self, _: &Ctx, number: u64, text: &str) {
        self.say(number, "ann", text).await;
    }

    async fn touch(&self, _: &Ctx, number: u64) {
        self.vote(number, "bob", 10).await;
    }

    async fn push_to_main(&self, _: &Ctx, file: (&str, &str)) {
        self.repo().push("main", &[(file.0, Some(file.1))]).await.unwrap();
        self.forge.wait_for_deliveries(LIMIT).await.unwrap();
    }

    async fn close_one(&self, _: &Ctx, number: u64) {
        self.close(number).await;
    }

    async fn merge_one(&self, _: &Ctx, number: u64) {
        self.merge(number).await;
    }

    async fn vote_on(&self, _: &Ctx, number: u64, who: &str, approves: bool) {
        self.vote(number, who, if approves { 10 } else { -10 }).await;
    }

    async fn approve_as_author(&self, _: &Ctx, number: u64) {
        self.vote(number, "ann", 10).await;
    }

    fn refuse_merge(&self, _: &Ctx, _: u64) -> &'static str {
        let configuration = json!({"isEnabled": true, "isBlocking": true, "type": {"displayName": "Build"}});
        self.set_policies(&[json!({"status": "queued", "configuration": configuration})]);
        "Azure DevOps did not merge it: rejectedByPolicy"
    }

    fn is_merged(&self, _: &Ctx, number: u64) -> bool {
        self.pull(number).is_merged().unwrap()
    }

    async fn has_branch(&self, _: &Ctx, branch: &str) -> bool {
        self.repo().tip(branch).await.is_ok()
    }

    async fn forged(&self, _: &Ctx, text: &str, other: &str) -> u16 {
        self.send_forged(text, other).await
    }

    async fn redeliver_last(&self, _: &Ctx) {
        assert_eq!(self.redeliver().await, 200);
    }

    fn answers(&self, _: &Ctx, number: u64) -> Vec<String> {
        self.comment_texts(number)
    }

    fn is_success(&self, _: &Ctx, number: u64, context: &str) -> Option<bool> {
        let (before, name) = context.rsplit_once('/')?;
        let state = self.status(number, &format!("Atlantis Bot/{before}"), name)?;
        (state != "pending").then(|| state == "success")
    }
}

/// A server on both hosts, each with one project at the root; `keys` are those of every repository.
fn both(fake: &AzureDevOpsFake, keys: &str) -> Setup {
    fake.served(Setup::one_project().repos_yaml(&workflow(keys, &[PLANNED], &[APPLY])))
}

/// Waits for the server's comment after those that were read.
async fn comment(ctx: &Ctx, fake: &AzureDevOpsFake, number: u64, read: usize) -> Said {
    let came = async || fake.comment_texts(number).len() > read;
    ctx.until(&format!("comment {read} comes on !{number}; there is {:?}", fake.comment_texts(number)), came).await;
    Said::new(&fake.comment_texts(number)[read])
}

async fn status(ctx: &Ctx, fake: &AzureDevOpsFake, number: u64, name: &str, state: &str) {
    let is = async || fake.status(number, GENRE, name).as_deref() == Some(state);
    ctx.until(&format!("{name} of !{number} is {state}"), is).await;
}

#[test]
fn a_pull_request_goes_from_autoplan_to_merge_beside_one_on_github() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, "apply_requirements: [approved, mergeable]"), async |ctx| {
        fake.connect(ctx).await;
        let github = ctx.open_input("change", "2").await;
        ctx.next(&github).await.is("plan", "success");
        let one = fake.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, one, 0).await.is("plan", "success");
        status(ctx, &fake, one, "plan", "success").await;
        assert_eq!(github.number(), one, "the same number on both hosts, and they do not meet");
        // The refusal names pull requests as this host writes them.
        let two = fake.open("two", ("other.tf", "# 3\n")).await;
        comment(ctx, &fake, two, 0).await.is("plan", "failure").because("locked").has("!1 Change by one");
        fake.say(one, "bob", "atlantis apply").await;
        comment(ctx, &fake, one, 1).await.is("apply", "failure").has("0 of 1 review");
        fake.vote(one, "bob", 10).await;
        fake.vote(one, "cid", -5).await;
        fake.say(one, "bob", "atlantis apply").await;
        comment(ctx, &fake, one, 2).await.is("apply", "failure").has("cid@example.com requested changes");
        fake.vote(one, "cid", 0).await;
        fake.say(one, "bob", "atlantis apply").await;
        comment(ctx, &fake, one, 3).await.is("apply", "success");
        status(ctx, &fake, one, "apply", "success").await;
        let applied = std::fs::read_to_string(ctx.tmp.join("applied")).unwrap();
        assert_eq!(applied, format!("{FULL_NAME} 1 bob@example.com\n"), "by whom it was said, and not the author");
        fake.merge(one).await;
        comment(ctx, &fake, one, 4).await.is_message("cleanup");
        // It waited for it.
        comment(ctx, &fake, two, 1).await.is("plan", "success");
        assert_eq!(ctx.locks().await, ["acme/infra/./default/".to_owned(), format!("{FULL_NAME}/./default/")]);
        fake.close(two).await;
        comment(ctx, &fake, two, 2).await.is_message("cleanup");
        assert_eq!(ctx.locks().await, ["acme/infra/./default/"]);
        // Its head is unchanged, and it is planned all the same.
        fake.reopen(two).await;
        comment(ctx, &fake, two, 3).await.is("plan", "success");
        assert!(fake.requests().iter().all(|request| request.contains(" /tfs/defaultcollection/")));
    });
}

#[test]
fn a_pull_request_that_is_abandoned_after_an_apply_is_told() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, ""), async |ctx| {
        fake.connect(ctx).await;
        let pull = fake.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, pull, 0).await.is("plan", "success");
        fake.say(pull, "ann", "atlantis unlock").await;
        comment(ctx, &fake, pull, 1).await.is_message("unlocked");
        status(ctx, &fake, pull, "plan", "failure").await;
        fake.say(pull, "ann", "atlantis plan").await;
        comment(ctx, &fake, pull, 2).await.is("plan", "success");
        fake.say(pull, "ann", "atlantis apply").await;
        comment(ctx, &fake, pull, 3).await.is("apply", "success");
        status(ctx, &fake, pull, "apply", "success").await;
        fake.close(pull).await;
        comment(ctx, &fake, pull, 4).await.is_message("cleanup").has("Closed after an apply: 1 project");
        status(ctx, &fake, pull, "apply", "failure").await;
    });
}

#[test]
fn policies_of_every_page_block_and_our_own_status_does_not() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, "apply_requirements: [mergeable]"), async |ctx| {
        fake.connect(ctx).await;
        let policy = |name: &str, status: &str, settings: serde_json::Value| {
            json!({
                "status": status,
                "configuration": {"isEnabled": true, "isBlocking": true, "type": {"displayName": name}, "settings": settings},
            })
        };
        let own = json!({"statusGenre": GENRE, "statusName": "apply"});
        let most = vec![policy("Status", "queued", own), policy("Build", "approved", json!({}))];
        let mut all = most.clone();
        all.push(policy("Minimum number of reviewers", "queued", json!({})));
        fake.set_policies(&all);
        let pull = fake.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, pull, 0).await.is("plan", "success");
        fake.say(pull, "ann", "atlantis apply").await;
        comment(ctx, &fake, pull, 1).await.is("apply", "failure").has("Minimum number of reviewers is queued");
        fake.set_policies(&most);
        fake.say(pull, "ann", "atlantis apply").await;
        comment(ctx, &fake, pull, 2).await.is("apply", "success");
    });
}

#[test]
fn what_changes_nothing_plans_nothing_and_what_comes_again_is_known() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, ""), async |ctx| {
        fake.connect(ctx).await;
        // A title of vote words, and a branch whose name has to be escaped in addresses.
        let title = "approved pull request, voted by the reviewer list";
        let file = ("main.tf", "# 2\n");
        let pull = fake.open_titled(title, "feature/50%+more&#1", file, OpenOptions::default()).await;
        comment(ctx, &fake, pull, 0).await.is("plan", "success");
        assert_eq!(fake.redeliver().await, 200);
        fake.vote(pull, "bob", 10).await;
        let said = fake.say(pull, "ann", "atlantis apply").await;
        comment(ctx, &fake, pull, 1).await.is("apply", "success");
        assert_eq!(fake.redeliver().await, 200);
        fake.edit(pull, "ann", said, "atlantis plan").await;
        fake.push(pull, ("main.tf", "# 3\n")).await;
        comment(ctx, &fake, pull, 2).await.is("plan", "success");
        assert_eq!(fake.redeliver().await, 200);
        let options = OpenOptions { draft: true, ..OpenOptions::default() };
        let draft = fake.open_with("draft", ("other.tf", "# 2\n"), options).await;
        let fork = fake.open_from_fork("fork", ("other.tf", "# 3\n")).await;
        comment(ctx, &fake, fork, 0).await.is_message("fork_refused");
        assert_eq!(fake.post("{}", HOOK_USER, fake.password().expose_secret()).await, 200, "not for us");
        ctx.quiet().await;
        assert_eq!(
            (fake.comment_texts(pull).len(), fake.comment_texts(draft).len(), fake.comment_texts(fork).len()),
            (3, 0, 1)
        );
        fake.ready(draft).await;
        comment(ctx, &fake, draft, 0).await;
    });
}

#[test]
fn a_pull_request_from_a_fork_is_planned_if_an_operator_allows_it() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, "").flags(&["--allow-fork-prs"]), async |ctx| {
        fake.connect(ctx).await;
        let fork = fake.open_from_fork("fork", ("main.tf", "# of a fork\n")).await;
        comment(ctx, &fake, fork, 0).await.is("plan", "success");
        fake.push(fork, ("main.tf", "# again\n")).await;
        comment(ctx, &fake, fork, 1).await.is("plan", "success");
    });
}

#[test]
fn what_is_typed_arrives_and_a_lock_is_of_who_took_it() {
    let fake = AzureDevOpsFake::start();
    let yaml = workflow("", &["printf '%s' \"$COMMENT_ARGS\" > {tmp}/args", PLANNED], &[APPLY]);
    run_test(fake.served(Setup::one_project().repos_yaml(&yaml)), async |ctx| {
        fake.connect(ctx).await;
        let pull = fake.open("one", ("main.tf", "# 2\n")).await;
        let repository = format!("{}/tfs/defaultcollection/Cloud%20Infra/_git/live", fake.forge.url());
        let commit = format!("({repository}/commit/{})", fake.pull(pull).head_commit().unwrap());
        comment(ctx, &fake, pull, 0).await.is("plan", "success").has(&commit);
        fake.say(pull, "ann", "atlantis unlock").await;
        comment(ctx, &fake, pull, 1).await.is_message("unlocked");
        fake.say(pull, "bob", "atlantis plan -- -var 'x=<b> & \"c\"'").await;
        comment(ctx, &fake, pull, 2).await.is("plan", "success");
        let arguments = std::fs::read_to_string(ctx.tmp.join("args")).unwrap();
        assert_eq!(arguments.replace('\\', ""), "-var,x=<b> & \"c\"");
        assert_eq!(ctx.json("/api/locks").await["Locks"][0]["User"], "bob@example.com", "and not the author");
        // Its link is a page for people, and so is that of the pull request.
        let (_, dashboard) = ctx.request("GET", "/", &[]).await;
        let mut links = dashboard.split("href=\"./pulls").skip(1).filter_map(|rest| rest.split('"').next());
        let address = links.find(|address| address.starts_with(['/', '&'])).unwrap();
        let address = address.replace("&#x2f;", "/");
        let (status, page) = ctx.request("GET", &format!("/pulls{address}"), &[]).await;
        assert!(address.contains("/Cloud%20Infra/live/") && status == 200, "{address}: {status} {page}");
        assert!(page.contains("bob@example.com") && page.contains("Cloud Infra"), "{page}");
        let id = dashboard.split("lock?id=").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let (status, page) = ctx.request("GET", &format!("/lock?id={id}"), &[]).await;
        assert!(status == 200 && page.to_lowercase().starts_with("<!doctype html"), "{status}: {page}");
        assert!(page.contains("bob@example.com") && page.contains("Cloud Infra"), "{page}");
    });
}

/// Everybody who may read can comment here, and the host does not say who may write.
#[test]
fn an_owner_is_ended_by_those_whom_a_rule_lets() {
    let fake = AzureDevOpsFake::start();
    let rules = "repo_locks: {mode: strict}\nallowed_users: ['*', 'bob@example.com:unlock']";
    run_test(both(&fake, rules), async |ctx| {
        fake.connect(ctx).await;
        let pull = fake.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, pull, 0).await.is("plan", "success");
        fake.say(pull, "ann", "atlantis apply").await;
        comment(ctx, &fake, pull, 1).await.is("apply", "success");
        fake.say(pull, "ann", "atlantis unlock --accept-drift -m 'as it is'").await;
        let said = comment(ctx, &fake, pull, 2).await;
        said.is_message("not_permitted").has("ann@example.com may not use `unlock --accept-drift`");
        said.has("does not tell who may write").has("ann@example.com:unlock").has("`repos.yaml`");
        assert_eq!(ctx.locks().await.len(), 1);
        fake.say(pull, "bob", "atlantis unlock --accept-drift -m 'as it is'").await;
        comment(ctx, &fake, pull, 3).await.is_message("unlocked");
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn a_push_is_planned_by_the_permission_of_who_pushed() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, "allowed_users: ['ann@example.com']"), async |ctx| {
        fake.connect(ctx).await;
        let pull = fake.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, pull, 0).await.is("plan", "success");
        fake.push_as("bob", pull, ("main.tf", "# evil\n")).await;
        status(ctx, &fake, pull, "plan", "failure").await;
        let description = fake.pull(pull).statuses().unwrap().remove(&format!("{GENRE}/plan")).unwrap().description;
        assert!(description.contains("bob@example.com may not use `plan`"), "{description}");
        fake.push_as("ann", pull, ("main.tf", "# 3\n")).await;
        comment(ctx, &fake, pull, 1).await.is("plan", "success");
        ctx.quiet().await;
        assert_eq!(fake.comment_texts(pull).len(), 2, "and nothing is said of a push that is not planned");
    });
}

#[test]
fn a_wrong_password_is_refused_and_guessing_shuts_nobody_out() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, ""), async |ctx| {
        fake.connect(ctx).await;
        let pull = fake.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, pull, 0).await.is("plan", "success");
        let mut answers = Vec::new();
        for guess in 0..21 {
            answers.push(fake.post("{}", HOOK_USER, &guess.to_string()).await);
        }
        assert_eq!((answers[0], answers[20]), (401, 429));
        // Deliveries of others come from the host's addresses as well.
        assert_eq!(fake.post("{}", HOOK_USER, fake.password().expose_secret()).await, 200);
        fake.say(pull, "ann", "atlantis plan").await;
        comment(ctx, &fake, pull, 1).await.is("plan", "success");
        // Signed deliveries are handled all the same.
        let github = ctx.open_input("change", "2").await;
        ctx.next(&github).await.is("plan", "success");
    });
}

#[test]
fn refusals_that_pass_lose_no_comment_and_leave_no_status_pending() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, ""), async |ctx| {
        fake.connect(ctx).await;
        fake.refuse(&[
            ("*", "*/threads", 429),
            ("POST", "*/_apis/*", 500),
            ("*", "*/statuses", 503),
            ("*", "*/iterations", 500),
            ("*", "*/statuses", 429),
        ]);
        let pull = fake.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, pull, 0).await.is("plan", "success");
        status(ctx, &fake, pull, "plan", "success").await;
        // Statuses are posted concurrently: one succeeds while others are refused.
        let refused = || fake.forge.requests().into_iter().filter(|request| request.status >= 429).count();
        ctx.until("all of it was refused", async || refused() == 5).await;
        ctx.until("none is pending", async || {
            let statuses = fake.pull(pull).statuses().unwrap();
            statuses.iter().all(|(name, status)| status.state != "pending" || name.ends_with("/apply"))
        })
        .await;
        ctx.quiet().await;
        assert_eq!((fake.comment_texts(pull).len(), refused()), (1, 5));
    });
}

#[test]
fn one_hosts_outage_leaves_the_other_alone() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, ""), async |ctx| {
        fake.connect(ctx).await;
        let pull = fake.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, pull, 0).await.is("plan", "success");
        fake.is_down(true);
        let github = ctx.open_input("change", "2").await;
        ctx.next(&github).await.is("plan", "success");
        ctx.say(&github, "atlantis apply").await.is("apply", "success");
        fake.is_down(false);
        fake.push(pull, ("main.tf", "# 3\n")).await;
        comment(ctx, &fake, pull, 1).await.is("plan", "success");
    });
}

#[test]
fn a_head_that_is_no_tip_any_more_is_found_on_its_branch() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, ""), async |ctx| {
        fake.connect(ctx).await;
        fake.deliver_to("");
        let pull = fake.open("one", ("main.tf", "# 2\n")).await;
        // A push that the host has not noticed yet.
        fake.repo().push_unnoticed("one", &[("main.tf", Some("# 3\n"))]).await.unwrap();
        fake.deliver_to(&ctx.server.url());
        assert_eq!(fake.redeliver().await, 200);
        let plan = comment(ctx, &fake, pull, 0).await;
        plan.is("plan", "success");
        assert_eq!(plan.marker["head"], fake.pull(pull).head_commit().unwrap());
        let looks = || fake.requests().iter().filter(|request| request.contains("/info/refs")).count();
        let of_one_before = looks();
        fake.push(pull, ("main.tf", "# 4\n")).await;
        comment(ctx, &fake, pull, 1).await.is("plan", "success");
        assert_eq!(of_one_before, 2 * (looks() - of_one_before), "asked for the commit, then for its branch");
    });
}

/// The host does not report the time of a change, so a push may be taken up while its delivery is on its way.
#[test]
fn a_push_whose_delivery_comes_while_it_is_looked_for_is_planned_once() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, ""), async |ctx| {
        fake.connect(ctx).await;
        let pull = fake.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, pull, 0).await.is("plan", "success");
        ctx.quiet().await;
        ctx.server.stop().await;
        fake.deliver_to("");
        fake.push(pull, ("main.tf", "# 3\n")).await;
        let gate = Gate::new();
        fake.forge.fail_next("GET", "**/threads", Fault::Hold(gate.clone()), 1).unwrap();
        ctx.server.start().await;
        fake.deliver_to(&ctx.server.url());
        gate.reached(1).await;
        let held = ctx.hold_state();
        let push = fake.forge.deliveries().pop().unwrap();
        fake.forge.redeliver(push.id).unwrap();
        ctx.let_pass().await;
        gate.open();
        ctx.let_pass().await;
        drop(held);
        comment(ctx, &fake, pull, 1).await.is("plan", "success");
        ctx.quiet().await;
        fake.say(pull, "ann", "atlantis help").await;
        comment(ctx, &fake, pull, 2).await.is_message("help");
    });
}

#[test]
fn a_server_that_is_killed_goes_on_where_it_was() {
    let fake = AzureDevOpsFake::start();
    let (began, go) = ("{tmp}/began", "{tmp}/go");
    let slow = format!("touch {began}; until [ -e {go} ]; do sleep 0.05; done; {PLANNED}");
    let setup = fake.served(Setup::one_project().steps(&[&slow], &[APPLY])).own_process();
    run_test(setup, async |ctx| {
        fake.connect(ctx).await;
        let pull = fake.open("one", ("main.tf", "# 2\n")).await;
        ctx.until("the plan began", async || ctx.tmp.join("began").exists()).await;
        ctx.server.kill().await;
        std::fs::write(ctx.tmp.join("go"), "").unwrap();
        ctx.server.start().await;
        fake.deliver_to(&ctx.server.url());
        comment(ctx, &fake, pull, 0).await.is("plan", "success");
        status(ctx, &fake, pull, "plan", "success").await;
        fake.say(pull, "ann", "atlantis apply").await;
        comment(ctx, &fake, pull, 1).await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn the_doctor_finds_what_is_wrong_with_the_token() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, ""), async |ctx| {
        fake.connect(ctx).await;
        let (_, said) = ctx.server.command("doctor", &[]).await;
        for line in [
            format!("defaultcollection: the token is {BOT}'s"),
            format!("serves {FULL_NAME}"),
            format!("{FULL_NAME}: the token has the scopes it needs"),
        ] {
            assert!(said.contains(&line), "{line}:\n{said}");
        }
        for status in [401, 403] {
            fake.refuse(&[("*", "*/pullRequests/0/statuses", status)]);
            let (code, said) = ctx.server.command("doctor", &[]).await;
            assert!(said.contains("lacks the scope Code (status)") && code == Some(1), "{code:?}:\n{said}");
        }
        // The right is required only if the server merges.
        for (flag, fault) in [("--automerge", true), ("--automerge=false", false)] {
            fake.refuse(&[("PATCH", "*/pullRequests/0", 403)]);
            let (_, said) = ctx.server.command("doctor", &[flag]).await;
            let line = said.lines().find(|line| line.contains("lacks the scope Code (read & write)"));
            let line = line.unwrap_or_else(|| panic!("{said}"));
            assert_eq!(line.starts_with("FAULT"), fault, "{said}");
        }
        fake.forge.revoke_token().unwrap();
        let (_, said) = ctx.server.command("doctor", &[]).await;
        assert!(said.contains("defaultcollection: the token is not taken"), "{said}");
    });
}

/// Deliveries of this host have no labels.
#[test]
fn a_label_keeps_a_pull_request_from_being_planned_though_no_delivery_tells_it() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, "").flags(&["--disable-autoplan-label=by-hand"]), async |ctx| {
        fake.connect(ctx).await;
        let labels = vec!["by-hand".to_owned()];
        let options = OpenOptions { labels, ..OpenOptions::default() };
        let number = fake.open_with("labelled", ("main.tf", "# 2\n"), options).await;
        ctx.quiet().await;
        fake.say(number, "ann", "atlantis plan").await;
        let said = comment(ctx, &fake, number, 0).await;
        said.is("plan", "success");
        assert_eq!(said.marker["trigger"], "comment", "{}", said.text);
        fake.push(number, ("main.tf", "# 3\n")).await;
        ctx.quiet().await;
        assert_eq!(fake.comment_texts(number).len(), 1, "{:?}", fake.comment_texts(number));
    });
}

/// The setting names the host alone; collections lie below `/tfs`.
#[test]
fn a_server_below_a_virtual_directory_works_where_the_setting_names_the_host_alone() {
    let fake = AzureDevOpsFake::start();
    let flags: Vec<String> = fake.flags().into_iter().map(|flag| flag.trim_end_matches("/tfs").to_owned()).collect();
    assert_ne!(flags, fake.flags());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let setup = Setup::one_project().repos_yaml(&workflow("", &[PLANNED], &[APPLY])).flags(&flags);
    run_test(setup.flags(&["--repo-allowlist=127.0.0.1/acme/*,localhost/tfs/DefaultCollection/*"]), async |ctx| {
        fake.connect(ctx).await;
        let number = fake.open("change", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, number, 0).await.is("plan", "success");
        fake.say(number, "ann", "atlantis apply").await;
        comment(ctx, &fake, number, 1).await.is("apply", "success");
        status(ctx, &fake, number, "apply", "success").await;
        let applied = std::fs::read_to_string(ctx.tmp.join("applied")).unwrap();
        assert!(applied.starts_with("tfs/defaultcollection/Cloud Infra/live 1 "), "{applied}");
        fake.merge(number).await;
        comment(ctx, &fake, number, 2).await.is_message("cleanup");
    });
}

#[test]
fn after_the_merge_only_what_votes_were_for_is_applied() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, "repo_locks: {mode: strict}\napply_requirements: [approved]"), async |ctx| {
        fake.connect(ctx).await;
        for is_pushed in [false, true] {
            let (branch, text) = if is_pushed { ("two", "# 3\n") } else { ("one", "# 2\n") };
            let pull = fake.open(branch, ("main.tf", text)).await;
            comment(ctx, &fake, pull, 0).await.is("plan", "success");
            fake.vote(pull, "bob", 10).await;
            fake.merge(pull).await;
            ctx.next_second().await;
            comment(ctx, &fake, pull, 1).await.is_message("owes");
            let pushed = match is_pushed {
                true => Some(fake.repo().push("main", &[("more.tf", Some("# approved by nobody\n"))]).await.unwrap()),
                false => None,
            };
            fake.say(pull, "ann", "atlantis apply").await;
            comment(ctx, &fake, pull, 2).await.is("plan", "success").has("the server cannot compare the plan");
            fake.say(pull, "ann", "atlantis apply").await;
            let said = comment(ctx, &fake, pull, 3).await;
            match pushed {
                None => said.is("apply", "success"),
                Some(commit) => said.is("apply", "failure").because("requirement").has(&commit[..7]),
            };
            assert_eq!(ctx.lines("applied"), 1);
        }
    });
}

/// "Everything that was planned is applied already" would be a wrong answer if the merge was refused.
#[test]
fn a_merge_that_a_policy_refused_is_tried_again_by_a_vote_and_by_another_apply() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, "").flags(&["--automerge"]), async |ctx| {
        fake.connect(ctx).await;
        let configuration = json!({"isEnabled": true, "isBlocking": true, "type": {"displayName": "Build"}});
        for by_vote in [true, false] {
            fake.set_policies(&[json!({"status": "queued", "configuration": configuration})]);
            let (branch, text) = if by_vote { ("vote", "# 2\n") } else { ("apply", "# 3\n") };
            let number = fake.open(branch, ("main.tf", text)).await;
            comment(ctx, &fake, number, 0).await.is("plan", "success");
            fake.say(number, "ann", "atlantis apply").await;
            comment(ctx, &fake, number, 1).await.is("apply", "success");
            comment(ctx, &fake, number, 2).await.is_message("automerge").has("Automatically merging");
            comment(ctx, &fake, number, 3).await.is_message("automerge").has("Automerging failed");
            fake.set_policies(&[json!({"status": "approved", "configuration": configuration})]);
            let mut read = 4;
            if by_vote {
                fake.vote(number, "bob", 10).await;
            } else {
                fake.say(number, "ann", "atlantis apply").await;
                comment(ctx, &fake, number, 4).await.is_message("automerge").has("Automatically merging");
                read = 5;
            }
            comment(ctx, &fake, number, read).await.is_message("cleanup");
            assert!(fake.pull(number).is_merged().unwrap());
        }
    });
}
