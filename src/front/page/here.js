// SPDX-License-Identifier: MIT
// here.js - whether a root or an agent's limiter serves the page.
//
// A limiter shows its own process. It can't edit quotas and has no history of
// edits: its roots have both, and the page links to them there.

import { ask } from "./api.js";
import { h } from "./words.js";

const PAGE_PORT = 7078; // a root's default port for the page

let told;
export const here = {
  isLimiter: false,
  known: new Promise((resolve) => {
    told = resolve;
  }),
  // Called with each picture.
  see({ kind }) {
    this.isLimiter = kind === "limiter";
    document.documentElement.dataset.kind = kind;
    told();
  },
};

// The usual address of a root's page.
export const pageOf = (address) =>
  `http://${address.replace(/:\d+$/, "")}:${PAGE_PORT}/`;

function rootItem(root) {
  const page = pageOf(root.address);
  return h("li", {}, h("a", { href: page, rel: "noreferrer" }, page),
    h("span", { class: "quiet" }, ` · the root at ${root.address}` +
      (root.up ? "" : `, which can't be reached: ${root.problem}`)));
}

// Explains that something is available at the roots only, with links to them.
export function atRoots(what) {
  const list = h("ul", { class: "elsewhere" });
  ask("/v1/roots").then(({ roots }) => list.replaceChildren(
    ...roots.map(rootItem))).catch(() => {}); // then without links
  return h("div", {}, h("p", {}, `${what} This page shows one limiter, which ` +
    "uses the quotas of its roots. Go to a root's page, which is at its " +
    "--http address, usually:"), list);
}
