use super::oidc::{OpenIdConnect, PersonDomain};
use super::provider::{CLIENT, Provider, SECRET};
use super::*;
use crate::web::WebState;
use crate::web::access::AccessRules;
use crate::web::front_door_tests::{FAR, NEAR, send_request, serve, web_state};
use serde_json::json;
use std::collections::BTreeMap;

const URL: &str = "https://tide.example/base";
/// With a digest of `base`.
const SESSION: &str = "__Host-tidelock-session-cae66217";
const KEY: &str = "the key of cookies of this server";
const OURS: &str = "sec-fetch-site: same-origin";

fn rules(rules: &[&str]) -> PersonRules {
    PersonRules::new(rules.iter().map(|rule| (*rule).to_owned()).collect())
}

fn sign_in(provider: &Provider, viewers: &[&str], key: &str) -> SignIn {
    let oidc = OpenIdConnect::new(&provider.url, CLIENT, SECRET.to_owned().into(), PersonDomain::EndOfEmail).unwrap();
    SignIn::new(vec![Arc::new(oidc)], rules(viewers), &key.to_owned().into(), Duration::from_secs(3600), URL)
}

fn state(sign_in: SignIn, admins: &[&str]) -> WebState {
    let access = AccessRules { sign_in: Some(sign_in), admins: rules(admins), ..AccessRules::default() };
    WebState { access, url: URL.into(), ..web_state() }
}

async fn server(provider: &Provider, viewers: &[&str]) -> SocketAddr {
    serve(state(sign_in(provider, viewers, KEY), &[]), FAR).await
}

/// A browser with its cookies.
#[derive(Default, Clone)]
struct Browser {
    cookies: BTreeMap<String, String>,
}

