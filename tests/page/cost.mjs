// cost.mjs - what ten open pages cost the run that serves them: node cost.mjs ORIGIN PID [SECONDS]
//
// Compares the CPU time of the page's thread of process PID with the time that passes: a run that computes on one core
// takes as much where nothing else runs, and less on a busy machine, where pages cost the same. A browser opens at most
// six connections to one host, so half of the pages use its other name.
import { readFileSync, readdirSync } from "node:fs";
import { open, tab, until } from "./chromium.mjs";

const [origin, pid, seconds] = process.argv.slice(2);
const pages = 10, most = 0.01;
const read = path => readFileSync(path, "utf8");
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));

// The run: the process and its children, in hundredths of a second. The page: one thread, in nanoseconds.
const fields = id => read(`/proc/${id}/stat`).replace(/.*\) /s, "").split(" ").map(Number);
const family = [pid, ...readdirSync("/proc").filter(id => /^\d+$/.test(id)).filter(id => {
    try { return fields(id)[1] === Number(pid); } catch { return false; } // it may have ended meanwhile
})];
const thread = readdirSync(`/proc/${pid}/task`).find(id => read(`/proc/${pid}/task/${id}/comm`).trim() === "strait-page");
const run = () => family.reduce((sum, id) => sum + fields(id)[11] + fields(id)[12], 0) / 100;
const page = () => Number(read(`/proc/${pid}/task/${thread}/schedstat`).split(" ")[0]) / 1e9;

const browser = open(process.env.CHROMIUM ?? "chromium");
try {
    for (let i = 0; i < pages; i++) {
        const from = i % 2 ? origin : origin.replace("127.0.0.1", "localhost");
        const view = await tab(browser, from, { width: 1280, height: 900, scheme: "light" });
        await view.go(`${from}/`);
        await until(`a step on page ${i}`, 600, () => view.run(`Number(document.getElementById("step")?.dataset.value) > 0`));
    }
    const before = [run(), page(), Date.now()];
    await sleep(1000 * Number(seconds ?? 5));
    const [ran, served, passed] = [run() - before[0], page() - before[1], (Date.now() - before[2]) / 1000];
    console.log(`${pages} pages in Chromium took ${served.toFixed(4)} s of CPU in ${passed.toFixed(2)} s: ` +
        `${(100 * served / passed).toFixed(2)}% of a core; the run took ${ran.toFixed(2)} s`);
    if (!(served > 0)) throw new Error("the page's thread did nothing");
    if (served > most * passed) throw new Error(`more than ${100 * most}%`);
} finally { await browser.close(); }
