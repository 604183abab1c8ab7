# shellcheck shell=bash
# What scripts/deploy does after Terraform: waits for the certificate, looks whether the way in is guarded, adds the webhook, runs the doctor.
# shellcheck disable=SC2154 # variables of scripts/deploy

certificate_there=yes pointing=yes

wait_for_certificate() {
    [ "$dry_run" = no ] && [ "$entry" = load_balancer ] || return 0
    step "Certificate"
    local kind certificate records record status='' waited=0
    kind=$(tf output -raw certificate_kind)
    certificate=$(tf output -raw certificate_name)
    records=$(tf output -raw dns_records)
    if [ "$kind" = dns_authorized ]; then
        record=$(tf output -raw certificate_record)
        records=''
        if [ "$record" != none ]; then
            records="$record (at Cloudflare: DNS only, not proxied; it stays, as the certificate is renewed by it)"
        fi
    fi
    [ -z "$records" ] || note "make this record at your DNS provider: $records"
    while :; do
        case $kind in
            managed) status=$(gcloud compute ssl-certificates describe "$certificate" --global --project="$project" --format='value(managed.status)' 2>/dev/null || true) ;;
            dns_authorized) status=$(gcloud certificate-manager certificates describe "$certificate" --project="$project" --format='value(managed.state)' 2>/dev/null || true) ;;
            *) return 0 ;;
        esac
        case $status in
            ACTIVE) note "active"; return 0 ;;
            *FAILED_CAA*) fail "a CAA record forbids Google's certificate for $domain" "add a CAA record that allows pki.goog" ;;
        esac
        if [ "$wait_minutes" = 0 ]; then
            certificate_there=no
            note "not there yet (${status:-unknown}), and not waited for"
            [ -z "$records" ] || left "make this record at your DNS provider: $records"
            left "when the certificate is there (up to an hour after the record), run scripts/deploy again: it looks whether the way in is guarded"
            return 0
        fi
        if [ "$waited" -ge $((wait_minutes * 60)) ]; then
            fail "the certificate is not there yet (${status:-unknown})" "check $([ -z "$records" ] || printf 'the record above: ')$(case $kind in dns_authorized) printf 'gcloud certificate-manager certificates describe %s --project=%s says why' "$certificate" "$project" ;; *) printf 'that %s points at the address above' "$domain" ;; esac), then run this again: it only waits"
        fi
        [ $((waited % 120)) -ne 0 ] || note "${status:-unknown}, waiting"
        sleep "$poll_seconds"
        waited=$((waited + (poll_seconds > 0 ? poll_seconds : 60)))
    done
}

# The load balancer's own address is asked, where there is one: the domain may still lead to what was there before.
http_status() {
    local address=''
    [ "$entry" != load_balancer ] || address=$(tf output -raw address)
    ask_status ${address:+--resolve "$domain:443:$address"} "$@"
}

ask_status() { curl --silent --output /dev/null --max-time 15 --write-out '%{http_code}' "$@" 2>/dev/null || true; }

check_health() {
    [ "$dry_run" = no ] || return 0
    step "Health"
    local url events ready status waited=0
    url=$(tf output -raw url) events=$(tf output -raw events_url)
    ready=$(look gcloud run services describe "$name" --project="$project" --region="$region" --format='value(status.latestReadyRevisionName)' || true) || exit 1
    [ -n "$ready" ] || fail "the service $name has no revision that is ready" "gcloud run services logs read $name --project=$project --region=$region --limit=50"
    note "revision $ready is ready"
    if [ "$certificate_there" = no ]; then
        note "the way in is looked at when the certificate is there"
        return
    fi
    while :; do
        status=$(http_status "$url/")
        case $status in
            302 | 401) note "$url asks who you are ($status)"; break ;;
            200) fail "$url is open to everybody" "gcloud run services update $name --ingress=internal --region=$region --project=$project, then see why IAP is off" ;;
        esac
        if [ "$entry" = existing_load_balancer ] && [ "$waited" -ge 60 ]; then
            note "$url answers ${status:-nothing}: your load balancer does not lead here yet"
            show_backends
            return
        fi
        if [ "$waited" -ge 600 ]; then
            fail "$url answers ${status:-nothing}, not IAP's redirect" "a new load balancer takes up to ten minutes: run this again"
        fi
        sleep "$poll_seconds"
        waited=$((waited + (poll_seconds > 0 ? poll_seconds : 60)))
    done
    status=$(http_status --request POST --data '{}' "$events")
    case $status in
        400 | 401 | 403) note "$events refuses what is not signed or comes from elsewhere ($status)" ;;
        2??) fail "$events takes a delivery without a signature" "check that the server has its webhook secret: TIDELOCK_GH_WEBHOOK_SECRET or TIDELOCK_AZUREDEVOPS_WEBHOOK_PASSWORD" ;;
        *) fail "$events answers ${status:-nothing}" "gcloud run services logs read $name --project=$project --region=$region --limit=50" ;;
    esac
}

show_backends() {
    left "in the URL map of your load balancer, for the host $domain: the path /events (exactly, without /*) to $(tf output -raw events_backend), \
everything else to $(tf output -raw pages_backend); then run scripts/deploy again: it looks whether the way in is guarded"
    certificate_there=no
}

# Whether people and hosts come here already. With a certificate that needs no address, what is at the domain now goes on until the record
# is changed.
check_pointing() {
    local address answer
    [ "$dry_run" = no ] && [ "$entry" = load_balancer ] && [ -z "$dns_zone" ] && [ "$certificate_kind" = dns_authorized ] && [ "$certificate_there" = yes ] || return 0
    step "Address"
    address=$(tf output -raw address)
    answer=$(dns "$domain" A)
    if grep -qF "\"$address\"" <<<"$answer"; then
        note "$domain points at $address"
        return
    fi
    note "$domain does not point at $address yet; what is there now goes on to answer"
    left "everything is ready: point $domain at $address (an A record; at Cloudflare: DNS only, not proxied), then run scripts/deploy again for the doctor"
    pointing=no
}

