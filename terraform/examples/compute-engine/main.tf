# Outside Cloud Run: one machine of an instance group, behind the same load balancer, with the same access control. A machine has a minute and
# more to end instead of ten seconds, and a disk instead of memory to work on. docs/outside-cloud-run.md says what is better and what is not.
#
# The two secrets exist already, each with a version:
#   gcloud secrets create tidelock-gh-token --data-file=-           (paste the token, Ctrl-D)
#   openssl rand -hex 32 | tr -d '\n' | gcloud secrets create tidelock-gh-webhook-secret --data-file=-

terraform {
  required_version = ">= 1.11"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.24, < 9"
    }
  }
}

variable "project_id" {
  description = "Project that everything is made in."
  type        = string
}

variable "image" {
  description = "The server's image, by digest: the machine pulls it without credentials."
  type        = string
  default     = "ghcr.io/example/tidelock@sha256:0000000000000000000000000000000000000000000000000000000000000000"
}

locals {
  # Whatever is made in it waits for its APIs.
  project = distinct([for api in google_project_service.this : api.project])[0]

  name    = "tidelock"
  region  = "europe-west1"
  domain  = "tidelock.example.com"
  port    = 4141
  people  = ["group:platform@example.com"]
  secrets = { GH_TOKEN = "tidelock-gh-token", GH_WEBHOOK_SECRET = "tidelock-gh-webhook-secret" }

  # Of api.github.com/meta (hooks), as in ../../armor.tf, which has other hosts' too. Ten are the most that a rule takes.
  webhook_ranges = ["140.82.112.0/20", "143.55.64.0/20", "185.199.108.0/22", "192.30.252.0/22", "2606:50c0::/32", "2a0a:a440::/29"]

  # Where Google's load balancers and their health checks come from.
  balancer_ranges = ["130.211.0.0/22", "35.191.0.0/16"]

  # A machine has ninety seconds from being told to stop until it is off.
  shutdown_grace = 75

  settings = {
    TIDELOCK_ATLANTIS_URL       = "https://${local.domain}"
    TIDELOCK_BUCKET             = "gs://${google_storage_bucket.state.name}/state"
    TIDELOCK_GH_USER            = "acme-terraform-bot"
    TIDELOCK_LOG_PROJECT        = var.project_id
    TIDELOCK_PORT               = local.port
    TIDELOCK_REPO_ALLOWLIST     = "github.com/acme/*"
    TIDELOCK_SHUTDOWN_GRACE     = "${local.shutdown_grace}s"
    TIDELOCK_TRUSTED_PROXY_HOPS = 2 # the load balancer adds the client's address and its own
    TIDELOCK_WEBHOOK_ALLOWLIST  = "github"
    TIDELOCK_REPO_CONFIG_JSON = jsonencode({ repos = [
      { id = "/.*/", repo_locks = { mode = "strict" }, apply_requirements = ["approved", "mergeable"] }
    ] })
  }
}

# Through Resource Manager the others are switched on, and the project's number is read.
resource "google_project_service" "resource_manager" {
  project            = var.project_id
  service            = "cloudresourcemanager.googleapis.com"
  disable_on_destroy = false
}

resource "google_project_service" "this" {
  for_each = toset(["compute", "iam", "iap", "logging", "secretmanager", "storage"])

  project            = google_project_service.resource_manager.project
  service            = "${each.value}.googleapis.com"
  disable_on_destroy = false
}

data "google_project" "this" {
  project_id = var.project_id

  depends_on = [google_project_service.resource_manager]
}

# The state: the same bucket as for Cloud Run, and either may follow the other on it.

resource "google_storage_bucket" "state" {
  #checkov:skip=CKV_GCP_62:an access log would be a second bucket; Cloud Audit Logs tell who reads
  project                     = local.project
  name                        = "${var.project_id}-${local.name}-state"
  location                    = local.region
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"

  versioning {
    enabled = true
  }

  # Never on live objects: those are the server's to remove.
  lifecycle_rule {
    action {
      type = "Delete"
    }
    condition {
      days_since_noncurrent_time = 14
      with_state                 = "ARCHIVED"
    }
  }
}

# Who the server is. Whatever a pull request runs has this identity too: the machine's metadata server gives it.

resource "google_service_account" "server" {
  project      = local.project
  account_id   = "${local.name}-server"
  display_name = "Tidelock"
}

resource "google_storage_bucket_iam_member" "server" {
  bucket = google_storage_bucket.state.name
  role   = "roles/storage.objectUser"
  member = google_service_account.server.member
}

resource "google_secret_manager_secret_iam_member" "server" {
  for_each = local.secrets

  project   = local.project
  secret_id = each.value
  role      = "roles/secretmanager.secretAccessor"
  member    = google_service_account.server.member
}

