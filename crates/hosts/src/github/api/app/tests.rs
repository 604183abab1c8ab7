//! Tests of the App's own tokens, and of the owner of a path.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

const KEY: &str = include_str!("../../../../../../tests/it/github_app/key.pem");

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
    // A variable with one line.
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

fn app_with(accounts: &[(&str, bool)]) -> (App, Http) {
    let key = TokenSource::Value(KEY.into());
    let app = App::new(AppOptions { id: 7, key, installation: None }, "https://github.com".to_owned());
    let list = accounts.iter().zip(1..).map(|((account, suspended), id)| Installation {
        id,
        account: (*account).to_owned(),
        suspended: *suspended,
        ..Installation::default()
    });
    let known = KnownInstallations { list: list.collect(), listed: Some(Instant::now()) };
    let http = Http::new("http://127.0.0.1:1".to_owned(), TokenSource::Value("".into()), Default::default());
    (App { installations: AsyncMutex::new(known), ..app }, http.hasty())
}

#[tokio::test]
async fn a_request_that_names_no_owner_gets_no_token_of_somebody_else() {
    let (app, http) = app_with(&[("acme", false), ("beta", false)]);
    assert_eq!(app.installation_of(&http, "beta").await.unwrap(), 2);
    let error = app.installation_of(&http, "").await.unwrap_err().to_string();
    assert!(error.contains("more than one installation"), "{error}");
    let (app, http) = app_with(&[("acme", false)]);
    assert_eq!(app.installation_of(&http, "").await.unwrap(), 1);
}

#[tokio::test]
async fn the_owner_that_is_named_counts_where_the_path_names_none() {
    let (app, http) = app_with(&[("acme", false), ("beta", false)]);
    let alive = |text: &str| InstallationToken { value: text.into(), until: Instant::now() + LONGEST_LIFE };
    let places = [(1, "of acme"), (2, "of beta")].map(|(id, text)| (id, Arc::new(AsyncMutex::new(Some(alive(text))))));
    let app = App { tokens: Mutex::new(HashMap::from(places)), ..app };
    app.login.get_or_init(|| Login::new("tidelock[bot]"));
    for (path, owner, expected) in
        [("/graphql", "beta", 2), ("/repositories/12", "Beta", 2), ("/repos/acme/infra", "beta", 1)]
    {
        assert_eq!(app.token(&http, path, owner).await.unwrap().purse, expected, "{path}");
    }
}

#[tokio::test]
async fn the_name_is_asked_for_once_a_minute_while_it_is_not_known() {
    let (app, _) = app_with(&[]);
    assert!(app.may_ask_for_login() && !app.may_ask_for_login());
    *app.login_asked.lock().unwrap() = None;
    app.login.get_or_init(|| Login::new("tidelock[bot]"));
    assert!(!app.may_ask_for_login());
}
