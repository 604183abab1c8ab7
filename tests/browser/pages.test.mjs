// What people meet on the pages, in Chromium: accessibility, widths, colours, a live log, no JavaScript, keyboard alone.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import axe from "axe-core";
import { chromium } from "playwright-core";
import { REPO, Sandbox, until } from "./sandbox.mjs";

const WIDTHS = [390, 1280];
const SCHEMES = ["light", "dark"];
// The rules about colours, which are all that the second scheme changes.
const OF_COLOURS = ["color-contrast", "link-in-text-block"];

let sandbox, browser, paths;

before(async () => {
  sandbox = await Sandbox.start();
  paths = await sandbox.fill();
  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
}, { timeout: 120_000 });

after(async () => {
  await browser?.close();
  await sandbox?.stop();
});

// A page in a context of its own; it collects what the console says of errors.
async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  page.errors = [];
  page.on("console", (message) => { if (message.type() === "error") page.errors.push(message.text()); });
  page.on("pageerror", (error) => page.errors.push(String(error)));
  await page.goto(url, { waitUntil: "load" });
  return page;
}

async function close(page) {
  await page.context().close();
}

// Each page is loaded once and takes each size and scheme in turn, as when a reader turns a phone. A colour that is in transition would be
// taken for a wrong one.
test("each page has no accessibility finding, no error and no sideways scrolling, at each width and in each scheme", { timeout: 500_000 }, async () => {
  const ours = ["/", "/?q=nothing-has-these-words", paths.lock, paths.ended, `${paths.ended}?q=init`, `${paths.ended}?open=all`, paths.running, "/runs",
    "/runs?person=nobody", paths.run, paths.plan, `${paths.plan}?action=destroy`, paths.pull, "/pulls", "/projects", paths.project, "/audit", "/audit?person=nobody",
    "/drift", "/drift?state=clean", "/search", "/search?q=infra", "/api", "/no-such-page"];
  const theirs = ["/", "/deliveries", `/${REPO}`, `/${REPO}/new`, `/${REPO}/file?path=README.md`, `/${REPO}/pull/1`, paths.commit];
  const urls = [...ours.map((path) => sandbox.server + path), ...theirs.map((path) => sandbox.forge + path)];
  const wrong = [];
  const page = await open("about:blank", { reducedMotion: "reduce" });
  for (const url of urls) {
    await page.goto(url, { waitUntil: "load" });
    await page.evaluate(axe.source);
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 800 });
      for (const colorScheme of SCHEMES) {
        await page.emulateMedia({ colorScheme });
        const place = `${url} at ${width}, ${colorScheme}`;
        const { violations } = await page.evaluate((rules) => window.axe.run(document, { resultTypes: ["violations"], ...rules }),
          colorScheme === SCHEMES[0] ? {} : { runOnly: { type: "rule", values: OF_COLOURS } });
        for (const { id, nodes } of violations) {
          wrong.push(`${place}: ${id}: ${nodes.map((node) => node.html).slice(0, 3).join(" | ")}`);
        }
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        if (wide > 0) wrong.push(`${place}: ${wide} pixels too wide`);
      }
    }
    const missing = (text) => url.endsWith("no-such-page") && text.includes("404");
    wrong.push(...page.errors.splice(0).filter((text) => !missing(text)).map((text) => `${url}: ${text}`));
  }
  await close(page);
  assert.deepEqual(wrong, []);
});

// The policy of the pages lets nothing be evaluated within them, so what is waited for is asked from outside.
const holds = (page, what, look, argument) => until(what, () => page.evaluate(look, argument));
const atEnd = (page) =>
  holds(page, "the end of the log is seen", () => innerHeight + scrollY >= document.documentElement.scrollHeight - 2 && scrollY > 100);
const resume = (page) => page.getByRole("button", { name: "Resume following" });

// Lines come, and the page stays where the reader left it.
async function staysPut(page) {
  await resume(page).waitFor();
  // A gesture may still be running out.
  await until("the page is at rest for a dozen frames", () =>
    page.evaluate(() => new Promise((resolve) => {
      const [place, frames] = [scrollY, { left: 12 }];
      const look = () => {
        if (scrollY !== place) resolve(false);
        else if (--frames.left === 0) resolve(true);
        else requestAnimationFrame(look);
      };
      requestAnimationFrame(look);
    })));
  const [place, lines] = await page.evaluate(() => [scrollY, document.querySelectorAll("#log .l").length]);
  await holds(page, "lines come", (before) => document.querySelectorAll("#log .l").length > before + 5, lines);
  assert.equal(await page.evaluate(() => scrollY), place);
  await resume(page).click();
  await atEnd(page);
  await resume(page).waitFor({ state: "hidden" });
}

