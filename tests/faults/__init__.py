"""What a run survives: killed anywhere, harmed files, dead services, nonsense as input, secrets near by. `make test-faults`."""
