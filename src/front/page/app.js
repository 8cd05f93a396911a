// SPDX-License-Identifier: MIT
// app.js - puts the page together: passes the stream's pictures to the lists
// and the detail, and handles clicks and keys.
//
// The address holds the selection: #NAME, or #NAME!TAB, percent-encoded (also a
// '!' in the name, which encodeURIComponent doesn't encode).

import { Problem, Stream, ask, query, token } from "./api.js";
import { Samples, theme } from "./curves.js";
import { Detail } from "./detail.js";
import { here } from "./here.js";
import { Log, showLimiters, showLimited } from "./lists.js";
import { Tree } from "./tree.js";
import { byId, duration, h, whole } from "./words.js";

const LISTS = ["quotas", "limited", "limiters", "history"];
const WATCH_MAX = 90; // names; the root takes 100
const WATCH_BYTES = 8000; // bytes of all names, encoded
const SLOW_MS = 3000; // interval at which lists are requested again
const CHANGES_MAX = 200; // more changes than that: all quotas are read again

const samples = new Samples();
let picture = null;
let epoch = null; // epoch of the tree's quotas; null: incomplete
let loading = false;
let list = "quotas";
let slowAt = 0;

const tree = new Tree((name) => select(name), () => watch(),
  (name) => samples.now(name));
const detail = new Detail(samples, (name, whole_) => edited(name, whole_),
  (name, tab) => select(name, tab));
const log = new Log((name) => select(name), () => log.show());
const stream = new Stream(onPicture, onTrouble);

// ---- The address ----

function select(name, tab) {
  const text = encodeURIComponent(name).replaceAll("!", "%21") +
    (tab ? `!${tab}` : "");
  if (location.hash === `#${text}`)
    onAddress();
  else
    location.hash = text;
}

// A typed address may be no valid encoding: then it is taken literally.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function onAddress() {
  const [name, tab] = location.hash.slice(1).split("!").map(decoded);
  tree.selected = name || "";
  tree.draw();
  if (name)
    detail.show(name, tab);
  else
    detail.idle();
  document.title = name ? `${name} · Weir` : "Weir";
}

// ---- Watched quotas ----

function watch() {
  const names = [];
  let bytes = 0;
  const wanted = new Set([detail ? detail.name : "", ...tree.visible || []]);
  for (const name of wanted) {
    bytes += encodeURIComponent(name).length + 3;
    if (name && names.length < WATCH_MAX && bytes < WATCH_BYTES)
      names.push(name);
  }
  stream.watch(names);
}

// ---- The stream ----

function notice(text) {
  byId("notice").textContent = text;
  byId("notice").hidden = !text;
}

function onPicture(now) {
  picture = now;
  here.see(now);
  notice(!now.trouble ? "" : here.isLimiter
    ? `${now.trouble}.` : `The store: ${now.trouble}`);
  samples.take(now);
  showHead();
  if (!location.hash && now.top_offered.length > 0)
    select(now.top_offered[0].name);
  tree.draw();
  detail.onPicture();
  if (list === "limited")
    showLimited(now, samples, select);
  if (Date.now() - slowAt > SLOW_MS)
    refresh();
  if (loading)
    return;
  if (epoch === null || now.epoch < epoch) // or of a restored store
    loadAll();
  else if (now.epoch > epoch)
    follow(now.epoch);
}

function onTrouble(error) {
  byId("state").textContent = "no link";
  byId("state").className = "state bad";
  notice(error.message);
  if (error instanceof Problem && error.status === 401)
    askToken();
}

function showHead() {
  const kind = here.isLimiter ? "limiter" : "root";
  byId("root").textContent =
    `${picture.name || "unnamed"} · ${kind} · ${picture.version}`;
  byId("tab-limiters").textContent = here.isLimiter ? "Roots" : "Limiters";
  byId("new").hidden = here.isLimiter;
  const good = picture.ready && !picture.trouble;
  const ill = here.isLimiter ? "no root" : "store in trouble";
  byId("state").textContent = good ? "well" : picture.ready ? ill
    : "not ready";
  byId("state").className = good ? "state good" : "state bad";
  const facts = [
    [here.isLimiter ? "in the table" : "quotas", whole(picture.quotas)],
    ["in use", whole(picture.used)],
    [here.isLimiter ? "limiters in all" : "limiters", whole(picture.limiters)],
    ["epoch", whole(picture.epoch)],
    ["up for", duration(Math.max(1, Math.floor(picture.uptime_s)))]];
  byId("facts").replaceChildren(...facts.map(([term, value]) =>
    h("div", {}, h("dt", {}, term), h("dd", {}, value))));
}

function refresh() {
  slowAt = Date.now();
  if (list === "limiters")
    showLimiters();
  if (list === "quotas")
    tree.refresh();
}

// ---- Created, changed and removed quotas ----

async function loadAll() {
  loading = true;
  epoch = null;
  try {
    await tree.load((count, total, at, isAll) => {
      epoch = epoch ?? at;
      byId("count").textContent = isAll
        ? whole(count) : `${whole(count)} of ${whole(total)}`;
      document.documentElement.dataset.loaded = isAll;
    });
  } catch (error) {
    epoch = null;
    onTrouble(error);
  }
  loading = false;
}

