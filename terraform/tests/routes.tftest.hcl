# Who reaches what: the promises of the load balancer, Cloud Armor and IAP. Providers are mocked; nothing leaves the machine.

mock_provider "google" {
  mock_data "google_project" {
    defaults = { number = "123456789012" }
  }
  mock_resource "google_service_account" {
    defaults = { email = "tidelock-server@acme-infra.iam.gserviceaccount.com", member = "serviceAccount:tidelock-server@acme-infra.iam.gserviceaccount.com" }
  }
  mock_resource "google_compute_backend_service" {
    defaults = { generated_id = 4711 }
  }
  mock_resource "google_compute_global_address" {
    defaults = { address = "203.0.113.7" }
  }
}

variables {
  project_id     = "acme-infra"
  region         = "europe-west1"
  domain         = "tidelock.example.com"
  image          = "ghcr.io/example/tidelock:0.1.0"
  github         = { user = "acme-bot" }
  repo_allowlist = ["github.com/acme/*"]
  secret_values  = { gh_token = "hush-token", gh_webhook_secret = "hush-secret" } # `terraform test` wants ephemeral variables set
  iap_members    = ["group:platform@example.com"]
}

run "only_exactly_events_is_open" {
  assert {
    condition     = google_compute_url_map.https[0].path_matcher[0].path_rule[0].paths == tolist(["/events"])
    error_message = "A path other than exactly /events leads past IAP."
  }
  assert {
    condition     = length(google_compute_url_map.https[0].path_matcher[0].path_rule) == 1
    error_message = "There is more than one way past IAP."
  }
  assert {
    condition     = google_compute_url_map.https[0].path_matcher[0].default_service == google_compute_backend_service.pages[0].id
    error_message = "The default is not the backend behind IAP."
  }
  assert {
    condition     = google_compute_backend_service.pages[0].iap[0].enabled && length(google_compute_backend_service.events[0].iap) == 0
    error_message = "IAP is not on the pages' backend, or is on the one for deliveries."
  }
  assert {
    condition     = length([for t in google_compute_url_map.https[0].test : t if t.path != "/events" && t.service == google_compute_backend_service.events[0].id]) == 0
    error_message = "A routing test expects an open path."
  }
  assert {
    condition     = length([for t in google_compute_url_map.https[0].test : t if t.path == "/events" && t.service == google_compute_backend_service.events[0].id]) == 1
    error_message = "No routing test says that /events is open."
  }
}

run "both_backends_lead_to_the_one_service" {
  assert {
    condition     = one(google_compute_backend_service.events[0].backend).group == one(google_compute_backend_service.pages[0].backend).group
    error_message = "The backends are on two endpoint groups."
  }
  assert {
    condition     = google_compute_region_network_endpoint_group.leader[0].cloud_run[0].service == google_cloud_run_v2_service.leader.name
    error_message = "The endpoint group names another service."
  }
}

run "the_server_is_told_the_backend_that_iap_guards" {
  assert {
    condition     = output.iap_audience == "/projects/123456789012/global/backendServices/4711"
    error_message = "The audience is not the pages' backend: ${output.iap_audience}"
  }
  assert {
    condition     = one([for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : e.value if e.name == "TIDELOCK_IAP_AUDIENCE"]) == output.iap_audience
    error_message = "The server does not get the audience."
  }
  assert {
    condition     = one([for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : e.value if e.name == "TIDELOCK_TRUSTED_PROXY_HOPS"]) == "2"
    error_message = "Behind a load balancer the client is the second address from the right."
  }
}

run "nobody_gets_around_the_load_balancer" {
  assert {
    condition     = google_cloud_run_v2_service.leader.ingress == "INGRESS_TRAFFIC_INTERNAL_LOAD_BALANCER" && google_cloud_run_v2_service.leader.default_uri_disabled
    error_message = "The service can be reached without the load balancer."
  }
  assert {
    condition     = length(google_cloud_run_v2_service.inbox) == 0
    error_message = "There is a public receiver beside the load balancer."
  }
}

run "cloud_armor_lets_the_host_in_and_denies_the_rest" {
  variables {
    webhook_sources = ["github", "azuredevops", "198.51.100.0/24"]
  }
  assert {
    condition     = alltrue([for r in google_compute_security_policy.events[0].rule : length(try(r.match[0].config[0].src_ip_ranges, [])) <= 10])
    error_message = "A rule has more than ten ranges."
  }
  assert {
    condition     = length(flatten([for r in google_compute_security_policy.events[0].rule : r.match[0].config[0].src_ip_ranges if r.action == "throttle"])) == 31
    error_message = "Not every range of GitHub (6), Azure DevOps (24) and our own (1) is in a rule."
  }
  assert {
    condition     = one([for r in google_compute_security_policy.events[0].rule : r.action if r.priority == 2147483647]) == "deny(403)"
    error_message = "The last rule does not deny."
  }
  assert {
    condition     = length([for r in google_compute_security_policy.events[0].rule : r if r.action == "allow"]) == 0
    error_message = "A rule lets in without a limit."
  }
  assert {
    condition     = one([for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : e.value if e.name == "TIDELOCK_WEBHOOK_ALLOWLIST"]) == "198.51.100.0/24,azuredevops,github"
    error_message = "The server's list differs from Cloud Armor's."
  }
}

