//! A merge queue: the commit of each entry gets the statuses of its pull requests.

use crate::support::*;

fn setup() -> Setup {
    Setup::projects(&["a", "b"]).steps(&[PLANNED], &["true"])
}

#[test]
fn an_entry_gets_what_its_pull_request_has_come_to() {
    run_test(setup(), async |ctx| {
        let pull = ctx.open_dirs("one", &["a"]).await;
        ctx.next(&pull).await.is("plan", "success");
        let entry = pull.enqueue(None).await.unwrap();
        ctx.status_of(&entry, "atlantis/plan", "success", "#1 planned").await;
        ctx.status_of(&entry, "atlantis/apply", "failure", "#1: 0/1 applied").await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        let entry = pull.enqueue(None).await.unwrap();
        ctx.status_of(&entry, "atlantis/plan", "success", "#1 planned").await;
        ctx.status_of(&entry, "atlantis/apply", "success", "#1 applied").await;
        // The same delivery again, to a restarted server: nothing is judged twice.
        ctx.quiet().await;
        let asked = ctx.forge.deliveries().into_iter().rfind(|one| one.event == "merge_group").unwrap();
        ctx.server.restart().await;
        ctx.forge.redeliver(asked.id).unwrap();
        ctx.quiet().await;
        assert!(ctx.forge.deliveries().last().unwrap().answer.contains("known already"));
        // A pull request without projects passes.
        let prose = ctx.open("prose", &[("README.md", "words\n")]).await;
        ctx.status(&prose, "atlantis/plan", "success", "0/0").await;
        let entry = prose.enqueue(None).await.unwrap();
        ctx.status_of(&entry, "atlantis/plan", "success", "#2 planned").await;
        ctx.status_of(&entry, "atlantis/apply", "success", "#2 applied").await;
    });
}

#[test]
fn an_entry_waits_for_the_commands_of_its_pull_request() {
    let steps = Setup::projects(&["a"]).steps(&[&gate("plan"), PLANNED], &["true"]);
    run_test(steps, async |ctx| {
        let pull = ctx.open_dirs("one", &["a"]).await;
        ctx.reached("plan", 1).await;
        let entry = pull.enqueue(None).await.unwrap();
        ctx.forge.wait_for_deliveries(LIMIT).await.unwrap();
        assert!(ctx.repo.statuses_of(&entry).unwrap().is_empty());
        // `cancel` by a person stops the plan, and not the queue.
        pull.comment("bob", "atlantis cancel").unwrap();
        let said = [ctx.next(&pull).await, ctx.next(&pull).await];
        assert!(said.iter().any(|said| said.marker["message"] == "cancelled"));
        ctx.status_of(&entry, "atlantis/plan", "failure", "#1: ").await;
        ctx.open_gate("plan");
    });
}

#[test]
fn an_entry_stands_for_those_below_it() {
    run_test(setup(), async |ctx| {
        let one = ctx.open_dirs("one", &["a"]).await;
        ctx.next(&one).await.is("plan", "success");
        let two = ctx.open_dirs("two", &["b"]).await;
        ctx.next(&two).await.is("plan", "success");
        ctx.say(&one, "atlantis apply").await.is("apply", "success");
        let below = two.enqueue(None).await.unwrap();
        let above = one.enqueue(Some(&below)).await.unwrap();
        ctx.status_of(&above, "atlantis/plan", "success", "#1, #2 planned").await;
        ctx.status_of(&above, "atlantis/apply", "failure", "#2: 0/1 applied").await;
        ctx.say(&two, "atlantis apply").await.is("apply", "success");
        let below = two.enqueue(None).await.unwrap();
        let above = one.enqueue(Some(&below)).await.unwrap();
        ctx.status_of(&above, "atlantis/apply", "success", "#1, #2 applied").await;
        // Once the one below is merged it does not count any more, though its state is deleted.
        two.merge().await.unwrap();
        ctx.next(&two).await.is_message("cleanup");
        let above = one.enqueue(Some(&below)).await.unwrap();
        ctx.status_of(&above, "atlantis/apply", "success", "#1 applied").await;
    });
}

#[test]
fn what_is_below_an_entry_has_to_be_known() {
    run_test(setup().flags(&["--disable-autoplan"]), async |ctx| {
        let one = ctx.open_dirs("one", &["a"]).await;
        let entry = one.enqueue(None).await.unwrap();
        ctx.status_of(&entry, "atlantis/plan", "failure", "#1 is not planned at ").await;
        ctx.say(&one, "atlantis plan").await.is("plan", "success");
        ctx.say(&one, "atlantis apply").await.is("apply", "success");
        // An entry whose delivery never came.
        let two = ctx.open_dirs("two", &["b"]).await;
        let entry = one.enqueue(Some(&two.head_commit().unwrap())).await.unwrap();
        ctx.status_of(&entry, "atlantis/plan", "failure", "neither on main nor a known entry").await;
        ctx.status_of(&entry, "atlantis/apply", "failure", "neither on main nor a known entry").await;
        ctx.push(&one, "a/main.tf", &terraform("a", "later")).await;
        let entry = one.enqueue(None).await.unwrap();
        ctx.status_of(&entry, "atlantis/apply", "failure", "#1 is not applied at ").await;
    });
}
