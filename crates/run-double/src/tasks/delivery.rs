//! Deliveries: one request after another, until one is answered with 2xx.

use super::creation::Target;
use super::token::claims;
use super::{Delivery, TasksService};
use crate::server::Broken;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// First and longest pause between attempts. Each is twice the last one. The service's first one is 0.1 s too, its longest 3600 s
/// (`RetryConfig`, defaults of `gcloud tasks queues create`): no test waits for an hour.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Largest answer that is read, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// Who delivers. The headers differ (docs.cloud.google.com/tasks/docs/creating-http-target-tasks, "Writing a task request handler";
/// `HttpTarget.headers` of the API of Cloud Scheduler).
#[derive(Debug, Clone, Copy)]
pub(crate) enum Courier {
    Tasks,
    Scheduler,
}

/// What is delivered.
#[derive(Debug, Clone)]
pub(crate) struct Parcel {
    pub(crate) courier: Courier,
    /// Full name.
    pub(crate) name: String,
    pub(crate) scheduled: Timestamp,
    pub(crate) target: Target,
}

/// What has been tried.
#[derive(Debug, Clone, Copy, Default)]
struct Tried {
    times: u32,
    answers: u32,
}

/// Delivers at its time, and again until it is taken.
pub(crate) async fn deliver(service: Arc<TasksService>, parcel: Parcel) {
    // A time in the past is now.
    let wait = Duration::try_from(parcel.scheduled.duration_since(Timestamp::now())).unwrap_or_default();
    tokio::time::sleep(wait).await;
    let (mut tried, mut pause) = (Tried::default(), FIRST_PAUSE);
    loop {
        let mut number = 0;
        service.seen.send_modify(|seen| {
            number = seen.deliveries.len();
            let begun = Timestamp::now();
            let (task, attempt) = (parcel.name.clone(), tried.times);
            seen.deliveries.push(Delivery { task, attempt, begun, ended: None, status: None });
        });
        let deadline = service.state().longest.map_or(parcel.target.deadline, |it| it.min(parcel.target.deadline));
        let answer = tokio::time::timeout(deadline, attempt(&service, &parcel, tried)).await;
        let status = answer.ok().and_then(Result::ok);
        service.seen.send_modify(|seen| {
            if let Some(delivery) = seen.deliveries.get_mut(number) {
                (delivery.ended, delivery.status) = (Some(Timestamp::now()), status);
            }
        });
        if status.is_some_and(|status| (200..300).contains(&status)) {
            return;
        }
        tried = Tried { times: tried.times + 1, answers: tried.answers + u32::from(status.is_some()) };
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Sends the request once, and returns the status of the answer when the whole of it is there.
async fn attempt(service: &TasksService, parcel: &Parcel, tried: Tried) -> Result<u16, Broken> {
    let request = request(service, parcel, tried)?;
    let url = &parcel.target.url;
    if url.scheme() != "http" {
        return Err("the double has no TLS".into());
    }
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
    // In an address, but not for a socket, IPv6 has brackets.
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async move {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        Limited::new(response.into_body(), MAX_ANSWER).collect().await?;
        Ok::<_, Broken>(status)
    };
    // The connection moves the bytes of the exchange, and ends with it. Its own error is that of the exchange.
    let (status, _) = tokio::join!(exchange, connection);
    status
}

fn request(service: &TasksService, parcel: &Parcel, tried: Tried) -> Result<Request<Empty<Bytes>>, Broken> {
    let Parcel { courier, name, scheduled, target } = parcel;
    let host = match target.url.port() {
        Some(port) => format!("{}:{port}", target.url.host_str().unwrap_or_default()),
        None => target.url.host_str().unwrap_or_default().to_owned(),
    };
    let path = &target.url[url::Position::BeforePath..url::Position::AfterQuery];
    let mut request = Request::builder().method(&target.method).uri(path).body(Empty::new())?;
    let headers = request.headers_mut();
    let mut set = |name: HeaderName, value: &str| HeaderValue::from_str(value).map(|value| headers.insert(name, value));
    set(header::HOST, &host)?;
    set(header::CONTENT_LENGTH, "0")?;
    if let Some((account, audience)) = &target.token {
        let token = service.signer.sign(&claims(account, audience), false)?;
        set(header::AUTHORIZATION, &format!("Bearer {token}"))?;
    }
    let short = name.rsplit('/').next().unwrap_or_default();
    match courier {
        Courier::Tasks => {
            let queue = name.split('/').nth(5).unwrap_or_default();
            set(header::USER_AGENT, "Google-Cloud-Tasks")?;
            set(HeaderName::from_static("x-cloudtasks-queuename"), queue)?;
            set(HeaderName::from_static("x-cloudtasks-taskname"), short)?;
            set(HeaderName::from_static("x-cloudtasks-taskretrycount"), &tried.times.to_string())?;
            set(HeaderName::from_static("x-cloudtasks-taskexecutioncount"), &tried.answers.to_string())?;
            set(HeaderName::from_static("x-cloudtasks-tasketa"), &scheduled.as_second().to_string())?;
        }
        Courier::Scheduler => {
            set(header::USER_AGENT, "Google-Cloud-Scheduler")?;
            set(HeaderName::from_static("x-cloudscheduler"), "true")?;
            set(HeaderName::from_static("x-cloudscheduler-jobname"), short)?;
            set(HeaderName::from_static("x-cloudscheduler-scheduletime"), &scheduled.to_string())?;
        }
    }
    Ok(request)
}
