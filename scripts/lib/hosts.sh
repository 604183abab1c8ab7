# shellcheck shell=bash
# The hosts that the server serves, and the secrets of each: GitHub by an account or an App, Azure DevOps, GitLab, Gitea, both Bitbuckets. A value
# goes by standard input or a descriptor; checks ask the host whose it is.
# shellcheck disable=SC2154,SC2034 # variables of scripts/deploy

with_github() { [ -n "$gh_user$gh_app_id" ]; }

# secret_of KEY: the name in Secret Manager; keys are those of the module's variable secrets.
secret_of() { printf '%s-%s' "$name" "${1//_/-}"; }

# The keys of the hosts that are served.
secret_keys() {
    [ -z "$gh_user" ] || echo gh_token
    [ -z "$gh_app_id" ] || echo gh_app_key
    if with_github; then echo gh_webhook_secret; fi
    [ -z "$azuredevops_user" ] || printf 'azuredevops_token\nazuredevops_webhook_password\n'
    [ -z "$gitlab_user" ] || printf 'gitlab_token\ngitlab_webhook_secret\n'
    [ -z "$gitea_user" ] || printf 'gitea_token\ngitea_webhook_secret\n'
    [ -z "$bitbucket_user" ] || printf 'bitbucket_token\nbitbucket_webhook_secret\n'
    [ -z "$bitbucket_data_center_user" ] || printf 'bitbucket_data_center_token\nbitbucket_data_center_webhook_secret\n'
}

check_hosts() {
    if [ -n "$gh_user" ] && [ -n "$gh_app_id" ]; then fault "--gh-user and --gh-app-id are both given" "the server is an account or an App: leave one out"; fi
    [ -z "$gh_user" ] || matches "$gh_user" '^[A-Za-z0-9-]+(\[bot\])?$' || fault "$gh_user is no login" "--gh-user without @"
    [ -z "$gh_app_id" ] || matches "$gh_app_id" '^[1-9][0-9]*$' || fault "--gh-app-id $gh_app_id is no number" "the App ID, from the App's page of settings"
    [ -z "$gh_app_installation_id" ] || matches "$gh_app_installation_id" '^[1-9][0-9]*$' || fault "--gh-app-installation-id $gh_app_installation_id is no number" "the number at the end of the installation's address"
    matches "$gh_hostname" '^([a-z0-9-]+\.)+[a-z]{2,}(:[0-9]+)?$' || fault "$gh_hostname is no host name" "--gh-hostname without https://, in lower case"
    matches "$azuredevops_hostname" '^[A-Za-z0-9.-]+(:[0-9]+)?(/[^ ]+)?$' || fault "$azuredevops_hostname is no host name" "--azuredevops-hostname without https://, such as tfs.example.com/tfs"
    matches "$gitlab_hostname" '^[A-Za-z0-9.-]+(:[0-9]+)?(/[^ ]+)?$' || fault "$gitlab_hostname is no host name" "--gitlab-hostname without https://, such as git.example.com/gitlab"
    matches "$gitea_base_url" '^https://[A-Za-z0-9.-]+(:[0-9]+)?(/[^ ]*)?$' || fault "$gitea_base_url is no address of an instance" "--gitea-base-url with https://, such as https://git.example.com/gitea"
    [ -z "$bitbucket_user" ] || matches "$bitbucket_user" '^(x-token-auth|[^][:space:]":\\@]+@[^][:space:]":\\@]+)$' || fault "$bitbucket_user is no e-mail address" "--bitbucket-user with the address of the account, or x-token-auth for an access token"
    if [ -n "$bitbucket_data_center_user" ]; then
        matches "$bitbucket_data_center_user" '^[^][:space:]":\\]+$' || fault "$bitbucket_data_center_user is no user name" "--bitbucket-data-center-user with the account's user name, or x-token-auth for the token of a project or repository"
        matches "$bitbucket_data_center_base_url" '^https://[A-Za-z0-9.-]+(:[0-9]+)?(/[^ ]*)?$' || fault "${bitbucket_data_center_base_url:-nothing} is no address of Bitbucket Data Center" "--bitbucket-data-center-base-url with https://, such as https://git.example.com/bitbucket"
    fi
    if [ -n "$webhook" ] && [ -z "$gh_user" ]; then
        fault "--register-webhook adds webhooks for an account of GitHub only: an App has its own webhook, Azure DevOps has service hooks, and those of GitLab, Gitea and both Bitbuckets are added by hand" "leave it out; what to set is shown at the end"
    fi
}

