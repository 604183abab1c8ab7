use super::*;
use crate::domain::command::Target;
use crate::mutation::mutated;
use insta::assert_snapshot;
use proptest::prelude::*;

const ALL: [CommandName; 11] = [
    CommandName::Freeze,
    CommandName::Unfreeze,
    CommandName::Lock,
    CommandName::Version,
    CommandName::Plan,
    CommandName::Apply,
    CommandName::Cancel,
    CommandName::Unlock,
    CommandName::ApprovePolicies,
    CommandName::Import,
    CommandName::StateRm,
];

fn names() -> ParserSettings {
    ParserSettings {
        pull_mark: '#',
        executables: vec!["atlantis".into(), "tidelock".into()],
        is_default: true,
        bot_login: "Bot-Account".into(),
        allowed: ALL.to_vec(),
        blocked_extra_args: ["-chdir", "--chdir", "-plugin-dir", "--plugin-dir"].map(str::to_owned).to_vec(),
        apply_disabled: false,
    }
}

fn parsed(text: &str) -> Parsed {
    parse(text, &"alice".into(), &names())
}

fn command(text: &str) -> Command {
    match parsed(text) {
        Parsed::Command(command) => *command,
        other => panic!("{text:?} is {other:?}"),
    }
}

fn usage(text: &str) -> String {
    match parsed(text) {
        Parsed::Usage(usage) => usage,
        other => panic!("{text:?} is {other:?}"),
    }
}

/// Returns the error without the usage.
fn error(text: &str) -> String {
    usage(text).lines().next().unwrap_or_default().to_owned()
}

fn target(text: &str) -> (Option<String>, Option<String>, Option<String>) {
    let Target { dirs, workspace, projects, .. } = command(text).target;
    (dirs.into_iter().next(), workspace, projects.into_iter().next())
}

#[test]
fn prose_and_comments_of_several_lines_are_not_for_us() {
    let long = "x".repeat(65_536);
    let cases = [
        "",
        " ",
        "a",
        "`",
        "```",
        "LGTM, let's merge",
        "abc",
        "I ran atlantis plan",
        "@someone plan",
        "atlantis plan\nbut only tomorrow",
        "terraform plan\nfails for me",
        "atlantis plan\r\n\r\nsee above",
        "hello atlantis",
        "```\natlantis plan\n```",
        "runner plan",
        "/plan",
        "@ plan",
        &long,
    ];
    for case in cases {
        assert_eq!(parsed(case), Parsed::NotForUs, "{case:.80}");
    }
}

#[test]
fn help_is_given_to_whoever_asks() {
    let cases = [
        "atlantis",
        "atlantis help",
        "atlantis -h",
        "atlantis --help",
        "` atlantis help `",
        "run help",
        "@bot-account help",
        "@BOT-ACCOUNT",
        "tidelock",
        "Tidelock HELP",
        "```atlantis help```",
        "atlantis # plan",
        "atlantis\n\n",
        "atlantis help nonsense",
    ];
    for case in cases {
        assert_eq!(parsed(case), Parsed::Help(help::help(&names())), "{case}");
    }
    assert!(matches!(parsed("atlantis plan --help"), Parsed::Help(text) if text.starts_with("Usage: atlantis plan")));
    assert_eq!(parsed("atlantis help plan"), parsed("atlantis plan -d x -h"));
}

#[test]
fn near_misses_of_our_name_are_told_what_to_type() {
    let cases = [
        ("terraform", "atlantis"),
        ("terraform plan -w x -- test", "atlantis plan -w x -- test"),
        ("Terraform apply", "atlantis apply"),
        ("atlants plan", "atlantis plan"),
        ("Atlantiss apply -d .", "atlantis apply -d ."),
        ("tidelok plan", "tidelock plan"),
        ("atantls plan", "atlantis plan"),
    ];
    for (text, instead) in cases {
        assert_eq!(parsed(text), Parsed::DidYouMean(instead.to_owned()), "{text}");
    }
    let long = format!("terraform {}", "plan ".repeat(2000));
    assert_eq!(parsed(&long), Parsed::DidYouMean("atlantis".to_owned()));
}