for (const [name, leave, options] of [
  ["wheel", async (page) => { await page.mouse.move(600, 400); await page.mouse.wheel(0, -500); }, {}],
  ["keyboard", async (page) => { await page.keyboard.press("PageUp"); }, {}],
  ["touch", async (page) => {
    const session = await page.context().newCDPSession(page);
    const touch = (type, y) =>
      session.send("Input.dispatchTouchEvent", { type, touchPoints: y === undefined ? [] : [{ x: 180, y }] });
    await touch("touchStart", 300);
    for (let y = 320; y <= 600; y += 20) await touch("touchMove", y);
    await touch("touchEnd");
  }, { viewport: { width: 390, height: 800 }, hasTouch: true, isMobile: true }],
]) {
  test(`a live log is left by ${name} and followed again by a button`, async () => {
    const page = await open(sandbox.server + paths.running, options);
    await page.getByText("live, following").waitFor();
    await holds(page, "the log is longer than the page", () => document.querySelectorAll("#log .l").length > 80);
    await atEnd(page);
    await leave(page);
    await staysPut(page);
    assert.deepEqual(page.errors, []);
    await close(page);
  });
}

test("the errors of a log are reached one after the other, and from the last the first", async () => {
  const job = await sandbox.brokenPlan();
  const page = await open(`${sandbox.server}/${job}`);
  const errors = await page.locator("#log .l.err").evaluateAll((rows) => rows.map((row) => "#" + row.id));
  assert.equal(errors.length, 2);
  const step = page.locator("#error");
  for (const wanted of [errors[0], errors[1], errors[0]]) {
    await step.click();
    await page.waitForURL((url) => url.hash === wanted);
  }
  await close(page);
  const plain = await open(`${sandbox.server}/${job}`, { javaScriptEnabled: false });
  await plain.getByRole("link", { name: "First error" }).click();
  await plain.waitForURL((url) => url.hash === errors[0]);
  await close(plain);
});

test("steps are folded, and the address of a line opens its step", async () => {
  for (const javaScriptEnabled of [true, false]) {
    const page = await open(sandbox.server + paths.ended, { javaScriptEnabled });
    const steps = page.locator("details.step");
    const isOpen = async () => Promise.all((await steps.all()).map(async (step) => (await step.getAttribute("open")) !== null));
    assert.deepEqual(await isOpen(), [false, true]);
    assert.match(await steps.first().locator("summary").innerText(), /^init · \d+ lines · [\d.]+ s · began \d\d:\d\d:\d\d$/);
    const line = await steps.first().locator(".l").nth(1).getAttribute("id");
    await page.goto(`${sandbox.server}${paths.ended}#${line}`);
    await page.locator(`#${line}`).waitFor({ state: "visible" });
    assert.deepEqual(await isOpen(), [true, true]);
    await page.goto("about:blank");
    await page.goto(sandbox.server + paths.ended);
    await page.getByRole("link", { name: "Show all steps" }).click();
    await page.waitForURL(/\?open=all$/);
    assert.deepEqual(await isOpen(), [true, true]);
    assert.deepEqual(page.errors, []);
    await close(page);
  }
});

test("a log is searched with keys alone, and its matches are reached one after the other", async () => {
  const page = await open(sandbox.server + paths.ended);
  await page.keyboard.press("/");
  await page.keyboard.type("TERRAFORM");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\?q=TERRAFORM$/);
  const matches = await page.locator("#log .l.hit").evaluateAll((rows) => rows.map((row) => "#" + row.id));
  assert.ok(matches.length > 1, `${matches}`);
  assert.equal(await page.locator("#matches").innerText(), `${matches.length} lines match`);
  for (const [key, wanted] of [["n", 0], ["n", 1], ["N", 0], ["N", -1], ["n", 0]]) {
    await page.keyboard.press(key);
    await page.waitForURL((url) => url.hash === matches.at(wanted));
  }
  assert.deepEqual(page.errors, []);
  await close(page);
  const plain = await open(sandbox.server + paths.ended, { javaScriptEnabled: false });
  await plain.getByRole("searchbox", { name: "Search this log" }).fill("terraform");
  await plain.getByRole("button", { name: "Find" }).click();
  await plain.getByRole("link", { name: "First match" }).click();
  await plain.waitForURL((url) => url.hash === matches[0]);
  await plain.locator(matches[0]).getByRole("link", { name: /^next match/ }).click();
  await plain.waitForURL((url) => url.hash === matches[1]);
  assert.equal((await plain.locator(`${matches[1]} mark`).first().innerText()).toLowerCase(), "terraform");
  await plain.getByRole("link", { name: "Whole log" }).click();
  await plain.waitForURL((url) => url.search === "");
  await close(plain);
});

