# shellcheck shell=bash
# What scripts/deploy makes before Terraform runs: the bucket for Terraform's state, secrets, the image.
# shellcheck disable=SC2154,SC2034 # variables of scripts/deploy

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

# The newest version's number.
version_of() { gcloud secrets versions list "$1" --project="$project" --filter=state=ENABLED --limit=1 --format='value(name.basename())' 2>/dev/null || true; }

# The number of the one before it, where that is still enabled.
version_before() { gcloud secrets versions list "$1" --project="$project" --filter=state=ENABLED --limit=2 --format='value(name.basename())' 2>/dev/null | sed -n 2p || true; }

has_version() { [ -n "$(version_of "$1")" ]; }

make_secret() {
    gcloud secrets describe "$1" --project="$project" --format='value(name)' >/dev/null 2>&1 && return 0
    change gcloud secrets create "$1" --project="$project" --replication-policy=automatic --quiet
}

# The value comes by standard input.
add_version() {
    if [ "$dry_run" = yes ]; then
        cat >/dev/null
        note "would run: gcloud secrets versions add $1 --project=$project --data-file=-"
    else
        gcloud secrets versions add "$1" --project="$project" --data-file=- --quiet
    fi
}

read_token() {
    if [ "$gh_token_file" = - ]; then
        IFS= read -r token || true
    elif [ -n "$gh_token_file" ]; then
        token=$(tr -d '\r\n' < "$gh_token_file")
    elif ! has_version "$token_secret" && [ -t 0 ]; then
        read -r -s -p "   Token of $gh_user (not shown): " token
        printf '\n'
    fi
}

keep_secrets() {
    step "Secrets"
    local token='' login present
    token_secret=$name-gh-token webhook_secret=$name-gh-webhook-secret
    read_token
    if [ -n "$token" ]; then
        login=$(github "$token" /user 2>/dev/null | tr ',' '\n' | sed -n 's/.*"login": *"\([^"]*\)".*/\1/p' | head -n 1 || true)
        [ -n "$login" ] || fail "$gh_hostname does not take the token" "make a new one for $gh_user and give it again"
        [ "$login" = "$gh_user" ] || fail "the token is $login's, not $gh_user's" "give $gh_user's token, or --gh-user $login"
        note "the token is $gh_user's"
    elif ! has_version "$token_secret"; then
        [ "$dry_run" = yes ] || fail "there is no token in Secret Manager ($token_secret), and none was given" "--gh-token-file FILE, or run it in a terminal"
        note "a token would be needed: --gh-token-file FILE"
    fi
    make_secret "$token_secret"
    if [ -n "$token" ]; then
        present=$(gcloud secrets versions access latest --secret="$token_secret" --project="$project" 2>/dev/null || true)
        if [ "$present" = "$token" ]; then
            note "$token_secret has it already"
        else
            printf '%s' "$token" | add_version "$token_secret"
        fi
    else
        note "$token_secret is kept"
    fi
    make_secret "$webhook_secret"
    if has_version "$webhook_secret"; then
        note "$webhook_secret is kept"
    else
        openssl rand -hex 32 | tr -d '\n' | add_version "$webhook_secret"
    fi
    keep_webhook_secret_before
    keep_client_secret
}

# While the webhook secret changes, both versions are taken, by receiver and leader alike: the servers first, then the host.
keep_webhook_secret_before() {
    local newest
    webhook_secret_before=$(version_before "$webhook_secret")
    [ -n "$webhook_secret_before" ] || return 0
    newest=$(version_of "$webhook_secret")
    note "versions $newest and $webhook_secret_before of $webhook_secret are both taken"
    left "the webhook secret changes: give the webhook version $newest of $webhook_secret (as shown under Webhook). When /status shows no inbox_unusable a day later: \
gcloud secrets versions disable $webhook_secret_before --secret=$webhook_secret --project=$project, then scripts/deploy again"
}

# Of the OAuth client of one's own.
keep_client_secret() {
    [ -n "$iap_client_id" ] || return 0
    client_secret=$name-iap-client-secret
    make_secret "$client_secret"
    if [ -n "$iap_client_secret_file" ]; then
        tr -d '\r\n' < "$iap_client_secret_file" | add_version "$client_secret"
    elif ! has_version "$client_secret"; then
        [ "$dry_run" = yes ] || fail "the OAuth client's secret is not in Secret Manager ($client_secret), and none was given" "--iap-client-secret-file FILE"
    fi
}

make_state_bucket() {
    step "Bucket for Terraform's state"
    local versioned
    state_bucket=$project-$name-tfstate
    state_bucket=${state_bucket//[:.]/-}
    there_or_create gcloud storage buckets describe "gs://$state_bucket" -- gcloud storage buckets create "gs://$state_bucket" --project="$project" \
        --location="$region" --uniform-bucket-level-access --public-access-prevention --quiet
    versioned=$(gcloud storage buckets describe "gs://$state_bucket" --format='value(versioning_enabled)' 2>/dev/null || true)
    case $versioned in True | true) ;; *) change gcloud storage buckets update "gs://$state_bucket" --versioning --quiet ;; esac
    note "gs://$state_bucket"
}

