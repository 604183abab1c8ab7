# The state. Everything in it is immutable but for the lease (one small object, rewritten every few seconds), so versions are
# kept to take back a mistake and thrown away by age; the server deletes live objects itself. A retention policy would stop it from
# doing so, and would stop the lease: there is none.

locals {
  bucket_location = coalesce(var.bucket.location, var.region)

  bucket_name = coalesce(var.bucket.name, "${replace(var.project_id, "/[:.]/", "-")}-${var.name}-state")
}

resource "google_storage_bucket" "state" {
  #checkov:skip=CKV_GCP_62:Access logs need a second bucket that outlives this one; bucket.log_bucket takes one. Cloud Audit Logs' data access logs do the same without.
  count = var.bucket.create ? 1 : 0

  project                     = var.project_id
  name                        = local.bucket_name
  location                    = local.bucket_location
  storage_class               = "STANDARD"
  labels                      = local.labels
  uniform_bucket_level_access = true
  public_access_prevention    = "enforced"
  force_destroy               = var.bucket.force_destroy

  versioning {
    enabled = true
  }

  # The lease leaves a version each time it is renewed, fourteen thousand a day. None of them is of use.
  lifecycle_rule {
    condition {
      with_state         = "ARCHIVED"
      num_newer_versions = 10
      matches_prefix     = ["${var.bucket.prefix}/lock/"]
    }
    action {
      type = "Delete"
    }
  }

  lifecycle_rule {
    condition {
      with_state                 = "ARCHIVED"
      days_since_noncurrent_time = var.bucket.noncurrent_days
    }
    action {
      type = "Delete"
    }
  }

  soft_delete_policy {
    retention_duration_seconds = var.bucket.soft_delete_days * 86400
  }

  dynamic "encryption" {
    for_each = var.kms_key == null ? [] : [local.kms_key_name]
    content {
      default_kms_key_name = encryption.value
    }
  }

  dynamic "logging" {
    for_each = var.bucket.log_bucket == null ? [] : [var.bucket.log_bucket]
    content {
      log_bucket        = logging.value
      log_object_prefix = "${local.bucket_name}/"
    }
  }

  # Another location would be another, empty bucket, and this one would have to go. The state stays where it is.
  lifecycle {
    ignore_changes = [location]
  }

  depends_on = [google_project_service.this, google_project_service.storage, google_kms_crypto_key_iam_member.agents]
}

check "bucket_location" {
  assert {
    condition     = !var.bucket.create || upper(coalesce(one(google_storage_bucket.state[*].location), local.bucket_location)) == upper(local.bucket_location)
    error_message = "The bucket ${local.bucket_name} stays in ${coalesce(one(google_storage_bucket.state[*].location), "its location")}, not ${local.bucket_location}. To move the state, stop the server, copy it into a bucket of your own there and set bucket = { create = false, name = … }; say bucket.location to keep it where it is without this warning."
  }
}

# Get, create, rewrite, delete and list objects; nothing about the bucket itself.
resource "google_storage_bucket_iam_member" "leader" {
  bucket = local.bucket_ref
  role   = "roles/storage.objectUser"
  member = google_service_account.leader.member
}

# The receiver creates deliveries and reads them back (after a 412, to see whether they are its own), in the inbox only.
resource "google_storage_bucket_iam_member" "inbox" {
  for_each = local.with_balancer ? toset([]) : toset(["roles/storage.objectCreator", "roles/storage.objectViewer"])

  bucket = local.bucket_ref
  role   = each.value
  member = one(google_service_account.inbox[*].member)

  condition {
    title       = "inbox-only"
    description = "Deliveries, and nothing else of the state."
    expression  = "resource.name.startsWith(\"projects/_/buckets/${local.bucket_name}/objects/${var.bucket.prefix}/inbox/\")"
  }
}

# A job creates and reads objects of its executor. It cannot delete, so it overwrites nothing. It cannot list, so it finds no other job, whose name
# is random: the viewer's right to list does not come with this condition, as a list has the bucket's name.
resource "google_storage_bucket_iam_member" "executors" {
  for_each = local.executor_bucket_roles

  bucket = local.bucket_ref
  role   = each.value.role
  member = "serviceAccount:${local.executor_emails[each.value.executor]}"

  condition {
    title       = "jobs-of-${each.value.executor}"
    description = "Jobs of this executor, and nothing else of the state."
    expression  = "resource.name.startsWith(\"projects/_/buckets/${local.bucket_name}/objects/${var.bucket.prefix}/jobs/${each.value.executor}/\")"
  }
}

locals {
  executor_bucket_roles = {
    for pair in setproduct(keys(var.executors), ["objectCreator", "objectViewer"]) :
    "${pair[0]}/${pair[1]}" => { executor = pair[0], role = "roles/storage.${pair[1]}" }
  }

  # By reference, so that rights wait for the bucket.
  bucket_ref = var.bucket.create ? one(google_storage_bucket.state[*].name) : local.bucket_name
}
