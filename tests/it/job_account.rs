//! A job whose account may create and read objects of its executor only: it runs a plan to its result, and a malicious plan that has the
//! account's token reaches nothing else in the bucket.

use crate::support::*;
use bytes::Bytes;
use std::process::{Command, Output, Stdio};
use tidelock_storage_double::{Effect, Fault, Operation, Settings, StorageAccount, StorageDouble, StorageGrant};

const BUCKET: &str = "acme-tidelock";
const TOKEN: &str = "token-of-the-account-of-plans";
const EMAIL: &str = "plans@acme.iam.gserviceaccount.com";
/// As the Terraform module grants it (`google_storage_bucket_iam_member.executors`).
const CONDITION: &str = r#"resource.name.startsWith("projects/_/buckets/acme-tidelock/objects/prod/jobs/plans/")"#;
/// Key of a job that the plan of a test does not know.
const OTHERS: &str = "0123456789abcdef0123456789abcdef";

/// Sends requests with the token of the job's account. Writes method, name and status of each to the file `answers`.
const ATTACK: &str = r#"
ask() {
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf '%s %s HTTP/1.1\r\nHost: storage\r\nAuthorization: Bearer %s\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}' "$1" "$2" "$token" >&3
    read -r _ status _ <&3
    exec 3>&-
    echo "$status $1 $2" >> "$answers"
}
objects=/storage/v1/b/acme-tidelock/o
read_object() { ask GET "$objects/${1//\//%2F}?alt=media"; }
write_object() { ask POST "/upload$objects?uploadType=media&name=$1"; }
for name in "$journal" prod/lock/leader.json prod/inbox/1 "prod/jobs/prod/$others/spec"; do read_object "$name"; done
write_object prod/inbox/2
write_object "prod/jobs/prod/$others/claim"
write_object "prod/jobs/plans/$key/spec"
write_object "prod/jobs/plans/$key/claim"
ask PATCH "$objects/prod%2Fjobs%2Fplans%2F$key%2Fclaim"
ask DELETE "$objects/prod%2Fjobs%2Fplans%2F$key%2Fclaim"
for prefix in '' prod/journal/ prod/jobs/ prod/jobs/plans/ "prod/jobs/plans/$key/"; do ask GET "$objects?prefix=$prefix"; done
read_object "prod/jobs/plans/$others/spec"
ask GET /storage/v1/b/acme-tidelock
read_object "prod/jobs/plans/$key/spec"
"#;

async fn start_double() -> StorageDouble {
    let double = StorageDouble::start().await.unwrap();
    double.bucket(BUCKET, Settings::default());
    let roles = ["roles/storage.objectCreator", "roles/storage.objectViewer"];
    let grants = roles.iter().map(|role| StorageGrant::new(role, CONDITION).unwrap()).collect();
    double.account(TOKEN, StorageAccount { email: EMAIL.into(), grants });
    double
}

