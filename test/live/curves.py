# SPDX-License-Identifier: MIT
"""curves.py - samples over time: a robust slope, and a figure by gnuplot in the
form of the lab's figures (lab/output_page.c).

A slope is the median of the slopes between pairs of samples (Theil and Sen):
a single step, such as an allocator's new arena, doesn't turn it. Of long series
only POINTS samples, evenly chosen, are compared."""

import shutil
import statistics
import subprocess
from itertools import combinations

POINTS = 200
WIDTH, PANEL, GAP = 860, 170, 46  # pixels
TOP, FOOT, LEFT, RIGHT = 56, 60, 86, 190


def slope(series):
    """Of [(x, y)], in y per x; 0 for fewer than two."""
    step = max(1, len(series) // POINTS)
    chosen = series[::step]
    slopes = [(b[1] - a[1]) / (b[0] - a[0])
              for a, b in combinations(chosen, 2) if b[0] > a[0]]
    return statistics.median(slopes) if slopes else 0


def last_part(series, part):
    """The samples of the last 'part' of the time."""
    if not series:
        return []
    first, last = series[0][0], series[-1][0]
    return [point for point in series
            if point[0] >= last - part * (last - first)]


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def draw_panel(script, data, panel, top, height, block):
    """One panel: (label of its y axis, {name: series})."""
    label, lines = panel
    script += [
        f"set tmargin at screen {1 - top / height:.5f}",
        f"set bmargin at screen {1 - (top + PANEL) / height:.5f}",
        f"set key at screen {1 - (RIGHT - 14) / WIDTH:.5f},"
        f"{1 - top / height:.5f} left top vertical Left reverse samplen 1.5",
        f"set ylabel {quoted(label)} textcolor '#333333'"]
    plots = []
    for name, series in lines.items():
        data.append("\n".join(f"{x:.6g} {y:.10g}" for x, y in series))
        plots.append(f"data index {block} with lines linewidth 1.2 title "
                     f"{quoted(name)}")
        block += 1
    script.append("plot " + ", ".join(plots) if plots else "")
    return block


def draw(folder, stem, title, caption, x_label, panels):
    """Writes STEM.gp, STEM.dat and, if gnuplot is here, STEM.svg. 'panels' are
    (label of the y axis, {name: [(x, y)]}), from top to bottom; names of lines
    stand beside them. Returns the path of the figure or None."""
    panels = [(label, {name: series for name, series in lines.items()
                       if series}) for label, lines in panels]
    panels = [panel for panel in panels if panel[1]]
    height = TOP + len(panels) * (PANEL + GAP) + FOOT
    script = [
        f"set terminal svg size {WIDTH},{height} noenhanced background 'white'"
        " font 'Helvetica,Arial,sans-serif,12' linewidth 1",
        "set encoding utf8", f"set output '{stem}.svg'",
        f"data = '{stem}.dat'", "set border 3 linecolor '#666666'",
        "set tics nomirror out scale 0.5 textcolor '#333333'",
        "set grid linetype 1 linecolor '#e4e4e4' linewidth 1",
        "set yrange [0:*]", "set multiplot",
        f"set lmargin at screen {LEFT / WIDTH:.5f}",
        f"set rmargin at screen {1 - RIGHT / WIDTH:.5f}",
        f"set label 1 {quoted(title)} at screen {16 / WIDTH:.5f},"
        f"{1 - 22 / height:.5f} left font ',16:Bold'",
        f"set label 2 {quoted(caption)} at screen {16 / WIDTH:.5f},"
        f"{14 / height:.5f} left font ',10' textcolor '#777777'"]
    data, block = [], 0
    for i, panel in enumerate(panels):
        if i == len(panels) - 1:
            script.append(f"set xlabel {quoted(x_label)} textcolor '#333333'")
        block = draw_panel(script, data, panel, TOP + i * (PANEL + GAP),
                           height, block)
        script.append("unset label 1; unset label 2")
    (folder / f"{stem}.gp").write_text("\n".join(script) + "\n")
    (folder / f"{stem}.dat").write_text("\n\n\n".join(data) + "\n")
    if not shutil.which("gnuplot"):
        return None
    subprocess.run(["gnuplot", f"{stem}.gp"], cwd=folder, check=True)
    return folder / f"{stem}.svg"
