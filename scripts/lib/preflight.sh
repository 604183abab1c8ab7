# shellcheck shell=bash
# What scripts/deploy looks at before it changes anything: flags, tools, login, project, rights, people, policies, quotas, names.
# shellcheck disable=SC2154,SC2034 # variables of scripts/deploy

# ask VARIABLE FLAG QUESTION: for what is needed and was not given.
ask() {
    local answer=''
    [ -z "${!1}" ] || return 0
    if [ -t 0 ]; then
        read -r -p "$3: " answer
        printf -v "$1" '%s' "$answer"
    fi
    [ -n "${!1}" ] || fault "$2 is missing" "give $2 ($3)"
}

matches() { [[ $1 =~ $2 ]]; }

file_to_read() { [ -z "$2" ] || [ "$2" = - ] || [ -s "$2" ] || fault "$1 $2 is not there, or empty" "write it, or leave $1 out"; }

# absolute FILE: for what is remembered and read again from another directory.
absolute() { case $1 in '' | /*) printf '%s' "$1" ;; *) printf '%s/%s' "$(cd "$(dirname "$1")" && pwd)" "$(basename "$1")" ;; esac; }

check_flags() {
    step "What is asked for"
    ask project --project "Google Cloud project id"
    ask region --region "region, such as europe-west1"
    [ -n "$gh_app_id$azuredevops_user$gitlab_user$gitea_user$bitbucket_user$bitbucket_data_center_user" ] || ask gh_user --gh-user "login of the bot's GitHub account; or --gh-app-id, --gitlab-user, --gitea-user, --bitbucket-user, --bitbucket-data-center-user, --azuredevops-user"
    ask repo_allowlist --repo-allowlist "repositories, such as github.com/acme/*"
    case $entry in
        load_balancer | existing_load_balancer) ask domain --domain "host name, such as tidelock.example.com" ;;
        no_load_balancer) domain='' ;;
        *) fault "--entry $entry is not known" "--entry load_balancer, --entry existing_load_balancer or --entry no_load_balancer" ;;
    esac
    if [ "$always_on" = false ] && [ "$entry" = no_load_balancer ]; then
        fault "a server that sleeps needs a load balancer: without one, Identity-Aware Proxy guards every path of the service, and Cloud Tasks cannot wake it" "leave --sleeps out (--always-on), or --entry load_balancer or existing_load_balancer"
    fi
    case $certificate in '' | managed | dns_authorized) ;; *) fault "--certificate $certificate is not known" "--certificate managed or --certificate dns_authorized; another of your own by --tfvars" ;; esac
    case $executor in '' | cloud_run) ;; *) fault "--executor $executor is not known" "--executor cloud_run" ;; esac
    [ -n "$executor" ] || [ -z "$plan_account$apply_account" ] || fault "--plan-account and --apply-account need an executor" "--executor cloud_run"
    certificate_kind=${certificate:-managed}
    [ -z "$dns_zone" ] || certificate_kind=${certificate:-dns_authorized}
    stop_if_faulty
    check_words
    file_to_read --gh-token-file "$gh_token_file"
    file_to_read --gh-app-key-file "$gh_app_key_file"
    file_to_read --gh-webhook-secret-file "$gh_webhook_secret_file"
    file_to_read --azuredevops-token-file "$azuredevops_token_file"
    file_to_read --gitlab-token-file "$gitlab_token_file"
    file_to_read --gitea-token-file "$gitea_token_file"
    file_to_read --bitbucket-token-file "$bitbucket_token_file"
    file_to_read --bitbucket-data-center-token-file "$bitbucket_data_center_token_file"
    file_to_read --webhook-token-file "$webhook_token_file"
    file_to_read --iap-client-secret-file "$iap_client_secret_file"
    file_to_read --repo-config "$repo_config"
    file_to_read --tfvars "$tfvars"
    case $tfvars in '' | *.tfvars | *.tfvars.json) ;; *) fault "--tfvars $tfvars is neither .tfvars nor .tfvars.json" "name it so" ;; esac
    if [ -n "$image" ] && [ "$build" = yes ]; then fault "--image and --build are both given" "leave one out"; fi
    choose_image
    stop_if_faulty
    tfvars=$(absolute "$tfvars") repo_config=$(absolute "$repo_config")
    work=$dir/$project-$name
    mkdir -p "$work"
    work=$(cd "$work" && pwd)
    only_one_run
    check_generated
    remember
    note "project $project, region $region, name $name, entry $entry${domain:+, domain $domain}"
}

# What is asked for wins; then the image of the release; in a checkout a build. What is decided here is not remembered: a later release is taken by itself.
choose_image() {
    building=$build
    case $RELEASED_IMAGE in *@sha256:0000000000000000000000000000000000000000000000000000000000000000) RELEASED_IMAGE='' ;; esac
    if [ "$building" = yes ] && [ ! -f "$here/Dockerfile" ]; then fault "--build needs the source, and this is a release's archive" "a checkout of that release, or leave --build out"; fi
    [ -z "$image" ] && [ "$build" = no ] || return 0
    if [ -z "$RELEASED_IMAGE" ]; then
        building=yes
        note "this checkout is of no release: the image will be built from it (--image takes one that you have, a release's archive has one)"
    elif ! matches "$RELEASED_IMAGE" '^[^ ]+@sha256:[0-9a-f]{64}$'; then
        fault "the released image $RELEASED_IMAGE has no digest" "a release's archive as it was published, or --image HOST/PATH@sha256:DIGEST"
    fi
}

check_words() {
    matches "$project" '^[a-z][a-z0-9.:-]{4,28}[a-z0-9]$' || fault "$project is no project id" "gcloud projects list"
    matches "$region" '^[a-z]+-[a-z]+[0-9]+$' || fault "$region is no region" "gcloud run regions list"
    matches "$name" '^[a-z][a-z0-9-]{1,18}[a-z0-9]$' || fault "$name is no name" "--name with 3 to 20 lower-case letters, digits and hyphens"
    if [ -n "$domain" ] && ! matches "$domain" '^([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}$'; then
        fault "$domain is no host name" "--domain without https://, without a path, in lower case"
    fi
    check_hosts
    matches "$wait_minutes" '^[0-9]+$' || fault "--wait $wait_minutes is no number of minutes" "--wait 60"
    case ",$repo_allowlist," in
        *,\*,* | *,\*/\*,* | *,github.com/\*,* | *,gitlab.com/\*,* | *,gitea.com/\*,* | *,codeberg.org/\*,* | *,bitbucket.org/\*,* | *,dev.azure.com/\*,*) fault "--repo-allowlist $repo_allowlist lets anybody run code with the server's identity" "name your organization: $gh_hostname/ORG/*" ;;
    esac
    check_sources
}

