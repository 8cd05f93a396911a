# SPDX-License-Identifier: MIT
"""test_house.py - plants one violation of each kind in a copy of the two lowest
modules; the repository's checks must catch it, and only it.

Run by Meson with WEIR_SOURCE and WEIR_BUILD in the environment; CC is the
compiler. The build must be one without sanitizers."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(os.environ["WEIR_SOURCE"])
BUILD = Path(os.environ["WEIR_BUILD"])
CC = os.environ.get("CC", "cc").split()

CLOCK = """\
#include <time.h>
#include "core/base/base.h"
uint64_t weir_planted(void);
uint64_t weir_planted(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_nsec;
}
"""
VARIABLE = """\
#include "core/base/base.h"
int weir_planted(void);
int weir_planted(void)
{
    static int calls;
    return ++calls;
}
"""
CONSTANT = """\
#include "core/base/base.h"
const char *weir_planted(int i);
static const char *const names[] = { "one", "two" };
const char *weir_planted(int i)
{
    return names[i];
}
"""
UNPREFIXED = """\
int planted(void);
int planted(void)
{
    return 1;
}
"""


def function(lines, name="weir_long"):
    """A function of that many lines, head and braces included."""
    body = ["    i++;"] * (lines - 4)
    return "\n".join([f"int {name}(int i)", "{", *body, "    return i;",
                      "}", ""])


class House(unittest.TestCase):
    def setUp(self):
        self.box = tempfile.TemporaryDirectory()
        self.addCleanup(self.box.cleanup)
        self.source = Path(self.box.name) / "source"
        self.build = Path(self.box.name) / "build"
        for folder in ("src/core/base", "src/core/algorithm", "include"):
            shutil.copytree(SOURCE / folder, self.source / folder)
        shutil.copy(SOURCE / "meson.build", self.source)
        (self.source / "tools").mkdir()
        for tool in SOURCE.glob("tools/check-*"):
            shutil.copy(tool, self.source / "tools")
        self.build.mkdir()
        for archive in (BUILD / "libbase.a", BUILD / "libalgorithm.a"):
            # Thin archives name their members by path: make whole ones.
            self.archive(self.build / archive.name,
                         *sorted((BUILD / f"{archive.name}.p").glob("*.o")))

    def archive(self, library, *objects):
        if objects:
            subprocess.run(["ar", "rcs", library, *objects], check=True)

    def plant(self, name, text):
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def plant_object(self, module, text):
        self.archive(self.build / f"lib{module}.a",
                     self.compile(f"src/core/{module}/planted.c", text))

    def compile(self, name, text):
        """Plants a source; its object, named and placed as meson does it."""
        path = self.plant(name, text)
        module = path.parent.name
        planted = self.build / f"lib{module}.a.p" / \
            ("_".join(Path(name).parts) + ".o")
        planted.parent.mkdir(exist_ok=True)
        subprocess.run([*CC, "-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC",
                        "-c", path, "-o", planted,
                        "-I", self.source / "include",
                        "-I", self.source / "src"], check=True)
        return planted

    def check(self, tool, *arguments):
        """Exit status and output of a check over the copy."""
        done = subprocess.run([self.source / "tools" / tool, self.source,
                               *arguments], text=True,
                              stdout=subprocess.PIPE)
        return done.returncode, done.stdout

    def assert_clean(self, tool, *arguments):
        self.assertEqual(self.check(tool, *arguments), (0, ""))

    def assert_caught(self, expected, tool, *arguments):
        status, output = self.check(tool, *arguments)
        self.assertEqual(status, 1, output)
        self.assertIn(expected, output)
        self.assertEqual(len(output.splitlines()), 1, output)

    def test_the_copy_is_clean(self):
        self.assert_clean("check-dependencies", self.build)
        self.assert_clean("check-symbols", self.build)
        self.assert_clean("check-size")

    def test_clock_in_a_pure_object(self):
        self.plant_object("algorithm", CLOCK)
        self.assert_caught("must not use clock_gettime", "check-dependencies",
                           self.build)

    def test_clock_among_the_messages(self):
        self.plant_object("codec", CLOCK)
        self.assert_caught("codec must not use clock_gettime",
                           "check-dependencies", self.build)

    def test_variable_in_a_pure_object(self):
        self.plant_object("algorithm", VARIABLE)
        self.assert_caught("writable variable: calls", "check-dependencies",
                           self.build)

    def test_table_of_constants_is_allowed(self):
        self.plant_object("algorithm", CONSTANT)
        self.assert_clean("check-dependencies", self.build)

    def test_files_in_a_cycle(self):
        for one, other in (("ping", "pong"), ("pong", "ping")):
            self.compile(f"src/core/algorithm/{one}.c",
                         f"int {other}(void);\nint {one}(void);\n"
                         f"int {one}(void) {{ return {other}(); }}\n")
        self.assert_caught("files depend on each other: ping.c, pong.c",
                           "check-dependencies", self.build)

    def test_wrong_dependency(self):
        self.plant("src/core/base/planted.h", '#include "io/clock.h"\n')
        self.assert_caught('base must not include io ("io/clock.h")',
                           "check-dependencies")

    def test_include_without_module(self):
        self.plant("src/core/algorithm/planted.h", '#include "leaky.h"\n')
        self.assert_caught("names no module", "check-dependencies")

    def test_conditional_code_in_a_pure_module(self):
        self.plant("src/core/algorithm/planted.c", "#ifdef __linux__\n#endif\n")
        self.assert_caught("conditional code", "check-dependencies")

    def test_header_guard_is_allowed(self):
        self.plant("src/core/algorithm/planted.h",
                   "#ifndef A\n#define A\n#endif\n")
        self.assert_clean("check-dependencies")

    def test_internal_header_of_another_folder(self):
        self.plant("src/core/base/planted_internal.h", "\n")
        self.plant("src/core/algorithm/planted.h",
                   '#include "core/base/planted_internal.h"\n')
        self.assert_caught("is internal to its folder", "check-dependencies")

    def plant_linked(self, name, own, other):
        """A file of base with the function 'own', which calls 'other'."""
        path = self.plant(f"src/core/base/{name}.c",
                          f"int {own}(void);\nint {other}(void);\n"
                          f"int {own}(void)\n{{\n    return {other}();\n}}\n")
        objects = self.build / "libbase.a.p"
        objects.mkdir(exist_ok=True)
        subprocess.run([*CC, "-O0", "-c", path, "-o",
                        objects / f"src_core_base_{name}.c.o"], check=True)

    def test_cycle_of_files(self):
        self.plant_linked("planted", "weir_one", "weir_two")
        self.plant_linked("grown", "weir_two", "weir_three")
        self.assert_clean("check-dependencies", self.build)
        self.plant_linked("grown", "weir_two", "weir_one")
        self.assert_caught("depend on each other: grown.c, planted.c",
                           "check-dependencies", self.build)

    def test_header_of_401_lines(self):
        self.plant("src/core/base/planted.h", "\n" * 400)
        self.assert_clean("check-size")
        self.plant("src/core/base/planted.h", "\n" * 401)
        self.assert_caught("planted.h: 401 lines", "check-size")

    def test_one_name_of_two_files(self):
        self.plant("src/core/base/planted.h", "\n")
        self.assertNotIn("planted.h", self.check("check-names")[1])
        self.plant("src/core/algorithm/planted.h", "\n")
        status, output = self.check("check-names")
        self.assertEqual(status, 1)
        self.assertIn("src/core/algorithm/planted.h", output)

    def test_statics_of_one_name(self):
        self.assertNotIn("share a name", self.check("check-names")[1])
        for number in range(40):
            self.plant(f"src/core/base/planted_{number}.c",
                       "static int find(int x)\n{\n    return x;\n}\n")
        self.assertIn("find (40)", self.check("check-names")[1])

    def test_a_module_without_assertions(self):
        self.assertNotIn("assertions", self.check("check-names")[1])
        self.plant("src/core/base/planted.c",
                   "\n".join(f"int f{number}(void)\n{{\n    return 0;\n}}\n"
                             for number in range(40)))
        self.assertIn("src/core/base: ", self.check("check-names")[1])

    def test_pronouns(self):
        self.plant("src/core/base/planted.c", "/* He asks. */\n" * 9)
        subprocess.run(["git", "init", "-q", self.source], check=True)
        subprocess.run(["git", "-C", self.source, "add", "-A"], check=True)
        self.assert_caught("of 'he'", "check-language")

    def test_unknown_module(self):
        self.plant("src/attic/planted.h", "\n")
        self.assert_caught("doesn't know", "check-dependencies")

    def test_example_behind_the_public_header(self):
        self.plant("examples/planted.c", '#include "core/base/base.h"\n')
        self.assert_caught("public header", "check-dependencies")

    def test_unprefixed_symbol(self):
        self.plant_object("algorithm", UNPREFIXED)
        self.assert_caught("planted doesn't begin with weir_",
                           "check-symbols", self.build)

    def plant_libweir(self, text):
        planted = self.plant("planted.c", text)
        subprocess.run([*CC, "-shared", "-fPIC", planted, "-o",
                        self.build / "libweir.so"], check=True)
        (self.source / "include/weir/pacer.h").unlink()
        self.plant("include/weir/weir.h",
                   "WEIR_API WEIR_MUST_USE int weir_one(int (*f)(void));\n"
                   "/* WEIR_API int weir_none(void); */\n")

    def test_exports_are_the_public_header(self):
        self.plant_libweir("int weir_one(void) { return 1; }\n")
        self.assert_clean("check-symbols", self.build)

    def test_export_that_is_not_declared(self):
        self.plant_libweir("int weir_one(void) { return 1; }\n"
                           "int weir_two(void) { return 2; }\n")
        self.assert_caught("exports weir_two", "check-symbols", self.build)

    def test_declared_function_that_is_not_exported(self):
        self.plant_libweir("static int weir_one(void) { return 1; }\n"
                           "int (*const weir_two)(void) = weir_one;\n")
        status, output = self.check("check-symbols", self.build)
        self.assertEqual(status, 1)
        self.assertIn("lacks weir_one", output)

    def test_function_of_71_lines(self):
        self.plant("src/core/algorithm/planted.c", function(70))
        self.assert_clean("check-size")
        self.plant("src/core/algorithm/planted.c", "int x;\n\n" + function(71))
        self.assert_caught("planted.c:3: weir_long() has 71 lines",
                           "check-size")

    def test_functions_in_c_plus_plus(self):
        whole = ["class planted", "{", *["    int f();"] * 80, "};", ""]
        self.plant("bindings/planted.hpp", "\n".join(whole))
        self.assert_clean("check-size")
        self.plant("bindings/planted.cpp", "int x;\n\n" + function(71))
        self.assert_caught("planted.cpp:3: weir_long() has 71 lines",
                           "check-size")

    def test_file_without_licence(self):
        self.plant("bindings/planted.go",
                   "// SPDX-License-Identifier: MIT\npackage weir\n")
        self.assert_clean("check-licence")
        self.plant("bindings/planted.go", "package weir\n")
        self.assert_caught("bindings/planted.go: no SPDX", "check-licence")

    def test_exception_with_its_reason(self):
        reason = "/* size: one table, one row a line */\n"
        self.plant("src/core/algorithm/planted.c",
                   "\n" * 20 + reason + function(71))
        self.assert_clean("check-size")

    def test_a_sixth_exception(self):
        for i in range(6):
            self.plant(f"src/core/algorithm/planted{i}.c",
                       "/* size: the reason */\n" + function(71))
        self.assert_caught("exceptions, not more than 5", "check-size")

    def test_line_of_81_columns(self):
        self.plant("src/core/algorithm/planted.c", "/*" + "ä" * 76 + "*/\n")
        self.assert_clean("check-size")
        self.plant("src/core/algorithm/planted.c", "/*" + "ä" * 77 + "*/\n")
        self.assert_caught("planted.c:1: 81 columns", "check-size")

    def test_file_of_1001_lines(self):
        self.plant("src/core/algorithm/planted.c", "\n" * 1000)
        self.assert_clean("check-size")
        self.plant("src/core/algorithm/planted.c", "\n" * 1001)
        self.assert_caught("planted.c: 1001 lines", "check-size")

    def test_public_header_that_needs_gnu(self):
        self.plant("include/weir/weir.h",
                   "static inline int f(void) { return ({ 1; }); }\n")
        status, _ = self.check("check-header")
        self.assertEqual(status, 1)

    def test_a_long_trip(self):
        away = "".join(f"int away{i}(int k);\nint away{i}(int k)\n{{\n"
                       "    return k;\n}\n" for i in range(27))
        self.plant("src/core/base/planted_away.c", away)
        calls = "".join(f"    home(away{i}(weight));\n    home(weight);\n"
                        for i in range(27))
        home = "static int home(int weight)\n{\n    return weight;\n}\n"
        self.plant("src/core/base/planted.c", home +
                   f"int weir_take(int weight);\nint weir_take(int weight)\n"
                   f"{{\n{calls}    return 0;\n}}\n")
        self.assert_caught("returns to a file", "check-trip")

    def test_a_trip_under_many_names(self):
        calls = "".join(f"static int f{i}(int n{i})\n{{\n    return n{i};\n}}\n"
                        for i in range(12))
        takes = "".join(f"    f{i}(weight);\n" for i in range(12))
        self.plant("src/core/base/planted.c", calls +
                   f"int weir_take(int weight);\nint weir_take(int weight)\n"
                   f"{{\n{takes}    return 0;\n}}\n")
        self.assert_caught("13 names", "check-trip")


if __name__ == "__main__":
    unittest.main()
