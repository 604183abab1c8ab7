//! Results of commands.

use super::*;

fn resource(action: ResourceAction, address: &str, attributes: &[&str]) -> ResourceChange {
    let attributes = attributes.iter().map(|a| (*a).to_owned()).collect();
    ResourceChange { action, address: address.to_owned(), attributes }
}

fn network_plan() -> JobOutcome {
    let plan = Planned {
        base_commit: Some("9d0e77c0000".to_owned()),
        resources: vec![
            resource(ResourceAction::Create, "google_compute_firewall.iap_ssh", &[]),
            resource(ResourceAction::Destroy, "google_compute_firewall.legacy_ssh", &[]),
            resource(ResourceAction::Update, "google_compute_subnetwork.apps[\"a|b\"]", &["private_ip_google_access"]),
        ],
        output: "  + line\n".repeat(12) + "\nPlan: 1 to add, 1 to change, 1 to destroy.",
        extra_args: vec!["-var".to_owned(), "x=y".to_owned()],
        ..planned(1, 1, 1)
    };
    JobOutcome {
        tool: Some("Terraform 1.11.4".to_owned()),
        ..job(CommandName::Plan, network(), Outcome::Planned(plan))
    }
}

fn one(outcome: JobOutcome) -> Reply {
    reply(outcome.command, results(vec![outcome]))
}

fn refused(command: CommandName, failure: Failure) -> String {
    read(&one(job(command, network(), Outcome::Failed(failure))), &options())
}

fn holder() -> Box<LockHolder> {
    let pull = PullId { number: 41, ..reply(CommandName::Plan, results(vec![])).pull };
    Box::new(LockHolder {
        pull,
        title: "Open SSH [through] IAP".to_owned(),
        url: "https://github.com/acme/infra/pull/41".to_owned(),
        user: "alice".to_owned(),
        since: "2026-08-22T10:00:00Z".parse().unwrap(),
    })
}

