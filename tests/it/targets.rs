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
