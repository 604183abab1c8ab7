//! Jobs that their executor seemed to have lost, and that end there after all.

use crate::support::*;
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::sync::Arc;
use tidelock_vault::bucket::{Body, Bucket as _};
use tidelock_vault::clock::Boottime;
use tidelock_vault::directory::Directory;
use tidelock_vault::jobs::{Created, JobObjects, JobPrefix};

/// Returns a setup with these steps on an executor.
fn on_executor(plan: &[&str], apply: &[&str]) -> Setup {
    let yaml = workflow("executor: [{plan: jobs, apply: jobs}]", plan, apply);
    Setup::projects(&["a", "b"]).repos_yaml(&format!("executors: {{jobs: {{kind: process}}}}\n{yaml}")).own_process()
}

/// Returns the directories of jobs that have this object.
pub(crate) fn jobs_with(ctx: &Ctx, object: &str) -> Vec<PathBuf> {
    let root = ctx.server.data("vault/jobs/jobs");
    let jobs = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    jobs.filter(|job| job.join(object).exists()).collect()
}

/// Returns the bucket, and the objects of the running job.
async fn running_job(ctx: &Ctx) -> (Arc<Directory>, JobObjects) {
    ctx.until("one job is left", async || jobs_with(ctx, "spec").len() == 1).await;
    let dir = jobs_with(ctx, "spec").remove(0);
    let prefix = JobPrefix::new("jobs", dir.file_name().unwrap().to_str().unwrap()).unwrap();
    let bucket = Arc::new(Directory::existing(&ctx.server.data("vault")).unwrap());
    let objects = JobObjects::new(Arc::<Directory>::clone(&bucket), Arc::new(Boottime), prefix);
    (bucket, objects)
}

/// Gives the running job up, as a leader does whose engine says that it is dead.
pub(crate) async fn give_up(ctx: &Ctx) {
    let (_, objects) = running_job(ctx).await;
    assert_eq!(objects.give_up("another", "its node is gone").await.unwrap(), Created::Ours);
}

#[test]
fn an_apply_that_was_given_up_and_ends_after_all_is_told() {
    let setup = on_executor(&[PLANNED], &["echo $PPID > {tmp}/job", &gate("apply"), "echo applied >> {tmp}/applied"]);
    run_test(setup, async |ctx| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        let job = std::fs::read_to_string(ctx.tmp.join("job")).unwrap().trim().parse().unwrap();
        let job = Pid::from_raw(job).unwrap();
        kill_process(job, Signal::STOP).unwrap();
        give_up(ctx).await;
        ctx.next(&pull).await.is("apply", "error").has("The executor `jobs` has lost the job: its node is gone");
        ctx.status(&pull, "atlantis/apply: a/default", "failure", "").await;
        ctx.open_gate("apply");
        kill_process(job, Signal::CONT).unwrap();
        let late = ctx.next(&pull).await;
        late.is_message("interrupted").has("has finished on the executor `jobs`");
        ctx.status(&pull, "atlantis/apply: a/default", "success", "").await;
        assert_eq!(ctx.lines("applied"), 1);
        ctx.say(&pull, "atlantis apply").await.has("Everything that was planned is applied already");
        ctx.until("its objects are deleted", async || jobs_with(ctx, "spec").is_empty()).await;
        assert_eq!(jobs_with(ctx, "late"), jobs_with(ctx, "result"), "a paused attempt finds them");
    });
}

#[test]
fn the_next_leader_tells_a_late_end_with_the_state_that_could_not_be_saved() {
    let fail = "echo '{\"serial\": 7}' > errored.tfstate; exit 1";
    run_test(on_executor(&[PLANNED], &[&gate("apply"), fail]), async |ctx| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        give_up(ctx).await;
        let lost = ctx.next(&pull).await;
        let file = format!("errored/{}.tfstate", lost.is("apply", "error").because("interrupted").job());
        ctx.server.kill().await;
        ctx.open_gate("apply");
        ctx.until("the job has ended", async || jobs_with(ctx, "late").len() == 1).await;
        ctx.server.start().await;
        let late = ctx.next(&pull).await;
        late.is_message("interrupted").has("has finished").has(&format!("`terraform state push {file}`"));
        assert_eq!(std::fs::read_to_string(ctx.server.data(&file)).unwrap(), "{\"serial\": 7}\n");
        ctx.until("its objects are deleted", async || jobs_with(ctx, "spec").is_empty()).await;
    });
}

