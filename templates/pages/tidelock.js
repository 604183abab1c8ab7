// What pages do beyond HTML: follow a log, step through its errors, copy it, filter as one types, show changes as they happen, tell the
// reader's own time, and keep the reader's theme, filters and shortcuts in this browser. Everything else works without.
"use strict";

// Most lines that a followed log keeps on the page; the oldest go first, the plain text has all.
const MAX_LINES = 20000;

// After the last key of a filter.
const TYPING_PAUSE = 250;

// Between two tries to be told of changes, and between two looks without being told: ages of rows grow.
const RECONNECT = 10000;
const LOOK_ANYWAY = 60000;

// Longest time between the two keys of a shortcut.
const KEY_PAUSE = 1500;

// Most filters that are kept for a page.
const MAX_SAVED = 20;

const byId = (id) => document.getElementById(id);

// A setting of this browser. Where storage is switched off, it holds for the page.
const settings = {
  get(name) { try { return localStorage.getItem(name); } catch { return null; } },
  set(name, value) { try { value === null ? localStorage.removeItem(name) : localStorage.setItem(name, value); } catch { /* As above. */ } },
};

// An element with attributes and children; text is only ever set as text.
function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

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
  const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium", hourCycle: "h23" });
  for (const time of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(time.dateTime);
    if (isNaN(moment)) continue;
    const utc = moment.toISOString().slice(0, 16).replace("T", " ") + " UTC";
    const both = words.format(moment) + " (" + utc + ")";
    if ("clock" in time.dataset) time.textContent = clock.format(moment);
    if ("whole" in time.dataset) time.textContent = both;
    else time.title = both;
  }
}

// The page as it is now; of a log, only what is above it.
async function fetchFresh() {
  const address = document.querySelector("[data-fresh]")?.dataset.fresh ?? location.pathname + location.search;
  return fetch(address, { headers: { Accept: "text/html" } });
}

