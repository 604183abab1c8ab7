//! Tests of replies other than results.

use super::*;
use crate::domain::command::Target;

fn say(name: CommandName, message: Message) -> String {
    let reply = reply(name, ReplyBody::Message(message));
    let marker = marker::parse(&render(&reply, &options())[0]).unwrap();
    format!("{}: {}", marker["message"].as_str().unwrap(), read(&reply, &options()))
}

#[test]
fn help_and_usage_stand_in_a_fence() {
    let text = "plan   Runs terraform plan\n".to_owned();
    assert_snapshot!(say(CommandName::Help, Message::Help { text }), @r"
    help: ### Commands

    ```
    plan   Runs terraform plan
    ```
    ");
    let text = "unknown flag -x\nUsage: atlantis plan [options]".to_owned();
    assert_snapshot!(say(CommandName::Plan, Message::Usage { text }), @r"
    usage: ### This command cannot be run as written

    ```
    unknown flag -x
    Usage: atlantis plan [options]
    ```
    ");
}

#[test]
fn unknown_commands_name_the_allowed_ones() {
    let allowed = vec![CommandName::Plan, CommandName::Apply, CommandName::StateRm];
    assert_snapshot!(say(CommandName::Plan, Message::UnknownCommand { word: "aply".into(), allowed: allowed.clone() }), @r"
    unknown_command: ### Unknown command `aply`

    Did you mean `atlantis apply`? Nothing was run, because `aply` is not a command. Allowed here: `atlantis plan`, `atlantis apply`, `atlantis state rm`. `atlantis help` says what each does.
    ");
    assert_snapshot!(say(CommandName::Plan, Message::SwitchedOff { name: CommandName::Import, allowed: allowed.clone() }), @r"
    unknown_command: ### `import` is switched off on this server

    Nothing was run. An operator can enable it with `--allow-commands`. Allowed here: `atlantis plan`, `atlantis apply`, `atlantis state rm`. `atlantis help` says what each does.
    ");
    let meant = |word: &str| {
        let said = say(CommandName::Plan, Message::UnknownCommand { word: word.into(), allowed: allowed.clone() });
        said.split_once("Did you mean `").map(|(_, rest)| rest.split('`').next().unwrap().to_owned())
    };
    for (word, command) in [("plann", "plan"), ("Aply", "apply"), ("pln", "plan"), ("hepl", "help")] {
        assert_eq!(meant(word), Some(format!("atlantis {command}")), "{word}");
    }
    for word in ["deploy", "destroy", "a", "apply"] {
        assert_eq!(meant(word), None, "{word}");
    }
    assert_snapshot!(say(CommandName::Plan, Message::DidYouMean { suggestion: "atlantis plan".into() }), @r"
    did_you_mean: ### Nothing was run. Did you mean this?

    ```shell
    atlantis plan
    ```
    ");
}

#[test]
fn refusals_say_what_blocks_and_what_to_do() {
    let because =
        "alice stopped applies 2 h ago: \"freeze\". Ask her, or start them again on the dashboard.".to_owned();
    assert_snapshot!(say(CommandName::Apply, Message::ApplyDisabled { because }), @r#"
    apply_disabled: ### Apply refused: applies are stopped

    alice stopped applies 2 h ago: "freeze". Ask her, or start them again on the dashboard.
    "#);
    let because = "An apply of `network` runs. Wait for its end, or: `atlantis cancel --apply`".to_owned();
    let link = Some("https://tide.example/jobs/ab12".to_owned());
    assert_snapshot!(say(CommandName::Unlock, Message::UnlockRefused { because, link }), @r"
    not_permitted: ### Unlock refused

    An apply of `network` runs. Wait for its end, or: `atlantis cancel --apply`

    See [the running job](https://tide.example/jobs/ab12).
    ");
    let because = "bob is in none of the teams that may apply.".to_owned();
    assert_snapshot!(say(CommandName::Apply, Message::NotPermitted { because }), @r"
    not_permitted: ### Apply refused: not permitted

    bob is in none of the teams that may apply.
    ");
    assert_snapshot!(say(CommandName::Plan, Message::ForkRefused), @r"
    fork_refused: ### Refused: this pull request comes from a fork

    A plan runs the pull request's code with the server's credentials, so the server refuses forks. Push the branch to this repository and open the pull request from there, or ask an operator to set `--allow-fork-prs`.
    ");
    assert_snapshot!(say(CommandName::Plan, Message::NotAllowlisted), @r"
    not_allowlisted: ### Refused: this repository is not allowlisted

    Nothing was run. Ask an operator to add the repository to `--repo-allowlist`, then comment the command again.
    ");
    assert_snapshot!(say(CommandName::Plan, Message::ClosedPull), @r"
    closed_pull: ### Refused: this pull request is closed

    Reopen it, then comment `atlantis plan`. To delete the locks and plans of the closed pull request instead, comment `atlantis unlock`.
    ");
    assert_snapshot!(say(CommandName::Plan, Message::ShuttingDown), @r"
    shutting_down: ### Plan refused: the server is shutting down

    Try again in a minute: `atlantis plan`
    ");
}

#[test]
fn automerge_says_what_it_does_and_why_it_does_not() {
    assert_snapshot!(say(CommandName::Apply, Message::Automerging), @r"
    automerge: Automatically merging because all plans have been successfully applied.
    ");
    let because = "the host does not merge this pull request: At least 1 approving review is required".to_owned();
    assert_snapshot!(say(CommandName::Apply, Message::NotMerged { because }), @r"
    automerge: ### Automerging failed

    The host does not merge this pull request: At least 1 approving review is required.

    The pull request is not merged. Resolve the reason above. The server tries again after a review, a vote or a status, or when you comment `atlantis apply`. You can also merge #42 on the host.
    ");
}

#[test]
fn another_pull_request_that_changes_the_same_is_named() {
    let pull = reply(CommandName::Plan, ReplyBody::Message(Message::ShuttingDown)).pull;
    let told = Message::AlsoChanged { projects: vec![network()], pull: PullId { number: 12, ..pull } };
    assert_snapshot!(say(CommandName::Plan, told), @"
    also_changed: ### #12 also changes 1 project of this pull request

    #12 has planned a project that this pull request changes too. In mode `strict`, plans take no lock. The pull request that applies first blocks the other one until the merge, and discards the plan of the other one.

    - `network` · dir `infra/network` · workspace `prod`
    ");
}

#[test]
fn unlocking_lists_the_projects() {
    assert_snapshot!(say(CommandName::Unlock, Message::Unlocked { projects: vec![network(), unnamed(".")], kept: vec![], why: String::new(), next: vec![] }), @r"
    unlocked: ### Unlocked: 2 projects

    The locks and plans of these projects were deleted:

    - `network` · dir `infra/network` · workspace `prod`
    - dir `.` · workspace `default`

    To plan again: `atlantis plan`
    ");
    assert_snapshot!(say(CommandName::Unlock, Message::Unlocked { projects: vec![], kept: vec![], why: String::new(), next: vec![] }), @r"
    unlocked: ### Nothing to unlock

    This pull request has neither locks nor plans. To plan: `atlantis plan`
    ");
    let why = "applied by hand, see <b>#7</b>".to_owned();
    let accepted = Message::Unlocked { projects: vec![network()], kept: vec![], why, next: vec![] };
    assert_snapshot!(say(CommandName::Unlock, accepted), @r"
    unlocked: ### Unlocked: 1 project

    Why: applied by hand, see &#60;b&#62;#7&#60;/b&#62;. The locks and plans of this project were deleted:

    - `network` · dir `infra/network` · workspace `prod`

    To plan again: `atlantis plan`
    ");
    assert_snapshot!(say(CommandName::Plan, Message::Discarded { project: network(), user: "alice".into(), why: "left <b>behind</b>".into(), next: vec![] }), @r"
    discarded: ### Plan discarded, lock released: `network` · dir `infra/network` · workspace `prod`

    alice deleted the lock on the server's page. Why: left &#60;b&#62;behind&#60;/b&#62;. To plan again: `atlantis plan -p network`
    ");
    let plain = ProjectId { dir: "live/app".into(), workspace: "default".into(), name: None };
    let discarded = Message::DependentPlansDiscarded { projects: vec![network(), plain], on: network(), number: 7 };
    assert_snapshot!(say(CommandName::Plan, discarded), @r"
    discarded: ### 2 plans discarded: #7 has applied `network` · dir `infra/network` · workspace `prod`

    These plans used outputs from before this apply:

    - `network` · dir `infra/network` · workspace `prod`. To plan again: `atlantis plan -p network`
    - dir `live/app` · workspace `default`. To plan again: `atlantis plan -d live/app`
    ");
}

#[test]
fn cleaning_up_lists_directories_and_workspaces() {
    let locks =
        vec![("infra/network".into(), vec!["prod".into(), "staging".into()]), (".".into(), vec!["default".into()])];
    let reply = Reply {
        command: None,
        ..reply(
            CommandName::Plan,
            ReplyBody::Message(Message::Cleanup { locks, unmerged: vec![], remarks: vec![], next: vec![] }),
        )
    };
    assert_snapshot!(read(&reply, &options()), @r"
    ### Cleaned up: locks and plans of 2 directories deleted

    - dir `infra/network` · workspaces `prod`, `staging`
    - dir `.` · workspace `default`
    ");
    assert_snapshot!(marker_of(&reply), @r#"<!-- tidelock:{"v":1,"at":"2026-08-22T12:00:00.000Z","run":"0123456789abcdef0123456789abcdef","part":1,"parts":1,"head":"3f2c1abd00000000000000000000000000000000","message":"cleanup","locks_deleted":[{"dir":"infra/network","workspaces":["prod","staging"]},{"dir":".","workspaces":["default"]}]} -->"#);
}

#[test]
fn a_closing_after_applies_says_what_they_left_and_how_to_go_on() {
    let change = |project: ProjectId, command: &str, partial, since: &str| UnmergedChange {
        project,
        command: command.to_owned(),
        head: "3f2c1abd".into(),
        job: "ab12".into(),
        partial,
        since: since.to_owned(),
    };
    let unmerged = vec![
        change(network(), "apply", false, ""),
        change(unnamed("dns"), "state rm", true, ""),
        change(unnamed("."), "apply", false, "#7"),
    ];
    let locks = vec![("infra/network".into(), vec!["prod".into()])];
    let said = say(CommandName::Plan, Message::Cleanup { locks, unmerged, remarks: vec![], next: vec![] });
    for line in [
        "cleanup: ### Closed after an apply: 3 projects",
        "- `network` · dir `infra/network` · workspace `prod`: [`apply` at 3f2c1ab](https://tide.example/jobs/ab12)",
        "- dir `dns` · workspace `default`: [`state rm` at 3f2c1ab](https://tide.example/jobs/ab12), which failed and may have changed some resources",
        "- dir `.` · workspace `default`: [`apply` at 3f2c1ab](https://tide.example/jobs/ab12); #7 has applied the project since",
        "#### Cleaned up: locks and plans of 1 directory deleted",
        "- dir `infra/network` · workspace `prod`",
    ] {
        assert!(said.lines().any(|said| said == line), "{line}\n\n{said}");
    }
    let one = vec![change(unnamed("dns"), "apply", true, "")];
    let message = Message::Cleanup { locks: vec![], unmerged: one, remarks: vec![], next: vec![] };
    let said = say(CommandName::Plan, message);
    assert!(
        said.starts_with("cleanup: ### Closed after an apply: 1 project\n") && !said.contains("Cleaned up"),
        "{said}"
    );
}

#[test]
fn cancelling_says_what_stopped_and_what_goes_on() {
    let stopped = vec!["plan of `network`".to_owned()];
    let left = vec!["apply of `dns`; to interrupt it: `atlantis cancel --apply`".to_owned()];
    assert_snapshot!(say(CommandName::Cancel, Message::Cancelled { stopped, left: left.clone() }), @r"
    cancelled: ### Cancelled

    - plan of `network`

    Still running:

    - apply of `dns`; to interrupt it: `atlantis cancel --apply`
    ");
    assert_snapshot!(say(CommandName::Cancel, Message::Cancelled { stopped: vec![], left }), @r"
    cancelled: ### Nothing was cancelled

    Still running:

    - apply of `dns`; to interrupt it: `atlantis cancel --apply`
    ");
    assert_snapshot!(say(CommandName::Cancel, Message::Cancelled { stopped: vec![], left: vec![] }), @r"
    cancelled: ### Nothing to cancel

    No command runs or waits on this pull request.
    ");
}

#[test]
fn what_did_not_run_names_the_command_to_run_it() {
    assert_snapshot!(say(CommandName::Plan, Message::HookFailed { output: "exit status 1".into() }), @r"
    hook_failed: ### Plan stopped: a pre-workflow hook failed

    ```
    exit status 1
    ```

    After the fix, comment: `atlantis plan`
    ");
    let because = "The server was told to stop. Comment again: `atlantis plan`".to_owned();
    assert_snapshot!(say(CommandName::Plan, Message::Interrupted { because }), @r"
    interrupted: ### Plan was not completed

    The server was told to stop. Comment again: `atlantis plan`
    ");
    assert_snapshot!(say(CommandName::Apply, Message::NoProjects { because: "Nothing is planned.".into() }), @r"
    no_projects: ### Nothing to apply

    Nothing is planned.

    To plan: `atlantis plan`
    ");
    assert_snapshot!(say(CommandName::Plan, Message::PlannedAlready { head: HEAD.into() }), @r"
    superseded: ### Commit 3f2c1ab is planned already

    A `plan` command ran on this commit before autoplan started, so autoplan did not repeat it. See the result above.
    ");
    let mut reply =
        reply(CommandName::Plan, ReplyBody::Message(Message::Superseded { head: HEAD.into(), asked_at: None }));
    if let Some(command) = &mut reply.command {
        command.target = Target { dirs: vec!["a b".into()], ..Target::default() };
        command.extra_args = vec!["-var".into(), "x=y".into()];
    }
    assert_snapshot!(read(&reply, &options()), @r"
    ### Plan superseded by commit 3f2c1ab

    A newer commit was pushed while this plan ran, so the server stopped it. To plan the new commit: `atlantis plan -d 'a b' -- -var x=y`
    ");
    let asked_at = Some("0123456789abcdef".into());
    assert_snapshot!(say(CommandName::Apply, Message::Superseded { head: HEAD.into(), asked_at }), @r"
    superseded: ### Refused: the pull request has a newer commit

    This command was for commit 0123456, so nothing was done. The newest commit is 3f2c1ab. To run the command for the newest commit: `atlantis apply`
    ");
}
