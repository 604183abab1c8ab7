// Pictures of what people meet: the pages and comments of a sandbox in which some things go well, some wait and some fail. Usage:
// node pictures.mjs DIRECTORY. `dashboard.png`, `runs.png`, `pull.png`, `run.png` and `plan.png` are those of the documents; the others are of each
// width and colour scheme.

import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { REPO, Sandbox, until } from "./sandbox.mjs";

const SHAPES = [390, 1280].flatMap((width) => ["light", "dark"].map((colorScheme) => ({ width, colorScheme })));
// Lines of a log above which its reader pauses.
const LONG = 80;
// Pages with a picture in the documents.
const DOCUMENTED = ["dashboard", "runs", "pull", "run", "plan"];

const directory = process.argv[2];
await mkdir(directory, { recursive: true });
const sandbox = await Sandbox.start();
const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
try {
  const paths = await story();
  await taken("dashboard", sandbox.server + "/");
  await taken("runs", sandbox.server + "/runs");
  await taken("pull", sandbox.server + paths.pull);
  await taken("run", sandbox.server + paths.run);
  await taken("plan", `${sandbox.server}${paths.run}/plan`, async (page) => {
    await page.evaluate(() => { for (const fold of document.querySelectorAll("main details")) fold.open = true; });
    return page.locator("main");
  });
  await taken("stop-all-applies", sandbox.server + "/", async (page) => {
    await page.getByText("Stop all applies…").click();
    return page.locator("#health");
  });
  await taken("coloured-plan", `${sandbox.forge}/${REPO}/pull/1`, async (page) => {
    await page.getByText(/^Full plan/).click();
    return comment(page, "Plan for");
  });
  await taken("waits-for-its-holder", `${sandbox.forge}/${REPO}/pull/${paths.waiting}`, (page) => comment(page, "waits for"));
  await taken("many-projects", `${sandbox.forge}/${REPO}/pull/${paths.many}`, (page) => comment(page, "projects:"));
  await taken("paused-log", sandbox.server + paths.running, async (page) => {
    await until("the log is long", () => page.evaluate((long) => document.querySelectorAll("#log .l").length > long, LONG));
    await page.keyboard.press("PageUp");
    await page.getByRole("button", { name: "Resume following" }).waitFor();
    return page;
  });
} finally {
  await browser.close();
  await sandbox.stop();
}

function comment(page, words) {
  return page.locator(".comment", { hasText: words }).last();
}

// A picture of each shape: of what `show` gives, or of the whole page.
async function taken(name, url, show) {
  for (const { width, colorScheme } of SHAPES) {
    const context = await browser.newContext({ viewport: { width, height: 800 }, colorScheme });
    const page = await context.newPage();
    await page.goto(url, { waitUntil: "load" });
    const shown = show ? await show(page) : undefined;
    const path = join(directory, `${name}-${width}-${colorScheme}.png`);
    await (shown ?? page).screenshot({ path, ...(shown ? {} : { fullPage: true }) });
    if (DOCUMENTED.includes(name) && width === 1280 && colorScheme === "light") {
      await (shown ?? page).screenshot({ path: join(directory, `${name}.png`), ...(shown ? {} : { fullPage: true }) });
    }
    await context.close();
  }
}

// A lock that somebody waits for, a command with several projects of which one fails, a configuration that cannot be read, an apply that runs.
async function story() {
  await sandbox.said(1, "Log and history");
  const waiting = await sandbox.open("bob", "Add a subnet for the cache", "cache-subnet", "network/main.tf",
    (text) => text.replace("    apps ", '    cache    = "10.20.24.0/24"\n    apps '));
  await sandbox.said(waiting, "waits for");
  const broken = await sandbox.open("bob", "Plan the shop by itself", "shop-apart", "atlantis.yaml", (text) => text.replace("dir: app", "dirs: app"));
  await sandbox.said(broken, "failed");
  const many = await sandbox.open("carol", "Move the shop to the new range", "shop-moves", "app/main.tf",
    (text) => text.replace("replicas = 2", "replicas = 5").replace(/module "billing" \{[^}]*\}\n/, ""));
  await sandbox.said(many, "Plan for");
  await sandbox.push(many, "carol", "network/main.tf", (text) => text.replace("10.20.0.0/20", "10.30.0.0/20"));
  await sandbox.push(many, "carol", "dns/main.tf", (text) => text.replace("192.0.2.11", "${var.address}"));
  await sandbox.said(many, "projects:");
  const { number, running } = await sandbox.slowApply("Move the archive to cold storage", "archive");
  await sandbox.said(number, "Plan: 1 to add");
  const page = (await sandbox.text(`${sandbox.server}/runs?pull=${many}&command=plan`)).replaceAll("&#x2f;", "/");
  const [run, pull] = [/href="\.\/(runs\/[0-9a-f]{32})"/, /href="\.\/(pulls\/[^"]+)"/].map((link) => "/" + link.exec(page)[1]);
  return { waiting, many, running, run, pull };
}
