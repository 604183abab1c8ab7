# Makes Google's service agents that a fresh project lacks, before something is granted to them. Apart from the module, because only
# google-beta has the resource: whoever needs no such grant needs no second provider.

terraform {
  required_version = ">= 1.11"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.24, < 9"
    }
    google-beta = {
      source  = "hashicorp/google-beta"
      version = ">= 7.24, < 9"
    }
  }
}

variable "project_id" {
  description = "Project that the agents work in."
  type        = string
}

variable "agents" {
  description = "Which ones: `iap` (entry = no_load_balancer), `artifactregistry` and `run` (kms_key)."
  type        = set(string)

  validation {
    condition     = length(setsubtract(var.agents, ["iap", "run", "artifactregistry"])) == 0
    error_message = "agents has nothing but iap, run and artifactregistry."
  }
}

# The one that the others are switched on through.
resource "google_project_service" "resource_manager" {
  project            = var.project_id
  service            = "cloudresourcemanager.googleapis.com"
  disable_on_destroy = false
}

resource "google_project_service" "this" {
  for_each = var.agents

  project            = var.project_id
  service            = "${each.value}.googleapis.com"
  disable_on_destroy = false

  depends_on = [google_project_service.resource_manager]
}

resource "google_project_service_identity" "this" {
  for_each = var.agents
  provider = google-beta

  project = var.project_id
  service = google_project_service.this[each.value].service
}

output "emails" {
  description = "Emails by agent, for the module's service_agents."
  value       = { for agent, identity in google_project_service_identity.this : agent => identity.email }
}
