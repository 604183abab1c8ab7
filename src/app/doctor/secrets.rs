//! Reads the secrets that `repos.yaml` names by the identity of the server, and shows none of them.

use super::report::Findings;
use crate::app::services::Parts;
use crate::config::secrets::reference::{SecretPlace, SecretReference};
use crate::settings::Settings;
use std::collections::BTreeSet;

const SECRET: &str = "secret";
/// Variables with credentials of the stores.
const OF_GOOGLE: [&str; 1] = ["GOOGLE_APPLICATION_CREDENTIALS"];
const OF_HASHICORP: [&str; 2] = ["VAULT_TOKEN", "VAULT_TOKEN_FILE"];
const OF_AWS: [&str; 3] = ["AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN"];
const OF_AZURE: [&str; 3] = ["AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE", "IDENTITY_HEADER"];
const MEND: &str = "jobs of its projects fail like this: correct the reference in repos.yaml, or the rights of the identity \
                    (docs/secrets.md)";

pub(super) async fn check(settings: &Settings, parts: &Parts) -> Findings {
    let mut findings = Findings::default();
    let now = parts.now();
    let references = now.global.secret_references();
    warn_of_credentials(settings, &references, &mut findings);
    let tried = settings.secret_reader.try_all(&references).await;
    for (name, problem) in references.iter().map(ToString::to_string).zip(tried) {
        match problem {
            None => findings.fine(SECRET, format!("{name} can be read")),
            // The jobs of an executor have an identity of their own.
            Some(problem) if !now.global.executors.is_empty() => {
                let text =
                    format!("{name} cannot be read by the server, only perhaps by jobs of an executor: {problem}");
                findings.warn(SECRET, text, MEND);
            }
            Some(problem) => findings.fault(SECRET, format!("{name} cannot be read: {problem}"), MEND),
        }
    }
    findings
}

/// Warns of credentials of a store that steps get: with them, a plan reads every secret that the server can read.
fn warn_of_credentials(settings: &Settings, references: &[&SecretReference], findings: &mut Findings) {
    let of_store = |reference: &&SecretReference| -> &'static [&'static str] {
        match reference.place {
            SecretPlace::GoogleSecretManager { .. } => &OF_GOOGLE,
            SecretPlace::HashicorpVault { .. } => &OF_HASHICORP,
            SecretPlace::AwsSecretsManager(_) | SecretPlace::AwsParameter(_) => &OF_AWS,
            SecretPlace::AzureKeyVault { .. } => &OF_AZURE,
        }
    };
    let names: BTreeSet<&str> = references.iter().flat_map(of_store).copied().collect();
    for name in names.into_iter().filter(|name| settings.child_env.iter().any(|(known, _)| known == name)) {
        let text = format!("steps get {name}: the plan of any pull request can read every secret that it opens");
        let mend =
            format!("add it to masked-variables, if no provider needs it: --masked-variables={name} (docs/secrets.md)");
        findings.warn(SECRET, text, &mend);
    }
}
