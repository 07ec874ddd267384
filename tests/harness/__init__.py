"""What tests share: commands and their folders, servers, small models and tasks, made-up results."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""
