#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_cpp.py - weir.hpp with every installed C++ compiler: the header alone
with all warnings, and a program with it against a real root.

Compilers run side by side, and their results are kept in the build folder.
Under a sanitizer the program is sanitized as well: WEIR_CXX_FLAGS has the
option, and the compiler is of libweir's family, since two sanitizer runtimes
in one process don't work."""

import os
import shutil
import subprocess
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from live import BUILD, HERE, SOURCE, Rooted, built, run  # noqa: E402

FLAGS = os.environ.get("WEIR_CXX_FLAGS", "").split()
COMPILERS = [name for name in ("g++", "clang++")
             if shutil.which(name) and
             (not FLAGS or name == os.environ["WEIR_CXX"])]
STRICT = ["-std=c++17", "-Wall", "-Wextra", "-pedantic", "-Werror"]
HEADERS = [*SOURCE.glob("include/weir/*.h"), HERE / "cpp" / "weir.hpp"]
ALONE = {"header17": ["-fno-exceptions"], "header20": ["-std=c++20"]}
PATIENCE = 300  # seconds, for a program that ends by itself


def include(folder):
    """The headers as if installed, both in one folder."""
    (folder / "weir").mkdir()
    for header in HEADERS:
        shutil.copy(header, folder / "weir")
    return f"-I{folder}"


def check_header(compiler, name):
    """Compiles the header alone; the folder marks the success."""
    options = [*STRICT, *ALONE[name], "-fsyntax-only", "-x", "c++",
               "-include", "weir/weir.hpp"]
    return built(f"cpp-{name}-{compiler}", HEADERS,
                 [run(compiler, "--version"), *options],
                 lambda folder: run(compiler, *options, include(folder),
                                    os.devnull))


def build(compiler, name):
    source = HERE / "cpp" / f"{name}.cpp"
    options = [*STRICT, *FLAGS, "-g", f"-L{BUILD}", "-lweir",
               f"-Wl,-rpath,{BUILD}", "-pthread"]
    return built(f"cpp-{name}-{compiler}", [source, *HEADERS],
                 [run(compiler, "--version"), *options],
                 lambda folder: run(compiler, source, include(folder),
                                    *options, "-o", folder / name)) / name


class Cpp(Rooted):
    @classmethod
    def setUpClass(cls):
        if not COMPILERS:
            raise AssertionError("there is no g++ or clang++ in the PATH")
        pool = ThreadPoolExecutor()
        cls.addClassCleanup(pool.shutdown)
        # The slowest first.
        cls.made = {
            (compiler, name): pool.submit(work, compiler, name)
            for work, names in ((build, ["test_weir"]), (check_header, ALONE))
            for name in names for compiler in COMPILERS}
        cls.made[COMPILERS[0], "example"] = pool.submit(
            build, COMPILERS[0], "example")
        super().setUpClass()

    def run_program(self, compiler, name):
        # A symbol missing in libweir is an error at once: the program may have
        # been built with an older libweir.
        done = subprocess.run([self.made[compiler, name].result(),
                               self.roots], text=True, capture_output=True,
                              timeout=PATIENCE,
                              env={**os.environ, "LD_BIND_NOW": "1"})
        self.assertEqual(done.returncode, 0,
                         f"{compiler}: {done.stdout}{done.stderr}")
        return done.stdout

    def test_the_header_alone(self):
        for compiler in COMPILERS:
            for name in ALONE:
                self.made[compiler, name].result()

    def test_program(self):
        for compiler in COMPILERS:
            said = self.run_program(compiler, "test_weir")
            print(f"{compiler}: {said}", end="", flush=True)

    def test_example(self):
        # It goes on after two seconds without a root, and says so.
        said = self.run_program(COMPILERS[0], "example").splitlines()
        self.assertEqual(said[-1:], ["passed"], said)


if __name__ == "__main__":
    unittest.main()
