//! Sign-in at an issuer of OpenID Connect. Discovery and keys are fetched for the first person, so that the start does not depend on the
//! issuer.

use super::way::{SignInAttempt, SignInError, SignInWay};
use crate::web::access::google_tokens::{self, FRESH};
use crate::web::access::people::Person;
use crate::web::pages::shown;
use anyhow::{Context, Result, anyhow, ensure};
use async_trait::async_trait;
use futures::future::BoxFuture;
use openidconnect::core::{
    CoreAuthDisplay, CoreAuthPrompt, CoreClientAuthMethod, CoreErrorResponseType, CoreGenderClaim, CoreJsonWebKey,
    CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm, CoreProviderMetadata, CoreResponseType,
    CoreRevocableToken, CoreRevocationErrorResponse, CoreTokenIntrospectionResponse, CoreTokenType,
};
use openidconnect::{
    AccessToken, AdditionalClaims, AsyncHttpClient, AuthType, AuthenticationFlow, AuthorizationCode,
    ClaimsVerificationError, Client, ClientId, ClientSecret, CsrfToken, EmptyExtraTokenFields, EndpointMaybeSet,
    EndpointNotSet, EndpointSet, HttpRequest, HttpResponse, IdTokenClaims, IdTokenFields, IdTokenVerifier, IssuerUrl,
    Nonce, OAuth2TokenResponse, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RequestTokenError, Scope,
    SignatureVerificationError, StandardErrorResponse, StandardTokenResponse, TokenResponse, UserInfoClaims,
};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex as AsyncMutex, OnceCell};
use url::Url;

/// Algorithms of ID tokens: those whose keys the issuer publishes. A shared secret (`HS256`) and `none` are not among them.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];
/// Shortest interval between two discoveries, also for unknown keys.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Longest email, in bytes (RFC 5321, section 4.5.3.1.3, without its brackets).
const MAX_EMAIL: usize = 254;

/// Source of a person's domain, which rules can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PersonDomain {
    /// None: rules name emails.
    Unknown,
    /// The claim `hd`, which Google sets for accounts of an organization.
    Hosted,
    /// The end of a verified email: the operator administers the issuer's accounts.
    EndOfEmail,
}

/// Issuer, and the server as its client.
pub(crate) struct OpenIdConnect {
    issuer: IssuerUrl,
    client_id: ClientId,
    client_secret: SecretString,
    domain: PersonDomain,
    title: String,
    realm: String,
    known: Mutex<KnownProvider>,
    /// Allows one discovery at a time.
    asking: AsyncMutex<()>,
    http: OnceCell<reqwest::Client>,
}

/// Result of the last discovery, with its keys.
#[derive(Default)]
struct KnownProvider {
    metadata: Option<(Arc<CoreProviderMetadata>, Instant)>,
    asked: Option<Instant>,
}

/// Claims besides those of the standard.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct MoreClaims {
    /// Domain of a Google Workspace account.
    hd: Value,
    /// Entra's statement that the tenant owns the email's domain, in the place of `email_verified`.
    xms_edov: Value,
}

impl AdditionalClaims for MoreClaims {}

type ProviderTokenFields = IdTokenFields<
    MoreClaims,
    EmptyExtraTokenFields,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJwsSigningAlgorithm,
>;
type ProviderClient = Client<
    MoreClaims,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    StandardTokenResponse<ProviderTokenFields, CoreTokenType>,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;
type ProviderUserInfo = UserInfoClaims<MoreClaims, CoreGenderClaim>;

/// Failure of a request to the issuer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ProviderCallError(String);

/// An email, as a token or the user info endpoint states it.
struct StatedEmail {
    email: Option<String>,
    verified: bool,
}

impl OpenIdConnect {
    /// Makes no request.
    pub(crate) fn new(
        issuer: &str,
        client_id: &str,
        client_secret: SecretString,
        domain: PersonDomain,
    ) -> Result<OpenIdConnect> {
        let issuer = IssuerUrl::new(issuer.to_owned()).context("oidc-issuer is no address")?;
        Ok(OpenIdConnect {
            title: issuer.url().host_str().unwrap_or_default().to_owned(),
            realm: format!("{} {client_id}", issuer.as_str()),
            issuer,
            client_id: ClientId::new(client_id.to_owned()),
            client_secret,
            domain,
            known: Mutex::default(),
            asking: AsyncMutex::default(),
            http: OnceCell::new(),
        })
    }

