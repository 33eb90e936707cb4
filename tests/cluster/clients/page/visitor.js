// A real browser that visits the page of a running Listless, checks everything, and reports errors.
//
// Arguments: the page's URL and a folder for screenshots. It prints a line for each check, and one
// line of JSON at the end: the number of checks and the failures.

import { chromium } from "playwright-core";
import { report, HOSTILE } from "./fixture.js";

const [, , url, folder] = process.argv;
const SETTLE = 90000;
const failures = [];
let checks = 0;

function check(what, holds, found) {
  checks += 1;
  console.log(`${holds ? "ok  " : "FAIL"} ${what}${holds ? "" : `: ${JSON.stringify(found)}`}`);
  if (!holds) failures.push(`${what}: ${JSON.stringify(found)}`);
}

const equal = (what, found, expected) =>
  check(what, JSON.stringify(found) === JSON.stringify(expected), { found, expected });

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  timeout: 120000,
});

// A page whose console must stay empty, and which may request nothing but Listless.
async function visit(name, { width = 1280, height = 900, scheme = "light", rows, expected = [] }, play) {
  const context = await browser.newContext({
    viewport: { width, height }, colorScheme: scheme, reducedMotion: "reduce", locale: "en-GB",
  });
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: new URL(url).origin });
  const page = await context.newPage();
  page.setDefaultTimeout(60000);
  const said = [];
  const strangers = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) said.push(message.text());
  });
  page.on("pageerror", (error) => said.push(String(error)));
  page.on("dialog", (dialog) => {
    said.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(url).origin) strangers.push(request.url());
  });
  if (rows !== undefined) {
    await page.route("**/api/v1/report*", (route) => route.fulfill({ json: report(rows) }));
  }
  await page.goto(url);
  await page.waitForSelector("#link[data-state=live]");
  if (rows !== undefined) {
    await page.waitForFunction((rows) => (rows === 0
      ? document.querySelector("#patterns-list .empty")
      : document.querySelectorAll("#polls-table tbody tr").length > 0), rows);
  }
  try {
    await play(page);
  } catch (error) {
    check(`${name}: plays to its end`, false, String(error));
  }
  equal(`${name}: the console is silent`, said.filter((line) => !expected.some((part) => line.includes(part))), []);
  equal(`${name}: nobody else is asked`, strangers, []);
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await context.close();
}

const text = (page, selector) => page.locator(selector).innerText();
const rowsOf = (page, table) => page.locator(`#${table}-table tbody tr`).count();
const column = (page, table, place) => page.locator(`#${table}-table tbody tr td:nth-child(${place})`)
  .evaluateAll((cells) => cells.map((cell) => cell.innerText));
// The elements that stick out, if the page can be scrolled sideways.
const overflow = (page) => page.evaluate(() => (document.documentElement.scrollWidth <= innerWidth ? []
  : [...document.querySelectorAll("body *")]
    .filter((element) => element.getBoundingClientRect().right > innerWidth)
    .map((element) => `${innerWidth} wide: ${element.tagName} ${element.id || element.className}`)));
const shoot = async (page, name, fullPage = true) => {
  if (fullPage) await page.evaluate(() => scrollTo(0, 0));
  await page.screenshot({ path: `${folder}/${name}.png`, fullPage, animations: "disabled", timeout: 120000 });
};

async function becomes(page, what, look) {
  const deadline = Date.now() + SETTLE;
  let found;
  do {
    found = await look();
    if (found) break;
    await page.waitForTimeout(100);
  } while (Date.now() < deadline);
  check(what, Boolean(found), found);
}

// === The page of a running Listless ===

