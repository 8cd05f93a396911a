// SPDX-License-Identifier: MIT
// detail.js - one quota, or one name: its state, why it would be limited, its
// history. edit.js edits it.

import { ask, query, quotaPath } from "./api.js";
import { Curves } from "./curves.js";
import { Editor } from "./edit.js";
import { Fleet } from "./fleet.js";
import { atRoots, here } from "./here.js";
import { entryRow } from "./lists.js";
import { byId, duration, h, number, whole } from "./words.js";

const TABS = ["why", "edit", "history"];

export class Detail {
  constructor(samples, onEdited, onSelect) {
    this.samples = samples;
    this.onEdited = onEdited;
    this.onSelect = onSelect;
    this.place = byId("detail");
    this.name = "";
    this.quota = null;
    this.tab = "why";
    this.byKey = false; // focus the form's first field when it is shown
    this.weight = "1";
    this.idle();
  }

  idle() {
    this.name = "";
    this.panel = null;
    this.place.replaceChildren(h("p", { class: "empty quiet" },
      "Choose a quota to see its curves, and why a request is limited."));
  }

  // ---- The frame ----

  show(name, tab = this.tab) {
    this.frame(name, tab);
    this.load();
  }

  frame(name, tab) {
    if (name !== this.name) {
      this.quota = null;
      this.loaded = null;
    }
    this.name = name;
    this.tab = tab;
    this.why = null; // the answer's element, while that tab is shown
    this.figures = h("dl", { class: "figures" });
    this.chart = h("div", { class: "chart" });
    if (this.curves)
      this.curves.close();
    this.curves = new Curves(this.chart);
    if (this.fleet)
      this.fleet.close();
    this.fleet = new Fleet(this.samples, name);
    this.panel = h("div", { class: "panel", role: "tabpanel" });
    this.kind = h("span", { class: "quiet" });
    this.tabs = h("div", { class: "tabs", role: "tablist" },
      TABS.map((one) => h("button", { type: "button", role: "tab",
        id: `detail-${one}`, onclick: () => this.turn(one) },
      one[0].toUpperCase() + one.slice(1))));
    this.place.replaceChildren(
      h("h2", {}, name || "A new quota", " ", this.kind), this.figures,
      this.chart, this.fleet.element, this.tabs, this.panel);
    this.draw();
  }

  // Loads the quota, or the quota that rules the name.
  async load() {
    const name = this.name;
    let quota = null;
    let problem = null;
    await here.known;
    try {
      const said = await ask("/v1/why" + query({ name }));
      if (said.chain[0].quota === name && !here.isLimiter)
        quota = await ask(quotaPath(name));
    } catch (error) {
      problem = error;
    }
    if (name !== this.name)
      return;
    this.quota = quota;
    this.loaded = name;
    ask("/v1/recent" + query({ name })).then((recent) => {
      this.samples.fill(name, recent);
      if (name === this.name)
        this.draw();
    }).catch(() => {}); // then only the samples seen by this page are drawn
    this.turn(this.tab);
    if (problem && problem.status !== 404)
      this.fail(problem);
  }

  fail(error) {
    this.panel.replaceChildren(h("p", { class: "problem" }, error.message));
  }

  turn(tab) {
    this.tab = tab;
    this.byKey = this.byKey && tab === "edit";
    this.curves.preview = null;
    for (const one of TABS)
      byId(`detail-${one}`).setAttribute("aria-selected", one === tab);
    this.panel.replaceChildren();
    this.why = null;
    if (tab === "why")
      this.showWhy();
    if (tab === "edit")
      this.showEdit();
    if (tab === "history")
      this.showHistory();
    this.draw();
  }

  // ---- Each second ----

  draw() {
    const use = this.samples.now(this.name);
    const limit = this.quota ? this.quota.limit : use && use.limit;
    this.curves.set(this.samples.curves(this.name), limit);
    this.fleet.draw(this.quota);
    const kind = this.quota
      ? `${this.quota.algorithm}, ${this.quota.sharing}`
      : here.isLimiter ? "in this process" : "";
    this.kind.textContent = kind;
    const figures = [
      ["limit", use && use.adaptive ? `${use.adaptive.limit} in flight`
        : limit || "–"],
      ["passed/s", use ? number(use.passed) : "0"],
      ["limited/s", use ? number(use.limited) : "0"],
      ...this.spread(use),
      ["mode", this.quota ? this.quota.mode : (use && use.mode) || "–"],
    ];
    this.figures.replaceChildren(...figures.map(([term, value]) =>
      h("div", {}, h("dt", {}, term), h("dd", {}, value))));
  }

  // A template has no bucket; each of its instances has one.
  spread(use) {
    if (use && use.instances !== undefined)
      return [["instances in use", whole(use.instances)]];
    const known = use && use.fill !== undefined;
    const fill = known ? `${number(use.fill)} of ${number(use.high)}` : "–";
    const limiters = known ? whole(use.limiters) : "–";
    return here.isLimiter ? [["fill", fill]]
      : [["fill", fill], ["limiters", limiters]];
  }

  restyle() {
    this.curves.restyle();
    this.fleet.restyle();
  }

  onPicture() {
    if (!this.name)
      return;
    this.draw();
    if (this.why)
      this.askWhy();
  }

  // ---- Why ----

