"""Integrations with frameworks and services: `fairlane.contrib.django` and others, none imported unless used."""