# Two runs at once would undo each other's steps, and one could take the other's lock of Terraform's state for a left one.
only_one_run() {
    local other
    other=$(cat "$work/running" 2>/dev/null || true)
    if [ -n "$other" ] && [ "$other" != $$ ] && ps -p "$other" -o args= 2>/dev/null | grep -q deploy; then
        fail "scripts/deploy runs already, as process $other" "wait for it, or end it"
    fi
    [ "$dry_run" = yes ] || printf '%s\n' $$ > "$work/running"
}

check_tools() {
    step "Tools"
    local tool version
    for tool in gcloud curl openssl; do
        command -v "$tool" >/dev/null || case $tool in
            gcloud) fault "gcloud is not installed" "https://cloud.google.com/sdk/docs/install" ;;
            *) fault "$tool is not installed" "install $tool with your system's packages" ;;
        esac
    done
    find_terraform
    if [ -z "${TERRAFORM:-}" ]; then
        fault "neither terraform nor tofu is installed" "https://developer.hashicorp.com/terraform/install or https://opentofu.org/docs/intro/install"
    else
        version=$("$TERRAFORM" version | sed -n '1s/^[A-Za-z]* v\([0-9][0-9.]*\).*/\1/p')
        if [ "$(printf '%s\n1.11.0\n' "${version:-0}" | sort -V | head -n 1)" != 1.11.0 ]; then
            fault "$TERRAFORM ${version:-?} is too old" "update it to 1.11 or newer"
        fi
    fi
    stop_if_faulty
    note "gcloud, $TERRAFORM $version, curl, openssl"
}

