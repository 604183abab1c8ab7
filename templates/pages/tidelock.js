// What pages do beyond HTML: follow a log, step through its errors, copy it, filter as one types, refresh the dashboard, tell the reader's own time.
// Everything else works without.
"use strict";

// Most lines that a followed log keeps on the page; the oldest go first, the plain text has all.
const MAX_LINES = 20000;

// After the last key of a filter.
const TYPING_PAUSE = 250;

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

// Times in the reader's zone, with UTC beside.
function localTimes(root) {
  const words = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (isNaN(moment)) continue;
    const utc = moment.toISOString().slice(0, 16).replace("T", " ") + " UTC";
    const both = words.format(moment) + " (" + utc + ")";
    if ("whole" in time.dataset) time.textContent = both;
    else time.title = both;
  }
}

const replaceFrom = async (id) => {
  const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" } });
  if (!answer.ok) return null;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  const part = fresh.getElementById(id);
  if (part) localTimes(part);
  if (part) byId(id).replaceWith(part);
  if (part) document.title = fresh.title;
  return part;
};

// The result may be recorded a moment after the log ended.
async function showResult(tries) {
  const part = await replaceFrom("job").catch(() => null);
  if ((!part || part.dataset.state === "running") && tries > 0) setTimeout(() => showResult(tries - 1), 1000);
}

const toEnd = () => window.scrollTo(0, document.documentElement.scrollHeight);

function followLog(log) {
  const state = byId("stream-state"), resume = byId("follow"), error = byId("error");
  let following = true, last = window.scrollY;
  state.textContent = "live, following";
  const stop = () => {
    if (!following) return;
    following = false;
    resume.hidden = false;
    state.textContent = "live, not following";
  };
  const go = () => {
    following = true;
    resume.hidden = true;
    state.textContent = "live, following";
    toEnd();
    last = window.scrollY;
  };
  resume.addEventListener("click", () => { go(); log.focus({ preventScroll: true }); });
  let waiting = document.createDocumentFragment(), scheduled = false;
  const flush = () => {
    scheduled = false;
    byId("no-lines")?.remove();
    if (waiting.querySelector(".l.err")) error.hidden = false;
    log.append(waiting);
    let cut = 0;
    while (log.childElementCount > MAX_LINES) { cut += log.firstElementChild.offsetHeight; log.firstElementChild.remove(); }
    if (cut && !following) window.scrollBy(0, -cut);
    if (following) toEnd();
    last = window.scrollY;
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
    following = false;
    state.textContent = "";
    resume.hidden = true;
    showResult(10);
  });
  source.onopen = () => { state.textContent = following ? "live, following" : "live, not following"; };
  source.onerror = () => {
    state.textContent = source.readyState === EventSource.CLOSED ? "no longer live; reload to go on" : "connection lost, trying again…";
  };
  // Whoever moves up wants to read, by wheel, key, finger or scroll bar.
  addEventListener("scroll", () => {
    const now = window.scrollY;
    if (now < last - 1) stop();
    last = now;
  }, { passive: true });
  addEventListener("wheel", (event) => { if (event.deltaY < 0) stop(); }, { passive: true });
  addEventListener("keydown", (event) => {
    if (["ArrowUp", "PageUp", "Home"].includes(event.key) || (event.key === " " && event.shiftKey)) stop();
  });
  addEventListener("resize", () => {
    if (following) toEnd();
    last = window.scrollY;
  });
  let finger = null;
  addEventListener("touchstart", (event) => { finger = event.touches[0]?.clientY ?? null; }, { passive: true });
  addEventListener("touchmove", (event) => {
    const y = event.touches[0]?.clientY ?? null;
    if (finger !== null && y !== null && y > finger + 2) stop();
    finger = y;
  }, { passive: true });
  go();
}

// Leads to the error after the one that the address names, and from the last to the first.
function stepThroughErrors(link) {
  link.addEventListener("click", (event) => {
    const errors = [...byId("log").querySelectorAll(".l.err")];
    const here = errors.findIndex((row) => "#" + row.id === location.hash);
    const next = errors[(here + 1) % errors.length];
    if (!next) return;
    event.preventDefault();
    const fold = next.closest("details");
    if (fold) fold.open = true;
    location.hash = next.id;
    link.textContent = errors.length === 1 ? "First error" : "Next error";
  });
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

// Replaces what changed, but never under somebody's hands; with `all` also where nothing but the filter was touched.
let asked = 0;
async function refresh(all) {
  if (document.hidden && !all) return;
  const mine = ++asked;
  const answer = await fetch(location.pathname + location.search, { headers: { Accept: "text/html" } });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (mine !== asked) return;
  localTimes(fresh);
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    const busy = !all && (part.contains(document.activeElement) || part.querySelector("details[open]"));
    if (next && !busy && next.innerHTML !== part.innerHTML) part.replaceWith(next);
  }
}

function filterAsTyped(filter) {
  let pause = null;
  const look = () => {
    const address = new URL(location.href);
    address.search = "";
    address.hash = "";
    const words = filter.value.trim();
    if (words) address.searchParams.set("q", words);
    if (address.href === location.href) return;
    history.replaceState(null, "", address);
    refresh(true).catch(() => {});
  };
  filter.addEventListener("input", () => { clearTimeout(pause); pause = setTimeout(look, TYPING_PAUSE); });
}

localTimes(document);
const log = byId("log"), copy = byId("copy"), error = byId("error"), filter = byId("filter");
if (log?.dataset.stream && window.EventSource) followLog(log);
if (copy) offerCopy(copy);
if (error) stepThroughErrors(error);
if (filter) {
  // A notice is shown once, not again when the page is loaded anew.
  const address = new URL(location.href);
  if (address.searchParams.has("notice")) {
    address.searchParams.delete("notice");
    history.replaceState(null, "", address);
  }
  filterAsTyped(filter);
  setInterval(() => refresh(false).catch(() => {}), 10000);
}
