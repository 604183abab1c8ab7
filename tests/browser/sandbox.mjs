// A running `tidelock sandbox`, with a pull request whose apply prints many lines, and then one now and then for twenty minutes.

import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

export const REPO = "acme/infrastructure";
// For one answer of the server, in milliseconds.
const LIMIT = 60_000;

const SLOW = `resource "terraform_data" "slow" {
  provisioner "local-exec" {
    command = "i=0; while [ $i -lt 6000 ]; do i=$((i+1)); echo line $i; [ $i -lt 200 ] || sleep 0.2; done"
  }
}
`;

// Asks until there is an answer.
export async function until(what, look) {
  const end = Date.now() + LIMIT;
  for (;;) {
    const seen = await look();
    if (seen) return seen;
    if (Date.now() > end) throw new Error("not in time: " + what);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

export class Sandbox {
  static async start() {
    const dir = await mkdtemp(join(tmpdir(), "tidelock-pages-"));
    const child = spawn(process.env.TIDELOCK_TEST_BINARY, ["sandbox", "--dir", join(dir, "sandbox")], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    const sandbox = new Sandbox();
    Object.assign(sandbox, { dir, child, output: "" });
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => { sandbox.output += text; });
    const address = (name) => new RegExp("^" + name + " +(http://\\S+)", "m").exec(sandbox.output)?.[1].replace(/\/$/, "");
    await until("the sandbox starts: " + sandbox.output, () => child.exitCode !== null || address("Server"));
    if (child.exitCode !== null) throw new Error("the sandbox ended:\n" + sandbox.output);
    sandbox.forge = address("Pull requests");
    sandbox.server = address("Server");
    return sandbox;
  }

  async stop() {
    const ended = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGINT");
    const timer = setTimeout(() => this.child.kill("SIGKILL"), 20_000);
    await ended;
    clearTimeout(timer);
    await rm(this.dir, { recursive: true, force: true });
  }

  async text(url) {
    return (await fetch(url, { headers: { Accept: "text/html" } })).text();
  }

  async post(path, fields) {
    const answer = await fetch(this.forge + path, { method: "POST", body: new URLSearchParams(fields), redirect: "manual" });
    if (answer.status !== 303) throw new Error(path + ": " + answer.status + " " + (await answer.text()));
    return answer.headers.get("location");
  }

  // The page of a pull request has this text.
  async said(number, text) {
    await until(`#${number}: ${text}`, async () => (await this.text(`${this.forge}/${REPO}/pull/${number}`)).includes(text));
  }

  // The text of a file on the main branch, or of a pull request's.
  async file(path, number) {
    const page = await this.text(`${this.forge}/${REPO}/${number ? `pull/${number}/edit` : "new"}?path=${encodeURIComponent(path)}`);
    const text = /<textarea[^>]*>\n?([\s\S]*?)<\/textarea>/.exec(page)[1];
    const named = { amp: "&", lt: "<", gt: ">", quot: '"' };
    return text.replace(/&(?:#x([0-9a-f]+)|#(\d+)|(\w+));/gi, (whole, hex, number, name) =>
      hex ? String.fromCodePoint(parseInt(hex, 16)) : number ? String.fromCodePoint(Number(number)) : named[name] ?? whole);
  }

  // Opens a pull request that changes a file; its number.
  async open(as, title, branch, path, change) {
    const content = change(await this.file(path));
    return Number(/\d+$/.exec(await this.post(`/${REPO}/new`, { as, title, branch, path, content }))[0]);
  }

  // Pushes a change of another file to it.
  async push(number, as, path, change) {
    await this.post(`/${REPO}/pull/${number}/edit`, { as, path, content: change(await this.file(path, number)) });
  }

  // A pull request whose apply runs; its number, and the path of the log.
  async slowApply(title = "Something slow", dir = "slow") {
    const opened = await this.post(`/${REPO}/new`, {
      as: "alice", title, branch: dir, path: `${dir}/main.tf`, content: SLOW,
    });
    const number = Number(/\d+$/.exec(opened)[0]);
    const comment = (body) => this.post(`/${REPO}/pull/${number}/comment`, { as: "alice", body });
    await comment(`atlantis plan -d ${dir}`);
    await this.said(number, "Plan: 1 to add");
    await comment(`atlantis apply -d ${dir}`);
    const job = await until("the apply runs", async () => {
      const page = (await this.text(this.server + "/")).replaceAll("&#x2f;", "/");
      return /href="\.\/jobs\/([0-9a-f]{32})"><span class="mark busy">applying/.exec(page)?.[1];
    });
    return { number, running: `/jobs/${job}` };
  }

  // A pull request whose plan has two errors; the path of the log.
  async brokenPlan() {
    const content = 'resource "terraform_data" "a" {\n  input = [var.one, var.two]\n}\n';
    const opened = await this.post(`/${REPO}/new`, {
      as: "alice", title: "Something broken", branch: "broken", path: "broken/main.tf", content,
    });
    const number = Number(/\d+$/.exec(opened)[0]);
    await this.post(`/${REPO}/pull/${number}/comment`, { as: "alice", body: "atlantis plan -d broken" });
    await this.said(number, "Reference to undeclared");
    const page = (await this.text(`${this.server}/pulls/127.0.0.1/${REPO}/${number}`)).replaceAll("&#x2f;", "/");
    return /jobs\/[0-9a-f]{32}/.exec(page)[0];
  }

  // What the pages under test show; their paths.
  async fill() {
    await this.said(1, "Log and history");
    const { number, running } = await this.slowApply();
    const dashboard = (await this.text(this.server + "/")).replaceAll("&#x2f;", "/");
    const lock = /href="\.\/(lock\?id=[^"]+)"/.exec(dashboard)[1].replaceAll("&amp;", "&");
    const ended = /href="\.\/jobs\/([0-9a-f]{32})">plan</.exec(dashboard)[1];
    const commit = /\/commit\/[0-9a-f]{40}/.exec(await this.text(`${this.forge}/${REPO}/pull/1`))[0];
    const runs = (await this.text(this.server + "/runs")).replaceAll("&#x2f;", "/");
    const run = /href="\.\/(runs\/[0-9a-f]{32})"/.exec(runs)[1];
    const plan = /href="[./]*(runs\/[0-9a-f]{32}\/plan)/.exec((await this.text(`${this.server}/jobs/${ended}`)).replaceAll("&#x2f;", "/"))[1];
    const pull = /href="\.\/(pulls\/[^"]+)"/.exec(runs)[1];
    const projects = (await this.text(this.server + "/projects")).replaceAll("&#x2f;", "/").replaceAll("&amp;", "&");
    const project = /href="\.\/(projects\/[^"]+)"/.exec(projects)[1];
    return {
      project: `/${project}`, plan: `/${plan}`,
      number, running, lock: `/${lock}`, ended: `/jobs/${ended}`, commit: `/${REPO}${commit}`, run: `/${run}`, pull: `/${pull}`,
    };
  }
}
