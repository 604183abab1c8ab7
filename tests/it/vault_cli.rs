//! `tidelock vault` as a program: exit codes, and the streams of its output. Its findings are tested beside its code.

use std::process::{Command, Output};

fn vault(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    command.arg("vault").args(args).env_remove("TIDELOCK_BUCKET").env_remove("ATLANTIS_BUCKET");
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_bucket_of_cloud_storage_can_be_another_service_and_a_missing_one_is_said_to_be_missing() {
    use tidelock_storage_double::{Settings, StorageDouble};
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let double = runtime.block_on(StorageDouble::start()).unwrap();
    double.bucket("acme-tidelock", Settings::default());
    let endpoint = format!("--bucket-endpoint={}", double.endpoint());
    let (code, out, error) = vault(&["ls", "--bucket=gs://acme-tidelock/prod", &endpoint]);
    assert_eq!(code, Some(0), "{error}");
    assert!(out.contains("nobody has led here yet"), "{out}");
    for command in [["ls", "--bucket=gs://nobody/prod"], ["verify", "--bucket=gs://nobody/prod"]] {
        let (code, out, error) = vault(&[command[0], command[1], &endpoint]);
        let said = format!("{out}{error}");
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("the bucket does not exist. Create it: gcloud storage buckets create gs://nobody"),
            "{said}"
        );
    }
}

#[test]
fn exit_codes_say_whether_all_is_well() {
    let dir = tempfile::TempDir::new().unwrap();
    let bucket = format!("--bucket=file://{}", dir.path().display());
    let (code, out, _) = vault(&["ls", &bucket]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("nobody has led here yet"), "{out}");
    // Errors are the result of `verify`, so they go to standard output.
    let (code, out, error) = vault(&["verify", &bucket]);
    assert_eq!((code, error.as_str()), (Some(1), ""), "{out}");
    assert!(out.starts_with("WRONG  ") && out.contains("holds no state"), "{out}");
    let (code, out, error) = vault(&["ls", "--bucket=file:///nonexistent/bucket"]);
    assert_eq!((code, out.as_str()), (Some(1), ""), "{error}");
    assert!(error.contains("file:///nonexistent/bucket"), "{error}");
    for wrong in
        [vec![], vec!["drop"], vec!["export"], vec!["verify", "--at=0", &bucket], vec!["verify", "--at=x", &bucket]]
    {
        let (code, out, error) = vault(&wrong);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{wrong:?}: {error}");
        assert!(!error.is_empty(), "{wrong:?}");
    }
    let (code, out, _) = vault(&["export", "--help"]);
    assert!(code == Some(0) && out.contains("tidelock vault import DIR --bucket NEW"), "{out}");
}
