// idle.mjs URL COUNT: opens COUNT connections that send half of a request or nothing, keeps them open, and then asks
// 20 times for URL/health on new connections. Fails unless each is answered, and some of the first were closed for it.
// idle.mjs URL half: a body stops in the middle, and the server must close that connection by itself.
import http from "http";
import net from "net";

const url = new URL(process.argv[2]), patience = 600; // seconds until it counts as a hang

if (process.argv[3] === "half") {
    const half = net.connect(Number(url.port), url.hostname);
    half.write("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
    half.resume();
    await new Promise((done, fail) => {
        half.on("close", done);
        setTimeout(() => fail(new Error("half a body is waited for beyond --timeout")), 1000 * patience);
    });
    process.exit(0);
}
const count = Number(process.argv[3]), silent = [];
for (let i = 0; i < count; i++) {
    const socket = net.connect(Number(url.port), url.hostname);
    socket.on("error", () => {});
    socket.on("close", () => { socket.isClosed = true; });
    await new Promise((done) => { socket.once("connect", done); socket.once("close", done); });
    if (i % 2 === 0) socket.write("GET /health HTTP/1.1\r\nHost: ");
    silent.push(socket);
}
const ask = () => new Promise((done, fail) => {
    const request = http.get(url.origin + "/health", {agent: false, timeout: 1000 * patience}, (answer) => {
        answer.resume();
        answer.on("end", () => done(answer.statusCode));
    });
    request.on("timeout", () => request.destroy(new Error("no answer")));
    request.on("error", fail);
});
for (let i = 0; i < 20; i++)
    if (await ask() !== 200) throw new Error("/health was not answered");
const left = silent.filter((socket) => !socket.isClosed).length;
console.log(`${count} silent connections, ${left} of them still open`);
process.exit(left > 0 && left < count ? 0 : 1);
