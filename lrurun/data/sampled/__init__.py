"""Synthetic tasks whose examples are sampled on the device: DLR's atomic tasks."""
