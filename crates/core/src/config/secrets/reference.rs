//! References to secrets: the store, the place in it, and the key in a value that is JSON. A reference contains no secret.

use crate::config::quoted;
use serde::{Deserialize, Serialize};
use std::fmt;
use url::Url;

/// Longest reference, in bytes.
const MAX_REFERENCE: usize = 1024;
/// Endings of the hosts of Azure's vaults, in its clouds. A token is sent to no other host.
/// <https://learn.microsoft.com/azure/key-vault/general/about-keys-secrets-certificates#dns-suffixes-for-object-identifiers>
const AZURE_HOSTS: [&str; 3] = [".vault.azure.net", ".vault.azure.cn", ".vault.usgovcloudapi.net"];
/// Partitions of AWS, whose hosts the client knows.
const PARTITIONS: [&str; 3] = ["aws", "aws-cn", "aws-us-gov"];
/// The address of this machine, on which emulators listen.
const LOOPBACK: &str = "127.0.0.1";
/// Forms of a reference, for messages.
const FORMS: &str =
    "gcp:projects/P/secrets/NAME, vault:MOUNT/data/PATH#KEY, aws:arn:…, azure:https://V.vault.azure.net/secrets/NAME";

/// A reference. Its text is that of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretReference {
    /// The place of the value.
    pub place: SecretPlace,
    /// The key after `#`: of a JSON object that is the value, or of the data of HashiCorp Vault.
    pub key: Option<String>,
}

/// The place of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretPlace {
    /// `gcp:`: a version in Google Secret Manager, `projects/P/secrets/NAME/versions/V`.
    GoogleSecretManager {
        /// Name of the version. Without one in the reference it is `latest`.
        version: String,
        /// True if the reference names the version.
        is_named: bool,
    },
    /// `vault:`: a path in HashiCorp Vault, as its API has it.
    HashicorpVault {
        /// The path after `/v1/`.
        path: String,
    },
    /// `aws:arn:…:secretsmanager:…`: a secret of AWS Secrets Manager.
    AwsSecretsManager(Arn),
    /// `aws:arn:…:ssm:…:parameter/NAME`: a parameter of AWS Systems Manager.
    AwsParameter(Arn),
    /// `azure:https://V.vault.azure.net/secrets/NAME`: a secret of Azure Key Vault.
    AzureKeyVault {
        /// The URL.
        url: String,
    },
}

/// A name of AWS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arn {
    /// All of it.
    pub text: String,
    /// Partition, such as `aws`.
    pub partition: String,
    /// Region.
    pub region: String,
    /// Name of the resource, after its kind.
    pub name: String,
}

impl SecretPlace {
    /// Returns the name of the store for people.
    pub fn store(&self) -> &'static str {
        match self {
            SecretPlace::GoogleSecretManager { .. } => "Google Secret Manager",
            SecretPlace::HashicorpVault { .. } => "HashiCorp Vault",
            SecretPlace::AwsSecretsManager(_) => "AWS Secrets Manager",
            SecretPlace::AwsParameter(_) => "AWS Systems Manager",
            SecretPlace::AzureKeyVault { .. } => "Azure Key Vault",
        }
    }
}

impl SecretReference {
    /// Parses a reference; the error is for users.
    pub fn parse(text: &str) -> Result<SecretReference, String> {
        if text.len() > MAX_REFERENCE {
            return Err(format!("the reference is longer than {MAX_REFERENCE} bytes"));
        }
        let (place, key) = match text.split_once('#') {
            Some((place, key)) => (place, Some(key)),
            None => (text, None),
        };
        let wrong = |needs: &str| format!("`{}` is not a reference: {needs}", quoted(text));
        if key.is_some_and(|key| key.is_empty() || key.chars().any(char::is_control)) {
            return Err(wrong("a key follows `#`"));
        }
        let (scheme, rest) = place.split_once(':').unwrap_or((place, ""));
        let place = match scheme {
            "gcp" => google(rest).ok_or_else(|| wrong("write `gcp:projects/PROJECT/secrets/NAME/versions/latest`"))?,
            "vault" if key.is_none() => return Err(wrong("write the key too, as `vault:secret/data/ci#token`")),
            "vault" => {
                vault(rest).ok_or_else(|| wrong("write the path of the API, as `vault:secret/data/ci#token`"))?
            }
            "aws" => aws(rest).ok_or_else(|| {
                wrong("write the ARN of a secret or of a parameter in AWS, China or GovCloud, and a key as `#KEY`")
            })?,
            "azure" => azure(rest).ok_or_else(|| wrong("write `azure:https://VAULT.vault.azure.net/secrets/NAME`"))?,
            _ => return Err(wrong(&format!("the forms are: {FORMS}"))),
        };
        Ok(SecretReference { place, key: key.map(str::to_owned) })
    }
}

