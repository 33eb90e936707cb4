// Draws the page of a running Listless as it is now. Also draws every text file of a folder as a
// terminal shows it.
//
// Arguments: the page's URL and the folder, which also receives the pictures.

import { readFileSync, readdirSync } from "node:fs";
import { chromium } from "playwright-core";

const [, , url, folder] = process.argv;
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
});

// The part of the page with the polls and the first finding.
const HEIGHT = 1700;

async function shoot(name, { width, scheme }, show) {
  const context = await browser.newContext({
    viewport: { width, height: HEIGHT }, colorScheme: scheme, reducedMotion: "reduce", locale: "en-GB",
  });
  const page = await context.newPage();
  page.setDefaultTimeout(60000);
  const part = await show(page);
  await part.screenshot({ path: `${folder}/${name}.png`, animations: "disabled" });
  await context.close();
}

for (const scheme of ["light", "dark"]) {
  await shoot(`page-${scheme}`, { width: 1280, scheme }, async (page) => {
    await page.goto(url);
    await page.waitForSelector("#polls-table tbody tr");
    await page.waitForSelector("#patterns-list > *");
    return page;
  });
}
for (const file of readdirSync(folder).filter((name) => name.endsWith(".txt"))) {
  const text = readFileSync(`${folder}/${file}`, "utf8");
  await shoot(file.replace(/\.txt$/, ""), { width: 1600, scheme: "dark" }, async (page) => {
    await page.setContent(`<pre style="display: inline-block; margin: 0; padding: 12px; white-space: pre-wrap; background: #15181c;
      color: #e6e6e6; font: 12px/1.35 'DejaVu Sans Mono', monospace"></pre>`);
    await page.locator("pre").evaluate((pre, shown) => { pre.textContent = shown; }, text);
    return page.locator("pre");
  });
}
await browser.close();
