//! Stories of mode `strict` that every host plays.

use super::{FlowHost, Reader};
use crate::support::*;

pub(super) async fn an_apply_keeps_others_out_until_the_merge<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut one = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    one.next().await.is("plan", "success");
    let (first, mut two) =
        (format!("{}{}", H::MARK, one.number), Reader::open(ctx, host, "two", ("other.tf", "# 2\n")).await);
    two.next().await.is("plan", "success").has(&format!("is also changed by {first}, which planned it"));
    one.next_of_all().await.is_message("also_changed").has(&format!("{}{} also changes", H::MARK, two.number));
    one.say("atlantis apply").await.is("apply", "success");
    two.next().await.is_message("plans_fell").has(&format!("{first} changes the same"));
    two.say("atlantis plan").await.is("plan", "success").has(&format!("a preview: {first} must be merged first"));
    let said = two.say("atlantis apply").await;
    said.is("apply", "failure").because("locked").has(&first).has("`atlantis unlock --accept-drift -m \"why\"`");
    host.merge_one(ctx, one.number).await;
    two.next().await.is_message("plans_fell").has("`main` has moved to").has("The server plans it again");
    two.next().await.is_replan("success").has_not("a preview");
    assert!(ctx.locks().await.is_empty());
    assert_eq!(ctx.lines("applied"), 1);
}

pub(super) async fn what_is_closed_after_an_apply_stays_owned<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut one = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    one.next().await.is("plan", "success");
    one.say("atlantis apply").await.is("apply", "success");
    host.close_one(ctx, one.number).await;
    one.next().await.is_message("owes").has("Closed after an apply");
    assert_eq!(ctx.locks().await.len(), 1);
    one.say("atlantis unlock --accept-drift -m \"reverted by hand\"").await.is_message("unlocked");
    assert!(ctx.locks().await.is_empty());
}

pub(super) async fn what_is_merged_without_an_apply_is_applied_after_it<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut one = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    one.next().await.is("plan", "success");
    host.merge_one(ctx, one.number).await;
    one.next().await.is_message("owes").has("Merged but not applied");
    one.say("atlantis apply").await.is("plan", "success").has("at the tip of `main`");
    one.say("atlantis apply").await.is("apply", "success");
    assert!(ctx.locks().await.is_empty());
    assert_eq!(ctx.lines("applied"), 1);
}

pub(super) async fn what_nobody_planned_is_owed_after_the_merge<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut one = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    host.merge_one(ctx, one.number).await;
    one.next().await.is_message("owes").has("Merged but not applied");
    one.say("atlantis apply").await.is("plan", "success");
    one.say("atlantis apply").await.is("apply", "success");
    assert!(ctx.locks().await.is_empty());
}

pub(super) async fn a_push_to_the_base_branch_invalidates_a_plan<H: FlowHost>(ctx: &Ctx, host: &H) {
    let mut one = Reader::open(ctx, host, "one", ("main.tf", "# 2\n")).await;
    one.next().await.is("plan", "success");
    host.push_to_main(ctx, ("other.tf", "# 2\n")).await;
    one.next().await.is_message("plans_fell").has("`main` has moved to").has("`atlantis plan`");
    one.next().await.is_replan("success");
    host.push_to_main(ctx, ("readme.md", "text")).await;
    ctx.quiet().await;
    assert_eq!(one.count(), 3);
    one.say("atlantis apply").await.is("apply", "success");
    assert_eq!(ctx.lines("applied"), 1);
}
