//! Secrets of projects: variables from a store at each job, masked in everything that is shown, and masks of what steps print.

use crate::support::*;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

const VALUE: &str = "hunter22-of-store";
const TOKEN: &str = "token-of-server";

/// A HashiCorp Vault on loopback with one token. It refuses everything else, as the real one does:
/// <https://developer.hashicorp.com/vault/api-docs#http-status-codes>
struct VaultDouble {
    address: String,
    values: Values,
}

type Values = Arc<Mutex<HashMap<String, String>>>;

impl VaultDouble {
    fn start() -> VaultDouble {
        let values: Values = Arc::default();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let router = axum::Router::new().fallback(answer).with_state(Arc::clone(&values));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                axum::serve(listener, router).await
            })
        });
        let double = VaultDouble { address, values };
        double.set("secret/data/app", VALUE);
        double
    }

    fn set(&self, path: &str, value: &str) {
        self.values.lock().unwrap().insert(format!("/v1/{path}"), value.to_owned());
    }

    fn setup(&self, setup: Setup) -> Setup {
        setup.variable("VAULT_ADDR", &self.address).variable("VAULT_TOKEN", TOKEN)
    }
}

async fn answer(State(values): State<Values>, request: Request) -> (StatusCode, String) {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if header("x-vault-token") != TOKEN || header("x-vault-request") != "true" {
        return (StatusCode::FORBIDDEN, r#"{"errors": ["permission denied"]}"#.to_owned());
    }
    let values = values.lock().unwrap();
    match values.get(request.uri().path()) {
        Some(value) if value.is_empty() => {
            (StatusCode::FORBIDDEN, r#"{"errors": ["1 error occurred: permission denied"]}"#.to_owned())
        }
        Some(value) => {
            let data = serde_json::json!({"data": {"data": {"token": value}, "metadata": {"version": 1}}});
            (StatusCode::OK, data.to_string())
        }
        None => (StatusCode::NOT_FOUND, r#"{"errors": []}"#.to_owned()),
    }
}

/// Only the project `a` gets the variable.
const RULE: &str = "secrets: [{dirs: a, env: {TF_VAR_token: 'vault:secret/data/app#token'}}]";
/// Shows the variable in every form that a program may print, and leaves it outside of what the server keeps.
const SHOWS: &str = "echo \"has [$TF_VAR_token]\"; printf %s \"$TF_VAR_token\" | base64; echo \"$TF_VAR_token\" >&2; \
                     printf %s \"$TF_VAR_token\" > {tmp}/value-$REPO_REL_DIR";

/// Returns the files below a directory that contain a text.
fn files_with(dir: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files_with(&path, text));
        } else if std::fs::read(&path).is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
        {
            found.push(path.display().to_string());
        }
    }
    found
}

/// Plays plan and apply of two projects of which one has the secret, which changes in between.
async fn is_given_and_masked(ctx: &Ctx, store: &VaultDouble) {
    let value_of = |dir: &str| std::fs::read_to_string(ctx.tmp.join(format!("value-{dir}"))).unwrap();
    let pull = ctx.open_dirs("change", &["a", "b"]).await;
    let said = ctx.next(&pull).await;
    said.is("plan", "success").has("has [<redacted>]").has("has []").has_not(VALUE);
    assert_eq!((value_of("a").as_str(), value_of("b").as_str()), (VALUE, ""));
    const ROTATED: &str = "rotated-and-longer";
    store.set("secret/data/app", ROTATED);
    let applied = ctx.say(&pull, "atlantis apply").await;
    applied.is("apply", "success").has("has [<redacted>]").has_not(ROTATED);
    assert_eq!((value_of("a").as_str(), value_of("b").as_str()), (ROTATED, ""));
    for said in [&said, &applied] {
        for job in said.text.split("/jobs/").skip(1).filter_map(|rest| rest.get(..32)) {
            let (_, log) = ctx.request("GET", &format!("/jobs/{job}/log"), &[]).await;
            assert!(!log.contains(VALUE) && !log.contains(ROTATED), "{log}");
        }
    }
    // The state on disk is what the commits in the bucket consist of.
    for text in [VALUE, ROTATED, "aHVudGVyMjItb2Ytc3Rvc", "cm90YXRlZC1hbmQtbG9uZ2Vy"] {
        assert_eq!(files_with(&ctx.own.join("data"), text), Vec::<String>::new(), "{text}");
    }
    assert!(!ctx.server.log().contains(VALUE));
}

