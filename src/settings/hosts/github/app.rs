//! Reads `gh-app-id` and the related settings of the server as a GitHub App.

use super::{GithubAppKey, GithubAppSettings};
use crate::settings::check::read_file;
use crate::settings::typed::Reader;
use secrecy::ExposeSecret;

/// Settings that show that the server is an App.
const OF_APP: [&str; 4] = ["gh-app-id", "gh-app-key", "gh-app-key-file", "gh-app-slug"];

/// Returns true if the server is to be an App, and no account is set.
pub(super) fn is_meant(r: &mut Reader) -> bool {
    number(r, "gh-app-id") > 0 && !r.is_given("gh-user")
}

/// Reads the App if one is set and no account is: an account takes precedence, as in Atlantis.
pub(super) fn read(r: &mut Reader) -> Option<GithubAppSettings> {
    let id = number(r, "gh-app-id");
    if id == 0 {
        for name in
            OF_APP.iter().skip(1).chain(&["gh-app-installation-id"]).filter(|name| r.is_given(name)).collect::<Vec<_>>()
        {
            r.warn(name, "has no effect without gh-app-id");
        }
        return None;
    }
    if r.is_given("gh-user") {
        r.warn("gh-app-id", "has no effect beside gh-user: leave out gh-user and gh-token to be the App");
        return None;
    }
    let key = key(r);
    let slug = r.optional("gh-app-slug").map(|slug| slug.trim().trim_end_matches("[bot]").to_owned());
    let installation_id = r.is_given("gh-app-installation-id").then(|| number(r, "gh-app-installation-id"));
    Some(GithubAppSettings { id, key: key?, slug, installation_id: installation_id.filter(|id| *id > 0) })
}

fn number(r: &mut Reader, name: &str) -> u64 {
    u64::try_from(r.number(name, 0, i64::MAX)).unwrap_or_default()
}

/// Reads exactly one of `gh-app-key` and `gh-app-key-file`.
fn key(r: &mut Reader) -> Option<GithubAppKey> {
    let (name, text, key) = match (r.secret("gh-app-key"), r.path("gh-app-key-file")) {
        (Some(_), Some(_)) => {
            r.wrong("gh-app-key-file", "and gh-app-key are both given: leave one out");
            return None;
        }
        (None, None) => {
            let what = "(ATLANTIS_GH_APP_KEY_FILE) is missing, and so is gh-app-key: the private key of the App, made on its page";
            r.wrong("gh-app-key-file", what);
            return None;
        }
        (Some(key), None) => ("gh-app-key", key.expose_secret().to_owned(), GithubAppKey::Value(key)),
        (None, Some(path)) => {
            let text = read_file(&path).map_err(|error| r.wrong("gh-app-key-file", error)).ok()?;
            r.environment.secrets.push(text.trim().into());
            ("gh-app-key-file", text, GithubAppKey::File(path))
        }
    };
    if !text.contains("PRIVATE KEY-----") {
        r.wrong(name, "is no private key in PEM, which begins with -----BEGIN RSA PRIVATE KEY-----");
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::super::{GithubAppKey, GithubToken};
    use crate::settings::tests::{invalid, loaded};

    const KEY: &str = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n";
    const NO_ACCOUNT: [(&str, &str); 2] = [("ATLANTIS_GH_USER", ""), ("ATLANTIS_GH_TOKEN", "")];

    #[test]
    fn an_app_is_named_by_id_and_key() {
        let env = [&NO_ACCOUNT[..], &[("ATLANTIS_GH_APP_ID", "123456"), ("ATLANTIS_GH_APP_KEY", KEY)]].concat();
        let settings =
            loaded(&["--gh-app-slug=acme-tidelock", "--gh-app-installation-id=77", "--write-git-creds"], &env);
        let github = settings.hosts.github.unwrap();
        let Some(GithubToken::App(app)) = github.token else { panic!("no app") };
        assert_eq!((app.id, app.installation_id, github.user.as_str()), (123_456, Some(77), "acme-tidelock[bot]"));
        assert!(matches!(app.key, GithubAppKey::Value(_)));
        assert_eq!(settings.module_credentials, ["https://github.com"]);
        let github = loaded(&[], &env).hosts.github.unwrap();
        assert_eq!(github.user, "app/123456");
    }

    #[test]
    fn what_is_wrong_with_an_app_is_named() {
        let with =
            |more: &[(&'static str, &'static str)]| invalid(&["--gh-app-id=1"], &[&NO_ACCOUNT[..], more].concat());
        assert!(with(&[]).contains("gh-app-key-file (ATLANTIS_GH_APP_KEY_FILE) is missing"), "{}", with(&[]));
        let said = with(&[("ATLANTIS_GH_APP_KEY", "secret-text")]);
        assert!(said.contains("is no private key in PEM") && !said.contains("secret-text"), "{said}");
        let said = with(&[("ATLANTIS_GH_APP_KEY", KEY), ("ATLANTIS_GH_APP_KEY_FILE", "/nowhere")]);
        assert!(said.contains("are both given"), "{said}");
        assert!(with(&[("ATLANTIS_GH_APP_KEY_FILE", "/nowhere")]).contains("/nowhere"));
    }

    #[test]
    fn check_runs_are_for_apps() {
        let app = [&NO_ACCOUNT[..], &[("ATLANTIS_GH_APP_ID", "123456"), ("ATLANTIS_GH_APP_KEY", KEY)]].concat();
        assert!(loaded(&["--gh-checks"], &app).hosts.github.unwrap().checks);
        assert!(!loaded(&[], &app).hosts.github.unwrap().checks);
        let said = invalid(&["--gh-checks"], &[]);
        assert!(said.contains("gh-checks") && said.contains("needs a GitHub App"), "{said}");
    }

    #[test]
    fn an_account_goes_first() {
        let settings = loaded(&["--gh-app-id=1"], &[("ATLANTIS_GH_APP_KEY", KEY)]);
        assert!(matches!(settings.hosts.github.unwrap().token, Some(GithubToken::Account(_))));
        assert!(settings.warnings.iter().any(|warning| warning.contains("no effect beside gh-user")));
        let warnings = loaded(&["--gh-app-slug=x"], &[]).warnings;
        assert!(warnings.iter().any(|warning| warning.contains("no effect without gh-app-id")), "{warnings:?}");
    }
}