// Applies the edits that the log has since the last epoch; a limiter has no
// log, so all quotas are loaded.
async function follow(to) {
  const from = epoch;
  epoch = to;
  if (here.isLimiter) { // no log
    await loadAll();
    return;
  }
  try {
    const said = await ask("/v1/log" + query({ max: CHANGES_MAX }));
    const entries = said.entries.filter((entry) =>
      entry.epoch > from && !entry.shadow);
    if (entries.length === said.entries.length && said.next)
      throw new Error("more than can be followed");
    for (const entry of entries.reverse()) {
      if (entry.after)
        tree.put(entry.after);
      else
        tree.remove(entry.name);
    }
    tree.link();
    byId("count").textContent = whole(tree.nodes.size);
  } catch {
    await loadAll();
  }
  if (list === "history")
    log.show();
}

function edited(name, isUndone) {
  if (isUndone)
    detail.show(name);
  if (list === "history")
    log.show();
}

// ---- Lists ----

function turn(name) {
  list = name;
  for (const one of LISTS) {
    byId(one).hidden = one !== name;
    byId(`tab-${one}`).setAttribute("aria-selected", one === name);
  }
  if (name === "history")
    log.show();
  if (name === "limited" && picture)
    showLimited(picture, samples, select);
  refresh();
  tree.draw();
}

// ---- Credentials ----

function askToken() {
  const dialog = byId("token-dialog");
  if (dialog.open)
    return;
  byId("token").value = "";
  dialog.returnValue = "";
  dialog.showModal();
}

byId("token-dialog").addEventListener("close", () => {
  const said = byId("token-dialog").returnValue;
  if (said === "use")
    token.set(byId("token").value.trim());
  if (said === "forget")
    token.set("");
  byId("token").value = "";
  if (said)
    stream.open();
});

// Enter presses "Use", although "Forget" comes first.
byId("token").addEventListener("keydown", (event) => {
  if (event.key === "Enter") {
    event.preventDefault();
    byId("token-dialog").close("use");
  }
});

// ---- Keys ----

const inTree = {
  ArrowDown: () => tree.move(1),
  ArrowUp: () => tree.move(-1),
  j: () => tree.move(1),
  k: () => tree.move(-1),
  PageDown: () => tree.move(20),
  PageUp: () => tree.move(-20),
  Home: () => tree.move(-tree.shown.length),
  End: () => tree.move(tree.shown.length),
  ArrowRight: () => tree.fold(true),
  ArrowLeft: () => tree.fold(false),
  Enter: () => tree.choose(),
};

const anywhere = {
  "/": () => {
    turn("quotas");
    byId("search").focus();
  },
  "?": () => byId("keys-dialog").showModal(),
  t: () => nextTheme(),
  n: () => here.isLimiter || detail.create(""),
  w: () => detail.name && detail.turn("why"),
  e: () => detail.name && detail.edit(),
  h: () => detail.name && detail.turn("history"),
  1: () => turn("quotas"),
  2: () => turn("limited"),
  3: () => turn("limiters"),
  4: () => turn("history"),
};

// Moves to the next tab of a row, by the arrow keys as in other tab lists.
function turnTab(from, by) {
  const tabs = [...from.parentElement.children];
  const next = tabs[(tabs.indexOf(from) + by + tabs.length) % tabs.length];
  next.focus();
  next.click();
}

function onKey(event) {
  const target = event.target;
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (by && target.getAttribute("role") === "tab") {
    event.preventDefault();
    turnTab(target, by);
    return;
  }
  const writes = /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName);
  if (event.ctrlKey || event.metaKey || event.altKey ||
      document.querySelector("dialog[open]"))
    return;
  if (event.key === "Escape" && writes) {
    if (target.id === "search") {
      target.value = "";
      find("");
    }
    byId("tree").focus();
    return;
  }
  const finds = target.id === "search" && /^(Arrow(Up|Down)|Enter)$/
    .test(event.key);
  const presses = target.tagName === "BUTTON" && event.key === "Enter";
  const act = (writes && !finds) || presses ? null
    : (list === "quotas" && inTree[event.key]) || anywhere[event.key];
  if (!act)
    return;
  event.preventDefault();
  act();
}

function nextTheme() {
  theme.next();
  if (detail.name)
    detail.restyle();
}

// ---- Start ----

function find(text) {
  tree.find(text);
  const found = tree.shown.filter((node) => !node.asked).length;
  byId("count").textContent = text ? `${whole(found)} found`
    : whole(tree.nodes.size);
}

let searching = 0;
byId("search").addEventListener("input", (event) => {
  clearTimeout(searching);
  searching = setTimeout(() => find(event.target.value.trim()), 60);
});
document.addEventListener("keydown", onKey);
window.addEventListener("hashchange", onAddress);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change",
  () => detail.name && detail.restyle());
byId("theme").addEventListener("click", nextTheme);
byId("credential").addEventListener("click", askToken);
byId("keys").addEventListener("click", anywhere["?"]);
byId("new").addEventListener("click", anywhere.n);
for (const one of LISTS)
  byId(`tab-${one}`).addEventListener("click", () => turn(one));
// For the console, and for tests.
globalThis.weir = { detail, samples, stream, tree };
theme.load();
turn("quotas");
onAddress();
loadAll();
stream.open();
