//! Missed deliveries: the server finds the changes on the host, and handles them as if the deliveries had come.

use crate::support::*;
use jiff::SignedDuration;
use tidelock_forge::{Fault, Gate, OpenOptions, Request};

/// Stops the server while this happens, so that its deliveries are lost.
async fn missed(ctx: &Ctx, what: impl AsyncFnOnce()) {
    ctx.quiet().await;
    ctx.server.stop().await;
    // Nobody listens: each attempt fails, as on GitHub, which makes only one.
    what().await;
    ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
    ctx.server.start().await;
}

#[test]
fn a_missed_closing_frees_the_locks() {
    run_test(Setup::one_project().steps(&[PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        missed(ctx, async || pull.close().unwrap()).await;
        ctx.next(&pull).await.is_message("cleanup");
        let other = ctx.open_input("other", "3").await;
        ctx.next(&other).await.is("plan", "success");
    });
}

#[test]
fn a_missed_push_is_planned_once() {
    run_test(Setup::one_project().steps(&[PLANNED], &[]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        missed(ctx, async || {
            ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        })
        .await;
        let head = pull.head_commit().unwrap();
        let plan = ctx.next(&pull).await;
        plan.is("plan", "success");
        assert_eq!(plan.marker["head"], head.as_str());
        ctx.nothing_pending(&pull, &[]).await;
        // The delivery comes after all.
        let late =
            ctx.forge.deliveries().into_iter().rfind(|one| one.action.as_deref() == Some("synchronize")).unwrap();
        assert!(!late.succeeded());
        ctx.forge.redeliver(late.id).unwrap();
        ctx.quiet().await;
    });
}

/// The author of a pull request need not be the one who pushed to it last.
#[test]
fn a_missed_push_is_not_planned_on_the_authors_word_where_rules_say_who_may_plan() {
    let rules = workflow("allowed_users: ['alice']", &[PLANNED], &[]);
    run_test(Setup::one_project().repos_yaml(&rules), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        missed(ctx, async || {
            ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        })
        .await;
        ctx.status(
            &pull,
            "atlantis/plan",
            "failure",
            "who gave `plan`. Somebody with the right can comment `atlantis plan`",
        )
        .await;
        ctx.say_as("alice", &pull, "atlantis plan").await.is("plan", "success");
    });
}

