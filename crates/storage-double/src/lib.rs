//! A strict double of Cloud Storage: its JSON API over HTTP/1.1 and the gRPC calls that the official client makes, on one port.
//!
//! It checks every precondition, generation, checksum and page size, counts its requests, and fails on request ([`Fault`]). It keeps
//! everything in memory and listens on loopback. A request without credentials may do everything; one with the token of an account
//! ([`StorageAccount`]) may do what the account was granted. A development dependency of the tests and benchmarks.

mod accounts;
mod faults;
mod grpc;
mod json;
mod messages;
mod refusal;
mod settings;
mod state;
mod upload;

pub use accounts::{RightsDenial, StorageAccount, StorageGrant};
pub use faults::{Effect, Fault, Operation, Seen};
pub use settings::{Rule, Settings};

use accounts::{StorageAccounts, StorageCaller};
use bytes::{Bytes, BytesMut};
use faults::Plan;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use state::State;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Largest body of a request, in bytes.
const MAX_BODY: usize = 2 << 30;

pub(crate) type Body = UnsyncBoxBody<Bytes, std::io::Error>;
type Broken = Box<dyn std::error::Error + Send + Sync>;

/// State that all connections share.
pub(crate) struct Service {
    /// Address: `http://127.0.0.1:PORT`, or `https` over TLS.
    pub(crate) endpoint: String,
    pub(crate) plan: Plan,
    state: Mutex<State>,
    pub(crate) uploads: upload::Uploads,
    accounts: StorageAccounts,
    connections: AtomicU64,
    /// Rate at which each request's body is read, in bytes a second; 0: unlimited.
    drip: AtomicU64,
}

impl Service {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Faults of one connection.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) reset: Notify,
    frozen: AtomicBool,
}

/// A running double. It stops when it is dropped.
pub struct StorageDouble {
    service: Arc<Service>,
    down: watch::Sender<bool>,
    /// The tasks of all ports.
    accepting: Mutex<JoinSet<()>>,
}

impl StorageDouble {
    /// Starts a double on a free port of loopback, without any bucket.
    pub async fn start() -> std::io::Result<StorageDouble> {
        StorageDouble::launch(None).await
    }

    /// Starts one over TLS, with the certificate of [`CERTIFICATE_FILE`].
    pub async fn start_tls() -> std::io::Result<StorageDouble> {
        StorageDouble::launch(Some(tls()?)).await
    }

