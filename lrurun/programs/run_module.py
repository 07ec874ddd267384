"""Runs a module of Python as `python -m` does, but with another folder in place of the working directory: that of the
module's copy. `python run_module.py FOLDER MODULE ARGUMENTS`; it needs Python 3.8 or later, and no package.
"""

import runpy
import sys

if __name__ == "__main__":
    folder, module, *arguments = sys.argv[1:]
    sys.path[0] = folder
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
