include "root" {
  path = find_in_parent_folders("root.hcl")
}

terraform {
  source = "${get_repo_root()}/modules//echo"
}

dependency "vpc" {
  config_path  = "../vpc"
  mock_outputs = { value = "mock" }
}

inputs = {
  input = dependency.vpc.outputs.value
}