impl fmt::Display for SecretReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            SecretPlace::GoogleSecretManager { version, is_named } => {
                let secret = version.strip_suffix("/versions/latest").filter(|_| !is_named);
                write!(f, "gcp:{}", secret.unwrap_or(version))?;
            }
            SecretPlace::HashicorpVault { path } => write!(f, "vault:{path}")?,
            SecretPlace::AwsSecretsManager(arn) | SecretPlace::AwsParameter(arn) => write!(f, "aws:{}", arn.text)?,
            SecretPlace::AzureKeyVault { url } => write!(f, "azure:{url}")?,
        }
        self.key.iter().try_for_each(|key| write!(f, "#{key}"))
    }
}

impl TryFrom<String> for SecretReference {
    type Error = String;

    fn try_from(text: String) -> Result<SecretReference, String> {
        SecretReference::parse(&text)
    }
}

impl From<SecretReference> for String {
    fn from(reference: SecretReference) -> String {
        reference.to_string()
    }
}

/// Returns true for a part of a path: no separator, no `.` or `..`, nothing that an address would escape.
fn is_part(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~@+=:".contains(&byte);
    !text.is_empty() && text.bytes().all(fits) && text != "." && text != ".."
}

fn google(text: &str) -> Option<SecretPlace> {
    let parts: Vec<&str> = text.split('/').collect();
    let (project, secret, version) = match parts[..] {
        ["projects", project, "secrets", secret] => (project, secret, None),
        ["projects", project, "secrets", secret, "versions", version] => (project, secret, Some(version)),
        _ => return None,
    };
    let (is_named, version) = (version.is_some(), version.unwrap_or("latest"));
    let fits = [project, secret, version].into_iter().all(is_part);
    let version = format!("projects/{project}/secrets/{secret}/versions/{version}");
    fits.then_some(SecretPlace::GoogleSecretManager { version, is_named })
}

fn vault(text: &str) -> Option<SecretPlace> {
    let fits = text.contains('/') && text.split('/').all(is_part);
    fits.then(|| SecretPlace::HashicorpVault { path: text.to_owned() })
}

fn aws(text: &str) -> Option<SecretPlace> {
    let parts: Vec<&str> = text.splitn(6, ':').collect();
    let ["arn", partition, service, region, account, resource] = parts[..] else { return None };
    // The region becomes a part of a host's name.
    let of_host = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
    let (name, make): (_, fn(Arn) -> SecretPlace) = match service {
        "secretsmanager" => (resource.strip_prefix("secret:")?, SecretPlace::AwsSecretsManager),
        "ssm" => (resource.strip_prefix("parameter")?, SecretPlace::AwsParameter),
        _ => return None,
    };
    let is_name = name.trim_start_matches('/').split('/').all(is_part) && (service != "ssm" || name.starts_with('/'));
    // ECS writes the key and the version after the name.
    let is_name = is_name && (service == "ssm" || !name.contains(':'));
    (PARTITIONS.contains(&partition) && of_host(region) && is_account && is_name).then(|| {
        make(Arn {
            text: text.to_owned(),
            partition: partition.to_owned(),
            region: region.to_owned(),
            name: name.to_owned(),
        })
    })
}

fn azure(text: &str) -> Option<SecretPlace> {
    let url = Url::parse(text).ok()?;
    let host = url.host_str()?;
    let is_azure = url.scheme() == "https" && url.port().is_none() && AZURE_HOSTS.iter().any(|end| host.ends_with(end));
    let is_emulator = host == LOOPBACK && matches!(url.scheme(), "http" | "https");
    let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    let parts: Vec<&str> = url.path().trim_start_matches('/').split('/').collect();
    let is_secret = matches!(parts[..], ["secrets", _] | ["secrets", _, _]);
    let of_azure =
        |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let fits = (is_azure || is_emulator) && plain && is_secret && parts.iter().all(of_azure) && url.as_str() == text;
    fits.then(|| SecretPlace::AzureKeyVault { url: text.to_owned() })
}
