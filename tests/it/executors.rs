//! Jobs that run on an executor: as processes of this machine, over the whole protocol. They go on without the server.

use crate::runs_pages::shown;
use crate::support::*;

/// Every job of every project runs on this executor.
const EVERYWHERE: &str = "executor: [{plan: jobs, apply: jobs}]";

/// Returns a `repos.yaml` with the executor and these keys and steps.
fn everywhere(plan: &[&str], apply: &[&str]) -> String {
    format!("executors: {{jobs: {{kind: process}}}}\n{}", workflow(EVERYWHERE, plan, apply))
}

/// Returns the names of the objects of jobs, without keys.
pub(crate) fn objects(ctx: &Ctx) -> Vec<String> {
    fn walk(dir: &std::path::Path, into: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.path().is_dir() { walk(&entry.path(), into) } else { into.push(entry.path()) }
        }
    }
    let (root, mut found) = (ctx.server.data("vault/jobs/jobs"), Vec::new());
    walk(&root, &mut found);
    let mut names: Vec<String> = found
        .iter()
        .filter_map(|path| {
            path.strip_prefix(&root).ok()?.to_str()?.split_once('/').map(|(_, object)| object.to_owned())
        })
        .collect();
    names.sort();
    names
}

#[test]
fn plans_and_applies_run_at_an_executor_and_leave_only_claims() {
    let setup = Setup::one_project().repos_yaml(&everywhere(&["init", "plan"], &["apply"])).own_process();
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has("1 to add");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("1 added");
        assert!(ctx.tmp.join("state/root.tfstate").exists());
        ctx.until("objects of ended jobs are deleted", async || {
            let names = objects(ctx);
            names.iter().filter(|name| *name == "claim").count() == 2
                && names.iter().all(|name| name == "claim" || name.starts_with("tree/"))
        })
        .await;
    });
}

/// Returns a setup with these steps on the executor.
fn on_executor(plan: &[&str], apply: &[&str]) -> Setup {
    Setup::projects(&["a", "b"]).repos_yaml(&everywhere(plan, apply)).own_process()
}

#[test]
fn an_apply_goes_on_without_a_server_and_is_answered_once() {
    let setup = on_executor(&[PLANNED], &["echo applied >> {tmp}/applied", &gate("apply")]);
    run_test(setup, async |ctx| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.server.kill().await;
        ctx.open_gate("apply");
        ctx.server.start().await;
        ctx.next(&pull).await.is("apply", "success");
        ctx.status(&pull, "atlantis/apply: a/default", "success", "").await;
        assert_eq!(ctx.lines("applied"), 1);
        // Its plan is used up, and its lock stays until the merge.
        ctx.say(&pull, "atlantis apply").await.has("Everything that was planned is applied already");
        assert_eq!(ctx.locks().await.len(), 1);
        pull.merge().await.unwrap();
        ctx.next(&pull).await;
    });
}

#[test]
fn an_end_of_the_server_does_not_wait_for_an_apply() {
    let setup = on_executor(&[PLANNED], &["echo applied >> {tmp}/applied", &gate("apply")]);
    run_test(setup, async |ctx| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.server.stop().await;
        ctx.server.start().await;
        // The next server follows it.
        ctx.until("the job is at work", async || ctx.json("/api/locks").await.to_string().contains("a")).await;
        ctx.open_gate("apply");
        ctx.next(&pull).await.is("apply", "success");
        assert_eq!(ctx.lines("applied"), 1);
    });
}

#[test]
fn the_page_of_a_run_shows_the_place_of_a_job_that_waits_for_an_executor() {
    let executors = "executors: {jobs: {kind: process, limit: 1}}";
    let steps = workflow(EVERYWHERE, &[&gate("plan"), PLANNED], &["echo applied"]);
    let setup = Setup::projects(&["a", "b"]).repos_yaml(&format!("{executors}\n{steps}")).own_process();
    run_test(setup, async |ctx| {
        let first = ctx.open_dirs("first", &["a"]).await;
        ctx.reached("plan", 1).await;
        let second = ctx.open_dirs("second", &["b"]).await;
        // The newest run is of the second pull request.
        let newest = async || {
            let runs = ctx.json("/api/runs?result=running").await;
            runs["runs"][0]["run"].as_str().map(|run| format!("/runs/{run}"))
        };
        let place = "place 1 of 1 at the executor <code>jobs</code>, which runs at most 1 job at once";
        ctx.until("the page of the second run shows its place", async || match newest().await {
            Some(run) => shown(ctx, &run).await.contains(place),
            None => false,
        })
        .await;
        let run = newest().await.unwrap();
        ctx.open_gate("plan");
        ctx.next(&first).await.is("plan", "success");
        ctx.next(&second).await.is("plan", "success");
        assert!(!shown(ctx, &run).await.contains("at the executor <code>"));
    });
}

#[test]
fn a_plan_goes_on_without_a_server_and_is_made_once() {
    let setup = on_executor(&["echo $REPO_REL_DIR >> {tmp}/planned", &gate("plan"), PLANNED], &["echo applied"]);
    run_test(setup, async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b"]).await;
        ctx.reached("plan", 1).await;
        ctx.server.kill().await;
        ctx.open_gate("plan");
        ctx.server.start().await;
        ctx.next(&pull).await.is("plan", "success");
        assert_eq!(ctx.lines("planned"), 2);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    });
}

#[test]
fn a_cancelled_apply_is_interrupted_at_its_executor() {
    let setup = on_executor(&[PLANNED], &[&gate("apply"), "echo applied >> {tmp}/applied"]);
    run_test(setup, async |ctx| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.say(&pull, "atlantis cancel --apply").await.has("the running `apply`");
        ctx.next(&pull).await.is("apply", "error").has("interrupted by alice");
        assert_eq!(ctx.lines("applied"), 0);
    });
}

