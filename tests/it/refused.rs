//! A host that refuses or throttles the server's posts: nothing that people wait for is lost, and it comes first.

use crate::support::*;
use tidelock_forge::Fault;

#[test]
fn the_result_of_an_apply_waits_for_a_token_that_is_taken_again() {
    let setup = Setup::one_project().steps(&[PLANNED], &["echo applied >> {tmp}/applied"]).flags(&["--lease-ttl=3s"]);
    run_test(setup.own_process(), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.quiet().await;
        assert!(ctx.json("/status").await.get("refused_by_host").is_none());
        let expired = Fault::Status(401, r#"{"message": "Bad credentials"}"#.into(), Vec::new());
        for path in ["*/issues/*/comments", "*/statuses/*"] {
            ctx.forge.fail_next("POST", path, expired.clone(), 1000).unwrap();
        }
        pull.comment("alice", "atlantis apply").unwrap();
        // The statuses at its beginning wait as well.
        ctx.until("the result is recorded, and comment and statuses wait", async || {
            let status = ctx.json("/status").await;
            let is_over = ctx.lines("applied") == 1 && status["in_progress_operations"] == 0;
            is_over && status["refused_by_host"]["waiting"].as_u64() >= Some(2)
        })
        .await;
        assert_eq!(pull.bot_comments().unwrap().len(), 1);
        ctx.until("the log says why", async || ctx.server.log().contains("Bad credentials; it is kept")).await;
        let address = format!("--atlantis-url={}", ctx.server.url());
        let (code, text) = ctx.server.command("doctor", &[&address]).await;
        assert!(code == Some(1) && text.contains("the host refuses what the server has to say since "), "{text}");
        // Another server takes over.
        ctx.server.kill().await;
        ctx.server.start().await;
        ctx.until("it still waits", async || {
            ctx.json("/status").await["refused_by_host"]["waiting"].as_u64() >= Some(2)
        })
        .await;
        ctx.forge.clear_faults();
        ctx.next(&pull).await.is("apply", "success");
        ctx.status(&pull, "atlantis/apply", "success", "1/1 applied").await;
        ctx.until("nothing waits any more", async || ctx.json("/status").await.get("refused_by_host").is_none()).await;
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn what_a_locked_conversation_was_to_be_told_is_given_up() {
    let setup = Setup::one_project().steps(&[PLANNED], &[]).own_process();
    run_test(setup, async |ctx| {
        let locked = r#"{"message": "Unable to create comment because issue is locked."}"#;
        ctx.forge.fail_next("POST", "*/issues/*/comments", Fault::Status(403, locked.into(), Vec::new()), 1).unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.status(&pull, "atlantis/plan", "success", "").await;
        ctx.until("it is given up", async || ctx.server.log().contains("a comment is given up: ")).await;
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
    });
}

/// Returns the number of pending statuses that were recorded for single projects.
fn pending_of_projects(ctx: &Ctx) -> i64 {
    let state = rusqlite::Connection::open(ctx.server.data("tidelock.db")).unwrap();
    let count = "SELECT count(*) FROM effects WHERE json_extract(record, '$.effect.status.state') = 'pending'
                   AND json_extract(record, '$.effect.status.context') LIKE 'atlantis/plan: %'";
    state.query_row(count, [], |row| row.get(0)).unwrap()
}

#[test]
fn of_many_projects_on_a_host_that_limits_posts_the_comment_comes_first() {
    let dirs: Vec<String> = (0..24).map(|number| format!("p{number}")).collect();
    let dirs: Vec<&str> = dirs.iter().map(String::as_str).collect();
    let setup = Setup::projects(&dirs).steps(&[PLANNED], &[]).flags(&["--gh-posts-per-hour=60", "--parallel-plan"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("change", &dirs).await;
        ctx.next(&pull).await.is("plan", "success");
        let posts = ctx.forge.requests().iter().filter(|one| one.method == "POST").count();
        assert!(posts < 15, "{posts} posts");
        assert_eq!(pending_of_projects(ctx), 10);
    });
}

/// GitHub gives this answer for seconds after a push to a fork.
#[test]
fn a_status_of_a_commit_that_the_host_does_not_know_yet_is_set_when_it_does() {
    let setup = Setup::one_project().steps(&[PLANNED], &[]).flags(&["--allow-fork-prs"]);
    run_test(setup, async |ctx| {
        let unknown = r#"{"message": "No commit found for SHA: 4b825dc642cb6eb9a060e54bf8d69288fbee4904", "documentation_url": "https://docs.github.com/rest/commits/statuses#create-a-commit-status", "status": "422"}"#;
        ctx.forge.fail_next("POST", "*/statuses/*", Fault::Status(422, unknown.into(), Vec::new()), 6).unwrap();
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success");
        ctx.status(&pull, "atlantis/plan", "success", "").await;
    });
}
