# A key of the operator's own: Google's service agents that write with it need to use it.

# Reading it makes the agent, if the project has not got it yet. It waits for its own API only: see main.tf.
data "google_storage_project_service_account" "this" {
  count = var.kms_key == null ? 0 : 1

  project = var.project_id

  depends_on = [google_project_service.storage]
}

locals {
  # The name of the key may not be known while planning; whether there is one is.
  kms_key_name = var.kms_key == null ? null : var.kms_key.name

  key_users = var.kms_key == null ? {} : merge(
    {
      storage = one(data.google_storage_project_service_account.this[*].email_address)
      run     = local.service_agents.run
    },
    var.registry.kind == "none" ? {} : { registry = local.service_agents.artifactregistry },
  )
}

resource "google_kms_crypto_key_iam_member" "agents" {
  for_each = local.key_users

  crypto_key_id = local.kms_key_name
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = "serviceAccount:${each.value}"

  depends_on = [google_project_service.this]
}
