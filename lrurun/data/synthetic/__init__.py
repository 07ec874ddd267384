"""Tasks whose data are made here: by generators, or from files of installed packages."""
