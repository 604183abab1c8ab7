//! A client for the tests of this package.

use crate::server::Broken;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;
use url::Url;

/// Longest time that a test waits for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for what should happen.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it does not happen")
}

/// Sends a request to a server on loopback, and returns the answer as soon as it begins.
pub(crate) async fn send<B>(method: &str, url: &str, headers: HeaderMap, body: B) -> Result<Response<Incoming>, Broken>
where
    B: Body<Data = Bytes, Error: Into<Broken>> + Send + 'static,
{
    let url = Url::parse(url)?;
    let stream = TcpStream::connect(&*url.socket_addrs(|| None)?).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut request = Request::builder().method(method).uri(&url[url::Position::BeforePath..]).body(body)?;
    *request.headers_mut() = headers;
    request.headers_mut().insert(header::HOST, url.authority().parse()?);
    Ok(sender.send_request(request).await?)
}

/// Sends a request with this body, and returns status and text of the answer.
pub(crate) async fn call(method: &str, url: &str, body: String) -> Result<(u16, String), Broken> {
    let response = send(method, url, HeaderMap::new(), body).await?;
    let status = response.status().as_u16();
    Ok((status, String::from_utf8(response.into_body().collect().await?.to_bytes().to_vec())?))
}
