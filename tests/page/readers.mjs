// readers.mjs - a thousand readers that never read: node readers.mjs ORIGIN PID METRICS
//
// The run must go on meanwhile, its memory must stay within bounds, and once they have gone, others are served again.
import { readFileSync } from "node:fs";
import { connect } from "node:net";

const [origin, pid, metrics] = process.argv.slice(2);
const { hostname, port } = new URL(origin);
const memory = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) / 1024;
const steps = () => readFileSync(metrics, "utf8").split("\n").filter(l => l.includes('"loss"')).length;
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
const fail = text => { console.error(text); process.exit(1); };

const before = memory(), stepsBefore = steps();
let refused = 0;
const sockets = Array.from({ length: 1000 }, () => {
    const s = connect({ host: hostname, port: Number(port) });
    s.on("error", () => refused++).on("close", () => refused++).pause();
    s.write("GET /api/v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    return s;
});
await sleep(6000);
const grown = memory() - before;
for (let i = 0; steps() - stepsBefore < 10; i++) { // a busy machine may take longer than the 6 s
    if (i > 6000) fail(`the run made ${steps() - stepsBefore} steps in minutes`);
    await sleep(100);
}
console.log(`1000 slow readers: ${steps() - stepsBefore} steps, ${refused} connections closed, memory +${grown.toFixed(1)} MiB`);
if (grown > 64) fail(`the memory grew by ${grown} MiB`);
sockets.forEach(s => s.destroy());
for (let i = 0; ; i++) {
    const answer = await fetch(`${origin}/api/v1/state`).catch(() => null);
    if (answer?.ok) break;
    if (i > 6000) fail("the page does not answer after the slow readers have gone");
    await sleep(100);
}
