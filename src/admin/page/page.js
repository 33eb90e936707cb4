// The page of one Listless. It reads the public JSON paths and draws their data.
//
// Text from clients is data: it is inserted as text, never as markup.

"use strict";

const REPORT_MS = 3000;
const LARGE_REPORT_MS = 10000;
const LARGE_REPORT_ROWS = 500;
const REPORT_ROWS = 3000;
const ROWS_STEP = 50;
const FINDINGS_STEP = 12;
const INCIDENTS_SHOWN = 8;
const LIVE_ROWS = 100;
const LIVE_DRAW_MS = 400;
const RETRY_MS = 4000;
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

// === Words and figures ===

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const time = new Intl.DateTimeFormat("en", {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const minute = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function count(value) {
  if (!isNumber(value)) return "–";
  return Math.abs(value) < 1e5 ? whole.format(value) : short.format(value);
}

function bytes(value) {
  if (!isNumber(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function share(value) {
  if (!isNumber(value)) return "–";
  const percent = value * 100;
  if (percent > 99.9 && percent < 100) return `${Math.floor(percent * 100) / 100} %`;
  return `${percent === 0 || percent === 100 ? percent : percent.toFixed(1)} %`;
}

function rate(value) {
  if (!isNumber(value)) return "–";
  if (value > 0 && value < 0.1) return `${(value * 60).toFixed(1)}/min`;
  return `${value >= 100 ? whole.format(value) : value.toFixed(1)}/s`;
}

function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
}

// A saving is never below zero: what Listless itself sends first is among its own requests.
const cpu = (seconds) => (isNumber(seconds) && seconds < 0.1 && seconds > 0
  ? `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms` : duration(isNumber(seconds) ? Math.max(0, seconds) : seconds));

const clock = (unix) => time.format(new Date(unix * 1000));

// === Elements ===

function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

function say(id, text) {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
}

function shape(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// The caller's name, where the configuration wants it, and the user agent.
const clientOf = (row) => [row.caller, row.userAgent].filter(Boolean).join(" ");

function lines(cell, main, sub, code) {
  cell.replaceChildren(make("span", "main-line", main));
  if (sub) cell.append(make("span", code ? "sub-line code" : "sub-line", sub));
}

// === Tables ===

// A table that sorts by its headings, limits its rows at first, and reuses its row elements.
class Table {
  constructor(root, { caption, columns, key, empty, sort }) {
    this.columns = columns;
    this.key = key;
    this.rows = [];
    this.shown = ROWS_STEP;
    this.elements = new Map();
    this.sorted = sort || { id: null, down: true };
    this.build(root, caption, empty);
  }

  build(root, caption, empty) {
    this.nothing = empty;
    this.empty = make("p", "empty", empty);
    this.scroll = make("div", "scroll");
    const table = make("table");
    table.setAttribute("aria-label", caption);
    const head = make("tr");
    this.heads = new Map();
    for (const column of this.columns) {
      const th = make("th", column.number ? "number" : "");
      th.scope = "col";
      if (column.value) {
        const button = make("button", "", column.label);
        button.type = "button";
        if (column.title) button.title = column.title;
        button.addEventListener("click", () => this.sortBy(column));
        th.append(button);
      } else {
        th.textContent = column.label;
      }
      this.heads.set(column.id, th);
      head.append(th);
    }
    const thead = make("thead");
    thead.append(head);
    this.body = make("tbody");
    table.append(thead, this.body);
    this.scroll.append(table);
    this.more = make("button");
    this.more.type = "button";
    this.more.addEventListener("click", () => {
      this.shown += ROWS_STEP * 2;
      this.draw();
    });
    const foot = make("p", "more");
    foot.append(this.more);
    root.replaceChildren(this.chooser(), this.empty, this.scroll, foot);
    this.draw();
  }

  // Narrow windows have no headings to press.
  chooser() {
    const label = make("label", "sort-by", "Sort by");
    this.select = make("select");
    for (const column of this.columns.filter((column) => column.value)) {
      const option = make("option", "", column.label);
      option.value = column.id;
      this.select.append(option);
    }
    this.select.addEventListener("change", () => {
      const column = this.columns.find((column) => column.id === this.select.value);
      this.sorted = { id: column.id, down: Boolean(column.number) };
      this.draw();
    });
    label.append(this.select);
    return label;
  }

  sortBy(column) {
    const again = this.sorted.id === column.id;
    this.sorted = { id: column.id, down: again ? !this.sorted.down : Boolean(column.number) };
    this.draw();
  }

  set(rows, empty) {
    this.rows = rows;
    this.empty.textContent = empty || this.nothing;
    this.draw();
  }

  ordered() {
    const column = this.columns.find((column) => column.id === this.sorted.id);
    if (!column) return this.rows;
    const way = this.sorted.down ? -1 : 1;
    const compare = (a, b) => {
      const [x, y] = [column.value(a), column.value(b)];
      // Unknown values come last in both directions.
      if (x === null || x === undefined) return y === null || y === undefined ? 0 : 1;
      if (y === null || y === undefined) return -1;
      return way * (typeof x === "number" ? x - y : String(x).localeCompare(String(y)));
    };
    return this.rows.map((row, index) => [row, index])
      .sort(([a, i], [b, j]) => compare(a, b) || i - j).map(([row]) => row);
  }

  draw() {
    const rows = this.ordered().slice(0, this.shown);
    this.empty.hidden = this.rows.length > 0;
    this.scroll.hidden = this.rows.length === 0;
    for (const [id, th] of this.heads) {
      if (this.sorted.id === id) {
        th.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      } else {
        th.removeAttribute("aria-sort");
      }
    }
    if (this.sorted.id) this.select.value = this.sorted.id;
    const kept = new Map();
    let place = this.body.firstElementChild;
    for (const row of rows) {
      const element = this.row(row, kept);
      if (element === place) place = place.nextElementSibling;
      else this.body.insertBefore(element, place);
    }
    while (place) {
      const next = place.nextElementSibling;
      place.remove();
      place = next;
    }
    this.elements = kept;
    const rest = this.rows.length - rows.length;
    this.more.hidden = rest <= 0;
    this.more.textContent =
      `Show ${Math.min(rest, ROWS_STEP * 2)} more of ${whole.format(rest)} not shown`;
  }

  row(row, kept) {
    let key = this.key(row);
    while (kept.has(key)) key += "+";
    let element = this.elements.get(key);
    if (!element) {
      element = make("tr");
      for (const column of this.columns) {
        const td = make("td", [column.number ? "number" : "", column.className || ""].join(" ").trim());
        td.dataset.label = column.label;
        element.append(td);
      }
    }
    kept.set(key, element);
    const drawn = JSON.stringify(row);
    if (element.drawn !== drawn) {
      element.drawn = drawn;
      this.columns.forEach((column, index) => column.draw(element.children[index], row));
    }
    return element;
  }
}

// === Polls ===

const ANSWERS = [
  ["cache", "from memory"],
  ["coalesced", "shared"],
  ["upstream", "by the apiserver"],
  ["proxy", "by Listless itself"],
];

const answered = (poll, by) => (poll.answers && poll.answers[by]) || 0;
const total = (poll) => ANSWERS.reduce((sum, [by]) => sum + answered(poll, by), 0);
const costOf = (cost) => ((cost && cost.apiserverCpuSeconds) || 0) + ((cost && cost.etcdCpuSeconds) || 0);

function answersBar(cell, poll) {
  const requests = total(poll);
  const all = requests || 1;
  const saved = (answered(poll, "cache") + answered(poll, "coalesced")) / all;
  const bar = make("div", "bar-of");
  const words = [];
  for (const [by, word] of ANSWERS) {
    const part = answered(poll, by);
    if (part === 0) continue;
    const span = make("span", `part-${by}`);
    span.style.width = `${(100 * part) / all}%`;
    bar.append(span);
    words.push(`${count(part)} ${word}`);
  }
  const box = make("div");
  box.title = words.join(", ") + reasonsOf(poll);
  box.append(bar, make("span", "sub-line", requests === 0 ? "" : `${share(saved)} saved`));
  const [main] = sortedReasons(poll);
  if (main) box.append(make("span", "sub-line reason", `${main[0]} ${count(main[1])}`));
  cell.replaceChildren(box);
}

const sortedReasons = (poll) => Object.entries(poll.reasons || {}).sort((a, b) => b[1] - a[1]);

function reasonsOf(poll) {
  const reasons = sortedReasons(poll);
  return reasons.length === 0 ? "" :
    `; not from memory: ${reasons.map(([reason, times]) => `${reason} (${count(times)})`).join(", ")}`;
}

const SCOPES = { cluster: "whole cluster", namespace: "one namespace", object: "one object" };
const scopeOf = (of) => [SCOPES[of.scope] || of.scope, of.query].filter(Boolean).join(" · ");

function risk(cell, poll) {
  cell.replaceChildren();
  if (poll.risk && poll.risk !== "none") cell.append(make("span", `tag ${poll.risk}`, poll.risk));
  for (const finding of poll.findings || []) cell.append(make("span", "tag", finding));
  cell.classList.toggle("none", cell.childElementCount === 0);
}

const RISKS = ["none", "low", "medium", "high"];

const polls = new Table(byId("polls-table"), {
  caption: "Polls",
  empty: "No requests yet. Point a client at Listless; for listless local, run: eval \"$(listless kubeconfig)\"",
  key: (poll) => [poll.caller, poll.userAgent, poll.verb, poll.resource, poll.scope, poll.query].join("\n"),
  sort: { id: "rate", down: true },
  columns: [
    { id: "client", label: "Client", className: "wide-cell lead", value: clientOf,
      draw: (cell, poll) => lines(cell, clientOf(poll) || "(no user agent)",
        poll.clients > 1 ? `${count(poll.clients)} connections` : "") },
    { id: "request", label: "Request", className: "wide-cell",
      value: (poll) => `${poll.resource} ${poll.verb}`,
      draw: (cell, poll) => lines(cell, `${poll.verb} ${poll.resource}`, scopeOf(poll), true) },
    { id: "rate", label: "Rate", number: true, value: (poll) => poll.ratePerSecond,
      draw: (cell, poll) => lines(cell, rate(poll.ratePerSecond), `${count(poll.requests)} in all`) },
    { id: "period", label: "Period", number: true, title: "Time between two requests of one client, and its jitter",
      value: (poll) => poll.periodSeconds,
      draw: (cell, poll) => lines(cell, duration(poll.periodSeconds),
        isNumber(poll.jitter) ? `± ${share(poll.jitter)}` : "") },
    { id: "answers", label: "Answered", value: (poll) => answered(poll, "cache") / (total(poll) || 1),
      draw: answersBar },
    { id: "bytes", label: "Bytes", number: true,
      title: "Bytes of responses, and the share of responses equal to the one before",
      value: (poll) => poll.bytes,
      draw: (cell, poll) => lines(cell, bytes(poll.bytes),
        isNumber(poll.unchangedShare) ? `${share(poll.unchangedShare)} unchanged` : "") },
    { id: "saved", label: "Saved", number: true, title: "Requests that did not reach the apiserver",
      value: (poll) => (poll.saved || {}).requests || (poll.wouldSave || {}).requests || 0,
      draw: (cell, poll) => {
        const saved = (poll.saved || {}).requests || 0;
        const would = (poll.wouldSave || {}).requests || 0;
        lines(cell, count(saved), would > 0 ? `${count(would)} would be` : "");
      } },
    { id: "cost", label: "CPU, estimate", number: true,
      title: "Estimated CPU time of apiserver and etcd without Listless",
      value: (poll) => costOf(poll.cost),
      draw: (cell, poll) => { cell.textContent = cpu(costOf(poll.cost)); } },
    { id: "risk", label: "Findings", className: "tags", value: (poll) => RISKS.length - RISKS.indexOf(poll.risk || "none"),
      draw: risk },
  ],
});

let report = null;

// === Reasons ===

// Text with parts in backquotes as code.
function prose(cell, text) {
  const box = make("span");
  box.append(...(text || "–").split("`")
    .map((part, index) => make(index % 2 === 1 ? "code" : "span", "", part)));
  cell.replaceChildren(box);
}

const reasons = new Table(byId("reasons-table"), {
  caption: "Reasons why memory did not answer",
  empty: "",
  key: (reason) => reason.reason,
  sort: { id: "requests", down: true },
  columns: [
    { id: "reason", label: "Reason", className: "lead", value: (reason) => reason.reason,
      draw: (cell, reason) => lines(cell, reason.reason) },
    { id: "requests", label: "Requests", number: true, value: (reason) => reason.requests,
      draw: (cell, reason) => { cell.textContent = count(reason.requests); } },
    { id: "meaning", label: "Meaning", className: "wide-cell",
      draw: (cell, reason) => prose(cell, reason.meaning) },
    { id: "remedy", label: "Remedy", className: "wide-cell",
      draw: (cell, reason) => prose(cell, reason.remedy) },
    { id: "configuration", label: "Configuration",
      draw: (cell, reason) => prose(cell, reason.configuration && `\`${reason.configuration}\``) },
  ],
});

function drawReasons() {
  const found = (report && report.reasons) || [];
  byId("reasons").hidden = found.length === 0;
  reasons.set(found);
}

function matches(poll, words) {
  const text = [poll.caller, poll.userAgent, poll.verb, poll.resource, poll.scope, poll.query, poll.risk,
    ...(poll.findings || []), ...Object.keys(poll.reasons || {})].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

function drawPolls() {
  const all = (report && report.polls) || [];
  const words = byId("polls-filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length === 0 ? all : all.filter((poll) => matches(poll, words));
  polls.set(found, all.length > 0 ? "Nothing matches the filter." : undefined);
  const others = (report && report.others) || {};
  const rest = others.requests > 0 ? `; ${count(others.requests)} requests are counted without detail` : "";
  const told = words.length === 0 ? count(all.length) : `${count(found.length)} of ${count(all.length)}`;
  say("polls-count", all.length === 0 ? "" : `${told} ${all.length === 1 ? "poll" : "polls"}${rest}`);
}

byId("polls-filter").addEventListener("input", drawPolls);

// === Patterns ===

let findingsShown = FINDINGS_STEP;

function drawFindings() {
  const findings = (report && report.findings) || [];
  const list = byId("patterns-list");
  const kept = new Map([...list.children].map((card) => [card.dataset.key, card]));
  const cards = findings.slice(0, findingsShown).map((finding) => {
    const key = JSON.stringify(finding);
    return kept.get(key) || findingCard(finding, key);
  });
  if (findings.length === 0) {
    cards.push(make("p", "empty", "No harmful pattern found. Listless looks for " +
      "polling instead of watching, lists without a limit, resync storms, writes that change " +
      "nothing, watches without bookmarks, and clients that ignore 410 or Retry-After."));
  }
  const same = cards.length === list.children.length
    && cards.every((card, index) => card === list.children[index]);
  if (!same) list.replaceChildren(...cards);
  const noun = findings.length === 1 ? "pattern" : "patterns";
  say("patterns-count", findings.length === 0 ? "" : `${count(findings.length)} ${noun}`);
  const rest = findings.length - findingsShown;
  byId("patterns-more").hidden = rest <= 0;
  say("patterns-more", `Show ${Math.min(rest, FINDINGS_STEP)} more of ${count(rest)} not shown`);
}

function findingCard(finding, key) {
  const card = make("article", "card");
  card.dataset.key = key;
  const asked = [`${finding.verb} ${finding.resource}`, scopeOf(finding)].filter(Boolean).join(" · ");
  const period = isNumber(finding.periodSeconds) ? `, every ${duration(finding.periodSeconds)}` : "";
  const foot = make("div", "foot");
  const copy = make("button", "", "Copy");
  copy.type = "button";
  copy.setAttribute("aria-label", `Copy: ${finding.title}`);
  const done = make("span", "count");
  done.setAttribute("role", "status");
  copy.addEventListener("click", async () => {
    done.textContent = (await copied(findingText(finding, asked + period))) ? "copied" : "not copied";
  });
  foot.append(copy, done);
  const library = finding.library && finding.library !== "unknown" ? ` (${finding.library})` : "";
  card.append(
    make("h3", "", finding.title),
    make("p", "who", `${clientOf(finding) || "(no user agent)"}${library}`),
    make("p", "who code", asked + period),
    make("p", "", finding.evidence),
    make("p", "fix", finding.fix),
    foot,
  );
  return card;
}

const findingText = (finding, asked) =>
  `${finding.title}\n\nClient: ${clientOf(finding)}\nRequest: ${asked}\n\n${finding.evidence}\n\n` +
  `Fix: ${finding.fix}\n`;

// A browser offers its clipboard only in a secure context; otherwise a selection is used.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea");
    area.value = text;
    area.className = "skip";
    document.body.append(area);
    area.select();
    const worked = document.execCommand("copy");
    area.remove();
    return worked;
  }
}

byId("patterns-more").addEventListener("click", () => {
  findingsShown += FINDINGS_STEP;
  drawFindings();
});

// === Replicas ===

const selectors = (replica) => [
  replica.namespace ? `in ${replica.namespace}` : "in the whole cluster",
  replica.labelSelector,
  replica.fieldSelector,
].filter(Boolean).join(" · ");

const replicas = new Table(byId("replicas-table"), {
  caption: "Replicas",
  empty: "No replicas. A read without a resourceVersion that repeats within a minute starts one.",
  key: (replica) => [replica.resource, replica.namespace, replica.labelSelector,
    replica.fieldSelector].join("\n"),
  sort: { id: "bytes", down: true },
  columns: [
    { id: "query", label: "Query", className: "wide-cell lead",
      value: (replica) => `${replica.resource} ${selectors(replica)}`,
      draw: (cell, replica) => lines(cell, replica.resource, selectors(replica), true) },
    { id: "state", label: "State", value: (replica) => `${replica.state} ${replica.link}`,
      draw: (cell, replica) => {
        const well = replica.state === "synced" && replica.link === "up";
        const state = replica.state === "synced" && !well ? "watch disconnected" : replica.state;
        const box = make("span");
        box.append(make("span", `tag ${well ? "good" : replica.state === "starting" ? "" : "high"}`, state));
        if (replica.lastError) box.append(make("span", "sub-line", replica.lastError));
        cell.replaceChildren(box);
      } },
    { id: "start", label: "Started", value: (replica) => replica.start,
      draw: (cell, replica) => {
        cell.textContent = { eager: "by configuration", onDemand: "on demand", widening: "to widen" }[
          replica.start] || replica.start;
      } },
    { id: "objects", label: "Objects", number: true, value: (replica) => replica.objects,
      draw: (cell, replica) => { cell.textContent = count(replica.objects); } },
    { id: "bytes", label: "Memory", number: true, value: (replica) => replica.bytes,
      draw: (cell, replica) => { cell.textContent = bytes(replica.bytes); } },
    { id: "version", label: "Version", number: true, value: (replica) => Number(replica.resourceVersion),
      draw: (cell, replica) => { cell.textContent = replica.resourceVersion || "–"; } },
    { id: "unproven", label: "Last update", number: true, value: (replica) => replica.unprovenSeconds,
      draw: (cell, replica) => { cell.textContent = duration(replica.unprovenSeconds); } },
    { id: "age", label: "Age", number: true, value: (replica) => replica.ageSeconds,
      draw: (cell, replica) => { cell.textContent = duration(replica.ageSeconds); } },
    { id: "idle", label: "Last read", number: true, value: (replica) => replica.idleSeconds,
      draw: (cell, replica) => { cell.textContent = duration(replica.idleSeconds); } },
    { id: "relists", label: "Relists", number: true, value: (replica) => replica.relists,
      draw: (cell, replica) => { cell.textContent = count(replica.relists); } },
    { id: "restarts", label: "Watch restarts", number: true, value: (replica) => replica.watchRestarts,
      draw: (cell, replica) => { cell.textContent = count(replica.watchRestarts); } },
  ],
});

// === Summary ===

let status = null;

function drawSummary() {
  if (!status) return;
  const observing = status.mode === "observe";
  const totals = (report && report.totals) || {};
  byId("mode").hidden = false;
  say("mode", observing ? "observe" : "enforce");
  drawOutage();
  byId("readiness").hidden = status.ready;
  say("readiness", status.ready ? "" : `not ready: ${status.notReady.join(", ")}`);
  say("about", `${status.version} · apiserver ${status.upstream} · up ${duration(status.upSeconds)}`);
  const { requests } = status;
  const saved = observing ? totals.wouldSaveRequests || 0 : status.saved.requests;
  const part = requests.answered > 0 ? saved / requests.answered : null;
  say("saved-label", observing ? "Requests that would be saved" : "Requests saved");
  say("saved-share", share(part));
  say("saved-detail", requests.answered === 0 ? "no requests yet"
    : `${count(saved)} of ${count(requests.answered)}; `
      + (observing ? "from memory, nothing deducted" : "Listless's own requests are deducted"));
  say("answered", count(requests.answered));
  say("answered-detail", `${count(requests.fromMemory)} from memory, ${count(requests.coalesced)} shared, `
    + `${count(requests.forwarded)} forwarded, ${count(requests.failed)} failed or refused`
    + (requests.clientClosed > 0 ? `, ${count(requests.clientClosed)} cancelled by their clients` : "")
    + heldPolls(totals));
  say("upstream", count(requests.upstream));
  say("upstream-detail", `${count(requests.upstreamForItself)} of them are Listless's own`);
  drawEstimate(totals);
  say("held", count(status.replicas.count));
  const starting = status.replicas.count - status.replicas.synced;
  say("held-detail", `${count(status.replicas.objects)} objects, ${bytes(status.replicas.bytes)} of `
    + `${bytes(status.replicas.bytesMax)}${starting > 0 ? `, ${count(starting)} not synced` : ""}`);
  document.title = part === null ? "Listless" : `${share(part)} saved · Listless`;
}

// The banner of an outage of the apiserver: its cause and its beginning.
function drawOutage() {
  const { apiserver } = status;
  byId("outage").hidden = !apiserver.message;
  if (isLinked) drawLink();
  if (!apiserver.message) return say("outage", "");
  const since = time.format(new Date(apiserver.since * 1000));
  const noun = apiserver.failures === 1 ? "request" : "requests";
  const text = `${apiserver.message}, since ${since} (${count(apiserver.failures)} ${noun} failed).`;
  say("outage", text[0].toUpperCase() + text.slice(1));
}

// Polls delayed by each of the two limits.
function heldPolls({ paced = 0, pacedFromMemory = 0 }) {
  if (paced === 0) return "";
  return `; delayed: ${count(paced - pacedFromMemory)} to the apiserver, `
    + `${count(pacedFromMemory)} as loops on responses from memory`;
}

function drawEstimate({ estimate, savedBytes = 0 }) {
  if (!estimate) {
    say("estimate", "–");
    say("estimate-detail", "");
    return;
  }
  say("estimate", cpu(costOf(estimate)));
  say("estimate-detail", `apiserver ${cpu(estimate.apiserverCpuSeconds)}, `
    + `etcd ${cpu(estimate.etcdCpuSeconds)}; ${bytes(Math.max(0, savedBytes))} of responses`);
  byId("estimate-mark").title = estimate.formula || "";
}

// === The timeline ===

const timeline = { points: [], marks: [], max: 900 };
const MARKS_MAX = 256;
const HEIGHT = 190;
const MARGIN = { left: 44, right: 10, top: 18, bottom: 22 };

function addTimeline(update) {
  timeline.max = update.pointsMax;
  timeline.points = merged(timeline.points, update.points, (point) => point.at, update.pointsMax);
  const which = (mark) => `${mark.at} ${mark.kind} ${mark.text}`;
  timeline.marks = merged(timeline.marks, update.marks, which, MARKS_MAX);
  drawTimeline();
}

// Sorted by time without duplicates: the stream may send a second before the earlier ones are read.
function merged(known, update, which, lengthMax) {
  const keys = new Set(known.map(which));
  const all = [...known, ...update.filter((one) => !keys.has(which(one)))];
  return all.sort((a, b) => a.at - b.at).slice(-lengthMax);
}

// Rounds up to a number whose half is whole, so that the scale does not change with every request.
function ceiling(value) {
  if (value <= 4) return 4;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].filter((factor) => factor * power >= 4).map((factor) => factor * power).find((round) => round >= value);
}

function scales(width, points) {
  const until = points.length > 0 ? points[points.length - 1].at : Math.floor(Date.now() / 1000);
  const seconds = Math.min(timeline.max, Math.max(120, points.length > 0 ? until - points[0].at : 0));
  const from = until - seconds;
  const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
  const bin = Math.max(1, Math.ceil(seconds / (inner.width / 3)));
  const bins = binned(points.filter((point) => point.at > from), bin);
  const top = ceiling(Math.max(1, ...bins.map((point) => Math.max(point.client, point.upstream))));
  return {
    from, until, seconds, bins, top, inner, bin,
    x: (at) => MARGIN.left + (inner.width * (at - from)) / seconds,
    y: (value) => MARGIN.top + inner.height * (1 - value / top),
  };
}

// Averages neighbouring seconds if there are fewer pixels.
function binned(points, bin) {
  const bins = new Map();
  for (const point of points) {
    const at = Math.floor(point.at / bin) * bin;
    const sum = bins.get(at) || { at, client: 0, upstream: 0, seconds: 0 };
    sum.client += point.client;
    sum.upstream += point.upstream;
    sum.seconds += 1;
    bins.set(at, sum);
  }
  return [...bins.values()].map((sum) => ({
    at: sum.at, client: sum.client / sum.seconds, upstream: sum.upstream / sum.seconds,
  }));
}

function area(scale, name) {
  if (scale.bins.length === 0) return "";
  const ends = [scale.bins[0].at, scale.bins[scale.bins.length - 1].at];
  const top = scale.bins.map((point) => `L${scale.x(point.at).toFixed(1)} ${scale.y(point[name]).toFixed(1)}`);
  const ground = scale.y(0).toFixed(1);
  return `M${scale.x(ends[0]).toFixed(1)} ${ground}${top.join("")}L${scale.x(ends[1]).toFixed(1)} ${ground}Z`;
}

function drawTimeline() {
  const chart = byId("chart");
  const width = Math.max(280, Math.floor(chart.clientWidth));
  const scale = scales(width, timeline.points);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": inWords() });
  for (const part of [0, 0.5, 1]) {
    const y = scale.y(part * scale.top);
    svg.append(shape("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }));
    svg.append(shape("text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" },
      count(part * scale.top)));
  }
  svg.append(shape("text", { x: 2, y: 10 }, "per second"));
  const step = [30, 60, 120, 180, 300].find((step) => scale.seconds / step <= width / 90) || 300;
  for (let at = Math.ceil(scale.from / step) * step; at <= scale.until; at += step) {
    svg.append(shape("text", { x: scale.x(at), y: HEIGHT - 6, "text-anchor": "middle" },
      step < 60 ? clock(at) : minute.format(new Date(at * 1000))));
  }
  svg.append(shape("path", { class: "client", d: area(scale, "client") }));
  svg.append(shape("path", { class: "upstream", d: area(scale, "upstream") }));
  for (const mark of timeline.marks.filter((mark) => mark.at > scale.from)) {
    const x = scale.x(mark.at);
    const group = shape("g", { "data-kind": mark.kind });
    group.append(
      shape("title", {}, `${clock(mark.at)} ${inFull(mark)}`),
      shape("line", { class: "mark", x1: x, x2: x, y1: MARGIN.top - 4, y2: HEIGHT - MARGIN.bottom }),
      shape("path", { class: "flag", d: `M${x - 4} ${MARGIN.top - 10}h8l-4 7z` }),
    );
    svg.append(group);
  }
  const cursor = shape("line", { class: "cursor", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, x1: -9, x2: -9 });
  svg.append(cursor);
  svg.addEventListener("pointermove", (event) => point(event, svg, scale, cursor, width));
  svg.addEventListener("pointerleave", () => {
    cursor.setAttribute("x1", -9);
    cursor.setAttribute("x2", -9);
    readout(null);
  });
  chart.replaceChildren(svg);
  if (!pointed) readout(null);
  drawIncidents();
}

let pointed = false;

function point(event, svg, scale, cursor, width) {
  const box = svg.getBoundingClientRect();
  const x = ((event.clientX - box.left) * width) / box.width;
  const at = scale.from + ((x - MARGIN.left) / scale.inner.width) * scale.seconds;
  const nearest = scale.bins.reduce((best, bin) =>
    (best === null || Math.abs(bin.at - at) < Math.abs(best.at - at) ? bin : best), null);
  if (!nearest) return;
  cursor.setAttribute("x1", scale.x(nearest.at));
  cursor.setAttribute("x2", scale.x(nearest.at));
  readout(nearest);
}

function readout(bin) {
  pointed = bin !== null;
  const last = timeline.points[timeline.points.length - 1];
  const shown = bin || last;
  say("readout", shown ? `${bin ? clock(shown.at) : "now"}: ${rate(shown.client)} from clients, `
    + `${rate(shown.upstream)} to the apiserver` : "");
}

function inWords() {
  const recent = timeline.points.slice(-60);
  const sum = (name) => recent.reduce((sum, point) => sum + point[name], 0);
  return `Requests per second. In the last ${recent.length} seconds ${count(sum("client"))} requests of `
    + `clients and ${count(sum("upstream"))} to the apiserver; ${timeline.marks.length} incidents.`;
}

const inFull = (mark) => (mark.count > 1 ? `${mark.text} (${count(mark.count)} times)` : mark.text);

function drawIncidents() {
  const newest = timeline.marks.slice(-INCIDENTS_SHOWN).reverse();
  byId("incidents").replaceChildren(...newest.map((mark) => {
    const item = make("li");
    const at = make("time", "", clock(mark.at));
    at.dateTime = new Date(mark.at * 1000).toISOString();
    item.append(at, inFull(mark));
    return item;
  }));
}

new ResizeObserver(drawTimeline).observe(byId("chart"));

// === Explain ===

async function explain() {
  const [method, url] = [byId("explain-method").value, byId("explain-url").value.trim()];
  const place = byId("explanation");
  try {
    const question = new URLSearchParams({ method, url });
    const answer = await fetch(`api/v1/explain?${question}`, { cache: "no-store" });
    if (!answer.ok) {
      place.replaceChildren(make("p", "problem", (await answer.text()).trim()));
      return;
    }
    const list = make("dl", "told");
    for (const { topic, text } of (await answer.json()).told) {
      list.append(make("dt", "", topic), make("dd", topic === "now" ? "now" : "", text));
    }
    place.replaceChildren(list);
  } catch {
    place.replaceChildren(make("p", "problem", "Listless does not answer."));
  }
}

byId("explain-form").addEventListener("submit", (event) => {
  event.preventDefault();
  explain();
});

// === Live requests ===

const live = { source: null, rows: [], lost: 0, seen: 0, drawing: null };

const liveTable = new Table(byId("live-table"), {
  caption: "Live requests",
  empty: "Press “Watch requests” to see them as they are answered. Watching costs each request a little. "
    + "Of the headers only the user agent is shown.",
  key: (row) => String(row.number),
  columns: [
    { id: "at", label: "Time", draw: (cell, row) => { cell.textContent = clock(row.at); } },
    { id: "request", label: "Request", className: "wide-cell",
      draw: (cell, row) => lines(cell, [row.verb, row.resource, row.subresource, row.namespace, row.name]
        .filter(Boolean).join(" "), row.query, true) },
    { id: "client", label: "Client", className: "wide-cell",
      draw: (cell, row) => { cell.textContent = row.userAgent || "(no user agent)"; } },
    { id: "served", label: "Answered by",
      draw: (cell, row) => lines(cell, row.phase === "began" ? `${row.servedBy}, watching` : row.servedBy,
        row.detail) },
    { id: "code", label: "Code", number: true, draw: (cell, row) => { cell.textContent = String(row.code); } },
    { id: "bytes", label: "Bytes", number: true, draw: (cell, row) => { cell.textContent = bytes(row.bytes); } },
    { id: "took", label: "Took", number: true,
      draw: (cell, row) => {
        cell.textContent = row.seconds < 1 ? `${(row.seconds * 1000).toFixed(1)} ms` : duration(row.seconds);
      } },
  ],
});
liveTable.shown = LIVE_ROWS;

function drawLive() {
  live.drawing = null;
  liveTable.set(live.rows.slice().reverse(), live.source ? "No requests yet." : undefined);
  const lost = live.lost > 0 ? `, ${count(live.lost)} more were too fast to show` : "";
  if (live.source) say("live-count", `Watching: ${count(live.seen)} seen${lost}.`);
}

function soon() {
  if (!live.drawing) live.drawing = setTimeout(drawLive, LIVE_DRAW_MS);
}

function watchRequests() {
  live.rows = [];
  [live.lost, live.seen] = [0, 0];
  const wanted = new URLSearchParams({ only: "requests" });
  if (byId("live-filter").value) wanted.set("userAgent", byId("live-filter").value);
  live.source = new EventSource(`api/v1/events?${wanted}`);
  live.source.addEventListener("request", (event) => {
    live.seen += 1;
    live.rows.push({ number: live.seen, ...JSON.parse(event.data) });
    live.rows.splice(0, Math.max(0, live.rows.length - LIVE_ROWS));
    soon();
  });
  live.source.addEventListener("lost", (event) => {
    live.lost += JSON.parse(event.data).lost;
    soon();
  });
  live.source.addEventListener("error", () => {
    if (live.source && live.source.readyState === EventSource.CLOSED) {
      stopWatching();
      say("live-count", "Not watching: Listless refused the stream. Other viewers may use all streams.");
    }
  });
  byId("live-toggle").setAttribute("aria-pressed", "true");
  say("live-toggle", "Stop");
  drawLive();
}

function stopWatching() {
  live.source.close();
  live.source = null;
  byId("live-toggle").setAttribute("aria-pressed", "false");
  say("live-toggle", "Watch requests");
  say("live-count", "Not watching.");
}

byId("live-toggle").addEventListener("click", () => (live.source ? stopWatching() : watchRequests()));
byId("live-filter").addEventListener("change", () => {
  if (live.source) {
    stopWatching();
    watchRequests();
  }
});

// === Keeping up ===

let lostSince = null;
let isLinked = false;

// Green only if Listless and the apiserver behind it respond, grey while nobody knows.
function drawLink() {
  const { state = "unknown", message } = (status && status.apiserver) || {};
  const shown = !isLinked || message ? "lost" : state === "unknown" ? "unknown" : "live";
  byId("link").dataset.state = shown;
  say("link", !isLinked ? "connection lost" : message ? "apiserver failing"
    : shown === "unknown" ? "apiserver not asked yet" : "live");
}

function connected(isConnected) {
  isLinked = isConnected;
  drawLink();
  if (isConnected) lostSince = null;
  else if (!lostSince) lostSince = Date.now();
  byId("notice").hidden = isConnected;
  if (!isConnected) {
    say("notice", `No connection to Listless since ${time.format(new Date(lostSince))}. `
      + "The data shown is from before; reconnecting.");
  }
}

function follow() {
  const source = new EventSource("api/v1/events?only=status");
  source.addEventListener("open", () => {
    connected(true);
    catchUp();
  });
  source.addEventListener("status", (event) => {
    status = JSON.parse(event.data);
    drawSummary();
  });
  source.addEventListener("timeline", (event) => addTimeline(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    connected(false);
    // A response that is no stream ends it permanently; the browser reconnects a broken one.
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, RETRY_MS);
  });
}

async function read(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

// Reads the data missed without a stream, which sends only new data.
async function catchUp() {
  try {
    const last = timeline.points.length > 0 ? timeline.points[timeline.points.length - 1].at : 0;
    addTimeline(await read(`api/v1/timeline?since=${last}`));
    await refresh();
  } catch {
    // The stream reports a lost connection.
  }
}

async function refresh() {
  const [told, held] = await Promise.all([
    read(`api/v1/report?limit=${REPORT_ROWS}`),
    read("debug/replicas"),
  ]);
  report = told;
  drawPolls();
  drawReasons();
  drawFindings();
  drawSummary();
  replicas.set(held.replicas);
  const noun = held.replicas.length === 1 ? "replica" : "replicas";
  say("replicas-count", held.replicas.length === 0 ? "" : `${count(held.replicas.length)} ${noun}`);
}

async function keepUp() {
  // A hidden page needs no updates.
  if (!document.hidden) {
    try {
      if (lostSince) await readInstead();
      await refresh();
    } catch {
      // The stream reports the error, or the next read succeeds.
    }
  }
  const isLarge = report && report.polls.length > LARGE_REPORT_ROWS;
  setTimeout(keepUp, isLarge ? LARGE_REPORT_MS : REPORT_MS);
}

// Listless answers but refuses a stream: other viewers may use all streams.
async function readInstead() {
  status = await read("api/v1/status");
  const last = timeline.points.length > 0 ? timeline.points[timeline.points.length - 1].at : 0;
  addTimeline(await read(`api/v1/timeline?since=${last}`));
  if (!lostSince) return;
  say("link", "reading");
  say("notice", "Listless has no free live stream. The page reads its figures every few seconds instead.");
}

drawTimeline();
follow();
setTimeout(keepUp, REPORT_MS);
