"""Runs a module of Python as `python -m` does, but with the folder of a snapshot in place of the working directory.

`python run_module.py FOLDER MODULE ARGUMENTS` needs Python 3.8 or later, and no package.
"""

import runpy
import sys

if __name__ == "__main__":
    folder, module, *arguments = sys.argv[1:]
    sys.path[0] = folder
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
