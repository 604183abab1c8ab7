//! HTTPS on the server's own port: deliveries, pages, live logs, renewal, and the end of the process.

use crate::support::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A certificate for 127.0.0.1 and its key, made for these tests and not secret.
type Pair = (&'static str, &'static str);

const FIRST: Pair = (include_str!("https/first.pem"), include_str!("https/first.key.pem"));
const SECOND: Pair = (include_str!("https/second.pem"), include_str!("https/second.key.pem"));
const CERTIFICATE: &str = "{own}/cert.pem";
const KEY: &str = "{own}/key.pem";
/// Time limit of a request that must not be held up; a handshake may take ten seconds.
const AT_ONCE: Duration = Duration::from_secs(8);

fn write(ctx: &Ctx, (certificate, key): Pair) {
    std::fs::write(ctx.fill(CERTIFICATE), certificate).unwrap();
    std::fs::write(ctx.fill(KEY), key).unwrap();
}

fn flags(ctx: &Ctx) -> [String; 2] {
    [format!("--ssl-cert-file={}", ctx.fill(CERTIFICATE)), format!("--ssl-key-file={}", ctx.fill(KEY))]
}

/// Restarts the server with HTTPS.
async fn secure(ctx: &Ctx, pair: Pair) {
    write(ctx, pair);
    flags(ctx).iter().for_each(|flag| ctx.server.flag(flag));
    ctx.server.restart().await;
    assert!(ctx.server.url().starts_with("https://"));
}

/// A client that trusts this certificate and no other.
fn trusting((certificate, _): Pair) -> reqwest::Client {
    let certificate = reqwest::Certificate::from_pem(certificate.as_bytes()).unwrap();
    reqwest::Client::builder().no_proxy().tls_certs_only([certificate]).build().unwrap()
}

async fn is_trusted(ctx: &Ctx, pair: Pair) -> bool {
    match trusting(pair).get(format!("{}/status", ctx.server.url())).send().await {
        Ok(answer) => answer.status() == 200,
        Err(error) => {
            let said = format!("{error:?}");
            assert!(said.to_lowercase().contains("certificate"), "{said}");
            false
        }
    }
}

#[test]
fn a_pull_request_is_planned_and_applied_over_https() {
    run_test(
        Setup::one_project().own_process().steps(&["echo hello", &gate("plan"), PLANNED], &["apply"]),
        async |ctx| {
            secure(ctx, FIRST).await;
            let pull = ctx.open_input("change", "2").await;
            ctx.reached("plan", 1).await;
            let (_, page) = ctx.request("GET", "/", &[]).await;
            let job =
                regex::Regex::new("jobs(?:/|&#x2f;)([0-9a-f]{32})").unwrap().captures(&page).unwrap()[1].to_owned();
            let stream = format!("{}/jobs/{job}/stream", ctx.server.url());
            let mut stream = trusting(FIRST).get(stream).send().await.unwrap();
            let mut seen = String::new();
            while !seen.contains("hello") {
                seen += &String::from_utf8_lossy(&stream.chunk().await.unwrap().expect("the log ended"));
            }
            ctx.open_gate("plan");
            ctx.next(&pull).await.is("plan", "success");
            while let Some(chunk) = stream.chunk().await.unwrap() {
                seen += &String::from_utf8_lossy(&chunk);
            }
            assert!(seen.contains("Plan: 1 to add"), "{seen}");
        },
    );
}

#[test]
fn a_renewed_certificate_needs_no_restart() {
    run_test(Setup::one_project(), async |ctx| {
        secure(ctx, FIRST).await;
        assert!(is_trusted(ctx, FIRST).await && !is_trusted(ctx, SECOND).await);
        // Half a renewal changes nothing.
        std::fs::write(ctx.fill(CERTIFICATE), SECOND.0).unwrap();
        assert!(is_trusted(ctx, FIRST).await && !is_trusted(ctx, SECOND).await);
        std::fs::write(ctx.fill(KEY), SECOND.1).unwrap();
        assert!(is_trusted(ctx, SECOND).await && !is_trusted(ctx, FIRST).await);
        // Renewal as by Kubernetes: another file under the same name.
        for (name, text) in [(CERTIFICATE, FIRST.0), (KEY, FIRST.1)] {
            std::fs::write(ctx.fill("{own}/new"), text).unwrap();
            std::fs::rename(ctx.fill("{own}/new"), ctx.fill(name)).unwrap();
        }
        assert!(is_trusted(ctx, FIRST).await);
        std::fs::remove_file(ctx.fill(CERTIFICATE)).unwrap();
        assert!(is_trusted(ctx, FIRST).await);
    });
}

