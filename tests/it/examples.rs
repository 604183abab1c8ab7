//! The set-ups of `examples/`, each played as its page tells it.

use crate::support::*;
use std::path::Path;
use tidelock::config::global::GlobalConfig;
use tidelock::domain::RepoId;
use tidelock::sandbox::Pull;

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(path)).unwrap()
}

/// The repository of an example, with its states in the test's directory.
fn repository(example: &str, paths: &[&str]) -> Setup {
    let fill = |path: &&str| {
        let content = text(&format!("{example}/repository/{path}")).replace("/var/lib/states", "{tmp}/state");
        ((*path).to_owned(), content)
    };
    let files: Vec<(String, String)> = paths.iter().map(fill).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, content)| (path.as_str(), content.as_str())).collect();
    Setup::repo(&files)
}

fn changed(example: &str, path: &str, from: &str, to: &str) -> String {
    let content = text(&format!("{example}/repository/{path}")).replace("/var/lib/states", "{tmp}/state");
    assert!(content.contains(from), "{content}");
    content.replace(from, to)
}

fn terragrunt() -> Setup {
    let files =
        ["root.hcl", "atlantis.yaml", "modules/echo/main.tf", "live/vpc/terragrunt.hcl", "live/app/terragrunt.hcl"];
    let stand_in = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/terragrunt");
    // The tests' host has another name.
    let rules = text("terragrunt-workflow/repos.yaml").replace(r"dev\.azure\.com/contoso/platform/", "127.*/");
    repository("terragrunt-workflow", &files)
        .repos_yaml(&rules.replace(r"dev\.azure\.com/contoso/", "127.*/"))
        .variable("PATH", &format!("{stand_in}:{}", std::env::var("PATH").unwrap()))
}

/// Plan, a refusal, an approval, an apply, a new plan of what depends on it, and its apply.
async fn story(ctx: &Ctx) {
    let vpc = changed("terragrunt-workflow", "live/vpc/terragrunt.hcl", "10.0.0.0/16", "10.1.0.0/16");
    let pull = ctx.open("widen", &[("live/vpc/terragrunt.hcl", &vpc)]).await;
    let said = ctx.next(&pull).await;
    said.is("plan", "success").has("Terraform 1.11.4 by Terragrunt 0.99.1");
    assert_eq!(directories(&said), ["live/vpc", "live/app"]);
    ctx.say(&pull, "atlantis apply").await.because("requirement");
    approve(&pull);
    ctx.say(&pull, "atlantis apply -d live/vpc").await.is("apply", "success").has("`atlantis plan -d live/app`");
    ctx.say(&pull, "atlantis plan -d live/app").await.is("plan", "success").has("10.1.0.0/16");
    ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    let state = std::fs::read_to_string(ctx.tmp.join("state/live/app.tfstate")).unwrap();
    assert!(state.contains("10.1.0.0/16"), "{state}");
}

fn directories(said: &Said) -> Vec<String> {
    said.outcomes().into_iter().map(|(dir, _)| dir).collect()
}

fn approve(pull: &Pull) {
    pull.approve("bob").unwrap();
}

#[test]
fn the_rules_of_the_terragrunt_example_are_by_organisation_and_project() {
    let rules = GlobalConfig::parse(&text("terragrunt-workflow/repos.yaml"), "repos.yaml").unwrap();
    let of = |owner: &str| {
        let repo = RepoId { host: "dev.azure.com".into(), owner: owner.into(), name: "network".into() };
        let rules = rules.rules(&repo, "main");
        (rules.workflow, rules.terragrunt, rules.apply_requirements.len())
    };
    assert_eq!(of("contoso/platform"), ("terragrunt".to_owned(), true, 2));
    assert_eq!(of("contoso/payments"), ("terraform".to_owned(), false, 2));
    assert_eq!(of("other/platform"), ("default".to_owned(), false, 0));
}

#[test]
fn the_terragrunt_example_is_played() {
    run_test(terragrunt(), story);
}

#[test]
fn a_version_that_the_image_does_not_have_is_refused_by_name() {
    run_test(terragrunt(), async |ctx| {
        let config =
            changed("terragrunt-workflow", "atlantis.yaml", "terraform_version: 1.11.4", "terraform_version: 1.2.3");
        let vpc = changed("terragrunt-workflow", "live/vpc/terragrunt.hcl", "10.0.0.0/16", "10.1.0.0/16");
        let pull = ctx.open("old", &[("atlantis.yaml", &config), ("live/vpc/terragrunt.hcl", &vpc)]).await;
        ctx.next(&pull).await.has("Terraform 1.2.3 is not installed").has("and downloads are off");
    });
}

/// Counts who knocks, and lets nobody in.
fn refusing_proxy() -> (String, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    use std::io::Read;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let seen = std::sync::Arc::<std::sync::Mutex<Vec<String>>>::default();
    let told = seen.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut begin = [0; 200];
            let read = stream.read(&mut begin).unwrap_or_default();
            told.lock().unwrap().push(String::from_utf8_lossy(&begin[..read]).into_owned());
        }
    });
    (address, seen)
}

