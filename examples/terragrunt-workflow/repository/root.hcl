remote_state {
  backend = "local"
  config = {
    path = "/var/lib/states/${path_relative_to_include()}.tfstate"
  }
}
