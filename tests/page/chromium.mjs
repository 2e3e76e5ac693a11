// chromium.mjs - drives a headless Chromium over its DevTools pipe, without any package of npm.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--hide-scrollbars"];

// Starts a browser with an empty profile. `close` ends it and removes the profile.
export function open(program) {
    const profile = mkdtempSync(join(tmpdir(), "strait-chromium-"));
    const child = spawn(program, [...flags, `--user-data-dir=${profile}`, "about:blank"],
        { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    const waiting = new Map(), listeners = [];
    let next = 1, rest = "";
    child.stdio[4].on("data", data => {
        const parts = (rest + data.toString("utf8")).split("\0");
        rest = parts.pop();
        for (const text of parts) {
            const message = JSON.parse(text);
            const done = waiting.get(message.id);
            waiting.delete(message.id);
            if (done && message.error) done.reject(new Error(`${done.method}: ${message.error.message}`));
            else if (done) done.resolve(message.result);
            else listeners.forEach(listener => listener(message));
        }
    });
    const send = (method, params = {}, sessionId) => new Promise((resolve, reject) => {
        waiting.set(next, { resolve, reject, method });
        child.stdio[3].write(JSON.stringify({ id: next++, method, params, sessionId }) + "\0");
    });
    const close = async () => {
        const ended = new Promise(resolve => child.once("exit", resolve));
        send("Browser.close").catch(() => {});
        await Promise.race([ended, new Promise(resolve => setTimeout(resolve, 5000))]);
        child.kill("SIGKILL");
        rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    };
    return { send, close, on: listener => listeners.push(listener) };
}

// Opens a tab that records what goes wrong in it: `faults` has console errors, exceptions and requests to other places.
export async function tab(browser, origin, { width, height, scheme }) {
    const { targetId } = await browser.send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await browser.send("Target.attachToTarget", { targetId, flatten: true });
    const send = (method, params) => browser.send(method, params, sessionId);
    const faults = [];
    browser.on(m => {
        if (m.sessionId !== sessionId) return;
        if (m.method === "Runtime.exceptionThrown") faults.push("exception: " + (m.params.exceptionDetails.exception?.description ?? m.params.exceptionDetails.text));
        if (m.method === "Runtime.consoleAPICalled" && m.params.type === "error") faults.push("console.error: " + JSON.stringify(m.params.args));
        if (m.method === "Log.entryAdded" && m.params.entry.level === "error") faults.push(`log: ${m.params.entry.text} ${m.params.entry.url ?? ""}`);
        if (m.method === "Network.requestWillBeSent" && !m.params.request.url.startsWith(origin) && !m.params.request.url.startsWith("data:"))
            faults.push("outside request: " + m.params.request.url);
    });
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await send(`${domain}.enable`);
    await send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 500 });
    await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
    const run = async expression => {
        const answer = await send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
        if (answer.exceptionDetails) throw new Error(`${expression}: ${answer.exceptionDetails.exception?.description}`);
        return answer.result.value;
    };
    // The whole page as PNG.
    const shoot = async () => {
        const { cssContentSize: size } = await send("Page.getLayoutMetrics");
        const clip = { x: 0, y: 0, width: Math.ceil(size.width), height: Math.min(6000, Math.ceil(size.height)), scale: 1 };
        const { data } = await send("Page.captureScreenshot", { format: "png", clip, captureBeyondViewport: true });
        return Buffer.from(data, "base64");
    };
    return { send, run, shoot, faults, go: url => send("Page.navigate", { url }) };
}

// Polls until `check` returns something true, and returns it.
export async function until(what, seconds, check) {
    const end = Date.now() + 1000 * seconds;
    for (;;) {
        const value = await check();
        if (value) return value;
        if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
        await new Promise(resolve => setTimeout(resolve, 50));
    }
}
