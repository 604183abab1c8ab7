// What pages do beyond HTML: follow a log, copy it, filter rows, refresh the dashboard. Everything else works without.
"use strict";

// Most lines that a followed log keeps on the page; the oldest go first, the plain text has all.
const MAX_LINES = 20000;

const byId = (id) => document.getElementById(id);

// One line of a log, as the server renders it; text is only ever set as text.
function logLine(number, line) {
  const row = document.createElement("div");
  row.className = "l " + line.k;
  row.id = "L" + number;
  const link = document.createElement("a");
  link.className = "n";
  link.href = "#L" + number;
  link.dataset.n = number;
  link.tabIndex = -1;
  link.setAttribute("aria-label", "line " + number);
  const text = document.createElement("span");
  text.className = "t";
  for (const [classes, part] of line.s) {
    const span = document.createElement("span");
    if (classes) span.className = classes;
    span.textContent = part;
    text.append(span);
  }
  row.append(link, text);
  return row;
}

const replaceFrom = async (id) => {
  const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" } });
  if (!answer.ok) return null;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const part = fresh.getElementById(id);
  if (part) byId(id).replaceWith(part);
  if (part) document.title = fresh.title;
  return part;
};

// The result may be recorded a moment after the log ended.
async function showResult(tries) {
  const part = await replaceFrom("job").catch(() => null);
  if ((!part || part.dataset.state === "running") && tries > 0) setTimeout(() => showResult(tries - 1), 1000);
}

function followLog(log) {
  const state = byId("stream-state"), follow = byId("follow");
  byId("follow-label").hidden = false;
  state.textContent = "live";
  let waiting = document.createDocumentFragment(), scheduled = false;
  const flush = () => {
    scheduled = false;
    byId("no-lines")?.remove();
    log.append(waiting);
    while (log.childElementCount > MAX_LINES) log.firstElementChild.remove();
    if (follow.checked) window.scrollTo(0, document.documentElement.scrollHeight);
  };
  const later = () => {
    if (!scheduled) { scheduled = true; setTimeout(flush, 100); }
  };
  const source = new EventSource(log.dataset.stream + "?from=" + log.dataset.lines);
  source.addEventListener("line", (event) => {
    waiting.append(logLine(event.lastEventId, JSON.parse(event.data)));
    later();
  });
  source.addEventListener("notice", (event) => { state.textContent = event.data; });
  source.addEventListener("end", () => {
    source.close();
    flush();
    state.textContent = "";
    byId("follow-label").hidden = true;
    showResult(10);
  });
  source.onopen = () => { state.textContent = "live"; };
  source.onerror = () => {
    state.textContent = source.readyState === EventSource.CLOSED ? "no longer live; reload to go on" : "connection lost, trying again…";
  };
  // Whoever scrolls up wants to read.
  addEventListener("wheel", (event) => { if (event.deltaY < 0) follow.checked = false; }, { passive: true });
}

function offerCopy(button) {
  if (!navigator.clipboard) return;
  button.hidden = false;
  button.addEventListener("click", async () => {
    const text = fetch(button.dataset.from).then((answer) => answer.text());
    try { await navigator.clipboard.writeText(await text); button.textContent = "Copied"; } catch { button.textContent = "Not allowed"; }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

function filterRows() {
  const words = byId("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const row of document.querySelectorAll("[data-row]")) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
}

// Replaces what changed, but never under somebody's hands.
async function refresh() {
  if (document.hidden) return;
  const answer = await fetch(location.pathname, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    const busy = part.contains(document.activeElement) || part.querySelector("details[open]");
    if (next && !busy && next.innerHTML !== part.innerHTML) part.replaceWith(next);
  }
  filterRows();
}

const log = byId("log"), copy = byId("copy"), filter = byId("filter");
if (log?.dataset.stream && window.EventSource) followLog(log);
if (copy) offerCopy(copy);
if (filter) {
  filter.hidden = false;
  filter.addEventListener("input", filterRows);
  setInterval(() => refresh().catch(() => {}), 10000);
}