check_login() {
    step "Login"
    account=$(gcloud auth list --filter=status:ACTIVE --format='value(account)' 2>/dev/null || true)
    [ -n "$account" ] || fault "gcloud is not logged in" "gcloud auth login"
    gcloud auth application-default print-access-token >/dev/null 2>&1 || fault "Terraform has no credentials" "gcloud auth application-default login"
    stop_if_faulty
    note "$account"
}

check_project() {
    step "Project"
    local billing
    number=$(gcloud projects describe "$project" --format='value(projectNumber)' 2>/dev/null || true)
    [ -n "$number" ] || fail "project $project is not there, or not yours to see" "gcloud projects list; or gcloud projects create $project"
    billing=$(gcloud billing projects describe "$project" --format='value(billingEnabled)' 2>/dev/null || true)
    case $billing in
        True | true) ;;
        *) fail "project $project has no billing account" "gcloud billing accounts list, then: gcloud billing projects link $project --billing-account=ACCOUNT" ;;
    esac
    note "number $number, billing is on"
}

enable_apis() {
    step "APIs"
    local enabled api missing=()
    local needed=(cloudresourcemanager run iap secretmanager storage artifactregistry iam monitoring logging orgpolicy)
    [ "$entry" = no_load_balancer ] || needed+=(compute)
    [ "$always_on" = true ] || needed+=(cloudtasks cloudscheduler)
    [ "$building" = no ] || needed+=(cloudbuild)
    [ -z "$dns_zone" ] || needed+=(dns)
    [ "$entry" != load_balancer ] || [ "$certificate_kind" = managed ] || needed+=(certificatemanager)
    enabled=$(gcloud services list --enabled --project="$project" --format='value(config.name)' 2>/dev/null) \
        || fail "the project's APIs cannot be listed" "gcloud services enable serviceusage.googleapis.com --project=$project"
    for api in "${needed[@]}"; do
        grep -qx "$api.googleapis.com" <<<"$enabled" || missing+=("$api.googleapis.com")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        note "all are on"
        return
    fi
    change gcloud services enable "${missing[@]}" --project="$project" --quiet
}

# What this run will do, as permissions; the API answers with those that we have. The access token goes by a file descriptor.
check_rights() {
    step "Rights"
    local asked permission had list='' lacking=''
    asked='iam.serviceAccounts.create run.services.create storage.buckets.create secretmanager.secrets.create monitoring.alertPolicies.create logging.logMetrics.create artifactregistry.repositories.create'
    if [ "$entry" = no_load_balancer ]; then asked+=' iap.webServices.setIamPolicy run.services.setIamPolicy'; else asked+=' compute.backendServices.create compute.urlMaps.create iap.webServices.setIamPolicy'; fi
    [ "$always_on" = true ] || asked+=' cloudtasks.queues.create cloudtasks.queues.setIamPolicy cloudscheduler.jobs.create iam.serviceAccounts.setIamPolicy'
    [ "$building" = no ] || asked+=' cloudbuild.builds.create resourcemanager.projects.setIamPolicy iam.serviceAccounts.setIamPolicy'
    for permission in $asked; do list+="${list:+, }\"$permission\""; done
    had=$(curl --silent --show-error --fail --config <(printf 'header = "Authorization: Bearer %s"\n' "$(gcloud auth print-access-token 2>/dev/null)") \
        --header 'Content-Type: application/json' --data "{\"permissions\": [$list]}" \
        "https://cloudresourcemanager.googleapis.com/v1/projects/$project:testIamPermissions" 2>/dev/null) || { note "not known before cloudresourcemanager.googleapis.com is on"; return 0; }
    for permission in $asked; do grep -qF "\"$permission\"" <<<"$had" || lacking+="${lacking:+, }$permission"; done
    [ -z "$lacking" ] || fail "$account may not: $lacking" "roles/owner of $project does; or roles with these permissions"
    note "enough"
}

