# Two backends on one endpoint group: exactly /events for the VCS host, everything else for people. A request that is nearly
# /events (/events/, //events, /Events) falls to the people's one, behind IAP.

resource "google_compute_region_network_endpoint_group" "leader" {
  count = local.with_balancer ? 1 : 0

  project               = var.project_id
  name                  = var.name
  region                = var.region
  network_endpoint_type = "SERVERLESS"

  # A literal, not the service's attribute: the service needs the id of a backend on this group, and that would be a cycle.
  cloud_run {
    service = var.name
  }

  # In another region: the backends leave the old group before it goes ("is already being used by" otherwise).
  lifecycle {
    create_before_destroy = true
  }

  depends_on = [google_project_service.this]
}

locals {
  response_headers = ["Strict-Transport-Security: max-age=31536000"]
}

resource "google_compute_backend_service" "events" {
  count = local.with_balancer ? 1 : 0

  project                 = var.project_id
  name                    = "${var.name}-events"
  description             = "Deliveries of the VCS host; each is signed"
  protocol                = "HTTPS"
  load_balancing_scheme   = "EXTERNAL_MANAGED"
  security_policy         = one(google_compute_security_policy.events[*].id)
  custom_response_headers = local.response_headers

  backend {
    group = one(google_compute_region_network_endpoint_group.leader[*].id)
  }

  log_config {
    enable      = true
    sample_rate = 1
  }
}

resource "google_compute_backend_service" "pages" {
  count = local.with_balancer ? 1 : 0

  project                 = var.project_id
  name                    = "${var.name}-pages"
  description             = "Pages and API, for people whom IAP knows"
  protocol                = "HTTPS"
  load_balancing_scheme   = "EXTERNAL_MANAGED"
  security_policy         = one(google_compute_security_policy.pages[*].id)
  custom_response_headers = local.response_headers

  backend {
    group = one(google_compute_region_network_endpoint_group.leader[*].id)
  }

  iap {
    enabled              = true
    oauth2_client_id     = try(var.iap_oauth_client.client_id, null)
    oauth2_client_secret = try(var.iap_oauth_client.client_secret, null)
  }

  log_config {
    enable      = true
    sample_rate = 1
  }
}

resource "google_compute_url_map" "https" {
  count = local.own_balancer ? 1 : 0

  project     = var.project_id
  name        = var.name
  description = "/events to the VCS host's backend, the rest behind IAP; other host names are sent to ours"

  default_url_redirect {
    host_redirect          = var.domain
    https_redirect         = true
    redirect_response_code = "FOUND"
    strip_query            = true
  }

  host_rule {
    hosts        = [var.domain]
    path_matcher = "tidelock"
  }

  path_matcher {
    name            = "tidelock"
    default_service = one(google_compute_backend_service.pages[*].id)

    path_rule {
      paths   = ["${var.base_path}/events"]
      service = one(google_compute_backend_service.events[*].id)
    }
  }

  # The API runs these before it takes the map: a mistake here cannot open the pages.
  dynamic "test" {
    for_each = local.routes_to_test
    content {
      description = test.value.why
      host        = var.domain
      path        = test.value.path
      service     = test.value.events ? one(google_compute_backend_service.events[*].id) : one(google_compute_backend_service.pages[*].id)
    }
  }
}

locals {
  routes_to_test = [
    { path = "${var.base_path}/events", events = true, why = "deliveries" },
    { path = "${var.base_path}/events/", events = false, why = "not quite /events" },
    { path = "${var.base_path}/events/x", events = false, why = "below /events" },
    { path = "${var.base_path}/eventsx", events = false, why = "begins like /events" },
    { path = "${var.base_path}/", events = false, why = "the dashboard" },
    { path = "${var.base_path}/locks", events = false, why = "locks" },
    { path = "${var.base_path}/jobs/1", events = false, why = "logs" },
    { path = "${var.base_path}/api/plan", events = false, why = "the API" },
    { path = "${var.base_path}/apply/lock", events = false, why = "the apply lock" },
    { path = "${var.base_path}/healthz", events = false, why = "health" },
  ]
}

resource "google_compute_target_https_proxy" "https" {
  count = local.own_balancer ? 1 : 0

  project          = var.project_id
  name             = var.name
  url_map          = one(google_compute_url_map.https[*].id)
  ssl_policy       = one(google_compute_ssl_policy.this[*].id)
  ssl_certificates = local.certificate_map == null ? local.ssl_certificates : null
  certificate_map  = local.certificate_map

  # A map without its entry has no certificate to show: the proxy takes the map after the entry is there, and leaves it before.
  depends_on = [google_certificate_manager_certificate_map_entry.this]
}

resource "google_compute_ssl_policy" "this" {
  count = local.own_balancer ? 1 : 0

  project         = var.project_id
  name            = var.name
  profile         = "MODERN"
  min_tls_version = "TLS_1_2"

  depends_on = [google_project_service.this]
}

# Plain HTTP is answered with the same address in HTTPS, whatever the host name.
resource "google_compute_url_map" "redirect" {
  count = local.own_balancer ? 1 : 0

  project     = var.project_id
  name        = "${var.name}-redirect"
  description = "HTTP to HTTPS"

  default_url_redirect {
    https_redirect         = true
    redirect_response_code = "MOVED_PERMANENTLY_DEFAULT"
    strip_query            = false
  }

  depends_on = [google_project_service.this]
}

resource "google_compute_target_http_proxy" "redirect" {
  count = local.own_balancer ? 1 : 0

  project = var.project_id
  name    = "${var.name}-redirect"
  url_map = one(google_compute_url_map.redirect[*].id)
}

locals {
  ip_versions = local.own_balancer ? toset(concat(["IPV4"], var.ipv6 ? ["IPV6"] : [])) : toset([])
}

resource "google_compute_global_address" "this" {
  for_each = local.ip_versions

  project    = var.project_id
  name       = "${var.name}-${lower(each.value)}"
  ip_version = each.value
  labels     = local.labels

  depends_on = [google_project_service.this]
}

resource "google_compute_global_forwarding_rule" "https" {
  for_each = local.ip_versions

  project               = var.project_id
  name                  = "${var.name}-https-${lower(each.value)}"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  ip_address            = google_compute_global_address.this[each.value].id
  port_range            = "443"
  target                = one(google_compute_target_https_proxy.https[*].id)
  labels                = local.labels
}

resource "google_compute_global_forwarding_rule" "http" {
  for_each = local.ip_versions

  project               = var.project_id
  name                  = "${var.name}-http-${lower(each.value)}"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  ip_address            = google_compute_global_address.this[each.value].id
  port_range            = "80"
  target                = one(google_compute_target_http_proxy.redirect[*].id)
  labels                = local.labels
}