# sources: the addresses that deliveries come from. Those of another host than github.com, gitlab.com, bitbucket.org and dev.azure.com, and of
# every Gitea and Bitbucket Data Center, are known to its operator only: Cloud Armor and server would refuse them.
check_sources() {
    local source part unknown=() all=()
    for source in ${webhook_sources[@]+"${webhook_sources[@]}"}; do
        IFS=, read -r -a part <<<"$source"
        all+=("${part[@]}")
    done
    sources=(${all[@]+"${all[@]}"})
    if [ ${#sources[@]} -eq 0 ]; then
        if with_github; then sources+=(github); [ "$gh_hostname" = github.com ] || unknown+=("$gh_hostname"); fi
        if [ -n "$azuredevops_user" ]; then sources+=(azuredevops); [ "$azuredevops_hostname" = dev.azure.com ] || unknown+=("$azuredevops_hostname"); fi
        if [ -n "$gitlab_user" ]; then sources+=(gitlab); [ "$gitlab_hostname" = gitlab.com ] || unknown+=("$gitlab_hostname"); fi
        [ -z "$bitbucket_user" ] || sources+=(bitbucket)
        [ -z "$gitea_user" ] || unknown+=("$gitea_base_url")
        [ -z "$bitbucket_data_center_user" ] || unknown+=("$bitbucket_data_center_base_url")
        for source in ${unknown[@]+"${unknown[@]}"}; do
            fault "--webhook-source is missing: the published addresses are not those of $source" "--webhook-source with the addresses that $source sends deliveries from, such as 198.51.100.7/32"
        done
    fi
    for source in ${sources[@]+"${sources[@]}"}; do
        matches "$source" '^(github|gitlab|bitbucket|azuredevops|[0-9]{1,3}(\.[0-9]{1,3}){3}/[0-9]{1,2}|[0-9a-fA-F:]+:[0-9a-fA-F:]*/[0-9]{1,3})$' \
            || fault "--webhook-source $source is no range" "such as 198.51.100.0/24, 198.51.100.7/32, 2001:db8::/32, github, gitlab, bitbucket or azuredevops"
    done
}

github_api() {
    case $gh_hostname in
        github.com) printf 'https://api.github.com' ;;
        *.ghe.com) printf 'https://api.%s' "$gh_hostname" ;;
        *) printf 'https://%s/api/v3' "$gh_hostname" ;;
    esac
}

# github TOKEN PATH CURL-FLAGS…: the token goes by a file descriptor, not by an argument.
github() {
    local token=$1 path=$2
    shift 2
    curl --silent --show-error --fail --config <(printf 'header = "Authorization: Bearer %s"\n' "$token") \
        --header 'Accept: application/vnd.github+json' "$@" "$(github_api)$path"
}

# read_value FILE KEY QUESTION: value, from a file, standard input (-) or the terminal.
read_value() {
    if [ "$1" = - ]; then
        value=$(tr -d '\r')
    elif [ -n "$1" ]; then
        value=$(tr -d '\r' < "$1")
    elif [ -n "$3" ] && ! has_version "$(secret_of "$2")" && [ -t 0 ]; then
        read -r -s -p "   $3 (not shown): " value
        printf '\n'
    fi
    case $2 in gh_app_key) ;; *) value=${value//$'\n'/} ;; esac
}

# keep_given KEY FILE FLAG WORD QUESTION CHECK: a secret that the host gave. CHECK looks at value.
keep_given() {
    local secret value='' present
    secret=$(secret_of "$1")
    read_value "$2" "$1" "$5"
    if [ -n "$value" ]; then
        "$6"
    elif ! has_version "$secret"; then
        [ "$dry_run" = yes ] || fail "there is no $4 in Secret Manager ($secret), and none was given" "$3 FILE$([ -z "$5" ] || printf ', or run it in a terminal')"
        note "a $4 would be needed: $3 FILE"
    fi
    make_secret "$secret"
    if [ -z "$value" ]; then
        note "$secret is kept"
        return
    fi
    present=$(present_value "$secret") || exit 1
    if [ "$present" = "$value" ]; then
        note "$secret has it already"
    elif [ "$1" = gh_app_key ]; then
        printf '%s\n' "$value" | add_version "$secret"
    else
        printf '%s' "$value" | add_version "$secret"
    fi
}