fn fault(reason: Reason, lines: usize) -> Fault {
    let output =
        "line\n".repeat(lines) + "╷\n│ Error: Reference to undeclared input variable\n│ \n│   on main.tf line 1\n╵\n";
    Fault { reason, message: "terraform plan: exit status 1".to_owned(), output }
}

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

    [Log and history](https://tide.example/jobs/ab12) · This project is now locked by this pull request ([lock](https://tide.example/lock?id=acme%2Finfra%2Finfra%2Fnetwork%2Fprod%2Fnetwork)).
    ");
    assert_snapshot!(marker_of(&one(network_plan())), @r#"<!-- tidelock:{"v":1,"run":"0123456789abcdef0123456789abcdef","part":1,"parts":1,"command":"plan","trigger":"comment","head":"3f2c1abd00000000000000000000000000000000","results":[{"cmd":"plan","dir":"infra/network","workspace":"prod","project":"network","outcome":"success","plan":{"add":1,"change":1,"destroy":1,"import":0}}]} -->"#);
}

#[test]
fn one_plan_without_apply_locks_or_folding() {
    let options = RenderOptions { offer_apply: false, locking: false, disable_folding: true, ..options() };
    let plan = Planned { merged_again: true, saved: false, ..planned(3, 0, 0) };
    assert_snapshot!(read(&one(job(CommandName::Plan, unnamed("."), Outcome::Planned(plan))), &options), @r"
    ### Plan for dir `.` · workspace `default`

    **Plan: 3 to add, 0 to change, 0 to destroy** · commit 3f2c1ab · 12 s

    The base branch had moved: a new merge was made before planning.

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
    assert_snapshot!(said(PlanSummary::default()).lines().nth(2).unwrap(), @"**Planned**, but the output has no totals of Terraform · commit 3f2c1ab · 12 s");
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
fn several_plans() {
    let mut reply = reply(
        CommandName::Plan,
        results(vec![
            network_plan(),
            job(CommandName::Plan, unnamed("infra/dns"), Outcome::Planned(planned(0, 0, 0))),
            JobOutcome {
                silenced: true,
                ..job(CommandName::Plan, unnamed("silent"), Outcome::Planned(planned(1, 0, 0)))
            },
            job(CommandName::Plan, unnamed("infra/x"), Outcome::Errored(fault(Reason::Init, 0))),
            job(CommandName::Plan, unnamed("infra/y"), Outcome::Failed(Failure::Locked(holder()))),
        ]),
    );
    if let ReplyBody::Results(results) = &mut reply.body {
        results.remarks.push("The review by carol is of an earlier commit.".to_owned());
    }
    assert_snapshot!(read(&reply, &options()).replace("+ line\n", ""), @r"
    ### Planned 4 projects: 1 with changes, 1 without changes, 2 failed

    commit 3f2c1ab on top of `main` 9d0e77c

    | project | dir · workspace | result | changes | time |
    |---|---|---|---|---|
    |  | `infra/x` · `default` | ✗ plan failed: init |  | 12 s |
    |  | `infra/y` · `default` | ✗ locked by #41 |  | 12 s |
    | `network` | `infra/network` · `prod` | ⚠ destroys 1 resource | +1 ~1 -1 | 12 s |
    |  | `infra/dns` · `default` | no changes |  | 12 s |

    #### dir `infra/x` · workspace `default` · ✗ plan failed: init

    terraform plan: exit status 1

    ```
    ╷
    │ Error: Reference to undeclared input variable
    │ 
    │   on main.tf line 1
    ╵
    ```

    When it is mended: `atlantis plan -d infra/x`

    [Log and history](https://tide.example/jobs/ab12)

    #### dir `infra/y` · workspace `default` · ✗ locked by #41

    `infra/y` (workspace `default`) is locked by [#41 Open SSH &#91;through&#93; IAP](https://github.com/acme/infra/pull/41) since 2 h, planned by alice.

    It gets free when #41 is merged or closed, or with `atlantis unlock` there. Then: `atlantis plan -d infra/y` · see [the lock](https://tide.example/lock?id=acme%2Finfra%2Finfra%2Fy%2Fdefault%2F)

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

    To apply: `atlantis apply -d infra/dns` · to plan again: `atlantis plan -d infra/dns`

    [Log and history](https://tide.example/jobs/ab12)

    </details>

    ---
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
fn a_silenced_run_says_nothing() {
    let silent = JobOutcome { silenced: true, ..network_plan() };
    assert!(render(&one(silent), &options()).is_empty());
}

#[test]
fn refusals_name_the_blocker_and_the_next_command() {
    assert_snapshot!(refused(CommandName::Plan, Failure::Locked(holder())), @r"
    ### Plan for `network` waits for #41 · dir `infra/network` · workspace `prod`

    `infra/network` (workspace `prod`) is locked by [#41 Open SSH &#91;through&#93; IAP](https://github.com/acme/infra/pull/41) since 2 h, planned by alice.

    It gets free when #41 is merged or closed, or with `atlantis unlock` there. Then: `atlantis plan -p network` · see [the lock](https://tide.example/lock?id=acme%2Finfra%2Finfra%2Fnetwork%2Fprod%2Fnetwork)

    [Log and history](https://tide.example/jobs/ab12)
    ");
    let check = |name: &str, met, detail: &str| RequirementCheck { name: name.into(), met, detail: detail.into() };
    let checks = vec![
        check("mergeable", true, ""),
        check("approved", false, "0 of 1 review; alice's own does not count"),
        check("undiverged", false, "`main` has 2 newer commits"),
    ];
    assert_snapshot!(refused(CommandName::Apply, Failure::Requirements(checks)), @r"
    ### Apply of `network` refused: not approved, behind its base branch (diverged) · dir `infra/network` · workspace `prod`

    - ✓ mergeable
    - ✗ approved: 0 of 1 review; alice's own does not count
    - ✗ undiverged: `main` has 2 newer commits

    Then: `atlantis apply -p network`

    [Log and history](https://tide.example/jobs/ab12)
    ");
    let missing = vec!["dns".to_owned(), "the net".to_owned()];
    assert_snapshot!(refused(CommandName::Apply, Failure::Dependency { missing }), @r"
    ### Apply of `network` refused: a project that it depends on is not applied · dir `infra/network` · workspace `prod`

    2 projects that it depends on are not applied. First: `atlantis apply -p dns`, `atlantis apply -p 'the net'`

    Then: `atlantis apply -p network`

    [Log and history](https://tide.example/jobs/ab12)
    ");
    assert_snapshot!(refused(CommandName::Apply, Failure::StalePlan { because: "It is for commit 1234567.".into() }), @r"
    ### Apply of `network` refused: the plan is stale · dir `infra/network` · workspace `prod`

    It is for commit 1234567.

    Plan first: `atlantis plan -p network`

    [Log and history](https://tide.example/jobs/ab12)
    ");
    assert_snapshot!(refused(CommandName::Apply, Failure::NoPlan { because: String::new() }), @r"
    ### Apply of `network` refused: there is no plan · dir `infra/network` · workspace `prod`

    There is no plan of it that could be applied.

    Plan first: `atlantis plan -p network`

    [Log and history](https://tide.example/jobs/ab12)
    ");
    assert_snapshot!(refused(CommandName::Plan, Failure::Cancelled { by: "alice said `atlantis cancel`".into() }), @r"
    ### Plan for `network` was cancelled · dir `infra/network` · workspace `prod`

    It was cancelled: alice said `atlantis cancel`.

    Then: `atlantis plan -p network`

    [Log and history](https://tide.example/jobs/ab12)
    ");
    assert_snapshot!(refused(CommandName::Plan, Failure::EarlierGroupFailed), @r"
    ### Plan for `network` refused: an earlier group failed · dir `infra/network` · workspace `prod`

    A project of an earlier execution order group failed, so this one did not start. Mend that one first.

    Then: `atlantis plan -p network`

    [Log and history](https://tide.example/jobs/ab12)
    ");
}

#[test]
fn errors_show_their_own_lines_in_front_of_the_log() {
    let said = |fault| read(&one(job(CommandName::Plan, network(), Outcome::Errored(fault))), &options());
    assert_snapshot!(said(fault(Reason::Init, 50)).replace("line\n", ""), @r"
    ### Plan for `network` failed: init · dir `infra/network` · workspace `prod` · 12 s

    terraform plan: exit status 1

    ```
    ╷
    │ Error: Reference to undeclared input variable
    │ 
    │   on main.tf line 1
    ╵
    ```

    <details><summary>Whole log (55 lines)</summary>

    ```
    ╷
    │ Error: Reference to undeclared input variable
    │ 
    │   on main.tf line 1
    ╵
    ```

    </details>

    When it is mended: `atlantis plan -p network`

    [Log and history](https://tide.example/jobs/ab12)
    ");
    assert_snapshot!(said(fault(Reason::Plan, 0)).lines().next().unwrap(), @"### Plan for `network` failed · dir `infra/network` · workspace `prod` · 12 s");
}

#[test]
fn interrupted_applies_say_how_to_see_what_is_left() {
    let fault = Fault {
        reason: Reason::Interrupted,
        message: "The server was told to stop; Terraform stopped by itself (exit 1).".into(),
        output: String::new(),
    };
    assert_snapshot!(read(&one(job(CommandName::Apply, network(), Outcome::Errored(fault))), &options()), @r"
    ### Apply of `network` was interrupted after 12 s · dir `infra/network` · workspace `prod`

    The server was told to stop; Terraform stopped by itself (exit 1).

    See what is left: `atlantis plan -p network`

    [Log and history](https://tide.example/jobs/ab12)
    ");
}

#[test]
fn a_command_that_broke_before_any_project() {
    let message = "atlantis.yaml: projects[0].dir: cannot contain '..'\nline 3, column 5".to_owned();
    let reply = reply(
        CommandName::Plan,
        ReplyBody::CommandError(Fault { reason: Reason::Config, message, output: String::new() }),
    );
    assert_snapshot!(read(&reply, &options()), @r"
    ### Plan failed: configuration

    atlantis.yaml: projects[0].dir: cannot contain '..'

    ```
    line 3, column 5
    ```

    When it is mended: `atlantis plan`
    ");
    assert_snapshot!(marker_of(&reply), @r#"<!-- tidelock:{"v":1,"run":"0123456789abcdef0123456789abcdef","part":1,"parts":1,"command":"plan","trigger":"comment","head":"3f2c1abd00000000000000000000000000000000","results":[{"cmd":"plan","outcome":"error","reason":"config","scope":"command"}]} -->"#);
}

#[test]
fn applies() {
    let applied = |project| {
        let output = "x: Creating...\n".repeat(20)
            + "Apply complete! Resources: 1 added, 1 changed, 0 destroyed.\n\nOutputs:\n\nip = \"10.0.0.1\"\n";
        job(CommandName::Apply, project, Outcome::Applied(Applied { added: 1, changed: 1, destroyed: 0, output }))
    };
    assert_snapshot!(read(&one(applied(network())), &options()).replace("x: Creating...\n", ""), @r#"
    ### Applied `network`: 1 added, 1 changed, 0 destroyed · dir `infra/network` · workspace `prod` · 12 s

    ```
    Outputs:

    ip = "10.0.0.1"
    ```

    <details><summary>Log (25 lines)</summary>

    ```
    Apply complete! Resources: 1 added, 1 changed, 0 destroyed.

    Outputs:

    ip = "10.0.0.1"
    ```

    </details>

    [Log and history](https://tide.example/jobs/ab12)
    "#);
    let broken = Fault { output: String::new(), ..fault(Reason::Apply, 0) };
    let reply = reply(
        CommandName::Apply,
        results(vec![applied(network()), job(CommandName::Apply, unnamed("b"), Outcome::Errored(broken))]),
    );
    assert_snapshot!(read(&reply, &options()).replace("x: Creating...\n", ""), @r#"
    ### Applied 2 projects: 1 successful, 1 errored

    | project | dir · workspace | result | changes | time |
    |---|---|---|---|---|
    |  | `b` · `default` | ✗ apply failed |  | 12 s |
    | `network` | `infra/network` · `prod` | ✓ applied | +1 ~1 -0 | 12 s |

    #### dir `b` · workspace `default` · ✗ apply failed

    terraform plan: exit status 1

    See what is left: `atlantis plan -d b`

    [Log and history](https://tide.example/jobs/ab12)

    #### `network` · ✓ applied

    **1 added, 1 changed, 0 destroyed** · dir `infra/network` · workspace `prod` · 12 s

    ```
    Outputs:

    ip = "10.0.0.1"
    ```

    <details><summary>Log (25 lines)</summary>

    ```
    Apply complete! Resources: 1 added, 1 changed, 0 destroyed.

    Outputs:

    ip = "10.0.0.1"
    ```

    </details>

    [Log and history](https://tide.example/jobs/ab12)
    "#);
}

#[test]
fn other_commands_show_their_output() {
    let ran = |command, output: &str| {
        read(&one(job(command, unnamed("b"), Outcome::Ran { output: output.into() })), &options())
    };
    assert_snapshot!(ran(CommandName::Import, "Import successful!"), @r"
    ### Imported into dir `b` · workspace `default` · 12 s

    ```
    Import successful!
    ```

    The state has changed, so plan again: `atlantis plan -d b`

    [Log and history](https://tide.example/jobs/ab12)
    ");
    assert_snapshot!(ran(CommandName::Version, "Terraform v1.11.4").lines().next().unwrap(), @"### Version for dir `b` · workspace `default` · 12 s");
}

#[test]
fn long_output_is_split_and_every_part_has_its_marker() {
    let plan = Planned { output: "  + a line of the plan\n".repeat(200) + "the end", ..planned(130, 0, 0) };
    let reply = one(job(CommandName::Plan, network(), Outcome::Planned(plan)));
    let options = RenderOptions { comment_limit: 2000, ..options() };
    let comments = render(&reply, &options);
    assert!(comments.len() > 2);
    for (i, comment) in comments.iter().enumerate() {
        assert!(comment.chars().count() <= 2000);
        let marker = marker::parse(comment).unwrap();
        assert_eq!(
            (marker["part"].as_u64(), marker["parts"].as_u64()),
            (Some(i as u64 + 1), Some(comments.len() as u64))
        );
    }
    assert_eq!(comments.concat().matches("+ a line of the plan").count(), 200);
    assert!(comments.concat().contains("the end"));
    assert!(comments.concat().contains("`atlantis apply -p network`"));
}

#[test]
fn a_cap_on_comments_leaves_out_the_middle_of_the_output() {
    let plan = Planned { output: "  + a line of the plan\n".repeat(2000) + "the end", ..planned(130, 0, 0) };
    let reply = one(job(CommandName::Plan, network(), Outcome::Planned(plan)));
    let options = RenderOptions { comment_limit: 3000, max_comments: 2, ..options() };
    let comments = render(&reply, &options);
    assert_eq!(comments.len(), 2);
    let said = comments.concat();
    assert!(said.contains("characters are left out here; the whole log: https://tide.example/jobs/ab12"));
    assert!(said.contains("the end") && said.contains("`atlantis apply -p network`"));
}

#[test]
fn a_comment_that_the_host_refuses_as_too_long_is_cut() {
    let plan = Planned { output: "  + a line of the plan\n".repeat(500), ..planned(1, 0, 0) };
    let comment = render(&one(job(CommandName::Plan, network(), Outcome::Planned(plan))), &options()).remove(0);
    let short = shortened(&comment, 4000);
    assert!(short.chars().count() < 4000);
    assert!(short.contains("The host refused the whole of it as too long"));
    assert_eq!(marker::last_line(&short), marker::last_line(&comment));
}

#[test]
fn results_that_do_not_fit_the_marker_are_cut() {
    let many =
        (0..100).map(|i| job(CommandName::Plan, unnamed(&format!("dir-{i}")), Outcome::Planned(planned(1, 0, 0))));
    let reply = reply(CommandName::Plan, results(many.collect()));
    let line = marker_of(&reply);
    assert!(line.len() <= marker::MAX_MARKER, "{}", line.len());
    let marker = marker::parse(&line).unwrap();
    assert_eq!(marker["truncated"], true);
    assert!(marker["results"].as_array().unwrap().len() > 20);
}
