//! Stores on loopback that refuse what the real ones refuse: a wrong path, a missing token, a wrong signature. No test reaches a cloud, or an
//! address of metadata.

mod amazon;
mod entra;
mod others;

use crate::{NotRead, SecretNotRead, SecretReader};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::response::Response;
use secrecy::ExposeSecret;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tidelock_core::config::secrets::reference::SecretReference;

/// A request as a store sees it.
struct Asked {
    /// Method, path and query.
    line: String,
    headers: axum::http::HeaderMap,
    body: String,
}

impl Asked {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// A store on loopback.
struct Fake {
    address: String,
    /// Lines of the requests so far.
    lines: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    async fn start(answer: impl Fn(&Asked) -> (u16, String) + Clone + Send + Sync + 'static) -> Fake {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        let handler = move |request: Request| {
            let (answer, seen) = (answer.clone(), Arc::clone(&seen));
            async move {
                let (Parts { method, uri, headers, .. }, body) = request.into_parts();
                let body = to_bytes(body, 1 << 20).await.unwrap();
                let line = format!("{method} {uri}");
                seen.lock().unwrap().push(line.clone());
                let body = String::from_utf8(body.to_vec()).unwrap();
                let (status, text) = answer(&Asked { line, headers, body });
                Response::builder().status(status).body(Body::from(text)).unwrap()
            }
        };
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(handler)).await });
        Fake { address, lines }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

fn reader(variables: &[(&str, &str)]) -> SecretReader {
    SecretReader::new(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

async fn read(reader: &SecretReader, reference: &str) -> Result<String, NotRead> {
    let wanted = BTreeMap::from([("X".to_owned(), SecretReference::parse(reference).unwrap())]);
    let read = reader.read_all(&wanted).await;
    read.map(|values| values[0].1.expose_secret().to_owned()).map_err(|SecretNotRead { reason, .. }| reason)
}