// The result may be recorded a moment after the log ended.
async function showResult(tries) {
  await refresh(true).catch(() => {});
  if (byId("job").dataset.state === "running" && tries > 0) setTimeout(() => showResult(tries - 1), 1000);
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

// Leads to the line of this kind after the one that the address names, and from the last to the first; with `step` -1 the other way.
function stepThrough(link, kind, step, label) {
  link.addEventListener("click", (event) => {
    const rows = [...byId("log").querySelectorAll(kind)];
    const here = rows.findIndex((row) => "#" + row.id === location.hash);
    const next = rows[here < 0 && step < 0 ? rows.length - 1 : (here + step + rows.length) % rows.length];
    if (!next) return;
    event.preventDefault();
    location.hash = next.id;
    showTarget();
    if (rows.length > 1) link.textContent = label;
  });
}

// Unfolds the step that has the line of the address: not every browser does it by itself.
function showTarget() {
  const line = /^#L\d+$/.test(location.hash) && byId(location.hash.slice(1));
  const fold = line && line.closest("details:not([open])");
  if (!fold) return;
  fold.open = true;
  line.scrollIntoView();
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

// A notice above the content, said once.
function note(id, text) {
  if (byId(id)) return;
  const notice = element("p", { class: "notice warn", role: "status", id }, text + " ");
  notice.append(element("a", { href: location.href }, "Reload"));
  byId("main").prepend(notice);
}

// What somebody has begun in a part.
function isBusy(part) {
  const isChanged = (field) => field.tagName === "SELECT" ? field.selectedIndex > 0 : field.type !== "hidden" && field.value !== field.defaultValue;
  return part.contains(document.activeElement) || part.querySelector("details[open]") || [...part.querySelectorAll("input, select")].some(isChanged);
}

// The content of a part, without the keys of its forms, which are new each time.
const content = (part) => part.innerHTML.replace(/(name="key" value=")[0-9a-f]*/g, "$1");

// Replaces what changed, but never under somebody's hands; with `all` also where nothing but the filter was touched. The forms of a part act on
// the commit that the page showed when it was loaded: those for another one are not put in their place.
let asked = 0;
async function refresh(all) {
  const mine = ++asked;
  const answer = await fetchFresh();
  if (answer.status === 401 || answer.status === 403) return note("ended", "Your session has ended, and this page is not up to date any more.");
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (mine !== asked) return;
  localTimes(fresh);
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    if (!next || content(next) === content(part)) continue;
    if (part.dataset.about && next.dataset.about && next.dataset.about !== part.dataset.about) {
      note("moved", "There is a newer commit, or another pull request has the project. The buttons here are for what the page showed before.");
    } else if (all || !isBusy(part)) part.replaceWith(next);
  }
  document.title = fresh.title;
  // A log that is not followed, as there is a search in it.
  const log = byId("log"), state = byId("stream-state");
  if (log && state && !log.dataset.stream && byId("job")?.dataset.state !== "running") state.textContent = "";
}

// Shows changes while the page is seen. A page that nobody sees holds no connection, and does not keep a server awake that sleeps.
function keepUpToDate(main) {
  let shown = main.dataset.revision ?? "", source = null, timer = null;
  const look = () => { refresh(false).catch(() => {}); };
  const disconnect = () => {
    source?.close();
    source = null;
    clearTimeout(timer);
  };
  const connect = () => {
    disconnect();
    if (document.hidden) return;
    source = new EventSource(new URL("changes?since=" + encodeURIComponent(shown), document.querySelector(".brand").href));
    source.addEventListener("change", (event) => {
      shown = event.lastEventId;
      look();
    });
    // The browser tries again by itself unless the server refuses.
    source.onerror = () => {
      if (source?.readyState !== EventSource.CLOSED) return;
      timer = setTimeout(() => { look(); connect(); }, RECONNECT);
    };
  };
  document.addEventListener("visibilitychange", connect);
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  setInterval(() => { if (!document.hidden) look(); }, LOOK_ANYWAY);
  connect();
}

function chooseTheme(button) {
  const themes = ["system", "light", "dark"];
  const show = (theme) => {
    button.textContent = "Theme: " + theme;
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  };
  show(document.documentElement.dataset.theme ?? "system");
  button.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? "system";
    const next = themes[(themes.indexOf(now) + 1) % themes.length];
    settings.set("theme", next === "system" ? null : next);
    show(next);
  });
}

// Shortcuts of one key. Those who dictate to their computer can switch them off.
const PLACES = { o: "Overview", r: "Runs", p: "Pull requests", j: "Projects", d: "Drift", a: "Audit" };

function describeKeys() {
  const rows = [["/", "Search; on the page of a log, in it"], ["j", "Next row"], ["k", "Previous row"], ["e", "Next error of a log"], ["n", "Next match in a log"], ["N", "Previous match in a log"], ["?", "This list"]];
  for (const [key, place] of Object.entries(PLACES)) rows.push(["g " + key, place]);
  const list = element("dl", { class: "keys" });
  for (const [keys, words] of rows) {
    const term = element("dt", {});
    for (const key of keys.split(" ")) term.append(element("kbd", {}, key), " ");
    list.append(term, element("dd", {}, words));
  }
  const on = element("input", { type: "checkbox", id: "keys-on" });
  on.checked = settings.get("keys") !== "off";
  on.addEventListener("change", () => settings.set("keys", on.checked ? null : "off"));
  const close = element("button", { type: "button" }, "Close");
  const dialog = element("dialog", { "aria-labelledby": "keys-title" },
    element("h2", { id: "keys-title" }, "Keyboard shortcuts"), list,
    element("p", {}, element("label", {}, on, " Use them in this browser")), close);
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function moveToRow(step) {
  const links = [...document.querySelectorAll("main .row")].map((row) => row.querySelector("a[href], button, summary")).filter(Boolean);
  const here = links.findIndex((link) => link.closest(".row") === document.activeElement.closest(".row"));
  const next = links[here < 0 ? (step > 0 ? 0 : links.length - 1) : here + step];
  next?.focus();
}

function listenToKeys() {
  let goesUntil = 0;
  addEventListener("keydown", (event) => {
    const writes = event.target.closest?.("input:not([type=checkbox]), textarea, select, [contenteditable], dialog");
    if (writes || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || settings.get("keys") === "off") return;
    const place = event.timeStamp < goesUntil && [...document.querySelectorAll(".site a")].find((link) => link.textContent.trim() === PLACES[event.key]);
    goesUntil = event.key === "g" ? event.timeStamp + KEY_PAUSE : 0;
    const acts = {
      "/": () => (byId("find") ?? byId("search")).focus(), "?": describeKeys, j: () => moveToRow(1), k: () => moveToRow(-1),
      e: () => byId("error")?.click(), n: () => byId("match")?.click(), N: () => byId("match-before")?.click(),
    };
    const act = place ? () => place.click() : Object.hasOwn(acts, event.key) ? acts[event.key] : null;
    if (!act) return;
    event.preventDefault();
    act();
  });
}

// Filters that the reader has named. They stay in this browser.
function offerSavedFilters(form) {
  const key = "filters:" + form.getAttribute("action").replace(/^(\.\.?\/)+/, "").replace(/^runs\/[0-9a-f]+\//, "");
  const fields = new Set([...form.elements].map((field) => field.name).filter(Boolean));
  const search = new URLSearchParams([...new URLSearchParams(location.search)].filter(([name, value]) => fields.has(name) && value)).toString();
  const read = () => {
    try {
      const saved = JSON.parse(settings.get(key) ?? "[]");
      return saved.filter((one) => typeof one.name === "string" && typeof one.search === "string").slice(0, MAX_SAVED);
    } catch { return []; }
  };
  const list = element("ul", { class: "chips saved", "aria-label": "Your filters" });
  const show = () => {
    const saved = read();
    const write = (all) => { settings.set(key, all.length ? JSON.stringify(all) : null); show(); };
    list.replaceChildren(...saved.map((one) => {
      const link = element("a", { href: location.pathname + "?" + one.search }, one.name);
      if (one.search === search) link.setAttribute("aria-current", "true");
      const forget = element("button", { type: "button", "aria-label": "Forget the filter " + one.name }, "×");
      forget.addEventListener("click", () => write(saved.filter((other) => other.name !== one.name)));
      return element("li", {}, link, forget);
    }));
    if (search && saved.length < MAX_SAVED && !saved.some((one) => one.search === search)) {
      const name = element("input", { maxlength: 60, placeholder: "name", "aria-label": "Name of this filter", autocomplete: "off", required: "" });
      const naming = element("form", { class: "search" }, name, element("button", {}, "Save this filter"));
      naming.addEventListener("submit", (event) => {
        event.preventDefault();
        const chosen = name.value.trim();
        if (chosen) write([...saved.filter((one) => one.name !== chosen), { name: chosen, search }]);
      });
      list.append(element("li", { class: "more" }, naming));
    }
    list.hidden = !list.childElementCount;
  };
  form.after(list);
  show();
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
const log = byId("log"), copy = byId("copy"), error = byId("error"), filter = byId("filter"), filters = document.querySelector("form.filters");
if (log?.dataset.stream && window.EventSource) followLog(log);
if (copy) offerCopy(copy);
if (error) stepThrough(error, ".l.err", 1, "Next error");
if (byId("match")) {
  stepThrough(byId("match"), ".l.hit", 1, "Next match");
  stepThrough(byId("match-before"), ".l.hit", -1, "Previous match");
  byId("match-before").hidden = false;
}
if (log) {
  showTarget();
  addEventListener("hashchange", showTarget);
}
// A notice is shown once, not again when the page is loaded anew.
const address = new URL(location.href);
if (address.searchParams.has("notice")) {
  address.searchParams.delete("notice");
  history.replaceState(null, "", address);
}
if (filter) filterAsTyped(filter);
if (filters) offerSavedFilters(filters);
if (document.querySelector("[data-live]") && window.EventSource) keepUpToDate(byId("main"));
byId("choices").hidden = false;
chooseTheme(byId("theme"));
byId("keys").addEventListener("click", describeKeys);
listenToKeys();
