//! Google Secret Manager and HashiCorp Vault.

use super::*;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

/// Speaks as Google's token endpoint and Secret Manager do.
fn google(asked: &Asked) -> (u16, String) {
    let refusal = |code: u16, status: &str| (code, json!({"error": {"code": code, "status": status}}).to_string());
    if asked.line == "POST /token" {
        return (200, json!({"access_token": "of-account", "token_type": "Bearer", "expires_in": 3600}).to_string());
    }
    if asked.header("authorization") != "Bearer of-account" {
        return refusal(401, "UNAUTHENTICATED");
    }
    let value = |bytes: &[u8], sum: u32| {
        let payload = json!({"data": BASE64_STANDARD.encode(bytes), "dataCrc32c": sum.to_string()});
        (200, json!({"name": "n", "payload": payload}).to_string())
    };
    match asked.line.as_str() {
        "GET /v1/projects/p/secrets/plain/versions/latest:access" => value(b"hunter22", crc32c::crc32c(b"hunter22")),
        "GET /v1/projects/p/secrets/changed/versions/3:access" => value(b"hunter22", 1),
        "GET /v1/projects/p/secrets/binary/versions/1:access" => value(&[0xff], crc32c::crc32c(&[0xff])),
        "GET /v1/projects/p/secrets/large/versions/1:access" => {
            let bytes = vec![b'a'; crate::MAX_VALUE + 1];
            value(&bytes, crc32c::crc32c(&bytes))
        }
        "GET /v1/projects/p/secrets/other/versions/latest:access" => refusal(403, "PERMISSION_DENIED"),
        _ => refusal(404, "NOT_FOUND"),
    }
}

#[tokio::test]
async fn google_secret_manager_gives_versions_to_an_account() {
    let fake = Fake::start(google).await;
    let endpoint = ("CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER", fake.address.as_str());
    let own = reader(&[endpoint]);
    let account = json!({
        "type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r",
        "token_uri": format!("{}/token", fake.address),
    });
    let account = google_cloud_auth::credentials::user_account::Builder::new(account).build().unwrap();
    assert!(own.google.set(account).is_ok());
    assert_eq!(read(&own, "gcp:projects/p/secrets/plain").await.unwrap(), "hunter22");
    for (reference, reason) in [
        ("gcp:projects/p/secrets/other", "Google Secret Manager denies it to the identity of the job"),
        (
            "gcp:projects/p/secrets/none/versions/7",
            "Google Secret Manager has no such secret, or no such version of it",
        ),
        ("gcp:projects/p/secrets/changed/versions/3", "the value was changed on its way: its checksum is another"),
        ("gcp:projects/p/secrets/binary/versions/1", "the value is no text in UTF-8"),
        ("gcp:projects/p/secrets/large/versions/1", "the value is larger than 16 KiB"),
        ("gcp:projects/p/secrets/plain#key", "the value is no JSON object, so it has no keys"),
    ] {
        assert_eq!(read(&own, reference).await.unwrap_err().to_string(), reason, "{reference}");
    }
    // Without an account.
    let denied = read(&reader(&[endpoint]), "gcp:projects/p/secrets/plain").await.unwrap_err();
    assert_eq!(denied, NotRead::Denied { store: "Google Secret Manager" });
}

