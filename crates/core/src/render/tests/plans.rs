//! Tests of plans, one and several.

use super::*;
use crate::domain::guards::{GuardPass, TrippedGuard};

#[test]
fn one_plan() {
    assert_snapshot!(read(&one(network_plan()), &options()).replace("+ line\n", ""), @r"
    ### Plan for `network` · dir `infra/network` · workspace `prod`

    **Plan: 1 to add, 1 to change, 1 to destroy** — ⚠ destroys 1 resource · commit 3f2c1ab on top of `main` 9d0e77c · Terraform 1.11.4 · 12 s

    | | |
    |---|---|
    | **destroy** | `google_compute_firewall.legacy_ssh` |
    | **update** | <code>google_compute_subnetwork.apps&#91;&#34;a&#124;b&#34;&#93;</code> (`private_ip_google_access`) |
    | **create** | `google_compute_firewall.iap_ssh` |

    <details><summary>Full plan (14 lines)</summary>

    ```diff

    Plan: 1 to add, 1 to change, 1 to destroy.
    ```

    </details>

    To apply: `atlantis apply -p network` · to plan again: `atlantis plan -p network -- -var x=y` · to drop plan and lock: `atlantis unlock`

    [Log and history](https://tide.example/jobs/ab12) · This project is now locked by this pull request ([lock](https://tide.example/lock?id=github.com%2Facme%2Finfra%2Finfra%2Fnetwork%2Fprod%2Fnetwork)).
    ");
    assert_snapshot!(marker_of(&one(network_plan())), @r#"<!-- tidelock:{"v":1,"at":"2026-08-22T12:00:00.000Z","run":"0123456789abcdef0123456789abcdef","part":1,"parts":1,"command":"plan","trigger":"comment","head":"3f2c1abd00000000000000000000000000000000","results":[{"cmd":"plan","dir":"infra/network","workspace":"prod","project":"network","outcome":"success","plan":{"add":1,"change":1,"destroy":1,"import":0}}]} -->"#);
}

#[test]
fn one_plan_without_apply_locks_or_folding() {
    let options = RenderOptions { offer_apply: false, locking: false, disable_folding: true, ..options() };
    let plan = Planned { merged_again: true, saved: false, ..planned(3, 0, 0) };
    assert_snapshot!(read(&one(job(CommandName::Plan, unnamed("."), Outcome::Planned(plan))), &options), @r"
    ### Plan for dir `.` · workspace `default`

    **Plan: 3 to add, 0 to change, 0 to destroy** · commit 3f2c1ab · 12 s

    The base branch had moved, so the server merged it again before planning.

    The workflow has no built-in `plan` step, so there is no plan file: an apply runs the workflow's own steps.

    ```diff
    Plan: 3 to add, 0 to change, 0 to destroy.
    ```

    To plan again: `atlantis plan -d .` · to drop the plan: `atlantis unlock`

    [Log and history](https://tide.example/jobs/ab12)
    ");
}

#[test]
fn plans_without_changes_or_totals() {
    let plan = |summary| Planned { summary, saved: true, ..Planned::default() };
    let said = |summary| read(&one(job(CommandName::Plan, unnamed("."), Outcome::Planned(plan(summary)))), &options());
    let unchanged = PlanSummary { no_changes: true, changes_outside: true, ..PlanSummary::default() };
    assert_snapshot!(said(unchanged).lines().nth(2).unwrap(), @"**No changes** · commit 3f2c1ab · 12 s");
    let outputs = PlanSummary { outputs_only: true, ..PlanSummary::default() };
    assert_snapshot!(said(outputs).lines().nth(2).unwrap(), @"**Plan: Changes of outputs only** · commit 3f2c1ab · 12 s");
    assert_snapshot!(said(PlanSummary::default()).lines().nth(2).unwrap(), @"**Planned**, but the output has no Terraform totals · commit 3f2c1ab · 12 s");
    let import = PlanSummary { import: 2, add: 1, destroy: 1, forget: 3, ..PlanSummary::default() };
    assert_snapshot!(said(import).lines().nth(2).unwrap(), @"**Plan: 2 to import, 1 to add, 0 to change, 1 to destroy, 3 to forget** — ⚠ destroys 1 resource · commit 3f2c1ab · 12 s");
}

#[test]
fn ten_resources_of_each_action_are_listed() {
    let attributes = ["a", "b", "c", "d", "e", "f"];
    let mut resources: Vec<_> = (0..12).map(|i| resource(ResourceAction::Create, &format!("a.b[{i}]"), &[])).collect();
    resources.push(resource(ResourceAction::Replace, "c.d", &attributes));
    let plan = Planned { resources, ..planned(13, 0, 1) };
    let said = read(&one(job(CommandName::Plan, network(), Outcome::Planned(plan))), &options());
    let table: Vec<_> = said.lines().filter(|line| line.starts_with('|') || line.starts_with("**Plan")).collect();
    assert_snapshot!(table.join("\n"), @r"
    **Plan: 13 to add, 0 to change, 1 to destroy** — ⚠ replaces 1 resource · commit 3f2c1ab · 12 s
    | | |
    |---|---|
    | **replace** | `c.d` (forced by `a`, `b`, `c`, `d` and 2 more) |
    | **create** | `a.b[0]`<br>`a.b[1]`<br>`a.b[2]`<br>`a.b[3]`<br>`a.b[4]`<br>`a.b[5]`<br>`a.b[6]`<br>`a.b[7]`<br>`a.b[8]`<br>`a.b[9]`<br>and 2 more |
    ");
}

#[test]
fn several_failed_plans_are_not_called_planned() {
    let failed = |dir| job(CommandName::Plan, unnamed(dir), Outcome::Errored(fault(Reason::Plan, 0)));
    let said = read(&reply(CommandName::Plan, results(vec![failed("a"), failed("b")])), &options());
    assert!(said.starts_with("### Plan of 2 projects: 2 failed\n"), "{said}");
}

/// Returns the plan of a project that is silent in comments.
fn silenced_plan() -> JobOutcome {
    JobOutcome { silenced: true, ..job(CommandName::Plan, unnamed("silent"), Outcome::Planned(planned(1, 0, 0))) }
}

#[test]
fn several_plans() {
    let mut reply = reply(
        CommandName::Plan,
        results(vec![
            network_plan(),
            job(CommandName::Plan, unnamed("infra/dns"), Outcome::Planned(planned(0, 0, 0))),
            silenced_plan(),
            job(CommandName::Plan, unnamed("infra/x"), Outcome::Errored(fault(Reason::Init, 0))),
            job(CommandName::Plan, unnamed("infra/y"), Outcome::Failed(Failure::Locked(holder()))),
        ]),
    );
    if let ReplyBody::Results(results) = &mut reply.body {
        results.remarks.push("The review by carol is of an earlier commit.".to_owned());
    }
    assert_snapshot!(read(&reply, &options()).replace("+ line\n", ""), @r"
    ### Planned 4 projects: 1 with changes, 1 without changes, 1 failed, 1 locked by others

    Together: 1 to add, 1 to change, 1 to destroy

    commit 3f2c1ab on top of `main` 9d0e77c

    | project | dir · workspace | result | changes | time |
    |---|---|---|---|---|
    |  | `infra/x` · `default` | [✗ plan failed: init](https://tide.example/jobs/ab12) |  | 12 s |
    |  | `infra/y` · `default` | [✗ locked by #41](https://tide.example/jobs/ab12) |  | 12 s |
    | `network` | `infra/network` · `prod` | [⚠ destroys 1 resource](https://tide.example/jobs/ab12) | +1 ~1 -1 | 12 s |
    |  | `infra/dns` · `default` | [no changes](https://tide.example/jobs/ab12) |  | 12 s |

    #### dir `infra/x` · workspace `default` · ✗ plan failed: init: Reference to undeclared input variable

    terraform plan: exit status 1

    ```
    ╷
    │ Error: Reference to undeclared input variable
    │ 
    │   on main.tf line 1
    ╵
    ```

    After the fix, comment: `atlantis plan -d infra/x`

    [Log and history](https://tide.example/jobs/ab12)

    #### dir `infra/y` · workspace `default` · ✗ locked by #41

    `infra/y` (workspace `default`) was locked 2 h ago by [#41 Open SSH &#91;through&#93; IAP](https://github.com/acme/infra/pull/41) (planned by alice).

    The lock is released when #41 is merged or closed, or by `atlantis unlock` there. When the lock is released: `atlantis plan -d infra/y` · see [the lock](https://tide.example/lock?id=github.com%2Facme%2Finfra%2Finfra%2Fy%2Fdefault%2F)

    [Log and history](https://tide.example/jobs/ab12)

    #### `network` · ⚠ destroys 1 resource

    **Plan: 1 to add, 1 to change, 1 to destroy** — ⚠ destroys 1 resource · dir `infra/network` · workspace `prod` · Terraform 1.11.4 · 12 s

    | | |
    |---|---|
    | **destroy** | `google_compute_firewall.legacy_ssh` |
    | **update** | <code>google_compute_subnetwork.apps&#91;&#34;a&#124;b&#34;&#93;</code> (`private_ip_google_access`) |
    | **create** | `google_compute_firewall.iap_ssh` |

    <details><summary>Full plan (14 lines)</summary>

    ```diff

    Plan: 1 to add, 1 to change, 1 to destroy.
    ```

    </details>

    To apply: `atlantis apply -p network` · to plan again: `atlantis plan -p network -- -var x=y`

    [Log and history](https://tide.example/jobs/ab12)

    <details><summary>dir <code>infra/dns</code> · workspace <code>default</code> · No changes</summary>

    **No changes** · 12 s

    ```diff
    Plan: 0 to add, 0 to change, 0 to destroy.
    ```

    To plan again: `atlantis plan -d infra/dns` · to confirm that there is nothing to apply: `atlantis apply -d infra/dns`

    [Log and history](https://tide.example/jobs/ab12)

    </details>

    ---
    To apply what is planned: `atlantis apply -p network`

    To drop all plans and locks: `atlantis unlock`

    These projects are now locked by this pull request.

    The review by carol is of an earlier commit.
    ");
    let hidden = RenderOptions { hide_unchanged: true, ..options() };
    assert!(!read(&reply, &hidden).contains("<summary>dir"));
    assert_eq!(read(&reply, &hidden).matches("infra/dns").count(), 1, "the table still has it");
}

#[test]
fn everything_can_be_applied_only_if_all_of_it_is_planned() {
    let plans = vec![network_plan(), job(CommandName::Plan, unnamed("b"), Outcome::Planned(planned(1, 0, 0)))];
    let said = read(&reply(CommandName::Plan, results(plans.clone())), &options());
    assert!(said.contains("To apply all of it: `atlantis apply` · to drop all plans and locks: `atlantis unlock`"));
    let no_all = RenderOptions { offer_apply_all: false, ..options() };
    assert!(!read(&reply(CommandName::Plan, results(plans)), &no_all).contains("`atlantis apply`"));
}

#[test]
fn what_would_change_nothing_is_not_offered_to_be_applied() {
    let unchanged = |dir| job(CommandName::Plan, unnamed(dir), Outcome::Planned(planned(0, 0, 0)));
    let said = read(&one(unchanged("a")), &options());
    assert!(said.contains("To plan again: `atlantis plan -d a`") && !said.contains("To apply"), "{said}");
    assert!(said.contains("to confirm that there is nothing to apply: `atlantis apply -d a`"), "{said}");
    let all = read(&reply(CommandName::Plan, results(vec![unchanged("a"), unchanged("b")])), &options());
    assert!(!all.contains("To apply"), "{all}");
}

#[test]
fn what_a_pull_request_does_not_change_is_not_offered_to_be_applied() {
    let preview =
        |dir| job(CommandName::Plan, unnamed(dir), Outcome::Planned(Planned { preview: true, ..planned(1, 0, 0) }));
    assert!(!read(&one(preview("a")), &options()).contains("atlantis apply"));
    let all = reply(CommandName::Plan, results(vec![preview("a"), preview("b")]));
    assert!(!read(&all, &options()).contains("atlantis apply"));
}

#[test]
fn what_would_be_refused_is_not_offered_to_be_applied() {
    let held = |dir, held| {
        job(CommandName::Plan, unnamed(dir), Outcome::Planned(Planned { held: Some(held), ..planned(1, 0, 0) }))
    };
    let free = || job(CommandName::Plan, unnamed("free"), Outcome::Planned(planned(1, 0, 0)));
    for hold in [PlanHold::Owned, PlanHold::Guards, PlanHold::Policies, PlanHold::Dependency] {
        let said = read(&one(held("a", hold)), &options());
        assert!(!said.contains("To apply"), "{hold:?}");
        let later = "when its policies pass or are approved, to apply: `atlantis apply -d a`";
        assert_eq!(said.contains("atlantis apply"), hold == PlanHold::Policies && said.contains(later), "{said}");
        let all = read(&reply(CommandName::Plan, results(vec![held("a", hold), free()])), &options());
        assert!(!all.contains("To apply: `atlantis apply -d a`") && all.contains("`atlantis apply -d free`"), "{all}");
        // Dependencies are applied first, by the same command.
        assert_eq!(all.contains("To apply all of it: `atlantis apply`"), hold == PlanHold::Dependency, "{all}");
    }
}

#[test]
fn tripped_guards_are_told_before_the_plan_with_their_way_out() {
    let guard = |name: &str, who: &str, passed| TrippedGuard {
        name: name.into(),
        findings: vec!["`a.b[\"@all <b>\"]` would be destroyed (`protect: a`)".into(), "<i>*x*".into()],
        more: 3,
        of_code: false,
        who: who.into(),
        passed,
    };
    let pass = Some(GuardPass { by: "carol".into(), why: "the *move*".into() });
    let guards = vec![guard("data", "carol or team sre", None), guard("code", "carol", pass), guard("few", "", None)];
    let tripped = Planned { guards, held: Some(PlanHold::Guards), ..planned(1, 0, 1) };
    let said = read(&one(job(CommandName::Plan, unnamed("net"), Outcome::Planned(tripped))), &options());
    let (guards, _) = said.split_once("**Plan: ").unwrap();
    let (_, guards) = guards.split_once("\n\n").unwrap();
    assert_snapshot!(guards.trim(), @r"
    **✗ Guard `data` refuses an apply**
    - <code>a.b&#91;&#34;&#64;all &#60;b&#62;&#34;&#93;</code> would be destroyed (`protect: a`)
    - &#60;i&#62;&#42;x&#42;
    - and 3 more

    Only carol or team sre may override it: `atlantis apply -d net --override data -m 'why'`

    **⚠ Guard `code`, overridden by carol** (reason: the &#42;move&#42;)
    - <code>a.b&#91;&#34;&#64;all &#60;b&#62;&#34;&#93;</code> would be destroyed (`protect: a`)
    - &#60;i&#62;&#42;x&#42;
    - and 3 more

    **✗ Guard `few` refuses an apply**
    - <code>a.b&#91;&#34;&#64;all &#60;b&#62;&#34;&#93;</code> would be destroyed (`protect: a`)
    - &#60;i&#62;&#42;x&#42;
    - and 3 more

    Nobody may override it. Change the code, or ask an operator.
    ");
    assert!(!said.contains("To apply"), "{said}");
}

/// They are named in one line, and are no results of their own.
#[test]
fn what_did_not_start_because_an_earlier_group_failed_is_told_in_one_line() {
    let held = |dir: String| job(CommandName::Plan, unnamed(&dir), Outcome::Failed(Failure::EarlierGroupFailed));
    let broken = job(CommandName::Plan, network(), Outcome::Errored(fault(Reason::Plan, 1)));
    let mut outcomes = vec![broken];
    outcomes.extend((0..51).map(|n| held(format!("d{n}"))));
    let comments = render(&reply(CommandName::Plan, results(outcomes)), &options());
    let said = &comments[0];
    assert!(said.starts_with("### Plan for `network` failed"), "{said}");
    let names =
        "Not started, as an earlier group failed: dir `d0` · workspace `default`, dir `d1` · workspace `default`, ";
    assert!(said.contains(names) && said.contains(" and 1 more. After the fix, comment: `atlantis plan`"), "{said}");
    assert_eq!(said.matches("\"outcome\":").count(), 1, "{said}");
    // If the comment has nothing else, they are results.
    let mut silenced = job(CommandName::Plan, network(), Outcome::Errored(fault(Reason::Plan, 1)));
    silenced.silenced = true;
    let said = read(&reply(CommandName::Plan, results(vec![silenced, held("a".into())])), &options());
    assert!(said.contains("refused: an earlier group failed") && !said.contains("Not started"), "{said}");
}

#[test]
fn only_so_many_applies_are_offered_one_by_one() {
    let plan = |n: usize| job(CommandName::Plan, unnamed(&format!("d{n}")), Outcome::Planned(planned(1, 0, 0)));
    let mut outcomes: Vec<_> = (0..12).map(plan).collect();
    outcomes.push(job(CommandName::Plan, unnamed("x"), Outcome::Failed(Failure::Locked(holder()))));
    let said = read(&reply(CommandName::Plan, results(outcomes)), &options());
    assert!(said.contains("To apply what is planned: `atlantis apply -d d0`, `atlantis apply -d d1`, "), "{said}");
    assert!(said.contains("`atlantis apply -d d9` and 2 more"), "{said}");
    assert!(said.contains("Together: 12 to add, 0 to change, 0 to destroy"), "{said}");
}

#[test]
fn commits_lead_to_their_page_on_the_host() {
    let address = CommitAddress::below("https://github.com");
    let said = read(&one(network_plan()), &RenderOptions { commit_address: Some(address), ..options() });
    let head = format!("commit [3f2c1ab](https://github.com/acme/infra/commit/{HEAD}) on top of `main` ");
    assert!(said.contains(&(head + "[9d0e77c](https://github.com/acme/infra/commit/9d0e77c0000)")), "{said}");
}

#[test]
fn markers_of_a_plan_are_coloured_at_every_depth() {
    let plan = Planned { output: "  ~ resource \"a\" \"b\" {\n      ~ x = 1 -> 2\n    }\n".into(), ..planned(0, 1, 0) };
    let said = |diff_format| {
        let reply = one(job(CommandName::Plan, network(), Outcome::Planned(plan.clone())));
        read(&reply, &RenderOptions { diff_format, ..options() })
    };
    assert!(said(true).contains("\n!   resource \"a\" \"b\" {\n!       x = 1 -> 2\n"), "{}", said(true));
    assert!(said(false).contains("\n~ resource \"a\" \"b\" {\n      ~ x = 1 -> 2\n"), "{}", said(false));
}

#[test]
fn a_silenced_run_says_nothing() {
    let silent = JobOutcome { silenced: true, ..network_plan() };
    assert!(render(&one(silent), &options()).is_empty());
}
