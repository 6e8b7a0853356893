"""What can be seen of a server, and of the host it runs on."""
