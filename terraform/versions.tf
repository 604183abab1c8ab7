# google 7.24 is the first release with everything used here: default_uri_disabled came with 7.7, iap_enabled on the
# service with 7.21, disk-backed scratch volumes with 7.24. Terraform 1.11 (OpenTofu 1.11) brings write-only arguments.
terraform {
  required_version = ">= 1.11"

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = ">= 7.24, < 9"
    }
  }
}