#[test]
fn a_custom_executable_name_is_the_only_one() {
    let names = ParserSettings { executables: vec!["custom-executable-name".into()], is_default: false, ..names() };
    assert_eq!(parse("atlantis plan", &"alice".into(), &names), Parsed::NotForUs);
    assert_eq!(parse("tidelock plan", &"alice".into(), &names), Parsed::NotForUs);
    assert_eq!(parse("custom-executable-nam plan", &"alice".into(), &names), Parsed::NotForUs);
    assert!(matches!(parse("Custom-Executable-Name plan", &"alice".into(), &names), Parsed::Command(_)));
    assert_eq!(
        parse("terraform plan", &"alice".into(), &names),
        Parsed::DidYouMean("custom-executable-name plan".to_owned())
    );
    let own = ParserSettings { executables: vec!["terraform".into()], is_default: false, ..names };
    assert!(matches!(parse("terraform plan", &"alice".into(), &own), Parsed::Command(_)));
}

#[test]
fn commands_that_are_unknown_are_told_from_those_that_are_switched_off() {
    assert_eq!(parsed("atlantis pln"), Parsed::Unknown("pln".to_owned()));
    assert_eq!(parsed("run away"), Parsed::Unknown("away".to_owned()));
    assert_eq!(parsed("atlantis rm"), Parsed::Unknown("rm".to_owned()));
    let plan_only = ParserSettings { allowed: vec![CommandName::Plan], ..names() };
    for text in ["atlantis apply", "atlantis apply --nonsense", "atlantis help apply", "atlantis APPLY -h"] {
        assert_eq!(parse(text, &"alice".into(), &plan_only), Parsed::SwitchedOff(CommandName::Apply), "{text}");
    }
    assert!(matches!(parse("atlantis PLAN", &"alice".into(), &plan_only), Parsed::Command(_)));
}

#[test]
fn flags_are_read_as_pflag_does() {
    let some = |text: &str| Some(text.to_owned());
    let cases = [
        ("atlantis plan", (None, None, None)),
        ("run plan -d a/b -w x", (some("a/b"), some("x"), None)),
        ("@bot-account plan -da/b -w=x", (some("a/b"), some("x"), None)),
        ("atlantis plan --dir=b --workspace x", (some("b"), some("x"), None)),
        ("atlantis plan -p 'my project'", (None, None, some("my project"))),
        ("atlantis plan -p \"a\\\"b\"", (None, None, some("a\"b"))),
        ("atlantis plan -d '' -w= -p x", (None, None, some("x"))),
        ("atlantis plan -d -x", (some("-x"), None, None)),
        ("`atlantis plan -d a` ", (some("a"), None, None)),
        ("atlantis version -d a", (some("a"), None, None)),
    ];
    for (text, expected) in cases {
        assert_eq!(target(text), expected, "{text}");
    }
    assert!(command("atlantis plan --verbose").verbose);
    assert!(!command("atlantis plan --verbose=false").verbose);
    assert!(command("atlantis cancel --apply").interrupt_apply);
    let apply = command("atlantis apply --auto-merge-method squash");
    assert_eq!(apply.auto_merge_method.as_deref(), Some("squash"));
    assert!(command("atlantis apply --auto-merge-disabled").auto_merge_disabled);
    let approve = command("atlantis approve_policies --policy-set a --clear-policy-approval");
    assert_eq!((approve.policy_set.as_deref(), approve.clear_policy_approval), (Some("a"), true));
}

