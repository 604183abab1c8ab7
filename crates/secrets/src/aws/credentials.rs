//! Credentials of AWS, from the places and in the order of its SDKs:
//! <https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html>

use super::suffix;
use crate::http::{Refusal, StoreAnswer, Way, unknown_answer};
use crate::{NotRead, SecretReader};
use reqwest::{Client, Method};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tidelock_core::config::secrets::reference::Arn;
use url::Url;

/// The addresses of the agents of ECS and EKS: <https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html>
const CONTAINER: &str = "http://169.254.170.2";
const CONTAINER_HOSTS: [&str; 6] =
    ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]", "127.0.0.1", "[::1]", "localhost"];
/// The address of the metadata of an instance of EC2:
/// <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html>
const INSTANCE: &str = "http://169.254.169.254";
const ROLES: &str = "latest/meta-data/iam/security-credentials/";
/// Name of the sessions, in CloudTrail.
const SESSION: &str = "tidelock";

/// Credentials.
pub(crate) struct AwsCredentials {
    pub(crate) key_id: String,
    pub(crate) secret_key: SecretString,
    pub(crate) session_token: Option<SecretString>,
}

/// Credentials as agents give them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct GivenCredentials {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
}

impl From<GivenCredentials> for AwsCredentials {
    fn from(given: GivenCredentials) -> AwsCredentials {
        let GivenCredentials { access_key_id, secret_access_key, token } = given;
        AwsCredentials {
            key_id: access_key_id,
            secret_key: secret_access_key.into(),
            session_token: token.map(Into::into),
        }
    }
}

impl SecretReader {
    pub(super) async fn aws_credentials(&self, arn: &Arn, store: &'static str) -> Result<AwsCredentials, NotRead> {
        if let Some((id, key)) = self.variable("AWS_ACCESS_KEY_ID").zip(self.variable("AWS_SECRET_ACCESS_KEY")) {
            let session_token = self.variable("AWS_SESSION_TOKEN").map(Into::into);
            return Ok(AwsCredentials { key_id: id.to_owned(), secret_key: key.into(), session_token });
        }
        let given = if let Some((role, file)) =
            self.variable("AWS_ROLE_ARN").zip(self.variable("AWS_WEB_IDENTITY_TOKEN_FILE"))
        {
            self.web_identity(arn, role, file, store).await
        } else if let Some(url) = self.container(store)? {
            self.of_container(&url, store).await
        } else if self.variable("AWS_EC2_METADATA_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return Err(without(store, "no credentials are set, and AWS_EC2_METADATA_DISABLED is"));
        } else {
            self.of_instance(store).await
        };
        given.map_err(|reason| match reason {
            NotRead::NoIdentity { .. } => reason,
            NotRead::Unreachable { .. } => without(store, "the service that gives credentials could not be reached"),
            _ => without(store, "no credentials are given to it"),
        })
    }

    /// Takes a role with a token of a workload:
    /// <https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html>
    async fn web_identity(
        &self,
        arn: &Arn,
        role: &str,
        file: &str,
        store: &'static str,
    ) -> Result<AwsCredentials, NotRead> {
        let token = self.token_file(file, store).await?;
        let region = self.variable("AWS_REGION").or(self.variable("AWS_DEFAULT_REGION")).unwrap_or(&arn.region);
        let host = format!("https://sts.{region}.{}", suffix(&arn.partition));
        let address = self.address("AWS_ENDPOINT_URL_STS").or_else(|| self.address("AWS_ENDPOINT_URL")).unwrap_or(host);
        let session = self.variable("AWS_ROLE_SESSION_NAME").unwrap_or(SESSION);
        let form = [
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", "2011-06-15"),
            ("RoleArn", role),
            ("RoleSessionName", session),
            ("WebIdentityToken", token.expose_secret()),
        ];
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let make = |client: &Client| {
            let request = client.post(format!("{address}/")).body(body.clone());
            request.header("Content-Type", "application/x-www-form-urlencoded")
        };
        let answer = self.http.send(store, Way::Usual, make, meaning).await?;
        let (text, element) = (answer.text(), |text: &str, name: &str| {
            let (_, after) = text.split_once(&format!("<{name}>"))?;
            // None of the values has a character that XML escapes.
            after.split_once(&format!("</{name}>")).map(|(value, _)| value.trim().to_owned())
        });
        let unknown = || unknown_answer(store);
        Ok(AwsCredentials {
            key_id: element(&text, "AccessKeyId").ok_or_else(unknown)?,
            secret_key: element(&text, "SecretAccessKey").ok_or_else(unknown)?.into(),
            session_token: Some(element(&text, "SessionToken").ok_or_else(unknown)?.into()),
        })
    }

    /// Returns the address at which the agent of a container gives credentials.
    fn container(&self, store: &'static str) -> Result<Option<Url>, NotRead> {
        let relative = self.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").map(|path| format!("{CONTAINER}{path}"));
        let full = self.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI").map(str::to_owned);
        let Some(address) = relative.or(full) else { return Ok(None) };
        let url = Url::parse(&address).ok().filter(|url| {
            // The token is given to nobody on the network who could be read.
            url.scheme() == "https" || url.host_str().is_some_and(|host| CONTAINER_HOSTS.contains(&host))
        });
        let wrong = "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither HTTPS nor the address of an agent";
        url.map(Some).ok_or_else(|| without(store, wrong))
    }

    async fn of_container(&self, url: &Url, store: &'static str) -> Result<AwsCredentials, NotRead> {
        let token = match self.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
            Some(file) => Some(self.token_file(file, store).await?),
            None => self.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(SecretString::from),
        };
        let make = |client: &Client| {
            let request = client.get(url.clone());
            match &token {
                Some(token) => request.header("Authorization", token.expose_secret()),
                None => request,
            }
        };
        let answer = self.http.send(store, Way::Direct, make, meaning).await?;
        Ok(answer.json::<GivenCredentials>(store)?.into())
    }

    async fn of_instance(&self, store: &'static str) -> Result<AwsCredentials, NotRead> {
        let address = self.address("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_else(|| INSTANCE.to_owned());
        let get = async |method: Method, path: &str, header: (&'static str, &str)| {
            let url = format!("{address}/{path}");
            let make = |client: &Client| client.request(method.clone(), &url).header(header.0, header.1);
            self.http.send(store, Way::Direct, make, meaning).await
        };
        let token = get(Method::PUT, "latest/api/token", ("X-aws-ec2-metadata-token-ttl-seconds", "60")).await?;
        let token = token.text().trim().to_owned();
        let header = ("X-aws-ec2-metadata-token", token.as_str());
        let role = get(Method::GET, ROLES, header).await?;
        let role = role.text().lines().next().unwrap_or_default().trim().to_owned();
        let answer = get(Method::GET, &format!("{ROLES}{role}"), header).await?;
        Ok(answer.json::<GivenCredentials>(store)?.into())
    }
}

fn meaning(answer: &StoreAnswer) -> Refusal {
    Refusal::of_status(answer.status)
}

fn without(store: &'static str, why: &str) -> NotRead {
    NotRead::NoIdentity { store, why: why.to_owned() }
}