await visit("a real run", {}, async (page) => {
  equal("the mode is shown", await text(page, "#mode"), "enforce");
  await becomes(page, "requests are saved", async () => parseFloat(await text(page, "#saved-share")) > 0);
  await becomes(page, "the title tells the share", async () => / % saved · Listless$/.test(await page.title()));
  await becomes(page, "a replica is listed", async () => (await rowsOf(page, "replicas")) > 0);
  await becomes(page, "it has query, state and objects", async () => {
    const replica = await text(page, "#replicas-table tbody tr >> nth=0");
    return /pods/.test(replica) && /synced/.test(replica) && /[1-9],?\d*/.test(replica);
  });
  await becomes(page, "who polls is listed", async () => /fabric8/.test(await text(page, "#polls-table")));
  await becomes(page, "the poll has verb, resource and rate", async () =>
    /list pods[^]*\/(s|min)/.test(await text(page, "#polls-table")));
  await becomes(page, "the timeline is drawn", async () =>
    (await page.locator("#chart path.client").getAttribute("d")).length > 40);
  const before = await text(page, "#answered");
  await becomes(page, "figures change by themselves", async () => (await text(page, "#answered")) !== before);
  const label = await page.locator("#chart svg").getAttribute("aria-label");
  check("the timeline says in words what it shows", /Requests per second\. In the last \d+ seconds/.test(label), label);
  check("the estimate is marked as one", (await text(page, "#estimate-mark")) === "estimate");
  equal("nothing scrolls sideways", await overflow(page), []);
  await page.hover("#chart svg", { position: { x: 900, y: 80 } });
  await becomes(page, "a point of the timeline can be read off", async () =>
    /from clients, .* to the apiserver/.test(await text(page, "#readout")));
  await page.mouse.move(5, 5);
  await shoot(page, "real-light-1280");
});

await visit("explain", {}, async (page) => {
  await page.fill("#explain-url", "/api/v1/namespaces/shop/pods?labelSelector=app%3Dweb");
  await page.press("#explain-url", "Enter");
  await page.waitForSelector("#explanation dl");
  const told = await text(page, "#explanation");
  check("a request is explained", /list pods\.v1 in namespace shop/.test(told) && /\bnow\b/.test(told), told);
  await page.selectOption("#explain-method", "DELETE");
  await page.click("#explain-form button");
  await becomes(page, "another method has another outcome", async () =>
    /forwarded unchanged: write/.test(await text(page, "#explanation")));
});

await visit("a wrong question", { expected: ["400"] }, async (page) => {
  await page.fill("#explain-url", `http://[${HOSTILE}`);
  await page.click("#explain-form button");
  await becomes(page, "a wrong URL is told as text", async () => /^url: /.test(await text(page, "#explanation .problem")));
});

await visit("live requests", {}, async (page) => {
  await page.click("#live-toggle");
  equal("the button is pressed", await page.getAttribute("#live-toggle", "aria-pressed"), "true");
  await becomes(page, "requests show up", async () => (await rowsOf(page, "live")) > 2);
  const row = await text(page, "#live-table tbody tr >> nth=0");
  check("a request is told in full", /pods\.v1/.test(row) && /fabric8/.test(row) && /200/.test(row), row);
  await page.click("#live-toggle");
  equal("and no more when stopped", await text(page, "#live-count"), "Not watching.");
  await page.fill("#live-filter", "nobody-is-called-so");
  await page.click("#live-toggle");
  await page.waitForTimeout(2000);
  equal("the filter is heeded", await rowsOf(page, "live"), 0);
});

await visit("connection lost", { expected: ["Failed to load resource", "net::ERR"] }, async (page) => {
  await page.route("**/api/v1/*", (route) => route.abort());
  await page.reload();
  await page.waitForSelector("#notice:not([hidden])");
  const notice = await text(page, "#notice");
  check("a lost connection is told", /^No connection to Listless since \d\d:\d\d:\d\d/.test(notice), notice);
  equal("beside the figures too", await text(page, "#link"), "connection lost");
  await shoot(page, "lost", false);
  await page.unroute("**/api/v1/*");
  await becomes(page, "and told no more when it is back", async () => page.locator("#notice").isHidden());
});

// === States that a demo does not reach: the responses are altered on their way ===

async function altered(page, path, alter) {
  await page.route(path, async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: alter(await answer.json()) });
  });
}

