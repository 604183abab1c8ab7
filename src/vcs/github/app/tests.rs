//! The App's own tokens, and whose a path is.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

const KEY: &str = include_str!("../../../../tests/it/github_app/key.pem");

fn parts(token: &SecretString) -> (Value, Value) {
    let mut parts = token.expose_secret().split('.').map(|part| URL_SAFE_NO_PAD.decode(part).unwrap());
    let mut json = || serde_json::from_slice(&parts.next().unwrap()).unwrap();
    (json(), json())
}

#[test]
fn a_token_of_the_app_says_what_github_wants() {
    let (head, claims) = parts(&signed(KEY, 7, 1_000_000).unwrap());
    assert_eq!(head, json!({"alg": "RS256", "typ": "JWT"}));
    assert_eq!(claims, json!({"iat": 999_940, "exp": 1_000_540, "iss": "7"}));
    // A variable of one line.
    assert!(signed(&KEY.replace('\n', "\\n"), 7, 0).is_ok());
}

#[test]
fn a_key_that_is_none_is_named_and_not_quoted() {
    for (key, said) in [
        ("nothing", "no private key in PEM"),
        ("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n", "no RSA key"),
        ("-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n", "no RSA key"),
    ] {
        let error = signed(key, 7, 0).unwrap_err();
        assert!(error.contains(said) && !error.contains("AAAA"), "{error}");
    }
}

#[test]
fn a_path_tells_whose_token_it_needs() {
    for (path, expected) in [
        ("/repos/acme/infra/pulls/1?per_page=2", Whose::Account("acme")),
        ("/orgs/acme", Whose::Account("acme")),
        ("/app/hook/deliveries?x", Whose::App),
        ("/app", Whose::App),
        ("/app-manifests/x/conversions", Whose::Unknown),
        ("/repositories/12/pulls", Whose::Unknown),
        ("", Whose::Unknown),
    ] {
        assert_eq!(whose(path), expected, "{path}");
    }
}
