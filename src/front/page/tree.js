// SPDX-License-Identifier: MIT
// tree.js - all quotas, and the few visible rows of them.
//
// The page holds the whole tree (100,000 quotas are some 20 MB). The document
// has only the visible rows, which are made once and refilled as the list
// scrolls. The page asks the root to watch the visible quotas.

import { ask, query } from "./api.js";
import { byId, h, number } from "./words.js";

const ROW = 28; // pixels, as in page.css
const SPARE = 4; // rows beyond an edge of the list
const FIRST = 200; // quotas of the first request: a screen full
const PAGE = 10000;
const LINK_MS = 2000; // interval at which the tree is shown while it loads
const OPEN_ALL = 300; // up to so many quotas the tree is expanded at first
export const INSTANCES = 100; // instances of a template, at most

const isTemplate = (name) => name.includes("*");
const byName = (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);

export class Tree {
  constructor(onSelect, onVisible, rates) {
    this.onSelect = onSelect;
    this.onVisible = onVisible;
    this.rates = rates;
    this.nodes = new Map();
    this.tops = [];
    this.shown = []; // nodes in the order of the rows
    this.at = 0; // the row with the cursor
    this.selected = "";
    this.search = "";
    this.total = 0;
    this.list = byId("tree");
    this.rows = byId("rows");
    this.made = [];
    this.list.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.list);
    this.rows.addEventListener("click", (event) => this.onClick(event));
  }

  // ---- Nodes ----

  put(quota) {
    const old = this.nodes.get(quota.name);
    const node = old && !old.instance ? old
      : { name: quota.name, children: [], open: false, instances: [] };
    node.quota = quota;
    this.nodes.set(quota.name, node);
  }

  remove(name) {
    this.nodes.delete(name);
  }

  // Links parents and children, by each quota's parent.
  link() {
    const tops = [];
    for (const node of this.nodes.values())
      node.children = [];
    for (const node of this.nodes.values()) {
      const above = this.nodes.get(node.quota.parent);
      (above && above !== node ? above.children : tops).push(node);
    }
    for (const node of this.nodes.values()) {
      if (node.children.length > 1)
        node.children.sort(byName);
    }
    this.tops = tops.sort(byName);
    this.flatten();
  }

  // Loads all quotas, the first screen at once. 'onProgress' is called after
  // each page, with the number loaded, the total, the epoch, and whether it was
  // the last page. Edits made meanwhile have a later epoch than the first page.
  async load(onProgress) {
    const round = this.round = (this.round || 0) + 1;
    const before = this.nodes;
    this.nodes = new Map();
    let after = "";
    let answer;
    let linked = 0;
    do {
      answer = await ask("/v1/quotas:brief" +
        query({ after, limit: after ? PAGE : FIRST }));
      if (round !== this.round)
        return;
      this.total = answer.total;
      for (const [name, parent, limit, mode] of answer.quotas) {
        this.put({ name, parent, limit, mode });
        const old = before.get(name);
        this.nodes.get(name).open = old ? old.open : this.total <= OPEN_ALL;
      }
      after = answer.next;
      // Linking a large tree for each page would be most of the work.
      if (!after || performance.now() - linked > LINK_MS) {
        this.link();
        linked = performance.now();
      }
      onProgress(this.nodes.size, this.total, answer.epoch, !after);
    } while (after);
  }

  // ---- Rows ----

  flatten() {
    const here = this.shown[this.at];
    this.shown = this.search ? this.found() : this.unfolded();
    const again = here ? this.shown.indexOf(here) : 0;
    this.at = Math.max(0, again < 0
      ? Math.min(this.at, this.shown.length - 1) : again);
    this.rows.style.height = `${this.shown.length * ROW}px`;
    this.draw();
  }

  found() {
    const wanted = this.search.toLowerCase();
    const found = [];
    for (const node of this.nodes.values()) {
      node.depth = 0;
      if (node.name.toLowerCase().includes(wanted))
        found.push(node);
    }
    found.sort(byName);
    if (!this.nodes.has(this.search))
      found.push({ name: this.search, asked: true, depth: 0, children: [],
        instances: [], quota: {} });
    return found;
  }

  unfolded() {
    const shown = [];
    const walk = (nodes, depth) => {
      for (const node of nodes) {
        node.depth = depth;
        shown.push(node);
        if (node.open) {
          walk(node.children, depth + 1);
          walk(node.instances, depth + 1);
        }
      }
    };
    walk(this.tops, 0);
    return shown;
  }

  find(text) {
    this.search = text;
    this.at = 0;
    this.list.scrollTop = 0;
    this.flatten();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW) - SPARE);
    const room = Math.ceil(this.list.clientHeight / ROW) + 2 * SPARE;
    const last = Math.min(this.shown.length, first + room);
    while (this.made.length < last - first) {
      this.made.push(new Row());
      this.rows.append(this.made[this.made.length - 1].element);
    }
    this.made.forEach((row, index) => {
      const node = first + index < last ? this.shown[first + index] : null;
      row.show(node, first + index, this);
    });
    this.list.setAttribute("aria-activedescendant", `row${this.at}`);
    this.visible = this.shown.slice(first, last)
      .filter((node) => !node.asked).map((node) => node.name);
    this.onVisible();
  }

  // ---- Mouse and keys ----

  onClick(event) {
    const element = event.target.closest(".row");
    if (!element)
      return;
    this.at = Number(element.dataset.index);
    if (event.target.classList.contains("fold"))
      this.fold(!this.shown[this.at].open);
    else
      this.choose();
    this.draw();
  }

  choose() {
    const node = this.shown[this.at];
    if (node)
      this.onSelect(node.name);
  }

  move(by) {
    this.at = Math.max(0, Math.min(this.shown.length - 1, this.at + by));
    const top = this.at * ROW;
    const list = this.list;
    if (top < list.scrollTop)
      list.scrollTop = top;
    if (top + ROW > list.scrollTop + list.clientHeight)
      list.scrollTop = top + ROW - list.clientHeight;
    this.draw();
  }

  fold(open) {
    const node = this.shown[this.at];
    if (!node || node.asked || this.search)
      return;
    const inner = node.children.length > 0 || isTemplate(node.name);
    if (!inner || node.open === open) {
      this.leap(node, open);
      return;
    }
    node.open = open;
    if (open && isTemplate(node.name))
      this.loadInstances(node);
    this.flatten();
  }

  // Already folded or unfolded: move to the first child, or to the parent.
  leap(node, open) {
    if (open && node.children.length + node.instances.length > 0)
      this.move(1);
    if (open)
      return;
    const above = this.shown.findIndex(
      (other) => other.name === node.quota.parent);
    if (above >= 0)
      this.move(above - this.at);
  }

  async loadInstances(node) {
    const answer = await ask("/v1/usage" +
      query({ match: node.name, limit: INSTANCES }));
    const old = new Map(node.instances.map((one) => [one.name, one]));
    node.instances = answer.quotas
      .filter((used) => !this.nodes.has(used.name))
      .map((used) => old.get(used.name) || { name: used.name, children: [],
        instances: [], instance: true,
        quota: { limit: node.quota.limit, parent: node.name } })
      .sort(byName);
    this.flatten();
  }

  // Reloads the shown instances, since they come and go.
  refresh() {
    for (const node of this.shown) {
      if (node.open && isTemplate(node.name))
        this.loadInstances(node).catch(() => {});
    }
  }
}

