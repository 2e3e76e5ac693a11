// idle.mjs URL COUNT: opens COUNT connections that send half of a request or nothing, keeps them open, and then asks
// 20 times for URL/health on new connections. Fails unless each is answered. Then a body stops in the middle, and the
// server, whose --timeout is 2, must close that connection within 15 s.
import http from "http";
import net from "net";

const [url, count] = [new URL(process.argv[2]), Number(process.argv[3])];
const silent = [];
for (let i = 0; i < count; i++) {
    const socket = net.connect(Number(url.port), url.hostname);
    socket.on("error", () => {});
    socket.on("close", () => { socket.isClosed = true; });
    await new Promise((done) => { socket.once("connect", done); socket.once("close", done); });
    if (i % 2 === 0) socket.write("GET /health HTTP/1.1\r\nHost: ");
    silent.push(socket);
}
const ask = () => new Promise((done, fail) => {
    const request = http.get(url.origin + "/health", {agent: false, timeout: 5000}, (answer) => {
        answer.resume();
        answer.on("end", () => done(answer.statusCode));
    });
    request.on("timeout", () => request.destroy(new Error("no answer within 5 s")));
    request.on("error", fail);
});
for (let i = 0; i < 20; i++)
    if (await ask() !== 200) throw new Error("/health was not answered");
const left = silent.filter((socket) => !socket.isClosed).length;
console.log(`${count} silent connections, ${left} of them still open`);
const half = net.connect(Number(url.port), url.hostname);
half.write("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
half.resume();
await new Promise((done, fail) => {
    half.on("close", done);
    setTimeout(() => fail(new Error("half a body is waited for beyond --timeout")), 15000);
});
process.exit(left > 0 && left < count ? 0 : 1);
