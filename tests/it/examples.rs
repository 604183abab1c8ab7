//! The set-ups of `examples/`, each played as on its page.

mod kubernetes;
#[cfg(target_os = "linux")]
mod provider;

use crate::support::*;
use std::path::Path;
use tidelock_core::config::global::GlobalConfig;
use tidelock_core::domain::RepoId;
use tidelock_forge::Pull;

fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(path)).unwrap()
}

/// Sets up the repository of an example, with its states in the test's directory.
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
        .variable("PATH", &format!("{stand_in}:{{tmp}}/tools:{}", std::env::var("PATH").unwrap()))
}

/// Plays a plan, a refusal, an approval, an apply, a new plan of a dependent project, and its apply.
async fn story(ctx: &Ctx) {
    older_terraform(ctx);
    let vpc = changed("terragrunt-workflow", "live/vpc/terragrunt.hcl", "10.0.0.0/16", "10.1.0.0/16");
    let pull = ctx.open("widen", &[("live/vpc/terragrunt.hcl", &vpc)]).await;
    let said = ctx.next(&pull).await;
    said.is("plan", "success").has("Terraform 1.11.4 by Terragrunt 0.99.1").has("Terraform 1.9.8 by Terragrunt 0.99.1");
    assert_eq!(directories(&said), ["live/vpc", "live/app"]);
    ctx.say(&pull, "atlantis apply").await.is("apply", "failure").has("0 of 1 review");
    approve(&pull);
    ctx.say(&pull, "atlantis apply -d live/vpc").await.is("apply", "success").has("`atlantis plan -d live/app`");
    ctx.say(&pull, "atlantis plan -d live/app").await.is("plan", "success").has("10.1.0.0/16");
    ctx.say(&pull, "atlantis apply").await.is("apply", "success");
    let state = std::fs::read_to_string(ctx.tmp.join("state/live/app.tfstate")).unwrap();
    assert!(state.contains("10.1.0.0/16"), "{state}");
}

/// Installs the second version of the image: a stand-in that is the other one under another name.
fn older_terraform(ctx: &Ctx) {
    let program = ctx.tmp.join("tools/terraform1.9.8");
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    let script = "#!/bin/sh\n[ \"$1\" = version ] && echo 'Terraform v1.9.8' && exit\nexec terraform \"$@\"\n";
    std::fs::write(&program, script).unwrap();
    make_executable(&program);
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

/// Starts a proxy that records all connections and refuses them.
#[cfg(target_os = "linux")]
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

/// A project that needs a provider of the mirror.
#[cfg(target_os = "linux")]
const MIRRORED: &str = r#"terraform {
  required_providers {
    record = {
      source  = "contoso/record"
      version = "1.0.0"
    }
  }
  backend "local" {
    path = "{tmp}/state/mirrored.tfstate"
  }
}

resource "record_line" "this" {
  text = "mirrored"
}
"#;

/// Plays the whole story with a proxy that records and refuses every request to the outside. `alone`: there is no network, and the kernel
/// counts the packets that would have left.
#[cfg(target_os = "linux")]
fn without_the_world(alone: bool) {
    let (proxy, seen) = refusing_proxy();
    let mut setup = terragrunt();
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"] {
        setup = setup.variable(name, &proxy);
    }
    let setup = setup
        .variable("NO_PROXY", "127.0.0.1,localhost")
        .variable("CHECKPOINT_DISABLE", "")
        // The stand-in for a provider speaks plain text with Terraform.
        .variable("TF_DISABLE_PLUGIN_TLS", "1")
        .variable("TF_CLI_CONFIG_FILE", "{tmp}/terraform.rc");
    run_test(setup, async |ctx| {
        provider::put_into(&ctx.tmp.join("mirror"));
        let rc = text("terragrunt-workflow/terraform.rc").replace("/usr/share/terraform/providers", "{tmp}/mirror");
        std::fs::write(ctx.tmp.join("terraform.rc"), ctx.fill(&rc)).unwrap();
        story(ctx).await;
        // A project with a provider, which `init` takes from the mirror.
        let config = text("terragrunt-workflow/repository/atlantis.yaml") + "  - dir: mirrored\n";
        let pull = ctx.open("mirrored", &[("atlantis.yaml", &config), ("mirrored/main.tf", MIRRORED)]).await;
        ctx.next(&pull).await.is("plan", "success").has("record_line.this will be created");
        ctx.say(&pull, "atlantis plan -d mirrored").await.is("plan", "success").has("1 to add");
        approve(&pull);
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("1 added");
        let state = std::fs::read_to_string(ctx.tmp.join("state/mirrored.tfstate")).unwrap();
        assert!(state.contains("contoso/record") && state.contains("mirrored"), "{state}");
    });
    assert_eq!(*seen.lock().unwrap(), Vec::<String>::new());
    if alone {
        assert_eq!(left(), Vec::<String>::new());
    }
}