resource "google_project_iam_member" "logs" {
  project = local.project
  role    = "roles/logging.logWriter"
  member  = google_service_account.server.member
}

# Its network: no public address, and a way in for the load balancer alone.

resource "google_compute_network" "this" {
  project                 = local.project
  name                    = local.name
  auto_create_subnetworks = false
}

resource "google_compute_subnetwork" "this" {
  project                  = local.project
  name                     = local.name
  region                   = local.region
  network                  = google_compute_network.this.id
  ip_cidr_range            = "10.10.0.0/28"
  private_ip_google_access = true

  log_config {
    aggregation_interval = "INTERVAL_10_MIN"
    flow_sampling        = 0.1
    metadata             = "EXCLUDE_ALL_METADATA"
  }
}

resource "google_compute_router" "this" {
  project = local.project
  name    = local.name
  region  = local.region
  network = google_compute_network.this.id
}

resource "google_compute_router_nat" "this" {
  project                            = local.project
  name                               = local.name
  region                             = local.region
  router                             = google_compute_router.this.name
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "ALL_SUBNETWORKS_ALL_IP_RANGES"
}

resource "google_compute_firewall" "balancer" {
  project                 = local.project
  name                    = "${local.name}-balancer"
  network                 = google_compute_network.this.id
  direction               = "INGRESS"
  source_ranges           = local.balancer_ranges
  target_service_accounts = [google_service_account.server.email]

  allow {
    protocol = "tcp"
    ports    = [local.port]
  }
}

# The machine. cloud-init starts one container, with settings from here and secrets from Secret Manager.

resource "google_compute_instance_template" "server" {
  project      = local.project
  name_prefix  = "${local.name}-"
  machine_type = "e2-standard-2"
  region       = local.region

  disk {
    source_image = "projects/cos-cloud/global/images/family/cos-121-lts"
    boot         = true
    auto_delete  = true
    disk_type    = "pd-balanced"
    disk_size_gb = 50 # checkouts, tools and caches; nothing that is kept
  }

  network_interface {
    subnetwork = google_compute_subnetwork.this.id
  }

  service_account {
    email  = google_service_account.server.email
    scopes = ["cloud-platform"]
  }

  shielded_instance_config {
    enable_secure_boot          = true
    enable_vtpm                 = true
    enable_integrity_monitoring = true
  }

  metadata = {
    block-project-ssh-keys    = "true"
    enable-oslogin            = "TRUE"
    google-logging-enabled    = "true"
    google-monitoring-enabled = "true"
    user-data = templatefile("${path.module}/cloud-init.yaml.tftpl", {
      audience = "${local.name}-iap-audience"
      grace    = local.shutdown_grace + 5
      image    = var.image
      port     = local.port
      project  = var.project_id
      secrets  = local.secrets
      settings = local.settings
    })
  }

  lifecycle {
    create_before_destroy = true
  }

  depends_on = [google_secret_manager_secret_iam_member.server, google_storage_bucket_iam_member.server]
}

resource "google_compute_health_check" "server" {
  project             = local.project
  name                = local.name
  check_interval_sec  = 15
  timeout_sec         = 5
  unhealthy_threshold = 4

  http_health_check {
    port         = local.port
    request_path = "/healthz" # in any role: a standby takes deliveries
  }

  log_config {
    enable = true
  }
}

# One machine, wherever in the region there is room. A rollout makes the new one first: it stands by until the old one, told to stop, hands over.
resource "google_compute_region_instance_group_manager" "server" {
  project            = local.project
  name               = local.name
  region             = local.region
  base_instance_name = local.name
  target_size        = 1

  version {
    instance_template = google_compute_instance_template.server.self_link_unique
  }

  named_port {
    name = "http"
    port = local.port
  }

  auto_healing_policies {
    health_check      = google_compute_health_check.server.id
    initial_delay_sec = 300
  }

  update_policy {
    type                  = "PROACTIVE"
    minimal_action        = "REPLACE"
    replacement_method    = "SUBSTITUTE"
    max_surge_fixed       = 3 # of a regional group: none, or at least one a zone
    max_unavailable_fixed = 0
  }
}

# The same two backends as for Cloud Run: exactly /events for the host, the rest behind Identity-Aware Proxy.

resource "google_compute_security_policy" "events" {
  project = local.project
  name    = "${local.name}-events"

  rule {
    action   = "throttle"
    priority = 1000
    match {
      versioned_expr = "SRC_IPS_V1"
      config {
        src_ip_ranges = local.webhook_ranges
      }
    }
    rate_limit_options {
      conform_action = "allow"
      exceed_action  = "deny(429)"
      enforce_on_key = "IP"
      rate_limit_threshold {
        count        = 6000
        interval_sec = 60
      }
    }
  }

  # Everybody else is refused below in any case; this names the attempt in the log.
  rule {
    action   = "deny(403)"
    priority = 2000
    match {
      expr {
        expression = "evaluatePreconfiguredExpr('cve-canary')"
      }
    }
  }

  rule {
    action   = "deny(403)"
    priority = 2147483647
    match {
      versioned_expr = "SRC_IPS_V1"
      config {
        src_ip_ranges = ["*"]
      }
    }
  }
}

