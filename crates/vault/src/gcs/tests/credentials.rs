//! Tests that depend on the environment, in child processes with their own. Credentials are only loaded if configured (a tripwire
//! replaces the metadata server), and both transports use TLS with ring.

use super::*;
use std::io::Read;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Variable that selects the mode of a child below.
const MODE: &str = "TIDELOCK_TEST_CREDENTIALS_MODE";

/// Runs in a child whose environment redirects every request for credentials to a tripwire; does nothing otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn child() {
    let Ok(mode) = std::env::var(MODE) else { return };
    let access = if mode == "default" { Access::ApplicationDefault } else { Access::Anonymous };
    let double =
        if mode == "tls" { StorageDouble::start_tls().await.unwrap() } else { StorageDouble::start().await.unwrap() };
    double.bucket(BUCKET, Settings::default());
    double.limit_mutations(false);
    let options = Options { access, ..options(&double, short()) };
    let gcs = Gcs::new(Address::parse("gs://acme-tidelock/prod").unwrap(), options);
    let checked = gcs.check().await;
    let written = gcs.put("journal/1", 0, text("x"), "").await;
    if access == Access::Anonymous {
        checked.unwrap();
        assert!(matches!(written, Ok(Written::Stored(_))), "{written:?}");
        gcs.list("", "").await.unwrap();
        gcs.get("journal/1").await.unwrap().unwrap();
        let large = Body::Bytes(Bytes::from(vec![7; 2 << 20]));
        assert!(matches!(gcs.put("base/1", 0, large, "").await.unwrap(), Written::Stored(_)));
    } else {
        assert!(checked.is_err() && written.is_err(), "the tripwire gives no token");
    }
}

/// Returns the number of connections to the tripwire while a child ran in that mode.
fn tripped(mode: &str) -> usize {
    let tripwire = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let host = tripwire.local_addr().unwrap().to_string();
    let home = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "gcs::tests::credentials::child", "--nocapture"])
        .env_clear()
        .envs([(MODE, mode), ("GCE_METADATA_HOST", &host), ("NO_PROXY", "*")])
        .env("HOME", home.path())
        .env("SSL_CERT_FILE", tidelock_storage_double::CERTIFICATE_FILE)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    std::thread::spawn(move || {
        for mut stream in tripwire.incoming().map_while(Result::ok) {
            counted.fetch_add(1, Ordering::SeqCst);
            // Read the available bytes, and close the connection.
            stream.set_nonblocking(true).unwrap();
            let _ = stream.read(&mut [0; 1024]);
        }
    });
    let status = child.wait().unwrap();
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(status.success() && output.contains("1 passed"), "{output}");
    connections.load(Ordering::SeqCst)
}

#[test]
fn anonymous_access_looks_for_nothing() {
    assert_eq!(tripped("anonymous"), 0);
}

#[test]
fn both_transports_speak_tls_with_ring() {
    assert_eq!(tripped("tls"), 0);
}

#[test]
fn application_default_access_asks_the_metadata_server() {
    // Shows that the tripwire works, so that the test above can fail.
    assert!(tripped("default") > 0);
}