# Who sees the pages, and whether Google's own OAuth client can let them in.
check_people() {
    step "People"
    local answer ancestors
    if [ ${#iap_members[@]} -eq 0 ] && [ -t 0 ] && [ "$assume_yes" = no ]; then
        read -r -p "   Who sees the pages? [user:$account] " answer
        iap_members=("${answer:-user:$account}")
        remember
    fi
    [ ${#iap_members[@]} -gt 0 ] || note "nobody will see the pages yet: --iap-member user:$account"
    ancestors=$(gcloud projects get-ancestors "$project" --format='value(type)' 2>/dev/null || true)
    if [ -z "$ancestors" ]; then
        note "whether the project belongs to an organization is not known"
    elif ! grep -qx organization <<<"$ancestors" && [ -z "$iap_client_id" ]; then
        fail "the project belongs to no organization, and Google's own OAuth client of IAP admits members of the organization only: nobody would see the pages" \
            "make a client of type web application at https://console.cloud.google.com/auth/clients?project=$project with the redirect address https://iap.googleapis.com/v1/oauth/clientIds/CLIENT_ID:handleRedirect, then --iap-client-id and --iap-client-secret-file"
    elif [ -n "$iap_client_id" ]; then
        note "with your OAuth client $iap_client_id"
    else
        note "members of the organization${iap_members[*]:+: ${iap_members[*]}}"
    fi
}

# quota METRIC WANTED: whether so many more can be made; says nothing where the quota is not known.
quota() {
    local limit usage
    limit=$(awk -F, -v m="$1" '$1 == m { print int($2) }' <<<"$quotas")
    usage=$(awk -F, -v m="$1" '$1 == m { print int($3) }' <<<"$quotas")
    [ -z "$limit" ] || [ $((limit - usage)) -ge "$2" ]
}

# Sets quotas. An API that was just enabled refuses for some minutes, so the answer is waited for: without it the build would come first.
ask_quotas() {
    local waited=0 said=$work/quotas.log
    while :; do
        if quotas=$(gcloud compute project-info describe --project="$project" --flatten=quotas \
            --format='csv[no-heading](quotas.metric,quotas.limit,quotas.usage)' 2>"$said"); then return 0; fi
        if [ "$dry_run" = yes ]; then
            note "not known before compute.googleapis.com is on"
            return 1
        fi
        if [ "$waited" -ge 600 ] || ! grep -qE 'has not been used in project|SERVICE_DISABLED|is disabled' "$said"; then
            cat "$said"
            fail "Compute Engine does not answer" "see above; the API compute.googleapis.com has to be on, and $account needs compute.projects.get (roles/viewer)"
        fi
        [ $((waited % 60)) -ne 0 ] || note "Compute Engine is not ready yet; waiting"
        sleep "$poll_seconds"
        waited=$((waited + (poll_seconds > 0 ? poll_seconds : 60)))
    done
}

# Cloud Armor before /events has a rule for ten ranges, and one that denies; before the pages, where pages_sources says so, one more, with
# an expression (CEVAL), of which new projects have none.
check_armor() {
    local source ranges=0 policies=1 rules expressions=0 known metric
    for source in "${sources[@]}"; do
        case $source in github) ranges=$((ranges + 6)) ;; azuredevops) ranges=$((ranges + 24)) ;; gitlab) ranges=$((ranges + 2)) ;; *) ranges=$((ranges + 1)) ;; esac
    done
    rules=$(((ranges + 9) / 10 + 1))
    known=0
    [ -z "$tfvars" ] || known=$(sed -n '/pages_sources/,/\]/p' "$tfvars" | grep -oE '[0-9a-fA-F.:]+/[0-9]+' | grep -c . || true)
    if [ "$known" -gt 0 ]; then policies=2 expressions=1 rules=$((rules + (known + 9) / 10 + 2)); fi
    for metric in "SECURITY_POLICIES:$policies" "SECURITY_POLICY_RULES:$rules" "SECURITY_POLICY_CEVAL_RULES:$expressions"; do
        [ "${metric#*:}" = 0 ] || quota "${metric%:*}" "${metric#*:}" || fault "the project has no quota for Cloud Armor rules: ${metric%:*} lets fewer than ${metric#*:} be made (new projects often have 0)" \
            "ask for more at https://console.cloud.google.com/iam-admin/quotas?project=$project (${metric%:*}), or use --no-cloud-armor, or --entry no_load_balancer$([ "$expressions" = 0 ] || printf ', or leave pages_sources out')"
    done
}

