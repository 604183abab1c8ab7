//! Tests of refusals, errors, applies and other commands.

use super::*;

#[test]
fn refusals_name_the_blocker_and_the_next_command() {
    assert_snapshot!(render_failure(CommandName::Plan, Failure::Locked(holder())), @r"
    ### Plan for `network` waits for #41 · dir `infra/network` · workspace `prod`

    `infra/network` (workspace `prod`) was locked 2 h ago by [#41 Open SSH &#91;through&#93; IAP](https://github.com/acme/infra/pull/41) (planned by alice).

    The lock is released when #41 is merged or closed, or by `atlantis unlock` there. When the lock is released: `atlantis plan -p network` · see [the lock](https://tide.example/lock?id=github.com%2Facme%2Finfra%2Finfra%2Fnetwork%2Fprod%2Fnetwork)

    [Log and history](https://tide.example/jobs/ab12)
    ");
    let check = |name: &str, met, detail: &str| RequirementCheck { name: name.into(), met, detail: detail.into() };
    let checks = vec![
        check("mergeable", true, ""),
        check("approved", false, "0 of 1 review; alice's own does not count"),
        check("undiverged", false, "`main` has 2 newer commits"),
    ];
    assert_snapshot!(render_failure(CommandName::Apply, Failure::Requirements(checks)), @r"
    ### Apply of `network` refused: not approved, behind its base branch (diverged) · dir `infra/network` · workspace `prod`

    - ✓ mergeable
    - ✗ approved: 0 of 1 review; alice's own does not count
    - ✗ undiverged: `main` has 2 newer commits

    [Log and history](https://tide.example/jobs/ab12) · after you update the branch:

    ```shell
    atlantis plan -p network
    ```
    ");
    let missing = vec!["dns".to_owned(), "the net".to_owned()];
    assert_snapshot!(render_failure(CommandName::Apply, Failure::Dependency { missing }), @r"
    ### Apply of `network` refused: a project that it depends on is not applied · dir `infra/network` · workspace `prod`

    2 projects that it depends on are not applied. First: `atlantis apply -p dns`, `atlantis apply -p 'the net'`

    [Log and history](https://tide.example/jobs/ab12) · when this is resolved:

    ```shell
    atlantis apply -p network
    ```
    ");
    assert_snapshot!(render_failure(CommandName::Apply, Failure::StalePlan { because: "It is for commit 1234567.".into() }), @r"
    ### Apply of `network` refused: the plan is stale · dir `infra/network` · workspace `prod`

    It is for commit 1234567.

    [Log and history](https://tide.example/jobs/ab12) · plan first:

    ```shell
    atlantis plan -p network
    ```
    ");
    assert_snapshot!(render_failure(CommandName::Apply, Failure::NoPlan { because: String::new() }), @r"
    ### Apply of `network` refused: there is no plan · dir `infra/network` · workspace `prod`

    There is no plan that can be applied.

    [Log and history](https://tide.example/jobs/ab12) · plan first:

    ```shell
    atlantis plan -p network
    ```
    ");
    assert_snapshot!(render_failure(CommandName::Plan, Failure::Cancelled { by: "alice said `atlantis cancel`".into() }), @r"
    ### Plan for `network` was cancelled · dir `infra/network` · workspace `prod`

    It was cancelled: alice said `atlantis cancel`.

    [Log and history](https://tide.example/jobs/ab12) · to run it again:

    ```shell
    atlantis plan -p network
    ```
    ");
    assert_snapshot!(render_failure(CommandName::Plan, Failure::EarlierGroupFailed), @r"
    ### Plan for `network` refused: an earlier group failed · dir `infra/network` · workspace `prod`

    A project of an earlier execution order group failed, so this project did not start. Fix the failed project first.

    [Log and history](https://tide.example/jobs/ab12) · when this is resolved:

    ```shell
    atlantis plan -p network
    ```
    ");
}

#[test]
fn errors_show_their_own_lines_in_front_of_the_log() {
    let said = |fault| read(&one(job(CommandName::Plan, network(), Outcome::Errored(fault))), &options());
    assert_snapshot!(said(fault(Reason::Init, 50)).replace("line\n", ""), @r"
    ### Plan for `network` failed at init: Reference to undeclared input variable · dir `infra/network` · workspace `prod` · 12 s

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

    [Log and history](https://tide.example/jobs/ab12) · after the fix, comment:

    ```shell
    atlantis plan -p network
    ```
    ");
    assert_snapshot!(said(fault(Reason::Plan, 0)).lines().next().unwrap(), @"### Plan for `network` failed: Reference to undeclared input variable · dir `infra/network` · workspace `prod` · 12 s");
}

#[test]
fn interrupted_applies_say_how_to_see_what_is_left() {
    let fault = Fault {
        reason: Reason::Interrupted,
        message: "terraform: interrupted by alice after 12 s (exit status 1). A new plan shows what is left".into(),
        output: String::new(),
    };
    assert_snapshot!(read(&one(job(CommandName::Apply, network(), Outcome::Errored(fault))), &options()), @r"
    ### Apply of `network` was interrupted after 12 s · dir `infra/network` · workspace `prod`

    terraform: interrupted by alice after 12 s (exit status 1). A new plan shows what is left

    [Log and history](https://tide.example/jobs/ab12) · see what is left:

    ```shell
    atlantis plan -p network
    ```
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

    After the fix, comment: `atlantis plan`
    ");
    assert_snapshot!(marker_of(&reply), @r#"<!-- tidelock:{"v":1,"at":"2026-08-22T12:00:00.000Z","run":"0123456789abcdef0123456789abcdef","part":1,"parts":1,"command":"plan","trigger":"comment","head":"3f2c1abd00000000000000000000000000000000","results":[{"cmd":"plan","outcome":"error","reason":"config","scope":"command"}]} -->"#);
}

#[test]
fn applies() {
    let applied = |project| {
        let output = "x: Creating...\n".repeat(20)
            + "Apply complete! Resources: 1 added, 1 changed, 0 destroyed.\n\nOutputs:\n\nip = \"10.0.0.1\"\n";
        job(
            CommandName::Apply,
            project,
            Outcome::Applied(Applied { added: 1, changed: 1, destroyed: 0, output, part: None, verification: None }),
        )
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
    ### Apply of 2 projects: 1 applied, 1 failed

    Together: 1 added, 1 changed, 0 destroyed

    | project | dir · workspace | result | changes | time |
    |---|---|---|---|---|
    |  | `b` · `default` | [✗ apply failed](https://tide.example/jobs/ab12) |  | 12 s |
    | `network` | `infra/network` · `prod` | [✓ applied](https://tide.example/jobs/ab12) | +1 ~1 -0 | 12 s |

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

    [Log and history](https://tide.example/jobs/ab12) · the state has changed, so plan again:

    ```shell
    atlantis plan -d b
    ```
    ");
    assert_snapshot!(ran(CommandName::Version, "Terraform v1.11.4").lines().next().unwrap(), @"### Version for dir `b` · workspace `default` · 12 s");
}

#[test]
fn an_apply_that_prints_nothing_is_told_as_applied() {
    let silent = one(job(CommandName::Apply, network(), Outcome::Applied(Applied::default())));
    let said = read(&silent, &options());
    assert!(said.starts_with("### Applied `network`: 0 added, 0 changed, 0 destroyed"), "{said}");
    assert_eq!(marker::parse(&marker_of(&silent)).unwrap()["results"][0]["outcome"], "success");
}
