//! Plans and their JSON, while a process that a plan has left behind replaces them with others.

use crate::place::{Binary, LIMIT, answer};
use crate::tree::users;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tidelock_forge::{Forge, ForgeOptions, OpenOptions, Pull};

/// Code that is approved. `@OUT@` is a directory that steps can write to.
const APPROVED: &str = "resource \"terraform_data\" \"a\" {
  provisioner \"local-exec\" {
    command = \"echo x >> @OUT@/approved\"
  }
}
";
/// Makes another plan of the same directory, and leaves a process that replaces every plan and its JSON with it once `go` exists.
const HOSTILE: &str = "set -e
mkdir -p @OUT@/other
cat > @OUT@/other/main.tf <<'END'
resource \"terraform_data\" \"other\" {
  provisioner \"local-exec\" {
    command = \"echo x >> @OUT@/swapped\"
  }
}
END
(cd @OUT@/other && terraform init -input=false >/dev/null && terraform plan -input=false -out=../other.tfplan >/dev/null && terraform show -json ../other.tfplan > ../other.json)
cat > @OUT@/swap.sh <<'END'
while [ ! -e @OUT@/go ]; do sleep 0.01; done
n=0
while [ ! -e @OUT@/end ]; do
  n=$((n+1))
  for file in default.tfplan default.json default-changes.json; do
    cp @OUT@/other.${file##*.} @OUT@/new.$n 2>/dev/null && mv -f @OUT@/new.$n $1/$file 2>/dev/null
  done
  [ $n != 20 ] || touch @OUT@/busy
done
END
setsid sh @OUT@/swap.sh $PWD >/dev/null 2>&1 </dev/null &
[ ! -e @OUT@/at-once ] || while [ ! -e @OUT@/busy ]; do sleep 0.01; done
";

struct World {
    server: Binary,
    forge: Forge,
    dir: TempDir,
}

impl World {
    async fn start(user: Option<&str>, repos: &str, flags: &[&str]) -> World {
        let dir = TempDir::new().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let out = dir.path().join("out");
        std::fs::create_dir(&out).unwrap();
        std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o777)).unwrap();
        let policies = dir.path().join("policies");
        std::fs::create_dir(&policies).unwrap();
        let policy = "package main\ndeny contains msg if { some change in input.resource_changes; change.name == \"a\"; msg := \"no a\" }\n";
        std::fs::write(policies.join("a.rego"), policy).unwrap();
        let forge = Forge::start(ForgeOptions { dir: dir.path().join("forge"), port: 0 }).await.unwrap();
        let repos = repos.replace("@DIR@", dir.path().to_str().unwrap());
        let mut all = vec![format!("--repo-config-json={repos}")];
        all.extend(user.map(|user| format!("--run-as-user={user}")));
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let server = Binary::start(&forge, dir.path(), &all, None).await;
        World { server, forge, dir }
    }

    fn out(&self, name: &str) -> PathBuf {
        self.dir.path().join("out").join(name)
    }

    async fn open(&self) -> Pull {
        let repo = self.forge.create_repo("acme/infra", &[("README.md", "")]).await.unwrap();
        let fill = |text: &str| text.replace("@OUT@", self.dir.path().join("out").to_str().unwrap());
        let (code, script) = (fill(APPROVED), fill(HOSTILE));
        let changes = [("a/main.tf", Some(code.as_str())), ("a/hostile.sh", Some(script.as_str()))];
        repo.open_pull("change", "alice", "Change", &changes, OpenOptions::default()).await.unwrap()
    }

    /// Starts the exchange of files, if a process is left to do it.
    async fn swap(&self) {
        std::fs::write(self.out("go"), "").unwrap();
        let until = Instant::now() + Duration::from_secs(5);
        while !self.out("busy").exists() && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn end(self) {
        std::fs::write(self.out("end"), "").unwrap();
        self.server.terminate();
    }
}

