//! Azure Key Vault, and the places of its tokens.

use super::*;
use serde_json::json;

const SCOPE: &str = "client_id=c&scope=https%3A%2F%2Fvault.azure.net%2F.default&grant_type=client_credentials";

/// Speaks as Entra ID, as the identity services, and as a vault do.
fn azure(asked: &Asked) -> (u16, String) {
    let token = || (200, json!({"access_token": "of-entra", "expires_in": 3599, "token_type": "Bearer"}).to_string());
    let refusal = |status: u16, code: &str| (status, json!({"error": {"code": code}}).to_string());
    match asked.line.as_str() {
        "POST /t/oauth2/v2.0/token" => {
            let assertion = "&client_assertion_type=urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer&client_assertion=of-pod";
            let is_known = [assertion, "&client_secret=s"].iter().any(|end| asked.body == format!("{SCOPE}{end}"));
            if is_known { token() } else { (401, json!({"error": "invalid_client"}).to_string()) }
        }
        "GET /msi?api-version=2019-08-01&resource=https%3A%2F%2Fvault.azure.net"
            if asked.header("x-identity-header") == "h" =>
        {
            token()
        }
        "GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fvault.azure.net&client_id=c"
            if asked.header("metadata") == "true" =>
        {
            token()
        }
        line if line.starts_with("GET /secrets/") => match (asked.header("authorization"), line) {
            ("Bearer of-entra", "GET /secrets/db?api-version=7.4") => {
                (200, json!({"value": "hunter22", "id": "x"}).to_string())
            }
            ("Bearer of-entra", "GET /secrets/other?api-version=7.4") => refusal(403, "Forbidden"),
            ("Bearer of-entra", line) if line.ends_with("?api-version=7.4") => refusal(404, "SecretNotFound"),
            ("Bearer of-entra", _) => refusal(400, "BadParameter"),
            _ => refusal(401, "Unauthorized"),
        },
        _ => (400, json!({"error": "invalid_request"}).to_string()),
    }
}

#[tokio::test]
async fn azure_key_vault_gives_secrets_to_every_kind_of_identity() {
    let (fake, dir) = (Fake::start(azure).await, tempfile::tempdir().unwrap());
    let file = dir.path().join("token");
    std::fs::write(&file, "of-pod").unwrap();
    let (file, msi) = (file.to_str().unwrap(), format!("{}/msi", fake.address));
    let (tenant, client) = (("AZURE_TENANT_ID", "t"), ("AZURE_CLIENT_ID", "c"));
    let authority = ("AZURE_AUTHORITY_HOST", fake.address.as_str());
    let db = format!("azure:{}/secrets/db", fake.address);
    for identity in [
        vec![tenant, client, authority, ("AZURE_FEDERATED_TOKEN_FILE", file)],
        vec![tenant, client, authority, ("AZURE_CLIENT_SECRET", "s")],
        vec![("IDENTITY_ENDPOINT", &msi), ("IDENTITY_HEADER", "h")],
        vec![client, ("AZURE_POD_IDENTITY_AUTHORITY_HOST", &fake.address)],
    ] {
        assert_eq!(read(&reader(&identity), &db).await.unwrap(), "hunter22", "{identity:?}");
    }
    // A virtual machine's service is not ready yet.
    let (tries, answer) = (Arc::new(Mutex::new(vec![404, 410])), azure);
    let starting = Fake::start(move |asked| match tries.lock().unwrap().pop() {
        Some(status) => (status, String::new()),
        None => answer(asked),
    });
    let starting = starting.await;
    let machine = reader(&[client, ("AZURE_POD_IDENTITY_AUTHORITY_HOST", &starting.address)]);
    assert_eq!(read(&machine, &db).await.unwrap(), "hunter22");
    let own = reader(&[tenant, client, authority, ("AZURE_CLIENT_SECRET", "s")]);
    for (name, reason) in [
        ("other", "Azure Key Vault denies it to the identity of the job"),
        ("none", "Azure Key Vault has no such secret, or no such version of it"),
    ] {
        let reference = format!("azure:{}/secrets/{name}", fake.address);
        assert_eq!(read(&own, &reference).await.unwrap_err().to_string(), reason);
    }
    for (identity, why) in [
        (vec![tenant, client, authority, ("AZURE_CLIENT_SECRET", "wrong")], "no token is given to it"),
        (vec![client, authority, ("AZURE_CLIENT_SECRET", "s")], "set AZURE_TENANT_ID"),
        (vec![("IDENTITY_ENDPOINT", msi.as_str()), ("IDENTITY_HEADER", "wrong")], "no token is given to it"),
    ] {
        let none = read(&reader(&identity), &db).await.unwrap_err();
        assert!(none.to_string().contains(why), "{none}");
    }
}