    /// Returns endpoints and keys that are not older than `max_age`; older ones if the issuer was asked a moment ago, or does not answer.
    async fn provider(&self, max_age: Duration) -> Result<Arc<CoreProviderMetadata>> {
        let cached = |max_age: Duration| {
            let known = google_tokens::lock(&self.known);
            known.metadata.as_ref().filter(|(_, at)| at.elapsed() < max_age).map(|(metadata, _)| Arc::clone(metadata))
        };
        if let Some(metadata) = cached(max_age) {
            return Ok(metadata);
        }
        let _one_at_a_time = self.asking.lock().await;
        if let Some(metadata) = cached(max_age) {
            return Ok(metadata);
        }
        let due = {
            let mut known = google_tokens::lock(&self.known);
            let due = known.asked.is_none_or(|asked| asked.elapsed() >= ASK_AGAIN);
            if due {
                known.asked = Some(Instant::now());
            }
            due
        };
        if due {
            match CoreProviderMetadata::discover_async(self.issuer.clone(), self).await {
                Ok(metadata) => {
                    let metadata = Arc::new(metadata);
                    google_tokens::lock(&self.known).metadata = Some((Arc::clone(&metadata), Instant::now()));
                    return Ok(metadata);
                }
                Err(error) => {
                    let error = anyhow::Error::new(error);
                    tracing::warn!(
                        "the configuration of {} (oidc-issuer) could not be loaded: {error:#}",
                        *self.issuer
                    );
                }
            }
        }
        cached(Duration::MAX).with_context(|| format!("the configuration of {} is not known", *self.issuer))
    }

    /// Returns the server as a client of the issuer.
    fn client(&self, metadata: &CoreProviderMetadata, callback: &str) -> Result<ProviderClient> {
        let secret = ClientSecret::new(self.client_secret.expose_secret().to_owned());
        // Without a statement of the issuer, basic auth is what it takes (OpenID Connect Discovery 1.0, section 3).
        let is_only_in_body = metadata.token_endpoint_auth_methods_supported().is_some_and(|methods| {
            methods.contains(&CoreClientAuthMethod::ClientSecretPost)
                && !methods.contains(&CoreClientAuthMethod::ClientSecretBasic)
        });
        let auth = if is_only_in_body { AuthType::RequestBody } else { AuthType::BasicAuth };
        let client = ProviderClient::from_provider_metadata(metadata.clone(), self.client_id.clone(), Some(secret));
        Ok(client.set_auth_type(auth).set_redirect_uri(RedirectUrl::new(callback.to_owned())?))
    }

    /// Sends a request of the library, with limits on where it goes, how long it takes and how much comes back.
    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, ProviderCallError> {
        let exchange = async {
            let request = reqwest::Request::try_from(request)?;
            self.check_address(request.url())?;
            let client = self.http.get_or_try_init(async || google_tokens::client()).await?;
            let response = client.execute(request).await?;
            let (status, headers) = (response.status(), response.headers().clone());
            let mut answer = http::Response::new(google_tokens::bounded(response).await?);
            (*answer.status_mut(), *answer.headers_mut()) = (status, headers);
            anyhow::Ok(answer)
        };
        exchange.await.map_err(|error| ProviderCallError(format!("{error:#}")))
    }

    /// Refuses an endpoint without https, unless the issuer itself has none: it is on this machine then.
    fn check_address(&self, url: &Url) -> Result<()> {
        let is_sound = url.scheme() == "https" || url.origin() == self.issuer.url().origin();
        ensure!(is_sound, "{url} does not begin with https://");
        Ok(())
    }

