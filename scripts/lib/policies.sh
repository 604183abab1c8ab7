# shellcheck shell=bash
# Organization policies that would refuse the deployment half-way: they are asked before anything is made, each with the way out.
# shellcheck disable=SC2154,SC2034 # variables of scripts/deploy

# policy CONSTRAINT: effective, the policy that holds for the project, as gcloud's flattened lines; nothing where it may not be read.
policy() {
    local waited=0 said=$work/policy.log
    constraint=$1 effective=''
    [ "$policies_known" = yes ] || return 0
    while ! effective=$(gcloud org-policies describe "$1" --project="$project" --effective --format=flattened 2>"$said"); do
        effective=''
        if [ "$dry_run" = yes ] && not_ready "$said"; then
            note "not known before orgpolicy.googleapis.com is on"
        elif not_ready "$said" && pause "$said"; then
            continue
        elif ! grep -qiE 'not.found|404' "$said"; then
            note "not known: $account needs roles/orgpolicy.policyViewer to read organization policies; what they refuse will stop the run later"
        else
            return 0
        fi
        policies_known=no
        return 0
    done
}

enforced() { grep -qE '^spec\.rules\[[0-9]+\]\.enforce: +[Tt]rue' <<<"$effective"; }

# listed KIND: the values of allowedValues or deniedValues, one a line.
listed() { sed -n "s/^spec\.rules\[[0-9]*\]\.values\.$1\[[0-9]*\]: *\(is:\)\{0,1\}//p" <<<"$effective"; }

# permits VALUE…: whether one of these names of the same thing is allowed, and none is denied.
permits() {
    local value allowed denied
    if grep -qE '^spec\.rules\[[0-9]+\]\.denyAll: +[Tt]rue' <<<"$effective"; then return 1; fi
    allowed=$(listed allowedValues) denied=$(listed deniedValues)
    for value in "$@"; do
        ! grep -qxF "$value" <<<"$denied" || return 1
    done
    [ -n "$allowed" ] || return 0
    for value in "$@"; do
        ! grep -qxF "$value" <<<"$allowed" || return 0
    done
    return 1
}

# exception RULE: how whoever administers organization policies lets this project through.
exception() {
    printf "ask whoever administers organization policies to except this project: a file with name: projects/%s/policies/%s and spec: {rules: [%s]}, then: gcloud org-policies set-policy FILE" "$project" "$constraint" "$1"
}

check_policies() {
    step "Policies"
    policies_known=yes
    check_invokers
    check_ingress
    check_locations
    check_keys
    [ "$entry" != load_balancer ] || check_balancers
    check_members
    check_binary_authorization
    stop_if_faulty
    [ "$policies_known" = no ] || note "none stands in the way"
}

# Deliveries come without an identity of Google's, and IAP's assertion is checked by the server.
check_invokers() {
    policy run.managed.requireInvokerIam
    ! enforced || fault "the policy run.managed.requireInvokerIam demands an identity of everybody who calls a Cloud Run service, and hosts deliver without one" \
        "$(exception '{enforce: false}'); or deploy elsewhere than on Cloud Run (docs/is-cloud-run-right.md)"
}

check_ingress() {
    local wanted=internal-and-cloud-load-balancing way=''
    if [ "$entry" = no_load_balancer ]; then wanted=all way='--entry load_balancer, which needs less; or '; fi
    policy run.allowedIngress
    permits "$wanted" || fault "the policy run.allowedIngress does not allow the ingress $wanted" "$way$(exception "{values: {allowedValues: [$wanted]}}")"
}