    async fn launch(tls: Option<TlsAcceptor>) -> std::io::Result<StorageDouble> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let service = Arc::new(Service {
            endpoint: format!("{scheme}://{}", listener.local_addr()?),
            plan: Plan::default(),
            state: Mutex::new(State::new()),
            uploads: upload::Uploads::default(),
            accounts: StorageAccounts::default(),
            connections: AtomicU64::new(0),
            drip: AtomicU64::new(0),
        });
        let (down, is_down) = watch::channel(false);
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, tls, service.clone(), is_down, None));
        Ok(StorageDouble { service, down, accepting: Mutex::new(accepting) })
    }

    /// Adds an account, which requests with this bearer token are from. From now on other tokens are refused.
    pub fn account(&self, token: &str, account: StorageAccount) {
        self.service.accounts.add(token, account);
    }

    /// Opens one more port, for a program that sends no token: its requests there are those of this account. Returns the address.
    pub async fn endpoint_of(&self, token: &str) -> std::io::Result<String> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let accepting = accept(listener, None, self.service.clone(), self.down.subscribe(), Some(token.into()));
        self.accepting.lock().unwrap_or_else(PoisonError::into_inner).spawn(accepting);
        Ok(endpoint)
    }

    /// Sets whether a write without rights to an object that exists is refused for these rights, although its precondition fails too.
    pub fn check_rights_first(&self, first: bool) {
        self.service.state().rights_first = first;
    }

    /// Sets whether an account that may not list is told that an object does not exist. By default it is not.
    pub fn tell_absence(&self, told: bool) {
        self.service.state().absence_told = told;
    }

    /// What accounts were denied so far, in order. A read of an object that does not exist is no denial.
    pub fn denials(&self) -> Vec<RightsDenial> {
        self.service.accounts.denials()
    }

    /// Address for both transports: `http://127.0.0.1:PORT`, or `https` over TLS.
    pub fn endpoint(&self) -> String {
        self.service.endpoint.clone()
    }

    /// Creates a bucket, or changes its settings.
    pub fn bucket(&self, name: &str, settings: Settings) {
        self.service.state().buckets.entry(name.to_owned()).or_default().settings = settings;
    }

    /// Removes a bucket with its objects.
    pub fn remove_bucket(&self, name: &str) {
        self.service.state().buckets.remove(name);
    }

    /// Names of all objects of a bucket.
    pub fn names(&self, bucket: &str) -> Vec<String> {
        self.service.state().buckets.get(bucket).map(|b| b.names()).unwrap_or_default()
    }

    /// Stores an object as the owner. Returns false if there is no such bucket.
    pub async fn put(&self, bucket: &str, name: &str, content: Bytes) -> bool {
        let Ok(content) = state::Content::of(content).await else { return false };
        let (attributes, conditions) = Default::default();
        self.service.state().insert(&StorageCaller::default(), bucket, name, content, attributes, conditions).is_ok()
    }

    /// Replaces the content of an object, and keeps its checksums. Returns false if there is no such object.
    pub fn damage(&self, bucket: &str, name: &str, content: Bytes) -> bool {
        self.service.state().buckets.get_mut(bucket).is_some_and(|b| b.damage(name, content))
    }

    /// Sets whether a second change of one object within a second is refused with 429. It is refused by default.
    pub fn limit_mutations(&self, limited: bool) {
        self.service.state().mutation_limit = limited;
    }

    /// Limits the pages of lists to fewer items than a client requests.
    pub fn limit_pages(&self, items: usize) {
        self.service.state().page_limit = items;
    }

    /// Sets the delay of every read and every write.
    pub fn delay(&self, read: Duration, write: Duration) {
        self.service.plan.delay(read, write);
    }

    /// Limits the rate at which each request's body is read, in bytes a second; 0: unlimited.
    pub fn drip(&self, rate: u64) {
        self.service.drip.store(rate, Ordering::Relaxed);
    }

    /// Adds a fault. The first rule that matches a request decides.
    pub fn fault(&self, fault: Fault) {
        self.service.plan.add(fault);
    }

    /// Adds a sequence of faults for the next requests of this operation whose object's name contains this.
    pub fn faults(&self, operation: Operation, name: &str, effects: &[Effect]) {
        effects.iter().for_each(|effect| self.fault(Fault::next(operation, *effect).named(name)));
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.service.plan.clear();
    }

    /// Takes the network down (open connections are reset, new ones too), or up again.
    pub fn outage(&self, down: bool) {
        self.down.send_replace(down);
    }

    /// Number of requests of each operation.
    pub fn counts(&self) -> BTreeMap<Operation, u64> {
        self.service.plan.counts()
    }

    /// Requests in order, up to the first 100,000.
    pub fn seen(&self) -> Vec<Seen> {
        self.service.plan.seen()
    }

    /// Number of connections so far.
    pub fn connections(&self) -> u64 {
        self.service.connections.load(Ordering::Relaxed)
    }

    /// Resets the counts, and forgets the requests so far.
    pub fn reset(&self) {
        self.service.plan.reset();
    }
}

/// File of the certificate that [`StorageDouble::start_tls`] uses, for clients that must trust it.
pub const CERTIFICATE_FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tls/cert.pem");

const CERTIFICATE: &[u8] = include_bytes!("../tls/cert.pem");
const KEY: &[u8] = include_bytes!("../tls/key.pem");

