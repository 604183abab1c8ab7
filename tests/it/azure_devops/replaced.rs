//! Replacement by a newer result or plan on Azure DevOps: threads are closed, votes are reset.

use super::*;

#[test]
fn a_result_closes_the_threads_that_it_tells_anew() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, "").flags(&["--hide-prev-plan-comments"]), async |ctx| {
        fake.connect(ctx).await;
        let one = fake.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, one, 0).await.is("plan", "success");
        fake.say(one, "bob", "Looks good.").await;
        fake.say(one, "bob", "atlantis plan").await;
        comment(ctx, &fake, one, 1).await.is("plan", "success");
        let hidden = || fake.pull(one).comments().unwrap().into_iter().map(|said| said.hidden).collect::<Vec<_>>();
        ctx.until("the first is closed", async || hidden() == [true, false, false, false]).await;
        let closings = || fake.requests().iter().filter(|request| request.starts_with("PATCH")).count();
        // A request is counted once it is answered.
        ctx.until("one was closed", async || closings() == 1).await;
        fake.say(one, "bob", "atlantis plan").await;
        comment(ctx, &fake, one, 2).await.is("plan", "success");
        ctx.until("the second is closed", async || hidden() == [true, false, false, true, false, false]).await;
        ctx.until("one more was closed, and not again what is closed", async || closings() == 2).await;
        ctx.server.stop().await;
        assert_eq!(closings(), 2, "what is closed is not closed again");
        ctx.server.start().await;
    });
}

#[test]
fn a_plan_after_a_push_is_written_over_the_one_before() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, "").flags(&["--update-plan-comments"]), async |ctx| {
        fake.connect(ctx).await;
        let one = fake.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, one, 0).await.is("plan", "success");
        fake.push(one, ("main.tf", "# 3\n")).await;
        let told = || {
            let all = fake.pull(one).bot_comments().unwrap();
            all.iter().map(|said| Said::new(&said.body).marker["head"].clone()).collect::<Vec<_>>()
        };
        ctx.until("it tells the new head", async || told() == [fake.pull(one).head_commit().unwrap().as_str()]).await;
    });
}

#[test]
fn an_asked_for_plan_resets_votes_that_approve() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, "apply_requirements: [approved]").flags(&["--discard-approval-on-plan"]), async |ctx| {
        fake.connect(ctx).await;
        let one = fake.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, one, 0).await.is("plan", "success");
        fake.vote(one, "bob", 10).await;
        fake.vote(one, "carol", 5).await;
        fake.say(one, "bob", "atlantis plan").await;
        comment(ctx, &fake, one, 1).await.is("plan", "success");
        fake.say(one, "bob", "atlantis apply").await;
        comment(ctx, &fake, one, 2).await.is("apply", "failure").has("0 of 1 review");
        fake.vote(one, "bob", 10).await;
        fake.say(one, "bob", "atlantis apply").await;
        comment(ctx, &fake, one, 3).await.is("apply", "success");
    });
}

#[test]
fn a_lock_follows_a_repository_that_is_renamed() {
    let fake = AzureDevOpsFake::start();
    run_test(both(&fake, ""), async |ctx| {
        fake.connect(ctx).await;
        let one = fake.open("one", ("main.tf", "# 2\n")).await;
        comment(ctx, &fake, one, 0).await.is("plan", "success");
        let held = async || {
            let all = ctx.json("/api/locks").await;
            let rows = all["Locks"].as_array().cloned().unwrap_or_default();
            rows.iter().map(|row| row["ProjectRepo"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(held().await, [FULL_NAME]);
        ctx.quiet().await;
        // Its former name is unknown to the host; the next delivery names the same id.
        fake.forge.transfer("DefaultCollection/Cloud Infra/live", "DefaultCollection/Cloud Infra/net").unwrap();
        let pull = fake.forge.repo("DefaultCollection/Cloud Infra/net").pull(one);
        pull.comment("bob", "atlantis plan").unwrap();
        ctx.until("it follows", async || held().await == ["defaultcollection/Cloud Infra/net"]).await;
    });
}
