//! `-d` and `-p`, once and several times: the projects that they select for each command, and refusals by name.

use crate::support::*;
use tidelock_forge::Pull;

/// Three projects with names, without autoplan.
fn named() -> Setup {
    let listed: String = ["a", "b", "c"].map(|name| format!("  - {{name: {name}, dir: {name}}}\n")).concat();
    let setup = Setup::projects(&["a", "b", "c"]).file("atlantis.yaml", &format!("version: 3\nprojects:\n{listed}"));
    let allowed = "--allow-commands=version,plan,apply,unlock,import,state";
    setup.steps(&[PLANNED], &["echo $PROJECT_NAME >> {tmp}/applied"]).flags(&["--disable-autoplan", allowed])
}

/// Returns the directories of the results, in the order in which they ran.
fn dirs(said: &Said) -> Vec<String> {
    said.outcomes().into_iter().map(|(dir, _)| dir).collect()
}

/// Checks that a command is answered with its usage and these words, and that nothing ran.
async fn is_refused(ctx: &Ctx, pull: &Pull, command: &str, words: &[&str]) {
    let said = ctx.say(pull, command).await;
    said.is_message("usage");
    for word in words {
        said.has(word);
    }
}

#[test]
fn several_projects_are_named_in_one_command() {
    run_test(named(), async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b", "c"]).await;
        let said = ctx.say(&pull, "atlantis plan -p a -p b").await;
        said.is("plan", "success").has("To apply all of it");
        assert_eq!(dirs(&said), ["a", "b"]);
        let said = ctx.say(&pull, "atlantis plan -d c -d b -d c").await;
        assert_eq!(dirs(said.is("plan", "success")), ["c", "b"]);
        let said = ctx.say(&pull, "atlantis apply -p a -p c").await;
        assert_eq!(dirs(said.is("apply", "success")), ["a", "c"]);
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("applied")).unwrap(), "a\nc\n");
        let said = ctx.say(&pull, "atlantis plan -d '[ac]' -d b").await;
        assert_eq!(dirs(said.is("plan", "success")), ["a", "c", "b"]);
        let said = ctx.say(&pull, "atlantis version -p c -p a").await;
        assert_eq!(dirs(&said), ["c", "a"]);
        let said = ctx.say(&pull, "atlantis unlock -p a -d b").await;
        said.is_message("usage");
        ctx.say(&pull, "atlantis unlock -p a -p b").await.is_message("unlocked").has("`a`").has("`b`").has_not("`c`");
        assert_eq!(ctx.locks().await, ["acme/infra/c/default/c"]);
    });
}

#[test]
fn what_cannot_be_combined_is_refused_by_name_with_the_usage() {
    run_test(named(), async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b", "c"]).await;
        is_refused(ctx, &pull, "atlantis plan -p a -d b", &["-p/--project", "-d/--dir", "Usage: atlantis plan"]).await;
        let twice = ["-w/--workspace is given twice, as x and as y", "Usage: atlantis plan"];
        is_refused(ctx, &pull, "atlantis plan -w x -w y", &twice).await;
        let one = ["import takes -p/--project once", "Usage: atlantis import ADDRESS ID"];
        is_refused(ctx, &pull, "atlantis import -p a -p b terraform_data.this x", &one).await;
        let one = ["state rm takes -d/--dir once", "Usage: atlantis state rm"];
        is_refused(ctx, &pull, "atlantis state rm -d a -d b terraform_data.this", &one).await;
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn an_unknown_name_lists_those_that_there_are_and_nothing_runs() {
    run_test(named(), async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b", "c"]).await;
        for command in ["plan -p a -p bb", "apply -p bb"] {
            let said = ctx.say(&pull, &format!("atlantis {command}")).await;
            said.has("o project with name `bb`; there are: `b`, `a`, `c`");
            said.has(&format!("`atlantis {}`", command.replace("bb", "b")));
        }
        assert!(ctx.locks().await.is_empty());
    });
}

#[test]
fn every_command_shows_its_usage_and_one_that_is_switched_off_says_so() {
    run_test(named(), async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b", "c"]).await;
        for (command, usage) in [
            ("plan --help", "Usage: atlantis plan [flags]"),
            ("apply -p a -h", "Usage: atlantis apply [flags]"),
            ("unlock --help", "Usage: atlantis unlock [flags]"),
            ("import --help", "Usage: atlantis import ADDRESS ID [flags]"),
            ("state rm --help", "Usage: atlantis state rm ADDRESS... [flags]"),
            ("version --help", "Usage: atlantis version [flags]"),
        ] {
            ctx.say(&pull, &format!("atlantis {command}")).await.is_message("help").has(usage);
        }
        for command in ["freeze -m why", "freeze --help", "help freeze", "force-unlock 1", "approve_policies"] {
            let said = ctx.say(&pull, &format!("atlantis {command}")).await;
            said.is_message("unknown_command").has("is switched off on this server");
            said.has("`atlantis plan`").has_not("Unknown command").has_not("Did you mean");
            said.has(if command == "approve_policies" { "--enable-policy-checks" } else { "--allow-commands" });
        }
        ctx.say(&pull, "atlantis frobnicate").await.is_message("unknown_command").has("Unknown command").has_not("off");
    });
}