#[test]
fn missed_comments_are_taken_up_in_order_and_once() {
    let setup = Setup::one_project().steps(&[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        // This comment was delivered before the server stopped, and is not handled again.
        ctx.say(&pull, "atlantis help").await.is_message("help");
        missed(ctx, async || {
            pull.comment("alice", "atlantis apply").unwrap();
            pull.comment("bob", "just talking").unwrap();
            pull.comment("alice", "atlantis plan").unwrap();
        })
        .await;
        ctx.next(&pull).await.is("apply", "success");
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!(ctx.lines("applied"), 1);
        let late: Vec<_> = ctx.forge.deliveries().into_iter().filter(|one| !one.succeeded()).collect();
        for delivery in late {
            ctx.forge.redeliver(delivery.id).unwrap();
        }
        ctx.quiet().await;
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn what_was_said_before_a_pull_request_was_known_is_never_run() {
    run_test(Setup::one_project().steps(&[PLANNED], &[]).flags(&["--disable-autoplan"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        missed(ctx, async || {
            let old = pull.comment("alice", "atlantis plan -d nowhere").unwrap();
            pull.age_comment(old, SignedDuration::from_mins(30)).unwrap();
        })
        .await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.until("the second round is over", async || {
            ctx.forge.requests().iter().filter(|one| lists_pulls(one)).count() >= 2
        })
        .await;
    });
}

fn lists_pulls(one: &Request) -> bool {
    one.method == "GET" && one.path.ends_with("/pulls")
}

fn count(ctx: &Ctx, of: impl Fn(&Request) -> bool) -> usize {
    ctx.forge.requests().iter().filter(|one| of(one)).count()
}

#[test]
fn a_missed_opening_is_planned_once_and_what_was_said_there_is_taken_up() {
    let setup = Setup::projects(&["a", "b", "c"]).steps(&[PLANNED], &[]).flags(&["--reconcile-interval=2s"]);
    run_test(setup, async |ctx| {
        let known = ctx.open_dirs("known", &["a"]).await;
        ctx.next(&known).await.is("plan", "success");
        let mut pulls = Vec::new();
        missed(ctx, async || {
            pulls.push(ctx.open_dirs("unknown", &["b"]).await);
            pulls[0].comment("bob", "atlantis help").unwrap();
            // Drafts are not planned without a command.
            let options = OpenOptions { draft: true, ..OpenOptions::default() };
            let text = terraform("c", "draft");
            pulls.push(ctx.open_as("alice", "draft", &[("c/main.tf", &text)], options).await);
        })
        .await;
        ctx.next(&pulls[0]).await.is("plan", "success");
        ctx.nothing_pending(&pulls[0], &["atlantis/apply"]).await;
        // Its delivery comes after all.
        let opened = |one: &tidelock_forge::Delivery| one.action.as_deref() == Some("opened") && !one.succeeded();
        let late: Vec<_> = ctx.forge.deliveries().into_iter().filter(opened).collect();
        assert_eq!(late.len(), 2);
        ctx.forge.redeliver(late[0].id).unwrap();
        ctx.next(&pulls[0]).await.is_message("help");
        ctx.quiet().await;
    });
}

#[test]
fn an_opening_whose_delivery_comes_while_it_is_looked_for_is_planned_once() {
    run_test(Setup::projects(&["a", "b"]).steps(&[PLANNED], &[]), async |ctx| {
        let known = ctx.open_dirs("known", &["a"]).await;
        ctx.next(&known).await.is("plan", "success");
        let (mut pulls, gate) = (Vec::new(), Gate::new());
        missed(ctx, async || {
            pulls.push(ctx.open_dirs("unknown", &["b"]).await);
            ctx.forge.fail_next("GET", "**/pulls/2", Fault::Hold(gate.clone()), 1).unwrap();
        })
        .await;
        gate.reached(1).await;
        let held = ctx.hold_state();
        let opened = ctx.forge.deliveries().into_iter().rfind(|one| one.action.as_deref() == Some("opened")).unwrap();
        ctx.forge.redeliver(opened.id).unwrap();
        ctx.let_pass().await;
        gate.open();
        ctx.let_pass().await;
        drop(held);
        ctx.next(&pulls[0]).await.is("plan", "success");
        ctx.quiet().await;
        ctx.say(&pulls[0], "atlantis help").await.is_message("help");
    });
}

#[test]
fn pull_requests_from_before_their_repository_was_served_are_left_alone() {
    let setup = Setup::projects(&["a", "b"]).steps(&[PLANNED], &[]).flags(&["--reconcile-interval=1s"]);
    // The first server looks for nothing, so that the repository is served from the second one's start on.
    run_test(setup.flags(&["--reconcile-unknown=false"]), async |ctx| {
        let mut pulls = Vec::new();
        missed(ctx, async || {
            ctx.server.flag("--reconcile-unknown=true");
            pulls.push(ctx.open_dirs("old", &["a"]).await);
            // A pull request opened in the second of the next server's start is not an old one.
            ctx.next_second().await;
        })
        .await;
        let before = count(ctx, lists_pulls);
        ctx.until("some rounds are over", async || count(ctx, lists_pulls) >= before + 4).await;
        assert_eq!(pulls[0].statuses().unwrap().len(), 0);
        // A pull request with a command is served.
        ctx.say(&pulls[0], "atlantis plan").await.is("plan", "success");
    });
}

#[test]
fn unknown_pull_requests_can_be_left_alone() {
    let setup = Setup::projects(&["a", "b"]).steps(&[PLANNED], &[]);
    run_test(setup.flags(&["--reconcile-interval=1s", "--reconcile-unknown=false"]), async |ctx| {
        let known = ctx.open_dirs("known", &["a"]).await;
        ctx.next(&known).await.is("plan", "success");
        let mut pulls = Vec::new();
        missed(ctx, async || pulls.push(ctx.open_dirs("unknown", &["b"]).await)).await;
        let before = count(ctx, lists_pulls);
        ctx.until("some rounds are over", async || count(ctx, lists_pulls) >= before + 4).await;
        assert_eq!(pulls[0].statuses().unwrap().len(), 0);
    });
}

#[test]
fn what_has_not_changed_is_asked_for_without_cost() {
    let setup = Setup::one_project().steps(&[PLANNED], &[]).flags(&["--reconcile-interval=1s"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let free = |path: &'static str| move |one: &Request| one.path.contains(path) && one.status == 304;
        ctx.until("lists of pull requests, repositories and statuses are conditional", async || {
            ["/acme/infra/pulls", "/user/repos", "/statuses"].iter().all(|path| count(ctx, free(path)) >= 2)
        })
        .await;
    });
}

#[test]
fn a_round_over_many_pull_requests_is_a_few_commits() {
    const PULLS: usize = 8;
    let dirs: Vec<String> = (0..PULLS).map(|number| format!("p{number}")).collect();
    let dirs: Vec<&str> = dirs.iter().map(String::as_str).collect();
    run_test(Setup::projects(&dirs).steps(&[PLANNED], &[]), async |ctx| {
        let mut pulls = Vec::new();
        for dir in &dirs {
            let pull = ctx.open_dirs(dir, &[dir]).await;
            ctx.next(&pull).await.is("plan", "success");
            pulls.push(pull);
        }
        let lists_comments = |one: &Request| one.method == "GET" && one.path.ends_with("/comments");
        let mut before = (0, 0);
        missed(ctx, async || {
            pulls.iter().for_each(|pull| _ = pull.comment("bob", "just talking").unwrap());
            // As if all of it had been a while ago.
            ctx.forge.set_clock_ahead(SignedDuration::from_mins(1));
            before = (count(ctx, lists_pulls), count(ctx, lists_comments));
        })
        .await;
        ctx.until("each is looked at", async || count(ctx, lists_comments) >= before.1 + PULLS).await;
        ctx.until("the second round has begun", async || count(ctx, lists_pulls) >= before.0 + 2).await;
        ctx.quiet().await;
        assert_eq!(count(ctx, lists_comments), before.1 + PULLS, "the second round has nothing to ask");
        let (_, metrics) = ctx.request("GET", "/metrics", &[]).await;
        let commits = metrics.lines().find_map(|line| line.strip_prefix("tidelock_commits_total "));
        let commits: usize = commits.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap();
        assert!(commits < PULLS / 2, "{commits} commits");
    });
}

#[test]
fn a_round_that_meets_the_servers_end_leaves_what_it_has_not_taken_up() {
    let apply = format!("trap 'echo told >> {{tmp}}/told.reached' INT; {}", gate("apply"));
    run_test(Setup::projects(&["a", "b"]).steps(&[PLANNED], &[&apply]), async |ctx| {
        let (one, two) = (ctx.open_dirs("one", &["a"]).await, ctx.open_dirs("two", &["b"]).await);
        ctx.next(&one).await.is("plan", "success");
        ctx.next(&two).await.is("plan", "success");
        let lists = |pull: u64| {
            move |one: &Request| one.path.ends_with(&format!("/issues/{pull}/comments")) && one.method == "GET"
        };
        let held = Gate::new();
        missed(ctx, async || {
            two.comment("alice", "atlantis help").unwrap();
            // As if it had been written a while ago.
            ctx.forge.set_clock_ahead(SignedDuration::from_mins(1));
            ctx.forge.fail_next("GET", "*/issues/2/comments", Fault::Hold(held.clone()), 1).unwrap();
        })
        .await;
        // Something that takes a while when the server is told to end.
        one.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        let before = count(ctx, lists(2));
        // A round asks for the comments.
        held.reached(1).await;
        let ended = ctx.server.stop();
        let answered = async {
            // The apply is interrupted: the server ends.
            ctx.reached("told", 1).await;
            held.open();
            ctx.until("the round has its answer", async || count(ctx, lists(2)) > before).await;
            ctx.open_gate("apply");
        };
        tokio::join!(ended, answered);
        ctx.server.start().await;
        ctx.next(&two).await.is_message("help");
        ctx.next(&one).await;
    });
}

#[test]
fn what_a_round_could_not_record_is_found_by_the_next_one() {
    let setup = Setup::one_project().steps(&[PLANNED], &[]).flags(&["--reconcile-interval=4s"]).own_process();
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let held = Gate::new();
        missed(ctx, async || {
            ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
            pull.comment("alice", "atlantis help").unwrap();
            ctx.forge.set_clock_ahead(SignedDuration::from_mins(1));
            let lists = "/api/v3/repos/acme/infra/pulls";
            ctx.forge.fail_next("GET", lists, Fault::Hold(held.clone()), 1).unwrap();
        })
        .await;
        let state = rusqlite::Connection::open(ctx.server.data("tidelock.db")).unwrap();
        state.busy_timeout(LIMIT).unwrap();
        let full = "CREATE TRIGGER full BEFORE INSERT ON deliveries BEGIN SELECT RAISE(ABORT, 'disk full'); END";
        state.execute_batch(full).unwrap();
        held.open();
        ctx.until("a round has failed", async || ctx.server.log().contains("could not be recorded")).await;
        state.execute_batch("DROP TRIGGER full").unwrap();
        drop(state);
        // The push is taken up first, but its plan takes longer.
        let said = [ctx.next(&pull).await, ctx.next(&pull).await];
        let (help, plan): (Vec<_>, Vec<_>) = said.iter().partition(|said| said.marker["message"] == "help");
        assert_eq!((help.len(), plan.len()), (1, 1), "{} {}", said[0].text, said[1].text);
        let plan = plan[0].is("plan", "success");
        assert_eq!(plan.marker["head"], pull.head_commit().unwrap().as_str());
    });
}

#[test]
fn a_missed_apply_that_is_old_is_answered_with_the_command_to_repeat() {
    let setup = Setup::one_project().steps(&[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        missed(ctx, async || {
            pull.comment("alice", "atlantis apply -d .").unwrap();
            pull.comment("alice", "atlantis unlock").unwrap();
            pull.comment("alice", "atlantis plan").unwrap();
            ctx.forge.set_clock_ahead(SignedDuration::from_mins(11));
        })
        .await;
        ctx.next(&pull).await.is_message("interrupted").has("`atlantis apply -d .`").has("waited 11 minutes");
        ctx.next(&pull).await.is_message("interrupted").has("`atlantis unlock`");
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!((ctx.lines("applied"), ctx.locks().await.len()), (0, 1));
    });
}

#[test]
fn a_missed_comment_that_was_edited_is_not_run() {
    let setup = Setup::one_project().steps(&[PLANNED], &["echo applied >> {tmp}/applied"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        let edited = std::cell::Cell::new((0, 0));
        missed(ctx, async || {
            let said = pull.comment("alice", "looks good").unwrap();
            pull.edit_comment("bob", said, "atlantis apply").unwrap();
            let command = pull.comment("alice", "atlantis plan").unwrap();
            pull.edit_comment("bob", command, "no, rather not").unwrap();
            edited.set((said, command));
        })
        .await;
        let (said, command) = edited.get();
        ctx.until("a reaction tells that it was not run", async || !pull.reactions(said).unwrap().is_empty()).await;
        assert_eq!(pull.reactions(said).unwrap(), [(ctx.forge.bot().to_owned(), "confused".to_owned())]);
        // A comment on it would be read here.
        ctx.say(&pull, "atlantis help").await.is_message("help");
        assert!(pull.reactions(command).unwrap().is_empty());
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn a_closing_that_nobody_confirms_frees_nothing() {
    run_test(Setup::one_project().steps(&[PLANNED], &["true"]), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        missed(ctx, async || {
            let answers = |status: u16, body: &str| Fault::Status(status, body.to_owned(), vec![]);
            ctx.forge.fail_next("GET", "/api/v3/repos/acme/infra/pulls", answers(200, "[]"), 1).unwrap();
            ctx.forge.fail_next("GET", "/api/v3/repos/acme/infra/pulls/1", answers(404, "{}"), 3).unwrap();
        })
        .await;
        ctx.until("the host was asked", async || {
            ctx.forge.requests().iter().filter(|one| one.path.ends_with("/pulls/1") && one.status == 404).count() == 3
        })
        .await;
        ctx.quiet().await;
        assert_eq!(ctx.locks().await.len(), 1);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_missed_push_of_a_fork_inside_the_organization_is_not_planned() {
    let setup = Setup::one_project().steps(&["echo ran >> {tmp}/ran", PLANNED], &[]);
    run_test(setup.flags(&["--allow-fork-prs"]), async |ctx| {
        let fork_name = Some("infra-eve".to_owned());
        let options = OpenOptions { fork: Some("acme".to_owned()), fork_name, ..OpenOptions::default() };
        let pull = ctx.open_as("mallory", "evil", &[("main.tf", &terraform("root", "2"))], options).await;
        ctx.next(&pull).await.is("plan", "success");
        let lists = || ctx.forge.requests().iter().filter(|one| one.path.ends_with("/infra/pulls")).count();
        let before = lists();
        missed(ctx, async || {
            ctx.server.flag("--allow-fork-prs=false");
            ctx.push(&pull, "main.tf", &terraform("root", "3")).await;
        })
        .await;
        ctx.until("the second round is over", async || lists() >= before + 2).await;
        ctx.say_as("bob", &pull, "atlantis plan").await.is_message("fork_refused");
        assert_eq!(ctx.lines("ran"), 1);
    });
}

/// Statuses belong to commits: those of all pull requests of one commit are combined, and no round overwrites the result.
#[test]
fn two_pull_requests_with_one_head_share_their_statuses() {
    let rules = workflow("repo_locks: {mode: on_plan}", &[PLANNED], &[]);
    let setup = Setup::one_project().repos_yaml(&rules).flags(&["--reconcile-interval=1s"]).own_process();
    run_test(setup, async |ctx| {
        ctx.repo.push("prod", &[("readme.md", Some("prod\n"))]).await.unwrap();
        let first = ctx.open_input("change", "2").await;
        ctx.next(&first).await.is("plan", "success");
        let second = ctx.repo.open_again(&first, "alice", "prod").await.unwrap();
        ctx.next(&second).await.is("plan", "failure").because("locked");
        // The first one plans again: the commit keeps the second one's failure.
        ctx.say(&first, "atlantis plan").await.is("plan", "success");
        ctx.quiet().await;
        ctx.status(&first, "atlantis/plan", "failure", "").await;
        let rounds =
            |ctx: &Ctx| ctx.forge.requests().iter().filter(|one| one.path.ends_with("/acme/infra/pulls")).count();
        let posts = |ctx: &Ctx| {
            let posted = |one: &&Request| one.method == "POST" && one.path.contains("/statuses/");
            ctx.forge.requests().iter().filter(posted).count()
        };
        let seen = rounds(ctx);
        ctx.until("rounds have compared the statuses", async || rounds(ctx) >= seen + 4).await;
        let said = posts(ctx);
        let seen = rounds(ctx);
        ctx.until("more rounds have", async || rounds(ctx) >= seen + 4).await;
        assert_eq!(posts(ctx), said, "{}", ctx.server.log());
        ctx.status(&first, "atlantis/plan", "failure", "").await;
        second.close().unwrap();
        // A closed pull request does not count any more.
        ctx.status(&first, "atlantis/plan", "success", "").await;
    });
}
