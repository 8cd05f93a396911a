// SPDX-License-Identifier: MIT
// edit.js - the fields of a quota, and a preview on the load of the last
// minutes.

import { ask, query, quotaPath } from "./api.js";
import { h, whole } from "./words.js";

const FIRST = ["limit", "low_burst", "high_burst", "mode", "on_stale",
  "parent", "description"];
const FIXED = new Set(["name", "id", "epoch", "created", "usage"]);
const CHOICES = {
  mode: ["enforce", "shadow", "off"],
  on_stale: ["pass", "limit", "share", "hold"],
  kind: ["rate", "concurrency"],
  sharing: ["counted", "local", "leased", "exact", "adaptive"],
  algorithm: ["leaky", "leaky_queue", "token_bucket", "token_buckets",
    "fixed_window", "sliding_log", "sliding_window"],
};
const PREVIEW_MS = 250;

const labelsText = (labels) => Object.entries(labels)
  .map(([key, value]) => `${key}=${value}`).join(", ");

const textOf = (value) => (value === null || value === undefined ? ""
  : typeof value === "object" ? labelsText(value) : String(value));

export class Editor {
  // 'onPreview' receives {at, passed} or null; 'onDone' the current quota, or
  // null if it was removed.
  constructor(quota, samples, onPreview, onDone, isNew = false) {
    this.quota = quota;
    this.samples = samples;
    this.onPreview = onPreview;
    this.onDone = onDone;
    this.isNew = isNew;
    this.inputs = new Map();
    this.round = 0;
    this.make();
  }

  focus() {
    (this.nameInput || this.inputs.get("limit")).focus();
  }

  // ---- The form ----

  make() {
    const first = FIRST.filter((field) => field in this.quota ||
      this.isNew);
    const rest = Object.keys(this.quota).filter((field) =>
      !FIXED.has(field) && !first.includes(field));
    this.said = h("p", { class: "said", role: "status" });
    this.apply = h("button", { class: "main" },
      this.isNew ? "Create" : "Apply");
    const fields = first.map((field) => this.field(field));
    if (this.isNew)
      fields.unshift(this.nameField());
    this.element = h("form", { class: "edit", autocomplete: "off",
      onsubmit: (event) => this.submit(event),
      oninput: () => this.changed() },
    h("div", { class: "fields" }, fields),
    rest.length ? h("details", {}, h("summary", {}, "All fields"),
      h("div", { class: "fields" }, rest.map((field) =>
        this.field(field)))) : "",
    this.said,
    h("p", { class: "buttons" }, this.apply,
      h("button", { type: "button", onclick: () => this.reset() }, "Reset"),
      this.isNew ? "" : h("button", { type: "button", class: "danger",
        onclick: () => this.remove() }, "Remove")));
    this.changed();
  }

  nameField() {
    this.nameInput = h("input", { type: "text", id: "field-name",
      value: this.quota.name, spellcheck: "false" });
    return h("label", {}, h("span", {}, "name"), this.nameInput);
  }

  field(field) {
    const value = textOf(this.quota[field]);
    const choices = CHOICES[field];
    const input = choices
      ? h("select", { id: `field-${field}` }, choices.map((choice) =>
        h("option", { value: choice, selected: choice === value }, choice)))
      : h("input", { type: "text", id: `field-${field}`, value,
        spellcheck: "false" });
    this.inputs.set(field, input);
    return h("label", {}, h("span", {}, field), input);
  }

  reset() {
    for (const [field, input] of this.inputs)
      input.value = textOf(this.quota[field]) || input.value;
    this.changed();
  }

  // The changed fields; null resets a field to its default.
  changes() {
    const out = {};
    for (const [field, input] of this.inputs) {
      const text = input.value.trim();
      const differs = text !== textOf(this.quota[field]);
      const fresh = this.isNew && field === "limit";
      input.closest("label").classList.toggle("changed", differs);
      if (differs || fresh)
        out[field] = this.valueOf(field, text);
    }
    return out;
  }

  valueOf(field, text) {
    const old = this.quota[field];
    if (text === "")
      return null;
    if (typeof old === "number" && /^-?\d+$/.test(text))
      return Number(text);
    if (typeof old === "boolean")
      return text === "true";
    return text;
  }

  // Starts a request; answers to earlier ones are ignored.
  begin() {
    clearTimeout(this.timer);
    return ++this.round;
  }

  changed() {
    const round = this.begin();
    const changes = this.changes();
    const none = Object.keys(changes).length === 0;
    this.apply.disabled = none && !this.isNew;
    if (none || this.isNew) {
      this.say("");
      this.onPreview(null);
      return;
    }
    this.timer = setTimeout(() => this.preview(changes, round), PREVIEW_MS);
  }

  say(text, isProblem = false) {
    this.said.textContent = text;
    this.said.classList.toggle("problem", isProblem);
  }

  // ---- Requests ----

  async preview(changes, round) {
    const { units, times } = this.samples.offered(this.quota.name);
    if (units.length < 3 || units.every((one) => one === 0)) {
      this.say("No preview: this page has seen no load on it yet.");
      return;
    }
    try {
      const said = await ask("/v1/preview", "POST",
        { quota: { ...changes, name: this.quota.name }, offered: units });
      if (round !== this.round || !this.element.isConnected)
        return;
      const sum = (list) => list.reduce((a, b) => a + b, 0);
      this.onPreview({ at: times, passed: said.passed });
      this.say(`Of ${whole(sum(units))} units in the last ` +
        `${units.length} s, ${whole(sum(said.passed))} would have ` +
        "passed this quota.");
    } catch (error) {
      if (round !== this.round)
        return;
      this.onPreview(null);
      this.say(error.message, true);
    }
  }

  async submit(event) {
    event.preventDefault();
    this.begin();
    const name = this.isNew ? this.nameInput.value.trim() : this.quota.name;
    try {
      this.onDone(await ask(quotaPath(name) + query({ new: this.isNew
        ? 1 : "" }), this.isNew ? "PUT" : "PATCH", this.changes()));
    } catch (error) {
      this.say(error.message, true);
    }
  }

  async remove() {
    if (!window.confirm(`Remove the quota “${this.quota.name}”?`))
      return;
    try {
      await ask(quotaPath(this.quota.name), "DELETE");
      this.onDone(null);
    } catch (error) {
      this.say(error.message, true);
    }
  }
}