fn tls() -> std::io::Result<TlsAcceptor> {
    use rustls::pki_types::pem::PemObject;
    let certificate = rustls::pki_types::CertificateDer::from_pem_slice(CERTIFICATE).map_err(std::io::Error::other)?;
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(KEY).map_err(std::io::Error::other)?;
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(ring).with_safe_default_protocol_versions();
    let config = config.map_err(std::io::Error::other)?.with_no_client_auth();
    let mut config = config.with_single_cert(vec![certificate], key).map_err(std::io::Error::other)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config).into())
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    service: Arc<Service>,
    down: watch::Receiver<bool>,
    token: Option<Arc<str>>,
) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        service.connections.fetch_add(1, Ordering::Relaxed);
        if *down.borrow() {
            end_abruptly(&stream);
            continue;
        }
        connections.spawn(connection(stream, tls.clone(), service.clone(), down.clone(), token.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Makes the end of a connection a reset.
fn end_abruptly(socket: &impl std::os::fd::AsFd) {
    // On failure the peer sees an ordinary end, which is no answer either.
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    service: Arc<Service>,
    mut down: watch::Receiver<bool>,
    token: Option<Arc<str>>,
) {
    let Ok(socket) = stream.into_std() else { return };
    let Ok(copy) = socket.try_clone() else { return };
    let Ok(stream) = TcpStream::from_std(socket) else { return };
    // A reply must not wait for the peer's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    let wire = Arc::new(Wire::default());
    let serving = async {
        match tls {
            None => serve(stream, service, wire.clone(), token).await,
            Some(tls) => {
                if let Ok(stream) = tls.accept(stream).await {
                    serve(stream, service, wire.clone(), token).await;
                }
            }
        }
    };
    tokio::select! {
        () = serving => return,
        () = wire.reset.notified() => {}
        _ = down.wait_for(|down| *down) => {}
    }
    end_abruptly(&copy);
}

async fn serve<S>(stream: S, service: Arc<Service>, wire: Arc<Wire>, token: Option<Arc<str>>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer =
        hyper::service::service_fn(move |request| answer(request, service.clone(), wire.clone(), token.clone()));
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    // The end of a connection, even an error, concerns the client only.
    let _ = builder.serve_connection(TokioIo::new(stream), answer).await;
}

/// A future that is never ready.
pub(crate) async fn never() -> Infallible {
    std::future::pending().await
}

async fn answer(
    request: Request<Incoming>,
    service: Arc<Service>,
    wire: Arc<Wire>,
    token: Option<Arc<str>>,
) -> Result<Response<Body>, Infallible> {
    if wire.frozen.load(Ordering::Relaxed) {
        match never().await {}
    }
    let (parts, body) = request.into_parts();
    let body = match collected(body, service.drip.load(Ordering::Relaxed)).await {
        Ok(body) => body,
        Err(error) => return Ok(unreadable(error)),
    };
    let is_grpc =
        parts.headers.get(http::header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"application/grpc"));
    let caller = service.accounts.caller(&parts.headers, token.as_deref());
    Ok(match caller {
        Ok(caller) if is_grpc => grpc::answer(parts, body, service, wire, caller).await,
        Ok(caller) => json::answer(parts, body, service, wire, caller).await,
        Err(refusal) if is_grpc => grpc::refuse(&refusal),
        Err(refusal) => json::refuse(&refusal),
    })
}

/// Reads a request's body; with a rate (bytes a second), as slowly as over a narrow uplink.
async fn collected(body: Incoming, rate: u64) -> Result<Bytes, Broken> {
    let mut body = http_body_util::Limited::new(body, MAX_BODY);
    if rate == 0 {
        return Ok(body.collect().await?.to_bytes());
    }
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            tokio::time::sleep(Duration::from_secs_f64(data.len() as f64 / rate as f64)).await;
            all.extend_from_slice(&data);
        }
    }
    Ok(all.freeze())
}

fn unreadable(error: Broken) -> Response<Body> {
    json::refuse(&refusal::Refusal::invalid(format!("The request's body cannot be read: {error}")))
}

/// Runs the effect of a request with its fault and delay. `effect` gets the fault, as it implements some kinds itself.
pub(crate) async fn act<T, F, R>(
    service: &Service,
    wire: &Wire,
    caller: &StorageCaller,
    operation: Operation,
    name: &str,
    effect: F,
) -> Result<T, refusal::Refusal>
where
    T: Send + 'static,
    F: FnOnce(Option<Effect>) -> R,
    R: Future<Output = Result<T, refusal::Refusal>> + Send + 'static,
{
    let (fault, delay) = service.plan.meet(operation, name, caller.email());
    match fault {
        Some(Effect::Fail(status)) => return Err(refusal::Refusal::fault(status)),
        Some(Effect::Hang) => match never().await {},
        Some(Effect::Freeze) => {
            wire.frozen.store(true, Ordering::Relaxed);
            match never().await {}
        }
        Some(Effect::Reset) => {
            wire.reset.notify_one();
            match never().await {}
        }
        _ => {}
    }
    tokio::time::sleep(delay).await;
    let effect = effect(fault);
    let done = if let Some(Effect::Late(after)) = fault {
        let late = async move {
            tokio::time::sleep(after).await;
            effect.await
        };
        tokio::spawn(late).await.unwrap_or_else(|_| Err(refusal::Refusal::fault(500)))
    } else {
        effect.await
    };
    match fault {
        Some(Effect::FailAfter(status)) => Err(refusal::Refusal::fault(status)),
        Some(Effect::Lost) => match never().await {},
        Some(Effect::ResetAfter) => {
            wire.reset.notify_one();
            match never().await {}
        }
        _ => done,
    }
}
