// SPDX-License-Identifier: MIT
// lists.js - the other lists: limited names, roots and limiters, the log.

import { ask, query } from "./api.js";
import { atRoots, here } from "./here.js";
import { byId, duration, h, number, when, whole } from "./words.js";

const table = (heads, rows) => h("table", {},
  h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col",
    class: head.startsWith("#") ? "number" : "" },
  head.replace("#", ""))))),
  h("tbody", {}, rows));

const cell = (text, isNumber = false) =>
  h("td", { class: isNumber ? "number" : "" }, text);

const nameCell = (name, onSelect) => h("td", { class: "name" },
  h("button", { type: "button", class: "plain", title: name,
    onclick: () => onSelect(name) }, name));

// ---- Limited names: those limited now first, then all others ----

export function showLimited(picture, samples, onSelect) {
  const rows = picture.top_limited.map((use) => {
    const now = samples.now(use.name);
    return { name: use.name, now: now ? now.limited : 0,
      passed: now ? now.passed : 0, all: use.limited,
      part: use.limited / Math.max(1, use.limited + use.passed) };
  });
  rows.sort((a, b) => b.now - a.now || b.all - a.all);
  const unknown = picture.unknown > 0
    ? h("p", { class: "quiet" }, `${whole(picture.unknown)} requests came ` +
      "by names that no quota rules.") : "";
  const contended = picture.contended > 0
    ? h("p", { class: "quiet" }, `${whole(picture.contended)} requests were ` +
      "decided without a lock that another thread had.") : "";
  byId("limited").replaceChildren(rows.length
    ? table(["name", "#limited/s", "#passed/s", "#limited in all", "#of all"],
      rows.map((row) => h("tr", {}, nameCell(row.name, onSelect),
        cell(number(row.now), true), cell(number(row.passed), true),
        cell(whole(row.all), true),
        cell(`${Math.round(100 * row.part)} %`, true))))
    : h("p", { class: "quiet" }, "Nothing has been limited."), unknown,
  contended);
}

// ---- Roots and limiters ----

const dot = (good) => h("span", { class: good ? "dot good" : "dot bad",
  role: "img", "aria-label": good ? "well" : "in trouble" });

function rootRows(status) {
  const store = status.region
    ? `region ${status.region.name}` : status.store.url || "none";
  const own = h("tr", {}, h("td", {}, dot(status.ready), status.name ||
    "this root"), cell(store), cell(status.store.state || ""),
  cell(duration(status.uptime_s), true), cell(whole(status.epoch), true));
  const above = status.region ? status.region.upstream : [];
  return [own, ...above.map((one) => h("tr", {},
    h("td", {}, dot(one.up), one.address), cell("above"),
    cell(one.up ? "up" : one.problem || "down"), cell(""), cell("")))];
}

function limiterRow(one, epoch) {
  const late = one.silent_s > 10 || !one.connected;
  const behind = epoch - one.epoch;
  return h("tr", {}, h("td", {}, dot(!late), one.name || "unnamed",
    h("span", { class: "quiet" }, ` ${one.incarnation.slice(0, 6)}`)),
  cell(one.connected ? duration(one.silent_s) : "away", true),
  cell(one.lacking ? `no room for ${whole(one.lacking)}`
    : behind > 0 ? `${behind} behind` : "up to date"),
  cell(whole(one.quotas), true), cell(whole(one.reports), true),
  cell(whole(one.unknown), true));
}

// ---- The roots of a limiter ----

function linkRow(root) {
  const silent = root.silent_s === null ? "never"
    : `${duration(root.silent_s)} ago`;
  return h("tr", {}, h("td", {}, dot(root.up), root.address),
    cell(root.up ? "up" : root.problem || "down"),
    cell(silent, true), cell(whole(root.epoch), true),
    cell(root.behind > 0 ? `${whole(root.behind)} to come` : "all here"));
}

