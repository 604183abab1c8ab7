//! Requests: each is counted, waits for an instance that runs, and is forwarded over a connection of its own.

use super::container::Container;
use super::{InstancePhase, InstanceService};
use crate::server::Broken;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Headers that concern one connection only (RFC 9110, section 7.6.1), and those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// An open request: as long as it is there, the instance has the processor.
struct Open(Arc<InstanceService>);

impl Open {
    fn new(service: &Arc<InstanceService>) -> Open {
        service.update(|seen| {
            seen.open += 1;
            seen.requests += 1;
        });
        Open(Arc::clone(service))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.state.send_modify(|state| {
            state.seen.open -= 1;
            state.idle_since = Instant::now();
        });
    }
}

/// Answers a request: with 503 if there is no instance to be had, with 502 if it does not answer.
pub(super) async fn answer(
    request: Request<Incoming>,
    from: SocketAddr,
    service: Arc<InstanceService>,
) -> Result<Response<BoxBody<Bytes, Broken>>, Broken> {
    let open = Open::new(&service);
    let port = match service.running().await {
        Ok(port) => port,
        Err(error) => return Ok(failed(StatusCode::SERVICE_UNAVAILABLE, &error)),
    };
    match forward(request, from, port).await {
        Ok(response) => Ok(response.map(|body| {
            // The request is open until the body is dropped: read to its end, or given up.
            let counted = body.map_frame(move |frame| {
                let _ = &open;
                frame
            });
            counted.map_err(Broken::from).boxed()
        })),
        Err(error) => Ok(failed(StatusCode::BAD_GATEWAY, &error)),
    }
}

fn failed(status: StatusCode, error: &Broken) -> Response<BoxBody<Bytes, Broken>> {
    let body = Full::new(Bytes::from(format!("{error}\n"))).map_err(|never| match never {});
    let mut response = Response::new(body.boxed());
    *response.status_mut() = status;
    response
}

impl InstanceService {
    /// Returns the port of an instance that runs: starts one if there is none, and lets a stopped one continue.
    async fn running(self: &Arc<Self>) -> Result<u16, Broken> {
        let (number, port) = {
            let mut container = self.container.lock().await;
            if container.as_ref().is_none_or(Container::has_ended) {
                *container = Some(Container::start(self).await?);
            }
            let running = container.as_ref().ok_or("there is no instance")?;
            self.resume(running);
            (running.number, running.port)
        };
        let mut changes = self.state.subscribe();
        let told = changes
            .wait_for(|state| state.seen.starts != number || state.seen.phase != InstancePhase::Starting)
            .await?;
        if told.seen.starts == number && told.seen.phase == InstancePhase::Running {
            return Ok(port);
        }
        Err("the instance has ended before its port accepted".into())
    }
}

async fn forward(request: Request<Incoming>, from: SocketAddr, port: u16) -> Result<Response<Incoming>, Broken> {
    let (mut parts, body) = request.into_parts();
    remove_hop_by_hop(&mut parts.headers);
    let before = parts.headers.get_all(&FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let addresses: Vec<String> = before.map(str::to_owned).chain([from.ip().to_string()]).collect();
    parts.headers.insert(FORWARDED_FOR, HeaderValue::from_str(&addresses.join(", "))?);
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the request: its error is that of the answer or of the answer's body.
    tokio::spawn(connection);
    let mut response = sender.send_request(Request::from_parts(parts, body)).await?;
    remove_hop_by_hop(response.headers_mut());
    Ok(response)
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<HeaderName> =
        connection.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}