#[test]
fn steps_get_the_secrets_of_their_project_and_nobody_sees_the_values() {
    let store = VaultDouble::start();
    // The steps do not get the token by which the server reads the secrets.
    let shows = format!("{SHOWS}; [ -z \"$VAULT_TOKEN\" ]");
    let setup = Setup::projects(&["a", "b"]).repos_yaml(&workflow(RULE, &[&shows, PLANNED], &[&shows])).own_process();
    run_test(store.setup(setup).flags(&["--masked-variables=VAULT_TOKEN"]), async |ctx| {
        is_given_and_masked(ctx, &store).await;
        let log = ctx.server.log();
        let entry = ["\"act\":\"read secrets\"", "TF_VAR_token from vault:secret/data/app#token for a/default"];
        let entries = log.lines().filter(|line| entry.iter().all(|part| line.contains(part))).count();
        assert_eq!(entries, 2, "{log}");
    });
}

#[test]
fn a_job_of_an_executor_reads_its_secrets_itself() {
    let store = VaultDouble::start();
    let rules = workflow(&format!("{RULE}\nexecutor: [{{plan: jobs, apply: jobs}}]"), &[SHOWS, PLANNED], &[SHOWS]);
    let setup = Setup::projects(&["a", "b"]).repos_yaml(&format!("executors: {{jobs: {{kind: process}}}}\n{rules}"));
    run_test(store.setup(setup.own_process()), async |ctx| is_given_and_masked(ctx, &store).await);
}

#[test]
fn values_are_masked_as_terraform_shows_them() {
    let store = VaultDouble::start();
    store.set("secret/data/app", "pa\"ss${word}-22\nsecond line of it");
    let code = "variable \"token\" {}\noutput \"token\" {\n  value = var.token\n}\n";
    let setup = Setup::one_project().file("token.tf", code);
    let setup = setup.repos_yaml(&format!("repos:\n- id: /.*/\n  {}\n", RULE.replace("dirs: a, ", "")));
    run_test(store.setup(setup), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success")
            .has("token = <<-EOT")
            .has("<redacted>")
            .has("Plan: 1 to add, 0 to change, 0 to destroy.");
        for part in ["word}-22", "second line of it"] {
            said.has_not(part);
        }
        ctx.say(&pull, "atlantis apply").await.is("apply", "success").has("<redacted>").has_not("word}-22");
    });
}

#[test]
fn a_value_that_was_replaced_after_the_plan_is_masked_in_the_apply() {
    let store = VaultDouble::start();
    store.set("secret/data/hidden", "hidden-at-the-plan");
    let code = "variable \"token\" {}\nvariable \"hidden\" { sensitive = true }\noutput \"token\" {\n  value = var.token\n}\n\
                output \"hidden\" {\n  value = nonsensitive(var.hidden)\n}\n";
    let rule = "secrets: [{env: {TF_VAR_token: 'vault:secret/data/app#token', TF_VAR_hidden: 'vault:secret/data/hidden#token'}}]";
    let rules = format!("repos:\n- id: /.*/\n  verify_applies: true\n  {rule}\n");
    run_test(store.setup(Setup::one_project().file("token.tf", code).repos_yaml(&rules)), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has("token  = \"<redacted>\"").has_not(VALUE);
        const ROTATED: [&str; 2] = ["rotated-and-longer", "hidden-at-the-apply"];
        store.set("secret/data/app", ROTATED[0]);
        store.set("secret/data/hidden", ROTATED[1]);
        let applied = ctx.say(&pull, "atlantis apply").await;
        // Terraform applies the values of the plan, and says so.
        applied
            .is("apply", "success")
            .has("Ignoring variable when applying a saved plan")
            .has("token = \"<redacted>\"");
        let (_, log) = ctx.request("GET", &format!("/jobs/{}/log", applied.job()), &[]).await;
        // The plan after the apply has the new values, and the state the old ones.
        assert!(log.contains("Planning again") && log.contains("Ignoring variable"), "{log}");
        for value in [VALUE, "hidden-at-the-plan", ROTATED[0], ROTATED[1]] {
            applied.has_not(value);
            assert!(!log.contains(value), "{value}: {log}");
        }
    });
}

