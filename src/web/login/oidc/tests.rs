use super::*;
use crate::web::login::provider::{CLIENT, Provider, SECRET, SigningKey, redirecting};
use serde_json::json;

const CALLBACK: &str = "https://tide.example/login/callback";

fn at(issuer: &str, domain: PersonDomain) -> OpenIdConnect {
    OpenIdConnect::new(issuer, CLIENT, SECRET.to_owned().into(), domain).unwrap()
}

/// Signs in, with this change of the attempt between the beginning and the end.
async fn sign_in_with(
    oidc: &OpenIdConnect,
    provider: &Provider,
    change: impl FnOnce(&mut SignInAttempt),
) -> Result<Person, SignInError> {
    let mut attempt = SignInAttempt::new(0, oidc.realm(), "/").unwrap();
    let address = oidc.begin(&attempt, CALLBACK).await.map_err(SignInError::Unavailable)?;
    let back = provider.authorize(address.as_str());
    let code = back.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned();
    change(&mut attempt);
    oidc.finish(&attempt, CALLBACK, &code).await
}

async fn sign_in(oidc: &OpenIdConnect, provider: &Provider) -> Result<Person, SignInError> {
    sign_in_with(oidc, provider, |_| {}).await
}

fn why(result: Result<Person, SignInError>) -> String {
    match result {
        Err(SignInError::NotProven(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_person_is_named_by_a_verified_email_in_lower_case() {
    let provider = Provider::start().await;
    let person = sign_in(&at(&provider.url, PersonDomain::EndOfEmail), &provider).await.unwrap();
    let expected = Person { name: "ada@example.com".into(), domain: Some("example.com".into()), groups: Vec::new() };
    assert_eq!(person, expected);
}

#[tokio::test]
async fn a_domain_is_the_issuers_claim_or_the_end_of_the_email_as_the_operator_says() {
    let provider = Provider::start().await;
    provider.state().claims = json!({"hd": "Ops.Example"});
    for (source, expected) in [
        (PersonDomain::Unknown, None),
        (PersonDomain::Hosted, Some("ops.example")),
        (PersonDomain::EndOfEmail, Some("example.com")),
    ] {
        let person = sign_in(&at(&provider.url, source), &provider).await.unwrap();
        assert_eq!(person.domain.as_deref(), expected, "{source:?}");
    }
    provider.state().claims = json!({"hd": null});
    assert_eq!(sign_in(&at(&provider.url, PersonDomain::Hosted), &provider).await.unwrap().domain, None);
}

#[tokio::test]
async fn an_email_has_to_be_verified_in_the_token_or_by_the_user_info() {
    let provider = Provider::start().await;
    let oidc = at(&provider.url, PersonDomain::Unknown);
    const UNVERIFIED: &str = "that your email address is verified";
    let cases = [
        (json!({"email_verified": false}), json!({}), Err("what your email address is")),
        (json!({"email_verified": null}), json!({"email": "ada@example.com"}), Err(UNVERIFIED)),
        (json!({"email": null}), json!({"email": "ada@example.com", "email_verified": false}), Err(UNVERIFIED)),
        (json!({"xms_edov": false, "email_verified": null}), json!({"email": "ada@example.com"}), Err(UNVERIFIED)),
        (json!({"email": "ada"}), json!({}), Err("no email address")),
        (json!({"email": "a@b@c"}), json!({}), Err("no email address")),
        (json!({"email": "@example.com"}), json!({}), Err("no email address")),
        (json!({"email": "ada \u{202e}@example.com"}), json!({}), Err("no email address")),
        (json!({"email": format!("{}@example.com", "a".repeat(300))}), json!({}), Err("no email address")),
        (json!({"email_verified": "true"}), json!({}), Ok("ada@example.com")),
        (json!({"xms_edov": true, "email_verified": null}), json!({}), Ok("ada@example.com")),
        (json!({"xms_edov": "1", "email_verified": null}), json!({}), Ok("ada@example.com")),
        (json!({"email": null}), json!({"email": "bob@example.com", "email_verified": true}), Ok("bob@example.com")),
    ];
    for (claims, info, expected) in cases {
        {
            let mut state = provider.state();
            (state.claims, state.info) = (claims.clone(), info);
        }
        let result = sign_in(&oidc, &provider).await;
        match expected {
            Ok(name) => assert_eq!(result.unwrap().name, name, "{claims}"),
            Err(part) => {
                let why = why(result);
                assert!(why.contains(part), "{claims}: {why}");
            }
        }
    }
    // 5.3.2: the user info of another subject is not used.
    {
        let mut state = provider.state();
        (state.claims, state.info) =
            (json!({"email": null}), json!({"sub": "8", "email": "eve@example.com", "email_verified": true}));
    }
    assert!(matches!(sign_in(&oidc, &provider).await, Err(SignInError::Unavailable(_))));
    provider.state().info = Value::Null;
    assert!(matches!(sign_in(&oidc, &provider).await, Err(SignInError::Unavailable(_))));
}

/// 3.1.3.7.
#[tokio::test]
async fn each_claim_and_the_signature_of_a_token_are_checked() {
    let provider = Provider::start().await;
    let oidc = at(&provider.url, PersonDomain::Unknown);
    let now = jiff::Timestamp::now().as_second();
    const SIGNATURE: &str = "its signature is not one of the issuer";
    let cases = [
        (json!({"iss": "https://evil.example"}), json!({}), "of another issuer"),
        (json!({"iss": null}), json!({}), ""),
        (json!({"aud": "another"}), json!({}), "for another client"),
        (json!({"aud": [CLIENT, "another"]}), json!({}), "for another client"),
        (json!({"aud": null}), json!({}), ""),
        (json!({"azp": "another"}), json!({}), "another client asked for it"),
        (json!({"exp": now - 1}), json!({}), "it has expired"),
        (json!({"nonce": "another"}), json!({}), "for another sign-in"),
        (json!({"nonce": null}), json!({}), "for another sign-in"),
        (json!({}), json!({"alg": "none"}), SIGNATURE),
        (json!({}), json!({"alg": "HS256"}), SIGNATURE),
        (json!({}), json!({"alg": "ES384"}), SIGNATURE),
        (json!({}), json!({"kid": "unknown"}), SIGNATURE),
        (json!({}), json!({"crit": ["exp"]}), ""),
    ];
    for (claims, header, part) in cases {
        {
            let mut state = provider.state();
            (state.claims, state.header) = (claims.clone(), header.clone());
        }
        match sign_in(&oidc, &provider).await {
            Err(SignInError::NotProven(why)) => assert!(why.contains(part), "{claims} {header}: {why}"),
            // A token without a needed claim is no token.
            Err(SignInError::Unavailable(_)) if part.is_empty() => {}
            other => panic!("{claims} {header}: {other:?}"),
        }
    }
    let seals: [fn(&str) -> String; 3] = [
        |unsigned| format!("{unsigned}."),
        |unsigned| format!("{unsigned}.{}", SigningKey::new("one").id),
        // The client secret as key of HS256, which the client could know.
        |unsigned| {
            use base64::Engine;
            let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET.as_bytes());
            let proof = ring::hmac::sign(&key, unsigned.as_bytes());
            format!("{unsigned}.{}", base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(proof))
        },
    ];
    for (seal, alg) in seals.into_iter().zip(["none", "ES256", "HS256"]) {
        {
            let mut state = provider.state();
            (state.claims, state.header, state.seal) = (json!({}), json!({"alg": alg}), Some(seal));
        }
        assert!(sign_in(&oidc, &provider).await.is_err(), "{alg}");
    }
    // A key of somebody else with the id of the issuer's.
    {
        let mut state = provider.state();
        (state.header, state.seal, state.signs_with) = (json!({}), None, Arc::new(SigningKey::new("one")));
    }
    assert!(why(sign_in(&oidc, &provider).await).contains(SIGNATURE));
}

#[tokio::test]
async fn a_code_is_good_once_and_for_the_attempt_that_asked_for_it() {
    let provider = Provider::start().await;
    let oidc = at(&provider.url, PersonDomain::Unknown);
    let other = sign_in_with(&oidc, &provider, |attempt| attempt.verifier = "x".repeat(43)).await;
    assert!(why(other).contains("a code is good for one use"));
    let other = sign_in_with(&oidc, &provider, |attempt| attempt.nonce = "x".repeat(43)).await;
    assert!(why(other).contains("for another sign-in"));
    let attempt = SignInAttempt::new(0, oidc.realm(), "/").unwrap();
    let back = provider.authorize(oidc.begin(&attempt, CALLBACK).await.unwrap().as_str());
    let code = back.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned();
    assert!(oidc.finish(&attempt, CALLBACK, &code).await.is_ok());
    assert!(why(oidc.finish(&attempt, CALLBACK, &code).await).contains("a code is good for one use"));
    let elsewhere = "https://evil.example/login/callback";
    assert!(oidc.finish(&attempt, elsewhere, &code).await.is_err());
}

#[tokio::test]
async fn new_keys_are_loaded_when_they_are_needed_and_not_too_often() {
    let provider = Provider::start().await;
    let oidc = at(&provider.url, PersonDomain::Unknown);
    sign_in(&oidc, &provider).await.unwrap();
    let two = Arc::new(SigningKey::new("two"));
    {
        let mut state = provider.state();
        state.keys.push(Arc::clone(&two));
        state.signs_with = two;
    }
    // The issuer was asked a moment ago.
    assert!(sign_in(&oidc, &provider).await.is_err());
    google_tokens::lock(&oidc.known).asked = Instant::now().checked_sub(ASK_AGAIN);
    sign_in(&oidc, &provider).await.unwrap();
}

#[tokio::test]
async fn an_issuer_without_a_usable_configuration_signs_nobody_in() {
    let provider = Provider::start().await;
    let redirecting = redirecting(&format!("{}/.well-known/openid-configuration", provider.url)).await;
    // The second one is the issuer, but not by its exact name.
    for issuer in ["http://127.0.0.1:9", &format!("{}/", provider.url), &redirecting] {
        let oidc = at(issuer, PersonDomain::Unknown);
        let attempt = SignInAttempt::new(0, oidc.realm(), "/").unwrap();
        let error = oidc.begin(&attempt, CALLBACK).await.unwrap_err();
        assert!(error.to_string().contains("is not known"), "{issuer}: {error:#}");
    }
    let wrong = OpenIdConnect::new(&provider.url, CLIENT, "wrong".to_owned().into(), PersonDomain::Unknown).unwrap();
    let Err(SignInError::Unavailable(error)) = sign_in(&wrong, &provider).await else { panic!("it signs in") };
    assert!(format!("{error:#}").contains("invalid_client") && !format!("{error:#}").contains("wrong"), "{error:#}");
}

#[test]
fn endpoints_have_https_or_are_on_this_machine_with_their_issuer() {
    let far = at("https://id.example", PersonDomain::Unknown);
    let near = at("http://127.0.0.1:9000", PersonDomain::Unknown);
    let is_sound = |oidc: &OpenIdConnect, url: &str| oidc.check_address(&Url::parse(url).unwrap()).is_ok();
    assert!(is_sound(&far, "https://id.example/token") && is_sound(&far, "https://token.example/x"));
    assert!(!is_sound(&far, "http://id.example/token") && !is_sound(&far, "http://127.0.0.1/token"));
    assert!(is_sound(&near, "http://127.0.0.1:9000/token") && !is_sound(&near, "http://127.0.0.1:9001/token"));
    assert!(!is_sound(&near, "http://169.254.169.254/") && !is_sound(&far, "file:///etc/passwd"));
}