/// Speaks as HashiCorp Vault does.
fn hashicorp(asked: &Asked) -> (u16, String) {
    let errors = |status: u16, text: &str| (status, json!({"errors": [text]}).to_string());
    if asked.header("x-vault-request") != "true" {
        return errors(412, "missing 'X-Vault-Request' header");
    }
    if asked.line == "POST /v1/auth/gke/login" {
        let body: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
        return match body == json!({"role": "tidelock", "jwt": "of-pod"}) {
            true => (200, json!({"auth": {"client_token": "good"}}).to_string()),
            false => errors(403, "permission denied"),
        };
    }
    if asked.header("x-vault-token") != "good" {
        return errors(403, "permission denied");
    }
    if asked.header("x-vault-namespace") != "team" {
        return errors(404, "no handler for route");
    }
    match asked.line.as_str() {
        "GET /v1/secret/data/ci" => {
            let data = json!({"token": "hunter22", "port": 5432, "empty": "", "list": [1]});
            (200, json!({"data": {"data": data, "metadata": {"version": 2}}}).to_string())
        }
        "GET /v1/kv/ci" => (200, json!({"data": {"token": "of-v1"}}).to_string()),
        "GET /v1/secret/data/deleted" => {
            (404, json!({"data": {"data": null, "metadata": {"deletion_time": "t"}}}).to_string())
        }
        "GET /v1/secret/data/sealed" => errors(503, "Vault is sealed"),
        "GET /v1/secret/data/moved" => (307, String::new()),
        "GET /v1/secret/data/leak" => (200, "{\"data\": \"hunter22\"}".to_owned()),
        "GET /v1/secret/data/other" => errors(403, "1 error occurred: permission denied"),
        _ => errors(404, ""),
    }
}

#[tokio::test]
async fn hashicorp_vault_gives_keys_to_a_token() {
    let fake = Fake::start(hashicorp).await;
    let of_fake = [("VAULT_ADDR", fake.address.as_str()), ("VAULT_NAMESPACE", "team")];
    let own = reader(&[&of_fake[..], &[("VAULT_TOKEN", "good")]].concat());
    assert_eq!(read(&own, "vault:secret/data/ci#token").await.unwrap(), "hunter22");
    assert_eq!(read(&own, "vault:secret/data/ci#port").await.unwrap(), "5432");
    assert_eq!(read(&own, "vault:kv/ci#token").await.unwrap(), "of-v1");
    for (reference, reason) in [
        ("vault:secret/data/other#a", "HashiCorp Vault denies it to the identity of the job"),
        ("vault:secret/data/deleted#a", "HashiCorp Vault has no such secret, or no such version of it"),
        ("vault:secret/data/ci#other", "the secret has no key `other`"),
        ("vault:secret/data/ci#empty", "the value is empty"),
        ("vault:secret/data/ci#list", "the value of the key `list` is no text"),
        ("vault:secret/data/moved#a", "HashiCorp Vault refuses the request with 307"),
        ("vault:secret/data/leak#a", "the answer of HashiCorp Vault has an unknown form"),
        (
            "vault:secret/data/sealed#a",
            "HashiCorp Vault could not be reached, or was not able to answer, after 4 tries",
        ),
    ] {
        assert_eq!(read(&own, reference).await.unwrap_err().to_string(), reason, "{reference}");
    }
    let wrong = reader(&[&of_fake[..], &[("VAULT_TOKEN", "bad")]].concat());
    let denied = read(&wrong, "vault:secret/data/ci#token").await.unwrap_err();
    assert_eq!(denied, NotRead::Denied { store: "HashiCorp Vault" });
    let none = read(&reader(&of_fake), "vault:secret/data/ci#token").await.unwrap_err();
    assert!(none.to_string().contains("set VAULT_TOKEN"), "{none}");
    // Neither is tried again.
    for variables in [
        [("VAULT_ADDR", "vault.example.com"), ("VAULT_TOKEN", "good")],
        [("VAULT_ADDR", fake.address.as_str()), ("VAULT_TOKEN", "go\nod")],
    ] {
        let unusable = read(&reader(&variables), "vault:secret/data/ci#token").await.unwrap_err();
        assert!(unusable.to_string().contains("no request can be made of its address and token"), "{unusable}");
    }
    let nowhere = read(&reader(&[]), "vault:secret/data/ci#token").await.unwrap_err();
    assert!(nowhere.to_string().contains("VAULT_ADDR is not set"), "{nowhere}");
}

