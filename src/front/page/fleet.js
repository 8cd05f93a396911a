// SPDX-License-Identifier: MIT
// fleet.js - the limit that a fleet has in common (scope=fleet), its latency
// against the target, and the part of each process.
//
// The figures of the charts come with the pictures; the parts are asked for
// with each picture, once at a time.

import { ask, query } from "./api.js";
import { pageOf } from "./here.js";
import { Lines } from "./lines.js";
import { duration, h, number, whole } from "./words.js";

const REASONS = {
  initial: "nothing has been decided yet",
  slow: "answers took too long",
  dropped: "requests were dropped",
  headroom: "answers are quick",
  edited: "its bounds were changed",
  resumed: "answers come again",
  given: "this region's part of it",
};

const fleetOf = (use) => (use && use.adaptive && use.adaptive.fleet) || null;

export class Fleet {
  constructor(samples, name) {
    this.samples = samples;
    this.name = name;
    this.wanted = false; // the quota is for a whole fleet
    this.asking = false;
    this.element = h("section", { id: "fleet", hidden: true,
      "aria-label": "The fleet's limit" });
    this.note = h("p", { class: "quiet" });
    this.figures = h("dl", { class: "figures" });
    this.units = new Lines("units in flight", [
      ["limit", "--passed", { width: 2 }],
      ["at most in flight", "--offered", { width: 1.5 }]], number);
    this.latency = new Lines("latency", [
      ["latency", "--passed", { width: 2 }],
      ["target", "--limited", { width: 1, dash: [4, 4] }]],
    (value) => (value === null || value === undefined ? "–"
      : duration(value)));
    this.charts = h("div", { class: "pair" }, this.units.element,
      this.latency.element);
    this.members = h("ul", { class: "members" });
    this.rest = h("p", { class: "quiet" });
    this.element.append(h("h3", {}, "One limit for the fleet"), this.note,
      this.figures, this.charts, this.members, this.rest);
  }

  close() {
    this.units.close();
    this.latency.close();
  }

  restyle() {
    this.units.restyle();
    this.latency.restyle();
  }

  // With each picture, and when the quota has been loaded.
  draw(quota) {
    const all = this.samples.of(this.name);
    const last = all.length ? fleetOf(all[all.length - 1].use) : null;
    this.wanted = Boolean(last) || Boolean(quota && quota.scope === "fleet");
    this.element.hidden = !this.wanted;
    if (!this.wanted)
      return;
    this.drawCharts(all);
    this.askParts();
  }

  drawCharts(all) {
    const known = all.filter(({ use }) => fleetOf(use));
    const times = known.map(({ at }) => at + this.samples.offset);
    const values = (key) => known.map(({ use }) => fleetOf(use)[key]);
    this.charts.hidden = known.length < 2;
    if (this.charts.hidden)
      return;
    this.units.set([times, values("limit"), values("in_flight")]);
    this.latency.set([times, values("latency_s"), values("target_s")]);
  }

  async askParts() {
    if (this.asking)
      return;
    this.asking = true;
    try {
      this.show(await ask("/v1/fleet" + query({ name: this.name })));
    } catch (error) {
      this.note.replaceChildren(h("span", { class: "problem" },
        error.message));
    }
    this.asking = false;
  }

  show(said) {
    this.note.replaceChildren(...noteOf(said));
    this.figures.replaceChildren(...(said.fleet
      ? figuresOf(said.fleet) : []).map(([term, value, more]) =>
      h("div", {}, h("dt", {}, term), h("dd", {}, value,
        more ? h("span", { class: "quiet" }, ` ${more}`) : ""))));
    const parts = said.members.sort((a, b) => b.left_out - a.left_out ||
      b.granted - a.granted ||
      a.name.localeCompare(b.name, "en", { numeric: true }));
    const most = Math.max(...parts.map((one) => one.has), 0);
    const names = parts.map((one) => one.name);
    this.members.replaceChildren(...parts.map((one) => partItem(one, most,
      names.indexOf(one.name) !== names.lastIndexOf(one.name))));
    this.rest.textContent = said.more > 0
      ? `and ${whole(said.more)} more processes` : "";
  }
}

function noteOf(said) {
  if (!said.leads && said.master) {
    const page = pageOf(said.master);
    return [`The root at ${said.master} finds it. See its page, usually: `,
      h("a", { href: page, rel: "noreferrer" }, page)];
  }
  if (!said.leads)
    return ["The master root finds it, and isn't known here."];
  if (!said.fleet)
    return ["No process uses it. A limit is found as soon as one does."];
  if (said.fleet.learning)
    return ["A new master still hears what the processes have."];
  return [];
}

function figuresOf(fleet) {
  const why = REASONS[fleet.reason] || fleet.reason;
  const moved = fleet.limit === fleet.before ? ""
    : `from ${number(fleet.before)}, ${duration(fleet.moved_s)} ago`;
  const latency = fleet.latency_s === null ? "–" : duration(fleet.latency_s);
  return [
    ["limit", number(fleet.limit), moved],
    ["why", why],
    ["at most in flight", number(fleet.in_flight)],
    ["latency", latency, fleet.target_s === null ? ""
      : `of ${duration(fleet.target_s)}`],
    ["processes", whole(fleet.members)],
    ["left out", whole(fleet.outliers)],
    ["windows excused", whole(fleet.excused)],
  ];
}

// 'isShared': another process has the same name.
function partItem(one, most, isShared) {
  const bar = h("i", {});
  bar.style.width = `${most > 0 ? 100 * one.granted / most : 0}%`;
  const kind = one.processes > 1 ? ` ${whole(one.processes)} processes`
    : isShared && one.incarnation ? ` ${one.incarnation.slice(0, 6)}` : "";
  const former = one.has > one.granted * 1.001
    ? `, still has ${number(one.has)}` : "";
  return h("li", { class: one.left_out ? "out" : "",
    title: `${one.name}: part ${number(one.granted)}, wants ` +
      `${number(one.wants)}${former}` },
  h("div", {}, h("span", { class: "name" }, one.name || "unnamed",
    h("span", { class: "quiet" }, kind)),
  h("span", { class: "number" }, number(one.granted),
    h("span", { class: "quiet" }, ` of ${number(one.wants)}`))),
  h("span", { class: "fill" }, bar),
  one.left_out ? h("div", { class: "problem" },
    "left out: its own path is slow") : "");
}