resource "google_compute_backend_service" "this" {
  for_each = toset(["events", "pages"])

  project               = local.project
  name                  = "${local.name}-${each.key}"
  protocol              = "HTTP"
  port_name             = "http"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  timeout_sec           = 3600 # live logs; readers connect again after that
  health_checks         = [google_compute_health_check.server.id]
  security_policy       = each.key == "events" ? google_compute_security_policy.events.id : null

  # A machine that stops finishes what it answers.
  connection_draining_timeout_sec = 60
  custom_response_headers         = ["Strict-Transport-Security: max-age=31536000"]

  backend {
    group = google_compute_region_instance_group_manager.server.instance_group
  }

  dynamic "iap" {
    for_each = each.key == "pages" ? [true] : []
    content {
      enabled = true
    }
  }

  log_config {
    enable      = true
    sample_rate = 1
  }
}

# The server checks IAP's assertions, so it has to know the backend, which is made after it. The machine waits for this value.
resource "google_compute_project_metadata_item" "audience" {
  project = local.project
  key     = "${local.name}-iap-audience"
  value   = "/projects/${data.google_project.this.number}/global/backendServices/${google_compute_backend_service.this["pages"].generated_id}"
}

resource "google_iap_web_backend_service_iam_member" "people" {
  for_each = toset(local.people)

  project             = local.project
  web_backend_service = google_compute_backend_service.this["pages"].name
  role                = "roles/iap.httpsResourceAccessor"
  member              = each.value
}

resource "google_compute_url_map" "https" {
  project = local.project
  name    = local.name

  default_url_redirect {
    host_redirect          = local.domain
    https_redirect         = true
    redirect_response_code = "FOUND"
    strip_query            = true
  }

  host_rule {
    hosts        = [local.domain]
    path_matcher = "tidelock"
  }

  path_matcher {
    name            = "tidelock"
    default_service = google_compute_backend_service.this["pages"].id

    path_rule {
      paths   = ["/events"] # exactly: no /*, or the pages' paths below it would be open
      service = google_compute_backend_service.this["events"].id
    }
  }

  # The API runs these before it takes the map.
  dynamic "test" {
    for_each = { "/events" = "events", "/events/" = "pages", "/events/x" = "pages", "/eventsx" = "pages", "/" = "pages", "/api/plan" = "pages" }
    content {
      host    = local.domain
      path    = test.key
      service = google_compute_backend_service.this[test.value].id
    }
  }
}

resource "google_compute_url_map" "redirect" {
  project = local.project
  name    = "${local.name}-redirect"

  default_url_redirect {
    https_redirect         = true
    redirect_response_code = "MOVED_PERMANENTLY_DEFAULT"
    strip_query            = false
  }
}

resource "google_compute_managed_ssl_certificate" "this" {
  project = local.project
  name    = local.name

  managed {
    domains = [local.domain]
  }
}

resource "google_compute_ssl_policy" "this" {
  project         = local.project
  name            = local.name
  profile         = "MODERN"
  min_tls_version = "TLS_1_2"
}

resource "google_compute_target_https_proxy" "https" {
  project          = local.project
  name             = local.name
  url_map          = google_compute_url_map.https.id
  ssl_policy       = google_compute_ssl_policy.this.id
  ssl_certificates = [google_compute_managed_ssl_certificate.this.id]
}

resource "google_compute_target_http_proxy" "redirect" {
  project = local.project
  name    = "${local.name}-redirect"
  url_map = google_compute_url_map.redirect.id
}

resource "google_compute_global_address" "this" {
  project = local.project
  name    = local.name
}

resource "google_compute_global_forwarding_rule" "https" {
  project               = local.project
  name                  = "${local.name}-https"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  ip_address            = google_compute_global_address.this.id
  port_range            = "443"
  target                = google_compute_target_https_proxy.https.id
}

resource "google_compute_global_forwarding_rule" "http" {
  project               = local.project
  name                  = "${local.name}-http"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  ip_address            = google_compute_global_address.this.id
  port_range            = "80"
  target                = google_compute_target_http_proxy.redirect.id
}

output "ip_address" {
  description = "What the domain's A record has to point at; the certificate comes some minutes later."
  value       = google_compute_global_address.this.address
}

output "service_account" {
  description = "Email of the identity that plans and applies run with. Give it what they need, or let it impersonate."
  value       = google_service_account.server.email
}