/// A mirror with one provider. Nothing of it is used, so that nothing starts it.
const MIRRORED: &str = "terraform {\n  required_providers {\n    null = {\n      source  = \"hashicorp/null\"\n      version = \"3.2.4\"\n    }\n  }\n}\n";

/// The whole story where everything that asks for the world asks a proxy, which tells on it.
fn without_the_world() {
    let (proxy, seen) = refusing_proxy();
    let mut setup = terragrunt().file("modules/echo/providers.tf", MIRRORED);
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"] {
        setup = setup.variable(name, &proxy);
    }
    let setup = setup
        .variable("NO_PROXY", "127.0.0.1,localhost")
        .variable("CHECKPOINT_DISABLE", "")
        .variable("TF_CLI_CONFIG_FILE", "{tmp}/terraform.rc");
    run_test(setup, async |ctx| {
        let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let folder = ctx.tmp.join(format!("mirror/registry.terraform.io/hashicorp/null/3.2.4/linux_{machine}"));
        std::fs::create_dir_all(&folder).unwrap();
        let provider = folder.join("terraform-provider-null_v3.2.4");
        std::fs::write(&provider, "#!/bin/sh\nexit 1\n").unwrap();
        make_executable(&provider);
        let rc = text("terragrunt-workflow/terraform.rc").replace("/usr/share/terraform/providers", "{tmp}/mirror");
        std::fs::write(ctx.tmp.join("terraform.rc"), ctx.fill(&rc)).unwrap();
        story(ctx).await;
        assert!(std::fs::read_dir(ctx.server.data("plugin-cache")).is_ok_and(|mut entries| entries.next().is_some()));
    });
    assert_eq!(*seen.lock().unwrap(), Vec::<String>::new());
}

#[test]
fn no_request_leaves_where_nothing_is_downloaded() {
    const INSIDE: &str = "TIDELOCK_TEST_WITHOUT_NETWORK";
    if std::env::var_os(INSIDE).is_some() {
        return without_the_world();
    }
    // The same in a namespace with nothing but loopback, where the machine lets us make one.
    let test = std::env::current_exe().unwrap();
    let alone = std::process::Command::new("unshare")
        .args(["--map-root-user", "--net", "sh", "-c", "ip link set lo up && exec \"$@\"", "sh"])
        .arg(test)
        .args(["--exact", "examples::no_request_leaves_where_nothing_is_downloaded", "--nocapture"])
        .env(INSIDE, "1")
        .output();
    let mut can = std::process::Command::new("unshare");
    can.args(["--map-root-user", "--net", "ip", "link", "set", "lo", "up"]);
    match alone {
        Ok(alone) if alone.status.success() => {}
        Ok(alone) if can.status().is_ok_and(|status| status.success()) => {
            panic!("{}\n{}", String::from_utf8_lossy(&alone.stdout), String::from_utf8_lossy(&alone.stderr))
        }
        _ => without_the_world(),
    }
}

fn monorepo() -> Setup {
    let files = ["atlantis.yaml", "conf/network/main.tf", "conf/billing/main.tf", "modules/record/main.tf"];
    repository("monorepo", &files).repos_yaml(&text("monorepo/repos.yaml"))
}

#[test]
fn the_monorepo_example_is_played() {
    run_test(monorepo(), async |ctx| {
        let more =
            |project: &str| changed("monorepo", &format!("conf/{project}/main.tf"), "module", "# changed\nmodule");
        let (network, billing) = (more("network"), more("billing"));
        let one = ctx.open("network", &[("conf/network/main.tf", &network)]).await;
        let two = ctx.open("billing", &[("conf/billing/main.tf", &billing)]).await;
        for (pull, project) in [(&one, "network"), (&two, "billing")] {
            ctx.next(pull).await.is("plan", "success").has(&format!("{project} in {project}"));
            ctx.say(pull, &format!("atlantis apply -p {project}")).await.because("requirement").has("0 of 1 review");
            approve(pull);
        }
        // Applied before the merge; then what is merged is somebody else's, and does not stop the other project.
        ctx.say(&one, "atlantis apply").await.is("apply", "success");
        one.merge().await.unwrap();
        ctx.next(&one).await;
        ctx.say(&two, "atlantis apply").await.is("apply", "success");
        for project in ["network", "billing"] {
            let state = ctx.tmp.join(format!("state/{project}/{project}/terraform.tfstate"));
            assert!(std::fs::read_to_string(state).unwrap().contains(&format!("{project} in {project}")));
        }
    });
}

#[test]
fn a_module_of_both_projects_that_moved_on_the_base_branch_stops_an_apply() {
    run_test(monorepo(), async |ctx| {
        let billing = changed("monorepo", "conf/billing/main.tf", "module", "# changed\nmodule");
        let pull = ctx.open("billing", &[("conf/billing/main.tf", &billing)]).await;
        ctx.next(&pull).await.is("plan", "success");
        approve(&pull);
        let module = changed("monorepo", "modules/record/main.tf", "resource", "# changed\nresource");
        ctx.repo.push("main", &[("modules/record/main.tf", Some(&module))]).await.unwrap();
        let said = ctx.say(&pull, "atlantis apply").await;
        said.because("requirement").has("`modules/record/main.tf`");
    });
}