test("state and tools stay visible in a log, and cover no line that an address names", async () => {
  for (const width of WIDTHS) {
    const page = await open(`${sandbox.server}${paths.running}`, { viewport: { width, height: 800 }, javaScriptEnabled: false });
    await page.goto(`${sandbox.server}${paths.running}#L100`);
    const bar = await page.locator("#part-state").boundingBox();
    assert.ok(bar.y >= 0 && bar.y < 100, `at ${width} the bar is at ${bar.y}`);
    assert.match(await page.locator("#part-state").innerText(), /^running\s+apply/);
    const [tools, line] = [await page.locator(".tools").boundingBox(), await page.locator("#L100").boundingBox()];
    assert.ok(line.y >= tools.y + tools.height, `at ${width} the line at ${line.y} is covered up to ${tools.y + tools.height}`);
    assert.match(await page.title(), /^apply · .* · running/);
    await close(page);
  }
});

const filter = (page) => page.getByLabel("Show only what has these words");

test("without JavaScript the pages say the same and do the same", async () => {
  const page = await open(sandbox.server + "/", { javaScriptEnabled: false });
  await filter(page).fill("slow");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.waitForURL(/\?q=slow$/);
  const pulls = await page.locator("#part-pulls .row").allInnerTexts();
  assert.equal(pulls.length, 1);
  assert.match(pulls[0], /Something slow/);
  await filter(page).fill("nothing-has-these-words");
  await filter(page).press("Enter");
  await page.getByText("No lock has the words").waitFor();
  await page.getByRole("link", { name: "Show all" }).first().click();
  await page.getByText("Stop all applies…").click();
  await page.getByLabel("Reason, shown to everyone who tries").fill("a freeze");
  await page.getByRole("button", { name: "Yes, stop all applies" }).click();
  await page.getByText("Applies are stopped until somebody allows them again.").waitFor();
  await page.getByRole("button", { name: "Allow applies again" }).click();
  await page.getByText("Applies are allowed again.").waitFor();
  await page.getByRole("link", { name: "Runs", exact: true }).click();
  await page.getByLabel("Command").selectOption("apply");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.waitForURL(/\/runs\?.*command=apply/);
  for (const run of await page.locator(".row .what").allInnerTexts()) assert.match(run, /^apply/);
  await page.locator(".row .what a").first().click();
  await page.getByRole("heading", { name: /^apply/ }).waitFor();
  await page.getByRole("link", { name: "In the audit log" }).click();
  await page.waitForURL(/\/audit\?.*request=/);
  await page.locator(".row .what", { hasText: /^apply/ }).first().waitFor();
  await page.getByRole("link", { name: "Projects", exact: true }).click();
  await page.getByLabel("Words").fill("slow");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.waitForURL(/\/projects\?.*q=slow/);
  await page.locator(".row .what a").first().click();
  await page.getByRole("heading", { name: "slow/default" }).waitFor();
  await page.getByRole("searchbox", { name: /^Search/ }).fill(`${REPO}#1`);
  await page.getByRole("button", { name: "Search" }).click();
  await page.waitForURL(/\/pulls\/.*\/1$/);
  await page.goto(sandbox.server + paths.running);
  await page.getByText("running; reload for more").waitFor();
  assert.ok((await page.locator("#log .l").count()) > 0);
  await page.goto(`${sandbox.forge}/${REPO}/pull/1`);
  await page.getByRole("heading", { name: /Plan for/ }).waitFor();
  await close(page);
});

test("everything is reached by keyboard alone", async () => {
  const page = await open(sandbox.server + "/");
  const focused = () => page.evaluate(() => document.activeElement.innerText || document.activeElement.id);
  // Presses Tab until this has the focus.
  const tabTo = async (wanted) => {
    for (let presses = 0; presses < 80; presses++) {
      await page.keyboard.press("Tab");
      if (wanted.test(await focused())) return;
    }
    assert.fail(`the focus never comes to ${wanted}`);
  };
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "Skip to the content");
  await tabTo(/^filter$/);
  await page.keyboard.type("slow");
  await page.waitForURL(/\?q=slow$/);
  await holds(page, "one row is left", () => document.querySelectorAll("#part-pulls .row").length === 1);
  await tabTo(/^Stop all applies…$/);
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  // Without a reason nothing is sent.
  await page.keyboard.press("Enter");
  assert.match(page.url(), /\?q=slow$/);
  await tabTo(/^Unlock…/);
  await page.keyboard.press("Enter");
  await tabTo(/^Yes, unlock$/);
  await page.goto(sandbox.server + paths.ended);
  await tabTo(/^Copy$/);
  await tabTo(/^log$|Terraform/);
  assert.deepEqual(page.errors, []);
  await close(page);
});

