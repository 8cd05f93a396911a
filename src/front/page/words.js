// SPDX-License-Identifier: MIT
// words.js - elements, and numbers as people read them.

// An element: h("p", {class: "quiet", onclick: f}, "text", child, …). Text
// stays text: a name or a label is never parsed as markup.
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on"))
      element.addEventListener(key.slice(2), value);
    else if (value === true)
      element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(key, value);
  }
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}

export const byId = (id) => document.getElementById(id);

// Three significant digits: 0, 0.25, 12.5, 999, 1.25k, 31.4M.
export function number(value) {
  if (value === null || value === undefined || Number.isNaN(value))
    return "–";
  const size = Math.abs(value);
  for (const [unit, sign] of [[1e12, "T"], [1e9, "G"], [1e6, "M"],
    [1e4, "k"]]) {
    if (size >= unit)
      return figures(value / (sign === "k" ? 1e3 : unit)) + sign;
  }
  return figures(value);
}

function figures(value) {
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  const text = value.toFixed(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

export const whole = (value) => Math.round(value).toLocaleString("en-US");

export function duration(seconds) {
  if (seconds < 1)
    return `${Math.round(seconds * 1000)} ms`;
  for (const [unit, sign] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= 2 * unit)
      return `${Math.floor(seconds / unit)} ${sign}`;
  }
  return `${figures(seconds)} s`;
}

export function when(ms) {
  const at = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:` +
    two(at.getSeconds());
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-` +
    two(at.getDate());
  return day === dayOf(Date.now()) ? time : `${day} ${time}`;
}

function dayOf(ms) {
  const at = new Date(ms);
  const two = (value) => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-` +
    two(at.getDate());
}

const UNITS = { k: 1e3, M: 1e6, G: 1e9, T: 1e12, Ki: 2 ** 10, Mi: 2 ** 20,
  Gi: 2 ** 30, Ti: 2 ** 40 };
const PERIODS = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, m: 60, min: 60, h: 3600,
  d: 86400, day: 86400, w: 604800, month: 2592000 };

// Units per second of a limit's text ("100MiB/s", "3/10s"); null: it isn't a
// rate. For drawing only: the root parses it exactly.
export function rateOf(limit) {
  const found = /^([\d.]+)([kMGT]i?)?B?\/([\d.]*)([a-z]+)$/.exec(limit || "");
  if (!found || !PERIODS[found[4]])
    return null;
  return found[1] * (UNITS[found[2]] || 1) /
    ((found[3] || 1) * PERIODS[found[4]]);
}
