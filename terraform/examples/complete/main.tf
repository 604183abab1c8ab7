# Everything: DNS-authorized certificate and records in Cloud DNS, IPv6, a key of one's own, rules for repositories, access logs,
# private network, impersonation, alerts.

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

  # State holds no secret here, but plans do; keep it where only the deployers read.
  backend "gcs" {
    prefix = "tidelock"
  }
}

provider "google" {
  project = var.project_id
  region  = var.region
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

variable "github_secrets" {
  description = "Token and webhook secret: TF_VAR_github_secrets, for the first apply and to change them. Neither plan nor state keeps them."
  type = object({
    gh_token          = string
    gh_webhook_secret = string
  })
  sensitive = true
  ephemeral = true
}

provider "google-beta" {
  project = var.project_id
  region  = var.region
}

# What this file makes by itself needs its APIs, too. The module below has enabled the one that others are switched on through.
resource "google_project_service" "own" {
  for_each = toset(["cloudkms.googleapis.com", "iam.googleapis.com"])

  project            = var.project_id
  service            = each.value
  disable_on_destroy = false

  depends_on = [module.service_agents]
}

# A fresh project lacks these accounts of Google's, and a grant on the key to one that is not there is refused.
module "service_agents" {
  source = "../../modules/service-agents"

  project_id = var.project_id
  agents     = ["artifactregistry", "run"]
}

resource "google_kms_key_ring" "tidelock" {
  project  = var.project_id
  name     = "tidelock"
  location = var.region

  depends_on = [google_project_service.own]
}

resource "google_kms_crypto_key" "tidelock" {
  name            = "tidelock"
  key_ring        = google_kms_key_ring.tidelock.id
  rotation_period = "7776000s"

  lifecycle {
    prevent_destroy = true
  }
}

# Plans of infrastructure act as this account; the server itself has no rights on it.
resource "google_service_account" "planner" {
  project      = var.project_id
  account_id   = "terraform-planner"
  display_name = "What Tidelock's plans and applies act as"

  depends_on = [google_project_service.own]
}

module "tidelock" {
  source = "../.."

  project_id = var.project_id
  region     = var.region
  labels     = { team = "platform" }

  entry       = "load_balancer"
  domain      = "tidelock.example.com"
  dns_zone    = { name = "example-com", project = "acme-dns" }
  certificate = { kind = "dns_authorized" }
  ipv6        = true

  iap_members        = ["group:engineering@example.com"]
  admins             = ["alice@example.com", "@ops.example.com"]
  webhook_sources    = ["github", "198.51.100.0/24"]
  pages_sources      = ["203.0.113.0/24", "2001:db8::/32"]
  webhook_rate_limit = 3000

  image                = "ghcr.io/example/tidelock@sha256:0000000000000000000000000000000000000000000000000000000000000000"
  registry             = { kind = "pull_through" }
  binary_authorization = true
  cpu                  = 2
  memory_gib           = 8
  scratch              = { medium = "DISK", size_gib = 9 }
  vpc                  = { network = "default", subnetwork = "default", tags = ["tidelock"] }

  github                        = { user = "acme-terraform-bot" }
  repo_allowlist                = ["github.com/acme/*", "!github.com/acme/sandbox"]
  repo_config                   = file("${path.module}/repos.yaml")
  settings                      = { TIDELOCK_PARALLEL_PLAN = "true" }
  impersonated_service_accounts = { planner = google_service_account.planner.email }

  create_secrets        = true
  secret_values         = var.github_secrets
  secret_values_version = 1

  kms_key        = { name = google_kms_crypto_key.tidelock.id }
  service_agents = module.service_agents.emails
  bucket = {
    noncurrent_days  = 30
    soft_delete_days = 30
    log_bucket       = "acme-access-logs"
  }

  monitoring = { emails = ["platform@example.com"] }
}

output "url" {
  description = "Address of the pages."
  value       = module.tidelock.url
}

output "next_steps" {
  description = "What is left to do."
  value       = module.tidelock.next_steps
}