/// Runs `tidelock run-job` with the job's account.
async fn run_job(double: &StorageDouble, job: &str, home: &std::path::Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    command.arg("run-job").env_clear().stdin(Stdio::null()).envs([
        ("PATH", std::env::var("PATH").unwrap()),
        ("HOME", home.to_str().unwrap().to_owned()),
        ("CHECKPOINT_DISABLE", "1".to_owned()),
        ("TIDELOCK_BUCKET", format!("gs://{BUCKET}/prod")),
        ("TIDELOCK_BUCKET_ENDPOINT", double.endpoint_of(TOKEN).await.unwrap()),
        ("TIDELOCK_JOB", job.to_owned()),
    ]);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// Returns the objects whose names have this beginning and this end, without `prod/`.
fn names(double: &StorageDouble, begin: &str, end: &str) -> Vec<String> {
    let all = double.names(BUCKET).into_iter().filter_map(|name| Some(name.strip_prefix("prod/")?.to_owned()));
    all.filter(|name| name.starts_with(begin) && name.ends_with(end)).collect()
}

/// Returns the requests of the attack that the double has to refuse for lack of a permission, as the permission and the name.
fn forbidden(journal: &str, key: &str) -> Vec<(String, String)> {
    let of_prod = |object: &str| format!("prod/jobs/prod/{OTHERS}/{object}");
    let own = |object: &str| format!("prod/jobs/plans/{key}/{object}");
    let mut expected = vec![
        ("get", journal.to_owned()),
        ("get", "prod/lock/leader.json".into()),
        ("get", "prod/inbox/1".into()),
        ("get", of_prod("spec")),
        ("create", "prod/inbox/2".into()),
        ("create", of_prod("claim")),
        // Who overwrites deletes.
        ("delete", own("spec")),
        ("delete", own("claim")),
        ("update", own("claim")),
        ("delete", own("claim")),
    ];
    expected.extend(["list"; 5].map(|list| (list, String::new())));
    let bucket = format!("projects/_/buckets/{BUCKET}");
    let on_object = |(what, name): (&str, String)| {
        let resource = if name.is_empty() { bucket.clone() } else { format!("{bucket}/objects/{name}") };
        (format!("storage.objects.{what}"), resource)
    };
    let mut denied: Vec<_> = expected.into_iter().map(on_object).collect();
    denied.push(("storage.buckets.get".to_owned(), bucket.clone()));
    denied
}

#[test]
fn a_malicious_plan_runs_to_its_result_and_reaches_nothing_with_the_account_of_its_job() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let double = runtime.block_on(start_double());
    // The processes that the server starts have the owner's rights. They never get to the claim.
    double.fault(Fault::next(Operation::Read, Effect::Fail(403)).named("/spec").of_owner().times(u32::MAX));
    let keys = "executor: [{plan: plans, apply: plans}]";
    let steps = ["bash {tmp}/attack.sh", "init", "plan"];
    let yaml = format!("executors: {{plans: {{kind: process}}}}\n{}", workflow(keys, &steps, &["apply"]));
    let flags = [format!("--bucket=gs://{BUCKET}/prod"), format!("--bucket-endpoint={}", double.endpoint())];
    let setup = Setup::one_project()
        .repos_yaml(&yaml)
        .flags(&[&flags[0], &flags[1]])
        .variable("RUST_MIN_STACK", "16777216")
        .own_process();
    run_test(setup, async |ctx| {
        for name in ["prod/inbox/1".to_owned(), format!("prod/jobs/prod/{OTHERS}/spec")] {
            assert!(double.put(BUCKET, &name, Bytes::from_static(b"theirs")).await);
        }
        let pull = ctx.open_input("change", "2").await;
        ctx.until("the first start has failed, and the second one too", async || {
            let failed = |seen: &&tidelock_storage_double::Seen| seen.effect == Some(Effect::Fail(403));
            double.seen().iter().filter(failed).count() >= 2
        })
        .await;
        let job = names(&double, "jobs/plans/", "/spec").remove(0).replace("/spec", "");
        let (journal, key) = (format!("prod/{}", names(&double, "journal/", "")[0]), job.replace("jobs/plans/", ""));
        let (port, answers) = (double.endpoint().replace("http://127.0.0.1:", ""), ctx.tmp.join("answers"));
        // It knows all names but those of other jobs of its executor.
        let known = [("port", &*port), ("token", TOKEN), ("journal", &journal), ("key", &key), ("others", OTHERS)];
        let known: String = known.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        let script = format!("set -eu\n{known}answers={}\n{ATTACK}", answers.display());
        std::fs::write(ctx.tmp.join("attack.sh"), script).unwrap();

        let done = run_job(&double, &job, &ctx.own.join("home")).await;
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        ctx.next(&pull).await.is("plan", "success").has("1 to add");

        let answers = std::fs::read_to_string(answers).unwrap();
        let (last, refused) = answers.lines().collect::<Vec<_>>().split_last().map(|(l, r)| (*l, r.to_vec())).unwrap();
        assert!(last.starts_with("200 GET "), "its own specification: {last}");
        assert!(refused.iter().all(|answer| answer.starts_with("403 ")), "{answers}");
        let denials = double.denials();
        assert!(denials.iter().all(|denial| denial.email == EMAIL));
        let denied: Vec<_> = denials.into_iter().map(|denial| (denial.permission, denial.resource)).collect();
        let expected = forbidden(&journal, &key);
        assert_eq!(denied, expected, "run-job itself is denied nothing");
        // And the read of a job of its own executor whose key it would have to guess, which is no denial but hides that there is none.
        assert_eq!(refused.len(), expected.len() + 1);
    });
}

#[test]
fn an_account_without_rights_ends_with_the_way_out() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let home = tempfile::tempdir().unwrap();
    let done = runtime.block_on(async {
        let double = start_double().await;
        run_job(&double, &format!("jobs/prod/{OTHERS}"), home.path()).await
    });
    assert_eq!(done.status.code(), Some(1));
    let said = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
    assert!(said.contains("the job cannot be read: ") && said.contains("it does not exist, or this account"), "{said}");
    assert!(said.contains("roles/storage.objectCreator") && said.contains("/objects/prod/jobs/prod/"), "{said}");
    assert!(!said.contains(OTHERS), "{said}");
}
