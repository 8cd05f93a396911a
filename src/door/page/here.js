// SPDX-License-Identifier: MIT
// here.js - who shows the page: a root, or the limiter of an agent.
//
// A limiter shows its own process. It has neither quotas as they were entered
// nor what becomes of them: edits and their history are at its roots, and the
// page says so where a root's has them.

import { ask } from "./api.js";
import { h } from "./words.js";

const PAGE_PORT = 7078; // where a root's page is, unless somebody moved it

let told;
export const here = {
  isLimiter: false,
  known: new Promise((resolve) => {
    told = resolve;
  }),
  // A picture has come.
  see({ kind }) {
    this.isLimiter = kind === "limiter";
    document.documentElement.dataset.kind = kind;
    told();
  },
};

function rootItem(root) {
  const host = root.address.replace(/:\d+$/, "");
  const page = `http://${host}:${PAGE_PORT}/`;
  return h("li", {}, h("a", { href: page, rel: "noreferrer" }, page),
    h("span", { class: "quiet" }, ` · the root at ${root.address}` +
      (root.up ? "" : `, which can't be reached: ${root.problem}`)));
}

// What isn't here, and where it is.
export function atRoots(what) {
  const list = h("ul", { class: "elsewhere" });
  ask("/v1/roots").then(({ roots }) => list.replaceChildren(
    ...roots.map(rootItem))).catch(() => {}); // the text alone has to do
  return h("div", {}, h("p", {}, `${what} This page shows one limiter, which ` +
    "decides by what its roots tell it. Go to a root's page, which is at its " +
    "--http address, usually:"), list);
}
