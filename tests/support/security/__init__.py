"""Certificates, secured listeners and authorizers for tests."""