# A load balancer of the kind EXTERNAL_MANAGED counts against quotas of its own.
check_quotas() {
    step "Quotas"
    if [ "$entry" = no_load_balancer ]; then
        note "none that a new project lacks"
        return
    fi
    local quotas metric
    ask_quotas || return 0
    if marked applied "$project"; then
        note "what they are for is there already"
        return
    fi
    [ "$armor" = false ] || check_armor
    local wanted=(GLOBAL_EXTERNAL_MANAGED_BACKEND_SERVICES:2)
    [ "$entry" != load_balancer ] || wanted+=(GLOBAL_EXTERNAL_MANAGED_FORWARDING_RULES:2 URL_MAPS:2 TARGET_HTTPS_PROXIES:1 TARGET_HTTP_PROXIES:1 SSL_CERTIFICATES:1 STATIC_ADDRESSES:1)
    for metric in "${wanted[@]}"; do
        quota "${metric%:*}" "${metric#*:}" || fault "the project's quota ${metric%:*} is used up" \
            "ask for more at https://console.cloud.google.com/iam-admin/quotas?project=$project, or use --entry no_load_balancer"
    done
    stop_if_faulty
    note "enough"
}

# dns NAME TYPE: what a public resolver answers, as JSON.
dns() { curl --silent --fail --max-time 15 "https://dns.google/resolve?name=$1&type=$2" 2>/dev/null || true; }

check_domain() {
    [ "$entry" = load_balancer ] || return 0
    step "Domain"
    local zone_name caa above=$domain
    # The nearest name that has CAA records decides.
    while [ "${above#*.}" != "$above" ]; do
        caa=$(dns "$above" CAA)
        if grep -q ' issue ' <<<"$caa"; then
            grep -q 'pki\.goog' <<<"$caa" || fail "a CAA record forbids Google's certificate for $domain" "add a CAA record at $above that allows pki.goog"
            break
        fi
        above=${above#*.}
    done
    if [ -z "$dns_zone" ]; then
        if grep -qE '"Status": ?3' <<<"$(dns "${domain#*.}" SOA)"; then note "${domain#*.} is not known in public: is it registered?"; fi
        case $certificate_kind in
            managed) note "$domain has to be pointed at the address by hand; it is shown below" ;;
            *) note "one record has to be made by hand for the certificate, and later $domain pointed at the address; both are shown below" ;;
        esac
        return
    fi
    zone_name=$(look gcloud dns managed-zones describe "$dns_zone" --project="$project" --format='value(dnsName)' || true) || exit 1
    if [ -z "$zone_name" ]; then
        fail "there is no zone $dns_zone in $project" "gcloud dns managed-zones list --project=$project"
    fi
    case ".$domain." in
        *".$zone_name") ;;
        *) fail "$domain is not in zone $dns_zone, which is for $zone_name" "another --dns-zone, or another --domain" ;;
    esac
    case $(look gcloud dns managed-zones describe "$dns_zone" --project="$project" --format='value(visibility)' || true) in
        private) fail "zone $dns_zone is private: neither GitHub nor Google's certificate authority sees it" "a public zone, or no --dns-zone" ;;
    esac
    if ! grep -q 'googledomains\.com' <<<"$(dns "$zone_name" NS)"; then
        note "no public name server hands ${zone_name} to Cloud DNS: the certificate waits until its registrar does"
    fi
    note "$domain is in zone $dns_zone"
}

# Calculated in docs/deployment.md.
show_price() {
    step "What it costs"
    local month=68 time='10 to 20 minutes' asleep=''
    if [ "$entry" = existing_load_balancer ]; then
        [ "$armor" = false ] || month=75
    elif [ "$entry" = load_balancer ]; then
        month=93
        [ "$armor" = true ] || month=86
        time='20 to 90 minutes, most of them waiting for the certificate'
    fi
    if [ "$always_on" = false ]; then month=$((month - 67)) asleep=' without any work, plus the seconds that it is awake,'; fi
    note "about $month USD a month$asleep by docs/deployment.md (look prices up), before tax and traffic; --tfvars may change that"
    note "it takes $time$([ "$building" = no ] || printf ', some 15 for the image')"
}