test("an open page shows what happens, by itself and without a visit to it", async () => {
  const runs = await open(`${sandbox.server}/runs`);
  const row = runs.locator("#part-rows .row", { hasText: "#1" });
  const before = await row.count();
  await sandbox.post(`/${REPO}/pull/1/comment`, { as: "alice", body: "atlantis plan -d network" });
  await until("the run is in the list", async () => (await row.count()) > before);
  await until("the run has ended", async () => !(await row.first().innerText()).includes("running"));
  assert.deepEqual(runs.errors, []);
  await close(runs);
});

test("a theme that a reader has chosen holds on every page", async () => {
  const page = await open(sandbox.server + "/", { colorScheme: "light" });
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  const button = page.locator("#theme");
  for (const theme of ["light", "dark"]) {
    await button.click();
    assert.equal(await button.innerText(), "Theme: " + theme);
  }
  const dark = await ground();
  assert.notEqual(dark, light);
  await page.goto(sandbox.server + "/runs");
  assert.equal(await ground(), dark);
  await page.locator("#theme").click();
  assert.equal(await ground(), light);
  assert.deepEqual(page.errors, []);
  await close(page);
});

test("keys lead through the pages, and can be switched off", async () => {
  const page = await open(sandbox.server + "/");
  await page.keyboard.press("/");
  await page.keyboard.type("gr");
  assert.equal(await page.locator("#search").inputValue(), "gr");
  await page.locator("#search").blur();
  await page.keyboard.type("gr");
  await page.waitForURL(/\/runs$/);
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/runs\/[0-9a-f]{32}$/);
  await page.keyboard.press("?");
  const list = page.getByRole("dialog", { name: "Keyboard shortcuts" });
  await list.waitFor();
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  assert.deepEqual(violations.map(({ id }) => id), []);
  await list.getByRole("checkbox").uncheck();
  await page.keyboard.press("Escape");
  await list.waitFor({ state: "detached" });
  await page.keyboard.type("go?");
  await page.locator("#keys").click();
  await list.waitFor();
  assert.equal(await page.getByRole("dialog").count(), 1);
  assert.match(page.url(), /\/runs\/[0-9a-f]{32}$/);
  assert.deepEqual(page.errors, []);
  await close(page);
});

test("a reader keeps filters, and what they are called is text", async () => {
  const page = await open(`${sandbox.server}/runs?command=plan&result=`);
  const name = "<img src=x onerror=alert(1)> plans";
  await page.getByLabel("Name of this filter").fill(name);
  await page.getByRole("button", { name: "Save this filter" }).click();
  await page.goto(sandbox.server + "/runs");
  const saved = page.getByRole("list", { name: "Your filters" });
  await saved.getByRole("link", { name }).click();
  await page.waitForURL(/\/runs\?command=plan$/);
  assert.equal(await saved.locator("img").count(), 0);
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  assert.deepEqual(violations.map(({ id }) => id), []);
  await saved.getByRole("button", { name: "Forget the filter " + name }).click();
  await page.goto(sandbox.server + "/runs");
  assert.equal(await saved.getByRole("link").count(), 0);
  assert.deepEqual(page.errors, []);
  await close(page);
});

test("a pull request is planned by button, with the keyboard alone and without JavaScript", async () => {
  const url = `${sandbox.server}/pulls/127.0.0.1/${REPO}/1`;
  const page = await open(url, { javaScriptEnabled: false, viewport: { width: 390, height: 800 } });
  const button = page.locator("button:focus", { hasText: "Plan again" });
  for (let presses = 0; (await button.count()) === 0; presses++) {
    assert.ok(presses < 60, "the focus never comes to the button");
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("Enter");
  await page.getByText(/^Your command /).waitFor();
  assert.match(page.url(), /\/1\?request=[0-9a-f]{32}-[0-9a-f]{16}$/);
  await sandbox.said(1, "Requested by");
  assert.deepEqual(page.errors, []);
  await close(page);
});

test("times are told in the reader's zone, with UTC beside", async () => {
  const page = await open(sandbox.server + paths.lock, { timezoneId: "Asia/Tokyo", locale: "en-GB" });
  const shown = await page.locator("time[data-whole]").innerText();
  const [, utc] = /\((\d{4}-\d\d-\d\d \d\d:\d\d) UTC\)$/.exec(shown);
  const tokyo = new Date(Date.parse(utc.replace(" ", "T") + ":00Z") + 9 * 3600_000).toISOString().slice(11, 16);
  assert.ok(shown.includes(tokyo), `${shown} lacks ${tokyo}`);
  await close(page);
});
