"""Checks of settings, application and store; each finding with its remedy. The checks change nothing."""
