# Two servers in one project behind one load balancer. Each has an identity, bucket, secrets and host name of its own: what runs in the pull
# requests of one has no right on what the other manages.

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

variable "region" {
  description = "Region of everything."
  type        = string
  default     = "europe-west1"
}

locals {
  servers = {
    platform = { domain = "platform.tidelock.example.com", repos = ["github.com/acme/platform-*"], people = ["group:platform@example.com"] }
    payments = { domain = "payments.tidelock.example.com", repos = ["github.com/acme/payments-*"], people = ["group:payments@example.com"] }
  }
}

module "tidelock" {
  source   = "../.."
  for_each = local.servers

  project_id     = var.project_id
  region         = var.region
  name           = each.key
  entry          = "existing_load_balancer"
  domain         = each.value.domain
  image          = "ghcr.io/example/tidelock@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  github         = { user = "acme-terraform-bot" }
  secrets        = { gh_token = "tidelock-gh-token" } # one bot for both; the webhook secret is each server's
  repo_allowlist = each.value.repos
  iap_members    = each.value.people
}

# The load balancer that both share.
resource "google_compute_global_address" "this" {
  project = var.project_id
  name    = "tidelock"

  depends_on = [module.tidelock]
}

resource "google_compute_managed_ssl_certificate" "this" {
  project = var.project_id
  name    = "tidelock-${substr(sha256(join(",", values(local.servers)[*].domain)), 0, 8)}"

  managed {
    domains = values(local.servers)[*].domain
  }

  lifecycle {
    create_before_destroy = true
  }

  depends_on = [module.tidelock]
}

resource "google_compute_url_map" "https" {
  project = var.project_id
  name    = "tidelock"

  default_url_redirect {
    host_redirect          = local.servers.platform.domain
    https_redirect         = true
    redirect_response_code = "FOUND"
    strip_query            = true
  }

  dynamic "host_rule" {
    for_each = local.servers
    content {
      hosts        = [host_rule.value.domain]
      path_matcher = host_rule.key
    }
  }

  dynamic "path_matcher" {
    for_each = local.servers
    content {
      name            = path_matcher.key
      default_service = module.tidelock[path_matcher.key].pages_backend

      path_rule {
        paths   = ["/events"] # exactly: no /*, or the pages' paths below it would be open
        service = module.tidelock[path_matcher.key].events_backend
      }
    }
  }

  dynamic "test" {
    for_each = local.servers
    content {
      host    = test.value.domain
      path    = "/events"
      service = module.tidelock[test.key].events_backend
    }
  }

  dynamic "test" {
    for_each = local.servers
    content {
      host    = test.value.domain
      path    = "/"
      service = module.tidelock[test.key].pages_backend
    }
  }
}

resource "google_compute_ssl_policy" "this" {
  project         = var.project_id
  name            = "tidelock"
  profile         = "MODERN"
  min_tls_version = "TLS_1_2"

  depends_on = [module.tidelock]
}

resource "google_compute_target_https_proxy" "https" {
  project          = var.project_id
  name             = "tidelock"
  url_map          = google_compute_url_map.https.id
  ssl_policy       = google_compute_ssl_policy.this.id
  ssl_certificates = [google_compute_managed_ssl_certificate.this.id]
}

resource "google_compute_global_forwarding_rule" "https" {
  project               = var.project_id
  name                  = "tidelock"
  load_balancing_scheme = "EXTERNAL_MANAGED"
  ip_address            = google_compute_global_address.this.id
  port_range            = "443"
  target                = google_compute_target_https_proxy.https.id
}

output "address" {
  description = "Address that both host names have to point at."
  value       = google_compute_global_address.this.address
}

output "next_steps" {
  description = "Steps that are left for each server."
  value       = { for name, server in module.tidelock : name => server.next_steps }
}
