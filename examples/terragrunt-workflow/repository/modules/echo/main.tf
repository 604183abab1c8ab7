terraform {
  backend "local" {}
}

variable "input" {
  type = string
}

resource "terraform_data" "this" {
  input = var.input
}

output "value" {
  value = terraform_data.this.output
}