#[test]
fn a_value_that_is_json_is_masked_as_the_attributes_that_terraform_shows() {
    let store = VaultDouble::start();
    let key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG\n-----END KEY-----\n";
    let account = serde_json::json!({"user": "app", "password": "pass-in-object", "key": key});
    store.set("secret/data/app", &account.to_string());
    let code = "variable \"token\" {\n  type = object({ user = string, password = string, key = string })\n}\n\
                resource \"terraform_data\" \"account\" {\n  input = var.token\n}\noutput \"json\" {\n  value = jsonencode(var.token)\n}\n";
    let setup = Setup::one_project().file("token.tf", code);
    let setup = setup.repos_yaml(&format!("repos:\n- id: /.*/\n  {}\n", RULE.replace("dirs: a, ", "")));
    run_test(store.setup(setup), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        let planned = ctx.next(&pull).await;
        planned
            .is("plan", "success")
            .has("password = \"<redacted>\"")
            .has("Plan: 2 to add, 0 to change, 0 to destroy.");
        let applied = ctx.say(&pull, "atlantis apply").await;
        for said in [planned, applied] {
            said.has_not("pass-in-object").has_not("MIIEvQIBADANBg");
            let (_, log) = ctx.request("GET", &format!("/jobs/{}/log", said.job()), &[]).await;
            assert!(!log.contains("pass-in-object") && !log.contains("MIIEvQIBADANBg"), "{log}");
        }
    });
}

#[test]
fn the_plan_after_an_apply_has_the_secrets_of_plans() {
    let store = VaultDouble::start();
    store.set("secret/data/writer", "value-of-writer");
    let rules = "verify_applies: true\nsecrets:\n- {stages: [plan], env: {TOKEN: 'vault:secret/data/app#token'}}\n\
                 - {stages: [apply], env: {TOKEN: 'vault:secret/data/writer#token'}}";
    let notes =
        |stage: &str| format!("echo {stage} $TOKEN >> {{tmp}}/stages; echo 'shown [value-of-writer] [{VALUE}]'");
    let (plan, apply) = (notes("plan"), notes("apply"));
    let setup = Setup::one_project().repos_yaml(&workflow(rules, &[&plan, PLANNED], &[&apply]));
    run_test(store.setup(setup), async |ctx| {
        let pull = ctx.open_input("change", "2").await;
        ctx.next(&pull).await.is("plan", "success").has_not(VALUE);
        let applied = ctx.say(&pull, "atlantis apply").await;
        applied.is("apply", "success").has_not("value-of-writer");
        let stages = std::fs::read_to_string(ctx.tmp.join("stages")).unwrap();
        assert_eq!(stages, format!("plan {VALUE}\napply value-of-writer\nplan {VALUE}\n"));
        let (_, log) = ctx.request("GET", &format!("/jobs/{}/log", applied.job()), &[]).await;
        // Both are masked in the plan after the apply.
        assert_eq!(log.matches("shown [<redacted>] [<redacted>]").count(), 1, "{log}");
    });
}

#[test]
fn a_secret_that_cannot_be_read_fails_its_project_alone() {
    let store = VaultDouble::start();
    let setup = Setup::projects(&["a", "b"]).repos_yaml(&workflow(RULE, &[SHOWS, PLANNED], &[SHOWS])).own_process();
    run_test(store.setup(setup), async |ctx| {
        // An empty value is one that the policy of the token does not allow.
        store.set("secret/data/app", "");
        let pull = ctx.open_dirs("change", &["a", "b"]).await;
        let said = ctx.next(&pull).await;
        assert_eq!(said.outcomes(), [("a", "error"), ("b", "success")].map(|(dir, end)| (dir.into(), end.into())));
        said.has(
            "The variable `TF_VAR_token` has no value: the secret `vault:secret/data/app#token` could not be read",
        );
        said.has("because HashiCorp Vault denies it to the identity of the job. No step has run.");
        said.has("Once the operator has put that right: `atlantis plan -d a`");
        assert!(!ctx.tmp.join("value-a").exists());
        assert!(ctx.server.log().contains("a secret cannot be read"));

        store.set("secret/data/app", VALUE);
        ctx.say(&pull, "atlantis plan -d a").await.is("plan", "success");
        store.values.lock().unwrap().clear();
        let said = ctx.say(&pull, "atlantis apply -d a").await;
        said.is("apply", "error").has("HashiCorp Vault has no such secret").has("Its plan is used up.");
        said.has("`atlantis plan -d a`");
        assert_eq!(std::fs::read_to_string(ctx.tmp.join("value-a")).unwrap(), VALUE, "the apply has run no step");
    });
}