// One row on the screen; it shows different nodes in turn.
class Row {
  constructor() {
    this.fold = h("span", { class: "fold" });
    this.name = h("span", { class: "name" });
    this.label = h("span", { class: "label" }, this.fold, this.name);
    this.limit = h("span", { class: "number" });
    this.bar = h("i", {});
    this.fill = h("span", { class: "fill" }, this.bar);
    this.passed = h("span", { class: "number" });
    this.limited = h("span", { class: "number limited" });
    this.element = h("div", { class: "row", role: "treeitem" }, this.label,
      this.limit, this.fill, this.passed, this.limited);
  }

  show(node, index, tree) {
    this.element.hidden = !node;
    if (!node)
      return;
    const element = this.element;
    element.id = `row${index}`;
    element.dataset.index = index;
    element.style.transform = `translateY(${index * ROW}px)`;
    element.classList.toggle("cursor", index === tree.at);
    element.classList.toggle("instance", Boolean(node.instance));
    element.setAttribute("aria-selected", node.name === tree.selected);
    element.setAttribute("aria-level", node.depth + 1);
    this.showFold(node, tree);
    this.label.style.paddingLeft = `${node.depth * 16}px`;
    this.name.textContent = node.asked ? `why “${node.name}” …` : node.name;
    this.name.title = node.name;
    this.showUse(node, tree.rates(node.name));
  }

  showFold(node, tree) {
    const inner = !tree.search && !node.instance &&
      (node.children.length > 0 || isTemplate(node.name));
    this.fold.textContent = !inner ? "" : node.open ? "▾" : "▸";
    if (inner)
      this.element.setAttribute("aria-expanded", node.open);
    else
      this.element.removeAttribute("aria-expanded");
  }

  showUse(node, use) {
    // That of an adaptive quota is found, in processes or for a fleet.
    this.limit.textContent = node.asked ? "" : use && use.adaptive
      ? use.adaptive.limit : node.quota.limit || "unlimited";
    const part = use && use.high > 0 ? Math.min(1, use.fill / use.high) : 0;
    this.bar.style.width = `${Math.round(100 * part)}%`;
    this.fill.classList.toggle("full", part > 0.66);
    this.fill.classList.toggle("idle", !use || use.fill === undefined);
    this.passed.textContent = use && use.passed > 0 ? number(use.passed) : "";
    this.limited.textContent =
      use && use.limited > 0 ? number(use.limited) : "";
    const mode = node.quota.mode;
    this.element.classList.toggle("lax", Boolean(mode) && mode !== "enforce");
  }
}
