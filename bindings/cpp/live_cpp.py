#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""live_cpp.py - weir.hpp, by every C++ compiler that is here: alone and
pedantically, and a program with it against a real root.

Under a sanitizer the program is one as well: WEIR_CXX_FLAGS has the option,
and the compiler is the one of libweir's family, for two runtimes of
sanitizers in one process are one too many."""

import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from live import BUILD, HERE, SOURCE, Rooted  # noqa: E402

FLAGS = os.environ.get("WEIR_CXX_FLAGS", "").split()
COMPILERS = [name for name in ("g++", "clang++")
             if shutil.which(name) and
             (not FLAGS or name == os.environ["WEIR_CXX"])]
STRICT = ["-Wall", "-Wextra", "-pedantic", "-Werror"]


def compiled(*arguments):
    done = subprocess.run(arguments, text=True, capture_output=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr)


class Cpp(Rooted):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # The headers as they lie once installed, both in one folder.
        cls.include = cls.fleet.folder / "include" / "weir"
        cls.include.mkdir(parents=True)
        for header in (*SOURCE.glob("include/weir/*.h"),
                       HERE / "cpp" / "weir.hpp"):
            shutil.copy(header, cls.include)

    def options(self, standard):
        return [f"-std={standard}", *STRICT, f"-I{self.include.parent}"]

    def build(self, compiler, name):
        program = self.fleet.folder / f"{name}-{compiler}"
        compiled(compiler, *self.options("c++17"), *FLAGS, "-g",
                 HERE / "cpp" / f"{name}.cpp", "-o", program, f"-L{BUILD}",
                 "-lweir", f"-Wl,-rpath,{BUILD}", "-pthread")
        return program

    def test_there_is_a_compiler(self):
        self.assertTrue(COMPILERS)

    def test_the_header_alone(self):
        for compiler in COMPILERS:
            for more in (["-std=c++20"], ["-std=c++17", "-fno-exceptions"]):
                compiled(compiler, *self.options("c++17"), *more,
                         "-fsyntax-only", "-x", "c++",
                         "-include", "weir/weir.hpp", os.devnull)

    def test_program(self):
        for compiler in COMPILERS:
            program = self.build(compiler, "test_weir")
            done = subprocess.run([program, self.roots], text=True,
                                  capture_output=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            print(f"{compiler}: {done.stdout}", end="", flush=True)

    def test_example(self):
        program = self.build(COMPILERS[0], "example")
        said = subprocess.run([program, self.roots], text=True,
                              capture_output=True, timeout=60)
        self.assertEqual((said.returncode, said.stdout), (0, "passed\n"),
                         said.stderr)


if __name__ == "__main__":
    unittest.main()
