// SPDX-License-Identifier: MIT
// lines.js - a small chart of some values over the last minutes.

import { Chart, axisOf, colour } from "./curves.js";
import { h, when } from "./words.js";

const HEIGHT = 130;

export class Lines extends Chart {
  // 'series': [label, colour of page.css, options of uPlot]; 'text' shows a
  // value.
  constructor(title, series, text) {
    super(h("div", { class: "lines" }));
    this.series = series;
    this.text = text;
    this.data = [[], ...series.map(() => [])];
    this.element = h("figure", {}, h("figcaption", {}, title), this.place);
  }

  // Times, then the values of each series; null: there is none.
  set(data) {
    this.data = data;
    this.draw();
  }

  draw() {
    if (!this.place.isConnected)
      return;
    if (!window.uPlot) {
      this.drawPlainly();
      return;
    }
    if (this.plot)
      this.plot.setData(this.data);
    else
      this.plot = new window.uPlot(this.options(), this.data, this.place);
    if (this.plot.cursor.idx === null || this.plot.cursor.idx === undefined)
      this.plot.setLegend({ idx: this.data[0].length
        ? this.data[0].length - 1 : null });
  }

  resize() {
    if (this.plot && this.place.clientWidth > 0)
      this.plot.setSize({ width: this.place.clientWidth, height: HEIGHT });
  }

  options() {
    const grid = { stroke: colour("--line"), width: 1 };
    const axis = { stroke: colour("--quiet"), grid, ticks: { show: false } };
    return {
      width: this.place.clientWidth || 280,
      height: HEIGHT,
      series: [{ label: "at", value: (_, at) => (at ? when(at * 1000) : "") },
        ...this.series.map(([label, name, more]) => ({ label, width: 2,
          value: (_, raw) => this.text(raw), stroke: colour(name),
          points: { show: false }, ...more }))],
      axes: [{ ...axis, space: 90, size: 30,
        values: (_, ticks) => ticks.map((at) => when(at * 1000)) },
      { ...axis, size: 60, space: 26,
        values: (_, ticks) => ticks.map((tick) => this.text(tick)) }],
      scales: {
        x: { range: () => axisOf(this.data[0]) },
        y: { range: (_, low, high) => [0, high > 0 ? high * 1.15 : 1] },
      },
      cursor: { y: false },
      legend: { live: true },
    };
  }

  // Without uPlot: lines, and only the highest value instead of axes.
  drawPlainly() {
    const [left, right] = axisOf(this.data[0]);
    const high = Math.max(...this.data.slice(1).flat()
      .filter((value) => value !== null), 0) * 1.15 || 1;
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 300 110");
    svg.setAttribute("class", "plain");
    this.series.forEach(([, name], i) => {
      const line = document.createElementNS(svg.namespaceURI, "polyline");
      const points = this.data[0].map((time, k) =>
        [300 * (time - left) / (right - left), this.data[i + 1][k]])
        .filter(([, y]) => y !== null)
        .map(([x, y]) => [x, 110 - 110 * y / high]
          .map((value) => value.toFixed(1)).join(","));
      line.setAttribute("points", points.join(" "));
      line.setAttribute("class", name.slice(2));
      svg.append(line);
    });
    this.place.replaceChildren(svg, h("p", { class: "quiet" },
      `up to ${this.text(high)}; ` +
      this.series.map(([label]) => label).join(", ")));
  }
}
