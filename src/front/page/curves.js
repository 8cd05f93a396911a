// SPDX-License-Identifier: MIT
// curves.js - the recent samples of each quota, and the curves of one.
//
// A root sends sums that only grow; a rate is the difference of two pictures.
// Each limiter reports about once a second, not in step with the pictures, so a
// rate is taken over SPAN of them: over three, an even load was seen to vary by
// a fifth.

import { byId, h, number, rateOf, when } from "./words.js";

const KEEP = 600; // samples kept per quota
const NAMES = 400; // quotas with samples; the least recently seen one is
                   // dropped
const SPAN = 5;
const LEAST = 2.5; // shortest time of a rate, in seconds
const CLOSE = 0.5; // seconds; a sample this close to the last one replaces it
const SHOWN = 300; // seconds on the axis
const HEIGHT = 240;
const TRIED = 5; // index of the series "would pass"

export class Samples {
  constructor() {
    this.byName = new Map();
    this.incarnation = "";
    this.offset = 0;
  }

  // Sums and the root's clock are comparable within one incarnation only.
  begin({ incarnation, at }) {
    if (incarnation === this.incarnation)
      return;
    this.byName.clear();
    this.incarnation = incarnation;
    this.offset = Date.now() / 1000 - at;
  }

  take(picture) {
    this.begin(picture);
    const watched = new Set();
    for (const use of picture.watched) {
      watched.add(use.name);
      this.add(use, picture.at);
    }
    for (const use of [...picture.top_offered, ...picture.top_limited]) {
      if (!watched.has(use.name))
        this.add(use, picture.listed_at);
      watched.add(use.name);
    }
  }

  add(use, at) {
    const old = this.byName.get(use.name) || [];
    const last = old[old.length - 1];
    if (last && (at <= last.at || use.passed < last.passed ||
        use.limited < last.limited)) {
      if (at <= last.at)
        return;
      old.length = 0; // the counts were reset meanwhile: start over
    }
    if (old.length > 1 && at - old[old.length - 2].at < 1 + CLOSE &&
        at - last.at < CLOSE)
      old.pop();
    old.push({ at, passed: use.passed, limited: use.limited, use });
    if (old.length > KEEP)
      old.shift();
    this.byName.delete(use.name);
    this.byName.set(use.name, old);
    if (this.byName.size > NAMES)
      this.byName.delete(this.byName.keys().next().value);
  }

  // Adds the root's samples of the time before this page was opened.
  fill(name, recent) {
    this.begin(recent);
    const own = this.of(name);
    const first = own.length ? own[0].at - CLOSE : Infinity;
    const use = own.length ? own[own.length - 1].use : {};
    const before = recent.samples.filter(([at]) => at < first)
      .map(([at, passed, limited]) => ({ at, passed, limited,
        use: { ...use, adaptive: null, passed, limited } }));
    if (before.length > 0 && (own.length === 0 ||
        before[before.length - 1].passed <= own[0].passed))
      this.byName.set(name, [...before, ...own]);
  }

  of(name) {
    return this.byName.get(name) || [];
  }

  // The current rates, fill, high; null: never seen in use.
  now(name) {
    const all = this.of(name);
    const last = all[all.length - 1];
    if (!last)
      return null;
    const from = all[Math.max(0, all.length - 1 - SPAN)];
    const time = last.at - from.at;
    const rate = (key) => (time > 0 ? (last[key] - from[key]) / time : 0);
    return { ...last.use, passed: rate("passed"), limited: rate("limited"),
      sums: last.use };
  }

  // [times, offered, passed, limited], in units per second.
  curves(name) {
    const all = this.of(name);
    const out = [[], [], [], []];
    for (let i = 1; i < all.length; i++) {
      const from = all[Math.max(0, i - SPAN)];
      const time = all[i].at - from.at;
      if (time < LEAST)
        continue;
      const passed = (all[i].passed - from.passed) / time;
      const limited = (all[i].limited - from.limited) / time;
      out[0].push(all[i].at + this.offset);
      out[1].push(passed + limited);
      out[2].push(passed);
      out[3].push(limited);
    }
    return out;
  }

  // The offered load, in whole units per step of a second, for a preview.
  offered(name) {
    const all = this.of(name).slice(-SHOWN);
    const units = [];
    const times = [];
    for (let i = 1; i < all.length; i++) {
      const time = all[i].at - all[i - 1].at;
      const sum = all[i].passed - all[i - 1].passed +
        all[i].limited - all[i - 1].limited;
      units.push(Math.round(sum / time));
      times.push(all[i].at + this.offset);
    }
    return { units, times };
  }
}

