//! git goes through the proxy that the environment names, and trusts the certificates that it names.

use super::*;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const URL: &str = "https://git.example.test/acme/infra.git";

/// Starts a proxy that refuses every request. Returns its address, and the first lines of the requests.
async fn proxy() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, asked) = (format!("http://{}", listener.local_addr().unwrap()), Arc::<Mutex<Vec<String>>>::default());
    let lines = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 1024];
            let read = stream.read(&mut bytes).await.unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
            lines.lock().unwrap().push(text.lines().next().unwrap_or_default().to_owned());
            let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
        }
    });
    (url, asked)
}

/// Returns the requests that the proxy gets when git fetches with these variables.
async fn asked(variables: impl Fn(&str) -> Vec<(&'static str, String)>) -> Vec<String> {
    let mut world = World::new(Strategy::Branch).await;
    let (url, asked) = proxy().await;
    world.pull.clone_url = URL.to_owned();
    world.pull.head.commit = "a".repeat(40).into();
    world.checkouts.env.extend(variables(&url).into_iter().map(|(name, value)| (name.to_owned(), value)));
    world.checkouts.fetch(&world.pull, None).await.unwrap_err();
    let asked = asked.lock().unwrap();
    asked.clone()
}

#[tokio::test]
async fn git_goes_through_the_proxy_unless_the_host_is_exempt() {
    for name in ["HTTPS_PROXY", "https_proxy"] {
        let found = asked(|proxy| vec![(name, proxy.to_owned())]).await;
        assert!(
            found.first().is_some_and(|line| line.starts_with("CONNECT git.example.test:443 ")),
            "{name}: {found:?}"
        );
    }
    let exempt = asked(|proxy| vec![("HTTPS_PROXY", proxy.to_owned()), ("NO_PROXY", ".example.test".to_owned())]).await;
    assert_eq!(exempt, [""; 0]);
}

#[test]
fn git_trusts_the_certificates_of_the_environment() {
    let trusted = |given: &[(&str, &str)]| {
        let mut env = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        trust_certificates(&mut env);
        env.into_iter().find(|(name, _)| name == "GIT_SSL_CAINFO").map(|(_, value)| value)
    };
    assert_eq!(trusted(&[("SSL_CERT_FILE", "/ca.pem")]).as_deref(), Some("/ca.pem"));
    assert_eq!(trusted(&[("SSL_CERT_FILE", "/ca.pem"), ("GIT_SSL_CAINFO", "/own.pem")]).as_deref(), Some("/own.pem"));
    assert_eq!(trusted(&[("SSL_CERT_FILE", "")]), None);
    assert_eq!(trusted(&[]), None);
}
