//! A mail server on loopback. It takes mail over TLS by STARTTLS, or without, and refuses lines that RFC 5321 does not allow.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;

/// RFC 5321, 4.5.3.1.6: octets of a text line with its end.
const LINE_MAX: usize = 1000;
/// The same, 4.5.3.1.4: octets of a command line with its end.
const COMMAND_MAX: usize = 512;

/// One mail.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mail {
    pub(crate) to: Vec<String>,
    pub(crate) text: String,
    /// True if it came over TLS.
    pub(crate) secured: bool,
    /// User and password.
    pub(crate) signed_in: String,
}

impl Mail {
    /// Returns a header field, unfolded.
    pub(crate) fn header(&self, name: &str) -> String {
        let head = self.text.split("\r\n\r\n").next().unwrap_or_default().replace("\r\n ", " ");
        let found = head.split("\r\n").find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned));
        found.unwrap_or_default()
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

#[derive(Clone, Default)]
pub(crate) struct MailServer {
    got: Arc<Mutex<Vec<Mail>>>,
    /// Reply to RCPT from now on; empty for success.
    reply: Arc<Mutex<String>>,
    tls: Option<TlsAcceptor>,
}

impl MailServer {
    /// Offers STARTTLS, with the certificate of the storage double.
    pub(crate) fn with_tls(mut self) -> MailServer {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let file = std::path::Path::new(tidelock_storage_double::CERTIFICATE_FILE);
        let certificate = CertificateDer::from_pem_file(file).unwrap();
        let key = PrivateKeyDer::from_pem_file(file.with_file_name("key.pem")).unwrap();
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(ring).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        self.tls = Some(Arc::new(config).into());
        self
    }

    pub(crate) fn replies(&self, reply: &str) {
        reply.clone_into(&mut self.reply.lock().unwrap());
    }

    pub(crate) fn got(&self) -> Vec<Mail> {
        self.got.lock().unwrap().clone()
    }

    pub(crate) fn serve(&self, listener: std::net::TcpListener) {
        listener.set_nonblocking(true).unwrap();
        let (listener, server) = (tokio::net::TcpListener::from_std(listener).unwrap(), self.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move { server.session(Box::new(stream)).await });
            }
        });
    }

    async fn session(self, stream: Box<dyn Stream>) -> Option<()> {
        let mut stream = BufReader::new(stream);
        say(&mut stream, "220 mail.test ESMTP").await?;
        let mut mail = Mail::default();
        loop {
            let line = line(&mut stream, COMMAND_MAX).await?;
            let verb = line.split(' ').next().unwrap_or_default().to_ascii_uppercase();
            match verb.as_str() {
                "EHLO" if self.tls.is_some() && !mail.secured => {
                    say(&mut stream, "250-mail.test\r\n250 STARTTLS").await?
                }
                "EHLO" => say(&mut stream, "250-mail.test\r\n250 AUTH PLAIN").await?,
                "STARTTLS" => {
                    say(&mut stream, "220 go ahead").await?;
                    let secured = self.tls.clone()?.accept(stream.into_inner()).await.ok()?;
                    stream = BufReader::new(Box::new(secured));
                    mail.secured = true;
                }
                "AUTH" => {
                    let given = BASE64_STANDARD.decode(line.rsplit(' ').next()?).ok()?;
                    mail.signed_in = String::from_utf8(given).ok()?.replace('\0', ":");
                    say(&mut stream, "235 welcome").await?;
                }
                "RCPT" => {
                    let reply = self.reply.lock().unwrap().clone();
                    mail.to.push(line.clone());
                    say(&mut stream, if reply.is_empty() { "250 ok" } else { &reply }).await?;
                }
                "DATA" => {
                    say(&mut stream, "354 go ahead").await?;
                    mail.text = text(&mut stream).await?;
                    self.got.lock().unwrap().push(mail.clone());
                    say(&mut stream, "250 taken").await?;
                }
                "QUIT" => return say(&mut stream, "221 bye").await,
                "MAIL" | "RSET" | "NOOP" => say(&mut stream, "250 ok").await?,
                _ => say(&mut stream, "502 not here").await?,
            }
        }
    }
}

async fn say(stream: &mut BufReader<Box<dyn Stream>>, reply: &str) -> Option<()> {
    stream.write_all(format!("{reply}\r\n").as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

/// Reads a line; none if it is too long, or does not end as lines of mail do.
async fn line(stream: &mut BufReader<Box<dyn Stream>>, most: usize) -> Option<String> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line).await.ok()?;
    let text = line.strip_suffix(b"\r\n")?;
    let is_sound = line.len() <= most && text.is_ascii() && !text.contains(&b'\r');
    is_sound.then(|| String::from_utf8_lossy(text).into_owned())
}

/// Reads a mail up to the line with the dot.
async fn text(stream: &mut BufReader<Box<dyn Stream>>) -> Option<String> {
    let mut lines = Vec::new();
    loop {
        let line = line(stream, LINE_MAX).await?;
        if line == "." {
            return Some(lines.join("\r\n"));
        }
        lines.push(line.strip_prefix('.').unwrap_or(&line).to_owned());
    }
}