#[test]
fn slow_and_wrong_handshakes_hold_nobody_up() {
    run_test(Setup::one_project(), async |ctx| {
        secure(ctx, FIRST).await;
        let address = ctx.server.url().replace("https://", "");
        let silent: Vec<_> = (0..50).map(|_| TcpStream::connect(&address).unwrap()).collect();
        let mut half = TcpStream::connect(&address).unwrap();
        half.write_all(&[0x16, 3, 1, 2]).unwrap();
        let mut garbage = TcpStream::connect(&address).unwrap();
        garbage.write_all(&[0x16; 4096]).unwrap();
        let status = async || ctx.request("GET", "/status", &[]).await.0;
        assert_eq!(tokio::time::timeout(AT_ONCE, status()).await.expect("it is held up"), 200);
        drop((silent, half));
        let told = tokio::task::spawn_blocking(move || {
            let mut plain = TcpStream::connect(&address).unwrap();
            plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            let mut told = String::new();
            plain.read_to_string(&mut told).unwrap();
            told
        });
        let told = told.await.unwrap();
        assert!(told.starts_with("HTTP/1.0 400 This port speaks HTTPS\r\n"), "{told}");
        assert!(include_str!("../../Dockerfile").contains("400 This port speaks HTTPS"));
    });
}

#[test]
fn files_that_are_no_pair_stop_the_start_by_name() {
    run_test(Setup::one_project().own_process(), async |ctx| {
        let flags = flags(ctx);
        let flags = flags.each_ref().map(String::as_str);
        let (first, second, certificate, key) = (FIRST, SECOND, "cert.pem", "key.pem");
        for (pair, named) in [
            ((first.0, second.1), [certificate, key, "are no pair"]),
            ((first.1, first.1), [certificate, "has no certificate in PEM", ""]),
            ((first.0, first.0), [key, "has no usable private key", ""]),
            ((first.0, "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"), [key, "it is encrypted", ""]),
        ] {
            write(ctx, pair);
            let (code, said) = ctx.server.command("server", &flags).await;
            assert_eq!(code, Some(1), "{said}");
            assert!(named.iter().all(|text| said.contains(text)), "{named:?}: {said}");
        }
        write(ctx, (first.0, second.1));
        let (_, found) = ctx.server.command("doctor", &flags).await;
        assert!(found.contains("are no pair"), "{found}");
    });
}

#[test]
fn it_ends_in_time_with_pages_open() {
    run_test(
        Setup::one_project().own_process().steps(&["echo hello", &gate("plan"), PLANNED], &["apply"]),
        async |ctx| {
            secure(ctx, FIRST).await;
            let pull = ctx.open_input("change", "2").await;
            ctx.reached("plan", 1).await;
            let address = ctx.server.url().replace("https://", "");
            let _silent = TcpStream::connect(&address).unwrap();
            let (_, page) = ctx.request("GET", "/", &[]).await;
            let job =
                regex::Regex::new("jobs(?:/|&#x2f;)([0-9a-f]{32})").unwrap().captures(&page).unwrap()[1].to_owned();
            let stream = format!("{}/jobs/{job}/stream", ctx.server.url());
            let _stream = trusting(FIRST).get(stream).send().await.unwrap();
            // It has to end within ten seconds.
            ctx.server.stop().await;
            ctx.open_gate("plan");
            ctx.server.start().await;
            ctx.next(&pull).await.is("plan", "success");
        },
    );
}