/// As when the disk is full.
#[test]
fn a_state_that_the_server_cannot_store_stays_in_the_bucket_until_it_can() {
    let fail = "echo '{\"serial\": 7}' > errored.tfstate; exit 1";
    for restarts in [false, true] {
        run_test(on_executor(&[PLANNED], &[fail]), async |ctx| {
            let pull = ctx.planned_dirs("change", &["a"]).await;
            let folder = ctx.server.data("errored");
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::write(&folder, "").unwrap();
            pull.comment("alice", "atlantis apply").unwrap();
            let tries = async || ctx.server.log().contains("the result of a job cannot be stored now");
            ctx.until("the server tries again", tries).await;
            if restarts {
                ctx.server.stop().await;
                assert!(!ctx.server.log().contains("did not end in time"), "{}", ctx.server.log());
            }
            assert_eq!(jobs_with(ctx, "errored").len(), 1);
            std::fs::remove_file(&folder).unwrap();
            if restarts {
                ctx.server.start().await;
            }
            let said = ctx.next(&pull).await;
            let file = format!("errored/{}.tfstate", said.is("apply", "error").job());
            said.has(&format!("`terraform state push {file}`"));
            assert_eq!(std::fs::read_to_string(ctx.server.data(&file)).unwrap(), "{\"serial\": 7}\n");
            ctx.until("its objects are deleted", async || jobs_with(ctx, "spec").is_empty()).await;
        });
    }
}

#[test]
fn a_job_that_was_withdrawn_has_run_nothing_although_its_specification_cannot_be_read() {
    let apply = ["echo $PPID > {tmp}/job", &gate("apply")];
    run_test(on_executor(&[PLANNED], &apply), async |ctx| {
        let pull = ctx.planned_dirs("change", &["a"]).await;
        pull.comment("alice", "atlantis apply").unwrap();
        ctx.reached("apply", 1).await;
        let (bucket, objects) = running_job(ctx).await;
        ctx.server.kill().await;
        let job = std::fs::read_to_string(ctx.tmp.join("job")).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_raw(job).unwrap(), Signal::KILL).unwrap();
        // As if no attempt had ever claimed it.
        let [claim, spec] = ["claim", "spec"].map(|object| format!("{}/{object}", objects.prefix()));
        let claimed = bucket.get(&claim).await.unwrap().unwrap();
        assert!(bucket.delete(&claim, claimed.generation).await.unwrap());
        assert_eq!(objects.withdraw("another").await.unwrap(), Created::Ours);
        let stored = bucket.get(&spec).await.unwrap().unwrap();
        bucket.put(&spec, stored.generation, Body::Bytes("damaged".into()), "spec").await.unwrap();
        ctx.server.start().await;
        ctx.next(&pull).await.is("apply", "error").has("nothing was run").has_not("continued on its executor");
    });
}

#[test]
fn a_plan_that_was_given_up_and_ends_after_all_is_not_recorded() {
    run_test(on_executor(&[&gate("plan"), PLANNED], &["echo applied"]), async |ctx| {
        let pull = ctx.open_dirs("change", &["a"]).await;
        ctx.reached("plan", 1).await;
        give_up(ctx).await;
        ctx.next(&pull).await.is("plan", "error").has("The executor `jobs` has lost the job: its node is gone");
        ctx.open_gate("plan");
        ctx.until("it has ended, and its objects are deleted", async || {
            jobs_with(ctx, "late").len() == 1 && jobs_with(ctx, "spec").is_empty()
        })
        .await;
        ctx.say(&pull, "atlantis apply").await.is("apply", "error");
        ctx.say(&pull, "atlantis plan").await.is("plan", "success");
    });
}