await visit("incidents", {}, async (page) => {
  const at = Math.floor(Date.now() / 1000) - 20;
  await altered(page, "**/api/v1/timeline*", (timeline) => ({
    ...timeline,
    marks: [
      { at, kind: "relist", text: "a replica listed anew", count: 3 },
      { at: at + 5, kind: "memory", text: HOSTILE, count: 1 },
    ],
  }));
  await page.reload();
  await becomes(page, "incidents are listed, the newest first", async () => {
    const told = await page.locator("#incidents li").allInnerTexts();
    return told.length === 2 && told[0].includes(HOSTILE) && /a replica listed anew \(3 times\)/.test(told[1]);
  });
  equal("each has its mark", await page.locator("#chart g[data-kind] .mark").count(), 2);
  const title = await page.locator("#chart g[data-kind=relist] title").textContent();
  check("a mark says what and when", /^\d\d:\d\d:\d\d a replica listed anew \(3 times\)$/.test(title), title);
  const label = await page.locator("#chart svg").getAttribute("aria-label");
  check("they are counted in words", /2 incidents/.test(label), label);
  equal("nothing they say is markup", await page.evaluate(() => window.hurt), undefined);
  await shoot(page, "incidents");
});

await visit("a slow connection", {}, async (page) => {
  const before = Math.floor(Date.now() / 1000) - 60;
  const drawn = async () => (await page.locator("#chart svg").getAttribute("aria-label")) || "";
  await page.route("**/api/v1/timeline*", async (route) => {
    // The stream has sent some seconds before the earlier ones are here.
    await becomes(page, "what is new is drawn first", async () => /last ([2-9]|[1-4][0-9]) seconds/.test(await drawn()));
    const point = { at: before, client: 7, saved: 7, upstream: 0 };
    const mark = { at: before, kind: "relist", text: "a replica listed anew", count: 1 };
    await route.fulfill({ json: { periodSeconds: 1, pointsMax: 900, points: [point], marks: [mark] } });
  });
  await page.reload();
  await becomes(page, "what came late is drawn, too", async () =>
    (await page.locator("#chart g[data-kind=relist] title").count()) === 1);
  await page.unroute("**/api/v1/timeline*");
});

await visit("observe", { expected: ["Failed to load resource", "net::ERR"] }, async (page) => {
  await page.route("**/api/v1/events*", (route) => route.abort());
  await altered(page, "**/api/v1/status", (status) => ({ ...status, mode: "observe" }));
  await page.reload();
  await becomes(page, "the mode is shown", async () => (await text(page, "#mode")) === "observe");
  equal("what is told is a prediction", await text(page, "#saved-label"), "Requests that would be saved");
  await becomes(page, "nothing is said to be deducted", async () =>
    /from memory, nothing deducted/.test(await text(page, "#saved-detail")));
  await shoot(page, "observe", false);
});

for (const width of [1280, 420]) {
  await visit(`an outage, ${width} wide`, { width, expected: ["Failed to load resource", "net::ERR"] }, async (page) => {
    await page.route("**/api/v1/events*", (route) => route.abort());
    const apiserver = {
      state: "unreachable", cause: "refused", message: "cannot reach the apiserver: connection refused",
      since: Math.floor(Date.now() / 1000) - 90, forSeconds: 90, failures: 12,
    };
    await altered(page, "**/api/v1/status", (status) => ({ ...status, apiserver }));
    await page.reload();
    await becomes(page, "the outage is told with its cause and its beginning", async () =>
      /^Cannot reach the apiserver: connection refused, since .* \(12 requests failed\)\.$/.test(await text(page, "#outage")));
    equal("nothing scrolls sideways", await overflow(page), []);
    await shoot(page, `outage-${width}`, false);
  });
}

for (const many of [0, 300]) {
  await visit(`${many} replicas`, {}, async (page) => {
    await altered(page, "**/debug/replicas", (held) => ({
      ...held, replicas: Array.from({ length: many }, () => held.replicas[0]),
    }));
    await page.reload();
    await page.waitForSelector("#link[data-state=live]");
    const told = many === 0 ? "" : `${many} replicas`;
    await becomes(page, "they are counted", async () => (await text(page, "#replicas-count")) === told);
    const rows = await rowsOf(page, "replicas");
    check("all are there, or more are offered", many === 0 ? rows <= 1 : rows > 0, rows);
    equal("nothing scrolls sideways", await overflow(page), []);
    await shoot(page, `replicas-${many}`, false);
  });
}

// === Sizes ===