/// Returns the packets that this network namespace was asked to send beyond loopback, and the names that were looked up: all servers here
/// speak TCP by address.
#[cfg(target_os = "linux")]
fn left() -> Vec<String> {
    let (four, six) = ["/proc/net/snmp", "/proc/net/snmp6"].map(|file| std::fs::read_to_string(file).unwrap()).into();
    // `Ip: NAMES` and `Ip: NUMBERS`, each in a line.
    let mut lines = four.lines();
    let mut counted = Vec::new();
    while let (Some(names), Some(numbers)) = (lines.next(), lines.next()) {
        let kind = names.split(':').next().unwrap_or_default();
        let both = names.split_whitespace().zip(numbers.split_whitespace()).skip(1);
        counted.extend(both.map(|(name, number)| (format!("{kind}{name}"), number.to_owned())));
    }
    counted.extend(
        six.lines()
            .filter_map(|line| line.split_once(char::is_whitespace))
            .map(|(name, number)| (name.to_owned(), number.trim().to_owned())),
    );
    let asked = ["IpOutNoRoutes", "UdpOutDatagrams", "Ip6OutNoRoutes", "Udp6OutDatagrams"];
    for name in asked {
        assert!(counted.iter().any(|(known, _)| known == name), "the kernel does not count {name}");
    }
    let asked = counted.into_iter().filter(|(name, number)| asked.contains(&name.as_str()) && number != "0");
    asked.map(|(name, number)| format!("{name} {number}")).collect()
}

/// Plays the whole story in a network namespace with nothing but loopback.
#[test]
#[cfg(target_os = "linux")]
fn no_request_leaves_where_nothing_is_downloaded() {
    const INSIDE: &str = "TIDELOCK_TEST_WITHOUT_NETWORK";
    const LOOPBACK: [&str; 5] = ["ip", "link", "set", "lo", "up"];
    if std::env::var_os(INSIDE).is_some() {
        return without_the_world(true);
    }
    let unshared = || {
        let mut command = std::process::Command::new("unshare");
        command.args(["--map-root-user", "--net"]);
        command
    };
    let can = unshared().args(LOOPBACK).output();
    if !can.as_ref().is_ok_and(|can| can.status.success()) {
        assert!(std::env::var_os("CI").is_none(), "this machine makes no network namespace: {can:?}");
        eprintln!("not in a namespace of its own, which this machine does not make: {can:?}");
        return without_the_world(false);
    }
    let alone = unshared()
        .args(["sh", "-c", &format!("{} && exec \"$@\"", LOOPBACK.join(" ")), "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "examples::no_request_leaves_where_nothing_is_downloaded", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let (said, told) = (String::from_utf8_lossy(&alone.stdout), String::from_utf8_lossy(&alone.stderr));
    assert!(alone.status.success() && said.contains("1 passed"), "{said}\n{told}");
}

fn monorepo() -> Setup {
    let files = ["atlantis.yaml", "conf/network/main.tf", "conf/billing/main.tf", "modules/record/main.tf"];
    repository("monorepo", &files).repos_yaml(&text("monorepo/repos.yaml"))
}

#[test]
fn the_monorepo_example_is_played() {
    run_test(monorepo(), async |ctx| {
        let more = |project: &str| {
            changed("monorepo", &format!("conf/{project}/main.tf"), "module \"record\"", "# changed\nmodule \"record\"")
        };
        let (network, billing) = (more("network"), more("billing"));
        let one = ctx.open("network", &[("conf/network/main.tf", &network)]).await;
        let two = ctx.open("billing", &[("conf/billing/main.tf", &billing)]).await;
        for (pull, project) in [(&one, "network"), (&two, "billing")] {
            ctx.next(pull).await.is("plan", "success").has(&format!("{project} in {project}"));
            ctx.say(pull, &format!("atlantis apply -p {project}")).await.because("requirement").has("0 of 1 review");
            approve(pull);
        }
        // Applied before the merge. After it, the merged change is another pull request's, and does not stop the other project.
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
        let billing = changed("monorepo", "conf/billing/main.tf", "module \"record\"", "# changed\nmodule \"record\"");
        let pull = ctx.open("billing", &[("conf/billing/main.tf", &billing)]).await;
        ctx.next(&pull).await.is("plan", "success");
        approve(&pull);
        let module = changed("monorepo", "modules/record/main.tf", "resource", "# changed\nresource");
        ctx.repo.push("main", &[("modules/record/main.tf", Some(&module))]).await.unwrap();
        let said = ctx.say(&pull, "atlantis apply").await;
        said.because("requirement").has("`modules/record/main.tf`");
    });
}
