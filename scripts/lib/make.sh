# shellcheck shell=bash
# What scripts/deploy makes before Terraform runs: the bucket for Terraform's state, secrets, the image.
# shellcheck disable=SC2154,SC2034 # variables of scripts/deploy

# The newest version's number.
version_of() { look gcloud secrets versions list "$1" --project="$project" --filter=state=ENABLED --limit=1 --format='value(name.basename())' || true; }

# The number of the one before it, where that is still enabled.
version_before() {
    local versions
    versions=$(look gcloud secrets versions list "$1" --project="$project" --filter=state=ENABLED --limit=2 --format='value(name.basename())' || true) || exit 1
    sed -n 2p <<<"$versions"
}

has_version() {
    local version
    version=$(version_of "$1") || exit 1
    [ -n "$version" ]
}

# present_value SECRET: its newest value that is enabled, to compare or to hand on; nothing where it has none.
present_value() {
    local version
    version=$(version_of "$1") || exit 1
    [ -z "$version" ] || look gcloud secrets versions access "$version" --secret="$1" --project="$project" || true
}

make_secret() {
    ! look gcloud secrets describe "$1" --project="$project" --format='value(name)' >/dev/null || return 0
    change gcloud secrets create "$1" --project="$project" "${replication[@]}" --quiet
}

# The value comes by standard input.
add_version() {
    local given
    given=$(cat; printf x)
    if [ "$dry_run" = yes ]; then
        note "would run: gcloud secrets versions add $1 --project=$project --data-file=-"
        return
    fi
    # shellcheck disable=SC2329 # called by patient
    hand_over() { printf '%s' "${given%x}" | gcloud secrets versions add "$1" --project="$project" --data-file=- --quiet; }
    patient hand_over "$1" || fail "$1 got no version" "mend what it says above, then run this again"
    note "$1 has a new version"
}

keep_secrets() {
    step "Secrets"
    keep_hosts_secrets
    keep_client_secret
}

# Of the OAuth client of one's own.
keep_client_secret() {
    local value present
    [ -n "$iap_client_id" ] || return 0
    client_secret=$name-iap-client-secret
    make_secret "$client_secret"
    if [ -n "$iap_client_secret_file" ]; then
        value=$(tr -d '\r\n' < "$iap_client_secret_file")
        present=$(present_value "$client_secret") || exit 1
        if [ "$present" = "$value" ]; then
            note "$client_secret has it already"
        else
            printf '%s' "$value" | add_version "$client_secret"
        fi
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
    versioned=$(look gcloud storage buckets describe "gs://$state_bucket" --format='value(versioning_enabled)' || true) || exit 1
    case $versioned in True | true) ;; *) change gcloud storage buckets update "gs://$state_bucket" --versioning --quiet ;; esac
    note "gs://$state_bucket"
}

# there_or_create DESCRIBE… -- CREATE…
there_or_create() {
    local describe=()
    while [ "$1" != -- ]; do describe+=("$1"); shift; done
    shift
    look "${describe[@]}" --format='value(name)' >/dev/null || change "$@"
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

# granted COMMAND…: once, which the steps remember.
granted() {
    if marked granted "$(fingerprint "$*")"; then return; fi
    if [ "$dry_run" = yes ]; then change "$@"; return; fi
    patient "$@" --quiet || fail "a right could not be granted" \
        "see above; it needs roles/owner, or the rights to set the policies of bucket, repository, project and account; then run this again"
    mark granted "$(fingerprint "$*")"
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

# Some organizations forbid builds in a region, others the global pool: what one refuses the other may take. A build that was created and
# failed is not built again elsewhere; its log is shown, which gcloud does not do with CLOUD_LOGGING_ONLY.
submit() {
    local where build try said='' waited
    write_build
    if [ "$dry_run" = yes ]; then
        change gcloud builds submit "$here" --project="$project" --region="$region" --config="$work/cloudbuild.yaml"
        return
    fi
    for where in "$region" global; do
        waited=0
        while :; do
            if gcloud builds submit "$here" --project="$project" --region="$where" --config="$work/cloudbuild.yaml" \
                --gcs-source-staging-dir="gs://$source_bucket/source" --quiet 2>&1 | tee "$work/build.log"; then return 0; fi
            build=$(sed -n 's#^Created \[.*/builds/\([0-9a-zA-Z-]*\)\].*#\1#p' "$work/build.log" | tail -n 1)
            if [ -n "$build" ] || ! not_ready "$work/build.log"; then break; fi
            pause "$work/build.log" || fail "Cloud Build does not take the build yet" "see above; run this again in some minutes"
        done
        if [ -n "$build" ]; then
            for try in 1 2 3 4; do
                said=$(gcloud logging read "resource.type=\"build\" AND resource.labels.build_id=\"$build\"" --project="$project" --freshness=2h \
                    --order=asc --format='value(textPayload)' 2>/dev/null || true)
                [ -z "$said" ] || break
                [ "$try" = 4 ] || sleep "$poll_seconds"
            done
            tail -n 60 <<<"$said"
            fail "the build $build failed" "see the end of its log above (whole: gcloud beta builds log $build --project=$project --region=$where), then run this again"
        fi
        grep -qiE 'region|location|quota|PERMISSION_DENIED|FAILED_PRECONDITION' "$work/build.log" || return 1
        [ "$where" = global ] || note "Cloud Build refuses $region; trying its global pool"
    done
    return 1
}

make_image() {
    step "Image"
    if [ "$building" = no ]; then
        if [ -n "$image" ] && [ "$image_was_given" = no ]; then
            note "it stays what --image named; this release's with --image release, a build of this checkout with --build"
        fi
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
    image_digest() { look gcloud artifacts docker images describe "$place:$commit" --project="$project" --format='value(image_summary.digest)' || true; }
    digest=$(image_digest) || exit 1
    if [ -n "$digest" ]; then
        note "is built already"
    else
        make_builder
        submit || fail "Cloud Build takes no build in $region, nor in its global pool" "see its refusal above"
        digest=$(image_digest) || exit 1
    fi
    if [ -z "$digest" ]; then
        [ "$dry_run" = yes ] || fail "Cloud Build made no image $place:$commit" "gcloud artifacts docker images list $place --project=$project shows what is there; then run this again"
        digest=sha256:$(printf '%064d' 0)
    fi
    image=$place@$digest
    note "$image"
}
