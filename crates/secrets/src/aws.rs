//! AWS Secrets Manager and the parameters of AWS Systems Manager. Both take a signed `POST` with the operation in `X-Amz-Target`:
//! <https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_GetSecretValue.html>,
//! <https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_GetParameter.html>

pub(crate) mod credentials;
pub(crate) mod signature;

use crate::http::{Refusal, StoreAnswer, Way};
use crate::{NotRead, SecretReader, StoredSecret};
use credentials::AwsCredentials;
use jiff::Timestamp;
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use serde_json::json;
use signature::SignedRequest;
use tidelock_core::config::secrets::reference::Arn;
use tokio::sync::OnceCell;
use url::Url;

const JSON: &str = "application/x-amz-json-1.1";

/// A service of AWS that has secrets.
#[derive(Clone, Copy)]
pub(crate) enum AwsService {
    Secrets,
    Parameters,
}

/// A call of a service.
struct AwsCall {
    store: &'static str,
    /// Its name in hosts and signatures.
    name: &'static str,
    target: &'static str,
    /// The variable that names another endpoint.
    /// <https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html>
    endpoint: &'static str,
    body: String,
}

impl AwsService {
    fn call(self, arn: &Arn) -> AwsCall {
        match self {
            AwsService::Secrets => AwsCall {
                store: "AWS Secrets Manager",
                name: "secretsmanager",
                target: "secretsmanager.GetSecretValue",
                endpoint: "AWS_ENDPOINT_URL_SECRETS_MANAGER",
                body: json!({"SecretId": arn.text}).to_string(),
            },
            AwsService::Parameters => AwsCall {
                store: "AWS Systems Manager",
                name: "ssm",
                target: "AmazonSSM.GetParameter",
                endpoint: "AWS_ENDPOINT_URL_SSM",
                body: json!({"Name": arn.text, "WithDecryption": true}).to_string(),
            },
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SecretValue {
    secret_string: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct FoundParameter {
    parameter: Parameter,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Parameter {
    value: String,
}

impl SecretReader {
    pub(crate) async fn aws(
        &self,
        arn: &Arn,
        service: AwsService,
        credentials: &OnceCell<AwsCredentials>,
    ) -> Result<StoredSecret, NotRead> {
        let AwsCall { store, name, target, endpoint, body } = service.call(arn);
        let credentials = credentials.get_or_try_init(|| self.aws_credentials(arn, store)).await?;
        let host = format!("https://{name}.{}.{}", arn.region, suffix(&arn.partition));
        let endpoint = self.address(endpoint).or_else(|| self.address("AWS_ENDPOINT_URL")).unwrap_or(host);
        let unusable = |_| NotRead::Unusable(format!("the endpoint of {store} is no URL"));
        let url = Url::parse(&format!("{endpoint}/")).map_err(unusable)?;
        let make = |client: &Client| {
            let headers = [("content-type", JSON), ("x-amz-target", target)];
            let signed = SignedRequest { method: "POST", url: &url, headers: &headers, body: body.as_bytes() };
            let signature = signed.headers(credentials, &arn.region, name, Timestamp::now());
            let request = client.post(url.clone()).body(body.clone());
            headers.into_iter().fold(request, |request, (name, value)| request.header(name, value)).headers(signature)
        };
        let answer = self.http.send(store, Way::Usual, make, meaning).await?;
        let value = match service {
            AwsService::Secrets => answer.json::<SecretValue>(store)?.secret_string,
            AwsService::Parameters => Some(answer.json::<FoundParameter>(store)?.parameter.value),
        };
        let value = value.ok_or_else(|| NotRead::Unusable("the value is binary, not a text".to_owned()))?;
        Ok(StoredSecret::Text(value.into()))
    }
}

/// Returns the domain of a partition: <https://docs.aws.amazon.com/general/latest/gr/rande.html>
fn suffix(partition: &str) -> &'static str {
    match partition {
        "aws-cn" => "amazonaws.com.cn",
        _ => "amazonaws.com",
    }
}

/// AWS says what is wrong by the name of the error; its status is 400 for most.
/// <https://docs.aws.amazon.com/secretsmanager/latest/apireference/CommonErrors.html>
fn meaning(answer: &StoreAnswer) -> Refusal {
    match answer.code().unwrap_or_default().as_str() {
        "ResourceNotFoundException" | "ParameterNotFound" | "ParameterVersionNotFound" => Refusal::NotFound,
        "AccessDeniedException"
        | "AccessDenied"
        | "DecryptionFailure"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "MissingAuthenticationTokenException"
        | "NotAuthorized"
        | "OptInRequired"
        | "UnrecognizedClientException" => Refusal::Denied,
        "ThrottlingException" | "Throttling" | "RequestLimitExceeded" | "InternalServiceError" => Refusal::Busy,
        _ if answer.status == StatusCode::BAD_REQUEST => Refusal::Other,
        _ => Refusal::of_status(answer.status),
    }
}
