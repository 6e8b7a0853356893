"""The cffi hook; everything else about the package is in pyproject.toml."""

from setuptools import setup

setup(cffi_modules=["replay_server/_build.py:ffibuilder"])
