//! AWS Secrets Manager, parameters, and the places of credentials.

use super::*;
use crate::aws::credentials::AwsCredentials;
use crate::aws::signature::SignedRequest;
use axum::http::HeaderMap;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::json;
use url::Url;

const SECRET: &str = "aws:arn:aws:secretsmanager:eu-west-1:123456789012:secret:db/main-AbCdEf";
const PARAMETER: &str = "aws:arn:aws:ssm:eu-west-1:123456789012:parameter/db/password";
const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"), ("AWS_SECRET_ACCESS_KEY", "example-key")];

/// Returns the header `Authorization` that a request with these headers and this body has to have: signed again, as a service does to check
/// it. The signatures themselves are checked with the test suite of AWS.
fn authorization(headers: &HeaderMap, body: &str, region: &str, service: &str) -> String {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let credentials = AwsCredentials {
        key_id: "AKIDEXAMPLE".to_owned(),
        secret_key: "example-key".into(),
        session_token: headers.contains_key("x-amz-security-token").then(|| "session".into()),
    };
    let url = Url::parse(&format!("http://{}/", header("host"))).unwrap();
    let signed = [("content-type", header("content-type")), ("x-amz-target", header("x-amz-target"))];
    let signed = SignedRequest { method: "POST", url: &url, headers: &signed, body: body.as_bytes() };
    let now = DateTime::strptime("%Y%m%dT%H%M%SZ", header("x-amz-date")).unwrap();
    let now = now.to_zoned(TimeZone::UTC).unwrap().timestamp();
    signed.headers(&credentials, region, service, now)["authorization"].to_str().unwrap().to_owned()
}

/// Speaks as both services do, to the key `example-key` with or without a session.
fn aws(asked: &Asked) -> (u16, String) {
    let refusal = |kind: &str| (400, json!({"__type": kind, "message": "x"}).to_string());
    let target = asked.header("x-amz-target");
    let service = if target.starts_with("AmazonSSM.") { "ssm" } else { "secretsmanager" };
    if asked.line != "POST /" || asked.header("content-type") != "application/x-amz-json-1.1" {
        return refusal("UnknownOperationException");
    }
    if asked.header("authorization").is_empty() {
        return refusal("MissingAuthenticationTokenException");
    }
    if asked.header("authorization") != authorization(&asked.headers, &asked.body, "eu-west-1", service) {
        return refusal("InvalidSignatureException");
    }
    let body: serde_json::Value = serde_json::from_str(&asked.body).unwrap();
    let named = |key: &str| body[key].as_str().unwrap_or_default().rsplit(':').next().unwrap_or_default().to_owned();
    match (target, named("SecretId").as_str(), named("Name").as_str()) {
        ("secretsmanager.GetSecretValue", "db/main-AbCdEf", _) => {
            (200, json!({"SecretString": "{\"password\": \"hunter22\"}"}).to_string())
        }
        ("secretsmanager.GetSecretValue", "binary", _) => (200, json!({"SecretBinary": "AAAA"}).to_string()),
        ("secretsmanager.GetSecretValue", "other", _) => refusal("AccessDeniedException:http://internal.amazon.com/"),
        ("secretsmanager.GetSecretValue", "deleted", _) => refusal("InvalidRequestException"),
        ("secretsmanager.GetSecretValue", ..) => refusal("ResourceNotFoundException"),
        ("AmazonSSM.GetParameter", _, "parameter/db/password") if body["WithDecryption"] == true => {
            (200, json!({"Parameter": {"Type": "SecureString", "Value": "of-parameter"}}).to_string())
        }
        ("AmazonSSM.GetParameter", ..) => refusal("ParameterNotFound"),
        _ => refusal("com.amazon.coral.service#UnknownOperationException"),
    }
}

