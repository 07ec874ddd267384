"""Synthetic tasks whose examples are sampled on the device."""
