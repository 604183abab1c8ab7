# A load balancer is there already, with its address, certificate and proxies. The module makes backends and policies; the URL map
# sends one host name to them.

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

variable "default_service" {
  description = "Backend that the load balancer's other host names go to."
  type        = string
}

locals {
  domain = "tidelock.example.com"
}

module "tidelock" {
  source = "../.."

  project_id     = var.project_id
  region         = "europe-west1"
  entry          = "existing_load_balancer"
  domain         = local.domain
  image          = "ghcr.io/example/tidelock@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  github         = { user = "acme-terraform-bot" }
  repo_allowlist = ["github.com/acme/*"]
  iap_members    = ["group:platform@example.com"]
}

# Stands for the map that your proxy uses already: host_rule, path_matcher and tests are what to add to it.
resource "google_compute_url_map" "shared" {
  project         = var.project_id
  name            = "shared"
  default_service = var.default_service

  host_rule {
    hosts        = [local.domain]
    path_matcher = "tidelock"
  }

  path_matcher {
    name            = "tidelock"
    default_service = module.tidelock.pages_backend

    path_rule {
      paths   = ["/events"] # exactly: no /*, or the pages' paths below it would be open
      service = module.tidelock.events_backend
    }
  }

  test {
    host    = local.domain
    path    = "/events"
    service = module.tidelock.events_backend
  }

  test {
    host    = local.domain
    path    = "/events/"
    service = module.tidelock.pages_backend
  }

  test {
    host    = local.domain
    path    = "/"
    service = module.tidelock.pages_backend
  }
}

output "next_steps" {
  description = "What is left to do."
  value       = module.tidelock.next_steps
}
