# The least: a load balancer with Google's certificate. The two secrets exist already:
#   gcloud secrets create tidelock-gh-token --data-file=-           (paste the token, Ctrl-D)
#   openssl rand -hex 32 | gcloud secrets create tidelock-gh-webhook-secret --data-file=-

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
  domain         = "tidelock.example.com"
  image          = "ghcr.io/example/tidelock@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  github         = { user = "acme-terraform-bot" }
  repo_allowlist = ["github.com/acme/*"]
  iap_members    = ["group:platform@example.com"]
}

output "next_steps" {
  description = "What is left to do."
  value       = module.tidelock.next_steps
}