# keep_made KEY FILE PREVIOUS-KEY WHERE: a secret that is made here, unless it was given; WHERE it is set at the host. While it changes, the
# version before it is taken too, by receiver and leader alike: the servers first, then the host.
keep_made() {
    local secret newest before value=''
    secret=$(secret_of "$1")
    if [ -n "$2" ]; then
        keep_given "$1" "$2" '' secret '' true
    else
        make_secret "$secret"
        if has_version "$secret"; then
            note "$secret is kept"
        else
            openssl rand -hex 32 | tr -d '\n' | add_version "$secret"
        fi
    fi
    before=$(version_before "$secret") || exit 1
    [ -n "$before" ] || return 0
    newest=$(version_of "$secret") || exit 1
    previous_versions+=", \"$3\": $(json "$before")"
    note "versions $newest and $before of $secret are both taken"
    left "$secret changes: give $4 version $newest of $secret (as shown under Webhook). When /status shows no inbox_unusable a day later: \
gcloud secrets versions disable $before --secret=$secret --project=$project, then scripts/deploy again"
}

# text_field NAME: the first text of this name in JSON on standard input; nothing where there is none.
text_field() { tr ',' '\n' | sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" | head -n 1; }

check_gh_token() {
    local login
    login=$(github "$value" /user 2>/dev/null | text_field login || true)
    [ -n "$login" ] || fail "$gh_hostname does not take the token" "make a new one for $gh_user and give it again"
    [ "$login" = "$gh_user" ] || fail "the token is $login's, not $gh_user's" "give $gh_user's token, or --gh-user $login"
    note "the token is $gh_user's"
}

base64url() { openssl base64 -A | tr '+/' '-_' | tr -d '='; }

# The App says who it is with a token of some minutes that its key signs; GitHub answers with its name, which is remembered.
check_app_key() {
    local now unsigned signature slug
    case $value in *'PRIVATE KEY-----'*) ;; *) fail "--gh-app-key-file is no private key in PEM" "a key made on the App's page, which begins with -----BEGIN RSA PRIVATE KEY-----" ;; esac
    now=$(date +%s)
    unsigned=$(printf '{"alg":"RS256","typ":"JWT"}' | base64url).$(printf '{"iat":%s,"exp":%s,"iss":"%s"}' $((now - 60)) $((now + 480)) "$gh_app_id" | base64url)
    # A damaged key signs nothing, and GitHub refuses that.
    signature=$(printf '%s' "$unsigned" | openssl dgst -sha256 -sign <(printf '%s\n' "$value") 2>/dev/null | base64url || true)
    slug=$(github "$unsigned.$signature" /app 2>/dev/null | text_field slug || true)
    [ -n "$slug" ] || fail "$gh_hostname does not take the key for the App $gh_app_id" "the App ID and a key from the same App's page; this machine's clock has to be right"
    gh_app_slug=$slug
    remember
    note "the key is that of the App $slug"
}

# An organization (or collection) that the token is asked at, from the repositories that are served.
azure_organization() {
    local entry rest
    for entry in ${repo_allowlist//,/ }; do
        rest=${entry#"$azuredevops_hostname"/}
        case $rest in "$entry" | \** | '') ;; *) printf '%s' "${rest%%/*}"; return ;; esac
    done
}

