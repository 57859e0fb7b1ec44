"""Payloads and results as JSON text: encoding, validation, secrets, versions."""