#[test]
fn arguments_after_two_dashes_go_to_terraform() {
    let plan = command("atlantis plan -d . -- -var 'a=b c' --verbose -target=x[0]");
    assert_eq!(plan.extra_args, ["-var", "a=b c", "--verbose", "-target=x[0]"]);
    assert!(!plan.verbose && plan.positional.is_empty());
    let import = command("atlantis import null_resource.a 'x y' -d d -- -var a=b");
    assert_eq!(
        (import.positional, import.extra_args),
        (vec!["null_resource.a".into(), "x y".into()], vec!["-var".into(), "a=b".into()])
    );
    let state = command("atlantis state -w x rm 'a[\"k\"]' b");
    assert_eq!((state.name, state.positional), (CommandName::StateRm, vec!["a[\"k\"]".to_owned(), "b".to_owned()]));
    assert_eq!(command("atlantis unlock -- -x").name, CommandName::Unlock);
    assert_eq!((command("atlantis plan").user, command("atlantis plan").trigger), ("alice".into(), Trigger::Comment));
}

#[test]
fn escape_hatches_take_reasons_and_numbers_of_pull_requests() {
    let unlock = command("atlantis unlock #12 15 #12 -p net -m 'left for good'");
    assert_eq!((unlock.pulls, unlock.why.as_deref()), (vec![12, 15], Some("left for good")));
    assert_eq!(unlock.target.projects, ["net"]);
    assert!(command("atlantis UNLOCK # 12").pulls.is_empty());
    assert_eq!(command("atlantis unlock #12, 13,#14 , 12").pulls, [12, 13, 14]);
    assert!(command("atlantis unlock").pulls.is_empty());
    let bang = ParserSettings { pull_mark: '!', ..names() };
    let Parsed::Command(there) = parse("atlantis unlock !12", &"alice".into(), &bang) else { panic!("not read") };
    assert_eq!(there.pulls, [12]);
    let forced = command("atlantis apply -d . --force -m 'the host of reviews is down'");
    assert_eq!((forced.force, forced.only, forced.why.is_some()), (true, false, true));
    assert!(command("atlantis apply --only").only);
    let past = command("atlantis apply -d . --override few --override=data --override few -m 'the move of May'");
    assert_eq!((past.overrides.join(" "), past.why.as_deref()), ("few data".to_owned(), Some("the move of May")));
    assert_eq!(command("atlantis plan --override code -m why").overrides, ["code"]);
    assert_eq!(command("atlantis freeze -m release").why.as_deref(), Some("release"));
    assert_eq!(command("atlantis unfreeze").name, CommandName::Unfreeze);
    assert_eq!(command("atlantis lock --message='by hand'").why.as_deref(), Some("by hand"));
    // After any other command `#` begins a comment, as in Atlantis.
    assert_eq!(command("atlantis plan #12 is next").target, Target::default());
    let many = (1..=21).map(|number| format!("#{number}")).collect::<Vec<_>>().join(" ");
    assert!(error(&format!("atlantis unlock {many}")).contains("20 pull requests at most"));
    assert!(error(&format!("atlantis freeze -m {}", "x".repeat(301))).contains("more than 300 characters"));
}

