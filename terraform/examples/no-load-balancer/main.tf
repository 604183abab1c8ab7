# Without load balancer, domain and Cloud Armor: a public service takes deliveries and stores them, the leader is behind IAP on its own
# run.app address. The cheapest, and the one for projects without a quota of Cloud Armor rules.

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

module "tidelock" {
  source = "../.."

  project_id     = var.project_id
  region         = "europe-west1"
  entry          = "no_load_balancer"
  image          = "ghcr.io/example/tidelock@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  github         = { user = "acme-terraform-bot" }
  repo_allowlist = ["github.com/acme/*"]
  iap_members    = ["group:platform@example.com"]
  monitoring     = { emails = ["platform@example.com"] }
}

output "events_url" {
  description = "Payload URL of the webhook."
  value       = module.tidelock.events_url
}

output "next_steps" {
  description = "What is left to do."
  value       = module.tidelock.next_steps
}