impl Browser {
    /// Sends a request and takes the cookies of the answer.
    async fn ask(&mut self, server: SocketAddr, request: &str, more: &[&str]) -> (u16, String) {
        let cookies: Vec<String> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cookies = format!("cookie: {}", cookies.join("; "));
        let headers = [&["accept: text/html,*/*", "sec-fetch-mode: navigate", &*cookies], more].concat();
        let (status, answer) = send_request(server, request, &headers, "").await;
        for line in answer.lines().filter_map(|line| line.strip_prefix("set-cookie: ")) {
            let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
            assert!(line.contains("; Path=/;") && line.contains("; HttpOnly; SameSite=Lax; Secure"), "{line}");
            if line.contains("Max-Age=0") {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        (status, answer)
    }

    async fn get(&mut self, server: SocketAddr, path: &str) -> (u16, String) {
        self.ask(server, &format!("GET {path}"), &[]).await
    }

    /// Begins to sign in; returns the path and query to which the provider sends people back.
    async fn begin(&mut self, server: SocketAddr, provider: &Provider, next: &str) -> String {
        let (status, answer) = self.get(server, &address("/login", &[("next", next)])).await;
        assert_eq!(status, 303, "{answer}");
        let back = provider.authorize(&location(&answer));
        assert_eq!((back.host_str(), back.path()), (Some("tide.example"), "/base/login/callback"));
        // The proxy in front takes the base path away.
        format!("/login/callback?{}", back.query().unwrap())
    }

    async fn sign_in(&mut self, server: SocketAddr, provider: &Provider) {
        let back = self.begin(server, provider, "/").await;
        let (status, answer) = self.get(server, &back).await;
        assert_eq!((status, &*location(&answer)), (303, "../"), "{answer}");
    }

    fn has_session(&self) -> bool {
        self.cookies.contains_key(SESSION)
    }
}

fn location(answer: &str) -> String {
    answer.lines().find_map(|line| line.strip_prefix("location: ")).unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Signed in: the page is one of a server that does not lead, which only people see.
fn is_admitted((status, answer): (u16, String)) -> bool {
    status == 503 && answer.contains("Standing by")
}

#[tokio::test]
async fn a_person_signs_in_sees_the_page_that_was_asked_for_and_signs_out() {
    let provider = Provider::start().await;
    let server = server(&provider, &["@example.com"]).await;
    let mut browser = Browser::default();
    let (status, answer) = browser.get(server, "/runs/x?person=a%20b&x").await;
    // A form may have asked for it, which must not be redirected to another origin.
    let refresh = "refresh: 0; url=../login?next=%2Fruns%2Fx%3Fperson%3Da%2520b%26x";
    assert!(status == 401 && answer.lines().any(|line| line == refresh), "{answer}");
    let back = browser.begin(server, &provider, "/runs/x?person=a%20b&x").await;
    let (status, answer) = browser.get(server, &back).await;
    assert_eq!((status, &*location(&answer)), (303, "../runs/x?person=a%20b&x"), "{answer}");
    assert_eq!(browser.cookies.keys().collect::<Vec<_>>(), [SESSION], "the attempt has ended");

    let (status, answer) = browser.get(server, "/runs").await;
    assert!(answer.contains("ada@example.com <button>Sign out</button>"), "{answer}");
    assert!(is_admitted((status, answer)));
    let (status, answer) = browser.ask(server, "POST /logout", &[OURS]).await;
    assert_eq!((status, &*location(&answer)), (303, "./login?signed_out=yes"));
    assert!(!browser.has_session());
    // The only provider is not asked again by itself.
    let (status, answer) = browser.get(server, "/login?signed_out=yes").await;
    assert!(status == 200 && answer.contains("Signed out") && answer.contains("login?with=oidc"), "{answer}");
    let (status, answer) = browser.get(server, "/runs").await;
    assert_eq!((status, &*location(&answer)), (303, "./login?next=%2Fruns"));
}

#[tokio::test]
async fn scripts_and_changes_are_answered_with_words_instead_of_a_redirect() {
    let provider = Provider::start().await;
    let server = server(&provider, &[]).await;
    let html = "accept: text/html";
    for (request, headers) in [
        ("GET /runs", &[][..]),
        ("GET /api/locks", &["accept: application/json"]),
        ("GET /runs", &[html, "sec-fetch-mode: cors"]),
        ("POST /apply/unlock", &[html]),
        ("POST /logout", &[html]),
    ] {
        let (status, answer) = send_request(server, request, headers, "").await;

        let is_told = answer.contains("sign in; scripts send X-Atlantis-Token") && !answer.contains("location:");
        assert!(status == 401 && is_told, "{request} {headers:?}: {answer}");
    }
    // The API's token opens the API, and this machine nothing.
    assert_eq!(send_request(server, "GET /api/locks", &["x-atlantis-token: s3cret"], "").await.0, 503);
    let here = serve(state(sign_in(&provider, &[], KEY), &[]), NEAR).await;
    assert_eq!(send_request(here, "GET /runs", &[], "").await.0, 401);
    assert_eq!(send_request(here, "GET /status", &[], "").await.0, 200);
}

#[tokio::test]
async fn an_answer_is_for_the_browser_that_began_and_for_one_use() {
    let provider = Provider::start().await;
    let server = server(&provider, &[]).await;
    let (mut ada, mut eve) = (Browser::default(), Browser::default());
    let (of_ada, of_eve) = (ada.begin(server, &provider, "/").await, eve.begin(server, &provider, "/").await);
    let before = ada.clone();
    // A page of Eve's leads Ada's browser to Eve's answer, or to one without a state.
    for path in [&*of_eve, "/login/callback?code=code-1&state=", "/login/callback?code=code-1", "/login/callback"] {
        let mut browser = before.clone();
        let (status, answer) = browser.get(server, path).await;
        assert!(status == 400 && answer.contains("not begun in this browser"), "{path}: {answer}");
        assert!(!browser.has_session(), "{path}");
        assert_eq!(browser.cookies, before.cookies, "the attempt goes on");
    }
    assert_eq!(Browser::default().get(server, &of_eve).await.0, 400, "a browser without an attempt");
    assert_eq!(ada.get(server, &of_ada).await.0, 303);
    assert!(ada.has_session());
    // Once more: in the same browser, and in one that has kept the attempt.
    let session = ada.cookies.clone();
    for path in [&of_ada, &of_eve] {
        let (status, answer) = ada.get(server, path).await;
        assert_eq!((status, &*location(&answer), &ada.cookies), (303, "../", &session), "{path}: {answer}");
    }
    let mut kept = before.clone();
    let (status, answer) = kept.get(server, &of_ada).await;
    assert!(status == 403 && answer.contains("good for one use") && !kept.has_session(), "{answer}");
}

#[tokio::test]
async fn a_session_of_somebody_else_does_not_outlive_a_sign_in() {
    let provider = Provider::start().await;
    let server = server(&provider, &[]).await;
    provider.state().claims = json!({"email": "eve@example.com"});
    let mut eve = Browser::default();
    eve.sign_in(server, &provider).await;
    // Eve has put her session into Ada's browser.
    let mut ada = eve.clone();
    provider.state().claims = json!({});
    ada.sign_in(server, &provider).await;
    assert_ne!(ada.cookies[SESSION], eve.cookies[SESSION]);
    let (_, answer) = ada.get(server, "/runs").await;
    assert!(answer.contains("ada@example.com <button>") && !answer.contains("eve@"), "{answer}");
    let (_, answer) = eve.get(server, "/runs").await;
    assert!(answer.contains("eve@example.com <button>"), "{answer}");
}

#[tokio::test]
async fn cookies_that_are_not_ours_or_not_current_are_ignored_and_deleted() {
    let provider = Provider::start().await;
    let own = sign_in(&provider, &[], KEY);
    let now = Timestamp::now().as_second();
    let realm = own.ways[0].realm().to_owned();
    let (name, domain, groups) = ("ada@example.com".to_owned(), None, Vec::new());
    let good = PageSession { version: VERSION, until: now + 600, realm, name, domain, groups };
    let seal = |session: PageSession| own.keys.0.seal(&session).unwrap();
    let attempt = SignInAttempt::new(now + 600, &good.realm, "/").unwrap();
    let value = seal(good.clone());
    let wrong = [
        String::new(),
        "x".into(),
        value[1..].to_owned(),
        value[..value.len() - 1].to_owned(),
        value.replace('.', ""),
        "A".repeat(16_000),
        seal(PageSession { version: 0, ..good.clone() }),
        seal(PageSession { until: now - 1, ..good.clone() }),
        // Of a time when sessions were longer.
        seal(PageSession { until: now + 7200, ..good.clone() }),
        seal(PageSession { realm: "https://id.example tide-client".into(), ..good.clone() }),
        sign_in(&provider, &[], "the key of another server").keys.0.seal(&good).unwrap(),
        // Another kind of cookie with the same content, and with its own.
        own.keys.1.seal(&good).unwrap(),
        own.keys.1.seal(&attempt).unwrap(),
        own.keys.0.seal(&attempt).unwrap(),
        format!("{value}; {SESSION}={value}"),
    ];
    let server = server(&provider, &[]).await;
    let with = |value: &str| Browser { cookies: BTreeMap::from([(SESSION.to_owned(), value.to_owned())]) };
    assert!(is_admitted(with(&value).get(server, "/").await));
    for value in &wrong {
        let mut browser = with(value);
        let (status, answer) = browser.get(server, "/").await;
        assert!(status == 303 && !browser.has_session(), "{value}: {answer}");
    }
    let mut browser = Browser { cookies: BTreeMap::from([("tidelock-session-cae66217".to_owned(), value)]) };
    assert_eq!(browser.get(server, "/").await.0, 303, "one without the prefix can be of another host");
}

#[tokio::test]
async fn who_may_view_and_change_is_asked_of_every_request() {
    let provider = Provider::start().await;
    let all = server(&provider, &[]).await;
    let mut browser = Browser::default();
    browser.sign_in(all, &provider).await;
    // Another server of the same key has narrower rules.
    let narrow = serve(state(sign_in(&provider, &["@ops.example", "bob@example.com"], KEY), &[]), FAR).await;
    let mut other = browser.clone();
    let (status, answer) = other.get(narrow, "/").await;
    assert!(status == 403 && answer.contains("--web-viewers names neither ada@example.com"), "{answer}");
    assert!(!other.has_session());
    let back = other.begin(narrow, &provider, "/").await;
    let (status, answer) = other.get(narrow, &back).await;
    assert!(status == 403 && answer.contains("You are ada@example.com") && !other.has_session(), "{answer}");

    let viewed = serve(state(sign_in(&provider, &["@example.com"], KEY), &["bob@example.com"]), FAR).await;
    assert!(is_admitted(browser.get(viewed, "/").await));
    let (status, answer) = browser.ask(viewed, "POST /apply/unlock", &[OURS]).await;
    assert!(status == 403 && answer.contains("--admins names neither ada@example.com"), "{answer}");
    assert!(browser.has_session());
    assert_eq!(browser.ask(viewed, "POST /logout", &[OURS]).await.0, 303, "everybody may sign out");
    let changed = serve(state(sign_in(&provider, &[], KEY), &["ada@example.com"]), FAR).await;
    let mut browser = Browser::default();
    browser.sign_in(changed, &provider).await;
    assert!(is_admitted(browser.ask(changed, "POST /apply/unlock", &[OURS]).await));
}

#[tokio::test]
async fn another_site_cannot_sign_anybody_out() {
    let provider = Provider::start().await;
    let server = server(&provider, &[]).await;
    let mut browser = Browser::default();
    browser.sign_in(server, &provider).await;
    for header in
        ["sec-fetch-site: cross-site", "sec-fetch-site: same-site", "origin: https://evil.example", "origin: null"]
    {
        let (status, answer) = browser.ask(server, "POST /logout", &[header]).await;
        assert!(status == 403 && browser.has_session(), "{header}: {answer}");
    }
    assert_eq!(browser.get(server, "/logout").await.0, 405);
    assert!(browser.has_session());
}

#[tokio::test]
async fn only_a_path_of_this_server_is_opened_afterwards() {
    let local =
        ["/", "/runs", "/runs?x=//evil.example&y=..", "/pulls/dev.azure.com/acme/Two%20Words/infra/7", "/loginx"];
    for next in local {
        assert!(is_local(next), "{next}");
    }
    let long = format!("/{}", "a".repeat(MAX_NEXT));
    let elsewhere = [
        "",
        "runs",
        "//evil.example",
        "///evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/a\r\nset-cookie: x=y",
        "/\t/evil.example",
        "/a b",
        "/é",
        "/a#b",
        "/../x",
        "/a/..",
        "/%2e%2E/x",
        "/login",
        "/login?next=/",
        "/login/callback?code=x",
        &long,
    ];
    let provider = Provider::start().await;
    let server = server(&provider, &[]).await;
    for next in elsewhere {
        assert!(!is_local(next), "{next}");
        let mut browser = Browser::default();
        let back = browser.begin(server, &provider, next).await;
        let (status, answer) = browser.get(server, &back).await;
        assert_eq!((status, &*location(&answer)), (303, "../"), "{next}: {answer}");
    }
}

#[tokio::test]
async fn errors_of_a_provider_are_text_and_short() {
    let provider = Provider::start().await;
    let server = server(&provider, &[]).await;
    let mut browser = Browser::default();
    let back = browser.begin(server, &provider, "/").await;
    let state = back.split_once("state=").unwrap().1;
    let error = "%3Cscript%3Ealert(1)%3C/script%3E%1b%E2%80%AE&error_description=";
    let path = format!("/login/callback?state={state}&error={error}{}", "d".repeat(5000));
    let (status, answer) = browser.get(server, &path).await;
    assert!(status == 403 && answer.contains("&lt;script&gt;alert(1)&lt;&#x2f;script&gt; ddd"), "{answer}");
    assert!(!answer.contains("<script>a") && !answer.contains(&"d".repeat(MAX_ERROR + 1)), "{answer}");
    assert!(!answer.contains('\u{1b}') && !answer.contains('\u{202e}') && browser.cookies.is_empty());

    let state = browser.begin(server, &provider, "/").await.split_once("state=").unwrap().1.to_owned();
    let path = format!("/login/callback?state={state}&code=code-1&iss=https%3A%2F%2Felsewhere.example");
    let (status, answer) = browser.get(server, &path).await;
    assert!(status == 403 && answer.contains("its answer is of another issuer"), "{status} {answer}");
    let state = browser.begin(server, &provider, "/").await.split_once("state=").unwrap().1.to_owned();
    let path = format!("/login/callback?state={state}&code={}", "c".repeat(MAX_CODE + 1));
    let (status, answer) = browser.get(server, &path).await;
    assert!(status == 403 && answer.contains("there is no code in its answer"), "{answer}");
}

#[tokio::test]
async fn who_is_not_proven_gets_no_session_and_few_tries() {
    let provider = Provider::start().await;
    let server = server(&provider, &[]).await;
    provider.state().claims = json!({"email_verified": false, "aud": "another"});
    let mut browser = Browser::default();
    for _ in 0..20 {
        let back = browser.begin(server, &provider, "/").await;
        let (status, answer) = browser.get(server, &back).await;
        assert!(status == 403 && answer.contains("for another client"), "{answer}");
    }
    let back = browser.begin(server, &provider, "/").await;
    assert_eq!(browser.get(server, &back).await.0, 429);
    assert!(!browser.has_session());
}

#[tokio::test]
async fn a_provider_that_is_down_stops_no_start_and_is_named() {
    let provider = Provider { url: "http://127.0.0.1:9".into(), ..Provider::start().await };
    let server = server(&provider, &[]).await;
    assert_eq!(send_request(server, "GET /healthz", &[], "").await.0, 200);
    let (status, answer) = Browser::default().get(server, "/login").await;
    assert!(status == 502 && answer.contains("127.0.0.1 cannot be asked who you are"), "{answer}");
}

#[tokio::test]
async fn of_several_providers_one_is_chosen() {
    let (one, two) = (Provider::start().await, Provider::start().await);
    let mut sign_in = sign_in(&one, &[], KEY);
    sign_in.ways.extend(super::tests::sign_in(&two, &[], KEY).ways);
    let server = serve(state(sign_in, &[]), FAR).await;
    let mut browser = Browser::default();
    let (status, answer) = browser.get(server, "/login?next=/runs").await;
    assert!(status == 200 && answer.matches("login?with=oidc&amp;next=%2Fruns").count() == 2, "{answer}");
    assert!(browser.cookies.is_empty());
    let (status, answer) = browser.get(server, "/login?with=oidc&next=/runs").await;
    assert!(status == 303 && location(&answer).starts_with(&one.url), "{answer}");
}

#[tokio::test]
async fn every_route_for_people_is_closed_without_a_session() {
    let provider = Provider::start().await;
    let address = serve(state(sign_in(&provider, &[], KEY), &[]), NEAR).await;
    let mut closed = 0;
    for Route { method, path, who, .. } in crate::web::table(&state(sign_in(&provider, &[], KEY), &[])) {
        let forged = format!("cookie: {SESSION}=x.y");
        for headers in [&[][..], &[&*forged]] {
            let (status, answer) = send_request(address, &format!("{method} {path}"), headers, "").await;
            if matches!(who, Who::People | Who::Api(_) | Who::Token(_)) {
                assert_eq!(status, 401, "{method} {path}: {answer}");
                closed += 1;
            } else {
                assert!(!matches!(status, 401 | 403), "{method} {path}: {answer}");
            }
        }
    }
    assert!(closed > 60, "{closed}");
}