#[test]
fn mistakes_say_what_is_wrong() {
    let cases = [
        ("atlantis plan -d . arg -w x arg2", "Error: unknown arguments arg arg2."),
        ("atlantis apply arg arg2 -- useful", "Error: unknown arguments arg arg2."),
        ("atlantis plan infra", "Error: unknown argument infra; a directory goes after -d."),
        ("atlantis cancel -d .", "Error: unknown flag -d in -d."),
        ("atlantis unlock x", "Error: x is no number of a pull request."),
        ("atlantis unlock #0", "Error: #0 is no number of a pull request."),
        ("atlantis unlock '#+1'", "Error: #+1 is no number of a pull request."),
        ("atlantis unlock !12", "Error: !12 is no number of a pull request."),
        ("atlantis freeze", "Error: freeze needs a reason: -m 'why'."),
        ("atlantis freeze -m ' '", "Error: freeze needs a reason: -m 'why'."),
        ("atlantis lock", "Error: lock needs a reason: -m 'why'."),
        ("atlantis apply --force", "Error: --force needs a reason: -m 'why'."),
        ("atlantis apply -m x", "Error: -m goes with --force or --override."),
        ("atlantis plan -m x", "Error: -m goes with --override."),
        ("atlantis apply --override few", "Error: --override needs a reason: -m 'why'."),
        ("atlantis plan --override few -m ' '", "Error: --override needs a reason: -m 'why'."),
        ("atlantis unlock --override few -m x", "Error: unknown flag --override."),
        ("atlantis plan -e", "Error: unknown flag -e in -e; arguments for Terraform go after --."),
        ("atlantis plan --abc", "Error: unknown flag --abc; arguments for Terraform go after --."),
        ("atlantis plan --diir x", "Error: unknown flag --diir; did you mean --dir?."),
        ("atlantis plan -dir=x", "Error: -dir needs two dashes: --dir."),
        ("atlantis plan -d", "Error: -d needs a value: -d DIR."),
        ("atlantis plan --verbose=maybe", "Error: --verbose is true or false."),
        ("atlantis import x", "Error: it takes ADDRESS and ID, not x."),
        ("atlantis import", "Error: ADDRESS and ID are missing."),
        ("atlantis state", "Error: the sub-command rm is missing."),
        ("atlantis state mv a b", "Error: unknown sub-command mv; there is rm only."),
        ("atlantis state rm", "Error: an ADDRESS is missing after rm."),
        ("atlantis plan 'x", "Error: a single quote is not closed."),
        ("atlantis plan \"x", "Error: a double quote is not closed."),
        ("atlantis plan x\\", "Error: a backslash at the end escapes nothing."),
        ("atlantis apply --auto-merge-method x", "Error: --auto-merge-method is merge, rebase or squash."),
        ("atlantis plan -d 'a\tb'", "Error: -d/--dir contains a control character."),
    ];
    for (text, expected) in cases {
        assert_eq!(error(text), expected.replace("?.", "?"), "{text}");
    }
    let long = format!("plan -d {}", "a/".repeat(3000));
    let shown = "a/".repeat(60);
    assert_eq!(
        error(&format!("atlantis {long}")),
        format!("Error: -d/--dir {shown}… is longer than 4096 bytes, the longest path there is.")
    );
    let many = |flag: &str| (0..51).map(|number| format!(" {flag} x{number}")).collect::<String>();
    for (text, expected) in [
        ("plan -w a -w b", "-w/--workspace is given twice, as a and as b."),
        (
            "apply --auto-merge-method merge --auto-merge-method squash",
            "--auto-merge-method is given twice, as merge and as squash.",
        ),
        ("approve_policies --policy-set a --policy-set b", "--policy-set is given twice, as a and as b."),
        ("freeze -m a -m b", "-m/--message is given twice, as a and as b."),
        ("import -p a -p b x y", "import takes -p/--project once."),
        ("state rm -d a -d b x", "state rm takes -d/--dir once."),
        (
            &format!("plan{}", many("-p")),
            "it takes 50 times -p/--project at most: give a glob, or nothing for everything.",
        ),
    ] {
        assert_eq!(error(&format!("atlantis {text}")), format!("Error: {expected}"), "{text}");
    }
    assert!(error("atlantis plan -p a -d b").contains("-p/--project names directory and workspace already"));
    assert!(error("atlantis apply --auto-merge-method merge --auto-merge-disabled").contains("contradict"));
    assert!(usage("atlantis plan -var a=b").ends_with("Type: atlantis plan -- -var a=b"));
    assert!(usage("atlantis plan --vebrose").ends_with("Type: atlantis plan --verbose"));
    assert!(
        usage("atlantis plan -w x --diir=a/b -- -var x=y").ends_with("Type: atlantis plan -w x --dir=a/b -- -var x=y")
    );
    assert!(usage("atlantis plan -p a -d b").ends_with("Type: atlantis plan -p a"));
}

