# shellcheck shell=bash
# The Terraform that scripts/deploy writes, applies, and brings back on its feet after a run that ended half-way.
# shellcheck disable=SC2154,SC2034 # variables of scripts/deploy

# What is generated: whoever changed one of these by hand is told where his own lines belong, and nothing is overwritten.
generated='main.tf settings.auto.tfvars.json repos.yaml'

check_generated() {
    local file
    for file in $generated; do
        [ -f "$work/$file" ] && [ -f "$work/generated" ] || continue
        grep -qxF "$file $(fingerprint "$(cat "$work/$file")")" "$work/generated" \
            || fault "$work/$file was changed by hand, and would be overwritten" \
                "move what you added into files of your own beside it (any .tf; .auto.tfvars; --tfvars FILE; --repo-config FILE), then: rm $work/$file"
    done
    stop_if_faulty
}

note_generated() {
    local file
    for file in $generated; do
        [ ! -f "$work/$file" ] || printf '%s %s\n' "$file" "$(fingerprint "$(cat "$work/$file")")"
    done > "$work/generated.new"
    mv "$work/generated.new" "$work/generated"
}

# The module's variables, but for those that the script has another way for.
module_variables() { sed -n 's/^variable "\(.*\)" {$/\1/p' "$here/terraform/variables.tf" | grep -vxE 'secret_values|bucket'; }

write_terraform() {
    local variable versions
    versions=$(secret_versions) || exit 1
    rm -f "$work/generated" # until all are written, none is known: an interruption here is no change by hand
    {
        cat <<TF
# Made by scripts/deploy, which writes it anew; yours are any other files here. Each variable is one of the module: set it in a file
# that ends in .auto.tfvars, or in --tfvars.
terraform {
  required_version = ">= 1.11"
  backend "gcs" {
    bucket = "$state_bucket"
    prefix = "$name"
  }
}

# Requests count against this project, also where the credentials are a person's.
provider "google" {
  project               = "$project"
  region                = "$region"
  user_project_override = true
  billing_project       = "$project"
}

variable "force_destroy" {
  type    = bool
  default = null
}

variable "bucket" {
  type    = any
  default = null
}
TF
        while IFS= read -r variable; do
            printf '\nvariable "%s" {\n  type    = any\n  default = null\n' "$variable"
            [ "$variable" != iap_oauth_client ] || printf '  sensitive = true\n'
            printf '}\n'
        done < <(module_variables)
        printf '\nmodule "tidelock" {\n  source = "%s/terraform"\n' "$here"
        printf '  bucket = merge(var.bucket, { for force in [var.force_destroy] : "force_destroy" => force if force != null })\n'
        while IFS= read -r variable; do printf '  %s = var.%s\n' "$variable" "$variable"; done < <(module_variables)
        printf '}\n\noutput "tidelock" {\n  value = module.tidelock\n}\n'
        printf '\noutput "%s" {\n  value = %s\n}\n' url module.tidelock.url events_url module.tidelock.events_url bucket module.tidelock.bucket \
            service_account module.tidelock.service_account image module.tidelock.image certificate_kind module.tidelock.certificate.kind \
            certificate_name 'module.tidelock.certificate.name == null ? "" : module.tidelock.certificate.name' \
            dns_records 'join("\n", module.tidelock.dns_records)' certificate_record 'coalesce(module.tidelock.certificate_record, "none")' \
            address 'lookup(module.tidelock.ip_addresses, "IPV4", "")' events_backend 'coalesce(module.tidelock.events_backend, "none")' \
            pages_backend 'coalesce(module.tidelock.pages_backend, "none")'
    } > "$work/main.tf"
    cp "${repo_config:-$here/scripts/lib/repos.yaml}" "$work/repos.yaml"
    [ -z "$executor" ] || [ -n "$repo_config" ] || write_rules >> "$work/repos.yaml"
    write_settings > "$work/settings.auto.tfvars.json"
    write_more
    note_generated
}

# The rule is a key of the last entry of repos.yaml.
write_rules() {
    local stage
    printf '    executor: [{plan: plans, apply: applies}]\nexecutors:\n'
    for stage in plans applies; do
        printf '  %s: {kind: %s, job: projects/%s/locations/%s/jobs/%s-%s}\n' "$stage" "$executor" "$project" "$region" "$name" "$stage"
    done
}

write_executors() {
    account() { if [ -n "$1" ]; then json "$1"; else printf null; fi; }
    [ -n "$executor" ] || { printf '{}'; return; }
    printf '{"plans": {"service_account": %s}, "applies": {"service_account": %s}}' "$(account "$plan_account")" "$(account "$apply_account")"
}