fn workflow(plan: &[&str], apply: &str) -> String {
    let mut steps = vec![serde_json::json!({"run": "sh ./hostile.sh"})];
    steps.extend(plan.iter().map(|step| serde_json::json!(step)));
    let apply = match apply {
        "apply" => serde_json::json!("apply"),
        run => serde_json::json!({ "run": run }),
    };
    serde_json::json!({
        "repos": [{"id": "/.*/", "workflow": "w"}],
        "workflows": {"w": {"plan": {"steps": steps}, "apply": {"steps": [apply]}}},
        "policies": {"owners": {"users": ["olga"]}, "policy_sets": [{"name": "a", "path": "@DIR@/policies"}]},
    })
    .to_string()
}

/// Plans, starts the exchange, and applies: only the approved plan is applied.
async fn apply_is_of_the_approved_plan(user: Option<&str>, apply: &str) {
    let world = World::start(user, &workflow(&["init", "plan"], apply), &[]).await;
    let pull = world.open().await;
    let said = answer(&pull, 0).await;
    assert!(said.body.contains("1 to add"), "{}", said.body);
    world.swap().await;
    pull.comment("alice", "atlantis apply").unwrap();
    let said = answer(&pull, 1).await;
    assert!(!world.out("swapped").exists(), "another plan was applied: {}", said.body);
    assert!(world.out("approved").exists(), "the plan was not applied: {}", said.body);
    world.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_plan_is_not_exchanged_by_a_process_of_another_step() {
    for user in users("an_approved_plan_is_not_exchanged_by_a_process_of_another_step") {
        apply_is_of_the_approved_plan(user, "apply").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_the_workflow_applies_the_approved_plan() {
    for user in users("a_step_of_the_workflow_applies_the_approved_plan") {
        apply_is_of_the_approved_plan(user, "terraform apply -input=false $PLANFILE").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_judge_the_plan_that_was_made() {
    for user in users("policies_judge_the_plan_that_was_made") {
        let world = World::start(user, &workflow(&["init", "plan"], "apply"), &["--enable-policy-checks"]).await;
        for name in ["go", "at-once"] {
            std::fs::write(world.out(name), "").unwrap();
        }
        let pull = world.open().await;
        answer(&pull, 0).await;
        let checked = answer(&pull, 1).await;
        let plan = std::fs::read_dir(world.dir.path().join("data/plans")).unwrap().next().unwrap().unwrap();
        let is_other = std::fs::read(plan.path()).unwrap() == std::fs::read(world.out("other.tfplan")).unwrap();
        // A plan that was exchanged before the server took it is the one that policies check, and that would be applied.
        assert_eq!(checked.body.contains("no a"), !is_other, "{}", checked.body);
        world.end();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_show_step_wrote_is_not_what_policies_judge() {
    let world = World::start(None, &workflow(&["init", "plan"], "apply"), &["--enable-policy-checks"]).await;
    // This process exchanges only the JSON of the plan.
    std::fs::write(world.out("at-once"), "").unwrap();
    std::fs::write(world.out("go"), "").unwrap();
    let repo = world.forge.create_repo("acme/other", &[("README.md", "")]).await.unwrap();
    let out = world.out("").to_str().unwrap().trim_end_matches('/').to_owned();
    let script =
        HOSTILE.replace("default.tfplan default.json default-changes.json", "default.json").replace("@OUT@", &out);
    let code = APPROVED.replace("@OUT@", &out);
    let changes = [("a/main.tf", Some(code.as_str())), ("a/hostile.sh", Some(script.as_str()))];
    let pull = repo.open_pull("change", "alice", "Change", &changes, OpenOptions::default()).await.unwrap();
    answer(&pull, 0).await;
    let checked = answer(&pull, 1).await;
    assert!(checked.body.contains("no a"), "{}", checked.body);
    let until = Instant::now() + LIMIT;
    while world.dir.path().join("data/sealed").read_dir().is_ok_and(|mut folder| folder.next().is_some()) {
        assert!(Instant::now() < until, "a copy of the plan is left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    world.end();
}
