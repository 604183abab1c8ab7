use super::DomainSource;
use crate::settings::SignInSettings;
use crate::settings::tests::{invalid, loaded};
use secrecy::ExposeSecret;
use std::time::Duration;

const URL: &str = "--atlantis-url=https://tide.example.com";
const GOOGLE: [&str; 4] = [
    URL,
    "--oidc-issuer=https://accounts.google.com",
    "--oidc-client-id=id",
    "--oidc-client-secret=secret-of-the-client",
];
const OWN: [&str; 4] = [
    URL,
    "--oidc-issuer=https://id.example.com/realms/a",
    "--oidc-client-id=id",
    "--oidc-client-secret=secret-of-the-client",
];
const GITHUB: [&str; 3] = [URL, "--gh-oauth-client-id=id", "--gh-oauth-client-secret=secret-of-the-client"];

fn read(flags: &[&str], more: &[&str]) -> SignInSettings {
    loaded(&[flags, more].concat(), &[]).sign_in.unwrap()
}

#[test]
fn without_its_settings_nobody_signs_in() {
    assert!(loaded(&[], &[]).sign_in.is_none());
    assert!(loaded(&[&GOOGLE[..], &["--events-only"]].concat(), &[]).sign_in.is_none(), "it has no pages");
}

#[test]
fn what_is_given_is_read() {
    let settings = read(&GOOGLE, &["--web-viewers=@Example.com,Ada@example.org", "--admins=ada@example.org"]);
    assert_eq!(settings.viewers.unwrap(), ["@example.com", "ada@example.org"]);
    assert_eq!(settings.session_length, Duration::from_secs(12 * 3600));
    assert!(settings.session_key.is_none() && settings.github.is_none());
    let oidc = settings.oidc.unwrap();
    assert_eq!((&*oidc.issuer, &*oidc.client_id), ("https://accounts.google.com", "id"));
    assert_eq!(
        (oidc.client_secret.expose_secret(), oidc.domains),
        ("secret-of-the-client", DomainSource::HostedDomain)
    );

    let settings = read(&OWN, &["--web-viewers=example.com", "--oidc-email-domains"]);
    assert_eq!(settings.oidc.unwrap().domains, DomainSource::Email);
    assert_eq!(read(&OWN, &["--web-viewers=*"]).oidc.unwrap().domains, DomainSource::None);

    let rules = ["--web-viewers=github.com/Ada,github.com/acme/*", "--admins=github.com/acme/SRE,github.com/acme/*"];
    let settings = read(&GITHUB, &rules);
    let github = settings.github.unwrap();
    assert_eq!((&*github.hostname, &*github.api_url), ("github.com", "https://api.github.com"));
    assert_eq!(github.groups, ["acme/*", "acme/sre"]);
    let here = ["--atlantis-url=http://127.0.0.1:4141", GITHUB[1], GITHUB[2]];
    let settings = read(&here, &["--web-viewers=*", "--gh-hostname=git.example.com", "--web-session-length=720h"]);
    assert!(settings.viewers.is_none() && settings.github.unwrap().groups.is_empty());
}

#[test]
fn what_would_let_strangers_in_or_lock_everybody_out_stops_the_start() {
    const ANY: &str = "--web-viewers=*";
    let iap = "--iap-audience=/projects/1/global/backendServices/2";
    let cases: [(&[&str], &[&str], &str); 26] = [
        (&GOOGLE, &[], "--web-viewers is missing"),
        (&GITHUB, &[], "--web-viewers is missing"),
        (&GOOGLE, &["--web-viewers=,"], "--web-viewers is no list of emails"),
        (&GOOGLE, &["--web-viewers=*,ada@example.com"], "--web-viewers is no list of emails"),
        (&GOOGLE[..3], &[ANY], "--oidc-client-secret is missing"),
        (&[URL, GOOGLE[1]], &[ANY], "--oidc-client-id is missing"),
        (&[URL, GOOGLE[3]], &[ANY], "--oidc-issuer is missing"),
        (&GITHUB[..2], &[ANY], "--gh-oauth-client-secret is missing"),
        (&[URL, GITHUB[2]], &[ANY], "--gh-oauth-client-id is missing"),
        (&GOOGLE, &[ANY, iap], "--iap-audience and a way to sign in"),
        (&GOOGLE, &[ANY, "--web-basic-auth", "--web-password=long-one"], "--web-basic-auth and a way to sign in"),
        (&GITHUB, &[ANY, "--allow-unauthenticated-pages"], "--allow-unauthenticated-pages and a way to sign in"),
        (&GOOGLE[1..], &[ANY], "--atlantis-url has to begin with https://"),
        (&GOOGLE[1..], &[ANY, "--atlantis-url=http://tide.example.com"], "--atlantis-url has to begin with https://"),
        (&GOOGLE, &[ANY, "--oidc-email-domains"], "--oidc-email-domains is not for Google"),
        (
            &[&GOOGLE[..1], &GOOGLE[2..]].concat(),
            &[ANY, "--oidc-issuer=http://id.example.com"],
            "--oidc-issuer is no address",
        ),
        (&OWN, &["--web-viewers=@example.com"], "--web-viewers names a domain"),
        (&OWN, &[ANY, "--admins=@example.com"], "--admins names a domain"),
        (&GITHUB, &["--web-viewers=ada@example.com"], "--web-viewers needs iap-audience or oidc-issuer"),
        (
            &GOOGLE,
            &["--web-viewers=github.com/ada"],
            "--web-viewers names accounts of GitHub, and needs gh-oauth-client-id",
        ),
        (&GITHUB, &["--web-viewers=git.example.com/ada"], "but people sign in at github.com"),
        (&[URL, GITHUB[1], "--gh-oauth-client-secret=secret"], &[ANY], "--gh-oauth-client-secret is too short"),
        (&GOOGLE, &[ANY, "--web-session-key=short"], "--web-session-key is shorter than 32"),
        (&GOOGLE, &[ANY, "--web-session-length=30s"], "--web-session-length is not from 1m to 720h"),
        (&[], &["--web-viewers=@example.com"], "--web-viewers needs a way to sign in"),
        (&[], &["--oidc-email-domains"], "--oidc-email-domains needs a way to sign in"),
    ];
    for (flags, more, expected) in cases {
        let problem = invalid(&[flags, more].concat(), &[]);
        assert!(problem.contains(expected), "{flags:?} {more:?}: {problem}");
        assert!(!problem.contains("=secret"), "{problem}");
    }
    for rule in ["github.com/", "github.com/a b", "github.com/acme/sre/x", "github.com/*", "github.com/../x", "a@b.c/d"]
    {
        let problem = invalid(&[&GITHUB[..], &[&format!("--web-viewers={rule}")]].concat(), &[]);
        assert!(problem.contains("is no list of emails"), "{rule}: {problem}");
    }
    let many: Vec<String> = (0..21).map(|team| format!("github.com/acme/team-{team}")).collect();
    let problem = invalid(&[&GITHUB[..], &[&format!("--web-viewers={}", many.join(","))]].concat(), &[]);
    assert!(problem.contains("more than 20 organizations and teams"), "{problem}");
}
