"""The cffi hook, the stable-ABI tag, and what is said when the C core cannot be compiled here.

Everything else of the package is in pyproject.toml.
"""

import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, LinkError

ADVICE = (
    "install a C compiler and Python's headers (Debian: apt-get install gcc python3-dev; Fedora: "
    "dnf install gcc python3-devel), or install a wheel of replay-server, which needs neither"
)


def why_not(compiler: str) -> str:
    """What is missing, as far as can be seen; the compiler's own words stand above it."""
    if shutil.which(compiler) is None:
        return f"there is no C compiler {compiler!r}"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "Python's headers (Python.h) are not installed"
    return f"{compiler!r} could not compile it"


class BuildCore(build_ext):
    """Compiles the core; a wheel's carries neither debugging lines nor paths of this machine."""

    def build_extensions(self) -> None:
        # A Python that was built with a library path of its own would write it into the core.
        linker = [word for word in self.compiler.linker_so if not word.startswith("-Wl,-rpath")]
        self.compiler.linker_so = linker
        if not self.inplace and sys.platform == "linux":
            for extension in self.extensions:
                extension.extra_link_args.append("-Wl,--strip-debug")
        try:
            super().build_extensions()
        except (CompileError, LinkError) as error:
            reason = why_not(self.compiler.compiler_so[0])
            raise SystemExit(
                f"replay-server: its C core was not built, {reason}: {ADVICE}"
            ) from error


setup(
    cffi_modules=["replay_server/_build.py:ffibuilder"],
    cmdclass={"build_ext": BuildCore},
    # compat: an editable install is a path, which type checkers read, and no import hook.
    options={"bdist_wheel": {"py_limited_api": "cp310"}, "editable_wheel": {"mode": "compat"}},
)