// A colour of page.css in the current theme. The property itself holds both
// colours; an element's computed style has one.
export function colour(name) {
  const probe = h("i", {});
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// A chart of uPlot in a place; each kind has its draw() and resize().
export class Chart {
  constructor(place) {
    this.place = place;
    this.plot = null;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(place);
  }

  close() {
    this.observer.disconnect();
    this.drop();
  }

  drop() {
    if (this.plot)
      this.plot.destroy();
    this.plot = null;
  }

  restyle() {
    this.drop();
    this.draw();
  }
}

// The curves of one quota.
export class Curves extends Chart {
  constructor(place) {
    super(place);
    this.data = [[], [], [], [], [], []];
    this.preview = null;
  }

  // 'limit' is the quota's text.
  set(curves, limit) {
    const rate = rateOf(limit);
    const times = curves[0];
    const dry = this.preview ? this.previewed(times) : times.map(() => null);
    this.data = [...curves, times.map(() => rate), dry];
    this.draw();
  }

  // The preview's steps at the drawn times, averaged over SPAN of them.
  previewed(times) {
    const known = new Map();
    const { at, passed } = this.preview;
    at.forEach((time, i) => {
      const from = Math.max(0, i - SPAN + 1);
      const part = passed.slice(from, i + 1);
      known.set(time, part.reduce((a, b) => a + b, 0) / part.length);
    });
    return times.map((time) => known.get(time) ?? null);
  }

  draw() {
    if (!this.place.isConnected)
      return;
    if (!window.uPlot) {
      this.drawPlainly();
      return;
    }
    if (!this.plot) {
      this.empty = h("p", { class: "waits quiet" },
        "A curve begins here after a few seconds of use.");
      this.place.replaceChildren(this.empty);
      this.plot = new window.uPlot(this.options(), this.data, this.place);
    } else {
      this.plot.setData(this.data);
    }
    this.tell();
  }

  // The legend shows the last moment, unless the cursor points at another;
  // "would pass" is shown only during a preview.
  tell() {
    const { plot, data } = this;
    const tried = Boolean(this.preview);
    if (plot.series[TRIED].show !== tried)
      plot.setSeries(TRIED, { show: tried });
    if (plot.cursor.idx === null || plot.cursor.idx === undefined)
      plot.setLegend({ idx: data[0].length ? data[0].length - 1 : null });
    this.empty.hidden = data[0].length > 0;
  }

  resize() {
    if (this.plot && this.place.clientWidth > 0)
      this.plot.setSize({ width: this.place.clientWidth, height: HEIGHT });
  }

  options() {
    const grid = { stroke: colour("--line"), width: 1 };
    const axis = { stroke: colour("--quiet"), grid, ticks: { show: false } };
    const times = { ...axis, space: 90,
      values: (_, ticks) => ticks.map((at) => when(at * 1000)) };
    const value = (_, raw) => number(raw);
    const line = (label, name, more = {}) => ({ label, value, width: 2,
      stroke: colour(name), points: { show: false }, ...more });
    return {
      width: this.place.clientWidth || 600,
      height: HEIGHT,
      series: [{ label: "at", value: (_, at) => (at ? when(at * 1000) : "") },
        line("offered", "--offered", { width: 1.5 }),
        line("passed", "--passed",
          { fill: colour("--passed-under") }),
        line("limited", "--limited"),
        line("limit", "--limit", { dash: [2, 4], width: 1 }),
        line("would pass", "--would", { dash: [6, 4], spanGaps: true })],
      axes: [times, { ...axis, size: 60,
        values: (_, ticks) => ticks.map(number) }],
      scales: {
        x: { range: () => axisOf(this.data[0]) },
        y: { range: (_, low, high) => [0, Math.max(1, high * 1.08)] },
      },
      cursor: { y: false },
      legend: { live: true },
    };
  }

  // Without uPlot: lines, and only the highest value instead of axes.
  drawPlainly() {
    const [left, right] = axisOf(this.data[0]);
    const high = Math.max(1, ...this.data.slice(1).flat()
      .filter((value) => value !== null)) * 1.08;
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 600 240");
    svg.setAttribute("class", "plain");
    ["offered", "passed", "limited", "limit", "would"].forEach((name, i) => {
      const path = document.createElementNS(svg.namespaceURI, "polyline");
      const points = this.data[0].map((time, k) =>
        [600 * (time - left) / (right - left), this.data[i + 1][k]])
        .filter(([, y]) => y !== null)
        .map(([x, y]) => [x, 240 - 240 * y / high]
          .map((value) => value.toFixed(1)).join(","));
      path.setAttribute("points", points.join(" "));
      path.setAttribute("class", name);
      svg.append(path);
    });
    this.place.replaceChildren(svg, h("p", { class: "quiet" },
      `up to ${number(high)}/s; offered, passed, limited, limit, would pass`));
  }
}

export function axisOf(times) {
  const now = times.length ? times[times.length - 1] : Date.now() / 1000;
  const first = times.length ? times[0] : now - 60;
  return [Math.max(now - SHOWN, Math.min(first, now - 60)), now];
}

export const theme = {
  order: ["", "light", "dark"],
  apply(name) {
    document.documentElement.dataset.theme = name;
    byId("theme").textContent = name || "Theme";
  },
  load() {
    this.apply(localStorage.getItem("weir-theme") || "");
  },
  next() {
    const now = document.documentElement.dataset.theme || "";
    const name = this.order[(this.order.indexOf(now) + 1) %
      this.order.length];
    localStorage.setItem("weir-theme", name);
    this.apply(name);
  },
};