#[test]
fn an_apply_whose_process_is_killed_is_lost_and_not_repeated() {
    let setup = on_executor(&[PLANNED], &["echo $PPID > {tmp}/shell", &gate("apply")]);
    run_test(setup, async |ctx| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        let job: i32 = std::fs::read_to_string(ctx.tmp.join("shell")).unwrap().trim().parse().unwrap();
        let job = rustix::process::Pid::from_raw(job).unwrap();
        rustix::process::kill_process(job, rustix::process::Signal::KILL).unwrap();
        ctx.next(&pull).await.is("apply", "error").has("The executor `jobs` has lost the job").has("ended by signal 9");
        ctx.say(&pull, "atlantis apply").await.has("its plan was used by the apply that failed");
    });
}

/// As when its pod is evicted.
#[test]
fn a_plan_whose_process_is_told_to_end_is_reported_and_its_others_go_on() {
    let steps =
        ["echo $PPID > {tmp}/job-$REPO_REL_DIR", "[ $REPO_REL_DIR = b ] || [ -e {tmp}/open ] || sleep 60", PLANNED];
    run_test(on_executor(&steps, &[]), async |ctx| {
        let pull = ctx.open_dirs("change", &["a", "b"]).await;
        let job = ctx.tmp.join("job-a");
        ctx.until("its steps have begun", async || std::fs::read_to_string(&job).is_ok_and(|pid| pid.ends_with('\n')))
            .await;
        let job = std::fs::read_to_string(&job).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(job).unwrap(), rustix::process::Signal::TERM)
            .unwrap();
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes(), [("a", "error"), ("b", "success")].map(|(dir, end)| (dir.into(), end.into())));
        said.has("The executor `jobs` ended the job: the engine stopped it").has("Nothing was changed");
        std::fs::write(ctx.tmp.join("open"), "").unwrap();
        ctx.say(&pull, "atlantis plan -d a").await.is("plan", "success");
    });
}

#[test]
fn a_state_in_the_checkout_is_refused_before_anything_is_planned() {
    let setup = Setup::repo(&[("main.tf", "resource \"terraform_data\" \"this\" {\n  input = \"1\"\n}\n")]);
    let setup = setup.repos_yaml(&everywhere(&["init", "plan"], &["apply"])).own_process();
    run_test(setup, async |ctx| {
        let pull = ctx.open("change", &[("other.tf", "output \"x\" {\n  value = 1\n}\n")]).await;
        ctx.next(&pull).await.is("plan", "error").has("the backend `local`").has("`plan: local`");
    });
}

#[test]
fn a_state_in_the_checkout_is_refused_although_a_command_runs_init() {
    let setup = Setup::repo(&[("main.tf", "resource \"terraform_data\" \"this\" {\n  input = \"1\"\n}\n")]);
    let yaml = everywhere(&["terraform init -input=false", "plan"], &["apply"]);
    let stage = "    import:\n      steps:\n        - run: terraform init -input=false\n        - import\n";
    let setup = setup.repos_yaml(&format!("{yaml}{stage}")).flags(&["--allow-commands=all"]).own_process();
    run_test(setup, async |ctx| {
        let pull = ctx.open("change", &[("other.tf", "output \"x\" {\n  value = 1\n}\n")]).await;
        ctx.next(&pull).await.is("plan", "error").has("the backend `local`").has("`plan: local`");
        let said = ctx.say(&pull, "atlantis import -d . terraform_data.this id").await;
        said.is("import", "error").has("the backend `local`").has("`apply: local`");
    });
}

#[test]
fn the_other_projects_of_an_apply_are_applied_by_the_next_server() {
    let steps = ["echo $REPO_REL_DIR >> {tmp}/applied", &gate("apply")];
    run_test(on_executor(&[PLANNED], &steps), async |ctx| {
        let pull = ctx.planned_dirs("change", &["a", "b"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        ctx.server.kill().await;
        ctx.open_gate("apply");
        ctx.server.start().await;
        let told = ctx.next(&pull).await;
        assert_eq!(told.outcomes().len(), 2);
        told.is("apply", "success");
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("applied")).unwrap(), "a\nb\n");
    });
}

#[test]
fn the_server_applies_what_was_planned_at_an_executor_where_it_was_planned() {
    let yaml = everywhere(&["init", "plan"], &["apply"]).replace("apply: jobs", "apply: local");
    // `abspath` is part of the plan: elsewhere Terraform would refuse it.
    let code = format!("{}\noutput \"here\" {{\n  value = abspath(path.module)\n}}\n", terraform("root", "1"));
    run_test(Setup::repo(&[("main.tf", &code)]).repos_yaml(&yaml).own_process(), async |ctx| {
        let pull = ctx.open("change", &[("more.tf", "output \"more\" {\n  value = 1\n}\n")]).await;
        ctx.next(&pull).await.is("plan", "success").has("/var/tmp/tidelock/");
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("/var/tmp/tidelock/");
    });
}

#[test]
fn a_plan_of_the_server_is_not_applied_at_an_executor() {
    let yaml = everywhere(&["init", "plan"], &["apply"]);
    let setup = Setup::one_project().repos_yaml(&yaml.replace("kind: process", "kind: local")).own_process();
    run_test(setup, async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has_not("/var/tmp/tidelock/");
        ctx.rewrite_repos_yaml(&yaml);
        ctx.server.restart().await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("he server made it").has("executor `jobs`");
    });
}