write_settings() {
    local kind='{}' zone=null allowlist=() registry=none
    IFS=, read -r -a allowlist <<<"$repo_allowlist"
    if [ -n "$dns_zone" ]; then
        zone="{\"name\": $(json "$dns_zone")}"
    fi
    [ "$certificate_kind" = managed ] || kind="{\"kind\": $(json "$certificate_kind")}"
    case $image in ghcr.io/*) registry=pull_through ;; esac
    cat <<JSON
{
  "project_id": $(json "$project"),
  "project_number": $(json "$number"),
  "region": $(json "$region"),
  "name": $(json "$name"),
  "entry": $(json "$entry"),
  "domain": $(if [ -n "$domain" ]; then json "$domain"; else printf null; fi),
  "dns_zone": $zone,
  "certificate": $kind,
  "enable_cloud_armor": $armor,
  "always_on": $always_on,
  "binary_authorization": $binary_authorization,
  "image": $(json "$image"),
  "registry": {"kind": $(json "$registry")},
$(write_hosts)
  "webhook_sources": $(json_list "${sources[@]}"),
  "repo_allowlist": $(json_list "${allowlist[@]}"),
  "executors": $(write_executors),
  "repo_config": $(json "$(cat "$work/repos.yaml")"),
  "secret_versions": $versions,
  "admins": $(json_list ${admins[@]+"${admins[@]}"}),
  "iap_members": $(json_list ${iap_members[@]+"${iap_members[@]}"}),
  "monitoring": {"emails": $(json_list ${alert_emails[@]+"${alert_emails[@]}"})}
}
JSON
}

# --tfvars is copied under a name that Terraform reads after ours; one of a run before that is not given any more goes.
write_more() {
    rm -f "$work"/zz-tfvars.auto.tfvars "$work"/zz-tfvars.auto.tfvars.json
    case $tfvars in
        *.json) cp "$tfvars" "$work/zz-tfvars.auto.tfvars.json" ;;
        ?*) cp "$tfvars" "$work/zz-tfvars.auto.tfvars" ;;
    esac
}

# The OAuth client's secret goes by the environment; no file of ours has it.
export_client() {
    local value
    [ -n "$iap_client_id" ] || return 0
    value=$(present_value "$client_secret") || exit 1
    TF_VAR_iap_oauth_client="{client_id = $(json "$iap_client_id"), client_secret = $(json "$value")}"
    export TF_VAR_iap_oauth_client
}

# A plan, with plan_code 0 (nothing to do), 1 (failed) or 2. Where a run before left its lock on the state, that is taken away first.
make_plan() {
    local code waited=0
    while :; do
        code=0
        tf plan -input=false -no-color -detailed-exitcode ${replace[@]+"${replace[@]}"} -out=tidelock.plan >"$work/plan.log" 2>&1 || code=$?
        [ "$code" = 1 ] || break
        if unlock "$work/plan.log"; then continue; fi
        if ! not_ready "$work/plan.log" || ! pause "$work/plan.log"; then break; fi
    done
    cat "$work/plan.log"
    plan_code=$code
}

# A service whose first start failed is replaced by the next apply. One that is protected (by --tfvars, or by a release before) has to lose
# its protection first, and Terraform changes nothing about what it wants to replace: so it is taken for good, changed, and replaced.
mend_tainted() {
    local service said
    replace=()
    for service in $(tf state list 2>/dev/null | grep '^module.tidelock.google_cloud_run_v2_service' || true); do
        said=$(tf state show -no-color "$service" 2>/dev/null || true)
        grep -q '(tainted)' <<<"$said" || continue
        note "$service never started: it is made anew"
        grep -qE '^ *deletion_protection *= true' <<<"$said" || continue
        tf untaint "$service" >/dev/null
        tf apply -input=false -auto-approve -no-color -var=deletion_protection=false -target="$service" >"$work/unprotect.log" 2>&1 \
            || { cat "$work/unprotect.log"; tf taint "$service" >/dev/null || true; fail "the protection of $service cannot be taken off" "see above"; }
        replace+=("-replace=$service")
    done
}

# The end of the number of the account that the queue is named by (terraform/wake.tf).
account_number() { tf state show -no-color 'module.tidelock.google_service_account.wake[0]' | sed -n 's/^ *unique_id *= "[0-9]*\([0-9]\{8\}\)"$/\1/p'; }

# A run that ended between a creation and its record leaves things that Terraform does not know: they are taken into the state.
# take_up LOG: whether there were any.
take_up() {
    local address message id taken=1
    while IFS=$'\t' read -r address message; do
        case $address in
            *google_service_account.leader) id=projects/$project/serviceAccounts/$name-server@$project.iam.gserviceaccount.com ;;
            *google_service_account.inbox*) id=projects/$project/serviceAccounts/$name-inbox@$project.iam.gserviceaccount.com ;;
            *google_service_account.wake*) id=projects/$project/serviceAccounts/$name-wake@$project.iam.gserviceaccount.com ;;
            *google_cloud_scheduler_job.wake*) id=projects/$project/locations/$region/jobs/$name-wake ;;
            *google_cloud_tasks_queue.wake*) id=projects/$project/locations/$region/queues/$name-wake-$(account_number) ;;
            *google_cloud_run_v2_service.leader) id=projects/$project/locations/$region/services/$name ;;
            *google_cloud_run_v2_service.inbox*) id=projects/$project/locations/$region/services/$name-inbox ;;
            *google_artifact_registry_repository.images*) id=projects/$project/locations/$region/repositories/$name-images ;;
            *google_logging_metric.heartbeat*) id=$name-heartbeat ;;
            *google_logging_metric.commit_lag*) id=$name-commit-lag ;;
            *google_logging_metric.inbox_unusable*) id=$name-inbox-unusable ;;
            *) id=$(sed -n "s/.*'\\(projects\\/[^']*\\)' already exists.*/\\1/p" <<<"$message") ;;
        esac
        [ -n "$id" ] || continue
        note "$address is there already and is taken up"
        tf import -input=false -no-color "$address" "$id" >"$work/import.log" 2>&1 || { cat "$work/import.log"; fail "$address cannot be taken up" "see above"; }
        taken=0
    done < <(awk '/Error/ && /409|already exists|alreadyExists/ { message = $0 } /with module\.tidelock\./ && message != "" {
        for (i = 1; i <= NF; i++) if ($i ~ /^module\.tidelock\./) { sub(/,$/, "", $i); print $i "\t" message; message = "" } }' "$1")
    return "$taken"
}

