"""Checks of settings, application and store; each finding with its remedy. Looking changes nothing."""
