#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""declare.py WEIR_H >weir/_header.py - weir.h for ctypes.

The header is the one source: constants, enums, structs and functions are
parsed from it and not written a second time. The parser knows the header's
subset of C, and ends with an error at an unknown type. A test compares its
output with the file in the package, and ctypes' layout with a C compiler's."""

import re
import sys
from pathlib import Path

SCALARS = {
    "bool": "c_bool", "size_t": "c_size_t", "double": "c_double",
    "int": "c_int", "unsigned": "c_uint", "char": "c_char",
    "uint8_t": "c_uint8", "uint32_t": "c_uint32", "uint64_t": "c_uint64",
    "int32_t": "c_int32", "int64_t": "c_int64",
    "weir_instant": "c_uint64", "weir_duration": "c_uint64",
}
HEAD = '''\
# SPDX-License-Identifier: MIT
"""weir.h as ctypes has it: made by declare.py, not to be edited."""

import enum
from ctypes import (POINTER, Structure, c_bool, c_char, c_char_p, c_double,
                    c_int, c_int32, c_int64, c_size_t, c_uint, c_uint8,
                    c_uint32, c_uint64, c_void_p)
'''


def fail(what):
    sys.exit(f"declare.py: {what}")


def code_of(header):
    """Without comments and preprocessor lines."""
    return re.sub(r"/\*.*?\*/", "", header, flags=re.S)


def constants(code):
    """(name without WEIR_, value) of each number or text."""
    for name, value in re.findall(r"^#define WEIR_(\w+) +(\S.*)$", code, re.M):
        value = value.strip()
        if value == "UINT64_MAX":
            yield name, "2**64 - 1"
        elif re.fullmatch(r'"[^"]*"|\(?\d+\w*( << \d+)?\)?', value):
            yield name, re.sub(r"(\d)u?ll\b", r"\1", value)


def enums(code):
    """(tag, [(name, value)])."""
    for tag, body in re.findall(r"^enum (\w+) \{(.*?)^\};", code,
                                re.M | re.S):
        values, following = [], 0
        for item in filter(None, (i.strip() for i in body.split(","))):
            name, _, value = item.partition("=")
            number = int(value) if value else following
            values.append((name.strip(), number))
            following = number + 1
        yield tag, values


def value_type(text, structs):
    """ctypes' name for a type that is passed by value, or for a pointer."""
    text = re.sub(r"\b(const|enum \w+)\b", lambda m: "int"
                  if m[0].startswith("enum") else "", text)
    base = " ".join(text.replace("*", " ").split())
    stars = text.count("*")
    if base == "void" and stars == 0:
        return "None"
    if base == "char" and stars > 0:
        return "c_char_p" if stars == 1 else "POINTER(c_char_p)"
    if stars == 1 and base.startswith("struct ") and base[7:] in structs:
        return f"POINTER({base[7:]})"
    if stars > 0:
        return "POINTER(c_void_p)" if stars > 1 else "c_void_p"
    if base.startswith("struct ") and base[7:] in structs:
        return base[7:]
    return SCALARS.get(base) or fail(f"what is a '{base}'?")


def split(declaration):
    """('const char *', 'name', '[8]') of one declaration."""
    found = re.fullmatch(r"(.*?[\s*])(\w+)(\[.*\])?", declaration.strip(),
                         re.S)
    return (found[1], found[2], found[3]) if found else \
        fail(f"what is '{declaration}'?")


def field(declaration, structs):
    kind, name, array = split(declaration)
    made = value_type(kind, structs)
    if array:
        length = array[1:-1].replace("WEIR_", "")
        made += f" * ({length})" if "+" in length else f" * {length}"
    return name, made


def structs_of(code):
    """(tag, [(field, type)])."""
    known = []
    for tag, body in re.findall(r"^struct (\w+) \{(.*?)^\};", code,
                                re.M | re.S):
        known.append(tag)
        yield tag, [field(text, known) for text in body.split(";")
                    if text.strip()]


def functions(code, structs):
    """(name, result, [argument])."""
    for text in re.findall(r"^WEIR_API\s+([^;]*);", code, re.M):
        text = text.replace("WEIR_MUST_USE", "")
        found = re.fullmatch(r"\s*(.*?[\s*])(\w+)\s*\((.*)\)\s*", text, re.S)
        result, name, arguments = found.groups()
        listed = [] if arguments.strip() == "void" else \
            [value_type(split(one)[0], structs)
             for one in arguments.split(",")]
        yield name, value_type(result, structs), listed


def written_list(head, items, end):
    """Items after a head, as many in a line as fit."""
    lines, line = [], head
    for item in items:
        if len(line) + len(item) + 2 > 79:
            lines.append(line.rstrip())
            line = " " * 8
        line += item + ", "
    return "\n".join([*lines, line.rstrip(" ,") + end])


def class_name(tag):
    return "".join(part.title() for part in tag.split("_")[1:])


def written_enum(tag, values):
    names = [name for name, _ in values]
    prefix = {"weir_error": "WEIR_", "weir_verdict": "WEIR_",
              "weir_event_type": "WEIR_EVENT_",
              "weir_table_role": "WEIR_TABLE_"}.get(
        tag, "_".join(names[0].split("_")[:-1]) + "_")
    for name in names:
        if not name.startswith(prefix):
            fail(f"{name} of {tag} doesn't begin with {prefix}")
    return [f"\n\nclass {class_name(tag)}(enum.IntEnum):"] + \
        [f"    {name[len(prefix):]} = {value}" for name, value in values]


def main():
    code = code_of(Path(sys.argv[1]).read_text())
    out = [HEAD]
    out += [f"{name} = {value}" for name, value in constants(code)]
    for tag, values in enums(code):
        out += written_enum(tag, values)
    structs = []
    for tag, fields in structs_of(code):
        structs.append(tag)
        out += [f"\n\nclass {tag}(Structure):", "    _fields_ = ["]
        out += [f'        ("{name}", {kind}),' for name, kind in fields]
        out += ["    ]"]
    out += ["\n\n# Name -> result type, argument types.",
            "FUNCTIONS = {"]
    out += [written_list(f'    "{name}": ({result}, [', listed, "]),")
            for name, result, listed in functions(code, structs)]
    out += ["}"]
    print("\n".join(out))


if __name__ == "__main__":
    main()
