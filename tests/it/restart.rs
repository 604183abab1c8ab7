//! Ends of the server at bad moments: people see nothing of them, except for an apply that was interrupted.

use crate::support::*;

/// Way in which the server ends between two comments.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Never,
    Terminated,
    Killed,
}

impl End {
    async fn happens(self, ctx: &Ctx) {
        match self {
            End::Never => {}
            End::Terminated => ctx.server.restart().await,
            End::Killed => {
                ctx.server.kill().await;
                ctx.server.start().await;
            }
        }
    }
}

/// Plays the main story with real Terraform. Returns the comments, and checks the statuses at its end.
fn story(end: End) -> Vec<String> {
    let mut told = Vec::new();
    run_test(Setup::one_project().own_process(), async |ctx| {
        let first = ctx.open_input("first", "2").await;
        told.push(ctx.next(&first).await.filtered());
        end.happens(ctx).await;
        let second = ctx.open("second", &[("other.tf", "output \"second\" {\n  value = 2\n}\n")]).await;
        told.push(ctx.next(&second).await.filtered());
        end.happens(ctx).await;
        told.push(ctx.say(&first, "atlantis apply").await.filtered());
        end.happens(ctx).await;
        told.push(ctx.say(&first, "atlantis apply").await.filtered());
        end.happens(ctx).await;
        first.merge().await.unwrap();
        told.push(ctx.next(&first).await.filtered());
        end.happens(ctx).await;
        // It waited for it.
        told.push(ctx.next(&second).await.filtered());
        end.happens(ctx).await;
        end.happens(ctx).await;
        told.push(ctx.say_as("bob", &second, "atlantis unlock").await.filtered());
        end.happens(ctx).await;
        for pull in [&first, &second] {
            // Statuses may be posted a moment after the comment.
            // Of the second one, the plan is discarded and nothing is applied.
            let is_last = |context: &str, state: &str| match (pull.number() == second.number(), context) {
                (true, "atlantis/plan" | "atlantis/plan: ./default") => state == "failure",
                _ => state == "success",
            };
            ctx.until("all went well in the end", async || {
                pull.statuses().unwrap().iter().all(|(context, status)| is_last(context, &status.state))
            })
            .await;
            for (context, status) in pull.statuses().unwrap() {
                told.push(format!("#{} {context}: {} {}", pull.number(), status.state, status.description));
            }
        }
    });
    told
}

#[test]
fn an_orderly_restart_between_any_two_comments_changes_nothing() {
    similar(&story(End::Terminated), &story(End::Never));
}

#[test]
fn a_kill_between_any_two_comments_changes_nothing() {
    similar(&story(End::Killed), &story(End::Never));
}

fn similar(with: &[String], without: &[String]) {
    assert_eq!(with.len(), without.len());
    for (with, without) in with.iter().zip(without) {
        assert_eq!(with, without, "\nwith restarts:\n{with}\n\nwithout:\n{without}");
    }
}

#[test]
fn a_plan_that_was_killed_is_run_again_and_answered_once() {
    run_test(Setup::one_project().steps(&[&gate("plan"), PLANNED], &[]).own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        ctx.server.kill().await;
        assert!(pull.bot_comments().unwrap().is_empty());
        ctx.server.start().await;
        ctx.reached("plan", 2).await;
        ctx.open_gate("plan");
        ctx.next(&pull).await.is("plan", "success");
        ctx.nothing_pending(&pull, &[]).await;
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
    });
}

#[test]
fn a_plan_is_put_off_by_sigterm_and_answered_after_the_restart() {
    run_test(Setup::one_project().steps(&[&gate("plan"), PLANNED], &[]).own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.reached("plan", 1).await;
        // That checks exit code and time.
        ctx.server.stop().await;
        assert!(pull.bot_comments().unwrap().is_empty());
        // The project stays locked until the plan continues.
        let state = rusqlite::Connection::open(ctx.server.data("tidelock.db")).unwrap();
        assert_eq!(state.query_row("SELECT count(*) FROM locks", [], |row| row.get::<_, i64>(0)).unwrap(), 1);
        drop(state);
        ctx.server.start().await;
        ctx.reached("plan", 2).await;
        ctx.open_gate("plan");
        ctx.next(&pull).await.is("plan", "success");
        ctx.nothing_pending(&pull, &[]).await;
    });
}

fn counting_apply() -> Setup {
    Setup::one_project().steps(&[PLANNED], &["echo begun >> {tmp}/begun", &gate("apply")]).own_process()
}