# The location of everything. A secret with automatic replication is kept in the location global.
check_locations() {
    local names=("$region" "in:$region-locations") other
    replication=(--replication-policy=automatic)
    case $region in
        europe-west2 | europe-west6) names+=(in:europe-locations) ;;
        europe-*) names+=(in:europe-locations in:eu-locations) ;;
        *) names+=("in:${region%%-*}-locations") ;;
    esac
    policy gcp.resourceLocations
    if ! permits "${names[@]}"; then
        other=$(listed allowedValues | grep '^in:' | grep -vE '^in:([a-z]+-[a-z]+[0-9]+|us|eu|europe|asia|africa|australia|northamerica|southamerica|me)-locations$' || true)
        if [ -z "$other" ]; then
            fault "the policy gcp.resourceLocations allows no resources in $region ($(listed allowedValues | tr '\n' ' '))" "another --region; or $(exception "{values: {allowedValues: ['in:$region-locations']}}")"
        else
            note "whether $region is among the locations of $(tr '\n' ' ' <<<"$other")is not known here"
        fi
    fi
    if ! permits global in:global-locations; then
        replication=(--replication-policy=user-managed --locations="$region")
        note "the policy gcp.resourceLocations does not allow global: secrets are kept in $region"
    fi
}

# Services that may only be used with a key of one's own.
check_keys() {
    local service wanted=''
    policy gcp.restrictNonCmekServices
    for service in $(listed deniedValues | sort); do
        case $service in run.googleapis.com | storage.googleapis.com | artifactregistry.googleapis.com | secretmanager.googleapis.com) wanted+=" $service" ;; esac
    done
    [ -n "$wanted" ] || return 0
    if [ -n "$tfvars" ] && grep -q 'kms_key' "$tfvars"; then
        note "a key of your own is demanded, and --tfvars names one; the bucket for Terraform's state and the secrets have to be there already, with it"
        return
    fi
    fault "the policy gcp.restrictNonCmekServices demands a key of your own for$wanted" "give the key to the module, with --tfvars and kms_key = { name = \"projects/…/cryptoKeys/…\" }; make what \
comes before Terraform by hand, and it is used: gcloud storage buckets create gs://$project-$name-tfstate --default-encryption-key=KEY, gcloud secrets create $name-… --replication-policy=user-managed --locations=$region \
--kms-key-name=KEY; and give --image, as a build keeps its source without the key. Or $(exception '{allowAll: true}')"
}

check_balancers() {
    policy compute.restrictLoadBalancerCreationForTypes
    permits GLOBAL_EXTERNAL_MANAGED_HTTP_HTTPS in:EXTERNAL || fault "the policy compute.restrictLoadBalancerCreationForTypes allows no global external Application Load Balancer" \
        "--entry no_load_balancer; or $(exception '{values: {allowedValues: [GLOBAL_EXTERNAL_MANAGED_HTTP_HTTPS]}}')"
    policy compute.disableGlobalLoadBalancing
    ! enforced || fault "the policy compute.disableGlobalLoadBalancing allows no global external Application Load Balancer" "--entry no_load_balancer; or $(exception '{enforce: false}')"
}

# Domain-restricted sharing: nothing here is open to allUsers, so it concerns only who sees the pages.
check_members() {
    local customers
    policy iam.allowedPolicyMemberDomains
    customers=$(listed allowedValues | tr '\n' ' ')
    [ -z "$customers" ] || note "the policy iam.allowedPolicyMemberDomains lets in members of ${customers% } only: --iap-member of another organization would be refused (gcloud organizations list shows whose that is)"
}

# Where the organization demands Binary Authorization, the service says so, and the project's policy has to admit the image.
check_binary_authorization() {
    local mode
    binary_authorization=false
    policy run.allowedBinaryAuthorizationPolicies
    [ -n "$(listed allowedValues)" ] || return 0
    binary_authorization=true
    mode=$(gcloud container binauthz policy export --project="$project" --format='value(defaultAdmissionRule.evaluationMode)' 2>/dev/null || true)
    case $mode in
        ALWAYS_ALLOW) note "Binary Authorization is demanded, and the project's policy admits every image" ;;
        '') note "Binary Authorization is demanded; the project's policy is not known before its API is on" ;;
        *) gcloud container binauthz policy export --project="$project" 2>/dev/null | grep -qF "$region-docker.pkg.dev/$project" \
            || fault "Binary Authorization admits attested images only ($mode; the policy run.allowedBinaryAuthorizationPolicies demands it)" \
                "gcloud container binauthz policy export, add admissionWhitelistPatterns with $region-docker.pkg.dev/$project/**, and import it; or sign the image" ;;
    esac
}
