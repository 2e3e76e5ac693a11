// browser.mjs - checks the page of a running run in Chromium: node browser.mjs URL METRICS [NAME...]
//
// Every tile must show the last line of METRICS soon after it was written; nothing may be written to the console, and no
// request may leave the page's own server. A NAME is one of a worker that must appear as plain text. Half of the steps must
// be on the page within two seconds, and all of them within PAGE_SECONDS: a busy machine may hold up the browser. How late
// it is by itself, a timer of the page tells, and that does not count.
import { readFileSync } from "node:fs";
import { open, tab, until } from "./chromium.mjs";

const [url, metrics, ...names] = process.argv.slice(2);
const longest = Number(process.env.PAGE_SECONDS ?? 600);
const soon = 2, samples = 6;
const delays = [];
const lines = () => readFileSync(metrics, "utf8").split("\n").filter(Boolean).map(JSON.parse);
const browser = open(process.env.CHROMIUM ?? "chromium");
const median = values => values.slice().sort((a, b) => a - b)[Math.floor(values.length / 2)];
const check = (is, text) => { if (!is) throw new Error(text); };

// The tiles and the keys of metrics.jsonl they show.
const shown = { step: "step", loss: "loss", tokens: "tokens", rate: "tokens_per_s", lr: "learning_rate", norm: "grad_norm",
    forward: "forward_bytes_per_token", backward: "backward_bytes_per_token", compression: "ratio_forward" };

try {
    for (const [width, scheme] of [[1280, "light"], [390, "dark"]]) {
        const page = await tab(browser, new URL(url).origin, { width, height: 900, scheme });
        await page.go(url);
        const tiles = () => page.run(`Object.fromEntries([...document.querySelectorAll(".value")].map(e => [e.id, e.dataset.value]))`);
        await until("a step", longest, async () => Number((await tiles()).step) > 0);

        // The figures of the step that the page shows are those of its line in the file.
        const seen = await tiles(), line = lines().find(l => l.step === Number(seen.step) && "loss" in l);
        for (const [tile, key] of Object.entries(shown))
            check(String(line[key]) === seen[tile], `${tile} is ${seen[tile]}, expected ${line[key]} of step ${seen.step}`);
        const valid = lines().filter(l => "valid_loss" in l).map(l => String(l.valid_loss));
        check(seen.valid === "null" || valid.includes(seen.valid), `validation loss ${seen.valid} is not in the file`);

        // The delay of a step counts from the time in its line.
        for (let i = 0; i < samples / 2 || (i < 20 && median(delays) > soon); i++) {
            const { step, time } = lines().filter(l => "loss" in l).at(-1);
            await until(`step ${step} on the page`, longest, async () => Number((await tiles()).step) >= step);
            const shown = Date.now();
            await page.run(`new Promise(done => setTimeout(done, 10))`);
            delays.push(shown / 1000 - time - (Date.now() - shown) / 1000);
            await until("the next step", longest, () => lines().filter(l => "loss" in l).at(-1).step > step);
        }
        check(median(delays) <= soon, `steps are on the page after ${delays.map(d => d.toFixed(2)).join(", ")} s`);

        // Curves follow the axis that is chosen.
        const path = () => page.run(`document.querySelector("#chart-loss path").getAttribute("d")`);
        check((await path()).includes("L"), "the loss has no curve");
        for (const axis of ["tokens", "time"])
            await page.run(`{ const s = document.getElementById("axis"); s.value = "${axis}"; s.onchange(); }`);
        const labels = () => page.run(`[...document.querySelectorAll("#chart-loss text")].map(t => t.textContent).join(" ")`);
        check(/\d(s|m\d\d)/.test(await labels()), `the time axis has no times: ${await labels()}`);
        await page.run(`{ const l = document.getElementById("log"); l.checked = true; l.onchange(); }`);
        check((await path()).includes("L"), "the loss has no curve on a log scale");

        check(await page.run(`document.querySelectorAll(".stage").length`) >= 2, "the pipeline has no picture");
        await until("a timeline", longest, () => page.run(`document.querySelectorAll("#timeline rect").length > 10`));
        check(await page.run(`document.documentElement.scrollWidth <= innerWidth`), `the page is wider than ${width} pixels`);
        const background = await page.run(`getComputedStyle(document.body).backgroundColor`);
        check((scheme === "dark") === /rgb\(1?\d, /.test(background), `${scheme}: the background is ${background}`);
        for (const name of names) {
            await until("the worker", longest, () => page.run(`document.getElementById("workers").textContent.includes(${JSON.stringify(name)})`));
            check(await page.run(`document.querySelectorAll("script").length`) === 1, "a name became a script");
        }
        if (names.length > 0) { // a swarm with a replica more than stages
            await until("the replicas", longest, () => page.run(`[...document.querySelectorAll(".stage.many")].some(s => s.textContent.includes("2 replicas"))`));
            await until("what one more brings", longest, () => page.run(`/one more( would bring nothing|, as a replica of stage [01]: [0-9.]+ times the speed)/.test(document.getElementById("swarm").textContent)`));
        }
        check(page.faults.length === 0, page.faults.join("\n"));
    }
    console.log(`Chromium: steps are on the page after ${median(delays).toFixed(2)} s, at most ${Math.max(...delays).toFixed(2)} s`);
} finally { await browser.close(); }
