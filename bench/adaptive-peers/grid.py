# SPDX-License-Identifier: MIT
"""grid.py - small panels in rows and columns, by gnuplot, in the form of the
lab's figures: values by a number, with the lines of all names side by side; or
values over time, with a row of its own for each name. So no line hides another
one that has the same values. test/live/curves.py draws long panels."""

import shutil
import subprocess

from curves import quoted

WIDTH, PANEL, ROW, COLUMN = 860, 120, 36, 52  # pixels
IN_KEY = 5  # lines beside a panel; the next ones are beside the next
TOP, FOOT, LEFT, RIGHT = 78, 76, 76, 126
STRIP, STRIP_GAP, STRIP_RIGHT = 64, 18, 24
# Between the points of two names at one number: a factor of the number.
BESIDE = 1.035


def style_of(colour, width, mark):
    return f"with linespoints linewidth {width} linecolor '{colour}' " \
           f"pointtype {mark} pointsize 0.6"


def place(row, column, columns, height, panel=PANEL, gap=ROW, right=RIGHT):
    """The margins of a panel."""
    width = (WIDTH - LEFT - right - (columns - 1) * COLUMN) / columns
    left = LEFT + column * (width + COLUMN)
    top = TOP + row * (panel + gap)
    return [f"set lmargin at screen {left / WIDTH:.5f}",
            f"set rmargin at screen {(left + width) / WIDTH:.5f}",
            f"set tmargin at screen {1 - top / height:.5f}",
            f"set bmargin at screen {1 - (top + panel) / height:.5f}"]


def head(stem, title, caption, height):
    return [
        f"set terminal svg size {WIDTH},{height} noenhanced background 'white'"
        " font 'Helvetica,Arial,sans-serif,11'",
        "set encoding utf8", f"set output '{stem}.svg'",
        f"data = '{stem}.dat'", "set border 3 linecolor '#666666'",
        "set tics nomirror out scale 0.5 textcolor '#333333'",
        "set grid linetype 1 linecolor '#e4e4e4' linewidth 1",
        "set datafile missing 'NaN'", "set multiplot",
        f"set label 1 {quoted(title)} at screen {16 / WIDTH:.5f},"
        f"{1 - 22 / height:.5f} left font ',15:Bold'",
        f"set label 2 {quoted(caption)} at screen {16 / WIDTH:.5f},"
        f"{14 / height:.5f} left font ',10' textcolor '#777777'"]


def run(folder, stem, script, data):
    (folder / f"{stem}.gp").write_text("\n".join(script) + "\n")
    (folder / f"{stem}.dat").write_text("\n\n\n".join(data) + "\n")
    if not shutil.which("gnuplot"):
        return None
    subprocess.run(["gnuplot", f"{stem}.gp"], cwd=folder, check=True)
    return folder / f"{stem}.svg"


def plot(lines, styles, named, ticks, data):
    """The plot of {name: [(x, y)]}, with a key of the styles in 'named'."""
    parts = []
    for i, (name, style) in enumerate(styles.items()):
        source = "NaN"
        if name in lines:
            source = f"data index {len(data)}"
            beside = BESIDE ** (i - (len(styles) - 1) / 2)
            data.append("\n".join(f"{x * beside:g} {y:g}"
                                  for x, y in lines[name]))
        title = f"title {quoted(name)}" if name in named else "notitle"
        parts.append(f"{source} {style} {title}")
    ends = f"[{ticks[0] / 1.25:g}:{ticks[-1] * 1.25:g}]"
    return f"plot {ends} " + ", ".join(parts)


def draw(folder, stem, title, caption, x_label, columns, rows, styles):
    """Writes STEM.svg; returns its path, or None without gnuplot. 'columns'
    are (title, ticks of x, [lines of each row]), 'rows' the labels of y."""
    height = TOP + len(rows) * (PANEL + ROW) - ROW + FOOT
    script = head(stem, title, caption, height)
    script.append("set logscale x")
    data = []
    for j, (name, ticks, lines_of_rows) in enumerate(columns):
        script.append(f"set xtics ({', '.join(f'{x:g}' for x in ticks)})")
        for i, (row, lines) in enumerate(zip(rows, lines_of_rows)):
            low, high = row[1]
            script += [*place(i, j, len(columns), height),
                       f"set yrange [{low}:{high}]",
                       f"set ylabel {quoted(row[0] if j == 0 else '')} "
                       "textcolor '#333333'",
                       f"set xlabel "
                       f"{quoted(x_label if i == len(rows) - 1 else '')}",
                       f"set title {quoted(name if i == 0 else '')} "
                       "font ',12' textcolor '#333333'"]
            named = list(styles)[i * IN_KEY:(i + 1) * IN_KEY] \
                if j == len(columns) - 1 else []
            top = 1 - (TOP + i * (PANEL + ROW)) / height
            script.append(
                f"set key at screen {1 - (RIGHT - 10) / WIDTH:.5f},{top:.5f}"
                " left top vertical Left reverse samplen 1.5"
                if named else "unset key")
            script.append(plot(lines, styles, named, ticks, data))
            script.append("unset label 1; unset label 2")
    return run(folder, stem, script, data)


def draw_strips(folder, stem, title, caption, x_label, columns, names):
    """The same of lines over time: a row for each of 'names', which has
    {name: colour}. 'columns' are (title, a value to mark or None,
    {name: [(x, y)]}), with the same y axis in all rows: by its logarithm if a
    value is marked, from a tenth of that."""
    columns = [column for column in columns if any(column[2].values())]
    height = TOP + len(names) * (STRIP + STRIP_GAP) - STRIP_GAP + FOOT
    script, data = head(stem, title, caption, height), []
    script.append("unset key")
    for j, (label, mark, lines) in enumerate(columns):
        points = [point for series in lines.values() for point in series]
        last, most = (max(values) for values in zip(*points))
        first, most = min(x for x, _ in points), max(most, 1)
        script += [f"set xrange [{first:g}:{last:g}]", *(
            ["unset logscale", f"set yrange [0:{most * 1.05:g}]",
             f"set ytics {most / 2:.1g}"] if mark is None else
            ["set logscale y", f"set yrange [{mark / 10:g}:{most * 1.2:g}]",
             f"set ytics ({mark / 10:g}, {mark:g}, {mark * 10:g})"])]
        for i, (name, colour) in enumerate(names.items()):
            bottom = i == len(names) - 1
            script += [*place(i, j, len(columns), height, STRIP, STRIP_GAP,
                              STRIP_RIGHT),
                       f"set format x '{'%g' if bottom else ''}'",
                       f"set xlabel {quoted(x_label if bottom else '')}",
                       f"set ylabel {quoted(name if j == 0 else '')} "
                       f"textcolor '{colour}'",
                       f"set title {quoted(label if i == 0 else '')} "
                       "font ',12' textcolor '#333333'"]
            parts = [] if mark is None else [
                f"{mark:g} with lines linecolor '#999999' dashtype 2"]
            if lines.get(name):
                parts.append(f"data index {len(data)} with lines linewidth "
                             f"1.5 linecolor '{colour}'")
                data.append("\n".join(f"{x:g} {y:g}"
                                      for x, y in lines[name]))
            script.append("plot " + ", ".join(parts or ["NaN"]))
            script.append("unset label 1; unset label 2")
    return run(folder, stem, script, data)
