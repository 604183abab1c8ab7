variable "name" {
  type = string
}

variable "replicas" {
  type    = number
  default = 1
}

resource "terraform_data" "service" {
  input = { name = var.name, replicas = var.replicas, image = "registry.acme.example/${var.name}:1.0" }
}

output "name" {
  value = terraform_data.service.output.name
}
