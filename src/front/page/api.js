// SPDX-License-Identifier: MIT
// api.js - requests to the root, and its stream of pictures.
//
// EventSource can't show a bearer token, so the stream is read with fetch.

const KEY = "weir-token";
const RETRY_MS = 1000;

export const token = {
  get: () => sessionStorage.getItem(KEY) || "",
  set(text) {
    if (text)
      sessionStorage.setItem(KEY, text);
    else
      sessionStorage.removeItem(KEY);
  },
};

// An answer of a root that isn't a success.
export class Problem extends Error {
  constructor(status, said) {
    super(said.detail || said.title || `the root answered ${status}`);
    this.status = status;
    this.error = said.error || "";
  }
}

function headers() {
  return token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
}

async function refuse(answer) {
  let said = {};
  try {
    said = await answer.json();
  } catch {
    // The body isn't JSON: only the status tells the reason.
  }
  throw new Problem(answer.status, said);
}

export async function ask(path, method = "GET", body = undefined) {
  const answer = await fetch(path, {
    method,
    headers: method === "GET"
      ? headers() : { ...headers(), "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (!answer.ok)
    await refuse(answer);
  return answer.json();
}

export function query(values) {
  const parts = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value !== undefined && value !== "")
      parts.set(key, value);
  }
  const text = parts.toString();
  return text ? `?${text}` : "";
}

export const quotaPath = (name) => `/v1/quotas/${encodeURIComponent(name)}`;

// Calls 'each' with (name, data) of every event of a body.
async function readEvents(body, each) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done)
      return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const name = /^event: (.*)$/m.exec(event);
      const data = /^data: (.*)$/m.exec(event);
      if (data)
        each(name ? name[1] : "message", JSON.parse(data[1]));
    }
  }
}

// A picture each second, of the watched quotas. The stream is reopened when
// those change, when a token is given, and when the connection is lost.
export class Stream {
  constructor(onPicture, onTrouble) {
    this.onPicture = onPicture;
    this.onTrouble = onTrouble;
    this.watched = "";
    this.round = 0;
    this.abort = null;
    // A hidden page closes its stream: a server has few of them.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden)
        this.close();
      else
        this.open();
    });
  }

  close() {
    if (this.abort)
      this.abort.abort();
    clearTimeout(this.timer);
    this.round++; // events that still come are ignored
  }

  watch(names) {
    const watched = names.join("\n");
    if (watched === this.watched && this.abort)
      return;
    this.watched = watched;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), 120);
  }

  open() {
    this.close();
    if (document.hidden)
      return;
    this.abort = new AbortController();
    this.run(++this.round, this.abort.signal);
  }

  async run(round, signal) {
    try {
      const answer = await fetch("/v1/events" + query({ watch: this.watched }),
        { headers: headers(), signal });
      if (!answer.ok)
        await refuse(answer);
      await readEvents(answer.body, (name, data) => {
        if (round !== this.round)
          return;
        if (name === "problem")
          throw new Problem(data.status, data);
        this.onPicture(data);
      });
      throw new Error("the link to the root has ended");
    } catch (error) {
      if (round !== this.round)
        return;
      this.onTrouble(error);
      this.timer = setTimeout(() => this.open(), RETRY_MS);
    }
  }
}