async function showRoots(place) {
  try {
    const said = await ask("/v1/roots");
    place.replaceChildren(h("h2", {}, `Roots (${whole(said.named)})`),
      said.roots.length
        ? table(["root", "link", "#last message", "#epoch", "edits"],
          said.roots.map(linkRow))
        : h("p", { class: "quiet" }, said.elsewhere
          ? "Another process of this host, which shares this table, has the " +
            "links to the roots." : "It was started without roots."),
      h("p", { class: "quiet" }, `${whole(said.reports)} reports were sent ` +
        "to all of them together."));
  } catch (error) {
    place.replaceChildren(h("p", { class: "problem" }, error.message));
  }
}

export async function showLimiters() {
  const place = byId("limiters");
  if (here.isLimiter) {
    await showRoots(place);
    return;
  }
  try {
    const status = await ask("/v1/status");
    const limiters = status.limiters.sort((a, b) =>
      b.silent_s - a.silent_s);
    place.replaceChildren(h("h2", {}, "Roots"),
      table(["root", "quotas from", "store", "#up for", "#epoch"],
        rootRows(status)),
      h("h2", {}, `Limiters (${whole(limiters.length)})`),
      limiters.length
        ? table(["limiter", "#last report", "quotas", "#in use", "#reports",
          "#unknown"], limiters.map((one) => limiterRow(one, status.epoch)))
        : h("p", { class: "quiet" }, "No limiter is known here."));
  } catch (error) {
    place.replaceChildren(h("p", { class: "problem" }, error.message));
  }
}

// ---- The log ----

function differences(before, after) {
  const fields = new Set([...Object.keys(before || {}),
    ...Object.keys(after || {})]);
  fields.delete("name");
  const text = (side, field) => (side && field in side
    ? typeof side[field] === "object" ? JSON.stringify(side[field])
      : String(side[field]) : "default");
  return [...fields].filter((field) =>
    text(before, field) !== text(after, field))
    .map((field) => [field, text(before, field), text(after, field)]);
}

function diffItem([field, from, to], isWhole) {
  return h("li", {}, h("span", { class: "quiet" }, `${field} `),
    isWhole ? "" : h("del", {}, from), isWhole ? "" : " → ",
    h("ins", {}, to));
}

// 'onSelect' null: the name isn't shown.
export function entryRow(entry, onSelect, onUndone) {
  const what = entry.after === null ? "removed"
    : entry.before === null ? "created" : "changed";
  const said = h("span", { class: "problem" });
  const undo = h("button", { type: "button", onclick: async () => {
    try {
      await ask("/v1/undo", "POST", { epoch: entry.epoch });
      onUndone();
    } catch (error) {
      said.textContent = ` ${error.message}`;
    }
  } }, "Undo");
  const diffs = entry.after === null ? []
    : differences(entry.before, entry.after);
  return h("li", {},
    h("div", {}, h("time", {}, when(entry.at_ms)), " ",
      h("b", {}, entry.identity || "anonymous"), ` ${what} `,
      onSelect ? h("button", { type: "button", class: "plain",
        onclick: () => onSelect(entry.name) }, entry.name) : "",
      entry.shadow ? " (shadow set)" : "", " ", undo, said),
    h("ul", {}, diffs.map((diff) => diffItem(diff,
      entry.before === null))));
}

export class Log {
  constructor(onSelect, onUndone) {
    this.onSelect = onSelect;
    this.onUndone = onUndone;
    this.place = byId("history");
  }

  async show(below) {
    if (here.isLimiter) {
      this.place.replaceChildren(
        atRoots("No history of edits is kept here."));
      return;
    }
    try {
      const said = await ask("/v1/log" + query({ below }));
      const rows = said.entries.map((entry) =>
        entryRow(entry, this.onSelect, this.onUndone));
      if (below) {
        this.more.remove();
        this.list.append(...rows);
      } else {
        this.list = h("ol", { class: "log" }, rows);
        this.place.replaceChildren(this.list);
      }
      if (!below && rows.length === 0)
        this.place.append(h("p", { class: "quiet" }, "No edit yet."));
      this.more = h("button", { type: "button",
        onclick: () => this.show(said.next) }, "Older");
      if (said.next)
        this.place.append(this.more);
    } catch (error) {
      this.place.replaceChildren(h("p", { class: "problem" },
        error.message));
    }
  }
}