#[test]
fn an_apply_that_was_killed_is_told_as_interrupted_and_never_repeated() {
    run_test(counting_apply(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.server.kill().await;
        ctx.server.start().await;
        let told = ctx.next(&pull).await;
        told.is("apply", "error").because("interrupted").has("does not repeat it").has("`atlantis plan -d .`");
        ctx.status(&pull, "atlantis/apply", "failure", "").await;
        ctx.nothing_pending(&pull, &[]).await;
        // A second start has nothing left to report.
        ctx.server.restart().await;
        ctx.open_gate("apply");
        ctx.say(&pull, "atlantis apply -d .").await.is("apply", "failure").because("no_plan");
        assert_eq!((ctx.lines("begun"), ctx.locks().await.len()), (1, 1));
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert_eq!(ctx.lines("begun"), 2);
    });
}

#[test]
fn an_apply_is_interrupted_and_told_by_sigterm() {
    run_test(counting_apply(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.server.stop().await;
        ctx.server.start().await;
        ctx.next(&pull).await.is("apply", "error").because("interrupted");
        ctx.status(&pull, "atlantis/apply", "failure", "").await;
        ctx.nothing_pending(&pull, &[]).await;
        assert_eq!(ctx.lines("begun"), 1);
    });
}

#[test]
fn an_apply_of_more_than_eight_seconds_ends_well_within_a_longer_grace() {
    // Without renewals during the apply, the lease would pass to the standby long before the end.
    let setup = Setup::one_project()
        .steps(&[PLANNED], &["echo reached >> {tmp}/apply.reached; sleep 9; echo applied >> {tmp}/applied"])
        .flags(&["--bucket=file://{own}/bucket", "--lease-ttl=4s", "--shutdown-grace=2m"]);
    run_test(setup.own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        let new = ctx.server.beside(&ctx.own.join("data-2"), &[]);
        let leads = async {
            new.start_as_standby().await;
            new.role("leading").await;
            ctx.lines("applied")
        };
        let ((), applied) = tokio::join!(ctx.server.stop_within(LIMIT), leads);
        assert_eq!(applied, 1, "old:\n{}\nnew:\n{}", ctx.server.log(), new.log());
        assert!(!ctx.server.log().contains("does not lead any more"), "{}", ctx.server.log());
        ctx.next(&pull).await.is("apply", "success");
        ctx.status(&pull, "atlantis/apply", "success", "").await;
        new.stop().await;
        ctx.server.start().await;
        ctx.say(&pull, "atlantis unlock").await.is_message("unlocked");
    });
}

#[test]
fn what_was_accepted_just_before_a_kill_is_answered() {
    const PULLS: usize = 4;
    let setup = Setup::one_project().steps(&[PLANNED], &[]).flags(&["--disable-autoplan", "--disable-repo-locking"]);
    run_test(setup.own_process(), async |ctx| {
        let mut pulls = Vec::new();
        for number in 2..PULLS + 2 {
            pulls.push(ctx.open_input(&format!("change-{number}"), &number.to_string()).await);
        }
        ctx.quiet().await;
        ctx.forge.pause_webhooks(true);
        for pull in &pulls {
            for comment in ["atlantis plan", "atlantis help", "atlantis plan -d ."] {
                pull.comment("alice", comment).unwrap();
            }
        }
        ctx.forge.pause_webhooks(false);
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        ctx.server.kill().await;
        // The server's own comments are delivered as well, some of them in vain.
        let of_alice = |body: &str| {
            let payload: serde_json::Value = serde_json::from_str(body).unwrap();
            payload["comment"]["user"]["login"] == "alice"
        };
        let deliveries = ctx.forge.deliveries();
        let accepted = deliveries.iter().filter(|delivery| of_alice(&delivery.body) && delivery.succeeded());
        assert_eq!(accepted.count(), 3 * PULLS);
        ctx.server.start().await;
        for pull in &pulls {
            let said = [ctx.next(pull).await, ctx.next(pull).await, ctx.next(pull).await];
            let (help, plans): (Vec<_>, Vec<_>) = said.iter().partition(|said| said.marker["message"] == "help");
            assert_eq!((help.len(), plans.len()), (1, 2));
            for plan in plans {
                plan.is("plan", "success");
            }
        }
    });
}

#[test]
fn a_database_that_a_loss_of_power_left_zeroed_or_cut_is_made_new() {
    run_test(Setup::one_project().own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.nothing_pending(&pull, &["atlantis/apply"]).await;
        let database = ctx.server.data("tidelock.db");
        for zeroed in [4096, 0] {
            ctx.server.kill().await;
            // Its write-ahead log may be whole, and is of no use without it.
            for file in [&database, &ctx.server.data("tidelock.db-wal")] {
                std::fs::write(file, vec![0; zeroed]).unwrap();
            }
            ctx.server.start().await;
            assert_eq!(ctx.locks().await.len(), 1);
        }
        assert!(ctx.server.log().contains("cannot be read, as after a loss of power"), "{}", ctx.server.log());
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}
