//! `tidelock run-job` with an account that may create and read objects of another executor only.

use std::process::{Command, Output, Stdio};
use tidelock_storage_double::{Settings, StorageAccount, StorageDouble, StorageGrant};

const BUCKET: &str = "acme-tidelock";
const TOKEN: &str = "token-of-the-account-of-plans";
const EMAIL: &str = "plans@acme.iam.gserviceaccount.com";
/// As the Terraform module grants it (`google_storage_bucket_iam_member.executors`).
const CONDITION: &str = r#"resource.name.startsWith("projects/_/buckets/acme-tidelock/objects/prod/jobs/plans/")"#;
/// Key of a job.
const OTHERS: &str = "0123456789abcdef0123456789abcdef";

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