    /// Returns the claims of an ID token that is for this attempt; loads keys again if its key is unknown.
    async fn believe<'a>(
        &self,
        answer: &'a StandardTokenResponse<ProviderTokenFields, CoreTokenType>,
        metadata: &CoreProviderMetadata,
        nonce: &Nonce,
    ) -> Result<&'a IdTokenClaims<MoreClaims, CoreGenderClaim>, SignInError> {
        let not_proven = |why: String| SignInError::NotProven(format!("its ID token was not accepted: {why}"));
        let token = answer.id_token().ok_or_else(|| not_proven("there is none".to_owned()))?;
        let verifier = |metadata: &CoreProviderMetadata| {
            let keys = metadata.jwks().clone();
            IdTokenVerifier::new_public_client(self.client_id.clone(), self.issuer.clone(), keys)
                .set_allowed_algs(ALGORITHMS)
        };
        let unknown = ClaimsVerificationError::SignatureVerification(SignatureVerificationError::NoMatchingKey);
        let claims = match token.claims(&verifier(metadata), nonce) {
            Err(error) if error == unknown => {
                let newer = self.provider(Duration::ZERO).await.map_err(SignInError::Unavailable)?;
                token.claims(&verifier(&newer), nonce)
            }
            claims => claims,
        };
        let claims = claims.map_err(|error| {
            // The cause is the issuer's, or an attacker's: people get the kind of mistake, and the log all of it.
            tracing::warn!("an ID token of {} was not accepted: {:#}", *self.issuer, anyhow!(error.clone()));
            not_proven(kind_of_mistake(&error).to_owned())
        })?;
        // Section 3.1.3.7 of OpenID Connect Core 1.0; the library leaves it out.
        match claims.authorized_party() {
            Some(party) if *party != self.client_id => Err(not_proven("another client asked for it".to_owned())),
            _ => Ok(claims),
        }
    }

    /// Returns the email of a person: from the ID token, or from the user info endpoint if the token has none that is verified. Issuers
    /// need not repeat claims of a scope in a token (OpenID Connect Core 1.0, section 5.4).
    async fn email(
        &self,
        claims: &IdTokenClaims<MoreClaims, CoreGenderClaim>,
        client: &ProviderClient,
        token: &AccessToken,
    ) -> Result<StatedEmail, SignInError> {
        let more = claims.additional_claims();
        let in_token = StatedEmail {
            email: claims.email().map(|email| email.as_str().to_owned()),
            verified: claims.email_verified() == Some(true) || is_true(&more.xms_edov),
        };
        if client.user_info_url().is_none() || in_token.email.is_some() && in_token.verified {
            return Ok(in_token);
        }
        let unavailable = |error: anyhow::Error| SignInError::Unavailable(error.context("the user info endpoint"));
        let request = client.user_info(token.clone(), Some(claims.subject().clone()));
        let request = request.map_err(|error| unavailable(anyhow::Error::new(error)))?;
        let info: ProviderUserInfo =
            request.request_async(self).await.map_err(|error| unavailable(anyhow!("{error}")))?;
        Ok(StatedEmail {
            email: info.email().map(|email| email.as_str().to_owned()),
            verified: info.email_verified() == Some(true),
        })
    }

    fn person(&self, stated: StatedEmail, hosted: &Value) -> Result<Person, SignInError> {
        let not_proven = |why: &str| Err(SignInError::NotProven(why.to_owned()));
        let Some(email) = stated.email else { return not_proven("it does not say what your email address is") };
        let email = email.to_lowercase();
        let is_sound = email.len() <= MAX_EMAIL && !email.contains(char::is_whitespace) && shown(&email) == email;
        let domain = match email.split_once('@') {
            Some((user, domain)) if is_sound && !user.is_empty() && !domain.is_empty() && !domain.contains('@') => {
                domain.to_owned()
            }
            _ => return not_proven("what it says is no email address"),
        };
        if !stated.verified {
            return not_proven("it does not say that your email address is verified (docs/sign-in.md)");
        }
        let domain = match self.domain {
            PersonDomain::Unknown => None,
            PersonDomain::Hosted => hosted.as_str().map(str::to_lowercase),
            PersonDomain::EndOfEmail => Some(domain),
        };
        Ok(Person { name: email, domain, groups: Vec::new() })
    }
}

