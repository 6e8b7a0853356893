"""The cffi hook and the stable-ABI tag; everything else of the package is in pyproject.toml."""

from setuptools import setup

setup(
    cffi_modules=["replay_server/_build.py:ffibuilder"],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