/// Three projects with tags, without autoplan.
fn tagged() -> Setup {
    let config = "version: 3\nprojects:\n  - {name: a, dir: a, tags: [env:dev, net]}\n  - {name: b, dir: b, tags: [env:prod, net]}\n  \
                  - {name: c, dir: c, tags: [env:prod]}\n";
    let setup = Setup::projects(&["a", "b", "c", "e/[ab]", "e/a"]).file("atlantis.yaml", config);
    setup.steps(&[PLANNED], &["echo $DIR >> {tmp}/applied"]).flags(&["--disable-autoplan"])
}

#[test]
fn tags_globs_and_exceptions_choose_the_same_projects_for_every_command() {
    run_test(tagged(), async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b"]).await;
        let said = ctx.say(&pull, "atlantis unlock --tag net").await;
        said.is_message("not_permitted").has("The tags of the projects are not known here");
        let said = ctx.say(&pull, "atlantis plan --tag env:prod").await;
        assert_eq!(dirs(said.is("plan", "success")), ["b"]);
        assert_eq!(ctx.locks().await, ["acme/infra/b/default/b"]);
        let said = ctx.say(&pull, "atlantis plan -p '[ac]' --tag 'env:dev or env:prod'").await;
        assert_eq!(dirs(said.is("plan", "success")), ["a", "c"]);
        let said = ctx.say(&pull, "atlantis version --tag env:prod --except c").await;
        assert_eq!(dirs(&said), ["b"]);
        for (command, words) in [
            (
                "plan --tag 'not env:prd'",
                "o project has the tag `env:prd` of `--tag`; there are: `env:prod`, `env:dev`, `net`",
            ),
            (
                "apply --tag 'env:prod and env:dev'",
                "o project matches `--tag env:prod and env:dev`; without it, the projects are: ",
            ),
            ("apply --except bb", "`--except bb` matches no project; there are: `b`, `a`, `c`"),
            ("plan -p 'x*'", "o project matches `-p x*`; there are: "),
        ] {
            ctx.say(&pull, &format!("atlantis {command}")).await.has(words);
        }
        is_refused(ctx, &pull, "atlantis plan --tag 'a b'", &["--tag needs `and` or `or` before `b`"]).await;
        is_refused(ctx, &pull, "atlantis unlock #1 --tag net", &["--tag is for projects of this pull request"]).await;
        for (flags, words) in
            [("--except bb", "leaves out no locked"), ("--tag 'not env:prd'", "No project has the tag `env:prd`")]
        {
            ctx.say(&pull, &format!("atlantis unlock {flags}")).await.is_message("not_permitted").has(words);
        }
        let said = ctx.say(&pull, "atlantis apply --tag net --except b").await;
        assert_eq!(dirs(said.is("apply", "success")), ["a"]);
        let said = ctx.say(&pull, "atlantis unlock --tag env:prod --except b").await;
        said.is_message("unlocked").has("`c`").has_not("`b`");
        let said = ctx.say(&pull, "atlantis apply --except c").await;
        assert_eq!(dirs(said.is("apply", "success")), ["b"]);
        let said = ctx.say(&pull, "atlantis apply --tag net").await;
        said.has("Nothing to apply").has("`c`: its plan was discarded");
        assert_eq!(ctx.lines("applied"), 2);
    });
}

#[test]
fn a_tag_gives_no_right_and_a_directory_named_like_a_glob_is_meant_literally() {
    let rules = workflow(
        "allowed_users: ['*:plan', '*:unlock', 'alice:apply:a', 'alice:apply:e/**']",
        &[PLANNED],
        &["echo x >> {tmp}/applied"],
    );
    run_test(tagged().repos_yaml(&rules).flags(&["--disable-apply-all"]), async |ctx| {
        let mine = "version: 3\nautodiscover: {mode: enabled}\nprojects:\n  - {name: a, dir: a, tags: [mine]}\n  - {name: b, dir: b, tags: [mine]}\n";
        let changed = |dir: &str| (format!("{dir}/main.tf"), terraform(dir, "2"));
        let files: Vec<_> = ["a", "b", "e/[ab]", "e/a"]
            .map(changed)
            .into_iter()
            .chain([("atlantis.yaml".to_owned(), mine.to_owned())])
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let pull = ctx.open("change", &files).await;
        let said = ctx.say(&pull, "atlantis plan").await;
        said.is("plan", "success").has("`atlantis apply -d 'e/[ab]'`");
        ctx.say(&pull, "atlantis apply --except b").await.is_message("apply_disabled").has("`-d`, `-w` or `-p`");
        let said = ctx.say(&pull, "atlantis apply -p '*' --tag mine").await;
        let outcomes = said.outcomes();
        let told = |(dir, outcome): &(String, String)| format!("{dir} {outcome}");
        let mut outcomes: Vec<_> = outcomes.iter().map(told).collect();
        outcomes.sort();
        assert_eq!(outcomes, ["a success", "b failure"]);
        let said = ctx.say(&pull, "atlantis apply -d 'e/[ab]'").await;
        assert_eq!(dirs(said.is("apply", "success")), ["e/[ab]"]);
        let said = ctx.say(&pull, "atlantis plan -d e/[ab]").await;
        assert_eq!(dirs(said.is("plan", "success")), ["e/[ab]"]);
        ctx.say(&pull, "atlantis unlock -d e/[ab]").await.is_message("unlocked").has("e/[ab]").has_not("`e/a`");
    });
}
