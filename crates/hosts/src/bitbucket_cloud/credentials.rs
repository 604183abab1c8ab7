//! Ways in which our account authenticates, by the settings' user names
//! (support.atlassian.com/bitbucket-cloud/docs/using-api-tokens, support.atlassian.com/bitbucket-cloud/docs/access-tokens).

/// User name for git with an access token, and the setting that says that the token is one.
const ACCESS_TOKEN_USER: &str = "x-token-auth";
/// User name for git with an API token.
const API_TOKEN_USER: &str = "x-bitbucket-api-token-auth";

/// Owner of the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BitbucketCloudCredentials {
    /// API token of a person's account, with the account's e-mail address.
    ApiToken {
        /// E-mail address.
        email: String,
    },
    /// Access token of a repository, a project or a workspace.
    AccessToken,
    /// Token of an account with this user name.
    Named(String),
}

impl BitbucketCloudCredentials {
    /// Reads the settings `--bitbucket-user` and `--bitbucket-api-user`; the second one is empty if it is not set.
    pub fn of_settings(user: &str, api_user: &str) -> BitbucketCloudCredentials {
        if user == ACCESS_TOKEN_USER {
            return BitbucketCloudCredentials::AccessToken;
        }
        let email = Some(api_user).filter(|name| !name.is_empty()).or(Some(user).filter(|name| name.contains('@')));
        match email {
            Some(email) => BitbucketCloudCredentials::ApiToken { email: email.to_owned() },
            None => BitbucketCloudCredentials::Named(user.to_owned()),
        }
    }

    /// User name of basic auth for the API; absent if the token is a bearer token.
    pub(super) fn api_user(&self) -> Option<&str> {
        match self {
            BitbucketCloudCredentials::ApiToken { email } => Some(email),
            BitbucketCloudCredentials::AccessToken => None,
            BitbucketCloudCredentials::Named(user) => Some(user),
        }
    }

    /// User name for git.
    pub fn git_user(&self) -> &str {
        match self {
            BitbucketCloudCredentials::ApiToken { .. } => API_TOKEN_USER,
            BitbucketCloudCredentials::AccessToken => ACCESS_TOKEN_USER,
            BitbucketCloudCredentials::Named(user) => user,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_tell_whose_the_token_is() {
        for (user, api_user, api, git) in [
            ("ann@example.com", "", Some("ann@example.com"), API_TOKEN_USER),
            ("ann", "ann@example.com", Some("ann@example.com"), API_TOKEN_USER),
            ("x-token-auth", "", None, "x-token-auth"),
            ("x-token-auth", "ann@example.com", None, "x-token-auth"),
            ("ann", "", Some("ann"), "ann"),
        ] {
            let credentials = BitbucketCloudCredentials::of_settings(user, api_user);
            assert_eq!((credentials.api_user(), credentials.git_user()), (api, git), "{user} {api_user}");
        }
    }
}
