//! Time that features of `repos.yaml` add to a plan: the same plan in a repository with a feature and in one without any, in turns, with
//! real Terraform.

use crate::forge::{Ground, planned};
use crate::report::Report;
use crate::server::Server;
use anyhow::Result;
use tidelock_forge::Repo;

/// Plans in each repository that are counted.
const ROUNDS: usize = 25;
/// Limit of the median of what a feature adds to a plan, in milliseconds.
const BOUND: f64 = 5.0;
/// Repositories, and the keys of their entries. The first one has no feature.
const FEATURES: [(&str, &str); 4] = [
    ("plain", ""),
    ("auto-apply", "apply_requirements: [approved], auto_apply: {when: approved}"),
    ("merging", "automerge: true, merge_method: squash"),
    ("verified", "verify_applies: true, replan_after_failed_apply: true"),
];
/// The entry whose guards cost one `terraform show -json`, which has no bound.
const GUARDS: (&str, &str) = (
    "guards",
    "guards: [{name: data, max_destroys: 0, protect: [\"google_sql_*\"], forbid: [external, provisioners]}]",
);

/// A repository and the times of its plans, in milliseconds.
struct Measured {
    name: &'static str,
    repo: Repo,
    times: Vec<f64>,
}

pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    let ground = Ground::new().await?;
    let (mut rules, mut measured) = ("repos:\n".to_owned(), Vec::new());
    for (name, keys) in FEATURES.iter().chain([&GUARDS]).copied() {
        let keys = if keys.is_empty() { String::new() } else { format!(", {keys}") };
        rules.push_str(&format!("  - {{id: /.*\\/acme\\/{name}/{keys}}}\n"));
        let repo = ground.forge.create_repo(&format!("acme/{name}"), &[("main.tf", &code("one"))]).await?;
        measured.push(Measured { name, repo, times: Vec::new() });
    }
    let config = ground.path().join("repos.yaml");
    std::fs::write(&config, rules)?;
    let bucket = format!("--bucket=file://{}", ground.bucket().display());
    let flags = [bucket, format!("--repo-config={}", config.display())];
    let server = Server::start_with_tools(&ground.forge, &ground.path().join("data"), &flags, None).await?;
    ground.forge.set_webhook(&format!("http://{}/events", server.address));
    for one in &measured {
        // It makes the mirror.
        planned(&one.repo, "warm", &code("warm")).await?;
    }
    for round in 0..ROUNDS {
        // Each repository is first in some rounds: what runs first finds the caches of the last round.
        for turn in 0..measured.len() {
            let one = (turn + round) % measured.len();
            let branch = format!("round-{round}");
            let took = planned(&measured[one].repo, &branch, &code(&branch)).await?;
            measured[one].times.push(took.as_secs_f64() * 1000.0);
        }
    }
    judge(report, &measured)
}

fn judge(report: &mut Report, measured: &[Measured]) -> Result<()> {
    let [plain, features @ ..] = measured else { return Ok(()) };
    report.line(&format!("a plan without features: {:.0} ms", median(plain.times.clone())))?;
    for one in features {
        let added = median(one.times.iter().zip(&plain.times).map(|(with, without)| with - without).collect());
        let what = format!("{}: {added:+.1} ms", one.name);
        match one.name == GUARDS.0 {
            true => report.line(&format!("{what}, with `terraform show -json`"))?,
            false => report.bound(added <= BOUND, &format!("{what} (at most {BOUND})"))?,
        }
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn code(input: &str) -> String {
    format!("resource \"terraform_data\" \"this\" {{\n  input = \"{input}\"\n}}\n")
}