  showWhy() {
    const weight = h("input", { type: "text", inputmode: "numeric",
      value: this.weight, size: 6, "aria-label": "weight" });
    weight.addEventListener("input", () => {
      this.weight = weight.value.trim() || "1";
      this.askWhy();
    });
    this.why = h("div", { id: "why", "aria-live": "polite" });
    this.panel.replaceChildren(
      h("p", {}, "A request by this name, of weight ", weight, ", now:"),
      this.why);
    this.askWhy();
  }

  async askWhy() {
    const name = this.name;
    const place = this.why;
    let parts;
    try {
      parts = whyParts(await ask("/v1/why" +
        query({ name, weight: this.weight })), this.onSelect);
    } catch (error) {
      parts = [h("p", { class: "problem" }, error.message)];
    }
    if (name === this.name && place === this.why)
      place.replaceChildren(...parts);
  }

  // ---- Edit ----

  // Called for a key: focuses the first field once the quota is loaded.
  edit() {
    this.byKey = true;
    this.turn("edit");
  }

  showEdit() {
    if (here.isLimiter) {
      this.panel.replaceChildren(atRoots("Quotas aren't edited here."));
      return;
    }
    if (!this.quota) {
      if (this.loaded === this.name)
        this.offerRuler();
      return;
    }
    const editor = new Editor(this.quota, this.samples,
      (preview) => {
        this.curves.preview = preview;
        this.draw();
      },
      (quota) => {
        this.quota = quota;
        this.onEdited(quota ? quota.name : this.name);
        if (quota)
          this.turn(this.tab);
        else
          this.idle();
      });
    this.panel.replaceChildren(editor.element);
    if (this.byKey)
      editor.focus();
    this.byKey = false;
  }

  // For a name without a quota of its own.
  async offerRuler() {
    const name = this.name;
    const new_ = h("button", { type: "button",
      onclick: () => this.create(name) }, `Make a quota “${name}”`);
    this.panel.replaceChildren(h("p", {}, "This name has no quota of its " +
      "own. "), new_);
    try {
      const said = await ask("/v1/why" + query({ name }));
      const ruler = said.chain[0].quota;
      if (new_.isConnected)
        this.panel.append(" ", h("button", { type: "button",
          onclick: () => this.onSelect(ruler, "edit") },
        `Edit its ruling quota: ${ruler}`));
    } catch {
      // No quota rules the name.
    }
  }

  create(name) {
    if (!this.panel || this.name !== name)
      this.frame(name, "edit");
    const editor = new Editor({ name, limit: "100/s" }, this.samples,
      () => {}, (quota) => {
        this.onEdited(quota.name);
        this.onSelect(quota.name, "edit");
      }, true);
    this.panel.replaceChildren(editor.element);
    editor.focus();
  }

  // ---- History ----

  async showHistory() {
    const name = this.name;
    if (here.isLimiter) {
      this.panel.replaceChildren(atRoots("No history of edits is kept here."));
      return;
    }
    try {
      const said = await ask("/v1/log" + query({ quota: name }));
      if (name !== this.name || this.tab !== "history")
        return;
      const rows = said.entries.map((entry) => entryRow(entry, null,
        () => this.onEdited(name, true)));
      this.panel.replaceChildren(rows.length
        ? h("ol", { class: "log" }, rows)
        : h("p", { class: "quiet" }, "The log knows no edit of it."));
    } catch (error) {
      this.fail(error);
    }
  }
}

const VERDICTS = {
  passed: "It would pass.",
  limited: "It would be limited.",
  unknown: "A part of this is decided where it can't be seen from here.",
};

function whyParts(said, onSelect) {
  const limited = Math.round(100 * (1 - said.passes));
  const verdict = VERDICTS[said.verdict] ||
    `It would be limited ${limited} of 100 times.`;
  const parts = [h("p", { class: `verdict ${said.verdict}` }, verdict),
    h("ol", { class: "chain" }, said.chain.map((link) =>
      linkItem(link, onSelect)))];
  if (said.missing)
    parts.push(h("p", { class: "problem" }, `Its parent “${said.missing}” ` +
      "isn't there: the chain ends here."));
  return parts;
}

function linkItem(link, onSelect) {
  const lax = link.mode !== "enforce";
  const state = link.chance === null ? "elsewhere" : link.chance >= 1
    ? "limits" : link.chance > 0 ? "some" : "passes";
  const bar = h("i", {});
  const high = link.high || 0;
  bar.style.width = `${high > 0
    ? Math.min(100, 100 * link.fill / high) : 0}%`;
  return h("li", { class: `link ${state}` },
    h("div", {},
      h("button", { type: "button", class: "plain",
        onclick: () => onSelect(link.quota) }, link.name),
      link.quota !== link.name
        ? h("span", { class: "quiet" }, ` by ${link.quota}`) : "",
      h("span", { class: "quiet" }, ` ${link.limit}`),
      lax ? h("b", { class: "mode" }, ` ${link.mode}`) : ""),
    h("span", { class: "fill" }, bar),
    h("div", {}, link.why + (lax && link.chance > 0 && link.mode === "shadow"
      ? " (it only counts: mode shadow)" : ""),
    link.retry_after_s !== null
      ? h("span", { class: "quiet" },
        ` · retry after ${duration(link.retry_after_s)}`) : ""));
}
