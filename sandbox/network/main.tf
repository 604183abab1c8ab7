terraform {
  required_version = ">= 1.4"

  backend "local" {
    path = "@STATE@/network.tfstate"
  }
}

resource "terraform_data" "subnet" {
  for_each = {
    apps     = "10.20.0.0/20"
    database = "10.20.16.0/24"
  }

  input = { name = each.key, range = each.value }
}

resource "terraform_data" "allow_https" {
  input = { port = 443, from = "0.0.0.0/0" }
}

resource "terraform_data" "legacy_ssh" {
  input = { port = 22, from = "203.0.113.0/24" }
}

output "ranges" {
  value = [for subnet in terraform_data.subnet : subnet.output.range]
}
