use super::*;
use http::{HeaderName, HeaderValue};
use proptest::prelude::*;

const URL: &str = "https://tide.example.com/base";

fn access(basic: bool, open: bool) -> AccessRules {
    let basic_auth = basic.then(|| ("harbour".into(), "pass:word".to_owned().into()));
    AccessRules { basic_auth, open, ..AccessRules::default() }
}

fn check(
    access: &AccessRules,
    who: Who,
    method: &Method,
    peer: &str,
    headers: &[(&str, &str)],
) -> Result<String, AccessDenied> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_str(value).unwrap());
    }
    let uri = Uri::from_static("/");
    let secret = SecretString::from("s3cret".to_owned());
    let caller = Caller { peer: peer.parse().unwrap(), method, uri: &uri, headers: &map, iap: None };
    access.admit(who, Some(&secret), URL, &caller).map(|admitted| admitted.name)
}

fn basic(credentials: &str) -> String {
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(credentials))
}

#[test]
fn without_a_login_only_this_machines_own_browser_is_let_in() {
    let closed = access(false, false);
    let here = Ok("loopback".to_owned());
    let refused = Err(AccessDenied::NotLoopback);
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let vectors: [(&str, Headers<'_>, &Result<String, AccessDenied>); 17] = [
        ("127.0.0.1:5", &[("host", "localhost:4141")], &here),
        ("127.0.0.1:5", &[("host", "LOCALHOST")], &here),
        ("127.0.0.1:5", &[("host", "127.9.9.9:4141")], &here),
        ("[::1]:5", &[("host", "[::1]:4141")], &here),
        ("[::ffff:127.0.0.1]:5", &[("host", "127.0.0.1")], &here),
        ("203.0.113.7:5", &[("host", "localhost")], &refused),
        ("[2001:db8::1]:5", &[("host", "[::1]")], &refused),
        ("127.0.0.1:5", &[], &refused),
        ("127.0.0.1:5", &[("host", "evil.example")], &refused),
        ("127.0.0.1:5", &[("host", "localhost.evil.example")], &refused),
        ("127.0.0.1:5", &[("host", "127.0.0.1.nip.io")], &refused),
        ("127.0.0.1:5", &[("host", "localhost@evil.example")], &refused),
        ("127.0.0.1:5", &[("host", "localhost"), ("host", "evil.example")], &refused),
        ("127.0.0.1:5", &[("host", "localhost"), ("x-forwarded-for", "203.0.113.7")], &refused),
        ("127.0.0.1:5", &[("host", "localhost"), ("forwarded", "for=203.0.113.7")], &refused),
        ("127.0.0.1:5", &[("host", "localhost"), ("x-real-ip", "203.0.113.7")], &refused),
        ("127.0.0.1:5", &[("host", "localhost"), ("via", "1.1 proxy")], &refused),
    ];
    for (peer, headers, expected) in vectors {
        assert_eq!(check(&closed, Who::People, &Method::GET, peer, headers), *expected, "{peer} {headers:?}");
        assert_eq!(
            check(&closed, Who::Api(TokenScope::Read), &Method::GET, peer, headers),
            *expected,
            "{peer} {headers:?}"
        );
        assert!(check(&closed, Who::Everyone, &Method::POST, peer, headers).is_ok());
    }
}

#[test]
fn open_pages_are_open_and_the_log_names_the_address() {
    let name = check(&access(false, true), Who::People, &Method::GET, "203.0.113.7:5", &[("host", "tide.example.com")]);
    assert_eq!(name.unwrap(), "anyone (203.0.113.7)");
}

#[test]
fn basic_auth_where_configured_is_needed_from_everywhere() {
    let right = basic("harbour:pass:word");
    let vectors = [
        (right.clone(), true),
        (right.replace("Basic", "bAsIc"), true),
        (basic("harbour:pass"), false),
        (basic("harbour:pass:word "), false),
        (basic("Harbour:pass:word"), false),
        (basic("harbour"), false),
        (basic(":"), false),
        (right.replace("Basic", "Bearer"), false),
        ("Basic !!!".into(), false),
        ("Basic".into(), false),
        (String::new(), false),
    ];
    for open in [false, true] {
        for (value, let_in) in &vectors {
            let headers = [("host", "localhost"), ("authorization", value.as_str())];
            let answer = check(&access(true, open), Who::People, &Method::GET, "127.0.0.1:5", &headers);
            let expected = if *let_in { Ok("harbour".to_owned()) } else { Err(AccessDenied::Login) };
            assert_eq!(answer, expected, "{value}");
        }
    }
    let none = check(&access(true, true), Who::People, &Method::GET, "127.0.0.1:5", &[("host", "localhost")]);
    assert_eq!(none, Err(AccessDenied::Login));
}

#[test]
fn an_empty_password_is_no_password() {
    let basic_auth = Some(("harbour".into(), String::new().into()));
    let access = AccessRules { basic_auth, ..AccessRules::default() };
    let answer = check(&access, Who::People, &Method::GET, "127.0.0.1:5", &[("authorization", &basic("harbour:"))]);
    assert_eq!(answer, Err(AccessDenied::Login));
}

#[test]
fn the_token_opens_the_api_and_nothing_else() {
    let far = "203.0.113.7:5";
    for access in [access(false, false), access(true, false)] {
        let with = |who, token| check(&access, who, &Method::GET, far, &[("host", "x"), ("x-atlantis-token", token)]);
        assert_eq!(with(Who::Api(TokenScope::Read), "s3cret").unwrap(), "api");
        assert_eq!(with(Who::Api(TokenScope::Read), "S3cret"), Err(AccessDenied::Script(ScriptDenied::WrongToken)));
        assert!(with(Who::People, "s3cret").is_err());
    }
    let caller = Caller {
        peer: far.parse().unwrap(),
        method: &Method::GET,
        uri: &Uri::from_static("/"),
        headers: &HeaderMap::from_iter([(HeaderName::from_static(TOKEN_HEADER), HeaderValue::from_static(""))]),
        iap: None,
    };
    let unset = access(false, false).admit(Who::Api(TokenScope::Read), None, URL, &caller);
    assert_eq!(unset, Err(AccessDenied::NotLoopback));
    let empty = access(false, false).admit(Who::Api(TokenScope::Read), Some(&String::new().into()), URL, &caller);
    assert_eq!(empty, Err(AccessDenied::Script(ScriptDenied::WrongToken)));
}

#[test]
fn changes_are_refused_when_another_site_asks() {
    let vectors: [(&[(&str, &str)], bool); 14] = [
        (&[], true),
        (&[("sec-fetch-site", "same-origin")], true),
        (&[("sec-fetch-site", "none")], true),
        (&[("sec-fetch-site", "same-site")], false),
        (&[("sec-fetch-site", "cross-site")], false),
        (&[("sec-fetch-site", "cross-site"), ("origin", "http://localhost:4141")], false),
        (&[("origin", "http://localhost:4141")], true),
        (&[("origin", "http://LOCALHOST:4141")], true),
        (&[("origin", "https://tide.example.com")], true),
        (&[("origin", "http://tide.example.com")], false),
        (&[("origin", "http://localhost")], false),
        (&[("origin", "http://localhost:4142")], false),
        (&[("origin", "https://evil.example")], false),
        (&[("origin", "null")], false),
    ];
    for (extra, let_in) in vectors {
        let headers = [&[("host", "localhost:4141")], extra].concat();
        for method in [Method::POST, Method::DELETE] {
            let answer = check(&access(false, false), Who::People, &method, "127.0.0.1:5", &headers);
            let expected = if let_in { Ok("loopback".to_owned()) } else { Err(AccessDenied::OtherOrigin) };
            assert_eq!(answer, expected, "{method} {extra:?}");
        }
        assert!(check(&access(false, false), Who::People, &Method::GET, "127.0.0.1:5", &headers).is_ok());
    }
}

#[test]
fn a_default_port_that_one_side_leaves_out_is_the_same_origin() {
    for (origin, host) in [("https://tide.test", "tide.test:443"), ("http://tide.test:80", "tide.test")] {
        let headers = [("host", host), ("origin", origin)];
        assert!(check(&access(false, true), Who::People, &Method::POST, "203.0.113.7:5", &headers).is_ok(), "{origin}");
    }
}

proptest! {
    #[test]
    fn no_header_makes_a_far_peer_near(name in "[a-z-]{1,20}", value in "[ -~]{0,40}") {
        let headers = [("host", "localhost"), (name.as_str(), value.as_str())];
        let answer = check(&access(false, false), Who::People, &Method::GET, "203.0.113.7:5", &headers);
        prop_assert_eq!(answer, Err(AccessDenied::NotLoopback));
    }
}
