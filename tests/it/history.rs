//! Steps and hooks that read git's history. They have no credentials, and the repository is private.

use crate::support::*;

/// Size, as the host reports it, of a repository that is not fetched whole.
const LARGE_KIB: u64 = 1 << 20;

/// Prints three files of the pull request and its base branch, as steps of the user see them.
const LOOK: &str = "set -e
git diff origin/main...HEAD -- ours.txt | sed 's/^/merge base: /'
git diff origin/main HEAD --stat -- theirs.txt ours.txt | sed 's/^/stat: /'
git show origin/main:theirs.txt | sed 's/^/base: /'
git show origin/main:ours.txt | sed 's/^/base: /'
git show $(git merge-base origin/main $HEAD_COMMIT):theirs.txt | sed 's/^/fork: /'
git log --oneline origin/main..HEAD | wc -l
git status --porcelain -- '*.txt'";

fn lines(word: &str) -> String {
    (0..2000).map(|n| format!("{word} {n}\n")).collect()
}

/// Plays changes of a file of each kind after the branch began: one on the branch, one on the base.
fn play(strategy: &str) {
    let look = |name: &str| format!("{{ {LOOK}; }} > {{tmp}}/{name}.seen");
    let keys = format!("pre_workflow_hooks:\n  - run: {}\n", serde_json::Value::from(look("hook")));
    let rules = workflow(&keys, &[&look("plan"), "init", "plan"], &[&look("apply"), "apply"]);
    let setup = Setup::one_project().repos_yaml(&rules).flags(&[&format!("--checkout-strategy={strategy}")]);
    run_test(setup, async |ctx| {
        ctx.repo.set_size_kib(LARGE_KIB).unwrap();
        let before = [("theirs.txt", lines("theirs, old")), ("ours.txt", lines("ours, old"))];
        let before: Vec<_> = before.iter().map(|(path, text)| (*path, Some(text.as_str()))).collect();
        ctx.repo.push("main", &before).await.unwrap();
        let ours = lines("ours, old").replace("ours, old 1000\n", "ours, new\n");
        let theirs = lines("theirs, old").replace("theirs, old 1000\n", "theirs, new\n");
        ctx.repo
            .push("change", &[("ours.txt", Some(&ours)), ("main.tf", Some(&ctx.fill(&terraform("root", "2"))))])
            .await
            .unwrap();
        ctx.repo.push("main", &[("theirs.txt", Some(&theirs))]).await.unwrap();
        let pull = ctx.open("change", &[("note.txt", "x")]).await;
        let saw = |text: &str| {
            for line in [
                "merge base: -ours, old 1000",
                "merge base: +ours, new",
                "base: theirs, new",
                "base: ours, old 1000",
                "fork: theirs, old 1000",
            ] {
                assert!(text.contains(line), "no `{line}` in:\n{text:.2000}");
            }
        };
        let said = ctx.next(&pull).await;
        said.is("plan", "success");
        let text = |name: &str| std::fs::read_to_string(ctx.tmp.join(name)).unwrap();
        saw(&text("plan.seen"));
        saw(&text("hook.seen"));
        // The base moves, and steps see the new one, at the same head.
        let theirs = theirs.replace("theirs, new\n", "theirs, newest\n");
        ctx.repo.push("main", &[("theirs.txt", Some(&theirs))]).await.unwrap();
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
        assert!(text("plan.seen").contains("base: theirs, newest"), "{}", text("plan.seen"));
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
        assert!(text("apply.seen").contains("base: theirs, newest"), "{}", text("apply.seen"));
    });
}

#[test]
fn the_base_branch_and_the_merge_base_can_be_read_under_the_branch_strategy() {
    play("branch");
}

#[test]
fn the_base_branch_and_the_merge_base_can_be_read_under_the_merge_strategy() {
    play("merge");
}
