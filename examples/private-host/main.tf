# A private GitHub Enterprise or Azure DevOps Server sends its deliveries through a load balancer inside the network; people come through the
# module's own, with IAP. Only exactly /events is reachable from inside, and Cloud Run takes it from there because its ingress is internal.
# docs/networks.md has what has to be there, and what each part does.

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

variable "network" {
  description = "Network that reaches the private host, projects/P/global/networks/N: of a host project, if it is shared."
  type        = string
}

variable "subnetwork" {
  description = "Subnetwork in the region, of which the server takes addresses: a /26 or larger."
  type        = string
}

variable "certificate" {
  description = "Regional certificate of the inner name, projects/P/regions/R/sslCertificates/C, of your own authority."
  type        = string
}

locals {
  region = "europe-west1"
  hosts  = ["10.20.0.0/24"] # what the private host sends from
}

module "tidelock" {
  source = "../../terraform"

  project_id      = var.project_id
  region          = local.region
  domain          = "tidelock.example.com"
  image           = "ghcr.io/example/tidelock@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  github          = { user = "acme-terraform-bot", hostname = "github.corp.example.com" }
  repo_allowlist  = ["github.corp.example.com/acme/*"]
  iap_members     = ["group:platform@example.com"]
  webhook_sources = local.hosts
  vpc             = { network = var.network, subnetwork = var.subnetwork }
}

# Proxies of the load balancer take their addresses here; one of these serves all such load balancers of a network and region.
resource "google_compute_subnetwork" "proxies" {
  #checkov:skip=CKV_GCP_74:proxies ask no API
  #checkov:skip=CKV_GCP_26:the load balancer logs each request
  project       = var.project_id
  name          = "tidelock-proxies"
  region        = local.region
  network       = var.network
  ip_cidr_range = "10.129.0.0/23"
  purpose       = "REGIONAL_MANAGED_PROXY"
  role          = "ACTIVE"
}

resource "google_compute_region_network_endpoint_group" "inside" {
  project               = var.project_id
  name                  = "tidelock-inside"
  region                = local.region
  network_endpoint_type = "SERVERLESS"

  cloud_run {
    service = module.tidelock.service_name
  }
}

resource "google_compute_region_backend_service" "inside" {
  project               = var.project_id
  name                  = "tidelock-inside"
  region                = local.region
  protocol              = "HTTPS"
  load_balancing_scheme = "INTERNAL_MANAGED"

  backend {
    group           = google_compute_region_network_endpoint_group.inside.id
    balancing_mode  = "UTILIZATION"
    capacity_scaler = 1
  }

  log_config {
    enable      = true
    sample_rate = 1
  }
}

resource "google_compute_region_url_map" "inside" {
  project = var.project_id
  name    = "tidelock-inside"
  region  = local.region

  # Pages are behind IAP, on the other load balancer.
  default_url_redirect {
    host_redirect  = "tidelock.example.com"
    https_redirect = true
    strip_query    = true
  }

  host_rule {
    hosts        = ["*"]
    path_matcher = "deliveries"
  }

  path_matcher {
    name = "deliveries"

    default_url_redirect {
      host_redirect  = "tidelock.example.com"
      https_redirect = true
      strip_query    = true
    }

    path_rule {
      paths   = ["/events"] # exactly: no /*
      service = google_compute_region_backend_service.inside.id
    }
  }
}

resource "google_compute_region_target_https_proxy" "inside" {
  project          = var.project_id
  name             = "tidelock-inside"
  region           = local.region
  url_map          = google_compute_region_url_map.inside.id
  ssl_certificates = [var.certificate]
}

resource "google_compute_address" "inside" {
  project      = var.project_id
  name         = "tidelock-inside"
  region       = local.region
  address_type = "INTERNAL"
  subnetwork   = var.subnetwork
  purpose      = "SHARED_LOADBALANCER_VIP"
}

resource "google_compute_forwarding_rule" "inside" {
  project               = var.project_id
  name                  = "tidelock-inside"
  region                = local.region
  load_balancing_scheme = "INTERNAL_MANAGED"
  network               = var.network
  subnetwork            = var.subnetwork
  ip_address            = google_compute_address.inside.id
  port_range            = "443"
  target                = google_compute_region_target_https_proxy.inside.id
  allow_global_access   = true # from other regions, and over VPN and Interconnect

  depends_on = [google_compute_subnetwork.proxies]
}

output "inner_address" {
  description = "What the inner name has to point at, in your own DNS; the webhook's address is https://INNER-NAME/events."
  value       = google_compute_address.inside.address
}
