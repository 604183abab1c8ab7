//! HashiCorp Vault. A secret is read by `GET /v1/{path}` with a token: <https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2>.
//! The token is that of the environment or a file, or that of a login with a role and a JWT, as of a Kubernetes service account:
//! <https://developer.hashicorp.com/vault/api-docs/auth/kubernetes>, <https://developer.hashicorp.com/vault/api-docs/auth/jwt>

use crate::http::{Refusal, StoreAnswer, Way, unknown_answer};
use crate::{NotRead, SecretReader, StoredSecret};
use reqwest::{Client, RequestBuilder, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;

const STORE: &str = "HashiCorp Vault";
/// File in which Kubernetes puts the token of a pod's service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

#[derive(Deserialize)]
struct ReadSecret {
    data: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct VaultLogin {
    auth: VaultToken,
}

#[derive(Deserialize)]
struct VaultToken {
    client_token: String,
}

impl SecretReader {
    pub(crate) async fn hashicorp(&self, path: &str, token: &OnceCell<SecretString>) -> Result<StoredSecret, NotRead> {
        let address = self.address("VAULT_ADDR").ok_or_else(|| without("VAULT_ADDR is not set"))?;
        let token = token.get_or_try_init(|| self.hashicorp_token(&address)).await?;
        let url = format!("{address}/v1/{path}");
        let make = |client: &Client| self.of_namespace(client.get(&url).header("X-Vault-Token", token.expose_secret()));
        let answer = self.http.send(STORE, Way::Usual, make, meaning).await?;
        let ReadSecret { data } = answer.json(STORE)?;
        let data = data.ok_or_else(|| unknown_answer(STORE))?;
        // Version 2 of the engine for keys and values has them below `data`, beside `metadata`.
        Ok(StoredSecret::Data(match (data.get("data"), data.get("metadata")) {
            (Some(Value::Object(inner)), Some(Value::Object(_))) => inner.clone(),
            // A version that is deleted.
            (Some(Value::Null), Some(Value::Object(_))) => return Err(NotRead::NotFound { store: STORE }),
            _ => data,
        }))
    }

    async fn hashicorp_token(&self, address: &str) -> Result<SecretString, NotRead> {
        if let Some(token) = self.variable("VAULT_TOKEN") {
            return Ok(token.into());
        }
        if let Some(path) = self.variable("VAULT_TOKEN_FILE") {
            return self.token_file(path, STORE).await;
        }
        let missing = || without("set VAULT_TOKEN, VAULT_TOKEN_FILE or VAULT_AUTH_ROLE");
        let role = self.variable("VAULT_AUTH_ROLE").ok_or_else(missing)?;
        let jwt = self.token_file(self.variable("VAULT_JWT_FILE").unwrap_or(SERVICE_ACCOUNT), STORE).await?;
        let mount = self.variable("VAULT_AUTH_PATH").unwrap_or("kubernetes").trim_matches('/');
        let url = format!("{address}/v1/auth/{mount}/login");
        let body = json!({"role": role, "jwt": jwt.expose_secret()});
        let make = |client: &Client| self.of_namespace(client.post(&url).json(&body));
        let answer = self.http.send(STORE, Way::Usual, make, meaning).await.map_err(|reason| match reason {
            // A login that is refused is answered with 400 or 403.
            NotRead::Denied { .. } | NotRead::NotFound { .. } | NotRead::Unusable(_) => {
                without("the login with VAULT_AUTH_ROLE is refused")
            }
            other => other,
        })?;
        Ok(answer.json::<VaultLogin>(STORE)?.auth.client_token.into())
    }

    /// Adds the header without which Vault's agents refuse a request, and the namespace.
    fn of_namespace(&self, request: RequestBuilder) -> RequestBuilder {
        let request = request.header("X-Vault-Request", "true");
        match self.variable("VAULT_NAMESPACE") {
            Some(namespace) => request.header("X-Vault-Namespace", namespace),
            None => request,
        }
    }
}

/// Status 412 means that a standby does not know the token yet.
/// <https://developer.hashicorp.com/vault/api-docs#http-status-codes>
fn meaning(answer: &StoreAnswer) -> Refusal {
    match answer.status {
        StatusCode::PRECONDITION_FAILED => Refusal::Busy,
        status => Refusal::of_status(status),
    }
}

fn without(why: &str) -> NotRead {
    NotRead::NoIdentity { store: STORE, why: why.to_owned() }
}
