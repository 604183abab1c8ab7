// Sign-in at a real issuer of OpenID Connect (npm oidc-provider) in Chromium: there, back to the page that was asked for, and out again.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import axe from "axe-core";
import { Provider } from "oidc-provider";
import { chromium } from "playwright-core";
import { until } from "./sandbox.mjs";

const SECRET = "a-secret-of-the-client-for-tests";
// Their emails, and whether the issuer has verified them.
const PEOPLE = { ada: ["ada@example.com", true], bob: ["bob@elsewhere.example", true], eve: ["eve@example.com", false] };

let issuer, server, browser;

// A port that is free now.
async function port() {
  const probe = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => probe.once("listening", resolve));
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

// Its own pages for development ask for a name, with any password, and for consent.
async function startIssuer(back) {
  const at = await port();
  const account = (id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: PEOPLE[id]?.[0], email_verified: PEOPLE[id]?.[1] }),
  });
  const provider = new Provider(`http://127.0.0.1:${at}`, {
    clients: [{ client_id: "tidelock", client_secret: SECRET, redirect_uris: [back], application_type: "native" }],
    claims: { openid: ["sub"], email: ["email", "email_verified"] },
    findAccount: (_, id) => account(id),
    pkce: { required: () => true },
    cookies: { keys: ["for tests"] },
  });
  const listener = provider.listen(at, "127.0.0.1");
  await new Promise((resolve) => listener.once("listening", resolve));
  return { url: `http://127.0.0.1:${at}`, stop: () => new Promise((resolve) => { listener.closeAllConnections(); listener.close(resolve); }) };
}

// The server itself, whose host of repositories does not answer.
async function startServer(url, issuer) {
  const dir = await mkdtemp(join(tmpdir(), "tidelock-login-"));
  const flags = ["--data-dir", dir, "--bind", "127.0.0.1", "--port", new URL(url).port, "--atlantis-url", url,
    "--gh-hostname", "http://127.0.0.1:9", "--gh-user", "bot", "--repo-allowlist", "127.0.0.1/acme/*",
    "--oidc-issuer", issuer, "--oidc-client-id", "tidelock", "--oidc-email-domains", "--web-viewers", "@example.com"];
  const env = { ...process.env, ATLANTIS_GH_TOKEN: "t", ATLANTIS_GH_WEBHOOK_SECRET: "s".repeat(20), TIDELOCK_OIDC_CLIENT_SECRET: SECRET };
  const child = spawn(process.env.TIDELOCK_TEST_BINARY, ["server", ...flags], { stdio: ["ignore", "pipe", "pipe"], env });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => { output += text; });
  await until("the server leads: " + output, async () => {
    if (child.exitCode !== null) throw new Error("the server ended:\n" + output);
    return fetch(`${url}/readyz`).then((answer) => answer.ok, () => false);
  });
  const stop = async () => {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGTERM");
    await ended;
    await rm(dir, { recursive: true, force: true });
  };
  return { url, stop, log: () => output };
}

before(async () => {
  const url = `http://127.0.0.1:${await port()}`;
  issuer = await startIssuer(`${url}/login/callback`);
  server = await startServer(url, issuer.url);
  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
}, { timeout: 120_000 });

after(async () => {
  await browser?.close();
  await server?.stop();
  await issuer?.stop();
});

// Cookies of the server: those of the issuer are for the same host.
const cookies = async (context) => (await context.cookies(server.url)).filter(({ name }) => name.includes("tidelock"));

// A page of the server, and what the person who is sent to the issuer says there.
async function signIn(context, path, name) {
  const page = await context.newPage();
  await page.goto(server.url + path, { waitUntil: "load" });
  await answerIssuer(page, name);
  return page;
}

async function answerIssuer(page, name) {
  await page.waitForURL((url) => url.origin === issuer.url);
  await page.locator("input[name=login]").fill(name);
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
  await page.getByRole("button", { name: "Continue" }).click();
  await page.waitForURL((url) => url.origin === server.url);
}

for (const javaScriptEnabled of [true, false]) {
  test(`a person signs in, sees the page that was asked for and signs out, ${javaScriptEnabled ? "with" : "without"} JavaScript`, { timeout: 60_000 }, async () => {
    const context = await browser.newContext({ viewport: { width: 390, height: 800 }, javaScriptEnabled });
    const page = await signIn(context, "/runs?person=nobody", "ada");
    assert.equal(page.url(), `${server.url}/runs?person=nobody`);
    await page.locator("header").getByText("ada@example.com").waitFor();
    const [session, ...others] = await cookies(context);
    assert.deepEqual([session.name, session.httpOnly, session.sameSite, others], ["tidelock-session", true, "Lax", []]);
    // The session is enough for every page, and the header fits a phone.
    for (const path of ["/", "/runs", "/drift"]) {
      assert.equal((await page.goto(server.url + path)).status(), 200, path);
      if (javaScriptEnabled) assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), path);
    }
    // By keyboard alone.
    await page.getByRole("button", { name: "Sign out" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { name: "Signed out" }).waitFor();
    assert.deepEqual(await cookies(context), []);
    assert.ok((await page.getByRole("link", { name: /^Sign in with/ }).getAttribute("href")).includes("login?with=oidc"));
    await context.close();
  });
}

test("a form that is sent after the session has ended leads to the issuer, and then to its answer", { timeout: 60_000 }, async () => {
  const context = await browser.newContext();
  const page = await signIn(context, "/", "ada");
  await context.clearCookies();
  await page.getByRole("searchbox", { name: /^Search/ }).fill("nothing");
  await page.getByRole("button", { name: "Search" }).click();
  await answerIssuer(page, "ada");
  assert.equal(page.url(), `${server.url}/search?q=nothing`);
  await context.close();
});

test("the page to sign in has no accessibility finding at each width and in each scheme", { timeout: 60_000 }, async () => {
  for (const width of [390, 1280]) {
    for (const colorScheme of ["light", "dark"]) {
      const context = await browser.newContext({ viewport: { width, height: 800 }, colorScheme });
      const page = await context.newPage();
      await page.goto(`${server.url}/login?signed_out=yes`);
      await page.evaluate(axe.source);
      const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
      assert.deepEqual(violations.map(({ id, nodes }) => `${id}: ${nodes[0].html}`), [], `${width} ${colorScheme}`);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${width}`);
      await context.close();
    }
  }
});

for (const [name, words] of [["bob", "--web-viewers names neither bob@elsewhere.example"], ["eve", "does not say that your email address is verified"]]) {
  test(`${name} is refused and gets no session`, { timeout: 60_000 }, async () => {
    const context = await browser.newContext();
    const page = await signIn(context, "/", name);
    await page.getByText(words).waitFor();
    assert.deepEqual(await cookies(context), []);
    await context.close();
  });
}
