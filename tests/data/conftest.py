"""A fixture of tests of copies: small tasks, and a folder to prepare them in."""

from tests.harness.data_copies import here

__all__ = ["here"]