#[tokio::test]
async fn hashicorp_vault_takes_the_token_of_a_service_account() {
    let (fake, dir) = (Fake::start(hashicorp).await, tempfile::tempdir().unwrap());
    let file = dir.path().join("token");
    std::fs::write(&file, "of-pod\n").unwrap();
    let of_role = |role| {
        reader(&[
            ("VAULT_ADDR", fake.address.as_str()),
            ("VAULT_NAMESPACE", "team"),
            ("VAULT_AUTH_ROLE", role),
            ("VAULT_AUTH_PATH", "gke"),
            ("VAULT_JWT_FILE", file.to_str().unwrap()),
        ])
    };
    let wanted = ["vault:secret/data/ci#token", "vault:secret/data/ci#port", "vault:kv/ci#token"];
    let wanted = wanted.iter().enumerate().map(|(at, text)| (format!("V{at}"), SecretReference::parse(text).unwrap()));
    let values = of_role("tidelock").read_all(&wanted.collect()).await.unwrap();
    let values: Vec<&str> = values.iter().map(|(_, value)| value.expose_secret()).collect();
    assert_eq!(values, ["hunter22", "5432", "of-v1"]);
    // One login for the job, and one request for each place.
    assert_eq!(fake.lines().len(), 3, "{:?}", fake.lines());
    let refused = read(&of_role("other"), "vault:kv/ci#token").await.unwrap_err();
    assert!(refused.to_string().contains("the login with VAULT_AUTH_ROLE is refused"), "{refused}");
    std::fs::remove_file(&file).unwrap();
    let gone = read(&of_role("tidelock"), "vault:kv/ci#token").await.unwrap_err();
    assert!(gone.to_string().contains("the file with its token cannot be read"), "{gone}");
}

#[tokio::test]
async fn what_fails_for_a_moment_is_read_all_the_same() {
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let fake = Fake::start(move |asked| match counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => (503, String::new()),
        1 => (429, String::new()),
        _ => hashicorp(asked),
    });
    let fake = fake.await;
    let own = reader(&[("VAULT_ADDR", &fake.address), ("VAULT_TOKEN", "good"), ("VAULT_NAMESPACE", "team")]);
    assert_eq!(read(&own, "vault:kv/ci#token").await.unwrap(), "of-v1");
    assert_eq!(fake.lines().len(), 3);
    // Nobody listens there.
    let closed = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let own = reader(&[("VAULT_ADDR", &format!("http://{closed}")), ("VAULT_TOKEN", "good")]);
    let unreachable = read(&own, "vault:kv/ci#token").await.unwrap_err();
    assert_eq!(unreachable, NotRead::Unreachable { store: "HashiCorp Vault", tries: 4 });
}

#[tokio::test]
async fn many_secrets_are_bounded_and_tried_with_one_token() {
    let fake = Fake::start(|asked| match asked.line.as_str() {
        "GET /v1/a/none" => (404, json!({"errors": []}).to_string()),
        _ => (200, json!({"data": {"k": "x".repeat(crate::MAX_VALUE)}}).to_string()),
    });
    let fake = fake.await;
    let own = reader(&[("VAULT_ADDR", &fake.address), ("VAULT_TOKEN", "good")]);
    let read_places = async |count: usize| {
        let wanted = (0..count).map(|at| (format!("V{at:03}"), format!("vault:a/{at}#k")));
        let wanted = wanted.map(|(name, text)| (name, SecretReference::parse(&text).unwrap())).collect();
        own.read_all(&wanted).await.map(|values| values.len()).map_err(|problem| problem.to_string())
    };
    assert_eq!(read_places(16).await, Ok(16));
    assert_eq!(
        read_places(17).await.unwrap_err(),
        "the secret `vault:a/16#k` of `V016` cannot be read: the project's values have more than 256 KiB"
    );
    let before = fake.lines().len();
    assert!(read_places(101).await.unwrap_err().ends_with("the project has more than 100 secrets"));
    assert_eq!(fake.lines().len(), before, "nothing is read");
    let references =
        ["vault:a/1#k", "vault:a/none#k", "vault:a/1#other"].map(|text| SecretReference::parse(text).unwrap());
    let tried = own.try_all(&references.iter().collect::<Vec<_>>()).await;
    let tried: Vec<_> = tried.into_iter().map(|problem| problem.map(|problem| problem.to_string())).collect();
    let not_found = "HashiCorp Vault has no such secret, or no such version of it".to_owned();
    assert_eq!(tried, [None, Some(not_found), Some("the secret has no key `other`".to_owned())]);
    assert_eq!(fake.lines().len(), before + 2);
}