check_azure_token() {
    local organization answer account lower
    organization=$(azure_organization)
    if [ -z "$organization" ]; then
        note "the token of $azuredevops_user is not looked at: no organization of $azuredevops_hostname is in --repo-allowlist"
        return
    fi
    answer=$(curl --silent --show-error --fail --config <(printf 'user = ":%s"\n' "$value") \
        "https://$azuredevops_hostname/$organization/_apis/connectionData?api-version=7.0-preview" 2>/dev/null || true)
    grep -q '"authenticatedUser"' <<<"$answer" || fail "$azuredevops_hostname does not take the token" "make a new one for $azuredevops_user in $organization and give it again"
    # shellcheck disable=SC2016 # $value is the field's name
    account=$(sed -n 's/.*"Account": *{[^}]*"\$value": *"\([^"]*\)".*/\1/p' <<<"$answer" | head -n 1)
    lower=$(printf '%s' "$account" | tr '[:upper:]' '[:lower:]')
    if [ "$azuredevops_hostname" = dev.azure.com ] && [ "$lower" != "$(printf '%s' "$azuredevops_user" | tr '[:upper:]' '[:lower:]')" ]; then
        fail "the token is $account's, not $azuredevops_user's" "give $azuredevops_user's token, or --azuredevops-user $account"
    fi
    note "the token is $azuredevops_user's"
}

check_gitlab_token() {
    local login
    login=$(curl --silent --show-error --fail --config <(printf 'header = "PRIVATE-TOKEN: %s"\n' "$value") "https://$gitlab_hostname/api/v4/user" 2>/dev/null \
        | text_field username || true)
    [ -n "$login" ] || fail "$gitlab_hostname does not take the token" "make a new one for $gitlab_user and give it again"
    [ "$login" = "$gitlab_user" ] || fail "the token is $login's, not $gitlab_user's" "give $gitlab_user's token, or --gitlab-user $login"
    note "the token is $gitlab_user's"
}

check_gitea_token() {
    local login
    login=$(curl --silent --show-error --fail --config <(printf 'header = "Authorization: token %s"\n' "$value") "${gitea_base_url%/}/api/v1/user" 2>/dev/null \
        | text_field login || true)
    [ -n "$login" ] || fail "$gitea_base_url does not take the token" "make a new one for $gitea_user with the scope read:user (docs/gitea.md names all) and give it again"
    [ "$login" = "$gitea_user" ] || fail "the token is $login's, not $gitea_user's" "give $gitea_user's token, or --gitea-user $login"
    note "the token is $gitea_user's"
}

# An access token may not say whose it is.
check_bitbucket_token() {
    local account
    if [ "$bitbucket_user" = x-token-auth ]; then
        note "the access token of Bitbucket is not looked at"
        return
    fi
    account=$(curl --silent --show-error --fail --config <(printf 'user = "%s:%s"\n' "$bitbucket_user" "$value") https://api.bitbucket.org/2.0/user 2>/dev/null \
        | text_field account_id || true)
    [ -n "$account" ] || fail "bitbucket.org does not take the token" "make a new one for $bitbucket_user with the scope read:user:bitbucket (docs/bitbucket-cloud.md names all) and give it again"
    note "the token is that of $bitbucket_user, whose account ID is $account"
}