# there_or_create DESCRIBE… -- CREATE…
there_or_create() {
    local describe=()
    while [ "$1" != -- ]; do describe+=("$1"); shift; done
    shift
    "${describe[@]}" --format='value(name)' >/dev/null 2>&1 || change "$@"
}

# The account that builds, with the three rights that it needs, each where it needs it: read the source, push the image, write its log.
make_builder() {
    local member
    builder=$name-build@${project//:/.}.iam.gserviceaccount.com
    case $project in *:*) builder=$name-build@${project#*:}.${project%%:*}.iam.gserviceaccount.com ;; esac
    there_or_create gcloud storage buckets describe "gs://$source_bucket" -- gcloud storage buckets create "gs://$source_bucket" --project="$project" \
        --location="$region" --uniform-bucket-level-access --public-access-prevention --quiet
    there_or_create gcloud artifacts repositories describe "$repository" --project="$project" --location="$region" -- \
        gcloud artifacts repositories create "$repository" --project="$project" --location="$region" --repository-format=docker \
        --description="Images of Tidelock that scripts/deploy built" --quiet
    there_or_create gcloud iam service-accounts describe "$builder" --project="$project" -- \
        gcloud iam service-accounts create "$name-build" --project="$project" --display-name="Builds the image of Tidelock ($name)" --quiet
    case $account in *.gserviceaccount.com) member=serviceAccount:$account ;; *) member=user:$account ;; esac
    granted gcloud storage buckets add-iam-policy-binding "gs://$source_bucket" --member="serviceAccount:$builder" --role=roles/storage.objectViewer
    granted gcloud artifacts repositories add-iam-policy-binding "$repository" --project="$project" --location="$region" \
        --member="serviceAccount:$builder" --role=roles/artifactregistry.writer
    granted gcloud projects add-iam-policy-binding "$project" --member="serviceAccount:$builder" --role=roles/logging.logWriter --condition=None
    granted gcloud iam service-accounts add-iam-policy-binding "$builder" --project="$project" --member="$member" --role=roles/iam.serviceAccountUser
}

# granted COMMAND…: a new account is not known everywhere at once.
granted() {
    local try
    if marked granted "$(fingerprint "$*")"; then return; fi
    if [ "$dry_run" = yes ]; then change "$@"; return; fi
    for try in 1 2 3 4 5 6; do
        if "$@" --quiet >"$work/grant.log" 2>&1; then
            mark granted "$(fingerprint "$*")"
            return
        fi
        grep -q 'does not exist' "$work/grant.log" && [ "$try" -lt 6 ] || break
        sleep "$poll_seconds"
    done
    cat "$work/grant.log"
    fail "a right could not be granted" "see above; it needs roles/owner, or the rights to set the policies of bucket, repository, project and account"
}

write_build() {
    cat > "$work/cloudbuild.yaml" <<YAML
# Made by scripts/deploy; it is written anew each time.
steps:
  - name: gcr.io/cloud-builders/docker
    args: [build, --tag, "$place:$commit", .]
    env: [DOCKER_BUILDKIT=1]
images: ["$place:$commit"]
serviceAccount: projects/$project/serviceAccounts/$builder
timeout: 3600s
options:
  logging: CLOUD_LOGGING_ONLY
YAML
}

# Some organizations forbid builds in a region, others the global pool: what one refuses the other may take.
submit() {
    local where
    write_build
    if [ "$dry_run" = yes ]; then
        change gcloud builds submit "$here" --project="$project" --region="$region" --config="$work/cloudbuild.yaml"
        return
    fi
    for where in "$region" global; do
        if gcloud builds submit "$here" --project="$project" --region="$where" --config="$work/cloudbuild.yaml" \
            --gcs-source-staging-dir="gs://$source_bucket/source" --quiet 2>&1 | tee "$work/build.log"; then return 0; fi
        grep -qiE 'region|location|quota|PERMISSION_DENIED|FAILED_PRECONDITION' "$work/build.log" || return 1
        [ "$where" = global ] || note "Cloud Build refuses $region; trying its global pool"
    done
    return 1
}

make_image() {
    step "Image"
    if [ "$building" = no ]; then
        image=${image:-$RELEASED_IMAGE}
        note "$image"
        return
    fi
    repository=$name-build source_bucket=${project//[:.]/-}-$name-build
    local digest
    place=$region-docker.pkg.dev/${project//://}/$repository/tidelock
    commit=$(git -C "$here" rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
    if [ "$commit" != unknown ] && ! git -C "$here" diff --quiet HEAD; then
        commit=$commit-changed-$(git -C "$here" diff HEAD | openssl dgst -sha256 | sed 's/.* //' | cut -c 1-12)
    fi
    image_digest() { gcloud artifacts docker images describe "$place:$commit" --project="$project" --format='value(image_summary.digest)' 2>/dev/null || true; }
    digest=$(image_digest)
    if [ -n "$digest" ]; then
        note "is built already"
    else
        make_builder
        submit || true
        digest=$(image_digest)
    fi
    if [ -z "$digest" ]; then
        [ "$dry_run" = yes ] || fail "Cloud Build made no image $place:$commit" "gcloud builds list --project=$project --region=$region --limit=1, then its log"
        digest=sha256:$(printf '%064d' 0)
    fi
    image=$place@$digest
    note "$image"
}