#[test]
fn a_pull_request_chooses_neither_secrets_nor_masks() {
    let store = VaultDouble::start();
    let setup = Setup::projects(&["a", "b"]).repos_yaml(&workflow(RULE, &[SHOWS, PLANNED], &[SHOWS]));
    run_test(store.setup(setup), async |ctx| {
        let own = "[{env: {TF_VAR_token: 'vault:secret/data/app#token'}}]";
        for (key, value) in [("secrets", own), ("masks", "[]")] {
            let text = format!("version: 3\nprojects:\n- dir: b\n  {key}: {value}\n");
            let pull = ctx.open(key, &[("atlantis.yaml", &text)]).await;
            ctx.next(&pull).await.has(&format!("unknown key `{key}`"));
        }
        // Another project of its choice has the secrets of its own directory, which are none.
        let other = "version: 3\nprojects:\n- dir: b\n  workspace: other\n";
        let pull = ctx.open("workspace", &[("atlantis.yaml", other), ("b/x.tf", "# new\n")]).await;
        ctx.next(&pull).await.is("plan", "success").has("has []");
        assert!(!ctx.tmp.join("value-a").exists());
    });
}

#[test]
fn masks_hide_what_steps_print_and_not_what_the_server_reads() {
    let masks = r#"masks: ['xoxb-[0-9a-z-]+', '\d+', 'key: \S+']"#;
    let print = r#"printf 'token xoxb-1-abc\nkey: \033[1msplit\033[0m\ncustomer 4711 and more\n'"#;
    let setup = Setup::one_project().repos_yaml(&workflow(masks, &["init", "plan", print], &["apply", print]));
    run_test(setup.own_process(), async |ctx| {
        let pull = ctx.open_input("change", "77").await;
        let said = ctx.next(&pull).await;
        said.is("plan", "success").has("token <redacted>").has("customer <redacted> and more");
        for part in ["xoxb-", "customer 4711", "split", "\"77\""] {
            said.has_not(part);
        }
        said.has("Plan: 1 to add, 0 to change, 0 to destroy.");
        ctx.status(&pull, "atlantis/plan: ./default", "success", "1 to add").await;
        let (_, log) = ctx.request("GET", &format!("/jobs/{}/log", said.job()), &[]).await;
        assert!(log.contains("customer <redacted>") && !log.contains("customer 4711"), "{log}");
        ctx.say(&pull, "atlantis apply")
            .await
            .is("apply", "success")
            .has("Resources: 1 added")
            .has_not("customer 4711");
    });
}

#[test]
fn doctor_reads_the_secrets_and_warns_of_credentials_that_steps_get() {
    let store = VaultDouble::start();
    let rules = "repos:\n- id: /.*/\n  secrets: [{env: {A: 'vault:secret/data/app#token', B: 'vault:secret/data/none#token'}}]\n";
    run_test(store.setup(Setup::one_project().repos_yaml(rules).own_process()), async |ctx| {
        let url = format!("--atlantis-url={}", ctx.server.url());
        let (code, text) = ctx.server.command("doctor", &[&url]).await;
        assert_eq!(code, Some(1), "{text}");
        for wanted in [
            "vault:secret/data/app#token can be read",
            "vault:secret/data/none#token cannot be read: HashiCorp Vault has no such secret",
            "steps get VAULT_TOKEN",
            "--masked-variables=VAULT_TOKEN",
        ] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
        assert!(!text.contains(VALUE) && !text.contains(TOKEN), "{text}");
        let (_, text) = ctx.server.command("doctor", &[&url, "--masked-variables=VAULT_TOKEN"]).await;
        assert!(text.contains("app#token can be read") && !text.contains("steps get VAULT_TOKEN"), "{text}");
    });
}