# The host names the account of a token in a header of every answer. The account of a token of a project or repository is one of its own.
check_bitbucket_data_center_token() {
    local url=${bitbucket_data_center_base_url%/} headers login
    headers=$(curl --silent --show-error --fail --config <(printf 'header = "Authorization: Bearer %s"\n' "$value") --dump-header - --output /dev/null \
        "$url/rest/api/latest/application-properties" 2>/dev/null) || headers='' # a refusal has headers, too
    [ -n "$headers" ] || fail "$url does not take the token" "make a new one for $bitbucket_data_center_user (docs/bitbucket-data-center.md names its permissions) and give it again"
    login=$(tr -d '\r' <<<"$headers" | sed -n 's/^[Xx]-[Aa][Uu][Ss][Ee][Rr][Nn][Aa][Mm][Ee]: *//p' | head -n 1)
    login=${login//+/ }
    printf -v login '%b' "${login//%/\\x}" # encoded as in a form
    if [ "$bitbucket_data_center_user" = x-token-auth ] || [ -z "$login" ]; then
        note "$url takes the token"
        return
    fi
    [ "$login" = "$bitbucket_data_center_user" ] || fail "the token is $login's, not $bitbucket_data_center_user's" "give $bitbucket_data_center_user's token, or --bitbucket-data-center-user $login"
    note "the token is $bitbucket_data_center_user's"
}

keep_hosts_secrets() {
    previous_versions=''
    [ -z "$gh_user" ] || keep_given gh_token "$gh_token_file" --gh-token-file token "Token of $gh_user" check_gh_token
    [ -z "$gh_app_id" ] || keep_given gh_app_key "$gh_app_key_file" --gh-app-key-file "private key" '' check_app_key
    if with_github; then keep_made gh_webhook_secret "$gh_webhook_secret_file" gh_previous_webhook_secret "the webhook"; fi
    if [ -n "$azuredevops_user" ]; then
        keep_given azuredevops_token "$azuredevops_token_file" --azuredevops-token-file token "Token of $azuredevops_user" check_azure_token
        keep_made azuredevops_webhook_password '' azuredevops_previous_webhook_password "each service hook"
    fi
    if [ -n "$gitlab_user" ]; then
        keep_given gitlab_token "$gitlab_token_file" --gitlab-token-file token "Token of $gitlab_user" check_gitlab_token
        keep_made gitlab_webhook_secret '' gitlab_previous_webhook_secret "each webhook of GitLab"
    fi
    if [ -n "$gitea_user" ]; then
        keep_given gitea_token "$gitea_token_file" --gitea-token-file token "Token of $gitea_user" check_gitea_token
        keep_made gitea_webhook_secret '' gitea_previous_webhook_secret "each webhook of Gitea"
    fi
    if [ -n "$bitbucket_user" ]; then
        keep_given bitbucket_token "$bitbucket_token_file" --bitbucket-token-file token "Token of $bitbucket_user" check_bitbucket_token
        keep_made bitbucket_webhook_secret '' bitbucket_previous_webhook_secret "each webhook of Bitbucket"
    fi
    [ -n "$bitbucket_data_center_user" ] || return 0
    keep_given bitbucket_data_center_token "$bitbucket_data_center_token_file" --bitbucket-data-center-token-file token "Token of $bitbucket_data_center_user" check_bitbucket_data_center_token
    keep_made bitbucket_data_center_webhook_secret '' bitbucket_data_center_previous_webhook_secret "each webhook of Bitbucket Data Center"
}

# The hosts as the module's variables.
write_hosts() {
    local github=null app=null azure=null gitlab=null gitea=null bitbucket=null data_center=null
    [ -z "$gh_user" ] || github="{\"user\": $(json "$gh_user"), \"hostname\": $(json "$gh_hostname")}"
    [ -z "$gh_app_id" ] || app="{\"id\": $gh_app_id, ${gh_app_slug:+\"slug\": $(json "$gh_app_slug"), }${gh_app_installation_id:+\"installation_id\": $gh_app_installation_id, }\"hostname\": $(json "$gh_hostname")}"
    [ -z "$azuredevops_user" ] || azure="{\"user\": $(json "$azuredevops_user"), \"webhook_user\": $(json "$azuredevops_webhook_user"), \"hostname\": $(json "$azuredevops_hostname")}"
    [ -z "$gitlab_user" ] || gitlab="{\"user\": $(json "$gitlab_user"), \"hostname\": $(json "$gitlab_hostname")}"
    [ -z "$gitea_user" ] || gitea="{\"user\": $(json "$gitea_user"), \"base_url\": $(json "$gitea_base_url")}"
    [ -z "$bitbucket_user" ] || bitbucket="{\"user\": $(json "$bitbucket_user")}"
    [ -z "$bitbucket_data_center_user" ] || data_center="{\"user\": $(json "$bitbucket_data_center_user"), \"base_url\": $(json "$bitbucket_data_center_base_url")}"
    printf '  "github": %s,\n  "github_app": %s,\n  "azuredevops": %s,\n' "$github" "$app" "$azure"
    printf '  "gitlab": %s,\n  "gitea": %s,\n  "bitbucket": %s,\n  "bitbucket_data_center": %s,\n' "$gitlab" "$gitea" "$bitbucket" "$data_center"
}

# The versions that the service names, as a JSON object.
secret_versions() {
    local key version separator=''
    printf '{'
    for key in $(secret_keys); do
        version=$(version_of "$(secret_of "$key")") || exit 1
        printf '%s"%s": %s' "$separator" "$key" "$(json "$version")"
        separator=', '
    done
    printf '%s}' "$previous_versions"
}

# The doctor's flags of the hosts, one a line.
doctor_hosts() {
    [ -z "$gh_user" ] || printf -- '--gh-user=%s\n--gh-hostname=%s\n' "$gh_user" "$gh_hostname"
    [ -z "$gh_app_id" ] || printf -- '--gh-app-id=%s\n--gh-hostname=%s\n' "$gh_app_id" "$gh_hostname"
    [ -z "$azuredevops_user" ] || printf -- '--azuredevops-user=%s\n--azuredevops-hostname=%s\n--azuredevops-webhook-user=%s\n' "$azuredevops_user" "$azuredevops_hostname" "$azuredevops_webhook_user"
    [ -z "$gitlab_user" ] || printf -- '--gitlab-user=%s\n--gitlab-hostname=%s\n' "$gitlab_user" "$gitlab_hostname"
    [ -z "$gitea_user" ] || printf -- '--gitea-user=%s\n--gitea-base-url=%s\n' "$gitea_user" "$gitea_base_url"
    [ -z "$bitbucket_user" ] || printf -- '--bitbucket-user=%s\n' "$bitbucket_user"
    [ -z "$bitbucket_data_center_user" ] || printf -- '--bitbucket-data-center-user=%s\n--bitbucket-data-center-base-url=%s\n' "$bitbucket_data_center_user" "$bitbucket_data_center_base_url"
}

# variable_of KEY: the server's.
variable_of() { printf 'TIDELOCK_%s' "$1" | tr '[:lower:]' '[:upper:]'; }

# Where deliveries are set up by hand.
show_webhook() {
    if [ -n "$gh_user" ]; then
        note "payload URL   $1"
        note "content type  application/json"
        note "secret        gcloud secrets versions access latest --secret=$(secret_of gh_webhook_secret) --project=$project"
        note "events        pull requests, issue comments, merge groups, pull request reviews, pushes"
        left "add the webhook: payload URL $1, the rest as shown under Webhook above"
    fi
    if [ -n "$gh_app_id" ]; then
        note "webhook URL   $1 (on the App's page of settings)"
        note "secret        gcloud secrets versions access latest --secret=$(secret_of gh_webhook_secret) --project=$project"
        left "set the App's webhook: URL $1, the secret as shown under Webhook above; then install the App where its repositories are (docs/github-app.md)"
    fi
    if [ -n "$azuredevops_user" ]; then
        note "service hooks of each project (docs/azure-devops.md), URL $1, all resource details"
        note "basic authentication: user $azuredevops_webhook_user, password: gcloud secrets versions access latest --secret=$(secret_of azuredevops_webhook_password) --project=$project"
        left "add the service hooks as shown under Webhook above (docs/azure-devops.md names the events)"
    fi
    if [ -n "$gitlab_user" ]; then
        note "webhook of each project or group of GitLab (docs/gitlab.md), URL $1; events: merge requests, comments, pushes"
        note "secret token  gcloud secrets versions access latest --secret=$(secret_of gitlab_webhook_secret) --project=$project"
        left "add the webhooks of GitLab as shown under Webhook above"
    fi
    if [ -n "$gitea_user" ]; then
        note "webhook of each repository or organization of Gitea (docs/gitea.md), target URL $1, content type application/json"
        note "secret        gcloud secrets versions access latest --secret=$(secret_of gitea_webhook_secret) --project=$project"
        left "add the webhooks of Gitea as shown under Webhook above (docs/gitea.md names the events)"
    fi
    if [ -n "$bitbucket_user" ]; then
        note "webhook of each repository of Bitbucket (docs/bitbucket-cloud.md), URL $1"
        note "secret        gcloud secrets versions access latest --secret=$(secret_of bitbucket_webhook_secret) --project=$project"
        left "add the webhooks of Bitbucket as shown under Webhook above (docs/bitbucket-cloud.md names the triggers)"
    fi
    [ -n "$bitbucket_data_center_user" ] || return 0
    note "webhook of each repository or project of Bitbucket Data Center (docs/bitbucket-data-center.md), URL $1"
    note "secret        gcloud secrets versions access latest --secret=$(secret_of bitbucket_data_center_webhook_secret) --project=$project"
    left "add the webhooks of Bitbucket Data Center as shown under Webhook above (docs/bitbucket-data-center.md names the events)"
}