impl<'c> AsyncHttpClient<'c> for OpenIdConnect {
    type Error = ProviderCallError;
    type Future = BoxFuture<'c, Result<HttpResponse, ProviderCallError>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}

#[async_trait]
impl SignInWay for OpenIdConnect {
    fn word(&self) -> &'static str {
        "oidc"
    }

    fn title(&self) -> &str {
        &self.title
    }

    fn realm(&self) -> &str {
        &self.realm
    }

    fn issuer(&self) -> Option<&str> {
        Some(self.issuer.as_str())
    }

    fn client_secret(&self) -> &SecretString {
        &self.client_secret
    }

    async fn begin(&self, attempt: &SignInAttempt, callback: &str) -> Result<Url> {
        let metadata = self.provider(FRESH).await?;
        self.check_address(metadata.authorization_endpoint().url())?;
        let (state, nonce) = (attempt.state.clone(), attempt.nonce.clone());
        let flow = AuthenticationFlow::<CoreResponseType>::AuthorizationCode;
        let client = self.client(&metadata, callback)?;
        let request = client.authorize_url(flow, || CsrfToken::new(state), || Nonce::new(nonce));
        let verifier = PkceCodeVerifier::new(attempt.verifier.clone());
        let challenge = PkceCodeChallenge::from_code_verifier_sha256(&verifier);
        Ok(request.add_scope(Scope::new("email".to_owned())).set_pkce_challenge(challenge).url().0)
    }

    async fn finish(&self, attempt: &SignInAttempt, callback: &str, code: &str) -> Result<Person, SignInError> {
        let unavailable = SignInError::Unavailable;
        let metadata = self.provider(FRESH).await.map_err(unavailable)?;
        let client = self.client(&metadata, callback).map_err(unavailable)?;
        let request = client.exchange_code(AuthorizationCode::new(code.to_owned()));
        let request = request.map_err(|error| unavailable(anyhow::Error::new(error)))?;
        let answer = request
            .set_pkce_verifier(PkceCodeVerifier::new(attempt.verifier.clone()))
            .request_async(self)
            .await
            .map_err(refused_exchange)?;
        let claims = self.believe(&answer, &metadata, &Nonce::new(attempt.nonce.clone())).await?;
        let stated = self.email(claims, &client, answer.access_token()).await?;
        self.person(stated, &claims.additional_claims().hd)
    }
}

/// Returns the reason for which a code was not exchanged. An answer that cannot be read is not repeated: it may have tokens in it.
fn refused_exchange(
    error: RequestTokenError<ProviderCallError, StandardErrorResponse<CoreErrorResponseType>>,
) -> SignInError {
    match error {
        RequestTokenError::ServerResponse(refusal) if *refusal.error() == CoreErrorResponseType::InvalidGrant => {
            SignInError::NotProven("it did not accept the code of this sign-in: a code is good for one use".to_owned())
        }
        RequestTokenError::ServerResponse(refusal) => {
            SignInError::Unavailable(anyhow!("the token endpoint: {}", shown(&refusal.to_string())))
        }
        RequestTokenError::Request(error) => SignInError::Unavailable(anyhow::Error::new(error)),
        error => SignInError::Unavailable(anyhow!("the token endpoint: {error}")),
    }
}

/// Returns the kind of a mistake in an ID token, without text of the token.
fn kind_of_mistake(error: &ClaimsVerificationError) -> &'static str {
    match error {
        ClaimsVerificationError::Expired(_) => "it has expired",
        ClaimsVerificationError::InvalidAudience(_) => "it is for another client",
        ClaimsVerificationError::InvalidIssuer(_) => "it is of another issuer",
        ClaimsVerificationError::InvalidNonce(_) => "it is for another sign-in",
        ClaimsVerificationError::SignatureVerification(_) => "its signature is not one of the issuer",
        _ => "it cannot be used",
    }
}

/// Returns true for the forms in which Entra writes true.
fn is_true(value: &Value) -> bool {
    matches!(value, Value::Bool(true)) || *value == 1 || matches!(value.as_str(), Some("1" | "true" | "True"))
}

#[cfg(test)]
mod tests;
