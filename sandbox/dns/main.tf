terraform {
  required_version = ">= 1.4"

  backend "local" {
    path = "@STATE@/dns.tfstate"
  }
}

locals {
  records = {
    www = "192.0.2.10"
    api = "192.0.2.11"
  }
}

resource "terraform_data" "record" {
  for_each = local.records

  input            = { name = "${each.key}.acme.example", address = each.value }
  triggers_replace = each.key
}
