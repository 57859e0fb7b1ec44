"""Real servers for tests: started when needed, never skipped, gone with the process that started them."""