#[test]
fn directories_and_names_are_taken_several_times_and_each_once() {
    let target = |text: &str| command(text).target;
    let several = |given: &[&str]| given.iter().map(|&one| one.to_owned()).collect::<Vec<_>>();
    let plan = target("atlantis plan -d a -w x --dir=./a/ -db/* -w x");
    assert_eq!((plan.dirs, plan.workspace), (several(&["a", "b/*"]), Some("x".to_owned())));
    assert_eq!(target("atlantis apply -p b --project a -pb").projects, several(&["b", "a"]));
    assert_eq!(target("atlantis unlock #12 -p a -p b").projects, several(&["a", "b"]));
    assert_eq!(target("atlantis import -d a -d a/ x y").dirs, several(&["a"]));
}

#[test]
fn a_tag_query_and_exceptions_narrow_any_target() {
    let target = |text: &str| command(text).target;
    let plan = target("atlantis plan --tag 'env:prod AND (not legacy)' --except net --except='db/*' --except net");
    assert_eq!(plan.tag.unwrap().to_string(), "env:prod and not legacy");
    assert_eq!(plan.except, ["net", "db/*"]);
    assert_eq!(target("atlantis import -p a --except b --except c x y").except, ["b", "c"]);
    assert_eq!(target("atlantis apply -p 'prod-*'").projects, ["prod-*"]);
    for (text, expected) in [
        ("plan --tag 'a b'", "--tag needs `and` or `or` before `b`."),
        ("plan --tag a --tag b", "--tag is given twice, as a and as b."),
        ("apply --tag ''", "--tag QUERY has an empty value."),
        ("apply --except=", "--except GLOB has an empty value."),
        ("plan --except ../x", "--except ../x: a glob may not contain ..."),
        ("plan --except 'a['", "--except a[ is no valid glob: unclosed character class; missing ']'."),
    ] {
        assert_eq!(error(&format!("atlantis {text}")), format!("Error: {expected}"), "{text}");
    }
}

#[test]
fn directories_are_cleaned_and_stay_inside() {
    for (given, cleaned) in
        [("/", "."), ("./", "."), ("a//b", "a/b"), ("a/", "a"), ("/a/./b/../c", "a/c"), ("/..", "."), (".", ".")]
    {
        assert_eq!(target(&format!("atlantis plan -d {given}")).0.as_deref(), Some(cleaned), "{given}");
    }
    for given in ["..", "../x", "a/../../b", "./..", "..x"] {
        assert!(error(&format!("atlantis plan -d {given}")).contains("leads out of the repository"), "{given}");
    }
    for (given, glob) in [("./envs/*", "envs/*"), ("/envs/**/x?", "envs/**/x?"), ("e/[ab]", "e/[ab]")] {
        assert_eq!(target(&format!("atlantis plan -d {given}")).0.as_deref(), Some(glob), "{given}");
    }
    assert!(error("atlantis plan -d '../*'").contains("a glob may not contain .."));
    assert_eq!(target("atlantis plan -d 'a[b'").0.as_deref(), Some("a[b"), "there may be such a directory");
}

#[test]
fn workspaces_are_checked() {
    for given in ["..", "../x", "a/b", r"'a\b'", "-x", "'~'", "'a$HOME'", "'a b'", "."] {
        assert!(error(&format!("atlantis plan -w {given}")).contains("is no valid workspace"), "{given}");
    }
    for given in [".hidden", "_foo", "a&&id", "a`id`b"] {
        assert_eq!(target(&format!("atlantis plan -w '{given}'")).1.as_deref(), Some(given));
    }
}

