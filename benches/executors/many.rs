//! Time of many jobs at an executor against the least time that they can take, and the leader's memory and CPU time.

use crate::costs::{Costs, cpu, peak};
use crate::forge::Ground;
use crate::place;
use crate::report::Report;
use anyhow::{Result, ensure};
use std::time::{Duration, Instant};
use tidelock_forge::OpenOptions;

const PROJECTS: usize = 200;
const AT_ONCE: usize = 20;
/// Time of each job's step, which uses no CPU.
const STEP: Duration = Duration::from_secs(1);
/// Limit of the time, as a multiple of the least possible.
const BOUND: f64 = 1.2;
/// Limits of the leader: megabytes at most, and milliseconds of CPU time a job.
const MEMORY: f64 = 100.0;
const CPU: f64 = 20.0;
const LIMIT: Duration = Duration::from_secs(240);

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let (ground, double) = (Ground::new().await?, place::double().await?);
    let path = |project: usize| format!("live/p{project:03}/main.tf");
    let files: Vec<_> = (0..PROJECTS).map(|project| (path(project), "# one\n")).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let repo = ground.forge.create_repo("acme/infra", &files).await?;
    let rules = format!(
        "executors: {{jobs: {{kind: process, limit: {AT_ONCE}}}}}\n\
         repos:\n  - {{id: /.*/, workflow: waits, repo_locks: {{mode: disabled}}, executor: [{{plan: jobs, apply: jobs}}]}}\n\
         workflows:\n  waits:\n    plan:\n      steps:\n        \
         - run: 'sleep {}; echo planned > \"$PLANFILE\"; echo \"Plan: 1 to add, 0 to change, 0 to destroy.\"'\n",
        STEP.as_secs()
    );
    let flags = ["--parallel-plan".to_owned(), format!("--parallel-pool-size={PROJECTS}")];
    let server = crate::start(&ground, &double, &rules, &flags).await?;
    let (before, others, own) = (Costs::of(&server).await?, cpu(server.pid())?, cpu(std::process::id())?);
    let changes: Vec<_> = files.iter().map(|(path, _)| (*path, Some("# two\n"))).collect();
    let began = Instant::now();
    let pull = repo.open_pull("all", "alice", "A change", &changes, OpenOptions::default()).await?;
    let comment = pull.wait_for_comment(0, LIMIT).await?;
    let took = began.elapsed();
    ensure!(comment.body.contains("+1 ~0 -0"), "not planned: {:.300}", comment.body);
    let cost = Costs::of(&server).await?.since(before, PROJECTS);
    let each = |now: Duration, before: Duration| now.saturating_sub(before).as_secs_f64() * 1000.0 / PROJECTS as f64;
    report.line(&format!(
        "a job: {:.1} ms CPU of the leader and {:.1} of its children, jobs among them; {:.1} of bucket and host in this process; \
         {:.1} requests of the leader",
        cost.cpu,
        each(cpu(server.pid())?.of_children, others.of_children),
        each(cpu(std::process::id())?.own, own.own),
        cost.requests
    ))?;
    let ideal = STEP * (PROJECTS / AT_ONCE) as u32;
    let ratio = took.as_secs_f64() / ideal.as_secs_f64();
    report.bound(
        ratio <= BOUND,
        &format!(
            "{PROJECTS} projects of {} s, {AT_ONCE} at a time: {:.1} s, {ratio:.2} times the least (at most {BOUND})",
            STEP.as_secs(),
            took.as_secs_f64()
        ),
    )?;
    report.bound(cost.cpu <= CPU, &format!("CPU of the leader a job: {:.1} ms (at most {CPU})", cost.cpu))?;
    let memory = peak(&server)?;
    report.bound(memory < MEMORY, &format!("most memory of the leader: {memory:.0} MB (below {MEMORY})"))
}
