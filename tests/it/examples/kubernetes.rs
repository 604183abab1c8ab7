//! Azure DevOps on Kubernetes: a server with the example's settings, rules and variables, across the end of its pod.

use super::text;
use crate::azure_devops::AzureDevOpsFake;
use crate::flow::FlowHost;
use crate::support::*;
use serde_json::Value;

const EXAMPLE: &str = "azure-devops-kubernetes/azure-devops";

/// The rules for the repository of the fake.
fn rules() -> String {
    text(&format!("{EXAMPLE}/repos.yaml")).replace(r"dev\.azure\.com/contoso/", "localhost.*/")
}

/// Returns the variables that the pod gets from the Secret, with the key there.
fn from_secret() -> Vec<(String, String)> {
    let patch: Value = serde_saphyr::from_str(&text(&format!("{EXAMPLE}/variables.yaml"))).unwrap();
    let variables = patch["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap().clone();
    let named = |variable: &Value| {
        let key = variable["valueFrom"]["secretKeyRef"]["key"].as_str()?;
        Some((variable["name"].as_str()?.to_owned(), key.to_owned()))
    };
    variables.iter().filter_map(named).collect()
}

/// A server as in the example, with its settings file, except for the addresses.
fn served(fake: &AzureDevOpsFake) -> Setup {
    let file = format!("{}/examples/{EXAMPLE}/tidelock.yaml", env!("CARGO_MANIFEST_DIR"));
    let setup = fake.served(Setup::one_project().repos_yaml(&rules()));
    setup
        .flags(&[&format!("--config={file}"), "--webhook-allowlist=", "--trusted-proxy-hops=0"])
        .variable("TIDELOCK_WEB_USERNAME", "people")
        .variable("TIDELOCK_WEB_PASSWORD", "a password of the pages")
}

async fn comment(ctx: &Ctx, fake: &AzureDevOpsFake, number: u64, read: usize) -> Said {
    ctx.until("the server comments", async || fake.answers(ctx, number).len() > read).await;
    Said::new(&fake.answers(ctx, number)[read])
}

/// Plays a plan, a refusal, a vote, and an apply after the pod was replaced, by `replace`.
fn played(replace: impl AsyncFnOnce(&Ctx)) {
    let fake = AzureDevOpsFake::start();
    run_test(served(&fake), async |ctx| {
        fake.connect(ctx).await;
        let number = fake.open_one(ctx, "change", ("main.tf", &ctx.fill(&terraform("azure", "2")))).await;
        comment(ctx, &fake, number, 0).await.is("plan", "success").has("1 to add");
        fake.comment_on(ctx, number, "atlantis apply").await;
        comment(ctx, &fake, number, 1).await.is("apply", "failure").has("0 of 1 review");
        replace(ctx).await;
        fake.hear(ctx, true);
        // A vote of somebody else.
        fake.touch(ctx, number).await;
        fake.comment_on(ctx, number, "atlantis apply").await;
        comment(ctx, &fake, number, 2).await.is("apply", "success").has("1 added");
        let state = ctx.tmp.join("state/azure.tfstate");
        assert!(std::fs::read_to_string(&state).is_ok(), "{}", state.display());
    });
}

#[test]
fn the_variables_of_the_example_are_those_that_the_server_reads() {
    let named: Vec<String> = from_secret().into_iter().map(|(name, key)| format!("{name}={key}")).collect();
    let keys = ["TOKEN=azuredevops-token", "WEBHOOK_PASSWORD=azuredevops-webhook-password"];
    assert_eq!(named, keys.map(|rest| format!("TIDELOCK_AZUREDEVOPS_{rest}")));
    let told = text("azure-devops-kubernetes/README.md");
    for (_, key) in from_secret() {
        assert!(told.contains(&format!("--from-literal={key}=")), "{key}");
    }
    // A server starts with only these and the file.
    let file = format!("{}/examples/{EXAMPLE}/tidelock.yaml", env!("CARGO_MANIFEST_DIR"));
    let repos = format!("{}/examples/{EXAMPLE}/repos.yaml", env!("CARGO_MANIFEST_DIR"));
    let logins =
        [("TIDELOCK_WEB_USERNAME", "people"), ("TIDELOCK_WEB_PASSWORD", "a password"), ("HOME", "/nonexistent")];
    let variables = from_secret().into_iter().map(|(name, _)| (name, "long enough for this".to_owned()));
    let variables = variables.chain(logins.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let flags = [format!("--config={file}"), format!("--repo-config={repos}")];
    let loaded = tidelock::settings::Settings::load(
        flags.iter().map(Into::into),
        variables.map(|(name, value)| (name.into(), value.into())),
    );
    let settings = loaded.unwrap();
    assert!(!settings.tf_download && settings.hosts.github.is_none());
    let account = settings.hosts.azure_devops.unwrap();
    assert_eq!((account.hostname.as_str(), account.user.as_str()), ("dev.azure.com", "tidelock@contoso.com"));
}

#[test]
fn the_rules_are_those_of_the_other_example() {
    assert_eq!(text(&format!("{EXAMPLE}/repos.yaml")), text("terragrunt-workflow/repos.yaml"));
}

#[test]
fn the_stateful_set_of_the_example_is_played() {
    played(async |ctx| ctx.server.restart().await);
}

#[test]
fn the_deployment_of_the_example_is_played() {
    played(async |ctx| {
        ctx.server.stop().await;
        // The new pod has an empty disk; the state is in the bucket.
        let data = ctx.own.join("data");
        let bucket = ctx.own.join("bucket");
        if !bucket.exists() {
            std::fs::rename(data.join("vault"), &bucket).unwrap();
            ctx.server.flag(&format!("--bucket=file://{}", bucket.display()));
        }
        std::fs::remove_dir_all(&data).unwrap();
        ctx.server.start().await;
    });
}
