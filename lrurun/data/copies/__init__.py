"""Copies of published data: folders, archives and folders of TFDS, which may be damaged or hostile."""