run "without_armor_the_server_still_has_its_list" {
  variables {
    enable_cloud_armor = false
  }
  assert {
    condition     = length(google_compute_security_policy.events) == 0 && google_compute_backend_service.events[0].security_policy == null
    error_message = "A policy is made all the same."
  }
  assert {
    condition     = one([for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : e.value if e.name == "TIDELOCK_WEBHOOK_ALLOWLIST"]) == "github"
    error_message = "Nobody checks addresses."
  }
}

run "a_base_path_moves_events" {
  variables {
    base_path = "/tidelock"
  }
  assert {
    condition     = google_compute_url_map.https[0].path_matcher[0].path_rule[0].paths == tolist(["/tidelock/events"])
    error_message = "/events is not below the base path."
  }
  assert {
    condition     = output.events_url == "https://tidelock.example.com/tidelock/events"
    error_message = "The webhook's address is wrong: ${output.events_url}"
  }
}

run "without_a_load_balancer_two_services_share_the_bucket" {
  variables {
    entry  = "no_load_balancer"
    domain = null
  }
  assert {
    condition     = google_cloud_run_v2_service.leader.iap_enabled && !google_cloud_run_v2_service.leader.invoker_iam_disabled
    error_message = "The leader is not behind IAP."
  }
  assert {
    condition     = one([for e in google_cloud_run_v2_service.inbox[0].template[0].containers[0].env : e.value if e.name == "TIDELOCK_EVENTS_ONLY"]) == "true"
    error_message = "The public service serves more than /events."
  }
  assert {
    condition     = length([for e in google_cloud_run_v2_service.inbox[0].template[0].containers[0].env : e if e.name == "TIDELOCK_GH_TOKEN"]) == 0
    error_message = "The public service has the token."
  }
  assert {
    condition     = alltrue([for m in google_storage_bucket_iam_member.inbox : strcontains(one(m.condition).expression, "/objects/tidelock/inbox/")])
    error_message = "The public service has rights outside the inbox."
  }
  assert {
    condition     = [for e in google_cloud_run_v2_service.inbox[0].template[0].containers[0].env : e.value if e.name == "TIDELOCK_BUCKET"] == [for e in google_cloud_run_v2_service.leader.template[0].containers[0].env : e.value if e.name == "TIDELOCK_BUCKET"]
    error_message = "Leader and receiver have different buckets."
  }
  assert {
    condition     = output.iap_audience == "/projects/123456789012/locations/europe-west1/services/tidelock"
    error_message = "The audience is wrong: ${output.iap_audience}"
  }
  assert {
    condition     = length(google_compute_url_map.https) + length(google_compute_security_policy.events) + length(google_compute_global_address.this) == 0
    error_message = "Something of a load balancer is made."
  }
  assert {
    condition     = output.events_url == "https://tidelock-inbox-123456789012.europe-west1.run.app/events"
    error_message = "The webhook's address is wrong: ${output.events_url}"
  }
  assert {
    condition     = alltrue([for m in google_iap_web_cloud_run_service_iam_member.pages : m.cloud_run_service_name == "tidelock" && m.project == "123456789012"])
    error_message = "People are let into more than this service, or its project is not named by number."
  }
}

run "an_existing_load_balancer_gets_backends_only" {
  variables {
    entry = "existing_load_balancer"
  }
  assert {
    condition     = length(google_compute_url_map.https) + length(google_compute_global_forwarding_rule.https) + length(google_compute_managed_ssl_certificate.this) == 0
    error_message = "A load balancer is made."
  }
  assert {
    condition     = output.events_backend != null && output.pages_backend != null
    error_message = "There is nothing to route to."
  }
}

run "plain_http_is_sent_to_https" {
  assert {
    condition     = google_compute_url_map.redirect[0].default_url_redirect[0].https_redirect
    error_message = "Plain HTTP is served."
  }
  assert {
    condition     = google_compute_global_forwarding_rule.http["IPV4"].target == google_compute_target_http_proxy.redirect[0].id
    error_message = "Port 80 leads elsewhere."
  }
}
