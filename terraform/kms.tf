# A key of the operator's own: Google's service agents that write with it need to use it.

# Reading it makes the agent, if the project has not got it yet.
data "google_storage_project_service_account" "this" {
  count = var.kms_key_name == null ? 0 : 1

  project = var.project_id

  depends_on = [google_project_service.this]
}

locals {
  key_users = var.kms_key_name == null ? {} : merge(
    {
      storage = one(data.google_storage_project_service_account.this[*].email_address)
      run     = "service-${local.number}@serverless-robot-prod.iam.gserviceaccount.com"
    },
    var.registry.kind == "none" ? {} : {
      registry = "service-${local.number}@gcp-sa-artifactregistry.iam.gserviceaccount.com"
    },
  )
}

resource "google_kms_crypto_key_iam_member" "agents" {
  for_each = local.key_users

  crypto_key_id = var.kms_key_name
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = "serviceAccount:${each.value}"

  depends_on = [google_project_service.this]
}
