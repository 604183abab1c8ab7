# Where Cloud Run pulls the image from. It pulls from Artifact Registry and Docker Hub only, so an image on another registry comes
# through a repository that fetches it once and keeps it.

locals {
  registry_host = "${var.region}-docker.pkg.dev"
  registry_path = "${local.registry_host}/${var.project_id}/${var.name}-images"
  upstream_host = trimprefix(var.registry.upstream, "https://")
  # In a release's archive of this module the release's image, by digest (scripts/release-artifacts); in a checkout a placeholder.
  named_image    = trimspace(file("${path.module}/released-image.txt"))
  released_image = can(regex("@sha256:0{64}$", local.named_image)) ? "" : local.named_image
  wanted_image   = var.image == null ? local.released_image : var.image
  pulls_through  = var.registry.kind == "pull_through" && startswith(local.wanted_image, "${local.upstream_host}/")
  image          = local.pulls_through ? "${local.registry_path}/${trimprefix(local.wanted_image, "${local.upstream_host}/")}" : local.wanted_image
}

resource "google_artifact_registry_repository" "images" {
  #checkov:skip=CKV_GCP_84:kms_key_name sets the customer's key; without one Google's own key encrypts, which is the default that most projects want.
  count = var.registry.kind == "none" ? 0 : 1

  project       = var.project_id
  location      = var.region
  repository_id = "${var.name}-images"
  description   = "Images of Tidelock"
  format        = "DOCKER"
  mode          = var.registry.kind == "pull_through" ? "REMOTE_REPOSITORY" : "STANDARD_REPOSITORY"
  kms_key_name  = local.kms_key_name
  labels        = local.labels

  dynamic "remote_repository_config" {
    for_each = var.registry.kind == "pull_through" ? [var.registry.upstream] : []
    content {
      description = "Fetches from ${remote_repository_config.value}"
      docker_repository {
        custom_repository {
          uri = remote_repository_config.value
        }
      }
    }
  }

  # A tag that is pushed again would change what runs without a trace.
  dynamic "docker_config" {
    for_each = var.registry.kind == "standard" ? [true] : []
    content {
      immutable_tags = true
    }
  }

  # Ten images to go back to; a KEEP wins over the DELETE.
  cleanup_policies {
    id     = "keep-recent"
    action = "KEEP"
    most_recent_versions {
      keep_count = 10
    }
  }
  cleanup_policies {
    id     = "delete-old"
    action = "DELETE"
    condition {
      older_than = "7776000s"
    }
  }

  depends_on = [google_project_service.this, google_kms_crypto_key_iam_member.agents]
}