await visit("no rows", { rows: 0 }, async (page) => {
  check("no reason is explained", await page.locator("#reasons").isHidden());
  const advice = await text(page, "#polls-table");
  check("an empty table says what to do", /No requests yet.*eval "\$\(listless kubeconfig\)"/.test(advice), advice);
  check("no pattern is told", /No harmful pattern found/.test(await text(page, "#patterns-list")));
  equal("nothing scrolls sideways", await overflow(page), []);
  await shoot(page, "rows-0");
});

await visit("three rows", { rows: 3 }, async (page) => {
  equal("three rows", await rowsOf(page, "polls"), 3);
  equal("counted", await text(page, "#polls-count"), "3 polls");
  check("no more is offered", await page.locator("#polls-table .more button").isHidden());
  const cells = await text(page, "#polls-table");
  check("a hostile user agent is text", cells.includes(HOSTILE), cells);
  equal("and no element came of it", await page.locator("#polls img, #polls script, #patterns img").count(), 0);
  check("a row has its main reason", /saved\s+not-demanded 2/.test(cells), cells);
  const why = await text(page, "#reasons");
  check("its meaning and remedy are below", /No replica yet: .*Wait for the second read\./s.test(why)
    && why.includes(HOSTILE) && why.includes("cache.rules[].start"), why);
  equal("nor ran", await page.evaluate(() => window.hurt), undefined);
  await page.locator("#patterns .card button").first().click();
  await becomes(page, "a fix is copied", async () => /copied/.test(await text(page, "#patterns .card .foot >> nth=0")));
  const clip = await page.evaluate(() => navigator.clipboard.readText());
  check("with client, evidence and fix", /Client: /.test(clip) && /LISTs/.test(clip) && /Fix: /.test(clip), clip);
  await shoot(page, "rows-3");
});

await visit("three thousand rows", { rows: 3000 }, async (page) => {
  equal("fifty rows at first", await rowsOf(page, "polls"), 50);
  const more = page.locator("#polls-table .more button");
  equal("the rest is offered", await more.innerText(), "Show 100 more of 2,950 not shown");
  await more.click();
  equal("and shown", await rowsOf(page, "polls"), 150);
  const head = page.locator("#polls-table th").filter({ hasText: "Client" });
  await head.locator("button").click();
  equal("sorted up", await head.getAttribute("aria-sort"), "ascending");
  const up = await column(page, "polls", 1);
  equal("the rows follow", up, [...up].sort((a, b) => a.localeCompare(b)));
  await head.locator("button").click();
  equal("and down", await head.getAttribute("aria-sort"), "descending");
  equal("one head tells the order", await page.locator("#polls-table th[aria-sort]").count(), 1);
  const rate = page.locator("#polls-table th").filter({ hasText: "Rate" });
  await rate.locator("button").click();
  equal("figures begin with the largest", await rate.getAttribute("aria-sort"), "descending");
  await page.fill("#polls-filter", "agent-2999");
  await becomes(page, "the filter finds one", async () => (await rowsOf(page, "polls")) === 1);
  equal("and counts", await text(page, "#polls-count"), "1 of 3,000 polls; 4,211 requests are counted without detail");
  await page.fill("#polls-filter", "nobody at all");
  check("or says that nothing matches", /Nothing matches/.test(await text(page, "#polls-table")));
  await page.fill("#polls-filter", "");
  // Three times, for the machine may be busy with something else.
  const took = await rate.locator("button").evaluate((button) => Math.min(...[1, 2, 3].map(() => {
    const began = performance.now();
    button.click();
    return performance.now() - began;
  })));
  check("sorting stays quick", took < 1000, took);
  equal("nothing scrolls sideways", await overflow(page), []);
  await shoot(page, "rows-3000", false);
});

// === Dark, narrow, by keyboard ===