#[test]
fn blocked_arguments_are_refused_in_every_form() {
    for command in ["plan", "apply", "import a b"] {
        for arg in ["-chdir", "-chdir=x", "--chdir=x", "-plugin-dir=/x", "--plugin-dir"] {
            assert!(
                error(&format!("atlantis {command} -- {arg}")).contains("is not allowed for Terraform here"),
                "{command} {arg}"
            );
        }
    }
    let names = ParserSettings { blocked_extra_args: vec!["-target".into()], ..names() };
    assert!(matches!(parse("atlantis plan -- --target=x", &"a".into(), &names), Parsed::Usage(_)));
    assert!(matches!(parse("atlantis plan -- -targets=x -chdir=x", &"a".into(), &names), Parsed::Command(_)));
    assert!(usage("atlantis plan -chdir=x").ends_with("Type: atlantis plan -d child/dir"));
}

#[test]
fn help_lists_what_may_be_used() {
    let names = ParserSettings {
        allowed: ALL.into_iter().filter(|&name| name != CommandName::ApprovePolicies).collect(),
        ..names()
    };
    assert_snapshot!(help::help(&names), @r"
    Usage: atlantis COMMAND [flags] [-- Terraform arguments]

    Commands:
      version              Shows the Terraform version of each planned project.
      plan                 Runs 'terraform plan' for what this pull request changes.
      apply                Runs 'terraform apply' on the plans of this pull request.
      cancel               Stops running plans; with --apply a running apply too.
      unlock               Drops plans and locks of this or other pull requests.
      lock                 Locks what this pull request changes; needs -m.
      freeze               Stops applies in this repository; needs -m.
      unfreeze             Allows applies in this repository again.
      import ADDRESS ID    Runs 'terraform import' in one project.
      state rm ADDRESS...  Runs 'terraform state rm' in the projects.
      help [COMMAND]       Shows this, or the flags of one command.

    Examples:
      # plan everything that this pull request changes
      atlantis plan
      # plan one directory in one workspace
      atlantis plan -d child/dir -w staging
      # plan one resource of the root directory
      atlantis plan -d . -- -target=null_resource.a
      # apply all plans that are not applied yet
      atlantis apply
      # apply the plan of one project
      atlantis apply -p network
      # import an existing resource
      atlantis import -d child/dir null_resource.a ID
    ");
    let plan_only = ParserSettings { allowed: vec![CommandName::Plan], ..names.clone() };
    let text = help::help(&plan_only);
    assert!(!text.contains("apply") && !text.contains("unlock") && text.contains("  plan  "), "{text}");
    let stopped = ParserSettings { apply_disabled: true, ..names };
    assert!(!help::help(&stopped).contains("  apply"));
}

#[test]
fn usage_shows_flags_and_what_to_type() {
    assert_snapshot!(usage("atlantis apply -p x -w y"), @r"
    Error: -p/--project names directory and workspace already: leave -d/--dir and -w/--workspace out.

    Usage: atlantis apply [flags] [-- Terraform arguments]
    Runs 'terraform apply' on the plans of this pull request.

    Flags:
      -d, --dir DIR                   Only this directory, or a glob; repeatable
      -w, --workspace WORKSPACE       Only this Terraform workspace
      -p, --project NAME              Project, or glob; repeatable; not with -d, -w
          --tag QUERY                 Only those with tags: 'a and not (b or c)'
          --except GLOB               Without these names or directories; repeatable
          --only                      Apply although other projects have no plan
          --force                     Apply past unmet requirements; needs -m
          --override GUARD            Past this guard; repeatable; needs -m
      -m, --message WHY               Say why; everybody can read it
          --auto-merge-disabled       Do not merge the pull request afterwards
          --auto-merge-method METHOD  Then merge by merge, rebase or squash
          --verbose                   Has no effect: each result links to its log

    Type: atlantis apply -p x
    ");
    assert_snapshot!(usage("atlantis cancel -d ."), @"
    Error: unknown flag -d in -d.

    Usage: atlantis cancel [flags]
    Stops running plans; with --apply a running apply too.

    Flags:
          --apply                     Interrupt a running apply as well

    Type: atlantis cancel
    ");
    assert_snapshot!(usage("atlantis unlock net"), @"
    Error: net is no number of a pull request.

    Usage: atlantis unlock [flags]
    Drops plans and locks of this or other pull requests.

    Flags:
      -d, --dir DIR                   Only this directory, or a glob; repeatable
      -w, --workspace WORKSPACE       Only this Terraform workspace
      -p, --project NAME              Project, or glob; repeatable; not with -d, -w
          --tag QUERY                 Only those with tags: 'a and not (b or c)'
          --except GLOB               Without these names or directories; repeatable
          --accept-drift              Also unapplied or unmerged changes; needs -m
      -m, --message WHY               Say why; everybody can read it

    Type: atlantis unlock #12
    ");
}

#[test]
fn what_is_ours_in_texts_fits_80_columns() {
    let texts = COMMANDS.iter().map(|grammar| help::usage(grammar, &names())).chain([help::help(&names())]);
    for text in texts {
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn commands_to_copy_are_as_short_as_they_can_be() {
    let project = |dir: &str, workspace: &str, name: Option<&str>| ProjectId {
        dir: dir.to_owned(),
        workspace: workspace.to_owned(),
        name: name.map(str::to_owned),
    };
    let cases = [
        (project(".", "default", None), "atlantis plan -d ."),
        (project(".", "x", None), "atlantis plan -w x"),
        (project("a/b", "default", None), "atlantis plan -d a/b"),
        (project("a/b", "x", None), "atlantis plan -d a/b -w x"),
        (project("a/b", "x", Some("net")), "atlantis plan -p net"),
        (project("a b", "default", None), "atlantis plan -d 'a b'"),
    ];
    for (project, expected) in cases {
        assert_eq!(command_for("atlantis", CommandName::Plan, &project, &[]), expected);
    }
    let root = project(".", "default", None);
    let extra = ["-var", "var=overridden", "-var=a=b c"].map(str::to_owned);
    assert_eq!(
        command_for("tidelock", CommandName::Plan, &root, &extra),
        "tidelock plan -d . -- -var var=overridden '-var=a=b c'"
    );
    assert_eq!(command_for("atlantis", CommandName::Cancel, &root, &[]), "atlantis cancel");
}

/// Names of directories that are no globs, as in a repo config: cleaned and relative.
fn dir() -> impl Strategy<Value = String> {
    let part = r#"[^/*?\[\pC\n.][^/*?\[\pC\n]{0,8}"#;
    prop_oneof![Just(".".to_owned()), prop::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"))]
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic_or_answer_at_length(text in any::<String>(), start in prop_oneof!["", "atlantis ", "run plan ", "terraform ", "atlantis import "]) {
        let answer = parsed(&format!("{start}{text}"));
        if let Parsed::Help(text) | Parsed::Usage(text) | Parsed::Unknown(text) | Parsed::DidYouMean(text) = answer {
            prop_assert!(text.chars().count() < 2000);
        }
    }

    #[test]
    fn typed_words_never_make_the_parser_panic(words in prop::collection::vec(r#"(-{0,3}[a-z]{0,4}=?|--(dir|workspace|project|verbose|help)=?|rm|[.*/'"\\#\[]{1,3})"#, 0..6), word in prop_oneof![Just("plan"), Just("apply"), Just("state"), Just("import"), Just("cancel"), Just("unlock"), Just("freeze"), Just("lock")]) {
        parsed(&format!("atlantis {word} {}", words.join(" ")));
    }

    #[test]
    fn a_command_to_copy_means_the_same_project(dir in dir(), workspace in r#"[^/\\$\pZ\pC.~\-][^/\\$\pZ\pC.]{0,8}"#, name in prop::option::of(r#"\PC{1,8}"#), extra in prop::collection::vec(r#"\PC{0,10}"#, 0..3)) {
        prop_assume!(extra.iter().all(|arg| !names().blocks(arg)));
        let project = ProjectId { dir, workspace, name };
        let text = command_for("atlantis", CommandName::Plan, &project, &extra);
        let Parsed::Command(command) = parsed(&text) else { return Err(TestCaseError::fail(text)) };
        prop_assert_eq!(&command.extra_args, &extra);
        match command.target.projects.into_iter().next() {
            Some(name) => prop_assert_eq!(Some(name), project.name),
            None => {
                prop_assert_eq!(command.target.dirs.into_iter().next().unwrap_or(".".into()), project.dir);
                prop_assert_eq!(command.target.workspace.unwrap_or("default".into()), project.workspace);
            }
        }
    }

    /// A changed comment is parsed or refused, and the suggestion of a refusal can be parsed.
    #[test]
    fn a_mutated_comment_is_answered_with_what_can_be_typed(text in mutated(comments())) {
        match parsed(&text) {
            Parsed::NotForUs => {}
            Parsed::Command(command) => {
                let target = command.target;
                let named = target.dirs.len().max(target.projects.len());
                prop_assert!(named <= 50 && (target.dirs.is_empty() || target.projects.is_empty()), "{:?}", target);
                for text in target.dirs.into_iter().chain(target.workspace).chain(target.projects) {
                    prop_assert!(!text.contains('\0') && !text.split('/').any(|part| part == ".."), "{:?}", text);
                }
                prop_assert!(!command.extra_args.iter().any(|arg| names().blocks(arg)));
            }
            Parsed::DidYouMean(line) => prop_assert!(!matches!(parsed(&line), Parsed::NotForUs | Parsed::DidYouMean(_)), "{:?}", line),
            Parsed::Usage(said) => {
                let offered = said.lines().last().and_then(|line| line.strip_prefix("Type: ")).unwrap_or_default();
                let fits = said.chars().count() < 3000 && !said.contains(|c: char| c.is_control() && c != '\n');
                prop_assert!(fits && matches!(parsed(offered), Parsed::Command(_) | Parsed::Help(_)), "{:?} of {:?}", said, text);
            }
            Parsed::SwitchedOff(name) => prop_assert!(!ALL.contains(&name)),
            Parsed::Help(said) | Parsed::Unknown(said) => {
                prop_assert!(said.chars().count() < 3000 && !said.contains(|c: char| c.is_control() && c != '\n'), "{:?}", said);
            }
        }
    }
}

#[test]
fn what_is_offered_instead_of_a_mistake_can_be_typed() {
    for (mistake, offered) in [
        ("atlantis apply -p network ----auto-merge-mesquash", "Type: atlantis apply -d child/dir"),
        ("atlantis plan --projct=x", "Type: atlantis plan --project=x"),
        ("atlantis plan -lock=false", "Type: atlantis plan -- -lock=false"),
    ] {
        assert_eq!(usage(mistake).lines().last(), Some(offered));
    }
}

fn comments() -> Vec<String> {
    [
        "atlantis plan -d infra/network -w prod -- -var 'x=y z'",
        "atlantis apply -p network --verbose --auto-merge-method squash",
        "atlantis import -d . -w prod google_project.x[\"a\"] 'my project'",
        "atlantis state rm -d a 'module.x[\"y\"].z' other",
        "atlantis unlock #12 13",
        "atlantis apply --force -m 'the fix is urgent'",
        "atlantis approve_policies -p x --policy-set net",
        "atlantis force-unlock -d a 16900000-aaaa",
        "atlantis freeze -m \"a release\"",
        "@Bot-Account plan\r\n",
        "`atlantis plan`",
        "terraform plan -d .",
        "atlants apply",
    ]
    .map(str::to_owned)
    .to_vec()
}
