// shots.mjs - takes screenshots of a page: node shots.mjs URL FOLDER [SECONDS]
import { writeFileSync } from "node:fs";
import { open, tab, until } from "./chromium.mjs";

const [url, folder, seconds = "4"] = process.argv.slice(2);
const browser = open(process.env.CHROMIUM ?? "chromium");
try {
    for (const width of [1280, 390])
        for (const scheme of ["light", "dark"]) {
            const page = await tab(browser, new URL(url).origin, { width, height: 900, scheme });
            await page.go(url);
            await until("a loss", 20, () => page.run(`document.getElementById("loss")?.dataset.value`));
            await new Promise(resolve => setTimeout(resolve, 1000 * seconds));
            writeFileSync(`${folder}/${width}-${scheme}.png`, await page.shoot());
            console.log(width, scheme, "overflow", await page.run(`document.documentElement.scrollWidth - innerWidth`), page.faults);
        }
} finally { await browser.close(); }