#[tokio::test]
async fn aws_gives_secrets_and_parameters_to_a_signature() {
    let fake = Fake::start(aws).await;
    let endpoints =
        [("AWS_ENDPOINT_URL_SECRETS_MANAGER", fake.address.as_str()), ("AWS_ENDPOINT_URL_SSM", &fake.address)];
    let own = reader(&[&endpoints[..], &KEYS].concat());
    assert_eq!(read(&own, &format!("{SECRET}#password")).await.unwrap(), "hunter22");
    assert_eq!(read(&own, PARAMETER).await.unwrap(), "of-parameter");
    let sibling = |name: &str| SECRET.replace("db/main-AbCdEf", name);
    for (reference, reason) in [
        (sibling("other"), "AWS Secrets Manager denies it to the identity of the job"),
        (sibling("none"), "AWS Secrets Manager has no such secret, or no such version of it"),
        (sibling("deleted"), "AWS Secrets Manager refuses the request with 400 (InvalidRequestException)"),
        (sibling("binary"), "the value is binary, not a text"),
        (PARAMETER.replace("password", "none"), "AWS Systems Manager has no such secret, or no such version of it"),
        (format!("{SECRET}#user"), "the secret has no key `user`"),
        // Signed for another region.
        (SECRET.replace("eu-west-1", "us-east-1"), "AWS Secrets Manager denies it to the identity of the job"),
    ] {
        assert_eq!(read(&own, &reference).await.unwrap_err().to_string(), reason, "{reference}");
    }
    let wrong = [KEYS[0], ("AWS_SECRET_ACCESS_KEY", "another-key")];
    let denied = read(&reader(&[&endpoints[..], &wrong].concat()), SECRET).await.unwrap_err();
    assert_eq!(denied, NotRead::Denied { store: "AWS Secrets Manager" });
    let none = reader(&[&endpoints[..], &[("AWS_EC2_METADATA_DISABLED", "true")]].concat());
    let none = read(&none, SECRET).await.unwrap_err();
    assert!(none.to_string().contains("no credentials are set"), "{none}");
}

/// Speaks as STS, as the agent of a container and as the metadata of an instance do, and as the services.
fn identities(asked: &Asked) -> (u16, String) {
    let given = || {
        (200, json!({"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "example-key", "Token": "session"}).to_string())
    };
    match asked.line.as_str() {
        "POST /" if asked.header("content-type") == "application/x-www-form-urlencoded" => {
            let wanted = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fr&RoleSessionName=tidelock&WebIdentityToken=of-pod";
            match asked.body == wanted {
                true => (200, "<R><Credentials><SessionToken>session</SessionToken><SecretAccessKey>example-key</SecretAccessKey><AccessKeyId>AKIDEXAMPLE</AccessKeyId></Credentials></R>".to_owned()),
                false => (400, "<ErrorResponse><Code>InvalidIdentityToken</Code></ErrorResponse>".to_owned()),
            }
        }
        "GET /v1/credentials" if asked.header("authorization") == "of-pod" => given(),
        "PUT /latest/api/token" if !asked.header("x-aws-ec2-metadata-token-ttl-seconds").is_empty() => {
            (200, "imds".to_owned())
        }
        line if line.starts_with("GET /latest/") && asked.header("x-aws-ec2-metadata-token") == "imds" => {
            match line.trim_start_matches("GET /latest/meta-data/iam/security-credentials/") {
                "" => (200, "role\n".to_owned()),
                "role" => given(),
                _ => (404, String::new()),
            }
        }
        "POST /" => aws(asked),
        _ => (401, String::new()),
    }
}

#[tokio::test]
async fn aws_credentials_are_those_of_a_workload_a_container_or_an_instance() {
    let (fake, dir) = (Fake::start(identities).await, tempfile::tempdir().unwrap());
    let (file, other) = (dir.path().join("token"), dir.path().join("other"));
    std::fs::write(&file, "of-pod").unwrap();
    std::fs::write(&other, "of-nobody").unwrap();
    let (token, other) = (file.to_str().unwrap(), other.to_str().unwrap());
    let agent = format!("{}/v1/credentials", fake.address);
    let role = ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r");
    let endpoint = ("AWS_ENDPOINT_URL", fake.address.as_str());
    for identity in [
        vec![role, ("AWS_WEB_IDENTITY_TOKEN_FILE", token)],
        vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", &agent), ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token)],
        vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", &agent), ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "of-pod")],
        vec![("AWS_EC2_METADATA_SERVICE_ENDPOINT", &fake.address)],
    ] {
        let own = reader(&[&[endpoint], &identity[..]].concat());
        assert_eq!(read(&own, PARAMETER).await.unwrap(), "of-parameter", "{identity:?}");
    }
    for (identity, why) in [
        (vec![role, ("AWS_WEB_IDENTITY_TOKEN_FILE", other)], "no credentials are given to it"),
        (vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.as_str())], "no credentials are given to it"),
        (
            vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/v1")],
            "neither HTTPS nor the address of an agent",
        ),
    ] {
        let none = read(&reader(&[&[endpoint], &identity[..]].concat()), SECRET).await.unwrap_err();
        assert!(none.to_string().contains(why), "{none}");
    }
}