const ground = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
const brightness = (color) => color.match(/\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 3;

// Checks the contrast of every text with its background, by the WCAG formula.
const faint = (page) => page.evaluate(() => {
  const parse = (color) => color.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
    .map((part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("main *, header *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.closest("svg") || element.getClientRects().length === 0) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) found.push(`${element.className || element.tagName} ${contrast.toFixed(1)}`);
  }
  return [...new Set(found)];
});

for (const scheme of ["light", "dark"]) {
  await visit(scheme, { scheme, rows: 12 }, async (page) => {
    const shade = brightness(await ground(page));
    check(`the ground is ${scheme}`, scheme === "dark" ? shade < 60 : shade > 200, shade);
    equal(`every text stands out (${scheme})`, await faint(page), []);
    await shoot(page, `rows-12-${scheme}`);
  });
}

// Chips of more than one line, or with text that is cut off.
const broken = (page) => page.evaluate(() => [...document.querySelectorAll(".chip, .tag")]
  .filter((chip) => chip.getClientRects().length > 0)
  .filter((chip) => chip.scrollWidth > chip.clientWidth + 1
    || chip.getBoundingClientRect().height > 1.9 * parseFloat(getComputedStyle(chip).fontSize))
  .map((chip) => chip.textContent));

await visit("a phone", { width: 375, height: 812, rows: 12 }, async (page) => {
  equal("nothing scrolls sideways", await overflow(page), []);
  const sticking = await page.evaluate(() => [...document.querySelectorAll("main *")]
    .filter((element) => !element.closest("svg, thead, .sr") && element.getBoundingClientRect().right > innerWidth + 1)
    .map((element) => element.className || element.tagName));
  equal("nothing sticks out", sticking, []);
  check("rows are cards with labels", await page.evaluate(() =>
    getComputedStyle(document.querySelector("#polls-table td:nth-child(3)"), "::before").content.includes("Rate")));
  equal("no chip breaks", await broken(page), []);
  await page.setViewportSize({ width: 420, height: 812 });
  equal("no chip breaks on a larger phone", await broken(page), []);
  equal("nothing scrolls sideways there", await overflow(page), []);
  await shoot(page, "phone-420");
  await page.setViewportSize({ width: 375, height: 812 });
  await page.selectOption("#polls-table .sort-by select", "client");
  const clients = await column(page, "polls", 1);
  equal("they can be sorted", clients, [...clients].sort((a, b) => a.localeCompare(b)));
  await shoot(page, "phone-375");
  await shoot(page, "phone-375-top", false);
});

await visit("a phone, a real run", { width: 375, height: 812 }, async (page) => {
  await becomes(page, "a replica is listed", async () => (await rowsOf(page, "replicas")) > 0);
  await becomes(page, "the timeline is drawn", async () =>
    (await page.locator("#chart path.client").getAttribute("d")).length > 40);
  equal("nothing scrolls sideways", await overflow(page), []);
  await shoot(page, "real-phone-375", false);
});

await visit("a keyboard", { rows: 12 }, async (page) => {
  await page.keyboard.press("Tab");
  equal("the first stop skips to the content", await page.evaluate(() => document.activeElement.className), "skip");
  check("and is seen", await page.evaluate(() => document.activeElement.getBoundingClientRect().left >= 0));
  await page.keyboard.press("Enter");
  equal("it leads there", await page.evaluate(() => document.activeElement.id), "main");
  const stops = [];
  let unseen = 0;
  for (let step = 0; step < 60; step += 1) {
    await page.keyboard.press("Tab");
    const stop = await page.evaluate(() => {
      const { activeElement } = document;
      const style = getComputedStyle(activeElement);
      const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
      return { name: activeElement.id || activeElement.innerText || activeElement.tagName, seen };
    });
    stops.push(stop.name);
    if (!stop.seen && stop.name !== "BODY") unseen += 1;
    if (stop.name === "live-toggle") break;
  }
  for (const name of ["polls-filter", "Client", "Rate", "Copy", "explain-method", "explain-url", "live-toggle"]) {
    check(`${name} is reached by Tab`, stops.includes(name), stops);
  }
  equal("every stop is seen", unseen, 0);
  await page.locator("#polls-table th button").first().focus();
  await page.keyboard.press("Space");
  equal("a head sorts by keyboard", await page.locator("#polls-table th").first().getAttribute("aria-sort"), "ascending");
  const focused = () => page.evaluate(() => document.activeElement.innerText);
  const before = await focused();
  await page.waitForTimeout(4000);
  equal("news do not take the focus away", await focused(), before);
});

await browser.close();
console.log(JSON.stringify({ checks, failures }));
