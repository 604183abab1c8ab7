//! Azure Key Vault. A secret is read by `GET {url}?api-version=7.4`:
//! <https://learn.microsoft.com/rest/api/keyvault/secrets/get-secret/get-secret>. The token is one of Microsoft Entra ID for a federated token
//! of the workload or a client secret, or that of a managed identity.

use crate::http::{Refusal, StoreAnswer, Way};
use crate::{NotRead, SecretReader, StoredSecret};
use reqwest::{Client, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::sync::OnceCell;
use url::Url;

const STORE: &str = "Azure Key Vault";
const VERSION: (&str, &str) = ("api-version", "7.4");
/// Microsoft Entra ID: <https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow>
const AUTHORITY: &str = "https://login.microsoftonline.com";
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// The identity service of virtual machines:
/// <https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token>
const MACHINE: &str = "http://169.254.169.254";

/// Resources of Azure's clouds: the public one first, then those of China and of the US government.
pub(crate) const CLOUDS: [&str; 3] =
    ["https://vault.azure.net", "https://vault.azure.cn", "https://vault.usgovcloudapi.net"];

/// A token for each of [`CLOUDS`].
pub(crate) type AzureTokens = [OnceCell<SecretString>; CLOUDS.len()];

#[derive(Deserialize)]
struct KeyVaultSecret {
    value: String,
}

#[derive(Deserialize)]
struct EntraToken {
    access_token: String,
}

impl SecretReader {
    pub(crate) async fn azure(&self, url: &str, tokens: &AzureTokens) -> Result<StoredSecret, NotRead> {
        let (resource, token) = of_cloud(url, tokens);
        let token = token.get_or_try_init(|| self.azure_token(resource)).await?;
        let make = |client: &Client| client.get(url).query(&[VERSION]).bearer_auth(token.expose_secret());
        let answer = self.http.send(STORE, Way::Usual, make, meaning).await?;
        Ok(StoredSecret::Text(answer.json::<KeyVaultSecret>(STORE)?.value.into()))
    }

    async fn azure_token(&self, resource: &str) -> Result<SecretString, NotRead> {
        let client = self.variable("AZURE_CLIENT_ID");
        let (file, secret) = (self.variable("AZURE_FEDERATED_TOKEN_FILE"), self.variable("AZURE_CLIENT_SECRET"));
        if file.is_none() && secret.is_none() {
            return self.managed_identity(resource, client).await;
        }
        let missing = || without("set AZURE_TENANT_ID and AZURE_CLIENT_ID");
        let (tenant, client) = self.variable("AZURE_TENANT_ID").zip(client).ok_or_else(missing)?;
        let authority = self.address("AZURE_AUTHORITY_HOST").unwrap_or_else(|| AUTHORITY.to_owned());
        let (url, scope) = (format!("{authority}/{tenant}/oauth2/v2.0/token"), format!("{resource}/.default"));
        let assertion = match file {
            Some(path) => Some(self.token_file(path, STORE).await?),
            None => None,
        };
        let mut form = vec![("client_id", client), ("scope", &scope), ("grant_type", "client_credentials")];
        match &assertion {
            Some(token) => {
                form.extend([("client_assertion_type", ASSERTION), ("client_assertion", token.expose_secret())]);
            }
            None => form.extend(secret.map(|secret| ("client_secret", secret))),
        }
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let make = |client: &Client| {
            client.post(&url).header("Content-Type", "application/x-www-form-urlencoded").body(body.clone())
        };
        let answer = self.http.send(STORE, Way::Usual, make, meaning).await.map_err(refused_login)?;
        Ok(answer.json::<EntraToken>(STORE)?.access_token.into())
    }

    /// Asks the identity service of Azure's containers and functions, or of a virtual machine.
    async fn managed_identity(&self, resource: &str, client: Option<&str>) -> Result<SecretString, NotRead> {
        let (url, version, header) = match (self.variable("IDENTITY_ENDPOINT"), self.variable("IDENTITY_HEADER")) {
            (Some(url), Some(key)) => (url.to_owned(), "2019-08-01", ("X-IDENTITY-HEADER", key)),
            _ => {
                let host = self.address("AZURE_POD_IDENTITY_AUTHORITY_HOST").unwrap_or_else(|| MACHINE.to_owned());
                (format!("{host}/metadata/identity/oauth2/token"), "2018-02-01", ("Metadata", "true"))
            }
        };
        let mut query = vec![("api-version", version), ("resource", resource)];
        query.extend(client.map(|client| ("client_id", client)));
        let make = |client: &Client| client.get(&url).query(&query).header(header.0, header.1);
        let answer = self.http.send(STORE, Way::Direct, make, meaning_of_identity).await.map_err(refused_login)?;
        Ok(answer.json::<EntraToken>(STORE)?.access_token.into())
    }
}

/// Returns the resource of a vault's cloud, for which a token is made, and the token.
fn of_cloud<'t>(url: &str, tokens: &'t AzureTokens) -> (&'static str, &'t OnceCell<SecretString>) {
    let url = Url::parse(url).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or_default();
    let [public, others @ ..] = &CLOUDS;
    let [token, tokens @ ..] = tokens;
    let is_of = |cloud: &str| cloud.strip_prefix("https://").is_some_and(|cloud| host.ends_with(&format!(".{cloud}")));
    others.iter().zip(tokens).find(|(cloud, _)| is_of(cloud)).map_or((*public, token), |(cloud, token)| (*cloud, token))
}

/// The service of a virtual machine answers with 404 and 410 while it starts or is updated.
fn meaning_of_identity(answer: &StoreAnswer) -> Refusal {
    match answer.status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Refusal::Busy,
        status => Refusal::of_status(status),
    }
}

fn meaning(answer: &StoreAnswer) -> Refusal {
    Refusal::of_status(answer.status)
}

fn refused_login(reason: NotRead) -> NotRead {
    match reason {
        NotRead::Unreachable { .. } => without("the service that gives tokens could not be reached"),
        NotRead::Denied { .. } | NotRead::NotFound { .. } | NotRead::Unusable(_) => without("no token is given to it"),
        other => other,
    }
}

fn without(why: &str) -> NotRead {
    NotRead::NoIdentity { store: STORE, why: why.to_owned() }
}