# Some refusals of a new project pass by themselves, or with what was left half-way: they are met here, all others are shown.
apply_plan() {
    local waited=0 mended=0 met='' early
    while :; do
        if tf apply -input=false -no-color tidelock.plan 2>&1 | tee "$work/apply.log"; then return 0; fi
        if unlock "$work/apply.log" || take_up "$work/apply.log"; then
            mended=$((mended + 1))
            [ "$mended" -lt 30 ] || return 1
        elif not_ready "$work/apply.log"; then
            # A text that was not met before is progress, and begins the time anew; there are a dozen.
            early=$(grep -oE "$not_ready_words" "$work/apply.log" | sed 's/[0-9]//g' | sort -u)
            case "$met" in *"[$early]"*) ;; *) waited=0 met+="[$early]" ;; esac
            pause "$work/apply.log" || return 1
        else
            return 1
        fi
        mend_tainted
        make_plan
        case $plan_code in 0) return 0 ;; 2) ;; *) return 1 ;; esac
    done
}

apply() {
    step "Terraform"
    local bucket
    if [ "$dry_run" = yes ]; then
        note "would run: $TERRAFORM init, plan, and after a yes: apply, in $work"
        return
    fi
    write_terraform
    export_client
    # IAP's agent has to be there before it is let in on a service of its own.
    if [ "$entry" = no_load_balancer ] && ! marked iap-agent "$project"; then
        change gcloud beta services identity create --service=iap.googleapis.com --project="$project" --quiet
        mark iap-agent "$project"
    fi
    patient tf init -input=false -no-color -reconfigure || { fail "$TERRAFORM init failed" "see above; it needs the registry and gs://$state_bucket"; }
    # A bucket that scripts/destroy kept is taken up again.
    bucket=${project//[:.]/-}-$name-state
    if look gcloud storage buckets describe "gs://$bucket" --format='value(name)' >/dev/null \
        && ! tf state list 2>/dev/null | grep -qF 'module.tidelock.google_storage_bucket.state'; then
        note "gs://$bucket is there already and is taken up"
        tf import -input=false 'module.tidelock.google_storage_bucket.state[0]' "$bucket" >"$work/import.log" 2>&1 \
            || { unlock "$work/import.log" && tf import -input=false 'module.tidelock.google_storage_bucket.state[0]' "$bucket" >"$work/import.log" 2>&1; } \
            || { cat "$work/import.log"; fail "gs://$bucket cannot be taken up" "see above; it has to be in $project"; }
    fi
    mend_tainted
    make_plan
    case $plan_code in
        0) note "nothing to change" ;;
        2)
            confirm "Apply this?" || { say "Nothing was applied."; exit 1; }
            apply_plan || fail "$TERRAFORM apply failed" "mend what it says above; run this again and it goes on from there"
            ;;
        *) fail "$TERRAFORM plan failed" "mend what it says above" ;;
    esac
    rm -f "$work/tidelock.plan"
    mark applied "$project"
}
