//! Google Secret Manager. A version is read by `GET /v1/{name}:access`, whose answer has the value in base64 with its CRC-32C:
//! <https://cloud.google.com/secret-manager/docs/access-secret-version>

use crate::http::{Refusal, Way, unknown_answer};
use crate::{NotRead, SecretReader, StoredSecret, text};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use google_cloud_auth::credentials::{Builder, CacheableResource, Credentials, anonymous};
use http::HeaderMap;
use serde::Deserialize;
use std::time::Duration;

const STORE: &str = "Google Secret Manager";
const ADDRESS: &str = "https://secretmanager.googleapis.com";
/// The variable by which gcloud finds another endpoint: <https://cloud.google.com/sdk/docs/properties>
const ENDPOINT: &str = "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER";
/// Time limit for a token.
const TOKEN_TIME: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
struct AccessedVersion {
    payload: VersionPayload,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionPayload {
    #[serde(default)]
    data: String,
    /// A number of 64 bits, which JSON has as a text.
    data_crc32c: Option<String>,
}

impl SecretReader {
    pub(crate) async fn google(&self, version: &str) -> Result<StoredSecret, NotRead> {
        let address = self.address(ENDPOINT).unwrap_or_else(|| ADDRESS.to_owned());
        let headers = self.google_headers(&address).await?;
        let url = format!("{address}/v1/{version}:access");
        let make = |client: &reqwest::Client| client.get(&url).headers(headers.clone());
        let answer = self.http.send(STORE, Way::Usual, make, |answer| Refusal::of_status(answer.status)).await?;
        let AccessedVersion { payload } = answer.json(STORE)?;
        let bytes = BASE64_STANDARD.decode(payload.data).map_err(|_| unknown_answer(STORE))?;
        let sum = crc32c::crc32c(&bytes).to_string();
        if payload.data_crc32c.is_some_and(|told| told != sum) {
            return Err(NotRead::Unusable("the value was changed on its way: its checksum is another".to_owned()));
        }
        text(bytes)
    }

    async fn google_headers(&self, address: &str) -> Result<HeaderMap, NotRead> {
        let without = |error: &dyn std::fmt::Display| {
            let why = "no token of a service account or of Application Default Credentials".to_owned();
            tracing::warn!(store = STORE, %error, "{why}");
            NotRead::NoIdentity { store: STORE, why }
        };
        let make = async || -> Result<Credentials, NotRead> {
            if address.starts_with("http://") {
                // A double on this machine. Google itself is reached over TLS only, and no token leaves without it.
                return Ok(anonymous::Builder::new().build());
            }
            let built = tokio::task::spawn_blocking(|| Builder::default().build()).await;
            built.map_err(|error| without(&error))?.map_err(|error| without(&error))
        };
        let credentials = self.google.get_or_try_init(make).await?;
        let asked = tokio::time::timeout(TOKEN_TIME, credentials.headers(http::Extensions::new())).await;
        match asked.map_err(|error| without(&error))? {
            Ok(CacheableResource::New { data, .. }) => Ok(data),
            // Not reached: the request names no earlier headers that could be unmodified.
            Ok(CacheableResource::NotModified) => Ok(HeaderMap::new()),
            Err(error) => Err(without(&error)),
        }
    }
}