# The operator's own token: to add webhooks is a right that the bot, and whatever runs in pull requests, should not have.
operator_token() {
    if [ -n "$webhook_token_file" ]; then
        tr -d '\r\n' < "$webhook_token_file"
    elif command -v gh >/dev/null; then
        gh auth token --hostname "$gh_hostname" 2>/dev/null || true
    fi
}

add_webhook() {
    [ "$dry_run" = no ] || return 0
    step "Webhook"
    local events where token hooks rights value
    events=$(tf output -raw events_url)
    if [ -z "$webhook" ]; then
        show_webhook "$events"
        return
    fi
    case $webhook in */*) where=/repos/$webhook/hooks rights='-s repo' ;; *) where=/orgs/$webhook/hooks rights='-s admin:org_hook' ;; esac
    token=$(operator_token)
    if [ -z "$token" ]; then
        fail "nobody may add the webhook to $webhook: gh is not logged in at $gh_hostname, and there is no --webhook-token-file" \
            "gh auth login --hostname $gh_hostname $rights; or --webhook-token-file FILE; or leave --register-webhook out and add it by hand"
    fi
    hooks=$(github "$token" "$where?per_page=100" 2>/dev/null) || fail "the webhooks of $webhook cannot be listed" \
        "gh auth refresh --hostname $gh_hostname $rights, or a --webhook-token-file with that right, or leave --register-webhook out and add it by hand"
    if grep -qF "\"$events\"" <<<"$hooks"; then
        note "$webhook has it already"
        return
    fi
    value=$(present_value "$(secret_of gh_webhook_secret)") || exit 1
    {
        printf '{"name": "web", "active": true, "events": ["pull_request", "issue_comment", "merge_group", "pull_request_review", "push"], "config": {"url": "%s", "content_type": "json", "insecure_ssl": "0", "secret": "' "$events"
        printf '%s"}}' "$value"
    } | github "$token" "$where" --request POST --data @- --output /dev/null \
        || fail "the webhook cannot be added to $webhook" "gh auth refresh --hostname $gh_hostname $rights, or leave --register-webhook out and add it by hand"
    note "added to $webhook"
}

# A tidelock on this machine, or the image itself as a job of Cloud Run, with the server's account and secrets.
run_doctor() {
    [ "$dry_run" = no ] || return 0
    step "Doctor"
    if [ "$pointing" = no ]; then
        note "it looks at the server by its address, when $domain leads here"
        return
    fi
    local doctor=${TIDELOCK_BIN:-} well=yes flags each
    if [ -n "$doctor" ]; then :; elif [ -x "$here/target/dist/tidelock" ]; then doctor=$here/target/dist/tidelock; elif command -v tidelock >/dev/null; then doctor=tidelock; fi
    flags=(doctor --from-outside --expect-iap --bucket="$(tf output -raw bucket)" --atlantis-url="$(tf output -raw url)" --events-url="$(tf output -raw events_url)")
    while IFS= read -r each; do flags+=("$each"); done < <(doctor_hosts)
    flags+=(--repo-allowlist="$repo_allowlist")
    if [ -n "$doctor" ] && "$doctor" doctor --help >/dev/null 2>&1; then
        doctor_here "$doctor" || well=no
    else
        doctor_as_job || well=no
    fi
    [ "$well" = no ] || return 0
    if [ -n "$webhook" ] && [ "$certificate_there" = yes ]; then fail "the doctor found something" "see above, and run this again"; fi
    note "the doctor found something. When the webhook is there and the rest is mended, run this again"
    left "mend what the doctor found, and run scripts/deploy again"
}

# From outside, with the settings that the server has: it needs its secrets, which go by its environment.
doctor_here() (
    local key value
    for key in $(secret_keys); do
        value=$(present_value "$(secret_of "$key")") || exit 1
        export "$(variable_of "$key")=$value"
    done
    "$1" "${flags[@]}"
)

doctor_as_job() {
    local argument arguments='' code=0 try said='' key secrets='' version
    for key in $(secret_keys); do
        version=$(version_of "$(secret_of "$key")") || exit 1
        secrets+="${secrets:+,}$(variable_of "$key")=$(secret_of "$key"):$version"
    done
    note "no tidelock on this machine: the image runs it, as the job $name-doctor of Cloud Run"
    for argument in "${flags[@]}"; do arguments+="${arguments:+|}$argument"; done
    patient gcloud run jobs deploy "$name-doctor" --project="$project" --region="$region" --image="$(tf output -raw image)" --service-account="$(tf output -raw service_account)" \
        --args="^|^$arguments" --set-secrets="$secrets" \
        --max-retries=0 --task-timeout=5m --quiet || return 1
    patient gcloud run jobs execute "$name-doctor" --project="$project" --region="$region" --wait --quiet >"$work/doctor.log" || code=1
    # What it said arrives in the log a little later.
    for try in 1 2 3 4; do
        said=$(gcloud logging read "resource.type=\"cloud_run_job\" AND resource.labels.job_name=\"$name-doctor\"" --project="$project" --freshness=10m --order=asc \
            --format='value(textPayload)' 2>/dev/null || true)
        [ -z "$said" ] || break
        [ "$try" = 4 ] || sleep "$poll_seconds"
    done
    if [ -n "$said" ]; then say "$said"; else cat "$work/doctor.log"; fi
    return "$code"
}
