"""The HTTP server that all commands share: connections, bodies, errors, the key, shutdown."""
