# SPDX-License-Identifier: MIT
"""grid.py - small panels in rows and columns, by gnuplot, in the form of the
lab's figures; test/live/curves.py draws long ones."""

import shutil
import subprocess

from curves import quoted

WIDTH, PANEL, ROW, COLUMN = 860, 120, 36, 52  # pixels
IN_KEY = 5  # lines beside a panel; the next ones are beside the next
TOP, FOOT, LEFT, RIGHT = 78, 76, 76, 126


def style_of(colour, width, mark):
    return f"with linespoints linewidth {width} linecolor '{colour}' " \
           f"pointtype {mark} pointsize 0.6"


def place(row, column, columns, height):
    """The margins of a panel."""
    width = (WIDTH - LEFT - RIGHT - (columns - 1) * COLUMN) / columns
    left = LEFT + column * (width + COLUMN)
    top = TOP + row * (PANEL + ROW)
    return [f"set lmargin at screen {left / WIDTH:.5f}",
            f"set rmargin at screen {(left + width) / WIDTH:.5f}",
            f"set tmargin at screen {1 - top / height:.5f}",
            f"set bmargin at screen {1 - (top + PANEL) / height:.5f}"]


def plot(lines, styles, named, ticks, data):
    """The plot of {name: [(x, y)]}, with a key of the styles in 'named'."""
    parts = []
    for name, style in styles.items():
        source = "NaN"
        if name in lines:
            source = f"data index {len(data)}"
            data.append("\n".join(f"{x:g} {y:g}" for x, y in lines[name]))
        title = f"title {quoted(name)}" if name in named else "notitle"
        parts.append(f"{source} {style} {title}")
    ends = f"[{ticks[0] / 1.25:g}:{ticks[-1] * 1.25:g}]"
    return f"plot {ends} " + ", ".join(parts)


def draw(folder, stem, title, caption, x_label, columns, rows, styles):
    """Writes STEM.svg; returns its path, or None without gnuplot. 'columns'
    are (title, ticks of x, [lines of each row]), 'rows' the labels of y."""
    height = TOP + len(rows) * (PANEL + ROW) - ROW + FOOT
    script = [
        f"set terminal svg size {WIDTH},{height} noenhanced background 'white'"
        " font 'Helvetica,Arial,sans-serif,11'",
        "set encoding utf8", f"set output '{stem}.svg'",
        f"data = '{stem}.dat'", "set border 3 linecolor '#666666'",
        "set tics nomirror out scale 0.5 textcolor '#333333'",
        "set grid linetype 1 linecolor '#e4e4e4' linewidth 1",
        "set logscale x", "set multiplot", "set datafile missing 'NaN'",
        f"set label 1 {quoted(title)} at screen {16 / WIDTH:.5f},"
        f"{1 - 22 / height:.5f} left font ',15:Bold'",
        f"set label 2 {quoted(caption)} at screen {16 / WIDTH:.5f},"
        f"{14 / height:.5f} left font ',10' textcolor '#777777'"]
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
    (folder / f"{stem}.gp").write_text("\n".join(script) + "\n")
    (folder / f"{stem}.dat").write_text("\n\n\n".join(data) + "\n")
    if not shutil.which("gnuplot"):
        return None
    subprocess.run(["gnuplot", f"{stem}.gp"], cwd=folder, check=True)
    return folder / f"{stem}.svg"
